// Sorts on a GPU: tiles of rows, each by a block, whose runs are merged pair by pair, by all blocks; elements of 64 bits
// by halves.
#include "codegen/device/cuda/passes.h"
#include "graph/ops/builder.h"
#include "graph/ops/formulas.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace tessera {
namespace {

using namespace ops;

// The runs of a row are halved until one is left; of each no more is kept than is wanted in the end.
Result<ValueId> by_tiles(Graph& graph, const Node& node, int64_t most) {
  B b(graph, node);
  const SymShape shape = b.shape(b.in(0));
  const SymExpr n = shape.back(), k = b.attr().dims("k")[0];
  const int64_t longest = std::max<int64_t>(1, b.env().range(n).hi);
  const auto tile = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(longest, most))));
  SymExpr rows = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
  int64_t width = tile; // of a run, at most
  auto kept = [&] { return b.env().simplify(sym_min(k, width)); };
  ValueId runs = b.op("sort_tiles", {reshape(b, b.in(0), {rows, n})},
                      {{"tile", tile}, {"keep", SymShape{kept()}}, {"descending", b.attr().i("descending")}});
  for (int64_t left = (longest + tile - 1) / tile; left > 1; left = (left + 1) / 2) {
    width *= 2;
    runs = b.op("merge_runs", {runs}, {{"keep", SymShape{kept()}}});
  }
  ValueId out = reshape(b, b.op1("packed_index", runs), b.type(node.results[0]).shape);
  TESSERA_ASSIGN(auto done, b.done(out));
  return done[0];
}

// Elements of 64 bits: a sort by the low half, and one of its result by the high half. Sorts keep the order of equals.
Result<ValueId> by_halves(Graph& graph, const Node& node) {
  B b(graph, node);
  ValueId x = b.in(0);
  const DType dtype = b.dtype(x);
  const Attributes a = node.attributes;
  if (dtype == DType::F64) { // as integers in the order of the numbers: one NaN, above all of them; -0 is 0
    x = select(b, b.op1("isnan", x), std::numeric_limits<double>::quiet_NaN(), select(b, eq(b, x, 0.0), 0.0, x));
    const ValueId bits = b.op("bitcast", {x}, {{"to", DType::I64}});
    const ValueId below = b.scalar_i(DType::I64, std::numeric_limits<int64_t>::max());
    x = select(b, lt(b, bits, 0.0), b.op2("xor", bits, below), bits);
  }
  const DType whole = b.dtype(x), high = info(whole).kind == DTypeKind::Signed ? DType::I32 : DType::U32;
  const ValueId low = cast(b, b.op2("and", x, b.scalar_i(whole, 0xffffffff)), DType::U32),
                top = cast(b, b.op2("shr", x, b.scalar_i(whole, 32)), high);
  auto sorted = [&](ValueId keys, const SymExpr& k) {
    return b.op("sort_indices", {keys}, {{"k", SymShape{k}}, {"descending", a.i("descending")}});
  };
  auto at = [&](ValueId v, ValueId places) {
    return b.op("gather_elements", {v, places}, {{"axis", int64_t{b.rank(v) - 1}}});
  };
  const ValueId by_low = sorted(low, b.shape(x).back());
  const ValueId by_both = sorted(at(top, by_low), a.dims("k")[0]);
  TESSERA_ASSIGN(auto done, b.done(at(by_low, by_both)));
  return done[0];
}

// Rewrites every sort of elements of more than 32 bits, or of at most 32.
Result<bool> rewrite(Graph& graph, bool wide, const std::function<Result<ValueId>(const Node&)>& rule) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node node = graph.node(id);
    if (!ops::is(node, Structured::Sort) || ops::piece_of(node) != ops::Piece::Rows ||
        (info(graph.type(node.operands[0]).dtype).bits > 32) != wide)
      continue;
    TESSERA_ASSIGN(ValueId sorted, rule(node));
    graph.value(sorted).name = graph.value(node.results[0]).name;
    graph.value(node.results[0]).name.clear();
    graph.replace_all_uses(node.results[0], sorted);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace

Result<bool> sort_by_tiles(Graph& graph, int64_t tile) {
  TESSERA_ASSIGN(const bool halved, rewrite(graph, true, [&](const Node& n) { return by_halves(graph, n); }));
  TESSERA_ASSIGN(const bool tiled, rewrite(graph, false, [&](const Node& n) { return by_tiles(graph, n, tile); }));
  return halved || tiled;
}

} // namespace tessera
