// Loops over a row that is longer than the tile.
//
// With prefetch, the loads of a tile are issued before the previous tile is folded, so that memory is not idle
// meanwhile. Stages traverse the row in serpentine order, tiles 0 1 2 3:
//
//   stage 0   load 0 | load 1, fold 0 | load 2, fold 1 | load 3, fold 2 | load 2 again, fold 3 |
//   stage 1   fold 3 | load 1, fold 2 | load 0, fold 1 | fold 0 |
//
// Stage 1 finds tile 3 in registers, and tile 2 in flight while the block reduces. The last tile, which may extend
// beyond the row, is outside of the loops: in them only prefetched loads are masked.
//
// For misaligned rows of known length the first tile, which begins within a vector access, is outside as well, and so
// is the tile before the last one if the row may end in it. Their masks follow from their positions; the other tiles
// have no masks.
#include "codegen/schedule/lower/block_walk.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera::block {

Values RoundTile::body(const Stage& stage, const Fold& fold, const Values& accumulators) {
  Values stored;
  for (size_t i : stage.stores) stored.push_back(scalars_.value(nest_.stores[i].scalar));
  Values next = accumulators_.accumulate(fold, accumulators);
  for (size_t i = 0; i < stored.size(); ++i) scalars_.store(stage.stores[i], stored[i]);
  return next;
}

// Its only condition.
bool RoundTile::plain_load(ScalarId id) const {
  const Access& a = d_.loads[static_cast<size_t>(id)];
  return node(id).op == ScalarOp::Load && a.terms.empty() && a.predicate < 0;
}

// Loads of different elements per row that a stage needs, with no other condition.
std::vector<ScalarId> RoundTile::streams(const Stage& stage) const {
  std::vector<char> needed(static_cast<size_t>(nest_.dag.size()));
  auto need = [&](ScalarId id) {
    if (id >= 0) needed[static_cast<size_t>(id)] = 1;
  };
  for (size_t i : stage.stores) need(nest_.stores[i].scalar);
  for (ScalarId r : stage.reduces) {
    need(node(r).args[0]);
    if (online_.empty()) continue;
    const OnlineSum& sum = online_[static_cast<size_t>(r)];
    need(sum.moving);
    for (ScalarId w : sum.weights) need(w);
  }
  uint64_t axes = 0;
  for (const Side& s : sides_)
    if (s.axis >= 0) axes |= uint64_t{1} << s.axis;
  std::vector<ScalarId> found;
  for (ScalarId id = nest_.dag.size() - 1; id >= 0; --id) {
    size_t i = static_cast<size_t>(id);
    if (!needed[i] || !d_.live[i] || memo_[i] >= 0 || node(id).op == ScalarOp::Reduce) continue;
    if (plain_load(id) && (d_.access_deps(d_.loads[i]) & axes) == axes) found.push_back(id);
    for (ScalarId a : node(id).args) need(a);
  }
  return found;
}

Values RoundTile::load(const std::vector<ScalarId>& loads, V at, bool masks, V guard) {
  return memo_.scoped([&] {
    placement_.place(*fold_side(), at, masks);
    c_.guard = guard;
    Values tiles;
    for (ScalarId id : loads) tiles.push_back(scalars_.stored_value(id));
    c_.guard = -1;
    return tiles;
  });
}

Values RoundTile::fetch(const std::vector<ScalarId>& loads, V at, bool masks, V guard) {
  if (loads.empty()) return {};
  if (schedule_.access.alignment_peel == 1) return load(loads, at, masks, guard);
  if (!legal_.blocks_per_row) guard = -1; // masks are false beyond the last tile
  return b_.if_else(
      both(guard, shift_.whole_tile(at)), [&] { return load(loads, at, false, -1); },
      [&] { return load(loads, at, true, guard); });
}

Values RoundTile::fold(size_t round, const Fold& fold, const std::vector<ScalarId>& loads, V at, bool masks,
                       std::span<const V> accumulators, std::span<const V> tile) {
  return memo_.scoped([&] {
    placement_.place(*fold_side(), at, masks);
    for (size_t i = 0; i < loads.size(); ++i) memo_.loaded[static_cast<size_t>(loads[i])] = tile[i];
    Values next = body(stages_.stages[round], fold, Values(accumulators.begin(), accumulators.end()));
    for (ScalarId id : loads) memo_.loaded[static_cast<size_t>(id)] = -1;
    return next;
  });
}

