// share-reductions: where one tensor is reduced over some axes and, elsewhere, over more, the wider reduction starts
// from the narrower one's result: x is read once.
//
//   r = reduce_sum(x) axes=[1]           r = reduce_sum(x) axes=[1]
//   t = reduce_sum(x) axes=[0, 1]   ->   t = reduce_sum(r) axes=[0]
//
// Not where the wider one's result comes back to all of x (a norm over both axes): its kernel reads x anyway, and would
// have to wait for another. Nor sums and products in half precision, whose partial results would be rounded in between.
#include "graph/passes/passes.h"
#include <algorithm>
#include <map>
#include <set>

namespace tessera::passes {

namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kFewElements = 8; // that a partial result stands for: not worth another kernel
constexpr size_t kLookAhead = 64;   // operators behind a reduction; behind more, nothing is known

bool takes_partial_results(ReduceKind kind, DType dtype) {
  switch (kind) {
  case ReduceKind::Max:
  case ReduceKind::Min:
  case ReduceKind::Any:
  case ReduceKind::All: return true;
  case ReduceKind::Sum:
  case ReduceKind::Prod: return !is_float(dtype) || info(dtype).bits >= 32;
  default: return false; // positions
  }
}

class Sharer {
public:
  explicit Sharer(Graph& graph) : graph_(graph), users_(graph.users()) {
    for (NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      const Reduction* r = node.op->reduction();
      if (!r || !takes_partial_results(r->kind, graph.type(node.operands[0]).dtype)) continue;
      same_[{node.op, node.operands[0].index}].push_back(id);
      source_[id] = node.operands[0];
    }
  }

  Result<std::vector<ValueId>> visit(NodeId id) {
    auto source = source_.find(id);
    if (source == source_.end()) return std::vector<ValueId>{};
    const Node node = graph_.node(id);
    const ValueId x = source->second;
    const Ints axes = node.attributes.ints("axes");
    NodeId narrower;
    Ints common;
    for (NodeId other : same_.at({node.op, x.index})) {
      Ints theirs = graph_.node(other).attributes.ints("axes");
      const bool inside =
          theirs.size() < axes.size() && std::includes(axes.begin(), axes.end(), theirs.begin(), theirs.end());
      if (!inside || theirs.size() <= common.size() || few(x, theirs)) continue;
      narrower = other;
      common = std::move(theirs);
    }
    if (!narrower.valid() || comes_back(node.results[0], product(graph_.type(x).shape))) return std::vector<ValueId>{};
    const Node& first = graph_.node(narrower);
    const bool kept = first.attributes.i("keepdims", 1) != 0;
    // The remaining axes as the narrower result counts them; those of one element that it kept go with them.
    Ints rest;
    for (int64_t a : axes) {
      const bool done = std::binary_search(common.begin(), common.end(), a);
      if (done && !kept) continue;
      rest.push_back(kept ? a : a - (std::lower_bound(common.begin(), common.end(), a) - common.begin()));
    }
    Attributes attributes = node.attributes;
    attributes.set("axes", rest);
    const ValueId partial = first.results[0];
    if (kept || attributes.i("keepdims", 1) == 0) {
      TESSERA_ASSIGN(ValueId wide, emit(graph_, node.location, node.op->name, {partial}, std::move(attributes)));
      return std::vector<ValueId>{wide};
    }
    // Dimensions that the narrower one dropped and the wider one keeps.
    attributes.set("keepdims", int64_t{0});
    TESSERA_ASSIGN(ValueId wide, emit(graph_, node.location, node.op->name, {partial}, std::move(attributes)));
    TESSERA_ASSIGN(ValueId back,
                   emit(graph_, node.location, "reshape", {wide}, {{"shape", graph_.type(node.results[0]).shape}}));
    return std::vector<ValueId>{back};
  }

private:
  bool few(ValueId x, const Ints& axes) const {
    SymExpr elements = 1;
    for (int64_t a : axes) elements *= graph_.type(x).shape[static_cast<size_t>(a)];
    return graph_.env().range(elements).hi < kFewElements;
  }

  // Whether something computed from v has as many elements as x.
  bool comes_back(ValueId v, const SymExpr& elements) const {
    std::vector<ValueId> work{v};
    std::set<int32_t> seen{v.index};
    while (!work.empty()) {
      const ValueId at = work.back();
      work.pop_back();
      if (static_cast<size_t>(at.index) >= users_.size()) continue; // of another rewrite: as small as what it replaced
      for (NodeId user : users_[static_cast<size_t>(at.index)])
        for (ValueId result : graph_.node(user).results) {
          if (!result.valid() || !seen.insert(result.index).second) continue;
          if (seen.size() > kLookAhead || graph_.env().known_equal(product(graph_.type(result).shape), elements))
            return true;
          work.push_back(result);
        }
    }
    return false;
  }

  Graph& graph_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<std::pair<const OpDef*, int32_t>, std::vector<NodeId>> same_; // reductions of one kind of one value
  std::map<NodeId, ValueId> source_;                                     // what each of them reduces
};

} // namespace

Result<bool> share_reductions(Graph& graph, const PassOptions&) {
  Sharer sharer(graph);
  return Sweep(graph).run([&](NodeId id) { return sharer.visit(id); });
}

} // namespace tessera::passes
