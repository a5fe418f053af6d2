// Windows that slide, private to the folder: several results a thread, taps written out.
#pragma once
#include "codegen/schedule/lower/block_context.h"
#include <functional>

namespace tessera {

// The axes that a thread of a window plan unrolls.
struct WindowAxes {
  struct Outputs {
    SymExpr var;     // position among a thread's results
    int count = 1;   // of them
    int inside = -1; // whether such a result exists: index into Domain::conditions; -1: all do
  };
  std::array<Outputs, 2> outputs; // along window_axis and outer_window_axis
  SymExpr fold;                   // all row axes as one number
  SymExpr round;                  // of the loop over the outermost one
  int taps = 0, row = 0;          // extents: of `fold`, and of what lies within one position of the outermost row axis
};
// Replaces the window axes of `d` by blocks of results. Error CodegenError where the plan does not fit.
[[nodiscard]] Result<WindowAxes> spread_window(const LoopNest& nest, Domain& d, const Schedule& schedule);

namespace block {

// What the axes that are unrolled stand for at the moment, and the loads that were made there.
class Unrolled final : Part {
public:
  Unrolled(Context& context, std::optional<WindowAxes> window) : Part(context), window_(std::move(window)) {}
  [[nodiscard]] const std::optional<WindowAxes>& window() const { return window_; }
  void find_values();
  void unroll(const SymExpr& var, const SymExpr& at);
  void leave(const SymExpr& var) { unrolled_.erase(var.symbol_id()); }
  void leave_all() { unrolled_.clear(); }
  // The result along the window that is computed now, where it may not exist; else 0.
  void set_output(int output) { output_ = output; }
  [[nodiscard]] SymExpr here(const SymExpr& e) const; // at the result and tap of the moment

  struct TapLoad {
    ScalarId id;
    SymExpr condition;
    int output; // the result along the window that it was first made for; 0: made for all
    V value;
  };
  std::optional<TapLoad*> tap_load(ScalarId id);
  void forget_loads() { tap_loads_.clear(); }

private:
  std::optional<WindowAxes> window_;
  std::unordered_map<uint64_t, SymExpr> unrolled_;
  std::vector<size_t> values_; // that vary with them
  int output_ = 0;
  std::unordered_map<SymExpr, std::vector<TapLoad>> tap_loads_; // by offset
};

class Scalars;

class Window final : Part {
public:
  Window(Context& context, Unrolled& unrolled, Scalars& scalars)
      : Part(context), unrolled_(unrolled), scalars_(scalars) {}
  void body();

private:
  Values fold_taps(Values accumulators, const SymExpr& first);
  void fold_tap(Values& accumulators);
  void at_each_output(const std::function<void(size_t)>& f);

  Unrolled& unrolled_;
  Scalars& scalars_;
  std::vector<ScalarId> reductions_; // the nest's
};

} // namespace block
} // namespace tessera
