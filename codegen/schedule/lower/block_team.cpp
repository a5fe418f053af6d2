// Programs that share a row, or columns of rows. Each folds its own tiles and leaves what came out in a workspace, at
// the place of its number; where the team meets, the members' results are folded in the order of their numbers, so that
// a sum is the same in every run.
//
//   nothing comes after but results of the row    the last one to arrive folds and stores them; nobody waits
//   a later round, or elements, need the result   all wait, and each folds for itself
//
// Those who wait may tell each other what they have in messages (Legal::mailboxes): one way through the L2, where a
// counter takes three (the result is written, then counted, then read).
#include "codegen/schedule/lower/block_team.h"
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/lower/fold.h"
#include "codegen/schedule/lower/shapes.h"
#include "codegen/tile/cooperation.h"
#include <algorithm>
#include <array>
#include <utility>

namespace tessera::block {

void Team::add_parameters() {
  bool counted = false;
  for (size_t k = 0; k < stages_.stages.size(); ++k) {
    const auto dtypes = fold_state(nest_, stages_.stages[k].reduces, online_, d_.position_dtype()).dtypes;
    workspaces_.emplace_back();
    exchanged_.emplace_back();
    if (dtypes.empty()) continue;
    if (exchanges(k)) {
      exchanged_.back().message = tile::packet_words(dtypes);
      exchanged_.back().words = *legal_.blocks_per_row * *legal_.blocks_per_row * exchanged_.back().message;
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
  if (std::any_of(exchanged_.begin(), exchanged_.end(), [](const Boxes& x) { return x.message > 0; }))
    boxes_ = words("boxes");
}

// Neighbours in memory run at the same time: tiles of a contiguous row are the members', columns the teams'.
V Team::take_member(V number, const SymExpr& teams) {
  members_ = sizes_.number(*legal_.blocks_per_row);
  if (fold_ == 1) {
    member_ = sizes_.op(ScalarOp::Mod, number, members_);
    team_ = sizes_.op(ScalarOp::Div, number, members_);
  } else {
    V n = sizes_.number(teams);
    team_ = sizes_.op(ScalarOp::Mod, number, n);
    member_ = sizes_.op(ScalarOp::Div, number, n);
  }
  if (counters_ >= 0) out_.counters = teams;
  for (Boxes& x : exchanged_) {
    if (x.message == 0) continue;
    x.start = std::exchange(out_.boxes, d_.env.simplify(out_.boxes + x.words * teams));
    expect_messages(x);
  }
  out_.grid = teams * *legal_.blocks_per_row;
  for (Workspace& w : out_.workspaces)
    w.count = d_.env.simplify(out_.grid * sides_[static_cast<size_t>(1 - fold_)].lanes);
  return team_;
}

int Team::places() const { return static_cast<int>(std::max<int64_t>(2, power_above(legal_.max_blocks_per_row))); }

bool Team::exchanges(size_t stage) const {
  return legal_.mailboxes && !ends(stage) && fold_ == 1 && sides_[0].lanes == 1 &&
         places() <= 32 * schedule_.tile.warps;
}

V Team::team_boxes(const Boxes& boxes) {
  V before = sizes_.op(ScalarOp::Mul, team_, sizes_.number(boxes.words));
  return sizes_.op(ScalarOp::Add, before, sizes_.number(boxes.start));
}

// The program's boxes are in the L2 before the first message comes: one that is not would have to be read from memory
// once the last one has come.
void Team::expect_messages(const Boxes& boxes) {
  constexpr int kLine = 32; // words
  const SymExpr own = *legal_.blocks_per_row * boxes.message;
  V start = sizes_.op(ScalarOp::Add, team_boxes(boxes), sizes_.op(ScalarOp::Mul, member_, sizes_.number(own)));
  const auto lines = static_cast<int>(power_above((places() * boxes.message + kLine - 1) / kLine));
  V at = pointwise(b_, ScalarOp::Mul, std::array{b_.range(std::max(2, lines)), sizes_.constant(kLine)});
  at = pointwise(b_, ScalarOp::Min, std::array{at, sizes_.number(own - 1)});
  b_.prefetch(boxes_, pointwise(b_, ScalarOp::Add, std::array{at, start}));
}

Values Team::exchange(const Fold& fold, size_t stage, const Values& state) {
  const Values all = b_.exchange(boxes_, team_boxes(exchanged_[stage]), member_, members_, state, places());
  const V there = pointwise(b_, ScalarOp::Lt, std::array{b_.range(places()), members_});
  Values states = fold.identities();
  for (size_t i = 0; i < states.size(); ++i)
    states[i] = pointwise(b_, ScalarOp::Select, std::array{there, all[i], states[i]});
  states = fold.merge(states, 0);
  for (V& v : states) v = kept(v);
  return states;
}

bool Team::ends(size_t stage) const {
  return std::all_of(stages_.stages.begin() + static_cast<std::ptrdiff_t>(stage) + 1, stages_.stages.end(),
                     [](const Stage& s) { return s.reduces.empty() && s.stores.empty(); });
}

// At the place of this program among its team, all positions along the side that is not folded.
void Team::leave(V workspace, V part) {
  const int side = sides_[static_cast<size_t>(1 - fold_)].lanes;
  V place = sizes_.op(ScalarOp::Add, sizes_.op(ScalarOp::Mul, team_, members_), member_);
  V offset = sizes_.op(ScalarOp::Mul, place, sizes_.constant(side));
  if (side > 1) offset = pointwise(b_, ScalarOp::Add, std::array{kept(b_.range(side)), offset});
  b_.store(workspace, offset, splat(part, b_.kernel().type(offset).shape));
}

// The states of all members, side by side in a tile, merged.
Values Team::gather(const Fold& fold, size_t stage) {
  const int side = sides_[static_cast<size_t>(1 - fold_)].lanes, dim = side == 1 ? 0 : fold_;
  V member = b_.range(places());
  if (side > 1) member = b_.expand_dims(member, 1 - fold_);
  V there = pointwise(b_, ScalarOp::Lt, std::array{member, members_});
  V offset = pointwise(b_, ScalarOp::Add, std::array{member, sizes_.op(ScalarOp::Mul, team_, members_)});
  if (side > 1) {
    offset = pointwise(b_, ScalarOp::Mul, std::array{offset, sizes_.constant(side)});
    offset = pointwise(b_, ScalarOp::Add, std::array{offset, b_.expand_dims(b_.range(side), fold_)});
  }
  V mask = splat(there, b_.kernel().type(offset).shape);
  Values states = fold.identities();
  for (size_t i = 0; i < states.size(); ++i) states[i] = b_.load(workspaces_[stage][i], offset, mask, states[i]);
  states = fold.merge(states, dim);
  for (V& v : states) v = kept(v);
  return states;
}

// After a round: from what this program has folded to what the row's reductions are.
void Team::settle(size_t stage, const Fold& fold, const Values& state) {
  auto known = [&](const Values& all) {
    c_.known = static_cast<int>(stage) + 1;
    accumulators_.finish(fold, all);
  };
  auto gathered = [&] { known(gather(fold, stage)); };
  if (state.empty()) {
    c_.known = static_cast<int>(stage) + 1;
    return;
  }
  if (!ends(stage))
    out_.team = fold_ == 1 ? *legal_.blocks_per_row : out_.grid; // of columns, members are not neighbours
  if (exchanged_[stage].message > 0) return known(exchange(fold, stage, state));
  for (size_t i = 0; i < state.size(); ++i) leave(workspaces_[stage][i], state[i]);
  if (!ends(stage)) {
    b_.grid_barrier(counters_, team_, member_, members_);
    return gathered();
  }
  V last = b_.arrive(counters_, team_, member_, members_);
  b_.if_else(
      last,
      [&]() -> Values {
        memo_.scoped([&] {
          gathered();
          scalars_.store_rows();
        });
        return {};
      },
      [] { return Values(); });
}

// What is stored once a row, where all of the team know it.
void Team::finish() {
  if (stages_.row_stores.empty() || !stages_.stages.back().reduces.empty()) return; // the last one has done it
  V first = b_.scalar(ScalarOp::Eq, std::array{member_, sizes_.constant(0)});
  b_.if_else(
      first,
      [&]() -> Values {
        memo_.scoped([&] { scalars_.store_rows(); });
        return {};
      },
      [] { return Values(); });
}

} // namespace tessera::block
