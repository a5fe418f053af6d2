// Running sums and products by blocks of threads: a tile [R, C] is scanned along the axis at once, the last value of
// each row (or column) is carried to the next tile.
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>
#include <bit>

namespace tessera {
namespace {

using tile::Builder;
using V = tile::ValueId;

constexpr int64_t kElements = 2048; // of a tile
constexpr int kWarps = 8;
constexpr int64_t kColumns = 64; // where the inner dimension is contiguous

} // namespace

// x and y as [outer, n, inner]. inner == 1: dimension 1 of the tile runs along the axis, dimension 0 over outer rows.
// Otherwise dimension 0 runs along the axis and dimension 1 over the inner positions of one outer row.
ScheduledKernel scan_by_blocks(const Graph& graph, const ScanShape& s, const std::string& name) {
  ScheduledKernel out;
  out.kernel.name = name;
  out.kernel.config["warps"] = kWarps;
  Builder b(out.kernel);
  auto op = [&](ScalarOp o, V x, V y) { return pointwise(b, o, std::array{x, y}); };
  auto constant = [&](int64_t v) { return b.const_i(DType::I64, v); };
  auto size = [&](const char* what, const SymExpr& e) {
    V v = b.param(what, {tile::Type::Kind::Data, DType::I64, {}});
    int64_t divisor = graph.env().divisor(e);
    out.kernel.params.back().multiple_of = std::max<int64_t>(1, divisor & -divisor);
    out.sizes.push_back(e);
    return v;
  };
  bool rows = s.inner.is_const(1);
  auto small = [](const SymExpr& e, int64_t most) {
    auto n = e.as_const();
    return n ? std::min<int64_t>(most,
                                 static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, *n)))))
             : most;
  };
  int64_t columns = rows ? small(s.n, kElements / 2) : small(s.inner, kColumns);
  int64_t height = rows ? std::min<int64_t>(kElements / columns, small(s.outer, 16)) : small(s.n, kElements / columns);
  int axis = rows ? 1 : 0;
  int r = static_cast<int>(height), c = static_cast<int>(columns);

  V x = b.param("x", {tile::Type::Kind::Pointer, s.dtype, {}});
  V y = b.param("y", {tile::Type::Kind::Pointer, s.dtype, {}}, true);
  V n = size("n", s.n), inner = size("inner", s.inner);
  V others = rows ? size("outer", s.outer) : size("inner_blocks", ceildiv(s.inner, columns));
  DType compute = compute_dtype(s.dtype);
  V identity = is_float(compute) ? b.const_f(compute, s.product ? 1 : 0) : b.const_i(compute, s.product ? 1 : 0);
  V down = b.expand_dims(b.range(r), 1), across = b.expand_dims(b.range(c), 0);
  V along = rows ? across : down, program = b.program_id(0);
  // The other dimension's position, the offset of its element 0, and which of them exist.
  V base = -1, exists = -1;
  if (rows) {
    V row = op(ScalarOp::Add, down, op(ScalarOp::Mul, program, constant(r)));
    base = op(ScalarOp::Mul, row, n);
    exists = op(ScalarOp::Lt, row, others);
  } else {
    V column = op(ScalarOp::Add, across, op(ScalarOp::Mul, op(ScalarOp::Mod, program, others), constant(c)));
    V row = op(ScalarOp::Mul, op(ScalarOp::Mul, op(ScalarOp::Div, program, others), n), inner);
    base = op(ScalarOp::Add, column, row);
    exists = op(ScalarOp::Lt, column, inner);
  }
  V last = op(ScalarOp::Sub, n, constant(1));
  auto offset = [&](V position) {
    V j = s.reverse ? op(ScalarOp::Sub, last, position) : position;
    return op(ScalarOp::Add, rows ? j : op(ScalarOp::Mul, j, inner), base);
  };
  std::vector<int> full{r, c}, folded = full;
  folded[static_cast<size_t>(axis)] = 1;
  ReduceKind kind = s.product ? ReduceKind::Prod : ReduceKind::Sum;
  ScalarOp fold = s.product ? ScalarOp::Mul : ScalarOp::Add;
  b.for_loop(constant(0), n, constant(full[static_cast<size_t>(axis)]), {b.broadcast(identity, folded)},
             [&](V i, std::span<const V> carried) -> std::vector<V> {
               V j = op(ScalarOp::Add, along, i);
               V mask = b.broadcast(op(ScalarOp::And, exists, op(ScalarOp::Lt, j, n)), full);
               V at = b.broadcast(offset(j), full);
               V v = b.scalar(ScalarOp::Select, std::array{mask, b.cast(b.load(x, at, mask), compute), identity});
               V running = op(fold, b.scan(kind, v, axis), carried[0]);
               if (!s.exclusive)
                 b.store(y, at, b.cast(running, s.dtype), mask);
               else { // element j + 1 gets the value up to j; the first one is the identity
                 V next = op(ScalarOp::Add, j, constant(1));
                 V inside = b.broadcast(op(ScalarOp::And, exists, op(ScalarOp::Lt, next, n)), full);
                 b.store(y, b.broadcast(offset(next), full), b.cast(running, s.dtype), inside);
               }
               return {op(fold, b.expand_dims(b.reduce(kind, v, axis), axis), carried[0])};
             });
  if (s.exclusive) {
    V first = b.broadcast(offset(constant(0)), folded);
    b.store(y, first, b.cast(identity, s.dtype),
            b.broadcast(op(ScalarOp::And, exists, op(ScalarOp::Lt, constant(0), n)), folded));
  }
  out.schedule.kind = rows ? ScheduleKind::BlockLoop : ScheduleKind::BlockColumns;
  out.schedule.config = {{"rows", height}, {"columns", columns}, {"warps", kWarps}};
  out.schedule.why = std::string(rows ? "running value along a contiguous axis" : "running value down an axis") +
                     ", carried from tile to tile; tile [" + std::to_string(r) + ", " + std::to_string(c) + "] on " +
                     std::to_string(kWarps) + " warps";
  out.grid = rows ? ceildiv(s.outer, height) : s.outer * ceildiv(s.inner, columns);
  out.work_per_program = s.n * (rows ? height : columns);
  out.scratch_bytes = 0;
  return out;
}

} // namespace tessera
