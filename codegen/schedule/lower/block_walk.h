// Rounds over the row, or over a program's tiles of it; private to the folder.
#pragma once
#include "codegen/schedule/kept.h"
#include "codegen/schedule/lower/block_fold.h"
#include "codegen/schedule/lower/block_place.h"
#include "codegen/schedule/lower/block_team.h"

namespace tessera::block {

// One tile of a round.
class RoundTile final : Part {
public:
  RoundTile(Context& context, Shift& shift, Placement& placement, Scalars& scalars, Accumulators& accumulators)
      : Part(context), shift_(shift), placement_(placement), scalars_(scalars), accumulators_(accumulators) {}
  Values body(const Stage& stage, const Fold& fold, const Values& accumulators);
  [[nodiscard]] bool plain_load(ScalarId id) const;
  [[nodiscard]] std::vector<ScalarId> streams(const Stage& stage) const;
  // What the tile at `at` has of `loads`; masked where asked, or, fetched, where the row begins or ends in it.
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

// block_share.cpp: which tiles of the row are this program's, and what is kept of them between rounds
class SharedRow final : Part {
public:
  SharedRow(Context& context, Shift& shift, Placement& placement, Scalars& scalars, Accumulators& accumulators,
            const Team& team, RoundTile& tile)
      : Part(context), shift_(shift), placement_(placement), scalars_(scalars), accumulators_(accumulators),
        team_(team), tile_(tile) {}
  void begin();
  [[nodiscard]] bool has_begun() const { return last_ >= 0; }
  Values walk(const Stage& stage, const Fold& fold);

private:
  [[nodiscard]] std::optional<int64_t> tiles_of_each(const SymExpr& count) const;
  V tile_base(V i);
  V kept_offset(V i);
  V raw(const KeptValue& k);
  void recall(const KeptValue& k, V v);

  Shift& shift_;
  Placement& placement_;
  Scalars& scalars_;
  Accumulators& accumulators_;
  const Team& team_;
  RoundTile& tile_;
  // Of loops that leave out the program's last tile: its number, else -1; what later rounds need of it; the same of the
  // first tiles, in shared memory.
  V last_ = -1;
  std::vector<KeptValue> kept_values_;
  Values kept_last_, kept_memory_;
  int rounds_walked_ = 0;
  bool idle_members_ = false; // there may be more members than tiles
  bool copies_ = false;       // the first tiles are copied to shared memory
  bool all_kept_ = false;     // and are all that there are
};

class Walk final : Part {
public:
  Walk(Context& context, Shift& shift, Placement& placement, Accumulators& accumulators, const Team& team,
       RoundTile& tile, SharedRow& share)
      : Part(context), shift_(shift), placement_(placement), accumulators_(accumulators), team_(team), tile_(tile),
        share_(share) {}
  Values walk(size_t round, const Fold& fold); // one round: accumulators

private:
  Values walk_ahead(size_t round, const Fold& fold);
  Values walk_between_ends(size_t round, const Fold& fold, int64_t n);

  Shift& shift_;
  Placement& placement_;
  Accumulators& accumulators_;
  const Team& team_;
  RoundTile& tile_;
  SharedRow& share_;
  // Walks that load ahead: what the next round begins with, the last tile of the row and the one before it.
  struct {
    std::vector<ScalarId> last, before;
    Values last_tiles, before_tiles;
  } kept_;
};

} // namespace tessera::block
