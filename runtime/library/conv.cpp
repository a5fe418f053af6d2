// Convolution, plain and transposed, through oneDNN primitives, one per distinct block of the result.
//
// Activations are channels-last: that is where oneDNN's convolutions are fastest without any reordering between layers.
// An operand that lies otherwise is copied into scratch first, a result that does is copied out of scratch block by
// block. Weights are reordered once to the format that the primitive requires. The result is cut by images and rows;
// where rows do not divide evenly and the image is small, by output channels into a dense temporary. A 1x1 convolution
// of stride 1 is a list of pixels and is cut anywhere.
#include "runtime/library/blocks.h"
#include "runtime/library/call.h"
#include "runtime/library/onednn.h"
#include "runtime/library/strided_copy.h"
#include "runtime/library/widen.h"
#include <algorithm>
#include <cstring>
#include <map>

namespace tessera {
namespace {

using Md = dnnl::memory::desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;
constexpr int64_t kEpilogueBlock = 64 << 10; // elements: 256 KB

int64_t round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t count_of(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}
// Strides of logical dims [N, C, spatial...] laid out densely with channels last.
Dims channels_last(const Dims& dims) {
  Dims strides(dims.size());
  int64_t at = std::max<int64_t>(dims[1], 1);
  strides[1] = 1;
  for (size_t d = dims.size(); d-- > 2;) {
    strides[d] = at;
    at *= std::max<int64_t>(dims[d], 1);
  }
  strides[0] = at;
  return strides;
}
bool same_where_it_matters(const Dims& dims, const Dims& a, const Dims& b) {
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] > 1 && a[d] != b[d]) return false;
  return true;
}

// One way to call oneDNN: sizes and pads of a block.
struct Config {
  Dims x, y; // [n, c, spatial...]
  Dims pads_begin, pads_end;
  int64_t o_begin = 0; // channels of the result [o_begin, o_begin + y[1])
  auto operator<=>(const Config&) const = default;
};

struct Primitive {
  dnnl::primitive primitive;
  Md x, w, y, scratchpad;
  std::shared_ptr<const PackedWeight> weights; // of a constant
  int64_t weights_at = -1;                     // step scratch, of weights that change
  std::shared_ptr<dnnl::reorder> reorder;
  Md w_plain;
  int64_t w_offset = 0; // elements
};

struct Block {
  size_t primitive = 0;
  int64_t x_offset = 0; // elements
  Dims begin, count;    // box of the result
  int64_t y_offset = 0; // of the box's first element
  bool direct = true;   // written where it belongs; otherwise through scratch
  mutable dnnl::memory x, w, y, scratchpad;
};

class ConvPlan final : public LibraryPlan {
public:
  void run(const LibraryRun& r) const override {
    struct Frame {
      const ConvPlan* plan;
      const LibraryRun* run;
      const float* x;
      const float* w;
      float* y;
    } frame{this, &r, nullptr, nullptr, nullptr};
    frame.x = static_cast<const float*>(r.pointers[x_buffer]) + x_offset;
    frame.w = static_cast<const float*>(r.pointers[w_buffer]) + w_offset;
    frame.y = static_cast<float*>(r.pointers[y_buffer]) + y_offset;
    if (zeros) {
      for (const auto& b : blocks) plan_zero(b, frame.y);
    } else {
      if (pack_x) {
        auto* packed = reinterpret_cast<float*>(r.step_scratch);
        if (padded_count != count_of(x_dims)) std::memset(packed, 0, static_cast<size_t>(padded_count) * sizeof(float));
        r.pool->parallel_for(x_dims[0] * x_dims[2], pack_grain, [&frame](int64_t begin, int64_t end, int) {
          frame.plan->pack(frame.x, reinterpret_cast<float*>(frame.run->step_scratch), begin, end);
        });
        frame.x = packed;
      }
      for (const auto& p : primitives)
        if (p.weights_at >= 0) reorder_weights(p, frame.w, r);
    }
    r.pool->parallel_for(static_cast<int64_t>(blocks.size()), 1, [&frame](int64_t begin, int64_t end, int worker) {
      for (int64_t b = begin; b < end; ++b) {
        if (!frame.plan->zeros)
          frame.plan->block(frame.plan->blocks[static_cast<size_t>(b)], *frame.run, frame.x, frame.y, worker);
        frame.plan->finish(*frame.run, b, worker);
      }
    });
  }

