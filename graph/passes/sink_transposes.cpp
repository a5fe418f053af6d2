// sink-transposes: op(transpose(a), transpose(b)) becomes transpose(op(a, b)) where that leaves fewer transposes:
// several operands have the same one, or the result runs into another one that it composes with (and often cancels).
//
// Transposes are views, and fusion folds views into indexing; so this is not about every transpose, only about those
// that stand between operators and would be seen by libraries or break one iteration space into two.
//
// A value that a library lays out itself (channels_last: convolutions, poolings) and what is computed from it in that
// layout is worth keeping in it: its transpose always sinks, through pointwise operators (operands that are broadcast
// or constant follow it into the layout), reductions, joins and reshapes that keep its runs together.
#include "graph/passes/passes.h"
#include <algorithm>
#include <numeric>

namespace tessera::passes {
namespace {
// Behind each value: does every path through pointwise operators end at a transpose? (An output is no transpose.)
std::vector<bool> runs_into_transpose(const Graph& graph, const std::vector<NodeId>& order) {
  const size_t count = static_cast<size_t>(graph.value_count());
  std::vector<bool> all(count, true), used(count, false);
  for (const Graph::Output& o : graph.outputs()) all[static_cast<size_t>(o.value.index)] = false;
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    const Node& n = graph.node(*id);
    bool leads = n.op->name == "transpose";
    if (n.op->pointwise() && n.results.size() == 1) {
      const size_t r = static_cast<size_t>(n.results[0].index);
      leads = all[r] && used[r];
    }
    for (ValueId v : n.operands) {
      if (!v.valid()) continue;
      used[static_cast<size_t>(v.index)] = true;
      if (!leads) all[static_cast<size_t>(v.index)] = false;
    }
  }
  for (size_t i = 0; i < count; ++i) all[i] = all[i] && used[i];
  return all;
}

bool one_element(const TensorType& type) {
  return std::all_of(type.shape.begin(), type.shape.end(), [](const SymExpr& e) { return e.is_const(1); });
}

Ints inverse(const Ints& perm) {
  Ints out(perm.size());
  for (size_t k = 0; k < perm.size(); ++k) out[static_cast<size_t>(perm[k])] = static_cast<int64_t>(k);
  return out;
}

using Replacement = std::vector<ValueId>; // of the node's results; empty: it stays

class Sinker {
public:
  explicit Sinker(Graph& graph) : graph_(graph), leads_(runs_into_transpose(graph, graph.order())) {}

  Result<Replacement> rule(NodeId id) {
    const Node node = graph_.node(id);
    if (node.results.size() != 1 || node.op->side_effect) return Replacement{};
    if (keeps_layout(node)) mark(node.results[0]);
    if (node.op->pointwise()) return pointwise(node);
    if (node.operands.empty() || !is_transpose(node.operands[0]) || !laid_out(source(node.operands[0])))
      return Replacement{};
    if (node.op->name == "transpose") { // what a transpose that has sunk to here undoes
      const bool undone = node.attributes.ints("perm") == inverse(perm_of(node.operands[0]));
      return undone ? Replacement{source(node.operands[0])} : Replacement{};
    }
    if (node.op->reduction()) return reduction(node);
    if (node.op->name == "concat") return concat(node);
    if (node.op->name == "reshape") return reshape(node);
    if (node.op->name == "slice") return by_dimension(node, {"starts", "steps", "sizes"});
    if (node.op->name == "pad") return by_dimension(node, {"pads_begin", "pads_end"});
    return Replacement{};
  }

private:
  [[nodiscard]] bool is_transpose(ValueId v) const { return v.valid() && is_op(graph_.producer(v), "transpose"); }
  [[nodiscard]] ValueId source(ValueId v) const { return graph_.producer(v)->operands[0]; }
  [[nodiscard]] Ints perm_of(ValueId v) const { return graph_.producer(v)->attributes.ints("perm"); }
  // A library chose this value's layout, for itself or for what it was computed from.
  [[nodiscard]] bool laid_out(ValueId v) const {
    if (static_cast<size_t>(v.index) < laid_out_.size() && laid_out_[static_cast<size_t>(v.index)]) return true;
    const Node* producer = graph_.producer(v);
    return producer && producer->attributes.i("channels_last", 0) != 0;
  }
  // Computed from a value that was laid out, dimension by dimension: pointwise operators, products with its rows, and
  // the same rows in other dimensions.
  [[nodiscard]] bool keeps_layout(const Node& node) const {
    const SymShape& shape = graph_.type(node.results[0]).shape;
    const size_t rank = shape.size();
    if (node.op->name == "reshape") {
      const SymShape& from = graph_.type(node.operands[0]).shape;
      return !shape.empty() && !from.empty() && laid_out(node.operands[0]) &&
             graph_.env().known_equal(from.back(), shape.back());
    }
    auto laid = [&](ValueId v) { return v.valid() && graph_.type(v).shape.size() == rank && laid_out(v); };
    if (node.op->name == "matmul") return laid(node.operands[0]);
    return node.op->pointwise() && std::any_of(node.operands.begin(), node.operands.end(), laid);
  }
  void mark(ValueId v) {
    if (laid_out_.size() <= static_cast<size_t>(v.index)) laid_out_.resize(static_cast<size_t>(v.index) + 1);
    laid_out_[static_cast<size_t>(v.index)] = true;
  }
  // The node on operands before their transpose, and the transpose behind it.
  Result<Replacement> moved(const Node& node, std::vector<ValueId> operands, Attributes attributes, const Ints& perm,
                            bool laid) {
    TESSERA_ASSIGN(NodeId id, graph_.add_node(*node.op, std::move(operands), std::move(attributes), node.location, {""},
                                              node.opset));
    const ValueId value = graph_.node(id).results[0];
    if (graph_.type(value).shape.size() != perm.size()) return Replacement{};
    if (laid) mark(value);
    TESSERA_ASSIGN(ValueId back, emit(graph_, node.location, "transpose", {value}, {{"perm", perm}}));
    return Replacement{back};
  }

