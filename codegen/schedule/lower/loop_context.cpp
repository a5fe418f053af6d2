#include "codegen/schedule/lower/loop_context.h"

namespace tessera::loops {

Context::Context(const Graph& graph_, const LoopNest& nest_, const Domain& domain, OnlineSums online_,
                 const Schedule& schedule_, const std::string& name)
    : KernelContext(graph_, nest_, domain, std::move(online_), domain.reduces ? plan_stages(nest_, domain) : Stages(),
                    name),
      schedule(schedule_), memo(d.live.size()) {
  out.schedule = schedule;
  tile_axis = schedule.placement.axis;
  if (schedule.kind == ScheduleKind::Tiled2D) cross_axis = schedule.placement.cross_axis;
  vector = schedule.tile.vector;
  if (cross_axis >= 0) square = schedule.tile.square;
  wide = vector * schedule.tile.unroll;
  chunk = schedule.traversal.online ? schedule.traversal.chunk : 0;
  parts = schedule.cooperation.programs_per_row;
  for (size_t i = 0; i < d.axes.size(); ++i) {
    const bool row = d.axes[i].role == AxisRole::Row;
    if (static_cast<int>(i) == tile_axis || static_cast<int>(i) == cross_axis) continue;
    (row ? row_axes : prefix).push_back(i);
  }
  if (schedule.kind == ScheduleKind::RowLoop) row_axes.push_back(static_cast<size_t>(tile_axis));
  if (cross_axis >= 0) {
    middle = cross_axis;
  } else if (!prefix.empty()) {
    middle = static_cast<int>(prefix.back());
    prefix.pop_back();
  }
}

// The loads along the row that a round makes itself.
std::vector<ScalarId> Part::loads_of_round(size_t s) const {
  std::vector<ScalarId> list = computed_in(nest_, d_, stages_, s);
  std::erase_if(list, [&](ScalarId id) { return node(id).op != ScalarOp::Load; });
  return list;
}

} // namespace tessera::loops
