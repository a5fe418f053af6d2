// What all parts of the lowering to loops share, private to the folder: the nest and its schedule, the kernel that is
// being written, how axes are walked, and the values that are known.
#pragma once
#include "codegen/schedule/choose.h"
#include "codegen/schedule/lower/memo.h"
#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/needs.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"

namespace tessera {

namespace loops {

using V = tile::ValueId;
using Values = std::vector<V>;

struct Context {
  // `online`: of a schedule that folds so, empty for others; `domain` has the stages that follow.
  Context(const Graph& graph, const LoopNest& nest, const Domain& domain, OnlineSums online, const Schedule& schedule,
          const std::string& name, bool exact_division);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Graph& graph;
  const LoopNest& nest;
  const Domain& d;
  const OnlineSums online;
  const Schedule& schedule;
  ScheduledKernel out;
  tile::Builder b;
  SizeEmitter sizes;
  const Stages stages;
  const Needs needs;
  Memo memo;
  Values pointers; // by buffer
  // How axes are walked.
  int tile_axis = -1;                   // index of axis
  int cross_axis = -1;                  // Tiled2D: the axis that a block is walked along
  int middle = -1;                      // outer axis with a loop of its own
  std::vector<size_t> prefix, row_axes; // outer axes flattened into a point; row axes, the tile axis last
  int vector = 1, wide = 1;             // lanes of the narrow and of the full tile
  int64_t chunk = 0;                    // online: elements of the row between two moves of a reference
  int64_t parts = 1;                    // programs that share a row, or columns
  int square = 1;                       // Tiled2D: points of either axis that are taken at a time, 1: of one axis only
  const bool exact_division;
  bool row_may_be_empty = false;
  // Of the moment.
  V mask = -1;    // of the current tile
  int round = -1; // of the row loops being emitted; -1 outside
  int known = 0;  // rounds whose reductions are known
  bool in_square = false;
};

// What a part of the lowering names of the context.
class Part {
public:
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

protected:
  explicit Part(Context& c)
      : c_(c), graph_(c.graph), nest_(c.nest), d_(c.d), online_(c.online), schedule_(c.schedule), stages_(c.stages),
        out_(c.out), b_(c.b), sizes_(c.sizes), memo_(c.memo) {}
  ~Part() = default;

  [[nodiscard]] const ScalarNode& node(ScalarId id) const { return nest_.dag[id]; }
  [[nodiscard]] const Axis& axis(size_t i) const { return d_.axes[i]; }
  [[nodiscard]] const Axis& tile_axis() const { return axis(static_cast<size_t>(c_.tile_axis)); }
  [[nodiscard]] bool is_row_loop() const { return schedule_.kind == ScheduleKind::RowLoop; }
  [[nodiscard]] bool is_tile(V v) const { return b_.kernel().type(v).is_tile(); }
  V splat(V v, int lanes) { return is_tile(v) ? v : b_.broadcast(v, {lanes}); }
  V op(ScalarOp o, V x, V y) { return sizes_.op(o, x, y); }
  // The loads along the row that a round makes itself.
  [[nodiscard]] std::vector<ScalarId> loads_of_round(size_t s) const;

  Context& c_;
  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const OnlineSums& online_;
  const Schedule& schedule_;
  const Stages& stages_;
  ScheduledKernel& out_;
  tile::Builder& b_;
  SizeEmitter& sizes_;
  Memo& memo_;
};

} // namespace loops
} // namespace tessera
