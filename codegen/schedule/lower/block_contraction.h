// Contractions (contraction.h), private to the folder: a loop over the depth that multiplies tiles of both factors.
#pragma once
#include "codegen/schedule/contraction.h"
#include "codegen/schedule/lower/block_place.h"
#include "codegen/schedule/lower/block_values.h"

namespace tessera::block {

class Product final : Part {
public:
  Product(Context& context, Placement& placement, Scalars& scalars)
      : Part(context), placement_(placement), scalars_(scalars) {}
  // Takes the blocks of both sides from a program's index, of the rows those of a cluster: the blocks of `group_rows` tiles of
  // rows follow each other, column by column, so that they find what they read in the level-2 cache. Returns the index of the
  // point.
  V take_blocks(V number, const SymExpr& row_blocks, const SymExpr& column_blocks, bool points);
  // The number of groups of rows, 0 without any. Finds the group of the program's tile of rows, and where they begin and
  // end.
  [[nodiscard]] SymExpr groups() const;
  void take_group();
  void body();
  // Programs that share the sum of a tile (split_k > 1), in this order. Parameters: partial sums, f32 [tiles, segments,
  // R, C], and a counter for each tile. The number of programs for so many tiles. Takes the segment from a program's
  // index; returns the index of the tile.
  void add_parameters();
  SymExpr share(const SymExpr& tiles);
  V take_segment(V number);

private:
  struct Dimension { // of memory: 0 <= index < size
    SymExpr index, size;
    size_t next = 0;     // dimension of the buffer behind it
    bool inside = false; // the bounds always hold
  };
  struct MemoryBounds {
    uint64_t axes = 0;                 // of the tile, whose extents they replace
    std::vector<Dimension> dimensions; // which no extent bounds
    bool is_predicate = false;         // they are the load's predicate
  };
  [[nodiscard]] MemoryBounds bounds_of_memory(ScalarId id) const;
  void bound_by(const MemoryBounds& memory, ScalarId id);
  V end_of(const Contraction::Groups& groups, V group, V exists);
  void hoist(ScalarId factor);
  V zero_of(DType dtype);
  V factor(ScalarId id, bool left, DType dtype, V base);
  Values add_products(std::span<const V> left, std::span<const V> right, V none, std::span<const V> sums);
  V total(const Values& sums);
  V partial_offsets(V segment);
  V sum_of_segments(DType dtype);
  void finish(ScalarId fold, V sum);

  Placement& placement_;
  Scalars& scalars_;
  SymExpr tiles_;
  V partials_ = -1, counters_ = -1, tile_ = -1, segment_ = -1;
  V multiplies_ = -1; // true if the tile has rows of a group
};

} // namespace tessera::block
