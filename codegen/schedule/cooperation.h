// Cooperative blocks (tile/cooperation.h): how many share a row, or columns, whether they wait for each other, and what
// each caches. Private to the folder.
#pragma once
#include "codegen/schedule/block_facts.h"

namespace tessera {

// Derived from the tile of a schedule, its alignment peel, cached tiles and number of blocks.
struct Cooperative {
  SymExpr blocks_per_row; // expression over sizes
  int64_t max_blocks_per_row = 1;
  bool grid_barrier = false; // the blocks wait for each other
  bool mailboxes = false;    // and exchange partial results through mailboxes
};
// Blocks of `threads` threads, `resident` per multiprocessor, with tiles of `columns` and `each` elements per thread.
// Waiting blocks read at most `partials` partial results.
struct CooperativeColumns {
  int64_t threads, each, columns, resident, partials;
};
// Blocks of `threads` threads, `resident` per multiprocessor (0: any), with `each` elements per thread.
struct CooperativeRows {
  int64_t threads, each, resident;
  int64_t max_blocks; // blocks of the grid; 0: as many per row as hold it in tiles
  int alignment_peel;
  bool loop;    // blocks loop over tiles; else one tile per block
  bool vectors; // rows, or with a peel their tiles, are aligned to vector accesses
};

class Sharing {
public:
  Sharing(const BlockFacts& facts, bool online);
  [[nodiscard]] Cooperative cooperative(const Schedule& schedule) const;
  [[nodiscard]] Schedule cooperative_columns(const Placement& placement, const CooperativeColumns& parameters) const;
  [[nodiscard]] Schedule cooperative_rows(const CooperativeRows& parameters) const;
  // Partial results for which a waiting block has registers.
  [[nodiscard]] int64_t max_partials(int64_t threads) const;

private:
  [[nodiscard]] int64_t max_mailbox_blocks(const Schedule& s, const SymExpr& blocks_per_row) const;
  [[nodiscard]] SymExpr blocks_of_columns(const Schedule& s) const;
  [[nodiscard]] SymExpr blocks_of_row(const Schedule& s) const;
  void cache_fitting(Schedule& s, int64_t resident) const;
  [[nodiscard]] int64_t exchange(const Schedule& s, const Cooperative& c) const;
  [[nodiscard]] int cached_tiles(int64_t elements, int64_t resident,
                                 int64_t exchange = BlockFacts::kExchangeBytes) const;

  const BlockFacts& f_;
  const bool online_;
  const SymExpr row_, points_;
  bool waits_ = false;
  size_t states_ = 1;        // most values per row of a stage's state
  int64_t state_bytes_ = 4;  // their bytes
  int64_t cached_bytes_ = 0; // bytes per element that stages after the first need
};

// Number of groups of columns; the blocks of a group cooperate.
[[nodiscard]] SymExpr column_groups(const BlockFacts& facts, const Schedule& schedule);

} // namespace tessera
