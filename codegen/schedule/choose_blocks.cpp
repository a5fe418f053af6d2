// The schedules that a nest gets on a GPU: the one of least predicted time at the sizes that are known or were seen,
// with the conditions under which it is right; others for sizes that are typical of the range, where they gain enough,
// and for few points, as many as they gain at; and last one that is right for every size. None has too much code where
// there is one with less. Measured schedules come before all of them.
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/cells.h"
#include "codegen/schedule/schedule_records.h"
#include "codegen/schedule/space.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kWorth = 1.10;   // predicted time over another kernel's, from which on that is compiled as well
constexpr size_t kMaxKernels = 6; // of a nest whose sizes are not known
constexpr double kMaxCode = 2;    // instruction caches of code: assembling more takes seconds, and it spills

struct Choice {
  Legal legal;
  Cost cost;
  std::string measured; // of a record
  std::vector<ExtentRange> extents;
};

// The schedules of a cell: the best one, and the best one of those that are right for every size.
struct CellChoice {
  const Cell* cell;
  SizedFacts sized;
  Choice best, any;
  [[nodiscard]] bool few_points() const { return !cell->grow.empty(); }
};

class Chooser {
public:
  Chooser(const BlockFacts& facts, const LoweringOptions& options)
      : f_(facts), online_(!options.exact_division), without_(options.without) {
    if (options.records) records_ = &ScheduleRecords::of(f_.device);
    if (!records_ || records_->empty()) return;
    signature_ = record_signature(f_.graph, f_.nest, f_.d);
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (f_.is_row(i) ||
          std::any_of(f_.streams.begin(), f_.streams.end(), [&](const Stream& s) { return f_.contiguous(s, i); }))
        narrow_ |= uint64_t{1} << i;
  }

