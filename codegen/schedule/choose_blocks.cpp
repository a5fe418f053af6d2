// The schedules that a nest gets on a GPU: the one of least predicted time at the sizes that are known or were seen,
// with the conditions under which it is right; others for sizes that are typical of the range, where they gain enough;
// and last one that is right for every size. Measured schedules come before all of them.
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/cells.h"
#include "codegen/schedule/space.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kWorth = 1.10;    // predicted time over another kernel's, from which on that is compiled as well
constexpr size_t kMostKernels = 6; // of a nest whose sizes are not known
struct Choice {
  Legal legal;
  Cost cost;
};

class Chooser {
public:
  Chooser(const BlockFacts& facts, bool online) : f_(facts), online_(online) {}

  std::vector<BlockChoice> run() {
    const Cells all = typical_cells(f_);
    const std::vector<Cell>& cells = all.list;
    for (const Cell& cell : cells) {
      auto sized = sized_facts(f_, cell.sizes);
      if (sized.ok()) best_of(cell, *sized);
    }
    std::vector<BlockChoice> list;
    if (any_.empty()) return list; // no size is possible: whoever calls takes scalars
    // For every size: the one that loses least over all cells.
    size_t general = 0;
    double least = 0;
    for (size_t g = 0; g < any_.size(); ++g) {
      double sum = 0;
      for (size_t c = 0; c < sized_.size(); ++c) sum += predicted(any_[g].legal.schedule, c).us / best_[c].cost.us;
      if (g == 0 || sum < least) least = sum, general = g;
    }
    for (size_t c = 0; c < best_.size() && list.size() + 1 < kMostKernels; ++c) {
      const bool same = best_[c].legal.conditions.empty() && !best_[c].legal.grid_barrier;
      const bool seen = c == 0 && all.seen; // is what the model is run at
      if (predicted(any_[general].legal.schedule, c).us < (seen ? 1 : kWorth) * best_[c].cost.us) continue;
      list.push_back(explained(best_[c]));
      if (same) return list;
    }
    list.push_back(explained(any_[general]));
    return list;
  }

private:
  [[nodiscard]] Cost predicted(const Schedule& schedule, size_t cell) const {
    return cost(sized_[cell], schedule, 1, f_.device, model_);
  }
  // The best schedule of a cell, and the best one of those that are right for every size.
  void best_of(const Cell& cell, const SizedFacts& sized) {
    std::optional<Choice> best, any;
    const std::vector<ExtentRange> everything(sized.extents.size(), ExtentRange{INT64_MIN, INT64_MAX, 1});
    auto offer = [&](const Schedule& schedule, int64_t blocks_per_row) {
      Cost c = cost(sized, schedule, blocks_per_row, f_.device, model_);
      if (best && c.us >= best->cost.us && any && c.us >= any->cost.us) return;
      if (!best || c.us < best->cost.us)
        if (Legal l = legal(f_, schedule, cell.extents); l && holds(l.conditions, cell.sizes)) best = {std::move(l), c};
      if (schedule.kind != ScheduleKind::BlockTeam && (!any || c.us < any->cost.us))
        if (Legal l = legal(f_, schedule, everything); l && l.conditions.empty()) any = {std::move(l), c};
    };
    for_each_schedule(f_, sized, cell.sizes, online_, offer);
    if (!any) return;
    sized_.push_back(sized);
    best_.push_back(best ? std::move(*best) : *any);
    any_.push_back(std::move(*any));
  }
  [[nodiscard]] static BlockChoice explained(const Choice& choice) {
    auto us = [](double v) {
      const auto tenths = static_cast<int64_t>(std::llround(v * 10));
      return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
    };
    const Cost& c = choice.cost;
    std::string why = BlockFacts::sizes(choice.legal.schedule) + "; predicted " + us(c.us) + " us: memory " +
                      us(c.memory) + ", latency " + us(c.latency) + ", instructions " + us(c.issue) +
                      ", shared memory " + us(c.shared) + ", launch " + us(c.launch) + "; bound by " +
                      std::string(c.bound());
    return {choice.legal, std::move(why), ""};
  }

  const BlockFacts& f_;
  const bool online_;
  const CostModel model_;
  std::vector<SizedFacts> sized_;  // by cell
  std::vector<Choice> best_, any_; // likewise
};

} // namespace

std::vector<BlockChoice> choose_blocks(const BlockFacts& facts, bool online, const TunedSchedules* tuned) {
  const Domain& domain = facts.d;
  std::vector<BlockChoice> list;
  if (tuned)
    for (TunedSchedule& t : tuned->find(nest_key(facts.graph, facts.nest, domain))) {
      t.schedule.traversal.online &= online;
      if (Legal l = legal(facts, t.schedule, t.extents)) list.push_back({std::move(l), "", std::move(t.measured)});
    }
  if (domain.axes.empty()) {
    list.push_back(
        {legal(facts, BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1), {}), "a single point: scalars", ""});
    return list;
  }
  for (BlockChoice& c : Chooser(facts, online).run()) list.push_back(std::move(c));
  return list;
}

} // namespace tessera
