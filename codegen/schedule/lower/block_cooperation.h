// Cooperative blocks of a row, private to the folder.
#pragma once
#include "codegen/schedule/lower/block_fold.h"

namespace tessera::block {

class Cooperation final : Part {
public:
  Cooperation(Context& context, Scalars& scalars, Accumulators& accumulators)
      : Part(context), scalars_(scalars), accumulators_(accumulators) {}
  void add_parameters();
  V take_rank(V number, const SymExpr& rows);
  [[nodiscard]] V rank() const { return rank_; }
  [[nodiscard]] V blocks() const { return blocks_; }
  // After a stage: combines this block's partial result with the others to the row's reductions.
  void combine(size_t stage, const Fold& fold, const Values& state);
  void finish();

private:
  struct Mailboxes {
    int64_t slot_words = 0; // 32-bit words of a slot; 0: the stage exchanges nothing
    SymExpr words, start;   // words of one row's mailboxes; offset of the first row's
  };
  [[nodiscard]] bool ends(size_t stage) const;
  [[nodiscard]] int slots() const; // extent of a tile with one element per block
  [[nodiscard]] bool exchanges(size_t stage) const;
  V mailboxes_of_row(const Mailboxes& mailboxes);
  void prefetch_mailbox(const Mailboxes& mailboxes);
  Values exchange(const Fold& fold, size_t stage, const Values& state);
  void store_partial(V workspace, V part);
  Values load_partials(const Fold& fold, size_t stage);

  Scalars& scalars_;
  Accumulators& accumulators_;
  V counters_ = -1, mailboxes_ = -1, row_ = -1, rank_ = -1, blocks_ = -1;
  std::vector<Values> workspaces_;   // by stage, one pointer per value of its state
  std::vector<Mailboxes> exchanged_; // by stage
};

} // namespace tessera::block
