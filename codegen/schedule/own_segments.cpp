// Folds of segments: the updates of each target of data [b, t, s], one after another, in the order in which they are
// sorted. A program has a tile of targets and columns; each element goes through the updates of its target.
#include "codegen/schedule/own_kernels.h"
#include "graph/ops/scatter.h"
#include <algorithm>
#include <array>

namespace tessera {
namespace {

using tile::Builder;
using V = tile::ValueId;
using Values = std::vector<V>;

class Segments {
public:
  Segments(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : graph_(graph), env_(graph.env()), node_(node),
        device_(device), data_{type(0).dtype, ops::scatter_view(graph, node)}, compute_(compute_dtype(data_.dtype)),
        b_(out_.kernel) {
    out_.kernel.name = name;
  }

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
    V t = indices(first, height_, 1), s = indices(column, width_, 0);
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
      return {b_.scalar(ScalarOp::Select, std::array{use, next, c[0]})};
    })[0];
    b_.store(result, place, b_.cast(folded, data_.dtype), mask);
    describe();
    return std::move(out_);
  }

private:
  [[nodiscard]] const TensorType& type(size_t operand) const { return graph_.type(node_.operands[operand]); }
  [[nodiscard]] V op(ScalarOp o, V x, V y) { return b_.scalar(o, std::array{x, y}); }
  [[nodiscard]] V constant(int64_t v) { return b_.const_i(DType::I64, v); }
  V pointer(const char* name, DType dtype, bool written) {
    V v = b_.param(name, {tile::Type::Kind::Pointer, dtype, {}}, written);
    out_.kernel.params.back().invariant = !written;
    return v;
  }
  V size(const char* name, const SymExpr& given) {
    const SymExpr e = env_.simplify(given);
    if (auto n = e.as_const()) return constant(*n);
    out_.sizes.push_back(e);
    return b_.param(name, {tile::Type::Kind::Data, DType::I64, {}});
  }

  // Columns first: neighbours in memory. Targets fill what is left.
  void choose_tile() {
    int most = std::max(1, device_.vector_bytes / 4);
    if (device_.is_gpu()) {
      const BlockSize block = block_size(device_, std::max<int>(4, static_cast<int>(byte_size(compute_, 1))));
      most = block.threads * block.elements;
      width_ = power_at_most(env_.simplify(data_.shape[2]), most);
      height_ = power_at_most(env_.simplify(data_.shape[1]), most / width_);
      out_.kernel.config["warps"] = block_warps(width_ * height_ / block.elements);
    } else {
      width_ = power_at_most(env_.simplify(data_.shape[2]), most);
      if (width_ == 1) height_ = power_at_most(env_.simplify(data_.shape[1]), most);
    }
    if (height_ > 1) shape_.push_back(height_);
    if (width_ > 1) shape_.push_back(width_);
  }

  // `n` indices from `first` on along a dimension of the tile: a scalar where the tile has no such dimension.
  V indices(V first, int n, int other_axis) {
    if (n == 1) return first;
    V r = b_.range(n);
    if (shape_.size() == 2) r = b_.expand_dims(r, other_axis);
    return op(ScalarOp::Add, r, first);
  }
  V full(V v) { return shape_.empty() || b_.kernel().type(v).shape == shape_ ? v : b_.broadcast(v, shape_); }

  void describe() {
    const SymExpr targets = data_.shape[1], slices = data_.shape[2];
    out_.schedule.kind = device_.is_gpu() ? ScheduleKind::BlockFlat : ScheduleKind::Flat;
    out_.schedule.tile.rows = height_;
    out_.schedule.tile.columns = width_;
    out_.why = "updates of each target one after another; tile [" + std::to_string(height_) + ", " +
               std::to_string(width_) + "]";
    out_.buffers = {node_.results[0], node_.operands[1], node_.operands[2], node_.operands[3], node_.operands[4]};
    out_.buffer_written = {true, false, false, false, false};
    out_.may_overwrite.resize(5);
    out_.begins_as = {{node_.operands[0], node_.results[0]}};
    out_.grid = env_.simplify(data_.shape[0] * ceildiv(targets, height_) * ceildiv(slices, width_));
    if (const int64_t most = env_.range(out_.grid).hi; device_.is_gpu() && most <= std::numeric_limits<int32_t>::max())
      out_.kernel.config["programs"] = std::max<int64_t>(1, most);
    out_.work_per_program = height_ * width_;
    out_.scratch_bytes = 0;
    const int64_t bytes = byte_size(data_.dtype, 1);
    out_.predicted = time_of_bytes(env_, device_,
                                   type(4).count() * bytes + data_.count() * (2 * bytes) +
                                       type(1).count() * byte_size(type(1).dtype, 1));
  }

  const Graph& graph_;
  const ShapeEnv& env_;
  const Node& node_;
  const Target& device_;
  const TensorType data_;
  const DType compute_;
  int height_ = 1, width_ = 1; // of the tile: targets, columns
  std::vector<int> shape_;     // the tile without dimensions of 1
  ScheduledKernel out_;
  Builder b_;
};

} // namespace

ScheduledKernel lower_segments(const Graph& graph, const Node& node, const Target& device, const std::string& name) {
  return Segments(graph, node, device, name).run();
}

} // namespace tessera
