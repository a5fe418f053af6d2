// What a team is (tile/cooperation.h), for the planners of rows and of columns: the rounds of a nest, the members of a plan's
// teams, and what they keep. Private to the folder.
#pragma once
#include "codegen/schedule/block_facts.h"

namespace tessera {

class TeamShares {
public:
  TeamShares(const BlockFacts& facts, bool online);

  // Whether there is anything to fold, so that teams are of use.
  [[nodiscard]] bool folds() const { return rounds_ > 0; }
  [[nodiscard]] bool waits() const { return waits_; }
  [[nodiscard]] int64_t most_partials(int64_t threads) const;
  // What `team` of a plan is, whether its members wait, and what follows from how much of their row they keep.
  void share(BlockPlan& p) const;
  [[nodiscard]] BlockPlan column_team(const AxisGroups& groups, const ColumnTeam& t) const;
  [[nodiscard]] BlockPlan row_team(const RowTeam& t) const;

protected:
  // Tiles of `elements` that fit a block's share of shared memory, beside what its warps `exchange`.
  [[nodiscard]] int kept_tiles(int64_t elements, int64_t resident, int64_t exchange = BlockFacts::kExchangeBytes) const;

  const BlockFacts& f_;
  const bool online_;
  const SymExpr row_, points_;
  const int64_t programs_; // multiprocessors
  bool waits_ = false;
  size_t states_ = 1;       // numbers of a row that a round folds, at most
  int64_t state_bytes_ = 4; // and what they take
  size_t rounds_ = 0;       // over the row, that of the elements included
  int kept_bytes_ = 0;      // of an element, that rounds after the first need of it

private:
  void find_rounds();
  [[nodiscard]] int64_t most_told(const BlockPlan& p) const;
  void share_columns(BlockPlan& p) const;
  void share_row(BlockPlan& p) const;
  void keep_fitting(BlockPlan& p, int64_t resident) const;
  [[nodiscard]] int64_t exchange(const BlockPlan& p) const;
};

} // namespace tessera