// One stage over the row, or over this block's tiles of it: accumulators.
Values RowLoop::walk(size_t round, const Fold& fold) {
  Side& s = *fold_side();
  const Stage& stage = stages_.stages[round];
  if (!schedule_.traversal.loop) return tile_.body(stage, fold, accumulators_.identities(fold));
  if (share_.has_begun()) return share_.walk(stage, fold);
  if (schedule_.traversal.num_stages > 1 && schedule_.access.alignment_peel > 1 && !legal_.blocks_per_row)
    if (const auto n = d_.env.simplify(axis(s).extent).as_const()) return walk_between_ends(round, fold, *n);
  if (schedule_.traversal.num_stages > 1) return walk_ahead(round, fold);
  V lanes = sizes_.constant(s.lanes);
  // Serpentine order: the tiles read last are still in the cache. Non-negative positions make divisions cheaper.
  const SymExpr row = shift_.positions_of_row();
  const SymExpr last = d_.env.simplify((ceildiv(row, s.lanes) - 1) * SymExpr(s.lanes));
  const bool one_axis = (fold_ == 0 ? legal_.groups.rows : legal_.groups.columns).size() == 1;
  const bool back = schedule_.traversal.serpentine && round % 2 == 1 && one_axis && !legal_.blocks_per_row;
  return accumulators_.loop(
      fold, legal_.blocks_per_row ? sizes_.op(ScalarOp::Mul, cooperation_.rank(), lanes) : sizes_.constant(0),
      sizes_.number(row), legal_.blocks_per_row ? sizes_.op(ScalarOp::Mul, cooperation_.blocks(), lanes) : lanes,
      ceildiv(row, s.lanes), accumulators_.identities(fold), [&](V i, std::span<const V> carried) {
        V at = back ? sizes_.op(ScalarOp::Sub, sizes_.number(last), i) : i;
        auto tile = [&](bool masks) {
          return memo_.scoped([&] {
            placement_.place(s, at, masks);
            return tile_.body(stage, fold, Values(carried.begin(), carried.end()));
          });
        };
        if (schedule_.access.alignment_peel == 1) return tile(true);
        return b_.if_else(
            shift_.whole_tile(at), [&] { return tile(false); }, [&] { return tile(true); });
      });
}

namespace {
std::vector<tile::ValueId> joined(std::vector<tile::ValueId> x, const std::vector<tile::ValueId>& y) {
  x.insert(x.end(), y.begin(), y.end());
  return x;
}
} // namespace

Values RowLoop::walk_between_ends(size_t round, const Fold& fold, int64_t n) {
  const Stage& stage = stages_.stages[round];
  const int64_t width = fold_side()->lanes, last = (n + schedule_.access.alignment_peel - 2) / width;
  const int64_t end = last * width <= n ? last : last - 1; // the row ends there or later
  auto at = [&](int64_t tile) { return sizes_.constant(tile * width); };
  auto masked = [&](int64_t tile) { return tile < 1 || tile >= end; };
  const std::vector<ScalarId> loads = tile_.streams(stage);
  // Carried: accumulators, then the tile that is folded next.
  const size_t numbers = fold.state().dtypes.size();
  auto folded = [&](V base, bool masks, std::span<const V> now) {
    return tile_.fold(round, fold, loads, base, masks, now.first(numbers), now.subspan(numbers));
  };
  auto step = [&](V base, bool masks, V next, bool next_masks, std::span<const V> now) {
    Values ahead = tile_.load(loads, next, next_masks, -1);
    return joined(folded(base, masks, now), ahead);
  };
  Values carried;
  if (round % 2 == 0) {
    carried = joined(accumulators_.identities(fold), tile_.load(loads, at(0), true, -1));
    for (int64_t t = 0; t < last;) {
      const int64_t whole = t > 0 ? end - 1 - t : 0; // before such ones
      if (whole > 1) {
        carried =
            accumulators_.loop(fold, at(t), at(t + whole), at(1), whole, carried, [&](V i, std::span<const V> now) {
              return step(i, false, sizes_.op(ScalarOp::Add, i, at(1)), false, now);
            });
        t += whole;
        continue;
      }
      carried = step(at(t), masked(t), at(t + 1), masked(t + 1), carried);
      ++t;
    }
    resident_.last = loads;
    resident_.last_tiles.assign(carried.begin() + static_cast<std::ptrdiff_t>(numbers), carried.end());
    resident_.before.clear();
    resident_.before_tiles.clear();
    if (round + 1 < stages_.stages.size()) resident_.before = tile_.streams(stages_.stages[round + 1]);
    ++c_.reading;
    if (last > 0) resident_.before_tiles = tile_.load(resident_.before, at(last - 1), masked(last - 1), -1);
    --c_.reading;
    return folded(at(last), true, carried);
  }
  auto resident = [&](const std::vector<ScalarId>& ids, const Values& tiles, int64_t tile) {
    Values found;
    for (ScalarId id : loads) {
      auto it = std::find(ids.begin(), ids.end(), id);
      found.push_back(it != ids.end() ? tiles[static_cast<size_t>(it - ids.begin())]
                                      : tile_.load({id}, at(tile), masked(tile), -1)[0]);
    }
    return found;
  };
  const Values ends = joined(accumulators_.identities(fold), resident(resident_.last, resident_.last_tiles, last));
  if (last == 0) return folded(at(0), true, ends);
  const Values before = resident(resident_.before, resident_.before_tiles, last - 1);
  carried = joined(folded(at(last), true, ends), before);
  resident_ = {};
  for (int64_t t = last - 1; t > 0;) {
    const int64_t whole = t < end ? t - 1 : 0;
    if (whole > 1) {
      carried = accumulators_.loop(fold, at(0), at(whole), at(1), whole, carried, [&](V i, std::span<const V> now) {
        V base = sizes_.op(ScalarOp::Sub, at(t), i);
        return step(base, false, sizes_.op(ScalarOp::Sub, base, at(1)), false, now);
      });
      t -= whole;
      continue;
    }
    carried = step(at(t), masked(t), at(t - 1), masked(t - 1), carried);
    --t;
  }
  return folded(at(0), true, carried);
}

