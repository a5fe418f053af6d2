// Sorts on a GPU: tiles of rows, each by a block, whose runs are merged pair by pair, by all blocks.
#include "codegen/device/cuda/passes.h"
#include "graph/ops/builder.h"
#include "graph/ops/formulas.h"
#include <algorithm>
#include <bit>

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

} // namespace

Result<bool> sort_by_tiles(Graph& graph, int64_t tile) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const Node node = graph.node(id);
    if (node.op->name != "sort_indices" || info(graph.type(node.operands[0]).dtype).bits > 32) continue;
    TESSERA_ASSIGN(ValueId sorted, by_tiles(graph, node, tile));
    graph.value(sorted).name = graph.value(node.results[0]).name;
    graph.value(node.results[0]).name.clear();
    graph.replace_all_uses(node.results[0], sorted);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace tessera
