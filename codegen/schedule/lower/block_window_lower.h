// Sliding windows, private to the folder: several results per thread, unrolled taps.
#pragma once
#include "codegen/schedule/lower/block_context.h"
#include <functional>

namespace tessera {

// The axes that a thread of a window schedule unrolls.
struct WindowAxes {
  struct Outputs {
    SymExpr var;     // index among a thread's results
    int count = 1;   // number of results
    int inside = -1; // index into Domain::conditions of the condition that a result exists; -1: all exist
  };
  std::array<Outputs, 2> outputs; // along window_axis and outer_window_axis
  SymExpr fold;                   // all row axes flattened
  SymExpr round;                  // index of the loop over the outermost row axis
  int taps = 0, row = 0;          // extents of `fold`, and of one position of the outermost row axis
};
// Replaces the window axes of `d` by blocks of results. Error CodegenError if the schedule does not fit the nest.
[[nodiscard]] Result<WindowAxes> spread_window(const LoopNest& nest, Domain& d, const Schedule& schedule);

namespace block {

// Current values of the unrolled axes, and the loads emitted for them.
class Unrolled final : Part {
public:
  Unrolled(Context& context, std::optional<WindowAxes> window) : Part(context), window_(std::move(window)) {}
  [[nodiscard]] const std::optional<WindowAxes>& window() const { return window_; }
  void find_values();
  void unroll(const SymExpr& var, const SymExpr& at);
  void leave(const SymExpr& var) { unrolled_.erase(var.symbol_id()); }
  void leave_all() { unrolled_.clear(); }
  // Index of the current result along the window if it may not exist; else 0.
  void set_output(int output) { output_ = output; }
  [[nodiscard]] SymExpr here(const SymExpr& e) const; // at the current result and tap

  struct TapLoad {
    ScalarId id;
    SymExpr condition;
    int output; // the result along the window for which it was first loaded; 0: for all
    V value;
  };
  std::optional<TapLoad*> tap_load(ScalarId id);
  void forget_loads() { tap_loads_.clear(); }

private:
  std::optional<WindowAxes> window_;
  std::unordered_map<uint64_t, SymExpr> unrolled_;
  std::vector<size_t> values_; // memo slots that depend on the unrolled axes
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
