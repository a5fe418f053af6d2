// What the rounds over a row read and keep, and where: prefetches, and the homes of values that later rounds need.
#include "codegen/schedule/lower/lowering.h"
#include <algorithm>

namespace tessera {

// Memory is read in the first round over a row, and stands idle in those that compute: there the row of the next outer
// point is fetched. The hardware does not see it coming, as a row seldom follows the last one within a page.
void Lowering::plan_prefetch() {
  if (schedule_.kind != ScheduleKind::RowLoop || middle_ < 0 || stages_.stages.size() < 2 ||
      setting(schedule_, "prefetch_bytes", 0) == 0)
    return;
  const SymExpr &row = axis(static_cast<size_t>(tile_axis_)).var, &point = axis(static_cast<size_t>(middle_)).var;
  std::vector<int> cost(stages_.stages.size());
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i] || !d_.row_varying(id)) continue;
    if (d_.stage[i] >= 0 && d_.stage[i] < static_cast<int>(cost.size()))
      cost[static_cast<size_t>(d_.stage[i])] += std::max(0, info(node(id).op).cost);
    if (node(id).op != ScalarOp::Load || !d_.loads[i].terms.empty()) continue;
    auto along = d_.loads[i].offset.linear_in(row), across = d_.loads[i].offset.linear_in(point);
    bool same = std::any_of(prefetched_.begin(), prefetched_.end(), [&](ScalarId p) {
      const Access& other = d_.loads[static_cast<size_t>(p)];
      return other.buffer == d_.loads[i].buffer && other.offset == d_.loads[i].offset;
    });
    if (along && along->first.is_const(1) && across && !across->first.is_const(0) && !same) prefetched_.push_back(id);
  }
  if (!prefetched_.empty())
    prefetch_round_ = static_cast<int>(std::max_element(cost.begin() + 1, cost.end()) - cost.begin());
}

// Where rows turn out to be too long for the cache, the place is the one at hand, at no cost.
void Lowering::prefetch_next_row() {
  const SymExpr& point = axis(static_cast<size_t>(middle_)).var;
  for (ScalarId id : prefetched_) {
    const Access& a = d_.loads[static_cast<size_t>(id)];
    int64_t bytes = info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    int64_t longest = setting(schedule_, "prefetch_bytes", 0) / bytes;
    SymExpr step = d_.env.simplify(sym_min(1, floordiv(longest, sym_max(1, d_.row_count()))));
    if (step.is_const(0)) continue;
    SymExpr next = a.offset.substitute({{point.symbol_id(), point + step}});
    b_.prefetch(pointers_[static_cast<size_t>(a.buffer)], sizes_.number(next));
  }
}

// Down a column every point lies in another line, and soon on another page, where the hardware does not see it coming:
// what the round reads is fetched some points ahead. Points that lie close together need no help.
void Lowering::prefetch_next_points(size_t s) {
  constexpr int64_t kFar = 1024; // bytes from point to point
  int64_t points = setting(schedule_, "prefetch_points", 0);
  if (points == 0 || mask_ >= 0 || row_axes_.empty()) return;
  const SymExpr &down = axis(row_axes_.back()).var, &tile = axis(static_cast<size_t>(tile_axis_)).var;
  std::vector<std::pair<int, SymExpr>> fetched;
  for (ScalarId id : loads_of_round(s)) {
    const Access& a = d_.loads[static_cast<size_t>(id)];
    auto across = a.offset.linear_in(tile), along = a.offset.linear_in(down);
    if (!a.terms.empty() || a.predicate >= 0 || !across || !across->first.is_const(1) || !along) continue;
    int64_t bytes = info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    // Where the distance is known at run time only, so is whether it is far: else the place is the one at hand.
    SymExpr far = d_.env.simplify(sym_min(1, floordiv(along->first * bytes, kFar)));
    if (d_.axes_in(far) != 0 || far.is_const(0) || d_.env.range(along->first).lo < 0) continue;
    std::pair<int, SymExpr> place{a.buffer, a.offset.substitute({{down.symbol_id(), down + far * points}})};
    if (std::find(fetched.begin(), fetched.end(), place) != fetched.end()) continue;
    fetched.push_back(place);
    b_.prefetch(pointers_[static_cast<size_t>(a.buffer)], sizes_.number(place.second));
  }
}