  // Is v so much less than the result that reading it in another order costs nothing?
  [[nodiscard]] bool small(ValueId v, const SymShape& result) const {
    if (graph_.constant(v)) return true;
    const SymShape& shape = graph_.type(v).shape;
    const size_t lead = result.size() - shape.size();
    for (size_t d = 0; d < result.size(); ++d)
      if (!result[d].is_const(1) && (d < lead || shape[d - lead].is_const(1))) return true;
    return false;
  }

  // v, which broadcasts to the transposed rank, as it broadcasts before the transpose.
  Result<ValueId> before_transpose(ValueId v, const Ints& perm, const Location& where) {
    SymShape shape = graph_.type(v).shape;
    shape.insert(shape.begin(), perm.size() - shape.size(), SymExpr(1));
    const Ints back = inverse(perm);
    SymShape target;
    Ints kept; // dimensions of more than one, in their new order
    for (int64_t p : back) {
      target.push_back(shape[static_cast<size_t>(p)]);
      if (!target.back().is_const(1)) kept.push_back(p);
    }
    if (std::is_sorted(kept.begin(), kept.end()))
      return target == graph_.type(v).shape ? Result<ValueId>(v)
                                            : emit(graph_, where, "reshape", {v}, {{"shape", std::move(target)}});
    if (shape.size() != graph_.type(v).shape.size()) {
      TESSERA_ASSIGN(v, emit(graph_, where, "reshape", {v}, {{"shape", std::move(shape)}}));
    }
    return emit(graph_, where, "transpose", {v}, {{"perm", back}});
  }

  Result<Replacement> pointwise(const Node& node) {
    const ValueId result = node.results[0];
    const SymShape& shape = graph_.type(result).shape;
    const size_t rank = shape.size();
    std::optional<Ints> perm;
    bool laid = false;
    for (ValueId v : node.operands)
      if (is_transpose(v) && graph_.type(v).shape.size() == rank && !laid) {
        laid = laid_out(source(v)) && !(graph_.type(v).shape != shape && small(v, shape));
        if (laid || !perm) perm = perm_of(v);
      }
    if (!perm) return Replacement{};
    std::vector<ValueId> sources, transposed;
    std::vector<size_t> follow;
    for (ValueId v : node.operands) {
      if (v.valid() && is_transpose(v) && perm_of(v) == *perm) {
        sources.push_back(source(v));
        if (std::find(transposed.begin(), transposed.end(), v) == transposed.end()) transposed.push_back(v);
        continue;
      }
      if (v.valid() && graph_.type(v).shape.size() > rank) return Replacement{};
      if (v.valid() && !one_element(graph_.type(v))) {
        if (!laid || !small(v, shape)) return Replacement{};
        follow.push_back(sources.size());
      }
      sources.push_back(v); // of one element: the same in any order
    }
    const bool leads = static_cast<size_t>(result.index) < leads_.size() && leads_[static_cast<size_t>(result.index)];
    if (!laid && transposed.size() < 2 && !leads) return Replacement{};
    for (size_t k : follow) {
      TESSERA_ASSIGN(sources[k], before_transpose(sources[k], *perm, node.location));
    }
    return moved(node, std::move(sources), node.attributes, *perm, laid);
  }

  Result<Replacement> reduction(const Node& node) {
    const ReduceKind kind = node.op->reduction()->kind;
    const Ints perm = perm_of(node.operands[0]), axes = node.attributes.ints("axes");
    if ((kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin) && axes.size() > 1) return Replacement{};
    Ints before;
    std::vector<bool> reduced(perm.size(), false); // of the transposed dimensions
    for (int64_t a : axes) {
      before.push_back(perm[static_cast<size_t>(a)]);
      reduced[static_cast<size_t>(a)] = true;
    }
    std::sort(before.begin(), before.end());
    Ints back = perm;
    if (node.attributes.i("keepdims", 0) == 0) {
      back.clear();
      for (size_t d = 0; d < perm.size(); ++d)
        if (!reduced[d])
          back.push_back(perm[d] - std::count_if(before.begin(), before.end(), [&](int64_t a) { return a < perm[d]; }));
    }
    Attributes attributes = node.attributes;
    attributes.set("axes", std::move(before));
    return moved(node, {source(node.operands[0])}, std::move(attributes), back, true);
  }

