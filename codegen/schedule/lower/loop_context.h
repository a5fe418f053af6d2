// What all parts of the lowering to loops share, private to the folder: the schedule, how axes are walked, and the
// values that are known.
#pragma once
#include "codegen/schedule/lower/kernel_context.h"
#include "codegen/schedule/lower/memo.h"

namespace tessera {

namespace loops {

using V = tile::ValueId;
using Values = std::vector<V>;

struct Context : KernelContext {
  // `online`: of a schedule that folds so, empty for others; `domain` has the stages that follow.
  Context(const Graph& graph, const LoopNest& nest, const Domain& domain, OnlineSums online, const Schedule& schedule,
          const std::string& name);

  const Schedule& schedule;
  Memo memo;
  // How axes are walked.
  int tile_axis = -1;                   // index of axis
  int cross_axis = -1;                  // Tiled2D: the axis that a block is walked along
  int middle = -1;                      // outer axis with a loop of its own
  std::vector<size_t> prefix, row_axes; // outer axes flattened into a point; row axes, the tile axis last
  int vector = 1, wide = 1;             // lanes of the narrow and of the full tile
  int64_t chunk = 0;                    // online: elements of the row between two moves of a reference
  int64_t parts = 1;                    // programs that share a row, or columns
  int square = 1;                       // Tiled2D: points of either axis that are taken at a time, 1: of one axis only
  // Of the moment.
  V mask = -1; // of the current tile
  bool in_square = false;
};

// What a part of the lowering names of the context.
class Part : protected KernelPart {
protected:
  explicit Part(Context& c) : KernelPart(c), c_(c), schedule_(c.schedule), memo_(c.memo) {}
  ~Part() = default;

  [[nodiscard]] const Axis& axis(size_t i) const { return d_.axes[i]; }
  [[nodiscard]] const Axis& tile_axis() const { return axis(static_cast<size_t>(c_.tile_axis)); }
  [[nodiscard]] bool is_row_loop() const { return schedule_.kind == ScheduleKind::RowLoop; }
  V splat(V v, int lanes) { return is_tile(v) ? v : b_.broadcast(v, {lanes}); }
  // The loads along the row that a round makes itself.
  [[nodiscard]] std::vector<ScalarId> loads_of_round(size_t s) const;

  Context& c_;
  const Schedule& schedule_;
  Memo& memo_;
};

} // namespace loops
} // namespace tessera
