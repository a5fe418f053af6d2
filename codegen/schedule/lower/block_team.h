// Programs that share a row, private to the folder.
#pragma once
#include "codegen/schedule/lower/block_fold.h"

namespace tessera::block {

class Team final : Part {
public:
  Team(Context& context, Scalars& scalars, Accumulators& accumulators)
      : Part(context), scalars_(scalars), accumulators_(accumulators) {}
  void add_parameters();
  [[nodiscard]] size_t parameters() const { // that it has added
    return out_.workspaces.size() + (counters_ < 0 ? 0 : 1) + (boxes_ < 0 ? 0 : 1);
  }
  V take_member(V number, const SymExpr& teams);
  [[nodiscard]] V member() const { return member_; }
  [[nodiscard]] V members() const { return members_; }
  // After a round: from what this program has folded to what the row's reductions are.
  void settle(size_t stage, const Fold& fold, const Values& state);
  void finish();

private:
  struct Boxes {
    int64_t message = 0;  // words; 0: nothing is exchanged
    SymExpr words, start; // of a team's boxes; where the first team's begin
  };
  [[nodiscard]] bool ends(size_t stage) const;
  [[nodiscard]] int places() const; // of a tile with an element for each member
  [[nodiscard]] bool exchanges(size_t stage) const;
  V team_boxes(const Boxes& boxes);
  void expect_messages(const Boxes& boxes);
  Values exchange(const Fold& fold, size_t stage, const Values& state);
  void leave(V workspace, V part);
  Values gather(const Fold& fold, size_t stage);

  Scalars& scalars_;
  Accumulators& accumulators_;
  V counters_ = -1, boxes_ = -1, team_ = -1, member_ = -1, members_ = -1;
  std::vector<Values> workspaces_; // by stage, a pointer for each number of its state
  std::vector<Boxes> exchanged_;   // by stage
};

} // namespace tessera::block
