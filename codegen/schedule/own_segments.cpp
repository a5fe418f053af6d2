// Folds of segments: the updates of each target of data [b, t, s], one after another, in the order in which they are
// sorted. A program has a tile of targets and columns; each element goes through the updates of its target.
#include "codegen/schedule/own_lowering.h"
#include "graph/ops/scatter.h"
#include <algorithm>

namespace tessera {
namespace {

class Segments : OwnTileLowering {
public:
  Segments(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : OwnTileLowering(graph, node, device, name), data_{type(0).dtype, ops::scatter_view(graph, node)},
        compute_(compute_dtype(data_.dtype)) {}

  ScheduledKernel run() {
    choose_tile();
    V result = pointer("out", data_.dtype, true);
    out_.kernel.params.back().once = true;
    V order = pointer("order", type(1).dtype, false), starts = pointer("starts", type(2).dtype, false),
      counts = pointer("counts", type(3).dtype, false), updates = pointer("updates", data_.dtype, false);
    const SymExpr targets = data_.shape[1], slices = data_.shape[2];
    V updates_per_batch = size("updates_per_batch", type(1).shape[1]), all = size("targets_per_batch", targets),
      slice = size("slice", slices), column_blocks = size("column_blocks", ceildiv(slices, width_)),
      target_blocks = size("target_blocks", ceildiv(targets, height_));
    V zero = constant(0), one = constant(1), program = b_.program_id(0);
    V column = op(ScalarOp::Mul, op(ScalarOp::Mod, program, column_blocks), constant(width_));
    V rest = op(ScalarOp::Div, program, column_blocks);
    V first = op(ScalarOp::Mul, op(ScalarOp::Mod, rest, target_blocks), constant(height_));
    V batch = op(ScalarOp::Div, rest, target_blocks);
    V t = rows_from(first), s = columns_from(column);
    V among = op(ScalarOp::Lt, t, all), exists = op(ScalarOp::Lt, s, slice);
    V target = op(ScalarOp::Add, t, op(ScalarOp::Mul, batch, all));
    V start = b_.cast(b_.load(starts, target, among), DType::I64),
      count = b_.cast(b_.load(counts, target, among), DType::I64);
    V place = op(ScalarOp::Add, full(op(ScalarOp::Mul, target, slice)), full(s));
    V mask = op(ScalarOp::And, full(op(ScalarOp::Gt, count, zero)), full(op(ScalarOp::And, exists, exists)));
    V longest = count;
    for (size_t d = b_.kernel().type(count).shape.size(); d-- > 0;) longest = b_.reduce(ReduceKind::Max, longest, 0);
    V held = b_.cast(b_.load(result, place, mask), compute_);
    V base = op(ScalarOp::Mul, batch, updates_per_batch);
    V folded = b_.for_loop(zero, longest, one, {held}, [&](V j, std::span<const V> c) -> Values {
      V live = op(ScalarOp::Lt, j, count);
      V update = b_.load(order, op(ScalarOp::Add, op(ScalarOp::Add, start, j), base), live);
      update = op(ScalarOp::Add, b_.cast(update, DType::I64), base);
      V use = op(ScalarOp::And, full(live), mask);
      V at = op(ScalarOp::Add, full(op(ScalarOp::Mul, update, slice)), full(s));
      V v = b_.cast(b_.load(updates, at, use), compute_);
      V next = op(node_.attributes.s("reduction", "add") == "mul" ? ScalarOp::Mul : ScalarOp::Add, c[0], v);
      return {select(use, next, c[0])};
    })[0];
    b_.store(result, place, b_.cast(folded, data_.dtype), mask);
    describe();
    return std::move(out_);
  }

private:
  // Columns first: neighbours in memory. Targets fill what is left.
  void choose_tile() {
    int most = std::max(1, device_.vector_bytes / 4), height = 1, width = 1;
    if (gpu()) {
      const BlockSize block = block_size(device_, std::max<int>(4, static_cast<int>(byte_size(compute_, 1))));
      most = block.threads * block.elements;
      width = power_at_most(env_.simplify(data_.shape[2]), most);
      height = power_at_most(env_.simplify(data_.shape[1]), most / width);
      out_.kernel.config["warps"] = block_warps(width * height / block.elements);
    } else {
      width = power_at_most(env_.simplify(data_.shape[2]), most);
      if (width == 1) height = power_at_most(env_.simplify(data_.shape[1]), most);
    }
    set_tile(height, width);
  }

  void describe() {
    const SymExpr targets = data_.shape[1], slices = data_.shape[2];
    out_.schedule.kind = gpu() ? ScheduleKind::BlockFlat : ScheduleKind::Flat;
    out_.schedule.tile.rows = height_;
    out_.schedule.tile.columns = width_;
    out_.why = "updates of each target one after another; tile [" + std::to_string(height_) + ", " +
               std::to_string(width_) + "]";
    out_.buffers = {node_.results[0], node_.operands[1], node_.operands[2], node_.operands[3], node_.operands[4]};
    out_.buffer_written = {true, false, false, false, false};
    out_.may_overwrite.resize(5);
    out_.begins_as = {{node_.operands[0], node_.results[0]}};
    set_grid(data_.shape[0] * ceildiv(targets, height_) * ceildiv(slices, width_));
    out_.work_per_program = height_ * width_;
    out_.scratch_bytes = 0;
    const int64_t bytes = byte_size(data_.dtype, 1);
    out_.predicted = time_of_bytes(env_, device_,
                                   type(4).count() * bytes + data_.count() * (2 * bytes) +
                                       type(1).count() * byte_size(type(1).dtype, 1));
  }

  const TensorType data_;
  const DType compute_;
};

} // namespace

ScheduledKernel lower_segments(const Graph& graph, const Node& node, const Target& device, const std::string& name) {
  return Segments(graph, node, device, name).run();
}

} // namespace tessera
