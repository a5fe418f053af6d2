// Windows that slide: depthwise convolutions, pooling, local sums. Neighbouring results read the same elements, so a
// thread that computes T x U neighbours reads each element of their common window once and keeps it in registers:
//
//   y[n, h, w, c] = sum over kh, kw of x[n, h + kh, w + kw, c] * k[kh, kw, c]     window 7 x 7, T = 7 along w, U = 1
//   reads of x per result: (7 + 6) * 7 / 7 = 13 instead of 49; of k: 49 / 7 = 7
//
// The tile is [R, V]: R positions of all other outer axes, and V neighbours along the contiguous one. Taps are written
// out, or, where that would be too much code, those of one position of the outermost row axis, and a loop does the
// rest. T, U and V are those of the least estimated time.
#include "codegen/schedule/block_facts.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kMostCode = 3072;       // operations of a thread between two loop ends
constexpr int64_t kMostOutputs = 14;      // of a thread, along one axis
constexpr int64_t kMostAccumulators = 32; // registers; with more, fewer warps are resident and nothing is gained
constexpr double kRegisterBudget = 128;   // of a thread: accumulators and what one row of the window reads
constexpr double kDependent = 2.2;        // cycles per operation of a warp that is alone on its scheduler
constexpr int64_t kThreads = 128;         // of a block

// A load of the reduced value: how far its offset moves with each axis that a thread unrolls, in numbers that are equal
// only where the distances are.
struct TapLoad {
  bool wide = false; // varies along the contiguous axis
  bool masked = false;
  int bytes = 4;
  int64_t along_window = 0, along_outer = 0;
  std::vector<int64_t> along_taps; // by row axis
  [[nodiscard]] bool slides(int64_t along) const {
    return along != 0 && std::any_of(along_taps.begin(), along_taps.end(), [](int64_t s) { return s != 0; });
  }
};

class WindowPlanner {
public:
  explicit WindowPlanner(const BlockFacts& facts) : f_(facts) {}

  bool slides() {
    if (!find_taps() || !find_loads()) return false;
    find_axes();
    return window_ >= 0;
  }

  // Every shape that needs no condition.
  std::vector<WindowChoice> all() {
    if (!slides()) return {};
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    for (int64_t vector = f_.vector; vector >= 1; vector /= 2)
      if (const Multiple whole = f_.multiple(f_.extent(c), vector); whole.known) return choices(vector, whole);
    return {};
  }

  std::vector<WindowChoice> run() {
    if (!slides()) return {};
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    std::vector<WindowChoice> list;
    for (int64_t vector = f_.vector; vector >= 1; vector /= 2) {
      const Multiple whole = f_.multiple(f_.extent(c), vector);
      if (!whole.known && !whole.condition) continue;
      const auto all = choices(vector, whole);
      auto best = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.us < b.us; });
      if (best != all.end()) list.push_back(*best);
      if (!list.empty() && !list.back().condition) break;
    }
    if (list.empty() || list.back().condition) return {};
    return list;
  }

