// Parts of decompositions that read a tensor at positions which they compute: resampling, grids, regions, windows.
#pragma once
#include "graph/ops/formulas.h"

namespace tessera::ops {

// x[i0, i1, ...]: one i64 tensor of positions per dimension of x, broadcast against each other. Outside of x along one of
// the dimensions `zero` the element is 0; along the others it is an error of the input.
inline ValueId gather_at(B& b, ValueId x, std::vector<ValueId> positions, Ints zero = {}) {
  positions.insert(positions.begin(), x);
  return b.op("gather_at", std::move(positions), {{"zero", std::move(zero)}});
}

// A shape of `rank` dimensions of size 1, but for dimension `axis`.
inline SymShape along(const SymExpr& size, size_t rank, size_t axis) {
  SymShape shape(rank, SymExpr(1));
  shape[axis] = size;
  return shape;
}
// 0, 1, ... along dimension `axis` of `rank` dimensions; i64.
inline ValueId ramp(B& b, const SymExpr& size, size_t rank, size_t axis) {
  return iota(b, along(size, rank, axis), static_cast<int64_t>(axis));
}
inline ValueId ramp(B& b, const SymExpr& size, size_t rank, size_t axis, DType dtype) {
  return cast(b, ramp(b, size, rank, axis), dtype);
}

inline ValueId clamp(B& b, ValueId x, const B::Arg& low, const B::Arg& high) { return min(b, max(b, x, low), high); }
inline ValueId ceil(B& b, ValueId x) { return b.op1("ceil", x); }
inline ValueId index(B& b, ValueId x) { return cast(b, x, DType::I64); }
inline ValueId all_of(B& b, std::vector<ValueId> conditions) {
  ValueId all;
  for (ValueId c : conditions) all = all.valid() ? logical_and(b, all, c) : c;
  return all;
}

// The type that positions are computed in: f64 where the tensor that gives them is, else f32.
[[nodiscard]] inline DType position_type(DType d) { return d == DType::F64 ? DType::F64 : DType::F32; }

} // namespace tessera::ops
