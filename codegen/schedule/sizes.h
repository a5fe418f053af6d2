// SymExprs as tile operations. What has no axis in it is computed on the host and arrives as an i64 parameter; the rest
// is emitted, in scalars where it does not move with the tile axis, as `add(mul(range, stride), scalar)` where it is
// affine.
#pragma once
#include "codegen/schedule/domain.h"
#include "codegen/tile/tile.h"

namespace tessera {

class SizeEmitter {
public:
  SizeEmitter(tile::Builder& b, const Domain& d) : b_(b), d_(d), lane_base_(SymExpr::symbol("tile")) {}

  // The value of an axis here and further in; rebinding replaces.
  void bind(const SymExpr& axis, tile::ValueId value) { bound_[axis.symbol_id()] = value; }
  // `axis` is base + lane from now on, `lanes` of them; unbind_tile ends it.
  void bind_tile(const SymExpr& axis, tile::ValueId base, int lanes);
  void unbind_tile() { lanes_ = 0; }
  [[nodiscard]] int lanes() const { return lanes_; }

  // Scalars or tiles, i64 or bool. An expression that does not contain the tile axis yields a scalar.
  tile::ValueId number(const SymExpr& e);
  tile::ValueId condition(const SymExpr& e);
  // Coefficient of the tile axis in e when e is affine in it.
  [[nodiscard]] std::optional<SymExpr> tile_stride(const SymExpr& e) const;

  [[nodiscard]] const std::vector<SymExpr>& sizes() const { return sizes_; } // of the i64 parameters made, in order
  tile::ValueId constant(int64_t v);
  tile::ValueId op(ScalarOp o, tile::ValueId x, tile::ValueId y); // with the identities of +, - and *

private:
  [[nodiscard]] bool varies(const SymExpr& e) const; // with the tile axis
  [[nodiscard]] bool has_axis(const SymExpr& e) const;
  tile::ValueId parameter(const SymExpr& e);
  tile::ValueId generic(const SymExpr& e);
  tile::ValueId compare(const SymExpr& e);
  [[nodiscard]] std::optional<int64_t> constant_of(tile::ValueId v) const;

  tile::Builder& b_;
  const Domain& d_;
  std::unordered_map<uint64_t, tile::ValueId> bound_; // by symbol id; looked up only
  std::unordered_map<SymExpr, tile::ValueId> parameters_;
  std::unordered_map<tile::ValueId, int64_t> constants_;
  std::vector<SymExpr> sizes_;
  SymExpr tile_axis_, lane_base_;
  int lanes_ = 0;
};

} // namespace tessera
