// SymExprs as tile operations. Expressions without an axis are evaluated on the host and passed as i64 parameters; the
// others are emitted: as scalars if they do not depend on a tile axis, as `add(mul(range, stride), scalar)` if they are
// affine in it.
//
// Tiles have one axis, or two: i along the rows and j along the columns of [R, C]. Then i*s + j is add([1, C], [R, 1]),
// each a range plus a scalar, computed once per row and once per column. An axis may extend over two or three
// dimensions of a tile, [steps, lanes / steps / run, run], of consecutive positions. Several axes may lie along one
// dimension as a box: of lanes [4, 8], lane l is at l / 8 of the first axis and at l % 8 of the second one.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/tile/tile.h"
#include <span>

namespace tessera {

class SizeEmitter {
public:
  SizeEmitter(tile::Builder& b, const Domain& d)
      : b_(b), d_(d), lane_base_(SymExpr::symbol("tile")), row_base_(SymExpr::symbol("tile_row")) {}

  // Binds an axis to a value in this and inner scopes; binding again replaces it.
  void bind(const SymExpr& axis, tile::ValueId value) { bound_[axis.symbol_id()] = value; }
  // From now on `axis` is base + lane, with `lanes` lanes; unbind_tile ends it.
  void bind_tile(const SymExpr& axis, tile::ValueId base, int lanes) { bind_tile(axis, base, lanes, 0, 1); }
  // The same along dimension `dim` of tiles of `rank`; with steps or run > 1, along `dim` and the dimensions after it,
  // row-major. Binding a dimension again replaces its axis.
  void bind_tile(const SymExpr& axis, tile::ValueId base, int lanes, int dim, int rank, int steps = 1, int run = 1);
  // The same of several axes along one dimension, the last one fastest: lane l is position l of a box of their lanes.
  struct BoxAxis {
    SymExpr axis;
    tile::ValueId base;
    int lanes;
  };
  void bind_box(std::span<const BoxAxis> axes, int dim, int rank);
  void unbind_tile() { tiles_.clear(); }
  // From now on `axis` is place - by: `place` is bound to a tile, `by` to a scalar. docs/schedules.md, odd rows.
  void shift(const SymExpr& axis, const SymExpr& place, const SymExpr& by) { shift_ = {axis, place, by}; }
  // From now on an expression that is affine in the axes of a tile is a sum of positions along each axis, `range + base`,
  // times its stride, and a scalar: where a tile lies in memory can be read off its offsets.
  void keep_positions() { keeps_positions_ = true; }
  [[nodiscard]] int lanes() const { return tiles_.empty() ? 0 : tiles_.back().lanes; }

  // Values are scalars or tiles, i64 or bool. An expression without a tile axis yields a scalar; one without the other
  // axis, a tile with a dimension of 1.
  tile::ValueId number(const SymExpr& e);
  tile::ValueId condition(const SymExpr& e);
  // Coefficient of the last tile axis in e if e is affine in it.
  [[nodiscard]] std::optional<SymExpr> tile_stride(const SymExpr& e) const;

  [[nodiscard]] const std::vector<SymExpr>& sizes() const {
    return sizes_;
  } // expressions of the i64 parameters, in order
  tile::ValueId constant(int64_t v);
  tile::ValueId op(ScalarOp o, tile::ValueId x, tile::ValueId y); // with the identities of +, - and *

private:
  struct TileAxis {
    SymExpr axis, base; // base: the symbol of its first position
    int lanes = 0, dim = 0, rank = 1, steps = 1, run = 1;
    int below = 1, whole = 0; // in a box: lanes of the axes behind it, and of all; 0: no box
    [[nodiscard]] int dims() const { return 1 + (steps > 1) + (run > 1); }
  };
  [[nodiscard]] SymExpr shifted(const SymExpr& e) const;
  [[nodiscard]] int varies(const SymExpr& e) const;  // bit mask of the tile axes on which e depends, by dimension
  tile::ValueId positions(int n, int dim, int rank); // 0, 1, ... along a dimension
  tile::ValueId box_positions(const TileAxis& t);
  [[nodiscard]] bool has_axis(const SymExpr& e) const;
  tile::ValueId parameter(const SymExpr& e);
  tile::ValueId run_starts(const SymExpr& e, const SymExpr& stride, const TileAxis& t);
  std::optional<tile::ValueId> divided_runs(const SymExpr& e);
  std::optional<tile::ValueId> of_positions(const SymExpr& e);
  [[nodiscard]] bool is_extent(const SymExpr& e) const; // true if e is never negative
  tile::ValueId generic(const SymExpr& e);
  tile::ValueId compare(const SymExpr& e);
  [[nodiscard]] std::optional<int64_t> constant_of(tile::ValueId v) const;

  tile::Builder& b_;
  const Domain& d_;
  std::unordered_map<uint64_t, tile::ValueId> bound_; // by symbol id; looked up only
  std::unordered_map<SymExpr, tile::ValueId> parameters_;
  std::unordered_map<tile::ValueId, int64_t> constants_;
  std::vector<SymExpr> sizes_;
  std::vector<TileAxis> tiles_; // by dimension
  SymExpr lane_base_, row_base_;
  bool keeps_positions_ = false;
  struct Shift {
    SymExpr axis, place, by;
  };
  std::optional<Shift> shift_;
};

} // namespace tessera
