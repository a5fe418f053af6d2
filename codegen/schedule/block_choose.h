// Ways in which blocks of threads run a nest: which axes a tile has, how large it is, and for which sizes. Analytic;
// docs/schedules.md explains the choice with examples.
#pragma once
#include "codegen/schedule/block_space.h"
#include "codegen/schedule/schedule.h"

namespace tessera {

class TunedSchedules;

// One kernel of a nest. Its numbers are listed in each_number (block_config.h).
struct BlockPlan {
  Schedule schedule;         // kind, config, why
  AxisGroups groups;         // of the domain, after `split`
  int split = -1;            // axis that is cut into vectors of `columns` elements first; -1: none
  int rows = 1, columns = 1; // of the tile, powers of two; 1: a scalar
  int warps = 4;
  int turns = 1;      // tiles of rows that a program takes one after the other, all of their loads under way at once
  int min_blocks = 0; // that are to be resident on a multiprocessor, which bounds registers; 0: as it comes
  // Along the dimension that row axes lie along: the whole row in the tile, or a loop over it.
  bool loop = false;
  // Without reductions: columns are runs of so many, and taken apart once a run. Of a loop: what one thread has of the
  // tile, `steps` pieces of `run` neighbours, is folded before it meets the accumulators, which are then fewer. Powers
  // of two; run divides the row but where that is shifted.
  int steps = 1, run = 1;
  // Of a loop: a tile is loaded while the one before it is folded, and the next round begins with the tiles that this
  // one has read last.
  bool ahead = false;
  // Of inputs with elements of their own for each point.
  tile::Caching reads = tile::Caching::Normal;
  // Rows that begin at any alignment: their tiles begin at the multiple of so many elements at or below the row's start
  // (block_shift.cpp). A power of two; 1: at the row's start. Of tiles with staged operands each row of the tile does.
  int shift = 1;
  // Of shifted rows: where a thread's accesses may begin in the tile. `shift` may be several of them.
  [[nodiscard]] int aligned_at() const { return run > 1 && (loop || team) ? std::min(run, shift) : shift; }
  // Without reductions: operands that are contiguous along the tile's rows go through shared memory as they lie in
  // memory (block_stage.cpp).
  bool staged = false;
  // Blocks that follow each other stand below each other instead of side by side.
  bool downward = false;
  // Stores tell caches that nobody asks for them soon, so that what is read again stays.
  bool streaming = false;
  // Of a loop with several rounds: so many tiles of a program's share of the row stay in shared memory between rounds.
  int keep = 0;
  // They are copied there, the copies of all of them under way at once (gpu_pipeline.cpp), where loads are what is kept.
  // Of a row that ends with a tile all may be: then no tile is in registers.
  bool copied = false;
  // Programs that share a row, and each take every team-th tile of it: an expression over sizes, at least 1 where the
  // conditions hold. Without a loop, as many as there are tiles. Nothing: a row is one program's.
  std::optional<SymExpr> team;
  int64_t most_members = 1; // what `team` may be at most
  int programs = 0;      // what all teams together have at most, and `team` follows from it; 0, of rows: what holds one
  bool waits = false;    // for others of the team: all programs must run at the same time, or another kernel is taken
  bool messages = false; // in which those of a row that wait tell each other what they have
  // Of windows (block_window.cpp): a thread computes `outputs` consecutive results along the domain's axis `window` and
  // `outer_outputs` along `outer_window` (-1: none), and folds `taps` taps without a loop; a loop over the outermost
  // row axis does the rest. taps == 0: no window.
  int window = -1, outputs = 1;
  int outer_window = -1, outer_outputs = 1;
  int taps = 0;
  // Most blocks lie wholly within the sizes: they take a branch without masks.
  bool whole_branch = false;
  std::vector<SizeCondition> conditions; // all of them promises about `domain`'s sizes
};

// Makes a condition known to an environment.
void assume(ShapeEnv& env, const SizeCondition& condition);

// In order of preference, those of `tuned` first; the last one has no conditions. `wanted`: of its config,
// "exact_division".
[[nodiscard]] std::vector<BlockPlan> plan_blocks(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                 const Target& device, const Schedule& wanted,
                                                 const TunedSchedules* tuned = nullptr);

// The kernel of one plan. Error CodegenError when the tile does not fit the plan's axes.
[[nodiscard]] Result<ScheduledKernel> lower_block(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                  const BlockPlan& plan, const std::string& name);

} // namespace tessera
