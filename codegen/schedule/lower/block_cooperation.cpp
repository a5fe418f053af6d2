// Cooperative blocks of one row, or of one set of columns. Each block folds its own tiles and stores the partial result
// at its rank in a workspace. Partial results are combined in the order of ranks, so that a sum has the same bits in
// every run.
//
//   only results of the row follow                  the last block to arrive combines and stores them; no block waits
//   a later stage, or elements, need the result     a grid barrier; then each block combines all partial results
//
// Blocks that wait may exchange partial results through mailboxes instead: one pass through the L2, where a counter
// takes three (the result is written, then counted, then read).
#include "codegen/schedule/lower/block_cooperation.h"
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/fold.h"
#include "codegen/schedule/shapes.h"
#include "codegen/tile/cooperation.h"
#include <algorithm>
#include <array>
#include <utility>

namespace tessera::block {

void Cooperation::add_parameters() {
  bool counted = false;
  for (size_t k = 0; k < stages_.stages.size(); ++k) {
    const auto dtypes = fold_state(nest_, stages_.stages[k].reduces, online_, d_.position_dtype()).dtypes;
    workspaces_.emplace_back();
    exchanged_.emplace_back();
    if (dtypes.empty()) continue;
    if (exchanges(k)) {
      exchanged_.back().slot_words = tile::packet_words(dtypes);
      exchanged_.back().words = *legal_.blocks_per_row * *legal_.blocks_per_row * exchanged_.back().slot_words;
      continue;
    }
    counted = true;
    for (DType dtype : dtypes) {
      workspaces_.back().push_back(b_.param("partial", {tile::Type::Kind::Pointer, dtype, {}}, true));
      out_.workspaces.push_back({dtype, 0});
    }
  }
  auto words = [&](const char* name) { return b_.param(name, {tile::Type::Kind::Pointer, DType::I32, {}}, true); };
  if (counted) counters_ = words("counters");
  if (std::any_of(exchanged_.begin(), exchanged_.end(), [](const Mailboxes& x) { return x.slot_words > 0; }))
    mailboxes_ = words("mailboxes");
}

// Blocks that run at the same time access adjacent memory: consecutive blocks have tiles of one contiguous row, or
// adjacent columns.
V Cooperation::take_rank(V number, const SymExpr& rows) {
  blocks_ = sizes_.number(*legal_.blocks_per_row);
  if (fold_ == 1) {
    rank_ = sizes_.op(ScalarOp::Mod, number, blocks_);
    row_ = sizes_.op(ScalarOp::Div, number, blocks_);
  } else {
    V n = sizes_.number(rows);
    row_ = sizes_.op(ScalarOp::Mod, number, n);
    rank_ = sizes_.op(ScalarOp::Div, number, n);
  }
  if (counters_ >= 0) out_.counters = rows;
  for (Mailboxes& x : exchanged_) {
    if (x.slot_words == 0) continue;
    x.start = std::exchange(out_.mailboxes, d_.env.simplify(out_.mailboxes + x.words * rows));
    prefetch_mailbox(x);
  }
  out_.grid = rows * *legal_.blocks_per_row;
  for (Workspace& w : out_.workspaces)
    w.count = d_.env.simplify(out_.grid * sides_[static_cast<size_t>(1 - fold_)].lanes);
  return row_;
}

int Cooperation::slots() const {
  return static_cast<int>(std::max<int64_t>(2, power_above(legal_.max_blocks_per_row)));
}

bool Cooperation::exchanges(size_t stage) const {
  return legal_.mailboxes && !ends(stage) && fold_ == 1 && sides_[0].lanes == 1 && slots() <= 32 * schedule_.tile.warps;
}

V Cooperation::mailboxes_of_row(const Mailboxes& mailboxes) {
  V before = sizes_.op(ScalarOp::Mul, row_, sizes_.number(mailboxes.words));
  return sizes_.op(ScalarOp::Add, before, sizes_.number(mailboxes.start));
}

// Prefetches the block's mailbox to L2: otherwise the first packets would wait for a read from memory when the last
// block arrives.
void Cooperation::prefetch_mailbox(const Mailboxes& mailboxes) {
  constexpr int kLine = 32; // words
  const SymExpr own = *legal_.blocks_per_row * mailboxes.slot_words;
  V start = sizes_.op(ScalarOp::Add, mailboxes_of_row(mailboxes), sizes_.op(ScalarOp::Mul, rank_, sizes_.number(own)));
  const auto lines = static_cast<int>(power_above((slots() * mailboxes.slot_words + kLine - 1) / kLine));
  V at = pointwise(b_, ScalarOp::Mul, std::array{b_.range(std::max(2, lines)), sizes_.constant(kLine)});
  at = pointwise(b_, ScalarOp::Min, std::array{at, sizes_.number(own - 1)});
  b_.prefetch(mailboxes_, pointwise(b_, ScalarOp::Add, std::array{at, start}));
}

Values Cooperation::exchange(const Fold& fold, size_t stage, const Values& state) {
  const Values all = b_.exchange(mailboxes_, mailboxes_of_row(exchanged_[stage]), rank_, blocks_, state, slots());
  const V there = pointwise(b_, ScalarOp::Lt, std::array{b_.range(slots()), blocks_});
  Values states = fold.identities();
  for (size_t i = 0; i < states.size(); ++i)
    states[i] = pointwise(b_, ScalarOp::Select, std::array{there, all[i], states[i]});
  states = fold.merge(states, 0);
  for (V& v : states) v = keep_dims(v);
  return states;
}

bool Cooperation::ends(size_t stage) const {
  return std::all_of(stages_.stages.begin() + static_cast<std::ptrdiff_t>(stage) + 1, stages_.stages.end(),
                     [](const Stage& s) { return s.reduces.empty() && s.stores.empty(); });
}

// Stores a partial result at the rank of this block, for all positions along the dimension that is not folded.
void Cooperation::store_partial(V workspace, V part) {
  const int side = sides_[static_cast<size_t>(1 - fold_)].lanes;
  V place = sizes_.op(ScalarOp::Add, sizes_.op(ScalarOp::Mul, row_, blocks_), rank_);
  V offset = sizes_.op(ScalarOp::Mul, place, sizes_.constant(side));
  if (side > 1) offset = pointwise(b_, ScalarOp::Add, std::array{keep_dims(b_.range(side)), offset});
  b_.store(workspace, offset, splat(part, b_.kernel().type(offset).shape));
}

// Loads the partial results of all blocks as one tile and combines them.
Values Cooperation::load_partials(const Fold& fold, size_t stage) {
  const int side = sides_[static_cast<size_t>(1 - fold_)].lanes, dim = side == 1 ? 0 : fold_;
  V rank = b_.range(slots());
  if (side > 1) rank = b_.expand_dims(rank, 1 - fold_);
  V there = pointwise(b_, ScalarOp::Lt, std::array{rank, blocks_});
  V offset = pointwise(b_, ScalarOp::Add, std::array{rank, sizes_.op(ScalarOp::Mul, row_, blocks_)});
  if (side > 1) {
    offset = pointwise(b_, ScalarOp::Mul, std::array{offset, sizes_.constant(side)});
    offset = pointwise(b_, ScalarOp::Add, std::array{offset, b_.expand_dims(b_.range(side), fold_)});
  }
  V mask = splat(there, b_.kernel().type(offset).shape);
  Values states = fold.identities();
  for (size_t i = 0; i < states.size(); ++i) states[i] = b_.load(workspaces_[stage][i], offset, mask, states[i]);
  states = fold.merge(states, dim);
  for (V& v : states) v = keep_dims(v);
  return states;
}

// After a stage: combines this block's partial result with the others to the row's reductions.
void Cooperation::combine(size_t stage, const Fold& fold, const Values& state) {
  auto known = [&](const Values& all) {
    c_.known = static_cast<int>(stage) + 1;
    accumulators_.finish(fold, all);
  };
  auto combined = [&] { known(load_partials(fold, stage)); };
  if (state.empty()) {
    c_.known = static_cast<int>(stage) + 1;
    return;
  }
  if (!ends(stage))
    out_.cooperative_blocks =
        fold_ == 1 ? *legal_.blocks_per_row : out_.grid; // blocks of one column are not consecutive
  if (exchanged_[stage].slot_words > 0) return known(exchange(fold, stage, state));
  for (size_t i = 0; i < state.size(); ++i) store_partial(workspaces_[stage][i], state[i]);
  if (!ends(stage)) {
    b_.grid_barrier(counters_, row_, rank_, blocks_);
    return combined();
  }
  V last = b_.arrive(counters_, row_, rank_, blocks_);
  b_.if_else(
      last,
      [&]() -> Values {
        memo_.scoped([&] {
          combined();
          scalars_.store_rows();
        });
        return {};
      },
      [] { return Values(); });
}

// Stores values that exist once per row, in the block of rank 0, if all blocks have the row's reductions.
void Cooperation::finish() {
  if (stages_.row_stores.empty() || !stages_.stages.back().reduces.empty())
    return; // the last block to arrive has stored them
  V first = b_.scalar(ScalarOp::Eq, std::array{rank_, sizes_.constant(0)});
  b_.if_else(
      first,
      [&]() -> Values {
        memo_.scoped([&] { scalars_.store_rows(); });
        return {};
      },
      [] { return Values(); });
}

} // namespace tessera::block
