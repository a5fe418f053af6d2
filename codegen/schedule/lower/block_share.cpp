// Loops over the row: which tiles a program takes in each round, and what it keeps between them.
//
// A program that shares its row with a team takes tiles member, member + team, ... Where other rounds follow, or the
// row need not end with a tile, the last of its tiles stands outside of the loop: those before lie within the row, so
// the loop has no masks; and the values that later rounds need of the last one stay in registers. Further tiles are
// kept in shared memory, `keep` of them, the first ones. What lies between is read again, from the last to the first
// every other round: what has been read last is the likeliest to be in the level-2 cache.
//
//   tiles of a program   0 .. keep - 1    keep .. last - 1   last
//   first round          1. kept          2. read            3. in registers
//   second round         3. from shared   2. read, back      1. from registers
//
// With `copied` the first tiles, and the last one, are all under way before the first is folded; of a row that ends
// with a tile all may be kept, and none is the last one then.
#include "codegen/schedule/lower/block_walk.h"
#include "codegen/schedule/lower/shapes.h"
#include "codegen/tile/rules.h"
#include <algorithm>
#include <array>

namespace tessera::block {

// Which tiles are this program's.
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
    kept_values_ = find_kept(graph_, nest_, d_, stages_, online_, sides);
    kept_last_.assign(kept_values_.size(), -1);
    const int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes;
    auto read = [&](const KeptValue& k) { return tile_.plain_load(k.id); };
    copies_ = schedule_.residency.async_copy && schedule_.residency.cached_tiles > 0 &&
              std::all_of(kept_values_.begin(), kept_values_.end(), read);
    for (const KeptValue& k : kept_values_)
      kept_memory_.push_back(schedule_.residency.cached_tiles > 0
                                 ? b_.scratch(k.dtype, sizes_.constant(schedule_.residency.cached_tiles * elements))
                                 : -1);
  }
  auto op = [&](ScalarOp o, V x, V y) { return sizes_.op(o, x, y); };
  const SymExpr count = d_.env.simplify(ceildiv(axis(s).extent, s.lanes));
  if (const auto each = tiles_of_each(count); copies_ && each && *each <= schedule_.residency.cached_tiles) {
    all_kept_ = true;
    last_ = sizes_.constant(*each);
    return;
  }
  V one = sizes_.constant(1), all = schedule_.access.alignment_peel == 1 ? sizes_.number(count) : shift_.tiles();
  if (legal_.blocks_per_row) {
    // Members beyond the row's tiles have none; their last one then is masked throughout.
    idle_members_ = d_.env.range(d_.env.simplify(count - *legal_.blocks_per_row)).lo < 0;
    V mine = op(ScalarOp::Sub, op(ScalarOp::Add, all, team_.members()), op(ScalarOp::Add, team_.member(), one));
    all = op(ScalarOp::Div, mine, team_.members());
  }
  last_ = op(ScalarOp::Max, op(ScalarOp::Sub, all, one), sizes_.constant(0));
}

// Of a row of `count` whole tiles each program has as many; nothing where the last one is not whole, or some have more.
std::optional<int64_t> SharedRow::tiles_of_each(const SymExpr& count) const {
  const auto tiles = count.as_const(),
             members = legal_.blocks_per_row ? d_.env.simplify(*legal_.blocks_per_row).as_const() : 1;
  if (!tiles || !members || *tiles % *members != 0 || !placement_.always_whole(sides_[static_cast<size_t>(fold_)]))
    return {};
  return *tiles / *members;
}

// Where the program's tile number `i` begins.
V SharedRow::tile_base(V i) {
  V lanes = sizes_.constant(fold_side()->lanes);
  if (legal_.blocks_per_row) i = sizes_.op(ScalarOp::Add, sizes_.op(ScalarOp::Mul, i, team_.members()), team_.member());
  return sizes_.op(ScalarOp::Mul, i, lanes);
}

