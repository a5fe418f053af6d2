// Parts of views and of the writes that undo them: ranges, diagonals, moved dimensions. A `put` yields a tensor with
// some of its elements replaced: put_slice(x, slice(x, r), r) is x.
#pragma once
#include "frontend/fx/call.h"

namespace tessera::fx {

// start, start + step, ... : `size` elements of a dimension.
struct Range {
  SymExpr start, size;
  int64_t step = 1;
};
// Python's slice of a dimension of size n; a bound that is left out is the dimension's end. step > 0.
[[nodiscard]] Range slice_range(const ShapeEnv& env, const SymExpr& n, const std::optional<SymExpr>& start,
                                const std::optional<SymExpr>& end, int64_t step);
// An index of a dimension of size n; a negative one counts from the end.
[[nodiscard]] SymExpr wrapped(const ShapeEnv& env, const SymExpr& index, const SymExpr& n);

[[nodiscard]] ValueId take_range(ops::B& b, ValueId x, int64_t axis, const Range& r);
// `source` has x's shape but for the axis, which has r.size.
[[nodiscard]] ValueId put_range(ops::B& b, ValueId x, ValueId source, int64_t axis, const Range& r);

// Dimensions dim1 and dim2 become one, the last: elements with dim2's index = dim1's + offset.
[[nodiscard]] ValueId take_diagonal(ops::B& b, ValueId x, int64_t offset, int64_t dim1, int64_t dim2);
[[nodiscard]] ValueId put_diagonal(ops::B& b, ValueId x, ValueId source, int64_t offset, int64_t dim1, int64_t dim2);

// i64 tensor of `sizes`: where each element lies in memory, in elements.
[[nodiscard]] ValueId memory_index(ops::B& b, const SymShape& sizes, const SymShape& strides, const SymExpr& offset);
// Dimensions in the order of memory, outermost first, if the strides are those of a contiguous tensor whose dimensions
// are permuted; nothing otherwise.
[[nodiscard]] std::optional<Ints> dense_order(const ShapeEnv& env, const SymShape& shape, const SymShape& strides);

[[nodiscard]] Ints inverse(const Ints& perm);
// Permutation that brings dimension `from` to position `to`.
[[nodiscard]] Ints moved(int rank, int64_t from, int64_t to);
// A scalar as a vector of one element; anything else as it is.
[[nodiscard]] ValueId as_vector(ops::B& b, ValueId x);
// x repeated along dimensions of size 1 to `shape`, after leading dimensions of size 1.
[[nodiscard]] ValueId broadcast_to(ops::B& b, ValueId x, const SymShape& shape);
[[nodiscard]] ValueId zeros(ops::B& b, DType dtype, const SymShape& shape);
[[nodiscard]] ValueId filled(ops::B& b, ValueId scalar, const SymShape& shape);

} // namespace tessera::fx
