// Pads products whose rows are no whole number of vector accesses.
//
// Tensor cores read and write groups of 16 bytes. Where the rows of a matrix end inside a group, a library takes another
// way, six times as slow for odd extents of 16-bit elements. Such a product gets zeros behind its operands, and its
// readers use a slice:
//
//   y = matmul(x, w)                     x : f16[m, 4411]    w : f16[4411, 3018]
//
//   x' = pad(x), w' = pad(w)             x' : f16[m, 4416]   w' : f16[4416, 3024]
//   y = matmul(x', w')[..., 0:3018]
//
// An operand that a pointwise operator makes for this product alone is padded as it is written, and a slice that pointwise
// operators, reductions and products read is a view: neither costs anything. A weight is copied when compiling. Other
// operands are copied in each call, and so is a result that is an output or goes to another kind of reader. A product is
// padded where the copies take less time than it gains (library_cost.h). Attention, which planning makes of two products and
// the softmax between them, keeps its products as they are.
//
// A symbolic extent counts as its hint; the padded one is an expression of it.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "graph/ir/graph.h"

namespace tessera {

// Rewrites the graph and returns the number of products that were padded. Error OutOfMemory.
[[nodiscard]] Result<int> pad_products(Graph& graph, const CudaLibraries& libraries);

} // namespace tessera
