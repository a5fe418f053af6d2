// Online reductions: sums that are folded in the same loop as the reductions on which they depend.
//
// The sum of exp(a - b) over a row, with b its maximum, seems to need two loops: one for b, one for the sum. But
//
//   exponentials   sum w exp(a - b) = exp(ref - b) sum w exp(a - ref)            ref: the greatest a so far
//   squares        sum (a - b)^2    = sum (a - mean)^2 + count (mean - b)^2     mean: of the elements so far (Chan)
//
// for any b that is constant in the row. So a loop folds the right-hand sums, relative to a reference that changes
// during the loop, and b is needed only after the loop: softmax and layer norm read their row twice, not three times.
// Both references are chosen such that nothing overflows or cancels that does not in the original sum.
//
// A partial result is a *state*: some values for each reduction (a value; a value and its position; a reference and a
// sum). States of disjoint parts of a row, in any order, merge into the state of their union, within a block and
// between blocks. The final result, `fold_result`, is the same NaN or infinity that two loops would give: -inf
// everywhere in a row makes exp(-inf - -inf), NaN.
#pragma once
#include "codegen/schedule/schedule.h"
#include "codegen/schedule/stages.h"
#include "codegen/tile/tile.h"

namespace tessera {

// Tiles of a row that a loop folds into one state before it unites that with the state of those before: so the error of
// sums does not grow with the number of tiles.
inline constexpr int64_t kFoldBlock = 64;

// How one sum is folded without the reductions on which it depends.
struct OnlineSum {
  enum class Kind : uint8_t { None, Exponentials, Squares } kind = Kind::None;
  ScalarId moving = -1;          // a: varies along the row
  ScalarId about = -1;           // b: constant in the row, depends on reductions
  std::vector<ScalarId> weights; // for exponentials: w is their product
};
using OnlineSums = std::vector<OnlineSum>; // by ScalarId

// Finds online sums and updates the stages of `domain`: fewer loops are needed.
[[nodiscard]] OnlineSums find_online(const LoopNest& nest, Domain& domain);

// The state in which the reductions of one stage are folded.
struct FoldState {
  struct Part {
    ScalarId reduce = -1;
    int first = 0;      // index of its first value
    int reference = -1; // online: the greatest `moving` so far, or its sum; another reduction may already have it
  };
  std::vector<Part> parts; // in the order of the DAG: operands of `about` come first
  int count = -1;          // index of the number of elements, which squares need; -1: unused
  std::vector<DType> dtypes;
  DType position = DType::I64; // of argmax and argmin
};
[[nodiscard]] FoldState fold_state(const LoopNest& nest, const std::vector<ScalarId>& reduces, const OnlineSums& online,
                                   DType position = DType::I64);

// A fold as tile operations. States are as many values as FoldState has dtypes, tiles of one shape or scalars.
class Fold {
public:
  using V = tile::ValueId;
  using Values = std::vector<V>;
  Fold(tile::Builder& b, const LoopNest& nest, const OnlineSums& online, FoldState state)
      : b_(b), nest_(nest), online_(online), state_(std::move(state)) {}

  [[nodiscard]] const FoldState& state() const { return state_; }
  [[nodiscard]] const OnlineSum& online(const FoldState::Part& p) const;
  [[nodiscard]] Values identities() const; // scalars: the state of the empty set
  // The state of the union of states[i] over dimension `dim`, which disappears.
  [[nodiscard]] Values merge(const Values& states, int dim) const;
  // The state of the union of two.
  [[nodiscard]] Values united(const Values& a, const Values& b) const;
  // Whether a state has sums of floats, whose error grows with the number of elements that follow one another.
  [[nodiscard]] bool rounds() const;
  // The reduction's value. `about` returns the value of OnlineSum::about; called for online sums only.
  [[nodiscard]] V result(const FoldState::Part& part, const Values& state, V about) const;

  // Steps of these functions, for a loop that folds elements into a state.
  // Converts a sum relative to `from` to one relative to `to`; squares need the number of elements `count`.
  [[nodiscard]] V moved(const FoldState::Part& part, V sum, V from, V to, V count) const;
  // The reference from its value in a state: the finite maximum; the mean of `count` elements.
  [[nodiscard]] V reference(const FoldState::Part& part, V number, V count) const;
  // Summand of an element: exp(v - ref), (v - ref)^2.
  [[nodiscard]] V term(const FoldState::Part& part, V value, V reference) const;

private:
  [[nodiscard]] V op(ScalarOp o, V x) const;
  [[nodiscard]] V op(ScalarOp o, V x, V y) const;
  tile::Builder& b_;
  const LoopNest& nest_;
  const OnlineSums& online_;
  FoldState state_;
};

// True if a RowLoop schedule can fold online.
[[nodiscard]] bool online_fits(const LoopNest& nest, const Domain& domain);
// True if its rows, or columns, can be divided among programs. `domain` has the stages of online sums.
[[nodiscard]] bool splits(const LoopNest& nest, const Domain& domain, ScheduleKind kind);

} // namespace tessera
