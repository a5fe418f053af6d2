// Functions that translations in several files share; none is a translation by itself.
#pragma once
#include "frontend/fx/call.h"

namespace tessera::fx {

// A list argument of one number for each of `count` spatial dimensions; one number stands for all of them, an empty
// list is `fallback`.
[[nodiscard]] Ints spatial(Call& c, std::string_view name, size_t count, const Ints& fallback);

// x with a batch of one where it has none (rank is spatial + 1); `batched` is set to whether it had one.
struct Batched {
  ValueId value;
  bool added = false;
};
[[nodiscard]] Batched with_batch(Call& c, ValueId x, int spatial);
[[nodiscard]] ValueId without_batch(Call& c, ValueId x, const Batched& like);

// Elements k * dilation + q * stride of each spatial dimension, by tap k and element q of a result.
struct Windows {
  std::span<const SymExpr> kernel, sizes; // of taps and of the result
  const Ints &strides, &dilations;
};
// x [N, C, spatial...] as [N, C, kernel 0, sizes 0, kernel 1, sizes 1, ...]. x has all elements that are read.
[[nodiscard]] ValueId windows(Call& c, ValueId x, const Windows& w);

// Matrix product as numpy's matmul, vectors included; operands are of one dtype.
[[nodiscard]] ValueId matrix_product(Call& c, ValueId x, ValueId y);
// x with its last two dimensions exchanged.
[[nodiscard]] ValueId transposed(Call& c, ValueId x);
// x [..., in] times weight [out, in] transposed, plus bias [out] (may be invalid).
[[nodiscard]] ValueId linear(Call& c, ValueId x, ValueId weight, ValueId bias);

// [begin, end)
[[nodiscard]] Ints axis_range(int64_t begin, int64_t end);
// A vector along dimension `axis` of a tensor of `rank` dimensions.
[[nodiscard]] ValueId along(Call& c, ValueId vector, int64_t axis, int rank);
// The cast that does nothing for an invalid value.
[[nodiscard]] ValueId cast_if(Call& c, ValueId v, DType dtype);
// PyTorch's reduction of losses: 0 none, 1 mean, 2 sum, over all dimensions.
[[nodiscard]] ValueId reduced_loss(Call& c, ValueId loss, int64_t reduction);
// Zeros of a shape.
[[nodiscard]] ValueId zeros(Call& c, DType dtype, const SymShape& shape);
// Exponentials divided by their sum along `axis`, in x's dtype; the axis of a scalar is one element.
[[nodiscard]] ValueId softmax(Call& c, ValueId x, int64_t axis, bool logarithm);

// Norm of x's lines along `axis`, which is kept as a dimension of one element. x: f32 or f64.
[[nodiscard]] ValueId norm_along(Call& c, ValueId x, int64_t axis, double order);

// A layer normalization over the dimensions from `axis` on; scale and bias may be invalid.
[[nodiscard]] ValueId layer_norm(Call& c, ValueId x, int64_t axis, ValueId scale, ValueId bias, double epsilon);

// The operand of a reduction of the call: given("dtype") or x's own.
[[nodiscard]] DType requested_dtype(Call& c, DType fallback);

} // namespace tessera::fx
