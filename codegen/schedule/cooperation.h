// Cooperative blocks (tile/cooperation.h): how many share a row, or columns, whether they wait for each other, and what each
// caches. Private to the folder.
#pragma once
#include "codegen/schedule/block_facts.h"

namespace tessera {

// What follows from the tile of a schedule, its alignment peel, cached tiles and number of blocks.
struct Cooperative {
  SymExpr blocks_per_row; // over sizes
  int64_t max_blocks_per_row = 1;
  bool grid_barrier = false; // they wait for each other
  bool mailboxes = false;    // and exchange partial results by messages
};
// Blocks of `threads`, of which `resident` are to be on a multiprocessor, with tiles of `columns` and `each` elements of
// a thread. Blocks that wait read at most `partials` partial results.
struct ColumnTeam {
  int64_t threads, each, columns, resident, partials;
};
// Blocks of `threads`, of which `resident` are to be on a multiprocessor (0: any), with `each` elements of a thread.
struct RowTeam {
  int64_t threads, each, resident;
  int64_t max_blocks; // of the grid; 0: as many for each row as hold it
  int alignment_peel;
  bool loop;    // or a tile each
  bool vectors; // rows, or with a peel their tiles, begin at whole accesses
};

class Sharing {
public:
  Sharing(const BlockFacts& facts, bool online);
  [[nodiscard]] Cooperative cooperative(const Schedule& schedule) const;
  [[nodiscard]] Schedule column_team(const Placement& placement, const ColumnTeam& team) const;
  [[nodiscard]] Schedule row_team(const RowTeam& team) const;
  // How many partial results a block that waits has registers for.
  [[nodiscard]] int64_t most_partials(int64_t threads) const;

private:
  [[nodiscard]] int64_t most_told(const Schedule& s, const SymExpr& blocks_per_row) const;
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
  size_t states_ = 1;        // numbers of a row that a stage folds, at most
  int64_t state_bytes_ = 4;  // and what they take
  int64_t cached_bytes_ = 0; // of an element, that stages after the first need of it
};

// Groups of columns, each of which is shared by blocks.
[[nodiscard]] SymExpr column_teams(const BlockFacts& facts, const Schedule& schedule);

} // namespace tessera