  void plan_zero(const Block& b, float* y) const {
    static const float zero = 0;
    Dims none(b.count.size(), 0);
    strided_copy(y + b.y_offset, &zero, b.count, y_strides, none);
  }

  // Rows [begin, end) of (image, first spatial dimension) into dense channels-last, with room for pads.
  void pack(const float* x, float* to, int64_t begin, int64_t end) const {
    Dims dims = x_dims;
    dims[0] = dims[2] = 1;
    for (int64_t i = begin; i < end; ++i) {
      int64_t n = i / x_dims[2], row = i % x_dims[2];
      int64_t at = n * packed_strides[0] + (row + pad_first[0]) * packed_strides[2];
      for (size_t d = 1; d < pad_first.size(); ++d) at += pad_first[d] * packed_strides[d + 2];
      strided_copy(to + at, x + n * x_strides[0] + row * x_strides[2], dims, packed_strides, x_strides);
    }
  }

  static void reorder_weights(const Primitive& p, const float* w, const LibraryRun& r) {
    auto from = onednn_memory(p.w_plain), to = onednn_memory(p.w);
    from.set_data_handle(const_cast<float*>(w + p.w_offset));
    to.set_data_handle(r.step_scratch + p.weights_at);
    p.reorder->execute(onednn_stream(), from, to);
  }

  void block(const Block& b, const LibraryRun& r, const float* x, float* y, int worker) const {
    const auto& p = primitives[b.primitive];
    auto stream = onednn_stream().get();
    std::byte* scratch = r.worker_scratch[worker];
    auto* out = b.direct ? y + b.y_offset : reinterpret_cast<float*>(scratch + stage_at);
    auto status = dnnl_success;
    auto set = [&](dnnl::memory& m, const void* data) {
      if (m.get_data_handle() != data)
        status = std::max(status, dnnl_memory_set_data_handle_v2(m.get(), const_cast<void*>(data), stream));
    };
    set(b.x, x + b.x_offset);
    set(b.w, p.weights ? static_cast<const void*>(p.weights->data()) : r.step_scratch + p.weights_at);
    set(b.y, out);
    set(b.scratchpad, scratch);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, b.x.get()},
                              {DNNL_ARG_WEIGHTS, b.w.get()},
                              {DNNL_ARG_DST, b.y.get()},
                              {DNNL_ARG_SCRATCHPAD, b.scratchpad.get()}};
    if (status == dnnl_success) status = dnnl_primitive_execute(p.primitive.get(), stream, 4, args);
    if (status != dnnl_success) r.failure->store(static_cast<int>(status), std::memory_order_relaxed);
    if (!b.direct) {
      Dims strides = channels_last(b.count);
      strided_copy(y + b.y_offset, out, b.count, y_strides, strides);
    }
  }

  BufferId x_buffer = -1, w_buffer = -1, y_buffer = -1;
  int64_t x_offset = 0, w_offset = 0, y_offset = 0;
  Dims x_dims, x_strides, y_strides;
  bool zeros = false, pack_x = false;
  Dims packed_strides, pad_first; // of the copy of x
  int64_t padded_count = 0, pack_grain = 1;
  std::vector<Primitive> primitives;
  std::vector<Block> blocks; // block b computes box b
  int64_t stage_at = 0;
};

// Makes one plan; tried with x as it is, then with a copy of x that holds its pads as zeros, when oneDNN has only a
// reference implementation for the former, or none.
class Planner {
public:
  Planner(const PlanContext& context, const ConvCall& call, const Operand& x, const Operand& w, const Operand& y)
      : context_(context), call_(call), x_(x), w_(w), y_(y), rank_(x.shape.size()), spatial_(rank_ - 2) {}

