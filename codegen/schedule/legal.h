// Whether a schedule is right for a nest on a GPU, and what follows from both: the only place that refuses a schedule.
// What is enumerated, chosen, read from a record or given by hand goes through it.
#pragma once
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/tuned.h"
#include <span>

namespace tessera {

struct Legal {
  Schedule schedule;
  std::string refusal; // why it is not legal: "a row of 4096 does not fit a tile of 2048"; empty: it is
  AxisGroups groups;   // of the domain, after split_axis is split
  // The number of cooperative blocks that share a row, or columns, an expression over sizes, at least 1 where the
  // conditions hold, and at most max_blocks_per_row. Nothing: a row is one block's.
  std::optional<SymExpr> blocks_per_row;
  int64_t max_blocks_per_row = 1;
  bool grid_barrier = false; // they wait for each other: all must run at a time, or another kernel is launched
  bool warpgroups = false;   // warpgroups may multiply a contraction's tiles, which bulk copies bring
  bool mailboxes = false;    // waiting blocks of a row exchange partial results by messages
  std::vector<SizeCondition> conditions; // under which it is right, promises about the domain's sizes
  explicit operator bool() const { return refusal.empty(); }
};

// `extents`: by axis of the domain, for which the schedule is meant. Where more is needed for it to be right, a row that
// fits or an extent that is divisible, the conditions say so.
[[nodiscard]] Legal legal(const BlockFacts& facts, const Schedule& schedule, std::span<const ExtentRange> extents);

// The ranges that extents at these sizes stand for: bucket_of, without divisibility where nothing is contiguous along the
// axis, and with no more of it than holds at these sizes as a condition (of a product it is one on a single factor).
[[nodiscard]] std::vector<ExtentRange> ranges_of(const BlockFacts& facts, std::span<const int64_t> extents,
                                                 const CallSizes& sizes);

// Whether a condition holds; makes it known to an environment.
[[nodiscard]] bool holds(std::span<const SizeCondition> conditions, const CallSizes& sizes);
void assume(ShapeEnv& env, const SizeCondition& condition);

} // namespace tessera
