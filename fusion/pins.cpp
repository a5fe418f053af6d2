// Constraints where units are merged: what must stay apart, and what a plan file has together.
#include "fusion/planner.h"
#include <algorithm>

namespace tessera::fusion {

// Requests that the two units stay apart.
std::optional<Refusal> Planner::kept_apart(int a, int b) const {
  const Unit &x = units_[a], &y = units_[b];
  if (auto why = steering_.conflict(x.marks, y.marks)) return Refusal{FusionReason::KeptApart, *why};
  for (const Unit* u : {&x, &y}) {
    if (const Separation* by = u->node.valid() ? steering_.separation(u->node) : nullptr)
      return Refusal{by->reason, by->why};
    for (const NodeId n : u->nest.sources)
      if (const Separation* by = steering_.separation(n)) return Refusal{by->reason, by->why};
  }
  for (const auto& [from, to] : {std::pair{&x, b}, std::pair{&y, a}})
    for (ValueId v : from->defines) {
      const Separation* by = steering_.separation(v);
      if (!by) continue;
      const auto& readers = units_.readers(v);
      if (std::any_of(readers.begin(), readers.end(), [&, unit = to](int r) { return units_.find(r) == unit; }))
        return Refusal{by->reason, by->why};
    }
  if (x.pin != y.pin) return Refusal{FusionReason::KeptApart, "the plan file has them in two groups"};
  return std::nullopt;
}

// The same where both could be merged without the request; what stands in the way otherwise is the better reason.
std::optional<Refusal> Planner::kept_apart(int producer, int consumer, const LoopNest& into, bool keep_axes) {
  auto apart = kept_apart(producer, consumer);
  if (!apart) return std::nullopt;
  LoopNest trial = into;
  if (auto refusal = merger_.vertical(trial, units_[consumer].nest, keep_axes)) return refusal;
  return apart;
}

// Merges the units of each pinned group that are still several: on another device, or at other sizes, some merges do
// not pay by themselves.
void Planner::complete_pins() {
  completing_ = true;
  std::map<int, std::vector<int>> units; // by pin
  for (int unit : units_.order())
    if (const int pin = units_[unit].pin; pin >= 0) units[pin].push_back(unit);
  for (auto& [pin, list] : units)
    for (bool merged = true; merged && list.size() > 1;) {
      merged = false;
      for (size_t i = 0; i < list.size() && !merged; ++i)
        for (size_t j = 0; j < list.size() && !merged; ++j) {
          if (i == j) continue;
          const int a = list[i], b = list[j];
          if (units_.edge(b, a)) continue;
          if (units_.edge(a, b))
            merged = !try_vertical(a, b);
          else if (i < j)
            merged = !try_horizontal(a, b) || try_side_by_side(a, b, 0);
        }
      std::erase_if(list, [&](int u) { return units_.find(u) != u; });
    }
  completing_ = false;
}

// Checks that each pin holds: one unit, of these nodes.
std::vector<UnmetPin> Planner::check_pins() const {
  std::vector<int> found(steering_.pins(), -1);
  std::map<int, std::string> wrong; // by pin
  for (int unit : units_.order()) {
    const Unit& u = units_[unit];
    if (u.pin < 0) continue;
    int& first = found[static_cast<size_t>(u.pin)];
    if (first >= 0) {
      std::string why = "its nodes are in several groups";
      for (int reader : u.members)
        for (ValueId v : units_[reader].reads)
          if (auto it = tried_.refused.find({v.index, reader}); it != tried_.refused.end() && units_.home(v) == first)
            why += ": " + std::string(info(it->second.reason).name) + ", " + it->second.detail;
      wrong.emplace(u.pin, std::move(why));
      continue;
    }
    first = unit;
    const PinnedGroup::Kind kind = u.kind == Group::Kind::Library  ? PinnedGroup::Kind::Library
                                   : u.kind == Group::Kind::Kernel ? PinnedGroup::Kind::Kernel
                                                                   : PinnedGroup::Kind::Other;
    if (kind != steering_.pinned(u.pin).kind) {
      wrong.emplace(u.pin, "it was computed by " + steering_.pinned(u.pin).route + ", which does not take it here");
      continue;
    }
    std::vector<NodeId> nodes = u.kind == Group::Kind::Library  ? u.draft->epilogue.sources
                                : u.kind == Group::Kind::Kernel ? u.nest.sources
                                                                : std::vector<NodeId>{u.node};
    std::sort(nodes.begin(), nodes.end());
    if (nodes != steering_.nodes(u.pin)) {
      for (NodeId n : nodes)
        if (!steering_.contains(u.pin, n)) {
          wrong.emplace(u.pin, "it would compute " + graph_.node(n).location.str() + ", too");
          break;
        }
      for (NodeId n : steering_.nodes(u.pin))
        if (!std::binary_search(nodes.begin(), nodes.end(), n)) {
          wrong.emplace(u.pin, "it would not compute " + graph_.node(n).location.str());
          break;
        }
    }
  }
  for (size_t pin = 0; pin < found.size(); ++pin) {
    const auto kind = steering_.pinned(static_cast<int>(pin)).kind;
    if (!steering_.holds(static_cast<int>(pin)) || kind == PinnedGroup::Kind::Attention) continue;
    if (steering_.nodes(static_cast<int>(pin)).empty()) continue; // a kernel that the plan itself makes
    if (found[pin] < 0) wrong.emplace(static_cast<int>(pin), "no group of that kind computes its nodes on this device");
  }
  std::vector<UnmetPin> unmet;
  for (auto& [pin, why] : wrong) unmet.push_back({pin, std::move(why)});
  return unmet;
}

} // namespace tessera::fusion
