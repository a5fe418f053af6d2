// channels-last: convolutions and poolings of floats take and yield [N, spatial..., C], with a transpose before and one
// behind. The channels of a pixel are then neighbours: what the host's convolutions read fastest, what a 1x1
// convolution needs to be a product, and the innermost axis that pointwise epilogues run along. `sink-transposes` and
// `simplify` take most of the transposes away again (docs/layouts.md).
#include "graph/passes/passes.h"
#include <algorithm>

namespace tessera::passes {
namespace {
bool has_both_layouts(const Node& node) {
  const StructuredOp* s = node.op->structured();
  return s && (s->kind == Structured::Conv || s->kind == Structured::Pool) && node.results.size() == 1 &&
         std::any_of(node.op->attributes.begin(), node.op->attributes.end(),
                     [](const AttrDef& a) { return a.name == "channels_last"; });
}
} // namespace

Result<bool> channels_last(Graph& graph, const PassOptions&) {
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node node = graph.node(id);
    if (!has_both_layouts(node) || node.attributes.i("channels_last", 0) != 0) return std::vector<ValueId>{};
    const TensorType& type = graph.type(node.operands[0]);
    if (type.dtype != DType::F32 && type.dtype != DType::F16 && type.dtype != DType::BF16)
      return std::vector<ValueId>{};
    const int64_t rank = type.rank();
    Ints to_last{0}, to_first{0, rank - 1};
    for (int64_t d = 2; d < rank; ++d) {
      to_last.push_back(d);
      to_first.push_back(d - 1);
    }
    to_last.push_back(1);
    std::vector<ValueId> operands = node.operands;
    TESSERA_ASSIGN(operands[0], emit(graph, node.location, "transpose", {operands[0]}, {{"perm", std::move(to_last)}}));
    Attributes attributes = node.attributes;
    attributes.set("channels_last", int64_t{1});
    TESSERA_ASSIGN(ValueId moved,
                   emit(graph, node.location, node.op->name, std::move(operands), std::move(attributes)));
    TESSERA_ASSIGN(ValueId back, emit(graph, node.location, "transpose", {moved}, {{"perm", std::move(to_first)}}));
    return std::vector<ValueId>{back};
  });
}

} // namespace tessera::passes
