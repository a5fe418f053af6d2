// Convolution, plain and transposed, through oneDNN primitives, one per distinct block of the result.
//
// Activations are channels-last: that is where oneDNN's convolutions are fastest without any reordering between layers.
// An operand that lies otherwise is copied into scratch first, a result that does is copied out of scratch block by
// block. Weights are reordered once to the format that the primitive requires. The result is cut by images and rows;
// where rows do not divide evenly and the image is small, by output channels into a dense temporary. A 1x1 convolution
// of stride 1 is a list of pixels and is cut anywhere.
#include "runtime/library/blocks.h"
#include "runtime/library/conv_plan.h"
#include "runtime/library/conv_weights.h"
#include <algorithm>
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
      add({Dims(rank_, 0), y_.shape, {}});
      return finished();
    }
    bool dense = same_where_it_matters(x_.shape, x_.strides, channels_last(x_.shape));
    bool fine = false;
    if (const auto row = row_dimension(); row && sizes_vary()) {
      TESSERA_ASSIGN(fine, attempt(!dense, false, row));
    }
    if (fine) return finished();
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
      constexpr int64_t kMax = int64_t{1} << 30; // oneDNN computes with 32-bit sizes in places
      if (s < 1 || l < 1 || p < 0 || q < 0 || std::max({s, l, p, q}) > kMax)
        return contradiction("a stride, pad or dilation is out of range");
      if (std::max({k, x_.shape[d + 2], y_.shape[d + 2]}) > kMax || k * l > kMax)
        return Diagnostic(ErrorCode::UnsupportedFeature,
                          "convolution '" + context_.name + "': a spatial size above 2^30");
      if (k == 0) continue;
      int64_t out = y_.shape[d + 2], in = x_.shape[d + 2];
      bool fits = call_.transposed ? true : out == 0 || (out - 1) * s + (k - 1) * l < in + p + q;
      if (!fits) return contradiction("spatial size " + std::to_string(out) + " of the result");
      if (call_.transposed && std::abs((in - 1) * s + (k - 1) * l + 1 - p - out) > kMax)
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
    scratchpad_ = stage_ = window_ = 0;
    plan_->code_bytes = made_;
  }

  // False: oneDNN has nothing good for this. `row`: cut into blocks of few different sizes along that dimension.
  Result<bool> attempt(bool pack, bool padded, std::optional<size_t> row = std::nullopt) {
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
    TESSERA_ASSIGN(bool fine, row ? cut_rows(*row) : cut());
    if (!fine) return false;
    plan_->stage_at = round64(scratchpad_);
    plan_->window_at = plan_->stage_at + round64(stage_ * 4);
    plan_->worker_scratch = plan_->window_at + round64(window_ * 4);
    plan_->make_memory(context_.threads);
    return true;
  }

  [[nodiscard]] double microseconds(double share) const {
    double flops = 2.0 * static_cast<double>(count_of(y_.shape)) * static_cast<double>(count_of(w_.shape)) /
                   static_cast<double>(std::max<int64_t>(1, w_.shape[0]));
    double bytes = 4.0 * static_cast<double>(count_of(x_.shape) + count_of(y_.shape));
    return share * (flops / 1.5e5 + bytes / 1e4);
  }

  // Whether calls have other sizes than this one.
  [[nodiscard]] bool sizes_vary() const {
    return std::any_of(call_.y.shape.begin(), call_.y.shape.end(), [](const SymExpr& d) { return !d.is_const(); });
  }

  // The only dimension along which the convolution does something.
  [[nodiscard]] std::optional<size_t> row_dimension() const {
    std::optional<size_t> row;
    if (call_.transposed) return row;
    for (size_t d = 0; d < spatial_; ++d) {
      if (y_.shape[d + 2] == 1 && x_.shape[d + 2] == 1 && w_.shape[d + 2] == 1 && call_.pads_begin[d] == 0) continue;
      if (row) return std::nullopt;
      row = d;
    }
    return row ? row : spatial_ - 1;
  }

  // Blocks of numbers of rows of which there are a few, so that a new length finds the primitives of others: code for each
  // length would take some MB and tens of milliseconds. What a block reads beyond the ends of x is zeros in a copy of
  // its rows, and what it computes beyond the result is left out.
  Result<bool> cut_rows(size_t row) {
    const size_t dim = row + 2;
    ConvSizes sizes = sizes_of(x_dims_, y_.shape, Dims(spatial_, 0), Dims(spatial_, 0));
    sizes.x[0] = sizes.y[0] = sizes.x[dim] = sizes.y[dim] = 1;
    const Dims w_dims = sizes.w;
    const auto blocks = ConvBlockRows::of(sizes, dim);
    const auto chosen = choose_rows(*blocks, y_.shape[dim]);
    if (!chosen) return false;
    constexpr auto& kRows = ConvBlockRows::kRows;
    const int64_t stride = call_.strides[row], in = x_.shape[dim], most = kRows[*chosen];
    plan_->row_elements = x_dims_[1];
    std::array<std::optional<size_t>, kRows.size()> primitives;
    for (int64_t image = 0; image < y_.shape[0]; ++image)
      for (int64_t from = 0; from < y_.shape[dim]; from += most) {
        Box b{Dims(rank_, 0), y_.shape, {}};
        b.begin[0] = image;
        b.count[0] = 1;
        b.begin[dim] = from;
        const int64_t rows = b.count[dim] = std::min(most, y_.shape[dim] - from);
        const size_t i = at_least(*blocks, rows, *chosen);
        if (!primitives[i]) {
          TESSERA_ASSIGN(auto code, blocks->primitive(i, context_.packs->account(), made_, context_.name));
          if (!code) return false;
          primitives[i] = plan_->primitives.size();
          TESSERA_TRY(use(std::move(code), w_dims, 0));
          plan_->holds.push_back(blocks);
        }
        b.block.primitive = *primitives[i];
        const int64_t first = from * stride - pads_begin_[row], window = blocks->input_rows(kRows[i]);
        const int64_t begin = std::clamp<int64_t>(first, 0, in), end = std::clamp<int64_t>(first + window, begin, in);
        b.block.x_offset = image * x_strides_[0] + begin * x_strides_[dim];
        if (end - begin < window) {
          b.block.window = window;
          b.block.zeros = std::min(begin - first, window);
          b.block.rows = end - begin;
          window_ = std::max(window_, window * x_dims_[1]);
        }
        b.block.direct = y_dense_ && rows == kRows[i];
        if (!b.block.direct) stage_ = std::max(stage_, kRows[i] * y_.shape[1]);
        add(std::move(b));
      }
    return true;
  }

  // The smallest number of rows among the usable ones that takes `rows`; `most` takes them.
  static size_t at_least(ConvBlockRows& blocks, int64_t rows, size_t most) {
    for (size_t i = 0; i < most; ++i)
      if (ConvBlockRows::kRows[i] >= rows && blocks.usable(i)) return i;
    return most;
  }

  // Index into kRows with which the slowest thread is done first: large blocks read the weights less often, small ones
  // are even. Nothing: no size will do.
  std::optional<size_t> choose_rows(ConvBlockRows& blocks, int64_t total) const {
    constexpr auto& kRows = ConvBlockRows::kRows;
    constexpr double kBlock = 1.0, kWeights = 5e4; // microseconds; bytes in one
    const double per_block = kBlock + 4.0 * static_cast<double>(count_of(w_.shape)) / kWeights;
    const double per_row = microseconds(1) / static_cast<double>(y_.shape[0] * total);
    std::optional<size_t> best;
    double least = 0;
    for (size_t i = 0; i < kRows.size(); ++i) {
      if (!blocks.usable(i)) continue;
      if (best && context_.has_epilogue && kRows[i] * y_.shape[1] > kEpilogueBlock) break;
      const int64_t per_image = (total + kRows[i] - 1) / kRows[i], count = y_.shape[0] * per_image;
      const auto us = [&](int64_t rows) { return per_block + per_row * static_cast<double>(rows); };
      const double last = us(kRows[at_least(blocks, total - (per_image - 1) * kRows[i], i)]);
      const double all = static_cast<double>(y_.shape[0]) * (static_cast<double>(per_image - 1) * us(kRows[i]) + last);
      const double rounds = static_cast<double>((count + context_.threads - 1) / context_.threads);
      const double slowest =
          std::max(all / context_.threads, per_image > 1 ? (rounds - 1) * us(kRows[i]) + last : last);
      if (!best || slowest <= least) {
        best = i;
        least = slowest;
      }
      if (kRows[i] >= total) break;
    }
    return best;
  }

  Result<bool> cut() {
    // The dimensions that are divided into blocks: (image, rows of the first spatial dimension that the result has), or
    // pixels.
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
    auto blocks = sizes_vary() ? cut_into_few_sizes(dims, std::max<int64_t>(target, 1), context_.threads)
                               : cut_into_blocks(dims, target, context_.threads);
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
      Box b;
      config.x = x_dims_;
      config.y = y_.shape;
      config.pads_begin = pads_begin_;
      config.pads_end = pads_end_;
      b.begin.assign(rank_, 0);
      b.count = y_.shape;
      b.begin[0] = cut.begin[0];
      b.count[0] = cut.count[0];
      config.x[0] = config.y[0] = cut.count[0];
      b.block.x_offset = cut.begin[0] * x_strides_[0];
      if (pixels) {
        for (size_t d = 0; d < spatial_; ++d) {
          b.begin[d + 2] = cut.begin[d + 1];
          b.count[d + 2] = cut.count[d + 1];
        }
        b.block.x_offset = cut.flat_begin * x_dims_[1];
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
        b.block.x_offset += first * x_strides_[row + 2];
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
      Box b;
      b.begin.assign(rank_, 0);
      b.count = config.y;
      b.begin[1] = from;
      bool one_pixel = y_dense_ && count_of(y_.shape) == o;
      TESSERA_ASSIGN(bool fine, place(std::move(b), config, one_pixel));
      if (!fine) return false;
    }
    return true;
  }

  // A part of the result and what computes it.
  struct Box {
    Dims begin, count;
    ConvPlan::Block block;
  };

  Result<bool> place(Box b, const Config& config, bool direct) {
    auto [it, fresh] = known_.try_emplace(config, plan_->primitives.size());
    if (fresh) {
      const ConvSizes sizes = sizes_of(config.x, config.y, config.pads_begin, config.pads_end);
      TESSERA_ASSIGN(auto code, conv_primitive(sizes, context_.packs->account(), made_, context_.name));
      if (!code) return false;
      TESSERA_TRY(use(std::move(code), sizes.w, config.o_begin));
    }
    b.block.primitive = it->second;
    b.block.direct = direct;
    if (!direct) stage_ = std::max(stage_, count_of(b.count));
    add(std::move(b));
    return true;
  }

  void add(Box b) {
    b.block.y_offset = 0;
    for (size_t d = 0; d < rank_; ++d) b.block.y_offset += b.begin[d] * y_.strides[d];
    plan_->add_box(b.begin, b.count);
    plan_->blocks.push_back(b.block);
  }

  // Weights as oneDNN numbers them: [g,] out, in, kernel.
  [[nodiscard]] ConvSizes sizes_of(Dims x, Dims y, Dims pads_begin, Dims pads_end) const {
    ConvSizes sizes{call_.transposed, call_.groups,          call_.strides,
                    call_.dilations,  std::move(pads_begin), std::move(pads_end),
                    std::move(x),     std::move(y),          {}};
    if (call_.groups > 1) sizes.w.push_back(call_.groups);
    sizes.w.push_back(sizes.y[1] / call_.groups);
    sizes.w.push_back(x_.shape[1] / call_.groups);
    sizes.w.insert(sizes.w.end(), w_.shape.begin() + 2, w_.shape.end());
    return sizes;
  }

  // The plan has the primitive from now on, for channels from `o_begin` on.
  Status use(std::shared_ptr<const ConvPrimitive> code, const Dims& w_dims, int64_t o_begin) {
    auto at = [&](size_t d) { return w_.strides[d]; };
    Dims strides;
    if (call_.groups > 1) strides.push_back(w_.shape[0] / call_.groups * at(0));
    strides.push_back(call_.transposed ? at(1) : at(0));
    strides.push_back(call_.transposed ? at(0) : at(1));
    for (size_t d = 2; d < rank_; ++d) strides.push_back(at(d));
    ConvPlan::Primitive p;
    p.w_plain = Md(w_dims, kF32, strides);
    p.w_offset = o_begin * (call_.transposed ? at(1) : at(0));
    scratchpad_ = std::max(scratchpad_, static_cast<int64_t>(code->scratchpad.get_size()));
    if (w_.constant && w_.constant->defined()) {
      TESSERA_ASSIGN(p.weights,
                     want_conv_weights(*context_.packs, *w_.constant, w_.offset + p.w_offset, p.w_plain, code->w));
    } else { // reordered on each run; blocks with the same format share them
      const std::string format(reinterpret_cast<const char*>(&code->w.data), sizeof code->w.data);
      auto [it, fresh] = weights_at_.try_emplace({format, p.w_offset}, plan_->step_scratch);
      p.weights_at = it->second;
      if (fresh) plan_->step_scratch += round64(static_cast<int64_t>(code->w.get_size()));
      TESSERA_TRY(room_for_code());
      p.reorder = std::make_shared<dnnl::reorder>(
          dnnl::reorder::primitive_desc(onednn_engine(), p.w_plain, onednn_engine(), code->w));
    }
    p.code = std::move(code);
    plan_->primitives.push_back(std::move(p));
    plan_->code_bytes = made_;
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
  int64_t scratchpad_ = 0, stage_ = 0, window_ = 0; // bytes, elements, elements
  int64_t made_ = 0;                                // bytes of code that was generated for this plan
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
