// State shared by all parts of the lowering to loops, private to the folder: the schedule, the traversal of axes, and
// known values.
#pragma once
#include "codegen/schedule/lower/kernel_context.h"
#include "codegen/schedule/lower/memo.h"

namespace tessera {

namespace loops {

using V = tile::ValueId;
using Values = std::vector<V>;

struct Context : KernelContext {
  // `online`: sums that the schedule folds online, else empty; `domain` has the stages that follow.
  Context(const Graph& graph, const LoopNest& nest, const Domain& domain, OnlineSums online, const Schedule& schedule,
          const std::string& name);

  const Schedule& schedule;
  Memo memo;
  // Traversal of axes.
  int tile_axis = -1;                   // index of axis
  int cross_axis = -1;                  // Tiled2D: the axis along which a block is traversed
  int middle = -1;                      // outer axis with a separate loop
  std::vector<size_t> prefix, row_axes; // outer axes flattened into a point; row axes, the tile axis last
  int vector = 1, wide = 1;             // lanes of the narrow and of the full tile
  int64_t chunk = 0;                    // online: elements of the row between two updates of a reference
  int64_t parts = 1;                    // cooperative programs of a row, or of columns
  int square = 1;                       // Tiled2D: indices of both axes per step; 1: of one axis only
  // State during emission.
  V mask = -1; // of the current tile
  bool in_square = false;
};

// Base of the parts: short names for the context's members.
class Part : protected KernelPart {
protected:
  explicit Part(Context& c) : KernelPart(c), c_(c), schedule_(c.schedule), memo_(c.memo) {}
  ~Part() = default;

  [[nodiscard]] const Axis& axis(size_t i) const { return d_.axes[i]; }
  [[nodiscard]] const Axis& tile_axis() const { return axis(static_cast<size_t>(c_.tile_axis)); }
  [[nodiscard]] bool is_row_loop() const { return schedule_.kind == ScheduleKind::RowLoop; }
  V splat(V v, int lanes) { return is_tile(v) ? v : b_.broadcast(v, {lanes}); }
  // Loads along the row that a stage makes itself.
  [[nodiscard]] std::vector<ScalarId> loads_of_round(size_t s) const;

  Context& c_;
  const Schedule& schedule_;
  Memo& memo_;
};

} // namespace loops
} // namespace tessera