  Result<std::unique_ptr<LibraryPlan>> run() {
    if (auto s = check_shapes(); !s.ok()) return std::move(s).take_error();
    begin();
    if (count_of(y_.shape) == 0) return finished();
    if (count_of(x_.shape) == 0 || count_of(w_.shape) == 0) {
      plan_->zeros = true;
      Block b;
      b.begin.assign(rank_, 0);
      b.count = y_.shape;
      add(std::move(b));
      return finished();
    }
    bool dense = same_where_it_matters(x_.shape, x_.strides, channels_last(x_.shape));
    bool fine = false;
    if (!call_.transposed && reads_nothing_but_pads()) {
      TESSERA_ASSIGN(fine, attempt(true, true));
    } else {
      TESSERA_ASSIGN(fine, attempt(!dense, false));
    }
    if (!fine) {
      TESSERA_ASSIGN(bool padded, attempt(true, true));
      if (!padded)
        return Diagnostic(ErrorCode::DeviceError,
                          "convolution '" + context_.name + "': oneDNN has no implementation for its sizes");
    }
    return finished();
  }

private:
  Status check_shapes() {
    auto contradiction = [&](const std::string& what) {
      return Diagnostic(ErrorCode::Internal, "convolution '" + context_.name + "': " + what);
    };
    if (rank_ < 3 || rank_ > 5 || y_.shape.size() != rank_ || w_.shape.size() != rank_)
      return contradiction("ranks of the operands");
    for (const auto* v : {&call_.strides, &call_.pads_begin, &call_.pads_end, &call_.dilations})
      if (v->size() != spatial_)
        return contradiction("strides, pads and dilations need one entry per spatial dimension");
    int64_t g = call_.groups, c = x_.shape[1], o = y_.shape[1];
    if (g < 1 || c % g != 0 || o % g != 0 || x_.shape[0] != y_.shape[0]) return contradiction("groups and channels");
    int64_t w0 = call_.transposed ? c : o, w1 = call_.transposed ? o / g : c / g;
    if (w_.shape[0] != w0 || w_.shape[1] != w1) return contradiction("channels of the weights");
    Dims padded = x_.shape;
    for (size_t d = 0; d < spatial_; ++d) {
      int64_t s = call_.strides[d], l = call_.dilations[d], p = call_.pads_begin[d], q = call_.pads_end[d],
              k = w_.shape[d + 2];
      constexpr int64_t kMost = int64_t{1} << 30; // oneDNN computes with 32-bit sizes in places
      if (s < 1 || l < 1 || p < 0 || q < 0 || std::max({s, l, p, q}) > kMost)
        return contradiction("a stride, pad or dilation is out of range");
      if (std::max({k, x_.shape[d + 2], y_.shape[d + 2]}) > kMost || k * l > kMost)
        return Diagnostic(ErrorCode::UnsupportedFeature,
                          "convolution '" + context_.name + "': a spatial size above 2^30");
      if (k == 0) continue;
      int64_t out = y_.shape[d + 2], in = x_.shape[d + 2];
      bool fits = call_.transposed ? true : out == 0 || (out - 1) * s + (k - 1) * l < in + p + q;
      if (!fits) return contradiction("spatial size " + std::to_string(out) + " of the result");
      if (call_.transposed && std::abs((in - 1) * s + (k - 1) * l + 1 - p - out) > kMost)
        return contradiction("spatial size " + std::to_string(out) + " of the result");
      padded[d + 2] += p + q;
    }
    TESSERA_ASSIGN([[maybe_unused]] int64_t count, element_count(padded)); // of a padded copy
    return {};
  }

  // Is there an output position whose whole window lies in the pads? Some of oneDNN's implementations compute it
  // wrongly (1x1 with a pad of 1).
  [[nodiscard]] bool reads_nothing_but_pads() const {
    for (size_t d = 0; d < spatial_; ++d) {
      int64_t reach = (w_.shape[d + 2] - 1) * call_.dilations[d] + 1;
      int64_t last = (y_.shape[d + 2] - 1) * call_.strides[d] - call_.pads_begin[d];
      if (call_.pads_begin[d] >= reach || last >= x_.shape[d + 2]) return true;
    }
    return false;
  }

