// Gives products of f32 to tensor cores as products of their parts.
//
// A number of f32 is exactly the sum of three of bf16, whose six products that matter tensor cores compute in less time
// than units for f32 compute the one, with an error that is not larger (codegen/schedule/contraction.h):
//
//   y = matmul(x, w)                              x : f32[m, 2361]    w : f32[2361, n]
//
//   x0, x1, x2 = float_part(pad(x))[:, 0:2361]    bf16, rows of 2368 elements: whole vector accesses
//   w0, w1, w2 = ...
//   y = matmul_of_parts(x0, x1, x2, w0, w1, w2)
//
// One kernel writes the parts of an operand, that of a weight runs when compiling. A product is split where the
// generated contraction and these kernels are predicted to take less time than the library. Products whose operands may
// be rounded to TF32 are not, and neither are those of attention, which planning makes of two products and the softmax
// between them.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "graph/ir/graph.h"

namespace tessera {

// Rewrites the graph and returns the number of products that were split. Error OutOfMemory.
[[nodiscard]] Result<int> split_products(Graph& graph, const CudaLibraries& libraries);

} // namespace tessera