private:
  bool find_taps() {
    const Domain& d = f_.d;
    if (f_.contiguous_axis < 0 || f_.is_row(static_cast<size_t>(f_.contiguous_axis)) || f_.stores_rows()) return false;
    for (size_t i = 0; i < d.live.size(); ++i) {
      const ScalarNode& n = f_.nest.dag[static_cast<ScalarId>(i)];
      if (!d.live[i]) continue;
      if (n.op == ScalarOp::Reduce) {
        if (d.stage[i] > 1 || n.reduce == ReduceKind::ArgMax || n.reduce == ReduceKind::ArgMin) return false;
        ++reduces_;
      } else if (n.op == ScalarOp::CheckBounds) {
        return false; // each tap would report
      } else if (d.deps[i] & d.row_mask) {
        if (n.op != ScalarOp::Load && n.op != ScalarOp::Index) tap_operations_ += std::max(1, info(n.op).cost);
      } else if (n.op != ScalarOp::Const && n.op != ScalarOp::Index) {
        result_operations_ += std::max(1, info(n.op).cost);
      }
    }
    for (size_t i = 0; i < d.axes.size(); ++i) {
      if (!f_.is_row(i)) continue;
      auto extent = f_.constant(f_.extent(i));
      if (!extent || *extent < 1 || *extent > kMostTaps) return false;
      rows_.push_back(i);
      extents_.push_back(*extent);
      taps_ *= *extent;
      if (taps_ > kMostTaps) return false;
    }
    return reduces_ > 0 && !rows_.empty() && taps_ > 1;
  }

  // An expression's step along an axis as a number: sizes that are not known are replaced by large odd ones.
  [[nodiscard]] std::optional<int64_t> step(const SymExpr& e, size_t axis) const {
    auto linear = e.linear_in(f_.d.axes[axis].var);
    if (!linear) return std::nullopt;
    std::unordered_map<uint64_t, int64_t> sizes;
    int64_t n = 1'000'003;
    for (const SymExpr& s : linear->first.symbols()) sizes[s.symbol_id()] = n += 2'017;
    auto v = linear->first.eval(sizes);
    return v.ok() ? std::optional(*v) : std::nullopt;
  }

  bool find_loads() {
    const Domain& d = f_.d;
    for (size_t i = 0; i < d.live.size(); ++i) {
      if (!d.live[i] || f_.nest.dag[static_cast<ScalarId>(i)].op != ScalarOp::Load || !(d.deps[i] & d.row_mask))
        continue;
      const Access& a = d.loads[i];
      if (!a.terms.empty()) return false;
      TapLoad load;
      load.bytes = info(f_.graph.type(d.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
      load.wide = d.access_deps(a) >> f_.contiguous_axis & 1;
      load.masked = a.predicate >= 0;
      for (size_t r : rows_) {
        auto s = step(a.offset, r);
        if (!s) return false;
        load.along_taps.push_back(*s);
      }
      loads_.push_back(load);
      accesses_.push_back(&a);
    }
    return !loads_.empty();
  }

  // The outer axes along which windows slide: the one with the shortest steps is `window_`, the next one `outer_`.
  void find_axes() {
    int64_t least = 0, next = 0;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      if (f_.is_row(i) || static_cast<int>(i) == f_.contiguous_axis) continue;
      for (size_t l = 0; l < loads_.size(); ++l) {
        auto s = step(accesses_[l]->offset, i);
        // With dilation d, results share elements from the d-th neighbour on.
        if (!s || !loads_[l].slides(*s) ||
            reads(loads_[l], {*s, 0}, kMostOutputs, 1) >= kMostOutputs * reads(loads_[l], {*s, 0}, 1, 1))
          continue;
        if (window_ < 0 || *s < least) {
          outer_ = window_, next = least;
          window_ = static_cast<int>(i), least = *s;
        } else if (outer_ < 0 || *s < next) {
          outer_ = static_cast<int>(i), next = *s;
        }
        break;
      }
    }
    for (size_t l = 0; l < loads_.size(); ++l) {
      auto along = [&](int axis) {
        return axis < 0 ? 0 : step(accesses_[l]->offset, static_cast<size_t>(axis)).value_or(0);
      };
      loads_[l].along_window = along(window_);
      loads_[l].along_outer = along(outer_);
    }
  }

  // Distinct elements that T x U results read through a load, at one element along the contiguous axis.
  [[nodiscard]] int64_t reads(const TapLoad& load, std::pair<int64_t, int64_t> along, int64_t t, int64_t u) const {
    std::set<int64_t> at{0};
    auto spread = [&](int64_t step, int64_t count) {
      if (step == 0 || count == 1) return;
      std::set<int64_t> next;
      for (int64_t a : at)
        for (int64_t i = 0; i < count; ++i) next.insert(a + i * step);
      at = std::move(next);
    };
    for (size_t r = 0; r < rows_.size(); ++r) spread(load.along_taps[r], extents_[r]);
    spread(along.first, t);
    spread(along.second, u);
    return static_cast<int64_t>(at.size());
  }

  struct Cost {
    double us;
    int64_t taps; // written out
  };
  // Of a thread with T x U x V results.
  [[nodiscard]] std::optional<Cost> cost(int64_t t, int64_t u, int64_t vector) const {
    const double results = static_cast<double>(t * u * vector), fused = tap_operations_ > 1 ? tap_operations_ - 1 : 1;
    if (results * reduces_ > kMostAccumulators) return std::nullopt;
    double operations = results * static_cast<double>(taps_) * std::max(fused, 1.0) + 60 +
                        results * (static_cast<double>(result_operations_) + 1) + 8.0 * static_cast<double>(t * u);
    double row = results * reduces_; // registers: accumulators, and what one position of the outermost row axis reads
    for (const TapLoad& l : loads_) {
      const auto n = static_cast<double>(reads(l, {l.along_window, l.along_outer}, t, u));
      const double width = l.wide ? static_cast<double>(vector) : 1;
      operations += n * (2 + (l.masked ? 2 : 0) + (l.bytes < 4 ? width : 0));
      row += width * static_cast<double>(extents_.back());
    }
    if (row > kRegisterBudget) return std::nullopt;
    Cost c{0, taps_};
    double rounds = std::max(1.0, operations / 600);
    if (operations > static_cast<double>(kMostCode)) {
      if (u > 1) return std::nullopt; // a loop over rows of taps shares nothing between rows of results
      c.taps = taps_ / extents_.front();
      rounds = static_cast<double>(extents_.front());
      if (operations / rounds > static_cast<double>(kMostCode)) return std::nullopt;
    }
    double points = 1;
    for (size_t i = 0; i < f_.d.axes.size(); ++i) {
      if (f_.is_row(i)) continue;
      double n = f_.guess(f_.extent(i));
      if (static_cast<int>(i) == window_) n = std::ceil(n / static_cast<double>(t));
      if (static_cast<int>(i) == outer_) n = std::ceil(n / static_cast<double>(u));
      if (static_cast<int>(i) == f_.contiguous_axis) n = std::ceil(n / static_cast<double>(vector));
      points *= n;
    }
    const double warps = std::ceil(points / 32 / (f_.device.multiprocessors * f_.device.schedulers));
    // Loads come from the L2 or from memory.
    const double latency = (f_.device.l2_latency_us + f_.device.memory_latency_us) / 2 * f_.device.clock_mhz;
    const double cycles = std::max(warps * operations, kDependent * operations + latency * rounds);
    double bytes = 0;
    for (const Stream& s : f_.streams) {
      double n = 1;
      for (size_t i = 0; i < f_.d.axes.size(); ++i)
        if ((s.deps >> i & 1) && !f_.is_row(i)) n *= f_.guess(f_.extent(i));
      bytes += n * s.bytes;
    }
    c.us = std::max(cycles / f_.device.clock_mhz, bytes / f_.device.memory_bytes_per_us) +
           0.2 * cycles / f_.device.clock_mhz;
    return c;
  }

  // All shapes of a thread's results with up to `vector` neighbours.
  [[nodiscard]] std::vector<WindowChoice> choices(int64_t vector, const Multiple& whole) const {
    std::vector<WindowChoice> out;
    // Results that do not exist are masked along the window axis alone (block_window_lower.cpp).
    auto along = [&](int64_t t) {
      auto n = f_.seen(f_.extent(static_cast<size_t>(window_)));
      return t == 1 || !n || t <= *n;
    };
    auto across = [&](int64_t u) {
      return u == 1 || (outer_ >= 0 && f_.multiple(f_.extent(static_cast<size_t>(outer_)), u).known);
    };
    for (int64_t v = vector; v >= 1; v /= 2)
      for (int64_t t = 1; t <= kMostOutputs; t += t < 8 ? 1 : 3)
        for (int64_t u : {1, 2, 3, 4}) {
          auto c = along(t) && across(u) ? cost(t, u, v) : std::nullopt;
          if (!c) continue;
          out.push_back(made(v, t, u, *c));
          if (v > 1) out.back().condition = whole.condition;
        }
    return out;
  }

  [[nodiscard]] WindowChoice made(int64_t vector, int64_t t, int64_t u, const Cost& cost) const {
    Schedule p = BlockFacts::schedule(ScheduleKind::BlockWindow, kThreads, vector, kThreads / 32);
    const auto c = static_cast<size_t>(f_.contiguous_axis);
    p.placement.window_axis = window_;
    p.tile.outputs = static_cast<int>(t);
    p.placement.outer_window_axis = u > 1 ? outer_ : -1;
    p.tile.outer_outputs = static_cast<int>(u);
    p.tile.taps = static_cast<int>(cost.taps);
    // Vectors of the contiguous axis are neighbours; what lies beside them varies fastest.
    p.placement.split_axis = vector > 1 ? f_.contiguous_axis : -1;
    auto after_split = [&](size_t axis) { return axis + (p.placement.split_axis >= 0 && axis > c ? 1 : 0); };
    std::string why = "windows of " + std::to_string(taps_) + " taps along " +
                      f_.extent_text(static_cast<size_t>(window_)) + "; a thread computes " + std::to_string(t) +
                      " x " + std::to_string(u) + " results of " + std::to_string(vector) + " neighbours" +
                      (cost.taps < taps_ ? ", in a loop over rows of the window" : "");
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (!f_.is_row(i)) p.placement.row_axes |= uint64_t{1} << (i == c ? c : after_split(i));
    if (p.placement.split_axis >= 0) p.placement.column_axes = uint64_t{1} << (c + 1);
    return {p, std::nullopt, cost.us, std::move(why)};
  }

  const BlockFacts& f_;
  std::vector<size_t> rows_;     // row axes
  std::vector<int64_t> extents_; // of them
  int64_t taps_ = 1;             // product of these
  int reduces_ = 0, tap_operations_ = 0, result_operations_ = 0;
  std::vector<TapLoad> loads_;
  std::vector<const Access*> accesses_; // of the loads
  int window_ = -1, outer_ = -1;
};

} // namespace

std::vector<WindowChoice> window_schedules(const BlockFacts& facts) { return WindowPlanner(facts).run(); }
std::vector<WindowChoice> window_choices(const BlockFacts& facts) { return WindowPlanner(facts).all(); }

} // namespace tessera
