// Which values of a plan can be tapped, and why others cannot.
#include "fusion/axes.h"
#include "graph/ir/operator.h"
#include "measure/accuracy/taps.h"
#include <algorithm>
#include <set>

namespace tessera::accuracy {

const LoopNest* tapped_nest(const Group& group) {
  if (group.kind == Group::Kind::Kernel) return &group.nest;
  // A library's own epilogue replaces the nest.
  if (group.kind == Group::Kind::Library && group.call.epilogue_nest && !group.call.fixed)
    return &*group.call.epilogue_nest;
  return nullptr;
}

namespace {

constexpr const char* kAtData = "a kernel computes it at indices that are data";
constexpr size_t kParts = 4; // kernels that compute parts of a value, at most

// Whether the nest computes every element of the value.
bool is_whole(const Graph& graph, const LoopNest& nest, const InnerValue& inner) {
  if (!inner.condition.is_const(1)) return false;
  const SymShape& shape = graph.type(inner.value).shape;
  std::set<int> used;
  for (size_t d = 0; d < shape.size(); ++d) {
    auto axes = fusion::radix_of(inner.index[d], nest.axes, shape[d], graph.env());
    if (!axes) return false;
    for (int a : *axes)
      if (!used.insert(a).second) return false; // a diagonal
  }
  return true;
}

bool has_numbers(DType d) { return has_bytes(d) && info(d).kind != DTypeKind::Complex && info(d).bits >= 8; }

class Finder {
public:
  explicit Finder(const Compiled& compiled) : graph_(*compiled.graph), plan_(compiled.report.plan) {}

  Taps run() {
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      const Group& group = plan_.groups[g];
      for (ValueId v : group.writes)
        if (graph_.producer(v) && taken_.insert(v.index).second && number(v)) out_.taps.push_back({v, g, -1});
      refuse(group);
    }
    for (bool whole : {true, false})
      for (size_t g = 0; g < plan_.groups.size(); ++g)
        if (const LoopNest* nest = tapped_nest(plan_.groups[g])) add_inner(*nest, g, whole);
    list_others();
    return std::move(out_);
  }

private:
  bool number(ValueId v) {
    const DType dtype = graph_.type(v).dtype;
    if (has_numbers(dtype)) return true;
    why_.emplace(v.index, "elements of type " + std::string(name(dtype)) + " are not compared");
    taken_.erase(v.index);
    return false;
  }

  void add_inner(const LoopNest& nest, size_t group, bool whole) {
    for (size_t i = 0; i < nest.inner.size(); ++i) {
      const InnerValue& inner = nest.inner[i];
      if (!graph_.producer(inner.value) || taken_.contains(inner.value.index)) continue;
      if (is_whole(graph_, nest, inner) != whole || !number(inner.value)) continue;
      if (whole)
        taken_.insert(inner.value.index);
      else if (++parts_[inner.value.index] > kParts)
        continue;
      out_.taps.push_back({inner.value, group, static_cast<int>(i)});
    }
  }

  // Why values that a group computes have neither memory nor a place in a nest.
  void refuse(const Group& group) {
    auto within = [&](const std::vector<NodeId>& nodes, const std::string& why) {
      for (NodeId n : nodes)
        for (ValueId v : graph_.node(n).results)
          if (v.valid()) why_.emplace(v.index, why);
    };
    if (group.kind == Group::Kind::Attention) {
      for (const Group& step : group.otherwise) {
        within(step.nest.sources, "inside an attention call");
        within(step.call.sources, "inside an attention call");
      }
    } else if (group.kind == Group::Kind::Library) {
      within(group.call.sources, group.call.fixed ? "inside a library's own epilogue"
                                 : group.call.epilogue_nest
                                     ? kAtData
                                     : "a library call writes it as another value: a view of it");
    } else if (group.kind == Group::Kind::Kernel) {
      within(group.nest.sources, kAtData);
    }
  }

  void list_others() {
    for (NodeId id : graph_.order()) {
      const Node& node = graph_.node(id);
      const auto* structured = node.op->structured();
      if (structured && structured->kind == Structured::Constant) continue;
      for (ValueId v : node.results) {
        if (!v.valid() || taken_.contains(v.index) || parts_.contains(v.index)) continue;
        auto why = why_.find(v.index);
        const auto* indexing = node.op->indexing();
        std::string text = indexing && indexing->view ? "a view, which moves no data: it became indices"
                           : graph_.value(v).contents ? "known while compiling"
                           : why == why_.end()        ? "not computed: nothing needs it, or it is constant"
                                                      : why->second;
        out_.not_tapped.push_back({v, std::move(text)});
      }
    }
  }

  const Graph& graph_;
  const FusionPlan& plan_;
  Taps out_;
  std::set<int32_t> taken_;            // values that one tap holds
  std::map<int32_t, size_t> parts_;    // values of which taps hold parts
  std::map<int32_t, std::string> why_; // by value
};

} // namespace

Taps find_taps(const Compiled& compiled) { return Finder(compiled).run(); }

} // namespace tessera::accuracy
