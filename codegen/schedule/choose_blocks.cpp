// The schedules that a nest gets on a GPU: the one of least predicted time at the sizes that are known or were seen,
// with the conditions under which it is right; others for sizes that are typical of the range, where they gain enough;
// and last one that is right for every size. Measured schedules come before all of them.
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/schedule_records.h"
#include "codegen/schedule/space.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr double kWorth = 1.10;    // predicted time over another kernel's, from which on that is compiled as well
constexpr size_t kMostKernels = 6; // of a nest whose sizes are not known
constexpr double kTypicalPoints = 8 << 20; // of a nest whose outer sizes are not known

// Sizes that stand for a range of them.
struct Cell {
  CallSizes sizes;                  // of every symbol
  std::vector<ExtentRange> extents; // by axis: where they stand for others
};

// Lengths of an axis along which elements are contiguous, or that is folded, where its symbols are not known.
struct Typical {
  int64_t length;
  ExtentRange range;
  bool few = false; // only where such rows are few
};
constexpr int64_t kAny = INT64_MAX, kSome = 100;
const std::vector<Typical> kRows = {{160, {1, 256, 8}},      {1024, {257, 1024, 8}},           {4096, {1025, 4096, 8}},
                                    {999, {1, 1024, 1}},     {204800, {65537, kAny, 8}, true}, {20480, {4097, kAny, 8}},
                                    {20001, {1025, kAny, 1}}};
const std::vector<Typical> kContiguous = {{1024, {1, kAny, 16}}, {1001, {1, kAny, 1}}};

class Cells {
public:
  explicit Cells(const BlockFacts& f) : f_(f) {
    for (const Axis& a : f.d.axes) collect(a.extent);
    for (const Stream& s : f.streams) collect(s.access->offset);
  }
  // Whether every size is known or was seen by the call that leads to this compilation. The first cell is of these then.
  [[nodiscard]] bool seen() const {
    return std::all_of(symbols_.begin(), symbols_.end(),
                       [&](const SymExpr& s) { return f_.graph.env().hint(s).has_value(); });
  }
  std::vector<Cell> run() const {
    std::vector<Cell> list;
    if (seen()) {
      CallSizes sizes;
      for (const SymExpr& s : symbols_) sizes[s.symbol_id()] = *f_.graph.env().hint(s);
      if (auto cell = with(sizes, nullptr, 0)) list.push_back(std::move(*cell));
      if (symbols_.empty()) return list;
    }
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    for (const Typical& t : f_.d.reduces&& f_.is_row(c) ? kRows : kContiguous)
      if (auto cell = typical(t, c)) list.push_back(std::move(*cell));
    if (list.empty()) { // none of these lengths is possible
      CallSizes some;
      for (const SymExpr& s : symbols_) some[s.symbol_id()] = within(s, kSome);
      if (auto cell = with(some, nullptr, 0)) list.push_back(std::move(*cell));
    }
    return list;
  }

private:
  void collect(const SymExpr& e) {
    for (const SymExpr& s : e.symbols()) {
      const bool axis = std::any_of(f_.d.axes.begin(), f_.d.axes.end(), [&](const Axis& a) { return a.var == s; });
      if (!axis && std::find(symbols_.begin(), symbols_.end(), s) == symbols_.end()) symbols_.push_back(s);
    }
  }
  [[nodiscard]] int64_t within(const SymExpr& symbol, int64_t n) const {
    const SymRange r = f_.d.env.range(symbol);
    n = std::clamp(n, std::max<int64_t>(1, r.lo), std::max<int64_t>(1, r.hi));
    const int64_t k = std::max<int64_t>(1, f_.d.env.divisor(symbol));
    return std::max(k, n / k * k);
  }
  // Symbols of the contiguous axis yield the typical length, the others as many points as are typical.
  [[nodiscard]] std::optional<Cell> typical(const Typical& t, size_t contiguous) const {
    CallSizes sizes;
    const SymExpr& inner = f_.extent(contiguous);
    std::vector<SymExpr> others;
    // Of several symbols of the axis one has the length: the one that a condition on the axis is about.
    const Multiple divisible = f_.multiple(inner, kAccessBytes);
    const SymExpr* bearer = nullptr;
    for (const SymExpr& s : symbols_)
      if (inner.contains(s) && (!bearer || (divisible.condition && divisible.condition->value == s))) bearer = &s;
    for (const SymExpr& s : symbols_) {
      sizes[s.symbol_id()] = within(s, &s == bearer ? t.length : 1);
      if (!inner.contains(s)) others.push_back(s);
    }
    double points = 1;
    for (const Axis& a : f_.d.axes) {
      auto n = a.extent.eval(sizes);
      if (!n.ok()) return std::nullopt;
      points *= static_cast<double>(std::max<int64_t>(1, *n));
    }
    const double each =
        std::pow(std::max(1.0, kTypicalPoints / points), 1.0 / std::max<double>(1, static_cast<double>(others.size())));
    for (const SymExpr& s : others) sizes[s.symbol_id()] = within(s, static_cast<int64_t>(each));
    return with(sizes, &t, contiguous);
  }
  [[nodiscard]] std::optional<Cell> with(const CallSizes& sizes, const Typical* t, size_t contiguous) const {
    std::vector<int64_t> extents;
    for (const Axis& a : f_.d.axes) {
      auto n = a.extent.eval(sizes);
      if (!n.ok()) return std::nullopt;
      extents.push_back(*n);
    }
    Cell cell{sizes, ranges_of(f_, extents, sizes)};
    for (size_t i = 0; t && i < extents.size(); ++i) {
      const int64_t n = extents[i];
      ExtentRange& range = cell.extents[i];
      if (i == contiguous && (n < t->range.min || n > t->range.max || n % t->range.multiple_of != 0))
        return std::nullopt;
      if (f_.constant(f_.extent(i))) continue;
      range = {0, kAny, 1};
      if (i == contiguous)
        range = t->range;
      else if (t->few)
        range = {1, 4 * std::max<int64_t>(1, n), 1};
    }
    return cell;
  }

