// Scatter: updates [b, u, s] written, or folded, at targets of data [b, t, s], in place.
//
//   in order   a program owns columns s of a batch and applies all updates one after another: right for every reduction
//              and for targets that repeat
//   at once    a program has a tile of updates: of targets that differ, or, by atomic updates, of integers whose fold
//              does not depend on the order (a GPU only)
#include "codegen/schedule/own_lowering.h"
#include "graph/ops/questions.h"
#include "graph/ops/scatter.h"
#include <algorithm>

namespace tessera {
namespace {

class ScatterLowering : OwnTileLowering {
public:
  ScatterLowering(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : OwnTileLowering(graph, node, device, name), data_{type(0).dtype, ops::scatter_view(graph, node)},
        targets_type_(type(1)), updates_type_(type(2)), reduction_(node.attributes.s("reduction", "none")),
        compute_(compute_dtype(data_.dtype)) {
    per_element_ = targets_type_.rank() == 3;
  }

  ScheduledKernel run() {
    const bool unique = node_.attributes.i("unique") != 0;
    atomic_ = !unique && commutes_exactly();
    at_once_ = unique || atomic_;
    choose_tile();
    parameters();
    V zero = constant(0), one = constant(1), program = b_.program_id(0);
    V column = op(ScalarOp::Mod, program, column_blocks_), rest = op(ScalarOp::Div, program, column_blocks_);
    column = op(ScalarOp::Mul, column, constant(width_));
    if (at_once_) {
      V row = op(ScalarOp::Mul, op(ScalarOp::Mod, rest, row_blocks_), constant(height_));
      apply(op(ScalarOp::Div, rest, row_blocks_), row, column);
    } else {
      V begin = op(ScalarOp::Mul, column, column_tiles_);
      V end = op(ScalarOp::Min, op(ScalarOp::Add, begin, op(ScalarOp::Mul, column_tiles_, constant(width_))), slices_);
      b_.for_loop(zero, rows_, one, {}, [&](V u, std::span<const V>) -> std::vector<V> {
        if (gpu())
          apply(rest, u, column);
        else
          b_.for_loop(begin, end, constant(width_), {}, [&](V first, std::span<const V>) -> std::vector<V> {
            apply(rest, u, first);
            return {};
          });
        return {};
      });
    }
    describe();
    return std::move(out_);
  }

private:
  // True if the result does not depend on the order, and the GPU has the atomic instruction.
  [[nodiscard]] bool commutes_exactly() const {
    return gpu() && is_integer(data_.dtype) && info(data_.dtype).bits >= 32 && reduction_ != "none" &&
           reduction_ != "mul";
  }

  void choose_tile() {
    const SymExpr slices = env_.simplify(data_.shape[2]), rows = env_.simplify(targets_type_.shape[1]);
    const BlockSize block = block_size(device_, std::max<int>(4, static_cast<int>(byte_size(data_.dtype, 1))));
    const int lanes = std::max(1, device_.vector_bytes / 4);
    const int most = gpu() ? block.threads * block.elements : lanes * std::max(1, device_.unroll);
    int height = 1;
    const int width = power_at_most(slices, most);
    if (at_once_ && gpu()) height = power_at_most(rows, most / width);
    if (at_once_ && !gpu() && width == 1) height = power_at_most(rows, lanes);
    set_tile(height, width);
    if (gpu()) out_.kernel.config["warps"] = block_warps(height_ * width_ / block.elements);
  }

  // A size that says what power of two divides it.
  V divided_size(const char* name, const SymExpr& given) {
    V v = size(name, given);
    if (const SymExpr e = env_.simplify(given); !e.is_const()) {
      const int64_t divisor = env_.divisor(e);
      out_.kernel.params.back().multiple_of = std::max<int64_t>(1, divisor & -divisor);
    }
    return v;
  }

  void parameters() {
    result_ = pointer("out", data_.dtype, true);
    out_.kernel.params.back().once = at_once_ && !atomic_;
    targets_ = pointer("targets", targets_type_.dtype, false);
    updates_ = pointer("updates", data_.dtype, false);
    const SymExpr rows = targets_type_.shape[1], slices = data_.shape[2];
    rows_ = divided_size("updates_per_batch", rows);
    size_ = divided_size("targets_per_batch", data_.shape[1]);
    slices_ = divided_size("slice", slices);
    // On a host, a program applies updates to all columns, unless that leaves cores without a program.
    if (!gpu() && !at_once_) {
      const SymExpr shares = ceildiv(SymExpr(std::max(1, device_.cores)), sym_max(data_.shape[0], 1));
      tiles_ = sym_max(ceildiv(slices, shares * width_), 1);
    }
    column_tiles_ = divided_size("column_tiles", tiles_);
    const SymExpr columns = ceildiv(slices, tiles_ * width_);
    column_blocks_ = divided_size("column_blocks", columns);
    SymExpr grid = data_.shape[0] * columns;
    if (at_once_) {
      row_blocks_ = divided_size("row_blocks", ceildiv(rows, height_));
      grid = grid * ceildiv(rows, height_);
    }
    set_grid(grid);
  }

  // Updates from `row` and columns from `column` on, of one batch.
  void apply(V batch, V row, V column) {
    V u = rows_from(row), s = columns_from(column);
    V exists = op(ScalarOp::Lt, s, slices_), among = op(ScalarOp::Lt, u, rows_);
    V update = op(ScalarOp::Add, op(ScalarOp::Mul, batch, rows_), u);
    V at = op(ScalarOp::Add, full(op(ScalarOp::Mul, update, slices_)), full(s));
    V mask = at_once_ ? op(ScalarOp::And, full(exists), full(among)) : full(exists);
    V target = per_element_ ? b_.load(targets_, at, mask) : b_.load(targets_, update, at_once_ ? among : V(-1));
    target = b_.cast(target, DType::I64);
    // Targets are data: whatever they hold, nothing else is written.
    const V there = op(ScalarOp::And, op(ScalarOp::Ge, target, constant(0)), op(ScalarOp::Lt, target, size_));
    mask = op(ScalarOp::And, mask, full(there));
    V v = b_.load(updates_, at, mask);
    V place = op(ScalarOp::Mul, op(ScalarOp::Add, op(ScalarOp::Mul, batch, size_), target), slices_);
    place = op(ScalarOp::Add, full(place), full(s));
    if (atomic_)
      b_.atomic(reduction_ == "add"   ? ReduceKind::Sum
                : reduction_ == "max" ? ReduceKind::Max
                                      : ReduceKind::Min,
                result_, place, v, mask);
    else
      b_.store(result_, place, folded(place, v, mask), mask);
  }
  V folded(V place, V v, V mask) {
    if (reduction_ == "none") return v;
    const ScalarOp fold = reduction_ == "add"   ? ScalarOp::Add
                          : reduction_ == "mul" ? ScalarOp::Mul
                          : reduction_ == "max" ? ScalarOp::Max
                                                : ScalarOp::Min;
    V old = b_.cast(b_.load(result_, place, mask), compute_);
    return b_.cast(op(fold, old, b_.cast(v, compute_)), data_.dtype);
  }

  void describe() {
    out_.schedule.kind = gpu() ? ScheduleKind::BlockFlat : ScheduleKind::Flat;
    out_.schedule.tile.rows = height_;
    out_.schedule.tile.columns = width_;
    out_.why = atomic_    ? "atomic updates, whose order does not matter"
               : at_once_ ? "targets that differ: all updates at once"
                          : "updates of a column one after another";
    out_.why += "; tile [" + std::to_string(height_) + ", " + std::to_string(width_) + "]";
    out_.buffers = {node_.results[0], node_.operands[1], node_.operands[2]};
    out_.written = {true, false, false};
    out_.may_overwrite.resize(3);
    out_.begins_as = {{ops::begins_as(node_), node_.results[0]}};
    out_.work_per_program =
        at_once_ ? SymExpr(height_ * width_) : env_.simplify(targets_type_.shape[1] * SymExpr(width_) * tiles_);
    out_.scratch_bytes = 0;
    // Elements of the data are copied where they are not taken over; those that are updated are read and written.
    const int64_t bytes = byte_size(data_.dtype, 1);
    out_.predicted = time_of_bytes(env_, device_,
                                   updates_type_.count() * (reduction_ == "none" ? 2 : 3) * bytes +
                                       targets_type_.count() * byte_size(targets_type_.dtype, 1));
  }

  const TensorType data_, targets_type_, updates_type_;
  const std::string reduction_;
  const DType compute_;
  bool per_element_ = false, at_once_ = false, atomic_ = false;
  SymExpr tiles_ = 1; // of columns, that a program has
  V result_ = -1, targets_ = -1, updates_ = -1;
  V rows_ = -1, size_ = -1, slices_ = -1, row_blocks_ = -1, column_blocks_ = -1, column_tiles_ = -1;
};

} // namespace

Result<std::vector<ScheduledKernel>> lower_scatter(const Graph& graph, const Node& node, const Target& device,
                                                   const std::string& name) {
  std::vector<ScheduledKernel> kernels;
  kernels.push_back(ops::piece_of(node) == ops::Piece::Runs ? lower_runs(graph, node, device, name)
                                                            : ScatterLowering(graph, node, device, name).run());
  return kernels;
}

} // namespace tessera
