// SymExprs as tile operations. What has no axis in it is computed on the host and arrives as an i64 parameter; the rest
// is emitted, in scalars where it does not move with a tile axis, as `add(mul(range, stride), scalar)` where it is
// affine.
//
// Tiles have one axis, or two: i along the rows and j along the columns of a [R, C]. Then i*s + j is add([1, C],
// [R, 1]), each of them a range and a scalar, computed once per row and once per column. An axis may lie along two or
// three dimensions of a tile, [steps, lanes / steps / run, run] of consecutive positions.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/tile/tile.h"

namespace tessera {

class SizeEmitter {
public:
  SizeEmitter(tile::Builder& b, const Domain& d)
      : b_(b), d_(d), lane_base_(SymExpr::symbol("tile")), row_base_(SymExpr::symbol("tile_row")) {}

  // The value of an axis here and further in; rebinding replaces.
  void bind(const SymExpr& axis, tile::ValueId value) { bound_[axis.symbol_id()] = value; }
  // `axis` is base + lane from now on, `lanes` of them; unbind_tile ends it.
  void bind_tile(const SymExpr& axis, tile::ValueId base, int lanes) { bind_tile(axis, base, lanes, 0, 1); }
  // The same along dimension `dim` of tiles of `rank`. With steps or run > 1 along `dim` and those after it, row-major.
  // Binding a dimension again replaces its axis.
  void bind_tile(const SymExpr& axis, tile::ValueId base, int lanes, int dim, int rank, int steps = 1, int run = 1);
  void unbind_tile() { tiles_.clear(); }
  // From now on `axis` is place - by: `place` is what is bound to a tile, `by` to a number. docs/schedules.md, odd
  // rows.
  void shift(const SymExpr& axis, const SymExpr& place, const SymExpr& by) { shift_ = {axis, place, by}; }
  [[nodiscard]] int lanes() const { return tiles_.empty() ? 0 : tiles_.back().lanes; }

  // Scalars or tiles, i64 or bool. An expression that does not contain a tile axis yields a scalar, one that does not
  // contain the other one a tile with a dimension of 1.
  tile::ValueId number(const SymExpr& e);
  tile::ValueId condition(const SymExpr& e);
  // Coefficient of the last tile axis in e when e is affine in it.
  [[nodiscard]] std::optional<SymExpr> tile_stride(const SymExpr& e) const;

  [[nodiscard]] const std::vector<SymExpr>& sizes() const { return sizes_; } // of the i64 parameters made, in order
  tile::ValueId constant(int64_t v);
  tile::ValueId op(ScalarOp o, tile::ValueId x, tile::ValueId y); // with the identities of +, - and *

private:
  struct TileAxis {
    SymExpr axis, base; // base: the symbol that its first position is bound to
    int lanes = 0, dim = 0, rank = 1, steps = 1, run = 1;
    [[nodiscard]] int dims() const { return 1 + (steps > 1) + (run > 1); }
  };
  [[nodiscard]] SymExpr shifted(const SymExpr& e) const;
  [[nodiscard]] int varies(const SymExpr& e) const;  // with which tile axes: bits, by dimension
  tile::ValueId positions(int n, int dim, int rank); // 0, 1, ... along a dimension
  [[nodiscard]] bool has_axis(const SymExpr& e) const;
  tile::ValueId parameter(const SymExpr& e);
  tile::ValueId run_starts(const SymExpr& e, const SymExpr& stride, const TileAxis& t);
  std::optional<tile::ValueId> divided_runs(const SymExpr& e);
  [[nodiscard]] bool is_extent(const SymExpr& e) const; // not negative, wherever the tiles stand
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
  struct Shift {
    SymExpr axis, place, by;
  };
  std::optional<Shift> shift_;
};

} // namespace tessera
