// Loops over the row: the tiles of a block in each stage, and the tiles that stay on the multiprocessor between stages.
//
// A block that shares its row takes tiles rank, rank + blocks, ... If other stages follow, or the row may not end with
// a tile, the block's last tile is outside of the loop: earlier tiles lie within the row, so the loop has no masks; and
// values of the last tile that later stages need stay in registers. The first `keep` tiles are cached in shared memory.
// The tiles between are read again, in serpentine order: the tiles read last are the likeliest to be in L2.
//
//   tiles of a block     0 .. keep - 1    keep .. last - 1    last
//   first stage          1. cached        2. read             3. in registers
//   second stage         3. from shared   2. read, reversed   1. from registers
//
// With asynchronous copies the first tiles and the last one are all in flight before the first is folded; if the row
// ends with a tile, all tiles may be cached, and then none is the last one.
#include "codegen/schedule/lower/block_walk.h"
#include "codegen/schedule/shapes.h"
#include "codegen/tile/rules.h"
#include <algorithm>
#include <array>

namespace tessera::block {

// The tiles of this block.
void SharedRow::begin() {
  Side& s = *fold_side();
  if (!schedule_.traversal.loop) return;
  size_t rounds = 0;
  for (const Stage& stage : stages_.stages) rounds += !stage.reduces.empty() || !stage.stores.empty();
  const bool again = rounds > 1;
  if (!(schedule_.residency.cached_tiles > 0 && again) &&
      !(legal_.blocks_per_row && (again || schedule_.traversal.num_stages > 1 || !placement_.always_whole(s))))
    return;
  if (again) {
    std::vector<uint64_t> sides;
    for (const Side& side : sides_)
      if (side.lanes > 1) sides.push_back(uint64_t{1} << side.axis);
    cached_values_ = find_cached_values(graph_, nest_, d_, stages_, online_, sides);
    last_values_.assign(cached_values_.size(), -1);
    const int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes;
    auto read = [&](const CachedValue& k) { return tile_.plain_load(k.id); };
    copies_ = schedule_.residency.async_copy && schedule_.residency.cached_tiles > 0 &&
              std::all_of(cached_values_.begin(), cached_values_.end(), read);
    for (const CachedValue& k : cached_values_)
      cached_memory_.push_back(schedule_.residency.cached_tiles > 0
                                   ? b_.scratch(k.dtype, sizes_.constant(schedule_.residency.cached_tiles * elements))
                                   : -1);
  }
  auto op = [&](ScalarOp o, V x, V y) { return sizes_.op(o, x, y); };
  const SymExpr count = d_.env.simplify(ceildiv(axis(s).extent, s.lanes));
  if (const auto each = tiles_of_each(count); copies_ && each && *each <= schedule_.residency.cached_tiles) {
    all_cached_ = true;
    last_ = sizes_.constant(*each);
    return;
  }
  V one = sizes_.constant(1), all = schedule_.access.alignment_peel == 1 ? sizes_.number(count) : shift_.tiles();
  if (legal_.blocks_per_row) {
    // Blocks beyond the row's tiles have none; their last one is masked everywhere.
    idle_blocks_ = d_.env.range(d_.env.simplify(count - *legal_.blocks_per_row)).lo < 0;
    V mine =
        op(ScalarOp::Sub, op(ScalarOp::Add, all, cooperation_.blocks()), op(ScalarOp::Add, cooperation_.rank(), one));
    all = op(ScalarOp::Div, mine, cooperation_.blocks());
  }
  last_ = op(ScalarOp::Max, op(ScalarOp::Sub, all, one), sizes_.constant(0));
}

// Number of tiles of each block if the row has `count` full tiles; nothing if the last one is not full, or blocks have
// different numbers.
std::optional<int64_t> SharedRow::tiles_of_each(const SymExpr& count) const {
  const auto tiles = count.as_const(),
             members = legal_.blocks_per_row ? d_.env.simplify(*legal_.blocks_per_row).as_const() : 1;
  if (!tiles || !members || *tiles % *members != 0 || !placement_.always_whole(sides_[static_cast<size_t>(fold_)]))
    return {};
  return *tiles / *members;
}

// Start of the block's tile `i`.
V SharedRow::tile_base(V i) {
  V lanes = sizes_.constant(fold_side()->lanes);
  if (legal_.blocks_per_row)
    i = sizes_.op(ScalarOp::Add, sizes_.op(ScalarOp::Mul, i, cooperation_.blocks()), cooperation_.rank());
  return sizes_.op(ScalarOp::Mul, i, lanes);
}

// Offsets of a tile's elements in shared memory, row-major, behind `i` tiles.
V SharedRow::cached_offset(V i) {
  std::vector<int> shape = full_shape();
  const auto rank = static_cast<int>(shape.size());
  V offset = -1;
  int64_t stride = 1;
  for (int dim = rank - 1; dim >= 0; --dim) {
    int n = shape[static_cast<size_t>(dim)];
    V at = b_.range(n);
    for (int other = 0; other < rank; ++other)
      if (other != dim) at = b_.expand_dims(at, other);
    at = sizes_.op(ScalarOp::Mul, at, sizes_.constant(stride));
    offset = offset < 0 ? at : sizes_.op(ScalarOp::Add, offset, at);
    stride *= n;
  }
  return sizes_.op(ScalarOp::Add, offset, sizes_.op(ScalarOp::Mul, i, sizes_.constant(stride)));
}

V SharedRow::raw(const CachedValue& k) {
  V v = scalars_.value(k.id), read = memo_.raw[static_cast<size_t>(k.id)];
  return read >= 0 ? read : v;
}
void SharedRow::recall(const CachedValue& k, V v) {
  memo_.raw[static_cast<size_t>(k.id)] = v;
  memo_.remember(static_cast<size_t>(k.id), b_.cast(v, node(k.id).dtype));
}

// Runs `body` with the fold's side at `base`; masks only where a misaligned row begins or ends within the tile.
Values SharedRow::placed(V base, const std::function<Values()>& body) {
  auto branch = [&](bool masks) {
    return memo_.scoped([&] {
      placement_.place(*fold_side(), base, masks);
      return body();
    });
  };
  if (schedule_.access.alignment_peel == 1) return branch(false);
  return b_.if_else(
      shift_.whole_tile(base), [&] { return branch(false); }, [&] { return branch(true); });
}

Values SharedRow::loop(const Round& r, V from, V to, const Values& state, const Tile& tile) {
  return accumulators_.loop(r.fold, from, to, r.one, r.tiles_of_row, state, [&](V i, std::span<const V> carried) {
    return memo_.scoped([&] { return tile(i, Values(carried.begin(), carried.end())); });
  });
}

// Each tile is loaded while the previous one is folded.
Values SharedRow::prefetched_loop(const Round& r, V from, V to, const std::function<V(V)>& number, const Values& state,
                                  const Tile& tile) {
  const size_t numbers = state.size();
  auto there = [&](V i) { return pointwise(b_, ScalarOp::Lt, std::array{i, to}); };
  Values carried = state, begin = tile_.fetch(r.loads, tile_base(number(from)), false, there(from));
  carried.insert(carried.end(), begin.begin(), begin.end());
  carried = accumulators_.loop(r.fold, from, to, r.one, r.tiles_of_row, carried, [&](V i, std::span<const V> now) {
    V after = sizes_.op(ScalarOp::Add, i, r.one);
    Values next = tile_.fetch(r.loads, tile_base(number(after)), false, there(after));
    Values out = memo_.scoped([&] {
      for (size_t k = 0; k < r.loads.size(); ++k) memo_.loaded[static_cast<size_t>(r.loads[k])] = now[numbers + k];
      Values folded = tile(number(i), Values(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(numbers)));
      for (ScalarId id : r.loads) memo_.loaded[static_cast<size_t>(id)] = -1;
      return folded;
    });
    out.insert(out.end(), next.begin(), next.end());
    return out;
  });
  carried.resize(numbers);
  return carried;
}

// Iterations from .. to - 1; `number` is an iteration's tile.
Values SharedRow::tiles(const Round& r, V from, V to, const std::function<V(V)>& number, const Values& state,
                        const Tile& tile) {
  if (!r.loads.empty()) return prefetched_loop(r, from, to, number, state, tile);
  return loop(r, from, to, state, [&](V i, const Values& carried) { return tile(number(i), carried); });
}

// Loads that are only stored, to different elements, become asynchronous copies.
Values SharedRow::copied_tiles(const Round& r, V to, const Values& state) {
  auto tile = [&](V i, std::span<const V> carried) {
    const V base = tile_base(i), offset = cached_offset(i);
    memo_.scoped([&] {
      placement_.place(*fold_side(), base, schedule_.access.alignment_peel > 1);
      for (size_t k = 0; k < cached_values_.size(); ++k)
        b_.store(cached_memory_[k], offset, splat(scalars_.stored_value(cached_values_[k].id), full_shape()));
      return 0;
    });
    return placed(base, [&] {
      for (size_t k = 0; k < cached_values_.size(); ++k) recall(cached_values_[k], b_.load(cached_memory_[k], offset));
      return tile_.body(r.stage, r.fold, Values(carried.begin(), carried.end()));
    });
  };
  return b_.for_loop(r.none, to, r.one, state, tile, std::min(schedule_.residency.cached_tiles, tile::kMaxStages));
}

Values SharedRow::cached_tiles(const Round& r, const Values& state) {
  if (schedule_.residency.cached_tiles == 0) return state;
  auto tile = [&](V i, const Values& carried) {
    V offset = schedule_.access.alignment_peel > 1 && !cached_values_.empty() ? cached_offset(i)
                                                                              : -1; // shared by both branches
    return placed(tile_base(i), [&] {
      if (offset < 0 && !cached_values_.empty()) offset = cached_offset(i);
      for (size_t k = 0; !r.first && k < cached_values_.size(); ++k)
        recall(cached_values_[k], b_.load(cached_memory_[k], offset));
      for (size_t k = 0; r.first && k < cached_values_.size(); ++k) {
        V v = raw(cached_values_[k]);
        b_.store(cached_memory_[k], offset, splat(v, full_shape()));
      }
      return tile_.body(r.stage, r.fold, carried);
    });
  };
  const V to = all_cached_ ? last_ : sizes_.op(ScalarOp::Min, r.keep, last_);
  if (!r.first) return loop(r, r.none, to, state, tile);
  if (copies_) return copied_tiles(r, to, state);
  return tiles(
      r, r.none, to, [](V i) { return i; }, state, tile);
}

// The tiles from `keep` to the one before the last, or from there back to `keep`.
Values SharedRow::read_tiles(const Round& r, const Values& state) {
  const V ends = sizes_.op(ScalarOp::Add, last_, sizes_.constant(schedule_.residency.cached_tiles - 1));
  auto number = [&](V i) { return r.back ? sizes_.op(ScalarOp::Sub, ends, i) : i; };
  return tiles(r, r.keep, last_, number, state, [&](V i, const Values& carried) {
    return placed(tile_base(i), [&] { return tile_.body(r.stage, r.fold, carried); });
  });
}

// `early`: loads of the tile that are in flight, with their values.
Values SharedRow::last_tile(const Round& r, const std::vector<std::pair<ScalarId, V>>& early, const Values& state) {
  return memo_.scoped([&] {
    Side& s = *fold_side();
    placement_.place(s, tile_base(last_), true);
    if (s.mask < 0 && idle_blocks_)
      s.mask = pointwise(b_, ScalarOp::Lt, std::array{sizes_.number(axis(s).var), sizes_.number(axis(s).extent)});
    for (size_t k = 0; !r.first && k < cached_values_.size(); ++k) recall(cached_values_[k], last_values_[k]);
    for (auto [id, v] : early) memo_.loaded[static_cast<size_t>(id)] = v;
    for (size_t k = 0; r.first && k < cached_values_.size(); ++k) last_values_[k] = raw(cached_values_[k]);
    Values folded = tile_.body(r.stage, r.fold, state);
    for (auto [id, v] : early) memo_.loaded[static_cast<size_t>(id)] = -1;
    return folded;
  });
}

// One stage over this block's tiles: accumulators.
Values SharedRow::walk(const Stage& stage, const Fold& fold) {
  // Non-negative positions make divisions cheaper.
  const bool one_axis = (fold_ == 0 ? legal_.groups.rows : legal_.groups.columns).size() == 1;
  const int before = rounds_walked_++;
  Values state = accumulators_.identities(fold);
  const V none = sizes_.constant(0), one = sizes_.constant(1), keep = sizes_.constant(schedule_.residency.cached_tiles);
  const Round r{stage,
                fold,
                before == 0,
                before % 2 == 1 && one_axis,
                none,
                one,
                keep,
                ceildiv(shift_.positions_of_row(), fold_side()->lanes),
                schedule_.traversal.num_stages > 1 ? tile_.streams(stage) : std::vector<ScalarId>()};
  if (all_cached_) return cached_tiles(r, state);
  if (!r.first) return cached_tiles(r, read_tiles(r, last_tile(r, {}, state)));
  // If the first tiles are being copied, the last one is in flight as well.
  std::vector<std::pair<ScalarId, V>> early;
  if (copies_ && !idle_blocks_) {
    const std::vector<ScalarId> loads = tile_.streams(stage);
    const Values values = tile_.load(loads, tile_base(last_), true, -1);
    for (size_t k = 0; k < loads.size(); ++k) early.emplace_back(loads[k], values[k]);
  }
  return last_tile(r, early, read_tiles(r, cached_tiles(r, state)));
}

} // namespace tessera::block
