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
  // What is read does not consist of the sizes that it defines.
  if (a.contents && !b.contents && !read_of(graph_, to).valid()) b.contents = a.contents;
  if (by_value_.size() <= static_cast<size_t>(from.index)) by_value_.resize(static_cast<size_t>(graph_.value_count()));
  by_value_[static_cast<size_t>(from.index)] = to;
  return {};
}

Status Sweep::visit(NodeId id, const Rule& rule, int depth) {
  for (ValueId& v : graph_.node(id).operands) v = resolve(v);
  const int before = graph_.node_count();
  TESSERA_ASSIGN(std::vector<ValueId> values, rule(id));
  // A rule may append nodes and then think better of it; dce takes them away.
  if (graph_.node_count() > before && depth > 64)
    return Diagnostic(ErrorCode::Internal, graph_.node(id).location,
                      "rewriting '" + std::string(graph_.node(id).op->name) + "' does not come to an end");
  for (int i = before, end = graph_.node_count(); i < end; ++i) TESSERA_TRY(visit(NodeId{i}, rule, depth + 1));
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

Result<bool> Sweep::run(const Rule& rule) {
  const int before = graph_.node_count();
  for (NodeId id : graph_.order()) TESSERA_TRY(visit(id, rule, 0));
  if (by_value_.empty()) return graph_.node_count() > before;
  graph_.replace_uses(by_value_);
  for (NodeId id : emptied_) graph_.remove_node(id);
  return true;
}

} // namespace tessera::passes
