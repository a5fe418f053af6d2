// A block plan as the numbers of Schedule::config and back: what a tuner varies, writes down, and gets the same kernel
// from again. Private to the folder.
#pragma once
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/tuned.h"

namespace tessera {

// Calls f(name, number) for each number of a plan, by its name in Schedule::config. A new number of BlockPlan gets its
// line here, and with that is recorded, read back and kept by the tuner.
template <class Plan, class F>
void each_number(Plan& p, F&& f) {
  f("rows", p.rows);
  f("columns", p.columns);
  f("warps", p.warps);
  f("turns", p.turns);
  f("min_blocks", p.min_blocks);
  f("loop", p.loop);
  f("steps", p.steps);
  f("run", p.run);
  f("ahead", p.ahead);
  f("reads", p.reads);
  f("shift", p.shift);
  f("staged", p.staged);
  f("downward", p.downward);
  f("streaming", p.streaming);
  f("keep", p.keep);
  f("copied", p.copied);
  f("programs", p.programs);
  f("most_members", p.most_members);
  f("whole_branch", p.whole_branch);
  f("split", p.split);
  f("window", p.window);
  f("outputs", p.outputs);
  f("outer_window", p.outer_window);
  f("outer_outputs", p.outer_outputs);
  f("taps", p.taps);
}

// Writes all of the plan but its conditions into its schedule's config: each_number, and "row_axes" and "column_axes",
// bit sets of the domain's axes after the split.
void write_config(BlockPlan& plan);

// The plan of a complete config. Nothing where the numbers make no plan of this domain.
[[nodiscard]] std::optional<BlockPlan> plan_of(const BlockFacts& facts, const Schedule& schedule);

// The plan of a tuned schedule, with the conditions under which it is good and right. Nothing where it fits no size.
[[nodiscard]] std::optional<BlockPlan> tuned_plan(const BlockFacts& facts, const TunedSchedule& tuned);

} // namespace tessera