// Places of a tile's elements in shared memory, row-major, behind those of `i` tiles.
V SharedRow::kept_offset(V i) {
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

V SharedRow::raw(const KeptValue& k) {
  V v = scalars_.value(k.id), read = memo_.raw[static_cast<size_t>(k.id)];
  return read >= 0 ? read : v;
}
void SharedRow::recall(const KeptValue& k, V v) {
  memo_.raw[static_cast<size_t>(k.id)] = v;
  memo_.remember(static_cast<size_t>(k.id), b_.cast(v, node(k.id).dtype));
}

// One round over this program's tiles: accumulators.
Values SharedRow::walk(const Stage& stage, const Fold& fold) {
  Side& s = *fold_side();
  // Positions that are taken apart are better known not to be negative.
  const bool one_axis = (fold_ == 0 ? legal_.groups.rows : legal_.groups.columns).size() == 1;
  const bool first = rounds_walked_ == 0, back = rounds_walked_ % 2 == 1 && one_axis;
  ++rounds_walked_;
  Values state = accumulators_.identities(fold);
  const size_t numbers = state.size();
  const V none = sizes_.constant(0), one = sizes_.constant(1), keep = sizes_.constant(schedule_.residency.cached_tiles);
  auto plus = [&](V x, V y) { return sizes_.op(ScalarOp::Add, x, y); };
  using Tile = std::function<Values(V, const Values&)>; // of the tile's number and the state before it: that after it
  auto loop = [&](V from, V to, const Tile& tile) {
    state = b_.for_loop(from, to, one, state, [&](V i, std::span<const V> carried) {
      return memo_.scoped([&] { return tile(i, Values(carried.begin(), carried.end())); });
    });
  };
  // With each tile loaded while the one before it is folded.
  auto loop_ahead = [&](V from, V to, const std::vector<ScalarId>& loads, const std::function<V(V)>& number,
                        const Tile& tile) {
    auto there = [&](V i) { return pointwise(b_, ScalarOp::Lt, std::array{i, to}); };
    Values carried = state, begin = tile_.fetch(loads, tile_base(number(from)), false, there(from));
    carried.insert(carried.end(), begin.begin(), begin.end());
    carried = b_.for_loop(from, to, one, carried, [&](V i, std::span<const V> now) {
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
  // Masks only where a shifted row begins or ends within the tile.
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
  // Loads that are only stored, to places of their own, are copies.
  auto copied_tiles = [&](V to) {
    auto tile = [&](V i, std::span<const V> carried) {
      const V base = tile_base(i), offset = kept_offset(i);
      memo_.scoped([&] {
        placement_.place(s, base, schedule_.access.alignment_peel > 1);
        for (size_t k = 0; k < kept_values_.size(); ++k)
          b_.store(kept_memory_[k], offset, splat(scalars_.stored_value(kept_values_[k].id), full_shape()));
        return 0;
      });
      return placed(base, [&] {
        for (size_t k = 0; k < kept_values_.size(); ++k) recall(kept_values_[k], b_.load(kept_memory_[k], offset));
        return tile_.body(stage, fold, Values(carried.begin(), carried.end()));
      });
    };
    state = b_.for_loop(none, to, one, state, tile, std::min(schedule_.residency.cached_tiles, tile::kMaxStages));
  };
  auto kept_tiles = [&] {
    if (schedule_.residency.cached_tiles == 0) return;
    auto tile = [&](V i, const Values& carried) {
      V offset =
          schedule_.access.alignment_peel > 1 && !kept_values_.empty() ? kept_offset(i) : -1; // once for both branches
      return placed(tile_base(i), [&] {
        if (offset < 0 && !kept_values_.empty()) offset = kept_offset(i);
        for (size_t k = 0; !first && k < kept_values_.size(); ++k)
          recall(kept_values_[k], b_.load(kept_memory_[k], offset));
        for (size_t k = 0; first && k < kept_values_.size(); ++k) {
          V v = raw(kept_values_[k]);
          b_.store(kept_memory_[k], offset, splat(v, full_shape()));
        }
        return tile_.body(stage, fold, carried);
      });
    };
    V to = all_kept_ ? last_ : sizes_.op(ScalarOp::Min, keep, last_);
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
  // Of a row whose first tiles are being copied the last one is under way as well.
  std::vector<ScalarId> early;
  Values early_tiles;
  if (first && copies_ && !all_kept_ && !idle_members_) {
    early = tile_.streams(stage);
    early_tiles = tile_.load(early, tile_base(last_), true, -1);
  }
  auto last_tile = [&] {
    state = memo_.scoped([&] {
      placement_.place(s, tile_base(last_), true);
      if (s.mask < 0 && idle_members_)
        s.mask = pointwise(b_, ScalarOp::Lt, std::array{sizes_.number(axis(s).var), sizes_.number(axis(s).extent)});
      for (size_t k = 0; !first && k < kept_values_.size(); ++k) recall(kept_values_[k], kept_last_[k]);
      for (size_t k = 0; k < early.size(); ++k) memo_.loaded[static_cast<size_t>(early[k])] = early_tiles[k];
      for (size_t k = 0; first && k < kept_values_.size(); ++k) kept_last_[k] = raw(kept_values_[k]);
      Values folded = tile_.body(stage, fold, state);
      for (ScalarId id : early) memo_.loaded[static_cast<size_t>(id)] = -1;
      return folded;
    });
  };
  if (all_kept_) {
    kept_tiles();
  } else if (first) {
    kept_tiles();
    read_tiles();
    last_tile();
  } else {
    last_tile();
    read_tiles();
    kept_tiles();
  }
  return state;
}

} // namespace tessera::block
