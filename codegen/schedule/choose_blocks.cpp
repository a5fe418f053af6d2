// The schedules that a nest gets on a GPU: the one of least predicted time at the sizes that are known or were seen,
// with the conditions under which it is right; others for sizes that are typical of the range, where they gain enough;
// and last one that is right for every size. Measured schedules come before all of them.
#include "codegen/schedule/block_config.h"
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
    Cell cell{sizes, {}};
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      auto n = f_.extent(i).eval(sizes);
      if (!n.ok()) return std::nullopt;
      ExtentRange range{0, kAny, 1};
      if (!t) {
        range = bucket_of(*n);
        auto along = [&](const Stream& s) { return f_.contiguous(s, i); };
        if (std::none_of(f_.streams.begin(), f_.streams.end(), along)) range.multiple_of = 1;
      } else if (i == contiguous) {
        range = t->range;
        if (*n < range.min || *n > range.max || *n % range.multiple_of != 0) return std::nullopt;
      } else if (t->few) {
        range = {1, 4 * std::max<int64_t>(1, *n), 1};
      }
      if (f_.constant(f_.extent(i))) range = {*n, *n, 1};
      cell.extents.push_back(range);
    }
    return cell;
  }

  const BlockFacts& f_;
  std::vector<SymExpr> symbols_;
};

struct Choice {
  BlockPlan plan;
  Cost cost;
};

class Chooser {
public:
  Chooser(const BlockFacts& facts, bool online) : f_(facts), online_(online) {}

  std::vector<BlockPlan> run() {
    const Cells all(f_);
    const std::vector<Cell> cells = all.run();
    for (const Cell& cell : cells) {
      auto sized = sized_facts(f_, cell.sizes);
      if (sized.ok()) best_of(cell, *sized);
    }
    std::vector<BlockPlan> plans;
    if (any_.empty()) return plans; // no size is possible: whoever calls takes scalars
    // For every size: the one that loses least over all cells.
    size_t general = 0;
    double least = 0;
    for (size_t g = 0; g < any_.size(); ++g) {
      double sum = 0;
      for (size_t c = 0; c < sized_.size(); ++c) sum += predicted(any_[g].plan, c).us / best_[c].cost.us;
      if (g == 0 || sum < least) least = sum, general = g;
    }
    for (size_t c = 0; c < best_.size() && plans.size() + 1 < kMostKernels; ++c) {
      const bool same = best_[c].plan.conditions.empty() && !best_[c].plan.waits;
      const bool seen = c == 0 && all.seen(); // is what the model is run at
      if (predicted(any_[general].plan, c).us < (seen ? 1 : kWorth) * best_[c].cost.us) continue;
      plans.push_back(explained(best_[c]));
      if (same) return plans;
    }
    plans.push_back(explained(any_[general]));
    return plans;
  }

private:
  [[nodiscard]] Cost predicted(const BlockPlan& plan, size_t cell) const {
    return cost(sized_[cell], plan, 1, f_.device, model_);
  }
  // The best schedule of a cell, and the best one of those that are right for every size.
  void best_of(const Cell& cell, const SizedFacts& sized) {
    std::optional<Choice> best, any;
    const std::vector<ExtentRange> everything(sized.extents.size(), ExtentRange{INT64_MIN, kAny, 1});
    auto offer = [&](const BlockPlan& plan, int64_t members) {
      Cost c = cost(sized, plan, members, f_.device, model_);
      if (best && c.us >= best->cost.us && any && c.us >= any->cost.us) return;
      BlockPlan p = plan;
      write_config(p);
      if (!best || c.us < best->cost.us)
        if (auto legal = tuned_plan(f_, {p.schedule, cell.extents}); legal && holds(legal->conditions, cell.sizes))
          best = {std::move(*legal), c};
      if (!plan.team && (!any || c.us < any->cost.us))
        if (auto legal = tuned_plan(f_, {p.schedule, everything}); legal && legal->conditions.empty())
          any = {std::move(*legal), c};
    };
    for_each_schedule(f_, sized, cell.sizes, online_, offer);
    if (!any) return;
    sized_.push_back(sized);
    best_.push_back(best ? std::move(*best) : *any);
    any_.push_back(std::move(*any));
  }
  [[nodiscard]] static bool holds(const std::vector<SizeCondition>& conditions, const CallSizes& sizes) {
    return std::all_of(conditions.begin(), conditions.end(), [&](const SizeCondition& c) {
      auto v = c.value.eval(sizes);
      return v.ok() && *v >= c.min && *v <= c.max && *v % c.multiple_of == 0;
    });
  }
  [[nodiscard]] static BlockPlan explained(const Choice& choice) {
    auto us = [](double v) {
      const auto tenths = static_cast<int64_t>(std::llround(v * 10));
      return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
    };
    BlockPlan p = choice.plan;
    const Cost& c = choice.cost;
    p.schedule.why = BlockFacts::sizes(p) + "; predicted " + us(c.us) + " us: memory " + us(c.memory) + ", latency " +
                     us(c.latency) + ", instructions " + us(c.issue) + ", shared memory " + us(c.shared) + ", launch " +
                     us(c.launch) + "; bound by " + std::string(c.bound());
    return p;
  }

  const BlockFacts& f_;
  const bool online_;
  const CostModel model_;
  std::vector<SizedFacts> sized_;  // by cell
  std::vector<Choice> best_, any_; // likewise
};

} // namespace

std::vector<BlockPlan> plan_blocks(const Graph& graph, const LoopNest& nest, const Domain& domain, const Target& device,
                                   const Schedule& wanted, const TunedSchedules* tuned) {
  BlockFacts facts(graph, nest, domain, device);
  auto exact = wanted.config.find("exact_division");
  const bool online = exact == wanted.config.end() || exact->second == 0;
  std::vector<BlockPlan> plans;
  if (domain.axes.empty()) {
    plans.push_back(BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1));
    plans.back().schedule.why = "a single point: scalars";
  } else {
    plans = Chooser(facts, online).run();
  }
  if (tuned) {
    std::vector<BlockPlan> ahead;
    for (const TunedSchedule& t : tuned->find(nest_key(graph, nest, domain)))
      if (auto p = tuned_plan(facts, t)) ahead.push_back(std::move(*p));
    plans.insert(plans.begin(), std::make_move_iterator(ahead.begin()), std::make_move_iterator(ahead.end()));
  }
  for (BlockPlan& p : plans) {
    write_config(p);
    p.schedule.config["exact_division"] = exact == wanted.config.end() ? 0 : exact->second;
    if ((p.loop || p.team) && !online) p.schedule.config["online"] = 0;
    if (p.loop || p.team) p.schedule.config.try_emplace("online", 1);
  }
  return plans;
}

} // namespace tessera
