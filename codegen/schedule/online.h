// Online reductions: sums that need not wait for the reductions they depend on.
//
// The idea. The sum of exp(a - b) over a row, b its maximum, seems to ask for two loops: one for b, one for the sum.
// But
//
//   exponentials   sum w exp(a - b) = exp(ref - b) sum w exp(a - ref)            ref: the greatest a so far
//   squares        sum (a - b)^2    = sum (a - mean)^2 + count (mean - b)^2     mean: of the elements so far (Chan)
//
// for any b that is one number for the row. So a loop folds the right-hand sums, about a reference of its own that
// moves as it goes, and b is asked for when the loop has ended: softmax and layer norm read their row twice, not three
// times. Both references are chosen such that nothing overflows or cancels that does not in the sum as it was written.
//
// A partial result is a *state*: some numbers for each reduction (a value; a value and its position; a reference and a
// sum). States of disjoint parts of a row, in whatever order, merge into the state of their union, within a block and
// between blocks. What comes out at the end, `fold_result`, is the same NaN or infinity that two loops would give: -inf
// everywhere in a row makes exp(-inf - -inf), NaN.
#pragma once
#include "codegen/schedule/stages.h"
#include "codegen/tile/tile.h"

namespace tessera {

// How one sum is folded without what it depends on.
struct OnlineSum {
  enum class Kind : uint8_t { None, Exponentials, Squares } kind = Kind::None;
  ScalarId moving = -1;          // a: varies along the row
  ScalarId about = -1;           // b: one number for the row, of reductions
  std::vector<ScalarId> weights; // of exponentials: w is their product
};
using OnlineSums = std::vector<OnlineSum>; // by ScalarId

// Finds them, and moves the stages of `domain` accordingly: what remains is the number of loops that are needed.
[[nodiscard]] OnlineSums find_online(const LoopNest& nest, Domain& domain);

// The numbers that the reductions of one round are folded in.
struct FoldState {
  struct Part {
    ScalarId reduce = -1;
    int first = 0;      // of its own numbers
    int reference = -1; // online: the greatest `moving` so far, or its sum; a reduction beside it may have it anyhow
  };
  std::vector<Part> parts; // in the order of the DAG: what `about` needs comes first
  int count = -1;          // position of the number of elements, which squares need; -1: nobody does
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
  [[nodiscard]] Values identities() const; // scalars: the state of no element
  // The state of the union of states[i] over dimension `dim`, which disappears.
  [[nodiscard]] Values merge(const Values& states, int dim) const;
  // The reduction's value. `about`: value of OnlineSum::about, asked for of online sums only.
  [[nodiscard]] V result(const FoldState::Part& part, const Values& state, V about) const;

  // The steps of the above, for a loop that folds element after element into a state.
  // What a sum about `from` is about `to`: exponentials of the greatest value; squares of `count` elements' mean.
  [[nodiscard]] V moved(const FoldState::Part& part, V sum, V from, V to, V count) const;
  // From the reference's number in a state: the finite maximum; the mean of `count` elements.
  [[nodiscard]] V reference(const FoldState::Part& part, V number, V count) const;
  // What an element adds to the sum: exp(v - ref), (v - ref)^2.
  [[nodiscard]] V term(const FoldState::Part& part, V value, V reference) const;

private:
  [[nodiscard]] V op(ScalarOp o, V x) const;
  [[nodiscard]] V op(ScalarOp o, V x, V y) const;
  tile::Builder& b_;
  const LoopNest& nest_;
  const OnlineSums& online_;
  FoldState state_;
};

} // namespace tessera