Values RowLoop::walk_ahead(size_t round, const Fold& fold) {
  Side& s = *fold_side();
  const Stage& stage = stages_.stages[round];
  const SymExpr row = shift_.positions_of_row();
  const SymRange extent = d_.env.range(row);
  SymExpr tiles = d_.env.simplify(ceildiv(row, s.lanes) - 1);
  if (extent.lo < 1) tiles = sym_max(tiles, 0);
  const V last = sizes_.number(d_.env.simplify(tiles * SymExpr(s.lanes))), width = sizes_.constant(s.lanes);
  const V none = sizes_.constant(0);
  auto minus = [&](V x, V y) { return sizes_.op(ScalarOp::Sub, x, y); };
  auto positive = [&](V x) { return pointwise(b_, ScalarOp::Lt, std::array{none, x}); };
  auto several = [&] { return extent.lo > s.lanes ? -1 : positive(last); };
  const std::vector<ScalarId> loads = tile_.streams(stage);
  auto fold_at = [&](V at, bool masks, std::span<const V> accumulators, std::span<const V> tile) {
    if (masks || schedule_.access.alignment_peel == 1)
      return tile_.fold(round, fold, loads, at, masks, accumulators, tile);
    return b_.if_else(
        shift_.whole_tile(at), [&] { return tile_.fold(round, fold, loads, at, false, accumulators, tile); },
        [&] { return tile_.fold(round, fold, loads, at, true, accumulators, tile); });
  };
  // Carried: accumulators, then the tile that is folded next.
  const size_t numbers = fold.state().dtypes.size();
  if (round % 2 == 0) {
    Values carried = joined(accumulators_.identities(fold), tile_.fetch(loads, none, extent.lo < s.lanes, -1));
    carried = accumulators_.loop(fold, none, last, width, tiles, carried, [&](V i, std::span<const V> now) {
      Values next = tile_.fetch(loads, sizes_.op(ScalarOp::Add, i, width), true, -1);
      return joined(fold_at(i, false, now.first(numbers), now.subspan(numbers)), next);
    });
    resident_.last = loads;
    resident_.last_tiles.assign(carried.begin() + static_cast<std::ptrdiff_t>(numbers), carried.end());
    resident_.before.clear();
    if (round + 1 < stages_.stages.size()) resident_.before = tile_.streams(stages_.stages[round + 1]);
    ++c_.reading;
    resident_.before_tiles = tile_.fetch(resident_.before, minus(last, width), false, several());
    --c_.reading;
    return fold_at(last, true, std::span<const V>(carried).first(numbers), resident_.last_tiles);
  }
  auto resident = [&](const std::vector<ScalarId>& ids, const Values& tiles_of, V at, bool masks, V guard) {
    Values found;
    for (ScalarId id : loads) {
      auto it = std::find(ids.begin(), ids.end(), id);
      found.push_back(it != ids.end() ? tiles_of[static_cast<size_t>(it - ids.begin())]
                                      : tile_.fetch({id}, at, masks, guard)[0]);
    }
    return found;
  };
  Values end = resident(resident_.last, resident_.last_tiles, last, true, -1);
  Values before = resident(resident_.before, resident_.before_tiles, minus(last, width), false, several());
  Values carried = joined(fold_at(last, true, accumulators_.identities(fold), end), before);
  resident_ = {};
  V behind = sizes_.op(ScalarOp::Add, last, sizes_.constant(1));
  carried = accumulators_.loop(fold, width, behind, width, tiles, carried, [&](V i, std::span<const V> now) {
    V at = minus(last, i);
    Values next = tile_.fetch(loads, minus(at, width), false, positive(at));
    return joined(fold_at(at, false, now.first(numbers), now.subspan(numbers)), next);
  });
  carried.resize(numbers);
  return carried;
}

} // namespace tessera::block
