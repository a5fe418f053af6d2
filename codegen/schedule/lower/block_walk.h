// Loops over the tiles of a row, or over a block's tiles of it; private to the folder.
#pragma once
#include "codegen/schedule/cached_values.h"
#include "codegen/schedule/lower/block_cooperation.h"
#include "codegen/schedule/lower/block_fold.h"
#include "codegen/schedule/lower/block_place.h"

namespace tessera::block {

// One tile of a loop.
class RoundTile final : Part {
public:
  RoundTile(Context& context, Shift& shift, Placement& placement, Scalars& scalars, Accumulators& accumulators)
      : Part(context), shift_(shift), placement_(placement), scalars_(scalars), accumulators_(accumulators) {}
  Values body(const Stage& stage, const Fold& fold, const Values& accumulators);
  [[nodiscard]] bool plain_load(ScalarId id) const;
  [[nodiscard]] std::vector<ScalarId> streams(const Stage& stage) const;
  // Loads `loads` for the tile at `at`; masked if requested, or, if fetched, where the row begins or ends in it.
  Values load(const std::vector<ScalarId>& loads, V at, bool masks, V guard);
  Values fetch(const std::vector<ScalarId>& loads, V at, bool masks, V guard);
  Values fold(size_t round, const Fold& fold, const std::vector<ScalarId>& loads, V at, bool masks,
              std::span<const V> accumulators, std::span<const V> tile);

private:
  Shift& shift_;
  Placement& placement_;
  Scalars& scalars_;
  Accumulators& accumulators_;
};

// block_share.cpp: the tiles of this block, and what of them stays in registers or shared memory between stages
class SharedRow final : Part {
public:
  SharedRow(Context& context, Shift& shift, Placement& placement, Scalars& scalars, Accumulators& accumulators,
            const Cooperation& cooperation, RoundTile& tile)
      : Part(context), shift_(shift), placement_(placement), scalars_(scalars), accumulators_(accumulators),
        cooperation_(cooperation), tile_(tile) {}
  void begin();
  [[nodiscard]] bool has_begun() const { return last_ >= 0; }
  Values walk(const Stage& stage, const Fold& fold);

private:
  // One stage's loops.
  struct Round {
    const Stage& stage;
    const Fold& fold;
    bool first;                  // no stage before it has read the row
    bool back;                   // tiles that are not cached are read from the last one to the first
    V none, one, keep;           // 0, 1, tiles that are cached
    SymExpr tiles_of_row;        // of a block, at most
    std::vector<ScalarId> loads; // that are prefetched
  };
  using Tile = std::function<Values(V, const Values&)>; // (tile index, state before it) -> state after it
  Values placed(V base, const std::function<Values()>& body);
  Values loop(const Round& r, V from, V to, const Values& state, const Tile& tile);
  Values prefetched_loop(const Round& r, V from, V to, const std::function<V(V)>& number, const Values& state,
                         const Tile& tile);
  Values tiles(const Round& r, V from, V to, const std::function<V(V)>& number, const Values& state, const Tile& tile);
  Values copied_tiles(const Round& r, V to, const Values& state);
  Values cached_tiles(const Round& r, const Values& state);
  Values read_tiles(const Round& r, const Values& state);
  Values last_tile(const Round& r, const std::vector<std::pair<ScalarId, V>>& early, const Values& state);
  [[nodiscard]] std::optional<int64_t> tiles_of_each(const SymExpr& count) const;
  V tile_base(V i);
  V cached_offset(V i);
  V raw(const CachedValue& k);
  void recall(const CachedValue& k, V v);

  Shift& shift_;
  Placement& placement_;
  Scalars& scalars_;
  Accumulators& accumulators_;
  const Cooperation& cooperation_;
  RoundTile& tile_;
  // These are used in loops without the block's last tile: its index, else -1; its values that later stages need; those
  // of the first tiles, in shared memory.
  V last_ = -1;
  std::vector<CachedValue> cached_values_;
  Values last_values_, cached_memory_;
  int rounds_walked_ = 0;
  bool idle_blocks_ = false; // there may be more blocks than tiles
  bool copies_ = false;      // the first tiles are copied to shared memory asynchronously
  bool all_cached_ = false;  // these are all tiles of the block
};

class RowLoop final : Part {
public:
  RowLoop(Context& context, Shift& shift, Placement& placement, Accumulators& accumulators,
          const Cooperation& cooperation, RoundTile& tile, SharedRow& share)
      : Part(context), shift_(shift), placement_(placement), accumulators_(accumulators), cooperation_(cooperation),
        tile_(tile), share_(share) {}
  Values walk(size_t round, const Fold& fold); // one stage; returns the accumulators

private:
  Values walk_ahead(size_t round, const Fold& fold);
  Values walk_between_ends(size_t round, const Fold& fold, int64_t n);

  Shift& shift_;
  Placement& placement_;
  Accumulators& accumulators_;
  const Cooperation& cooperation_;
  RoundTile& tile_;
  SharedRow& share_;
  // With prefetched tiles: the tiles with which the next stage begins, the row's last one and the one before it.
  struct {
    std::vector<ScalarId> last, before;
    Values last_tiles, before_tiles;
  } resident_;
};

} // namespace tessera::block