  void begin() {
    plan_ = std::make_unique<ConvPlan>();
    plan_->rank = static_cast<int>(rank_);
    plan_->x_buffer = x_.buffer;
    plan_->w_buffer = w_.buffer;
    plan_->y_buffer = y_.buffer;
    plan_->x_offset = x_.offset;
    plan_->w_offset = w_.offset;
    plan_->y_offset = y_.offset;
    plan_->x_dims = x_.shape;
    plan_->x_strides = x_.strides;
    plan_->y_strides = y_.strides;
    known_.clear();
    weights_at_.clear();
    scratchpad_ = stage_ = 0;
  }

  // False: oneDNN has nothing good for this.
  Result<bool> attempt(bool pack, bool padded) {
    begin();
    pads_begin_ = call_.pads_begin;
    pads_end_.assign(spatial_, 0);
    x_dims_ = x_.shape;
    for (size_t d = 0; d < spatial_; ++d) {
      int64_t s = call_.strides[d], reach = (w_.shape[d + 2] - 1) * call_.dilations[d] + 1, in = x_.shape[d + 2],
              out = y_.shape[d + 2];
      if (call_.transposed) {
        // The end of what is cut off from (in - 1) * s + reach; a result that reaches further reads zeros after x.
        pads_end_[d] = (in - 1) * s + reach - pads_begin_[d] - out;
        if (pads_end_[d] < 0) {
          int64_t more = (-pads_end_[d] + s - 1) / s;
          x_dims_[d + 2] += more;
          pads_end_[d] += more * s;
        }
      } else {
        pads_end_[d] = std::max<int64_t>(0, (out - 1) * s + reach - pads_begin_[d] - in);
      }
    }
    plan_->pad_first.assign(spatial_, 0);
    if (padded && !call_.transposed)
      for (size_t d = 0; d < spatial_; ++d) {
        plan_->pad_first[d] = pads_begin_[d];
        x_dims_[d + 2] += pads_begin_[d] + pads_end_[d];
        pads_begin_[d] = pads_end_[d] = 0;
      }
    plan_->pack_x = pack || x_dims_ != x_.shape;
    plan_->packed_strides = channels_last(x_dims_);
    plan_->padded_count = plan_->pack_x ? count_of(x_dims_) : 0;
    plan_->step_scratch = round64(plan_->padded_count * 4);
    plan_->pack_grain =
        std::max<int64_t>(1, (16 << 10) * x_.shape[2] * x_.shape[0] / std::max<int64_t>(1, count_of(x_.shape)));
    x_strides_ = channels_last(x_dims_);
    y_dense_ = same_where_it_matters(y_.shape, y_.strides, channels_last(y_.shape));
    TESSERA_ASSIGN(bool fine, cut());
    if (!fine) return false;
    plan_->stage_at = round64(scratchpad_);
    plan_->worker_scratch = plan_->stage_at + round64(stage_ * 4);
    for (auto& b : plan_->blocks) {
      const auto& p = plan_->primitives[b.primitive];
      b.x = onednn_memory(p.x);
      b.w = onednn_memory(p.w);
      b.y = onednn_memory(p.y);
      b.scratchpad = onednn_memory(p.scratchpad);
    }
    return true;
  }

  [[nodiscard]] double microseconds(double share) const {
    double flops = 2.0 * static_cast<double>(count_of(y_.shape)) * static_cast<double>(count_of(w_.shape)) /
                   static_cast<double>(std::max<int64_t>(1, w_.shape[0]));
    double bytes = 4.0 * static_cast<double>(count_of(x_.shape) + count_of(y_.shape));
    return share * (flops / 1.5e5 + bytes / 1e4);
  }

