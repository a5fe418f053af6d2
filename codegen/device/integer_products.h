// Products of small integers by libraries of floating point, exactly.
//
// The idea. Quantised models multiply integers of 8 bits and sum in i32, which no library of ours takes. While every sum
// stays below 2^24, f32 holds it exactly, in whatever order it is summed: 514 products of u8 and i8. So the operands
// become floats, and a longer sum is the i32 sum of pieces along the summed dimension.
//
//   %p = matmul(%x, %w) : i32[b, 32]          x = cast(u8) - zero, |x| <= 255; w = cast(i8), |w| <= 128; 1000 products
//   %p = add(cast(matmul(cast(%x[:, :500]), cast(%w[:500]))), cast(matmul(cast(%x[:, 500:]), cast(%w[500:]))))
//
// Operands pass through f16, which holds them exactly: constants stay half as large as in f32, and a device whose
// products take f16 and sum in f32 reads them so.
#pragma once
#include "graph/ir/graph.h"

namespace tessera {

// Products whose summed length is known. `convolutions`: these as well, of any groups while one piece is enough; for
// libraries that sum products of the elements alone (Winograd's transforms do not).
// `tensor_cores`: those of the device multiply 8-bit integers, so that products of matrices of such stay as they are
// where both are dense along the sum, as tensor cores read them: the right one is transposed.
[[nodiscard]] Result<bool> small_integer_products(Graph& graph, bool convolutions, bool tensor_cores = false);

} // namespace tessera
