#include "fusion/constraints.h"
#include "fusion/plan.h"
#include "graph/ir/operator.h"
#include <algorithm>

namespace tessera {

const std::string& operator_name(const Location& l) { return !l.node.empty() ? l.node : l.output; }

bool is_of(const Location& l, const std::string& name) { return !name.empty() && (l.node == name || l.output == name); }

NodeKeys::NodeKeys(const Graph& graph) : graph_(graph) {
  std::unordered_map<std::string, int> times;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    std::string key = operator_name(node.location) + "/" + std::string(node.op->name);
    if (const int n = times[key]++; n > 0) key += "#" + std::to_string(n);
    by_key_.emplace(key, id);
    by_node_.emplace(id, std::move(key));
  }
}

std::string NodeKeys::of(ValueId value) const {
  const NodeId producer = graph_.value(value).producer;
  const auto& results = graph_.node(producer).results;
  const auto at = std::find(results.begin(), results.end(), value) - results.begin();
  return of(producer) + (at > 0 ? ":" + std::to_string(at) : "");
}

std::optional<NodeId> NodeKeys::node(const std::string& key) const {
  auto it = by_key_.find(key);
  return it == by_key_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<ValueId> NodeKeys::value(const std::string& key) const {
  if (auto id = node(key))
    return graph_.node(*id).results.empty() ? std::nullopt : std::optional(graph_.node(*id).results[0]);
  const auto colon = key.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  auto id = node(key.substr(0, colon));
  if (!id) return std::nullopt;
  for (ValueId v : graph_.node(*id).results)
    if (v.valid() && of(v) == key) return v;
  return std::nullopt;
}

namespace fusion {

Steering::Steering(const Graph& graph, const FusionConstraints& constraints, std::vector<UnmetPin> dropped)
    : graph_(graph), constraints_(constraints) {
  auto number = [&](const std::string& name) {
    auto it = std::find(operators_.begin(), operators_.end(), name);
    if (it == operators_.end()) it = operators_.insert(it, name);
    return static_cast<int>(it - operators_.begin());
  };
  for (const auto& [a, b] : constraints.apart) {
    const int x = number(a), y = number(b);
    apart_.emplace_back(std::min(x, y), std::max(x, y));
  }
  if (!constraints.breaks.empty()) find_breaks();
  if (!constraints.detours.alone.empty()) find_detours();
  if (!constraints.groups.empty()) find_pins(std::move(dropped));
}

// ---- apart and break

// A result of the operator that anything else reads.
void Steering::find_breaks() {
  const auto users = graph_.users();
  for (NodeId id : graph_.order()) {
    const Location& location = graph_.node(id).location;
    for (const std::string& name : constraints_.breaks) {
      if (!is_of(location, name)) continue;
      for (ValueId v : graph_.node(id).results)
        if (v.valid() &&
            std::any_of(users[static_cast<size_t>(v.index)].begin(), users[static_cast<size_t>(v.index)].end(),
                        [&](NodeId user) { return !is_of(graph_.node(user).location, name); }))
          broken_.try_emplace(v.index, Separation{FusionReason::KeptApart, "a break at '" + name + "' was requested"});
    }
  }
}

// Nothing is fused across what such a node makes and reads.
void Steering::find_detours() {
  for (const auto& [id, separation] : constraints_.detours.alone) {
    const Node& node = graph_.node(id);
    for (const auto* values : {&node.operands, &node.results})
      for (ValueId v : *values)
        if (v.valid()) broken_.try_emplace(v.index, separation);
  }
}

const Separation* Steering::separation(ValueId value) const {
  auto it = broken_.find(value.index);
  return it != broken_.end() ? &it->second : nullptr;
}

const Separation* Steering::separation(NodeId node) const {
  auto it = constraints_.detours.alone.find(node);
  return it != constraints_.detours.alone.end() ? &it->second : nullptr;
}

Marks Steering::marks(NodeId node) const {
  Marks out;
  if (apart_.empty()) return out;
  const Location& location = graph_.node(node).location;
  for (size_t i = 0; i < operators_.size(); ++i)
    if (is_of(location, operators_[i])) out.push_back(static_cast<int>(i));
  return out;
}

Marks Steering::marks(std::span<const NodeId> nodes) const {
  Marks out;
  if (apart_.empty()) return out;
  for (NodeId n : nodes) out = united(out, marks(n));
  return out;
}

Marks Steering::united(const Marks& a, const Marks& b) {
  Marks out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

std::optional<std::string> Steering::conflict(const Marks& a, const Marks& b) const {
  if (a.empty() || b.empty()) return std::nullopt;
  auto has = [](const Marks& m, int x) { return std::binary_search(m.begin(), m.end(), x); };
  for (const auto& [x, y] : apart_)
    if ((has(a, x) && has(b, y)) || (has(a, y) && has(b, x)))
      return "no fusion of '" + operators_[static_cast<size_t>(x)] + "' with '" + operators_[static_cast<size_t>(y)] +
             "' was requested";
  return std::nullopt;
}

// ---- pins

void Steering::find_pins(std::vector<UnmetPin> dropped) {
  has_pins_ = true;
  const NodeKeys keys(graph_);
  const size_t count = constraints_.groups.size();
  why_dropped_.resize(count);
  nodes_.resize(count);
  for (UnmetPin& d : dropped) why_dropped_[static_cast<size_t>(d.group)] = std::move(d.why);
  std::vector<std::vector<ValueId>> stages(count), reads(count);
  for (size_t g = 0; g < count; ++g) {
    const PinnedGroup& group = constraints_.groups[g];
    auto& why = why_dropped_[g];
    for (const std::string& key : group.nodes) {
      auto node = keys.node(key);
      if (node)
        nodes_[g].push_back(*node);
      else if (!why)
        why = "the graph has no node '" + key + "'";
    }
    for (const auto& [from, to] : {std::pair{&group.stages, &stages[g]}, std::pair{&group.reads, &reads[g]}})
      for (const std::string& key : *from) {
        auto value = keys.value(key);
        if (value)
          to->push_back(*value);
        else if (!why)
          why = "the graph has no value '" + key + "'";
      }
    std::sort(nodes_[g].begin(), nodes_[g].end(), [](NodeId a, NodeId b) { return a.index < b.index; });
  }
  for (size_t g = 0; g < count; ++g) // an attention holds if its parts do
    for (int part : constraints_.groups[g].parts)
      if (!why_dropped_[g] &&
          (part < 0 || static_cast<size_t>(part) >= count || why_dropped_[static_cast<size_t>(part)]))
        why_dropped_[g] = "one of its parts is not as it was";
  for (size_t g = 0; g < count; ++g) {
    const PinnedGroup& group = constraints_.groups[g];
    if (why_dropped_[g] || group.kind == PinnedGroup::Kind::Attention) continue;
    if (group.kind == PinnedGroup::Kind::Other) {
      for (NodeId n : nodes_[g]) call_of_.emplace(n.index, static_cast<int>(g));
      continue;
    }
    for (ValueId v : stages[g]) stage_of_.emplace(v.index, static_cast<int>(g));
    for (ValueId v : reads[g]) {
      read_.insert(v.index);
      reads_.emplace(static_cast<int>(g), v.index);
    }
    for (NodeId n : nodes_[g]) {
      const Node& node = graph_.node(n);
      if (node.op->structured() && group.kind == PinnedGroup::Kind::Library)
        call_of_.emplace(n.index, static_cast<int>(g));
      contained_[n.index] |= node.op->structured() && group.kind == PinnedGroup::Kind::Kernel;
    }
  }
}

int Steering::pin_of_stage(ValueId value) const {
  auto it = stage_of_.find(value.index);
  return it == stage_of_.end() ? -1 : it->second;
}

int Steering::pin_of_call(NodeId node) const {
  auto it = call_of_.find(node.index);
  return it == call_of_.end() ? -1 : it->second;
}

bool Steering::pinned_as_loops(NodeId node) const {
  auto it = contained_.find(node.index);
  return it != contained_.end() && it->second;
}

bool Steering::contains(int pin, NodeId node) const {
  const auto& nodes = nodes_[static_cast<size_t>(pin)];
  return std::binary_search(nodes.begin(), nodes.end(), node, [](NodeId a, NodeId b) { return a.index < b.index; });
}

std::optional<bool> Steering::stored(ValueId value) const {
  if (!has_pins_) return std::nullopt;
  if (stage_of_.contains(value.index) || read_.contains(value.index)) return true;
  if (contained_.contains(graph_.value(value).producer.index)) return false;
  return std::nullopt;
}

int Steering::attention_of(std::span<const int> parts) const {
  for (size_t g = 0; g < constraints_.groups.size(); ++g)
    if (!why_dropped_[g] && constraints_.groups[g].kind == PinnedGroup::Kind::Attention &&
        std::equal(parts.begin(), parts.end(), constraints_.groups[g].parts.begin(),
                   constraints_.groups[g].parts.end()))
      return static_cast<int>(g);
  return -1;
}

std::vector<UnmetPin> Steering::unmet() const {
  std::vector<UnmetPin> out;
  for (size_t g = 0; g < why_dropped_.size(); ++g)
    if (why_dropped_[g]) out.push_back({static_cast<int>(g), *why_dropped_[g]});
  return out;
}

} // namespace fusion
} // namespace tessera