  [[nodiscard]] std::vector<BlockChoice> run() const {
    const Cells all = typical_cells(f_);
    std::vector<CellChoice> cells; // those that have a schedule
    for (const Cell& cell : all.list)
      if (auto sized = sized_facts(f_, cell.sizes); sized.ok())
        if (auto choice = best_of(cell, *sized)) cells.push_back(std::move(*choice));
    std::vector<BlockChoice> list;
    const Choice* every_size = general(cells);
    if (!every_size) return list; // no size is possible: whoever calls takes scalars
    for (size_t c = 0; c < cells.size() && list.size() + 1 < kMaxKernels; ++c) {
      const CellChoice& here = cells[c];
      Choice choice = here.best;
      const bool seen = c == 0 && all.seen; // is what the model is run at
      if (predicted(every_size->legal.schedule, here.sized).us < (seen ? 1 : kWorth) * here.best.cost.us) continue;
      if (here.few_points()) {
        if (!limit(choice, *here.cell, every_size->legal.schedule)) continue;
        if (all.seen && !list.empty() && list.front().legal.schedule == choice.legal.schedule &&
            holds(choice.legal.conditions, cells.front().cell->sizes)) {
          list.front() = explained(choice); // one kernel for these and the sizes that were seen
          continue;
        }
      }
      list.push_back(explained(choice));
      if (choice.legal.conditions.empty() && !choice.legal.grid_barrier) return list;
    }
    list.push_back(explained(*every_size));
    return list;
  }

private:
  // The schedule for every size that loses least over all cells; null where there are none. Few points have a separate
  // kernel where that pays.
  [[nodiscard]] const Choice* general(const std::vector<CellChoice>& cells) const {
    const Choice* out = nullptr;
    double least = 0;
    for (const CellChoice& of : cells) {
      if (of.few_points()) continue;
      double sum = 0;
      for (const CellChoice& at : cells)
        if (!at.few_points()) sum += predicted(of.any.legal.schedule, at.sized).us / at.best.cost.us;
      if (!out || sum < least) least = sum, out = &of.any;
    }
    return out || cells.empty() ? out : &cells.front().any;
  }
  // The schedule of a cell of few points, for as many as it takes less time for than the general one. False: it is not
  // right for them.
  bool limit(Choice& choice, const Cell& cell, const Schedule& general) const {
    CallSizes sizes = cell.sizes;
    for (double points = 0; points < kTypicalPoints;) {
      const auto sized = sized_facts(f_, sizes);
      if (!sized.ok()) break;
      auto us = [&](const Schedule& schedule) { return predicted(schedule, *sized).us; };
      if (points > 0 && us(choice.legal.schedule) >= us(general)) break;
      points = 1;
      for (size_t i = 0; i < choice.extents.size(); ++i) {
        points *= static_cast<double>(std::max<int64_t>(1, sized->extents[i]));
        if (!f_.constant(f_.extent(i))) choice.extents[i] = {1, sized->extents[i], 1};
      }
      for (const uint64_t symbol : cell.grow) sizes[symbol] *= 2;
    }
    Legal l = legal(f_, choice.legal.schedule, choice.extents);
    if (!l || !holds(l.conditions, cell.sizes)) return false;
    choice.legal = std::move(l);
    return true;
  }
  [[nodiscard]] bool failed(const Schedule& schedule) const {
    return std::find(without_.begin(), without_.end(), schedule) != without_.end();
  }
  [[nodiscard]] Cost predicted(const Schedule& schedule, const SizedFacts& sized) const {
    return cost(sized, schedule, 1, f_.device, model_);
  }
  // Whether a schedule is to be chosen rather than `other`: one with too much code is only where all have too much, and
  // then the one that has least.
  [[nodiscard]] bool better(const Cost& cost, const Cost& other) const {
    const double most = kMaxCode * static_cast<double>(f_.device.instruction_cache_bytes) / kInstructionBytes;
    if (std::max(cost.code, other.code) <= most) return cost.us < other.us;
    if (std::min(cost.code, other.code) > most) return cost.code < other.code;
    return cost.code <= most;
  }
  // Nothing where no schedule is right.
  [[nodiscard]] std::optional<CellChoice> best_of(const Cell& cell, const SizedFacts& sized) const {
    std::optional<Choice> best, any;
    const std::vector<ExtentRange> everything(sized.extents.size(), ExtentRange{INT64_MIN, INT64_MAX, 1});
    auto offer = [&](const Schedule& schedule, int64_t blocks_per_row) {
      if (failed(schedule)) return;
      Cost c = cost(sized, schedule, blocks_per_row, f_.device, model_);
      if (best && !better(c, best->cost) && any && !better(c, any->cost)) return;
      if (!best || better(c, best->cost))
        if (Legal l = legal(f_, schedule, cell.extents); l && holds(l.conditions, cell.sizes))
          best = {std::move(l), c, "", cell.extents};
      if (schedule.kind != ScheduleKind::BlockCooperative && (!any || better(c, any->cost)))
        if (Legal l = legal(f_, schedule, everything); l && l.conditions.empty())
          any = {std::move(l), c, "", everything};
    };
    for_each_schedule(f_, sized, cell.sizes, online_, offer);
    if (!any) return std::nullopt;
    if (!best) best = any;
    take_record(cell, sized, *best, *any);
    return CellChoice{&cell, sized, std::move(*best), std::move(*any)};
  }
  // A schedule that was measured to be fastest at such extents takes the place of those that are predicted to be.
  void take_record(const Cell& cell, const SizedFacts& sized, Choice& best, Choice& any) const {
    const MeasuredSchedule* r = signature_.empty() ? nullptr : records_->find(signature_, sized.extents, narrow_);
    if (!r) return;
    Schedule schedule = r->schedule;
    schedule.traversal.online &= online_;
    if (failed(schedule)) return;
    auto take = [&](Choice& choice, const std::vector<ExtentRange>& extents, bool always) {
      Legal l = legal(f_, schedule, extents);
      if (!l || (always ? !l.conditions.empty() || l.grid_barrier : !holds(l.conditions, cell.sizes))) return;
      int64_t blocks_per_row = 1;
      if (l.blocks_per_row)
        if (auto n = l.blocks_per_row->eval(cell.sizes); n.ok()) blocks_per_row = *n;
      Cost c = cost(sized, schedule, blocks_per_row, f_.device, model_);
      c.us = std::min(c.us, best.cost.us);
      choice = {std::move(l), c, r->text(), extents};
    };
    take(best, cell.extents, false);
    if (schedule.kind != ScheduleKind::BlockCooperative)
      take(any, std::vector<ExtentRange>(sized.extents.size(), ExtentRange{INT64_MIN, INT64_MAX, 1}), true);
  }
  [[nodiscard]] static BlockChoice explained(const Choice& choice) {
    return {choice.legal, BlockFacts::sizes(choice.legal.schedule), choice.cost.predicted(), choice.measured,
            choice.extents};
  }

  const BlockFacts& f_;
  const bool online_;
  const std::span<const Schedule> without_; // that gave no code
  const CostModel model_;
  const ScheduleRecords* records_ = nullptr;
  std::string signature_; // empty: there are no records
  uint64_t narrow_ = 0;   // axes of which records count within a bucket alone
};

} // namespace

std::vector<BlockChoice> choose_blocks(const BlockFacts& facts, const LoweringOptions& options,
                                       const TunedSchedules* tuned) {
  const bool online = !options.exact_division;
  const Domain& domain = facts.d;
  std::vector<BlockChoice> list; // empty: no size is possible, or no schedule is left
  if (tuned)
    for (TunedSchedule& t : tuned->find(nest_key(facts.graph, facts.nest, domain))) {
      t.schedule.traversal.online &= online;
      if (Legal l = legal(facts, t.schedule, t.extents);
          l && std::find(options.without.begin(), options.without.end(), l.schedule) == options.without.end())
        list.push_back({std::move(l), "", {}, std::move(t.measured), std::move(t.extents)});
    }
  if (domain.axes.empty()) {
    if (!options.without.empty()) return list;
    list.push_back({legal(facts, BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1), {}),
                    "a single point: scalars",
                    {},
                    "",
                    {}});
    return list;
  }
  for (BlockChoice& c : Chooser(facts, options).run()) list.push_back(std::move(c));
  return list;
}

} // namespace tessera
