#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/fold.h"
#include "graph/ir/operator.h"
#include "graph/scalar/scalar.h"
#include <array>

namespace tessera {
namespace {

using tile::Builder;
using V = tile::ValueId;

V op(Builder& b, ScalarOp o, V x, V y) { return b.scalar(o, std::array{x, y}); }

bool scan_takes(const Graph& graph, const Node& node, std::string* why_not) {
  auto no = [&](const char* why) {
    if (why_not) *why_not = why;
    return false;
  };
  if (node.operands.size() > 1 && node.operands[1].valid()) return no("the axis is known only when running");
  auto kind = info(graph.type(node.operands[0]).dtype).kind;
  if (kind == DTypeKind::Complex || kind == DTypeKind::Held || info(graph.type(node.operands[0]).dtype).bits < 8)
    return no("element type without code");
  if (graph.type(node.operands[0]).rank() == 0) return no("a scalar has no axis");
  return true;
}

// Scan (running sum, product or extreme) along an axis: x and y as [outer, n, inner]. On a host, along a contiguous axis a
// program takes one row and scans it tile by tile, carrying the last value; otherwise a tile of the inner dimension is
// carried down the axis.
Result<std::vector<ScheduledKernel>> lower_scan(const Graph& graph, const Node& node, const Target& device,
                                                const std::string& name) {
  const TensorType& type = graph.type(node.operands[0]);
  auto axis = node.attributes.i("axis");
  if (axis < 0) axis += type.rank();
  const ReduceKind kind = *reduce_kind_from_name(node.attributes.s("kind"));
  bool exclusive = node.attributes.i("exclusive") != 0, reverse = node.attributes.i("reverse") != 0;
  SymExpr outer = 1, inner = 1, n = type.shape[static_cast<size_t>(axis)];
  for (int d = 0; d < type.rank(); ++d) {
    if (d < axis) outer *= type.shape[static_cast<size_t>(d)];
    if (d > axis) inner *= type.shape[static_cast<size_t>(d)];
  }
  if (device.kind == Target::Kind::Cuda) {
    const ScanShape shape{type.dtype, outer, n, inner, kind, exclusive, reverse};
    std::vector<ScheduledKernel> kernels;
    for (const ScanPlan& plan : scan_plans(graph.env(), shape, device)) {
      ScheduledKernel& k = kernels.emplace_back(scan_kernel(graph.env(), shape, plan, name));
      k.buffers = {node.operands[0], node.results[0]};
      k.written = {false, true};
      k.may_overwrite.resize(2);
      k.kernel.params[0].invariant = true;
      k.predicted = time_of_bytes(graph.env(), device, type.count() * (2 * byte_size(type.dtype, 1)));
    }
    return kernels;
  }
  DType compute = compute_dtype(type.dtype);
  int lanes = std::max(1, device.vector_bytes / std::max(1, info(compute).bits / 8));
  const ScalarOp fold = fold_operator(kind);

  ScheduledKernel out;
  out.kernel.name = name;
  Builder b(out.kernel);
  V x = b.param("x", {tile::Type::Kind::Pointer, type.dtype, {}});
  V y = b.param("y", {tile::Type::Kind::Pointer, type.dtype, {}}, true);
  V extent = b.param("n", {tile::Type::Kind::Data, DType::I64, {}});
  V width = b.param("inner", {tile::Type::Kind::Data, DType::I64, {}});
  V blocks = b.param("inner_blocks", {tile::Type::Kind::Data, DType::I64, {}});
  V zero = b.const_i(DType::I64, 0), one = b.const_i(DType::I64, 1), step = b.const_i(DType::I64, lanes);
  // Carried values are rounded once for each tile and element that they are carried over: f32 would lose more with
  // each.
  const bool rounds = kind == ReduceKind::Sum || kind == ReduceKind::Prod;
  const DType carries = compute == DType::F32 && rounds ? DType::F64 : compute;
  V identity = is_float(compute) ? b.const_f(compute, reduce_identity_f64(kind, compute))
                                 : b.const_i(compute, reduce_identity_i64(kind, compute));
  V program = b.program_id(0);
  bool rows = inner.is_const(1);
  if (rows) {
    V base = op(b, ScalarOp::Mul, program, extent), last = op(b, ScalarOp::Sub, extent, one);
    b.for_loop(zero, extent, step, {b.cast(identity, carries)}, [&](V i, std::span<const V> carried) -> std::vector<V> {
      V j = op(b, ScalarOp::Add, b.range(lanes), i);
      V mask = op(b, ScalarOp::Lt, j, extent);
      V at = op(b, ScalarOp::Add, reverse ? op(b, ScalarOp::Sub, last, j) : j, base);
      V v = b.scalar(ScalarOp::Select,
                     std::array{mask, b.cast(b.load(x, at, mask), compute), b.broadcast(identity, {lanes})});
      V running = op(b, fold, b.scan(kind, v, 0), b.cast(carried[0], compute));
      if (!exclusive)
        b.store(y, at, b.cast(running, type.dtype), mask);
      else { // element j + 1 gets the value up to j; the first one is the identity
        V next = op(b, ScalarOp::Add, j, one);
        V inside = op(b, ScalarOp::Lt, next, extent);
        V to = op(b, ScalarOp::Add, reverse ? op(b, ScalarOp::Sub, last, next) : next, base);
        b.store(y, to, b.cast(running, type.dtype), inside);
      }
      V all = b.reduce(kind, v, 0);
      return {op(b, fold, b.cast(all, carries), carried[0])};
    });
    if (exclusive)
      b.store(y, op(b, ScalarOp::Add, base, reverse ? last : zero), b.cast(identity, type.dtype),
              op(b, ScalarOp::Lt, zero, extent));
  } else {
    V block = op(b, ScalarOp::Mod, program, blocks), row = op(b, ScalarOp::Div, program, blocks);
    V c = op(b, ScalarOp::Add, b.range(lanes), op(b, ScalarOp::Mul, block, step));
    V mask = op(b, ScalarOp::Lt, c, width);
    V base = op(b, ScalarOp::Mul, row, extent), last = op(b, ScalarOp::Sub, extent, one);
    b.for_loop(zero, extent, one, {b.broadcast(b.cast(identity, carries), {lanes})},
               [&](V i, std::span<const V> carried) -> std::vector<V> {
                 V j = reverse ? op(b, ScalarOp::Sub, last, i) : i;
                 V at = op(b, ScalarOp::Add, c, op(b, ScalarOp::Mul, op(b, ScalarOp::Add, base, j), width));
                 V running = op(b, fold, carried[0], b.cast(b.cast(b.load(x, at, mask), compute), carries));
                 b.store(y, at, b.cast(exclusive ? carried[0] : running, type.dtype), mask);
                 return {running};
               });
  }
  out.schedule.kind = rows ? ScheduleKind::RowLoop : ScheduleKind::ColumnLoop;
  out.why = rows ? "running value along a contiguous axis, carried from tile to tile"
                 : "running value down an axis, one tile of the inner dimension a program";
  out.buffers = {node.operands[0], node.results[0]};
  out.written = {false, true};
  out.may_overwrite.resize(2);
  out.predicted = time_of_bytes(graph.env(), device, type.count() * (2 * byte_size(type.dtype, 1)));
  out.sizes = {n, inner, ceildiv(inner, lanes)};
  out.grid = rows ? outer : outer * ceildiv(inner, lanes);
  out.work_per_program = rows ? n : n * lanes;
  out.scratch_bytes = 0;
  std::vector<ScheduledKernel> kernels;
  kernels.push_back(std::move(out));
  return kernels;
}

struct Row {
  Structured kind;
  bool (*takes)(const Graph&, const Node&, std::string*);
  Result<std::vector<ScheduledKernel>> (*lower)(const Graph&, const Node&, const Target&, const std::string&);
};
bool takes_all(const Graph&, const Node&, std::string*) { return true; }

constexpr Row kTable[] = {{Structured::Scan, scan_takes, lower_scan},
                          {Structured::Scatter, takes_all, lower_scatter},
                          {Structured::Sort, takes_all, lower_sort},
                          {Structured::Suppress, takes_all, lower_suppress},
                          {Structured::Other, takes_all, lower_tile_text}};

const Row* find(const Node& node) {
  if (const auto* s = node.op->structured())
    for (const auto& row : kTable)
      if (row.kind == s->kind) return &row;
  return nullptr;
}

} // namespace

bool has_own_kernel(const Graph& graph, const Node& node, std::string* why_not) {
  const Row* row = find(node);
  return row && row->takes(graph, node, why_not);
}

Result<std::vector<ScheduledKernel>> lower_own_kernel(const Graph& graph, const Node& node, const Target& device,
                                                      const std::string& name) {
  const Row* row = find(node);
  TESSERA_CHECK(row != nullptr, "no generated kernel for " + std::string(node.op->name));
  return row->lower(graph, node, device, name);
}

} // namespace tessera
