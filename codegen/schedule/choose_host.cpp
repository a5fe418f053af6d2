// The schedule that a nest gets on a host, which has one kernel for all sizes: a measured one, else the one that loses
// least over the sizes that are known or typical.
#include "codegen/schedule/choose_host.h"
#include "codegen/schedule/cells.h"
#include "codegen/schedule/host_cost.h"
#include "codegen/schedule/nest_key.h"
#include "codegen/schedule/space.h"
#include <algorithm>
#include <numeric>
#include <set>

namespace tessera {
namespace {

// Cores that may run a kernel. It is the same for all of them, so that results do not depend on the machine's.
constexpr double kCores[] = {2, 16};

std::string explained(const BlockFacts& f, const Schedule& s) {
  if (s.placement.axis < 0) return "a single point: scalars";
  auto extent = [&](int axis) { return f.extent_text(static_cast<size_t>(axis)); };
  std::string why =
      "tiles of " + std::to_string(s.tile.vector * s.tile.unroll) + " along an axis of " + extent(s.placement.axis);
  if (s.kind == ScheduleKind::RowLoop) why = "row of " + f.d.env.simplify(f.d.row_count()).str() + "; " + why;
  if (s.kind == ScheduleKind::ColumnLoop) why = "the row is not contiguous, an outer axis is; " + why;
  if (s.kind == ScheduleKind::Tiled2D)
    why += ", in blocks along an axis of " + extent(s.placement.cross_axis) +
           " on which a transposed operand is contiguous";
  if (s.traversal.online)
    why += "; sums are folded with what they depend on, " + std::to_string(s.traversal.chunk) + " elements at a time";
  if (const int parts = s.cooperation.programs_per_row; parts > 1)
    why += "; shared by " + std::to_string(parts) + " programs, the last one folds their partial results";
  return why;
}

} // namespace

HostChoice choose_host(const BlockFacts& facts, const TunedSchedules* tuned, std::span<const Schedule> without) {
  auto failed = [&](const Schedule& s) { return std::find(without.begin(), without.end(), s) != without.end(); };
  const Cells cells = typical_cells(facts);
  if (tuned)
    for (const TunedSchedule& t : tuned->find(nest_key(facts.graph, facts.nest, facts.d)))
      if (const Legal l = legal(facts, t.schedule, t.extents); l && !failed(l.schedule)) {
        HostChoice choice{l.schedule, "", {}, t.measured, t.extents};
        if (!cells.list.empty())
          if (auto at = sized_facts(facts, cells.list.front().sizes); at.ok())
            choice.predicted = cost(*at, l.schedule, 1, facts.device, {}).predicted();
        return choice;
      }
  std::vector<SizedFacts> sized;
  std::vector<Schedule> list; // of equal ones the first is taken
  std::set<Schedule> met;
  for (const Cell& cell : cells.list) {
    if (cells.seen && !sized.empty()) break; // sizes that were seen are what the model is run at
    auto at = sized_facts(facts, cell.sizes);
    if (!at.ok()) continue;
    for_each_schedule(facts, *at, cell.sizes, true, [&](const Schedule& s, int64_t) {
      if (met.insert(s).second) list.push_back(s);
    });
    sized.push_back(std::move(*at));
  }
  std::vector<double> sums(list.size()); // of the times over the least one of each size and number of cores
  for (const SizedFacts& at : sized)
    for (const double cores : kCores) {
      HostCostModel model;
      model.programs = cores;
      std::vector<double> us;
      for (const Schedule& s : list) us.push_back(host_cost(at, s, facts.device, model).us);
      const double least = us.empty() ? 1 : *std::min_element(us.begin(), us.end());
      for (size_t i = 0; i < list.size(); ++i) sums[i] += us[i] / least;
    }
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sums[a] < sums[b]; });
  const std::vector<ExtentRange> everything(facts.d.axes.size(), ExtentRange{INT64_MIN, INT64_MAX, 1});
  for (size_t i : order)
    if (const Legal l = legal(facts, list[i], everything); l && !failed(l.schedule))
      return {l.schedule, explained(facts, l.schedule),
              cost(sized.front(), l.schedule, 1, facts.device, {}).predicted(), "", everything};
  return {{}, "no size is possible", {}, "", {}, !without.empty()};
}

HostChoice choose_schedule(const Graph& graph, const LoopNest& nest, const Target& device, const TunedSchedules* tuned,
                           std::span<const Schedule> without) {
  Result<Domain> domain = make_domain(graph, nest);
  if (domain.ok()) return choose_host(BlockFacts(graph, nest, *domain, device), tuned, without);
  return {{}, domain.error().message, {}, "", {}}; // lower_to_tiles reports the same error
}

} // namespace tessera