  Result<Replacement> concat(const Node& node) {
    const Ints perm = perm_of(node.operands[0]);
    std::vector<ValueId> sources;
    for (ValueId v : node.operands) {
      if (!is_transpose(v) || perm_of(v) != perm) return Replacement{};
      sources.push_back(source(v));
    }
    const int64_t axis = node.attributes.i("axis"), rank = static_cast<int64_t>(perm.size());
    Attributes attributes = node.attributes;
    attributes.set("axis", perm[static_cast<size_t>(axis < 0 ? axis + rank : axis)]);
    return moved(node, std::move(sources), std::move(attributes), perm, true);
  }

  // An operator whose attributes have an entry for each dimension.
  Result<Replacement> by_dimension(const Node& node, std::initializer_list<const char*> names) {
    const Ints perm = perm_of(node.operands[0]);
    Attributes attributes = node.attributes;
    auto reorder = [&](const auto& entries) {
      auto out = entries;
      for (size_t d = 0; d < perm.size(); ++d) out[static_cast<size_t>(perm[d])] = entries[d];
      return out;
    };
    for (const char* name : names) {
      const Attribute* value = attributes.find(name);
      if (!value) return Replacement{};
      if (const auto* ints = std::get_if<Ints>(value)) {
        if (ints->size() != perm.size()) return Replacement{};
        attributes.set(name, reorder(*ints));
      } else {
        const SymShape dims = attributes.dims(name);
        if (dims.size() != perm.size()) return Replacement{};
        attributes.set(name, reorder(dims));
      }
    }
    std::vector<ValueId> operands = node.operands;
    operands[0] = source(operands[0]);
    return moved(node, std::move(operands), std::move(attributes), perm, true);
  }

  // A reshape pairs runs of the old dimensions with runs of the new ones. It can be done before the transpose when each
  // run of several old dimensions lies together there, too; dimensions of one lie anywhere.
  Result<Replacement> reshape(const Node& node) {
    const ShapeEnv& env = graph_.env();
    const Ints perm = perm_of(node.operands[0]);
    const SymShape &from = graph_.type(node.operands[0]).shape, &to = graph_.type(node.results[0]).shape;
    struct Run {
      std::vector<size_t> from, to;
    };
    std::vector<Run> runs;
    size_t i = 0, k = 0;
    while (i < from.size() || k < to.size()) {
      Run run;
      if (i < from.size() && from[i].is_const(1) && !(k < to.size() && to[k].is_const(1))) {
        ++i;
        continue;
      }
      if (k < to.size() && to[k].is_const(1)) {
        run.to = {k++};
        if (i < from.size() && from[i].is_const(1)) run.from = {i++};
      } else {
        if (i == from.size() || k == to.size()) return Replacement{};
        // One old dimension becomes several, or several one.
        auto covers = [&](const SymShape& parts, size_t first, const SymExpr& whole) -> size_t {
          SymExpr product = 1;
          for (size_t end = first; end < parts.size(); ++end)
            if (env.known_equal(product *= parts[end], whole)) return end + 1;
          return first;
        };
        size_t i_end = covers(from, i, to[k]), k_end = i_end == i ? covers(to, k, from[i]) : k + 1;
        if (k_end == k) return Replacement{};
        if (i_end == i) i_end = i + 1;
        for (; i < i_end; ++i)
          if (run.from.empty() || !from[i].is_const(1)) run.from.push_back(i);
        for (; k < k_end; ++k) run.to.push_back(k);
      }
      for (size_t d = 1; d < run.from.size(); ++d)
        if (perm[run.from[d]] != perm[run.from[d - 1]] + 1) return Replacement{};
      runs.push_back(std::move(run));
    }
    // New dimensions in the order of the old ones they are made of; added ones go first.
    std::vector<size_t> order(runs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    auto place = [&](size_t r) { return runs[r].from.empty() ? int64_t{-1} : perm[runs[r].from[0]]; };
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return place(x) < place(y); });
    SymShape shape;
    Ints back(to.size());
    for (size_t r : order)
      for (size_t d : runs[r].to) {
        back[d] = static_cast<int64_t>(shape.size());
        shape.push_back(to[d]);
      }
    Attributes attributes = node.attributes;
    attributes.set("shape", std::move(shape));
    return moved(node, {source(node.operands[0])}, std::move(attributes), back, true);
  }

  Graph& graph_;
  std::vector<bool> leads_, laid_out_;
};
} // namespace

Result<bool> sink_transposes(Graph& graph, const PassOptions&) {
  Sinker sinker(graph);
  return Sweep(graph).run([&](NodeId id) { return sinker.rule(id); });
}

} // namespace tessera::passes
