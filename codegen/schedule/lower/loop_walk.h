// Traversal of a range, private to the folder: steps of the full tile, then of one vector, then one masked vector for
// the rest.
#pragma once
#include "codegen/schedule/lower/loop_context.h"
#include <functional>

namespace tessera::loops {

struct Phase {
  int lanes;
  V from, to;
  std::optional<int64_t> only; // a single step at that base
  bool masked;
};
// A range of an axis; `extent` is set if it is the whole axis.
struct Range {
  V from, to;
  SymExpr extent;
  bool whole;
};

class RowLoop final : Part {
public:
  explicit RowLoop(Context& context) : Part(context) {}
  [[nodiscard]] std::vector<Phase> phases(const Range& range);
  // `sums`: which carried values the body adds to; none if empty. `most`: elements that the phase has at most.
  Values walk(const Phase& phase, const SymExpr& axis, V end, Values carried, const std::function<Values(Values)>& body,
              const std::vector<bool>& sums = {}, const SymExpr& most = 0);
  Values loop(V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body);
  // The same, `extent` at most from `from` to `to`, a step adding `adds` times. Blocks of steps begin with a state of
  // their own and are then combined, so that the error of sums does not grow with the number of steps.
  struct Blocks {
    std::function<Values(const Values& totals)> begin;
    std::function<Values(const Values& totals, const Values& block)> combine;
  };
  Values blocked_loop(V from, V to, int64_t step, const SymExpr& extent, int64_t adds, Values carried,
                      const Blocks& blocks, const std::function<Values(V, Values)>& body);
  // Blocks of those carried values that are `sums`.
  Values summing_loop(V from, V to, int64_t step, const SymExpr& extent, int64_t adds, Values carried,
                      const std::vector<bool>& sums, const std::function<Values(V, Values)>& body);
  // Additions of such a loop that follow one another, at most.
  [[nodiscard]] int64_t additions(const SymExpr& extent, int64_t step, int64_t adds) const;

private:
  Values levels(V from, V to, int64_t step, int64_t steps, int level, Values carried, const Blocks& blocks,
                const std::function<Values(V, Values)>& body);
};

} // namespace tessera::loops
