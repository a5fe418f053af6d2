#include "codegen/schedule/lower/row_memory.h"
#include <algorithm>

namespace tessera::loops {

// Only the first stage of a row reads memory; later stages compute, and in these the row of the next outer point is
// prefetched. The hardware does not predict it, because the next row seldom follows within a page.
void Prefetches::plan() {
  if (!is_row_loop() || c_.middle < 0 || stages_.stages.size() < 2 || schedule_.traversal.prefetch_bytes == 0) return;
  const SymExpr &row = tile_axis().var, &point = axis(static_cast<size_t>(c_.middle)).var;
  std::vector<int> cost(stages_.stages.size());
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i] || !d_.row_varying(id)) continue;
    if (d_.stage[i] >= 0 && d_.stage[i] < static_cast<int>(cost.size()))
      cost[static_cast<size_t>(d_.stage[i])] += std::max(0, info(node(id).op).cost);
    if (node(id).op != ScalarOp::Load || !d_.loads[i].terms.empty()) continue;
    auto along = d_.loads[i].offset.linear_in(row), across = d_.loads[i].offset.linear_in(point);
    bool same = std::any_of(fetched_.begin(), fetched_.end(), [&](ScalarId p) {
      const Access& other = d_.loads[static_cast<size_t>(p)];
      return other.buffer == d_.loads[i].buffer && other.offset == d_.loads[i].offset;
    });
    if (along && along->first.is_const(1) && across && !across->first.is_const(0) && !same) fetched_.push_back(id);
  }
  if (!fetched_.empty()) round_ = static_cast<int>(std::max_element(cost.begin() + 1, cost.end()) - cost.begin());
}

void Prefetches::behind_round(size_t s) {
  if (schedule_.kind == ScheduleKind::ColumnLoop) next_points(s);
  if (static_cast<int>(s) == round_) next_row();
}

// The prefetched address of a row that is too long for the cache is the current one, which costs nothing.
void Prefetches::next_row() {
  const SymExpr& point = axis(static_cast<size_t>(c_.middle)).var;
  for (ScalarId id : fetched_) {
    const Access& a = d_.loads[static_cast<size_t>(id)];
    int64_t bytes = info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    int64_t longest = schedule_.traversal.prefetch_bytes / bytes;
    SymExpr step = d_.env.simplify(sym_min(1, floordiv(longest, sym_max(1, d_.row_count()))));
    if (step.is_const(0)) continue;
    SymExpr next = a.offset.substitute({{point.symbol_id(), point + step}});
    b_.prefetch(c_.pointers[static_cast<size_t>(a.buffer)], sizes_.number(next));
  }
}

// Down a column each point is in another line and soon in another page, which the hardware does not predict: what the
// stage reads is prefetched some points ahead. Adjacent points need no prefetch.
void Prefetches::next_points(size_t s) {
  constexpr int64_t kFar = 1024; // bytes from point to point
  int64_t points = schedule_.traversal.prefetch_points;
  if (points == 0 || c_.mask >= 0 || c_.row_axes.empty()) return;
  const SymExpr &down = axis(c_.row_axes.back()).var, &tile = tile_axis().var;
  std::vector<std::pair<int, SymExpr>> fetched;
  for (ScalarId id : loads_of_round(s)) {
    const Access& a = d_.loads[static_cast<size_t>(id)];
    auto across = a.offset.linear_in(tile), along = a.offset.linear_in(down);
    if (!a.terms.empty() || a.predicate >= 0 || !across || !across->first.is_const(1) || !along) continue;
    int64_t bytes = info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    // If the distance is known only at run time, so is whether to prefetch: otherwise the address is the current one.
    SymExpr far = d_.env.simplify(sym_min(1, floordiv(along->first * bytes, kFar)));
    if (d_.axes_in(far) != 0 || far.is_const(0) || d_.env.range(along->first).lo < 0) continue;
    std::pair<int, SymExpr> place{a.buffer, a.offset.substitute({{down.symbol_id(), down + far * points}})};
    if (std::find(fetched.begin(), fetched.end(), place) != fetched.end()) continue;
    fetched.push_back(place);
    b_.prefetch(c_.pointers[static_cast<size_t>(a.buffer)], sizes_.number(place.second));
  }
}

// Memory would be idle while a chunk is read for the second time, from the cache.
void Prefetches::next_chunk(size_t s) {
  const SymExpr& along = tile_axis().var;
  std::vector<std::pair<int, SymExpr>> fetched;
  for (ScalarId id : loads_of_round(s)) {
    const Access& a = d_.loads[static_cast<size_t>(id)];
    auto linear = a.offset.linear_in(along);
    if (!a.terms.empty() || a.predicate >= 0 || !linear || !linear->first.is_const(1)) continue;
    std::pair<int, SymExpr> place{a.buffer, a.offset.substitute({{along.symbol_id(), along + c_.chunk}})};
    if (std::find(fetched.begin(), fetched.end(), place) != fetched.end()) continue;
    fetched.push_back(place);
    b_.prefetch(c_.pointers[static_cast<size_t>(a.buffer)], sizes_.number(place.second));
  }
}

} // namespace tessera::loops