// While a chunk is read for the second time, from the cache, memory would stand idle.
void Lowering::prefetch_next_chunk(size_t s) {
  const SymExpr& along = axis(static_cast<size_t>(tile_axis_)).var;
  std::vector<std::pair<int, SymExpr>> fetched;
  for (ScalarId id : loads_of_round(s)) {
    const Access& a = d_.loads[static_cast<size_t>(id)];
    auto linear = a.offset.linear_in(along);
    if (!a.terms.empty() || a.predicate >= 0 || !linear || !linear->first.is_const(1)) continue;
    std::pair<int, SymExpr> place{a.buffer, a.offset.substitute({{along.symbol_id(), along + chunk_}})};
    if (std::find(fetched.begin(), fetched.end(), place) != fetched.end()) continue;
    fetched.push_back(place);
    b_.prefetch(pointers_[static_cast<size_t>(a.buffer)], sizes_.number(place.second));
  }
}

// The loads along the row that a round makes itself.
std::vector<ScalarId> Lowering::loads_of_round(size_t s) const {
  std::vector<char> seen(d_.live.size());
  std::vector<ScalarId> list, open;
  const Stage& stage = stages_.stages[s];
  for (ScalarId r : stage.reduces) open.push_back(node(r).args[0]);
  for (ScalarId k : stage.keeps) open.push_back(k);
  for (size_t i : stage.stores) open.push_back(nest_.stores[i].scalar);
  while (!open.empty()) {
    ScalarId id = open.back();
    open.pop_back();
    auto i = static_cast<size_t>(id);
    bool kept = stages_.kept[i] && d_.stage[i] < static_cast<int>(s);
    if (seen[i] || !d_.live[i] || !d_.row_varying(id) || kept) continue;
    seen[i] = 1;
    if (node(id).op == ScalarOp::Load) {
      list.push_back(id);
      for (const auto& [term, stride] : d_.loads[i].terms) open.push_back(term);
      if (d_.loads[i].predicate >= 0) open.push_back(d_.loads[i].predicate);
    }
    for (ScalarId a : node(id).args) open.push_back(a);
  }
  return list;
}

// Where kept values lie: in an output that they go to themselves, or one that the last round writes, and in which
// memory is fetched while they are computed instead of while they are stored; else in scratch.
void Lowering::find_homes() {
  home_.assign(d_.live.size(), -1);
  if (setting(schedule_, "keep_in_output", 0) == 0) return;
  std::vector<char> taken(d_.stores.size());
  auto fits = [&](ScalarId id, size_t i) {
    const Access& a = d_.stores[i];
    bool own = nest_.stores[i].scalar == id;
    auto along = a.offset.linear_in(axis(static_cast<size_t>(tile_axis_)).var);
    if (taken[i] || graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype != node(id).dtype) return false;
    if ((d_.axes_in(a.offset) & d_.row_mask) != d_.row_mask || !a.terms.empty() || !along || !along->first.is_const(1))
      return false;
    for (size_t other = 0; other < d_.stores.size(); ++other)
      if (other != i && d_.stores[other].buffer == a.buffer) return false;
    for (size_t n = 0; n < d_.live.size(); ++n)
      if (d_.live[n] && node(static_cast<ScalarId>(n)).op == ScalarOp::Load && d_.loads[n].buffer == a.buffer)
        return false;
    return own || d_.stage[static_cast<size_t>(nest_.stores[i].scalar)] + 1 == static_cast<int>(stages_.stages.size());
  };
  for (bool own : {true, false})
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      auto k = static_cast<size_t>(id);
      for (size_t i = 0; k < stages_.kept.size() && stages_.kept[k] && home_[k] < 0 && i < d_.stores.size(); ++i)
        if ((nest_.stores[i].scalar == id) == own && fits(id, i)) {
          home_[k] = static_cast<int>(i);
          taken[i] = 1;
        }
    }
}

} // namespace tessera