  Result<bool> cut() {
    // What is cut: (image, rows of the first spatial dimension that the result has), or pixels.
    bool pixels = !call_.transposed && spatial_ >= 1;
    for (size_t d = 0; d < spatial_; ++d)
      pixels = pixels && w_.shape[d + 2] == 1 && call_.strides[d] == 1 && pads_begin_[d] == 0 && pads_end_[d] == 0 &&
               x_dims_[d + 2] == y_.shape[d + 2];
    size_t row = 0;
    while (row + 1 < spatial_ && y_.shape[row + 2] == 1 && x_dims_[row + 2] == 1) ++row;
    Dims dims{y_.shape[0]};
    if (pixels)
      dims.insert(dims.end(), y_.shape.begin() + 2, y_.shape.end());
    else if (!call_.transposed)
      dims.push_back(y_.shape[row + 2]);
    int64_t total = count_of(dims), row_elements = count_of(y_.shape) / total;
    int64_t threads = context_.threads, per_thread = (total + threads - 1) / threads;
    // The most that pays: a block of a few microseconds.
    auto least = static_cast<int64_t>(4.0 / std::max(1e-9, microseconds(1.0 / static_cast<double>(total)))) + 1;
    int64_t target = std::max(per_thread, least);
    if (context_.has_epilogue) target = std::min(target, std::max<int64_t>(kEpilogueBlock / row_elements, least));
    auto blocks = cut_into_blocks(dims, target, context_.threads);
    // Blocks go to threads in runs of neighbours.
    auto count = static_cast<int64_t>(blocks.size());
    int64_t longest = 0;
    for (int64_t t = 0; t < threads; ++t) {
      int64_t load = 0;
      for (int64_t b = count * t / threads; b < count * (t + 1) / threads; ++b)
        load += blocks[static_cast<size_t>(b)].flat_count;
      longest = std::max(longest, load);
    }
    double waste = static_cast<double>(longest * threads) / static_cast<double>(total);
    constexpr int64_t kSmallImage = 196; // pixels: the copy out of the temporary stays cheap
    int64_t o = y_.shape[1], images = count_of(y_.shape) / o;
    bool by_channels = call_.groups == 1 && threads > 1 && waste > 1.1 && o >= 32 * threads && microseconds(1) > 8.0 &&
                       (images <= kSmallImage || call_.transposed);
    if (by_channels) return cut_channels();

    for (const auto& cut : blocks) {
      Config config;
      Block b;
      config.x = x_dims_;
      config.y = y_.shape;
      config.pads_begin = pads_begin_;
      config.pads_end = pads_end_;
      b.begin.assign(rank_, 0);
      b.count = y_.shape;
      b.begin[0] = cut.begin[0];
      b.count[0] = cut.count[0];
      config.x[0] = config.y[0] = cut.count[0];
      b.x_offset = cut.begin[0] * x_strides_[0];
      if (pixels) {
        for (size_t d = 0; d < spatial_; ++d) {
          b.begin[d + 2] = cut.begin[d + 1];
          b.count[d + 2] = cut.count[d + 1];
        }
        b.x_offset = cut.flat_begin * x_dims_[1];
        config.x.assign(rank_, 1);
        config.x[1] = x_dims_[1];
        config.x[rank_ - 1] = cut.flat_count;
        config.y = config.x;
        config.y[1] = o;
      } else if (!call_.transposed && cut.count[0] == 1) { // a block of several images has all rows of each
        int64_t s = call_.strides[row], from = cut.begin[1], to = from + cut.count[1], height = x_dims_[row + 2];
        int64_t reach = (w_.shape[row + 2] - 1) * call_.dilations[row] + 1;
        int64_t first = from * s - pads_begin_[row],
                last = (to - 1) * s - pads_begin_[row] + reach; // rows of x that it reads
        int64_t top = std::max<int64_t>(0, -first), bottom = std::max<int64_t>(0, last - height);
        first = std::min(first + top, height);
        last = std::max(last - bottom, first);
        if (first == last) return false; // a block that reads nothing but pads: the padded copy serves it
        b.begin[row + 2] = from;
        b.count[row + 2] = to - from;
        config.x[row + 2] = last - first;
        config.y[row + 2] = to - from;
        config.pads_begin[row] = top;
        config.pads_end[row] = bottom;
        b.x_offset += first * x_strides_[row + 2];
      }
      TESSERA_ASSIGN(bool fine, place(std::move(b), config, y_dense_));
      if (!fine) return false;
    }
    return true;
  }

