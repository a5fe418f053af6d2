// The step that a planner is at, so that a failure can be planned around: merging two units, or making something of
// nodes. Planning is deterministic, so merges have the same numbers in another attempt, up to the first that is
// refused.
#pragma once
#include "graph/ir/graph.h"
#include <exception>
#include <set>
#include <utility>
#include <vector>

namespace tessera::fusion {

struct Work {
  int merge = -1; // number of the merge, in the order in which they are tried; -1: none
  std::vector<NodeId> nodes;
};

class WorkInHand {
public:
  // `refused`: numbers of merges that failed in earlier attempts.
  explicit WorkInHand(std::set<int> refused) : refused_(std::move(refused)) {}
  // The innermost work; after an exception, that which it left.
  [[nodiscard]] const Work& now() const { return now_; }
  [[nodiscard]] int next_merge() { return merges_++; }
  [[nodiscard]] bool failed_before() const { return refused_.contains(now_.merge); }

  // While it exists, the work is in hand.
  class Doing {
  public:
    Doing(WorkInHand& hand, Work work) : hand_(hand), before_(std::exchange(hand.now_, std::move(work))) {}
    ~Doing() {
      if (std::uncaught_exceptions() == exceptions_) hand_.now_ = std::move(before_);
    }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;

  private:
    WorkInHand& hand_;
    Work before_;
    int exceptions_ = std::uncaught_exceptions();
  };

private:
  std::set<int> refused_;
  int merges_ = 0;
  Work now_;
};

} // namespace tessera::fusion
