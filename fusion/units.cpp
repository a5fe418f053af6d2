#include "fusion/units.h"
#include <algorithm>

namespace tessera::fusion {

std::vector<NodeId> nodes_of(const Unit& unit) {
  return unit.node.valid() ? std::vector<NodeId>{unit.node} : unit.nest.sources;
}

Units::Units(const Graph& graph)
    : graph_(graph), defined_by_(static_cast<size_t>(graph.value_count()), -1),
      readers_(static_cast<size_t>(graph.value_count())), homes_(static_cast<size_t>(graph.node_count())),
      sizes_(graph), order_([this](int u, const std::function<void(int)>& f) { successors(u, f); }) {}

int Units::add(Unit unit) {
  const int id = static_cast<int>(units_.size());
  for (ValueId v : unit.defines) defined_by_[static_cast<size_t>(v.index)] = id;
  for (ValueId v : unit.reads)
    if (readers(v).empty() || readers(v).back() != id) readers(v).push_back(id);
  auto wait = [&](NodeId n) { sizes_.needed_by(graph_, n, [&](NodeId definer) { waiting_[definer].push_back(id); }); };
  if (unit.node.valid()) wait(unit.node);
  for (NodeId n : unit.nest.sources) wait(n);
  for (NodeId n : nodes_of(unit)) homes(n).push_back(id);
  unit.members = {id};
  units_.push_back(std::move(unit));
  order_.append(id);
  return id;
}

int Units::find(int unit) const {
  auto parent = [&](int u) -> int& { return units_[static_cast<size_t>(u)].parent; };
  while (parent(unit) >= 0) {
    if (int above = parent(parent(unit)); above >= 0) parent(unit) = above;
    unit = parent(unit);
  }
  return unit;
}

int Units::home(ValueId v) const {
  const int unit = defined_by_[static_cast<size_t>(v.index)];
  return unit < 0 ? -1 : find(unit);
}

void Units::successors(int unit, const std::function<void(int)>& f) const {
  auto others = [&](const std::vector<int>& list) {
    for (int reader : list)
      if (int r = find(reader); r != unit) f(r);
  };
  for (ValueId v : (*this)[unit].defines) others(readers(v));
  if (auto it = waiting_.find((*this)[unit].node); it != waiting_.end()) others(it->second);
}

bool Units::edge(int producer, int consumer) const {
  bool found = false;
  successors(producer, [&](int u) { found = found || u == consumer; });
  return found;
}

bool Units::read_elsewhere(ValueId v, int a, int b) const {
  return std::any_of(readers(v).begin(), readers(v).end(), [&](int r) {
    const int u = find(r);
    return u != a && u != b;
  });
}

std::optional<Refusal> Units::path_between(int a, int b) {
  switch (order_.indirect_path(a, b)) {
  case UnitOrder::Path::None: return std::nullopt;
  case UnitOrder::Path::Exists:
    return Refusal{FusionReason::WouldCycle, "another step needs the one and is needed by the other"};
  case UnitOrder::Path::TooFar: return Refusal{FusionReason::WouldCycle, "too far apart to decide"};
  }
  return std::nullopt;
}

void Units::contract(int a, int b, int kept) {
  order_.merge(a, b, kept);
  const int gone = kept == a ? b : a;
  Unit &into = (*this)[kept], &from = (*this)[gone];
  into.defines.insert(into.defines.end(), from.defines.begin(), from.defines.end());
  into.members.insert(into.members.end(), from.members.begin(), from.members.end());
  into.marks = Steering::united(into.marks, from.marks);
  from.defines.clear();
  from.members.clear();
  from.nest = LoopNest{};
  from.parent = kept;
}

} // namespace tessera::fusion
