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
#include "codegen/schedule/lower/shapes.h"
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

// One stage over this block's tiles: accumulators.
Values SharedRow::walk(const Stage& stage, const Fold& fold) {
  Side& s = *fold_side();
  // Non-negative positions make divisions cheaper.
  const bool one_axis = (fold_ == 0 ? legal_.groups.rows : legal_.groups.columns).size() == 1;
  const bool first = rounds_walked_ == 0, back = rounds_walked_ % 2 == 1 && one_axis;
  ++rounds_walked_;
  Values state = accumulators_.identities(fold);
  const size_t numbers = state.size();
  const V none = sizes_.constant(0), one = sizes_.constant(1), keep = sizes_.constant(schedule_.residency.cached_tiles);
  const SymExpr tiles_of_row = ceildiv(shift_.positions_of_row(), s.lanes); // of a block, at most
  auto plus = [&](V x, V y) { return sizes_.op(ScalarOp::Add, x, y); };
  using Tile = std::function<Values(V, const Values&)>; // (tile index, state before it) -> state after it
  auto loop = [&](V from, V to, const Tile& tile) {
    state = accumulators_.loop(fold, from, to, one, tiles_of_row, state, [&](V i, std::span<const V> carried) {
      return memo_.scoped([&] { return tile(i, Values(carried.begin(), carried.end())); });
    });
  };
  // Each tile is loaded while the previous one is folded.
  auto loop_ahead = [&](V from, V to, const std::vector<ScalarId>& loads, const std::function<V(V)>& number,
                        const Tile& tile) {
    auto there = [&](V i) { return pointwise(b_, ScalarOp::Lt, std::array{i, to}); };
    Values carried = state, begin = tile_.fetch(loads, tile_base(number(from)), false, there(from));
    carried.insert(carried.end(), begin.begin(), begin.end());
    carried = accumulators_.loop(fold, from, to, one, tiles_of_row, carried, [&](V i, std::span<const V> now) {
      V after = plus(i, one);
      Values next = tile_.fetch(loads, tile_base(number(after)), false, there(after));
      Values out = memo_.scoped([&] {
        for (size_t k = 0; k < loads.size(); ++k) memo_.loaded[static_cast<size_t>(loads[k])] = now[numbers + k];
        Values folded = tile(number(i), Values(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(numbers)));
        for (ScalarId id : loads) memo_.loaded[static_cast<size_t>(id)] = -1;
        return folded;
      });
      out.insert(out.end(), next.begin(), next.end());
      return out;
    });
    carried.resize(numbers);
    state = std::move(carried);
  };
  const std::vector<ScalarId> loads =
      schedule_.traversal.num_stages > 1 ? tile_.streams(stage) : std::vector<ScalarId>();
  auto tiles = [&](V from, V to, const std::function<V(V)>& number, const Tile& tile) {
    if (loads.empty()) return loop(from, to, [&](V i, const Values& carried) { return tile(number(i), carried); });
    loop_ahead(from, to, loads, number, tile);
  };
  const std::function<V(V)> forth = [](V i) { return i; };
  // Masks only where a misaligned row begins or ends within the tile.
  auto placed = [&](V base, const std::function<Values()>& body) {
    auto branch = [&](bool masks) {
      return memo_.scoped([&] {
        placement_.place(s, base, masks);
        return body();
      });
    };
    if (schedule_.access.alignment_peel == 1) return branch(false);
    return b_.if_else(
        shift_.whole_tile(base), [&] { return branch(false); }, [&] { return branch(true); });
  };
  // Loads that are only stored, to different elements, become asynchronous copies.
  auto copied_tiles = [&](V to) {
    auto tile = [&](V i, std::span<const V> carried) {
      const V base = tile_base(i), offset = cached_offset(i);
      memo_.scoped([&] {
        placement_.place(s, base, schedule_.access.alignment_peel > 1);
        for (size_t k = 0; k < cached_values_.size(); ++k)
          b_.store(cached_memory_[k], offset, splat(scalars_.stored_value(cached_values_[k].id), full_shape()));
        return 0;
      });
      return placed(base, [&] {
        for (size_t k = 0; k < cached_values_.size(); ++k)
          recall(cached_values_[k], b_.load(cached_memory_[k], offset));
        return tile_.body(stage, fold, Values(carried.begin(), carried.end()));
      });
    };
    state = b_.for_loop(none, to, one, state, tile, std::min(schedule_.residency.cached_tiles, tile::kMaxStages));
  };
  auto cached_tiles = [&] {
    if (schedule_.residency.cached_tiles == 0) return;
    auto tile = [&](V i, const Values& carried) {
      V offset = schedule_.access.alignment_peel > 1 && !cached_values_.empty() ? cached_offset(i)
                                                                                : -1; // shared by both branches
      return placed(tile_base(i), [&] {
        if (offset < 0 && !cached_values_.empty()) offset = cached_offset(i);
        for (size_t k = 0; !first && k < cached_values_.size(); ++k)
          recall(cached_values_[k], b_.load(cached_memory_[k], offset));
        for (size_t k = 0; first && k < cached_values_.size(); ++k) {
          V v = raw(cached_values_[k]);
          b_.store(cached_memory_[k], offset, splat(v, full_shape()));
        }
        return tile_.body(stage, fold, carried);
      });
    };
    V to = all_cached_ ? last_ : sizes_.op(ScalarOp::Min, keep, last_);
    if (first && copies_) return copied_tiles(to);
    first ? tiles(none, to, forth, tile) : loop(none, to, tile);
  };
  auto read_tiles = [&] {
    // From last - 1 down to keep.
    V ends = plus(last_, sizes_.constant(schedule_.residency.cached_tiles - 1));
    auto number = [&](V i) { return back ? sizes_.op(ScalarOp::Sub, ends, i) : i; };
    tiles(keep, last_, number, [&](V i, const Values& carried) {
      return placed(tile_base(i), [&] { return tile_.body(stage, fold, carried); });
    });
  };
  // If the first tiles are being copied, the last one is in flight as well.
  std::vector<ScalarId> early;
  Values early_tiles;
  if (first && copies_ && !all_cached_ && !idle_blocks_) {
    early = tile_.streams(stage);
    early_tiles = tile_.load(early, tile_base(last_), true, -1);
  }
  auto last_tile = [&] {
    state = memo_.scoped([&] {
      placement_.place(s, tile_base(last_), true);
      if (s.mask < 0 && idle_blocks_)
        s.mask = pointwise(b_, ScalarOp::Lt, std::array{sizes_.number(axis(s).var), sizes_.number(axis(s).extent)});
      for (size_t k = 0; !first && k < cached_values_.size(); ++k) recall(cached_values_[k], last_values_[k]);
      for (size_t k = 0; k < early.size(); ++k) memo_.loaded[static_cast<size_t>(early[k])] = early_tiles[k];
      for (size_t k = 0; first && k < cached_values_.size(); ++k) last_values_[k] = raw(cached_values_[k]);
      Values folded = tile_.body(stage, fold, state);
      for (ScalarId id : early) memo_.loaded[static_cast<size_t>(id)] = -1;
      return folded;
    });
  };
  if (all_cached_) {
    cached_tiles();
  } else if (first) {
    cached_tiles();
    read_tiles();
    last_tile();
  } else {
    last_tile();
    read_tiles();
    cached_tiles();
  }
  return state;
}

} // namespace tessera::block