  const BlockFacts& f_;
  std::vector<SymExpr> symbols_;
};

struct Choice {
  Legal legal;
  Cost cost;
  std::string measured; // of a record
};

class Chooser {
public:
  Chooser(const BlockFacts& facts, bool online, bool records) : f_(facts), online_(online) {
    if (records) records_ = &ScheduleRecords::of(f_.device);
    if (!records_ || records_->empty()) return;
    signature_ = record_signature(f_.graph, f_.nest, f_.d);
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (f_.is_row(i) ||
          std::any_of(f_.streams.begin(), f_.streams.end(), [&](const Stream& s) { return f_.contiguous(s, i); }))
        narrow_ |= uint64_t{1} << i;
  }

  std::vector<BlockChoice> run() {
    const Cells all(f_);
    const std::vector<Cell> cells = all.run();
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
      const bool seen = c == 0 && all.seen(); // is what the model is run at
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
    const std::vector<ExtentRange> everything(sized.extents.size(), ExtentRange{INT64_MIN, kAny, 1});
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
    if (!best) best = any;
    take_record(cell, sized, *best, *any);
    sized_.push_back(sized);
    best_.push_back(std::move(*best));
    any_.push_back(std::move(*any));
  }
  // A schedule that was measured to be fastest at such extents takes the place of those that are predicted to be.
  void take_record(const Cell& cell, const SizedFacts& sized, Choice& best, Choice& any) const {
    const MeasuredSchedule* r = signature_.empty() ? nullptr : records_->find(signature_, sized.extents, narrow_);
    if (!r) return;
    Schedule schedule = r->schedule;
    schedule.traversal.online &= online_;
    auto take = [&](Choice& choice, const std::vector<ExtentRange>& extents, bool always) {
      Legal l = legal(f_, schedule, extents);
      if (!l || (always ? !l.conditions.empty() || l.grid_barrier : !holds(l.conditions, cell.sizes))) return;
      int64_t blocks_per_row = 1;
      if (l.blocks_per_row)
        if (auto n = l.blocks_per_row->eval(cell.sizes); n.ok()) blocks_per_row = *n;
      Cost c = cost(sized, schedule, blocks_per_row, f_.device, model_);
      c.us = std::min(c.us, best.cost.us);
      choice = {std::move(l), c, r->text()};
    };
    take(best, cell.extents, false);
    if (schedule.kind != ScheduleKind::BlockTeam)
      take(any, std::vector<ExtentRange>(sized.extents.size(), ExtentRange{INT64_MIN, kAny, 1}), true);
  }
  [[nodiscard]] static BlockChoice explained(const Choice& choice) {
    return {choice.legal, BlockFacts::sizes(choice.legal.schedule), choice.cost.predicted(), choice.measured};
  }

  const BlockFacts& f_;
  const bool online_;
  const CostModel model_;
  const ScheduleRecords* records_ = nullptr;
  std::string signature_;          // empty: there are no records
  uint64_t narrow_ = 0;            // axes of which records count within a bucket alone
  std::vector<SizedFacts> sized_;  // by cell
  std::vector<Choice> best_, any_; // likewise
};

} // namespace

std::vector<BlockChoice> choose_blocks(const BlockFacts& facts, const LoweringOptions& options,
                                       const TunedSchedules* tuned) {
  const bool online = !options.exact_division;
  const Domain& domain = facts.d;
  std::vector<BlockChoice> list;
  if (tuned)
    for (TunedSchedule& t : tuned->find(nest_key(facts.graph, facts.nest, domain))) {
      t.schedule.traversal.online &= online;
      if (Legal l = legal(facts, t.schedule, t.extents)) list.push_back({std::move(l), "", {}, std::move(t.measured)});
    }
  if (domain.axes.empty()) {
    list.push_back(
        {legal(facts, BlockFacts::schedule(ScheduleKind::BlockFlat, 1, 1, 1), {}), "a single point: scalars", {}, ""});
    return list;
  }
  for (BlockChoice& c : Chooser(facts, online, options.records).run()) list.push_back(std::move(c));
  return list;
}

} // namespace tessera
