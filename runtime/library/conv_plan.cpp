#include "runtime/library/conv_plan.h"
#include "runtime/library/strided_copy.h"
#include <algorithm>
#include <cstring>

namespace tessera {

void ConvPlan::make_memory(int threads) {
  at_a_time_ = std::min(blocks.size(), static_cast<size_t>(threads));
  arguments_.clear();
  for (const Primitive& p : primitives)
    for (size_t i = 0; i < at_a_time_; ++i)
      arguments_.push_back({onednn_memory(p.code->x), onednn_memory(p.code->w), onednn_memory(p.code->y),
                            onednn_memory(p.code->scratchpad)});
}

int64_t ConvPlan::host_bytes() const {
  constexpr int64_t kMemoryObject = 1024, kReorder = 64 << 10; // of oneDNN, about
  int64_t total = LibraryPlan::host_bytes() + static_cast<int64_t>(sizeof *this);
  total += static_cast<int64_t>(blocks.capacity() * sizeof(Block) + primitives.capacity() * sizeof(Primitive));
  total += static_cast<int64_t>(arguments_.size()) * 4 * kMemoryObject;
  for (const Primitive& p : primitives) total += p.reorder ? kReorder : 0;
  return total;
}

void ConvPlan::run(const LibraryRun& r) const {
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
    for (size_t b = 0; b < blocks.size(); ++b) zero(static_cast<int64_t>(b), frame.y);
  } else {
    if (pack_x) {
      auto* packed = reinterpret_cast<float*>(r.step_scratch);
      int64_t count = 1;
      for (int64_t d : x_dims) count *= d;
      if (padded_count != count) std::memset(packed, 0, static_cast<size_t>(padded_count) * sizeof(float));
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
      if (!frame.plan->zeros) frame.plan->compute(b, *frame.run, frame.x, frame.y, worker);
      frame.plan->finish(*frame.run, b, worker);
    }
  });
}

void ConvPlan::zero(int64_t block, float* y) const {
  static const float nothing = 0;
  const auto box = count(block);
  const std::array<int64_t, kMaxRank> none{};
  strided_copy(y + blocks[static_cast<size_t>(block)].y_offset, &nothing, box, y_strides,
               std::span(none).first(box.size()));
}

// Rows [begin, end) of (image, first spatial dimension) into dense channels-last, with room for pads.
void ConvPlan::pack(const float* x, float* to, int64_t begin, int64_t end) const {
  Dims dims = x_dims;
  dims[0] = dims[2] = 1;
  for (int64_t i = begin; i < end; ++i) {
    int64_t n = i / x_dims[2], row = i % x_dims[2];
    int64_t at = n * packed_strides[0] + (row + pad_first[0]) * packed_strides[2];
    for (size_t d = 1; d < pad_first.size(); ++d) at += pad_first[d] * packed_strides[d + 2];
    strided_copy(to + at, x + n * x_strides[0] + row * x_strides[2], dims, packed_strides, x_strides);
  }
}

void ConvPlan::reorder_weights(const Primitive& p, const float* w, const LibraryRun& r) {
  auto from = onednn_memory(p.w_plain), to = onednn_memory(p.code->w);
  from.set_data_handle(const_cast<float*>(w + p.w_offset));
  to.set_data_handle(r.step_scratch + p.weights_at);
  p.reorder->execute(onednn_stream(), from, to);
}

void ConvPlan::compute(int64_t block, const LibraryRun& r, const float* x, float* y, int worker) const {
  const Block& b = blocks[static_cast<size_t>(block)];
  const Primitive& p = primitives[b.primitive];
  const auto lane = static_cast<size_t>(at_a_time_ == blocks.size() ? block : worker);
  Arguments& memory = arguments_[b.primitive * at_a_time_ + lane];
  auto* const stream = onednn_stream().get();
  std::byte* scratch = r.worker_scratch[worker];
  const float* in = x + b.x_offset;
  if (b.window >= 0) {
    auto* window = reinterpret_cast<float*>(scratch + window_at);
    const auto floats = [&](int64_t rows) { return static_cast<size_t>(rows * row_elements); };
    std::fill_n(window, floats(b.zeros), 0.0F);
    std::copy_n(in, floats(b.rows), window + floats(b.zeros));
    std::fill(window + floats(b.zeros + b.rows), window + floats(b.window), 0.0F);
    in = window;
  }
  auto* out = b.direct ? y + b.y_offset : reinterpret_cast<float*>(scratch + stage_at);
  auto status = dnnl_success;
  auto set = [&](dnnl::memory& m, const void* data) {
    if (m.get_data_handle() != data)
      status = std::max(status, dnnl_memory_set_data_handle_v2(m.get(), const_cast<void*>(data), stream));
  };
  set(memory.x, in);
  set(memory.w, p.weights ? static_cast<const void*>(p.weights->data()) : r.step_scratch + p.weights_at);
  set(memory.y, out);
  set(memory.scratchpad, scratch);
  dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, memory.x.get()},
                            {DNNL_ARG_WEIGHTS, memory.w.get()},
                            {DNNL_ARG_DST, memory.y.get()},
                            {DNNL_ARG_SCRATCHPAD, memory.scratchpad.get()}};
  if (status == dnnl_success) status = dnnl_primitive_execute(p.code->primitive.get(), stream, 4, args);
  if (status != dnnl_success) r.failure->store(static_cast<int>(status), std::memory_order_relaxed);
  if (b.direct) return;
  const auto box = count(block);
  std::array<int64_t, kMaxRank> strides{};
  channels_last(box, strides);
  strided_copy(y + b.y_offset, out, box, y_strides, std::span(strides).first(box.size()));
}

} // namespace tessera
