#include "graph/ir/sizes.h"
#include "graph/passes/passes.h"
#include <charconv>

namespace tessera::passes {

Result<int64_t> option(const PassOptions& options, const std::string& name, int64_t fallback) {
  auto it = options.values.find(name);
  if (it == options.values.end()) return fallback;
  int64_t value = 0;
  auto [end, ec] = std::from_chars(it->second.data(), it->second.data() + it->second.size(), value);
  if (ec != std::errc() || end != it->second.data() + it->second.size())
    return Diagnostic(ErrorCode::Usage, "option " + name + " takes a whole number, not '" + it->second + "'");
  return value;
}

Result<ValueId> emit(Graph& graph, const Location& like, std::string_view op, std::vector<ValueId> operands,
                     Attributes attributes) {
  return graph.apply(op, std::move(operands), std::move(attributes),
                     Location(like)); // a copy: `like` may be in the graph
}

ValueId Sweep::resolve(ValueId v) {
  while (v.valid() && static_cast<size_t>(v.index) < by_value_.size() &&
         by_value_[static_cast<size_t>(v.index)].valid())
    v = by_value_[static_cast<size_t>(v.index)];
  return v;
}

Status Sweep::replace(ValueId from, ValueId to, const Location& where) {
  to = resolve(to);
  if (!to.valid() || to == from) return {};
  Value &a = graph_.value(from), &b = graph_.value(to);
  if (a.type.dtype != b.type.dtype || a.type.rank() != b.type.rank())
    return Diagnostic(ErrorCode::Internal, where,
                      "a value of type " + a.type.str() + " was replaced by one of type " + b.type.str());
  if (b.name.empty()) std::swap(a.name, b.name);
  // A value that a `read` node reads takes over no contents: they would consist of the sizes that this node defines.
  if (a.contents && !b.contents && !read_of(graph_, to).valid()) b.contents = a.contents;
  if (by_value_.size() <= static_cast<size_t>(from.index)) by_value_.resize(static_cast<size_t>(graph_.value_count()));
  by_value_[static_cast<size_t>(from.index)] = to;
  return {};
}

Status Sweep::finish(NodeId id, const std::vector<ValueId>& values) {
  if (values.empty()) return {};
  const Location where = graph_.node(id).location;
  const std::vector<ValueId> results = graph_.node(id).results;
  bool left = false;
  for (size_t r = 0; r < results.size(); ++r) {
    if (!results[r].valid()) continue;
    if (r < values.size() && values[r].valid()) TESSERA_TRY(replace(results[r], values[r], where));
    left |= resolve(results[r]) == results[r];
  }
  if (!left) emptied_.push_back(id);
  return {};
}

// A node, then what its rule has appended, and what the rules of those append: a stack of its own, as a rule may move
// past as many nodes as there are.
Status Sweep::visit(NodeId first, const Rule& rule) {
  struct Level {
    NodeId node;
    std::vector<ValueId> values; // in the place of its results
    int next, end;               // of the nodes that its rule has appended: those to visit yet
  };
  std::vector<Level> levels;
  const auto open = [&](NodeId id) -> Status {
    for (ValueId& v : graph_.node(id).operands) v = resolve(v);
    const int before = graph_.node_count();
    TESSERA_ASSIGN(std::vector<ValueId> values, rule(id));
    // A rule may append nodes and then think better of it; dce takes them away.
    levels.push_back({id, std::move(values), before, graph_.node_count()});
    if (levels.size() > deepest_)
      return Diagnostic(ErrorCode::Internal, graph_.node(id).location,
                        "rewriting '" + std::string(graph_.node(id).op->name) + "' does not come to an end");
    return {};
  };
  TESSERA_TRY(open(first));
  while (!levels.empty()) {
    if (Level& top = levels.back(); top.next < top.end) {
      TESSERA_TRY(open(NodeId{top.next++}));
      continue;
    }
    const Level done = std::move(levels.back());
    levels.pop_back();
    TESSERA_TRY(finish(done.node, done.values));
  }
  return {};
}

Result<bool> Sweep::run(const Rule& rule) {
  const int before = graph_.node_count();
  // A level of rewriting passes a node of the graph, or opens a record that another one is made of: of these there are
  // as many as operators at most.
  deepest_ = static_cast<size_t>(before) + OpTable::get().all().size();
  for (NodeId id : graph_.order()) TESSERA_TRY(visit(id, rule));
  if (by_value_.empty()) return graph_.node_count() > before;
  graph_.replace_uses(by_value_);
  for (NodeId id : emptied_) graph_.remove_node(id);
  return true;
}

} // namespace tessera::passes