  Result<bool> cut_channels() {
    constexpr int64_t kUnit = 16; // channels of one vector
    int64_t o = y_.shape[1], units = (o + kUnit - 1) / kUnit, pieces = std::min<int64_t>(units, context_.threads);
    for (int64_t p = 0; p < pieces; ++p) {
      int64_t from = std::min(o, units * p / pieces * kUnit), to = std::min(o, units * (p + 1) / pieces * kUnit);
      Config config{x_dims_, y_.shape, pads_begin_, pads_end_, from};
      config.y[1] = to - from;
      Block b;
      b.begin.assign(rank_, 0);
      b.count = config.y;
      b.begin[1] = from;
      bool one_pixel = y_dense_ && count_of(y_.shape) == o;
      TESSERA_ASSIGN(bool fine, place(std::move(b), config, one_pixel));
      if (!fine) return false;
    }
    return true;
  }

  Result<bool> place(Block b, const Config& config, bool direct) {
    auto [it, fresh] = known_.try_emplace(config, plan_->primitives.size());
    if (fresh) {
      TESSERA_ASSIGN(bool fine, create(config));
      if (!fine) return false;
    }
    b.primitive = it->second;
    b.direct = direct;
    if (!direct) stage_ = std::max(stage_, count_of(b.count));
    add(std::move(b));
    return true;
  }

  void add(Block b) {
    b.y_offset = 0;
    for (size_t d = 0; d < rank_; ++d) b.y_offset += b.begin[d] * y_.strides[d];
    plan_->add_box(b.begin, b.count);
    plan_->blocks.push_back(std::move(b));
  }

  Result<bool> create(const Config& config) {
    using namespace dnnl;
    int64_t g = call_.groups, outs = config.y[1];
    // Weights as oneDNN numbers them: [g,] out, in, kernel.
    Dims dims, strides;
    auto at = [&](size_t d) { return w_.strides[d]; };
    if (g > 1) {
      dims.push_back(g);
      strides.push_back(w_.shape[0] / g * at(0));
    }
    dims.push_back(outs / g);
    strides.push_back(call_.transposed ? at(1) : at(0));
    dims.push_back(x_.shape[1] / g);
    strides.push_back(call_.transposed ? at(0) : at(1));
    for (size_t d = 2; d < rank_; ++d) {
      dims.push_back(w_.shape[d]);
      strides.push_back(at(d));
    }
    Primitive p;
    try {
      Md x(config.x, kF32, channels_last(config.x)), y(config.y, kF32, channels_last(config.y)),
          w(dims, kF32, memory::format_tag::any);
      Dims dilations = call_.dilations;
      for (auto& d : dilations) --d;
      std::string implementation;
      if (call_.transposed) {
        deconvolution_forward::desc desc(prop_kind::forward_inference, algorithm::deconvolution_direct, x, w, y,
                                         call_.strides, dilations, config.pads_begin, config.pads_end);
        deconvolution_forward::primitive_desc pd(desc, onednn_attributes(), onednn_engine());
        p.primitive = deconvolution_forward(pd);
        p.w = pd.weights_desc();
        p.scratchpad = pd.scratchpad_desc();
      } else {
        convolution_forward::desc desc(prop_kind::forward_inference, algorithm::convolution_direct, x, w, y,
                                       call_.strides, dilations, config.pads_begin, config.pads_end);
        convolution_forward::primitive_desc pd(desc, onednn_attributes(), onednn_engine());
        implementation = pd.impl_info_str();
        p.primitive = convolution_forward(pd);
        p.w = pd.weights_desc();
        p.scratchpad = pd.scratchpad_desc();
      }
      bool has_pads =
          std::any_of(config.pads_begin.begin(), config.pads_begin.end(), [](int64_t v) { return v > 0; }) ||
          std::any_of(config.pads_end.begin(), config.pads_end.end(), [](int64_t v) { return v > 0; });
      if (implementation.starts_with("ref") && has_pads) return false;
      p.x = x;
      p.y = y;
      p.w_plain = Md(dims, kF32, strides);
      scratchpad_ = std::max(scratchpad_, static_cast<int64_t>(p.scratchpad.get_size()));
      p.reorder = std::make_shared<reorder>(reorder::primitive_desc(onednn_engine(), p.w_plain, onednn_engine(), p.w));
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory)
        return Diagnostic(ErrorCode::OutOfMemory, "convolution '" + context_.name + "': " + e.what());
      return false;
    }
    p.w_offset = config.o_begin * (call_.transposed ? at(1) : at(0));
    TESSERA_TRY(want_weights(p));
    plan_->primitives.push_back(std::move(p));
    return true;
  }

  Status want_weights(Primitive& p) {
    std::string layout(reinterpret_cast<const char*>(&p.w.data), sizeof p.w.data);
    if (w_.constant && w_.constant->defined()) {
      PackRequests::Job job;
      std::string plain(reinterpret_cast<const char*>(&p.w_plain.data), sizeof p.w_plain.data);
      DType dtype = w_.constant->dtype();
      job.key =
          "conv " + std::string(name(dtype)) + " " + std::to_string(w_.offset + p.w_offset) + " " + plain + layout;
      job.bytes = p.w.get_size();
      job.fill = [reorder = p.reorder, from_md = p.w_plain, to_md = p.w, dtype,
                  at = w_.offset + p.w_offset](std::byte* to, const std::byte* from, int) {
        auto source = onednn_memory(from_md), target = onednn_memory(to_md);
        std::vector<float> wide; // of half-precision weights, for the time of the reordering
        if (dtype != DType::F32) {
          wide.resize(from_md.get_size() / sizeof(float));
          widen(wide.data(), reinterpret_cast<const uint16_t*>(from) + at, static_cast<int64_t>(wide.size()), dtype);
          source.set_data_handle(wide.data());
        } else {
          source.set_data_handle(const_cast<std::byte*>(from) + at * 4);
        }
        target.set_data_handle(to);
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source.get()}, {DNNL_ARG_TO, target.get()}};
        return dnnl_primitive_execute(reorder->get(), onednn_stream().get(), 2, args) == dnnl_success;
      };
      TESSERA_ASSIGN(p.weights, context_.packs->want(*w_.constant, std::move(job)));
      return {};
    }
    // Weights that change are reordered on each run; blocks with the same format share them.
    auto [it, fresh] = weights_at_.try_emplace({layout, p.w_offset}, plan_->step_scratch);
    p.weights_at = it->second;
    if (fresh) plan_->step_scratch += round64(static_cast<int64_t>(p.w.get_size()));
    return {};
  }

  Result<std::unique_ptr<LibraryPlan>> finished() { return std::unique_ptr<LibraryPlan>(std::move(plan_)); }

  const PlanContext& context_;
  const ConvCall& call_;
  const Operand &x_, &w_, &y_;
  size_t rank_, spatial_;
  std::unique_ptr<ConvPlan> plan_;
  Dims x_dims_, x_strides_, pads_begin_, pads_end_;
  bool y_dense_ = false;
  std::map<Config, size_t> known_;
  std::map<std::pair<std::string, int64_t>, int64_t> weights_at_;
  int64_t scratchpad_ = 0, stage_ = 0; // bytes, elements
};

ErrorCode code_of(dnnl_status_t status) {
  return status == dnnl_out_of_memory ? ErrorCode::OutOfMemory : ErrorCode::DeviceError;
}

} // namespace

Diagnostic library_error(int failure, const std::string& step) {
  return {code_of(static_cast<dnnl_status_t>(failure)),
          "oneDNN failed with status " + std::to_string(failure) + " in '" + step + "'"};
}

Result<std::unique_ptr<LibraryPlan>> plan_conv(const PlanContext& context, const ConvCall& call, const Operand& x,
                                               const Operand& w, const Operand& y) {
  try {
    return Planner(context, call, x, w, y).run();
  } catch (const dnnl::error& e) {
    return Diagnostic(code_of(e.status), "convolution '" + context.name + "': " + e.what());
  }
}

} // namespace tessera
