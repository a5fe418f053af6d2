// Joins products with a common operand into one product.
//
// Query, key and value are products of one activation with three weights. With concatenated weights they are one
// product: one launch instead of three, the activation is read once, and a GPU that one narrow product uses only half
// is filled.
//
//   q = add(matmul(x, wq), bq)      w = [wq | wk | wv]    : f16[768, 2304]
//   k = add(matmul(x, wk), bk)      b = [bq | bk | -0 ..] : f16[2304]
//   v = matmul(x, wv)               y = add(matmul(x, w), b)
//                                   q = y[..., 0:768]  k = y[..., 768:1536]  v = y[..., 1536:2304]
//
// The slices are views, so their readers use strides: a row of q is 768 elements of 2304. Attention, gates and rotary
// embeddings read strided rows at the same speed. Not joined are: results that are outputs or inputs of a convolution
// (they would be copied), results with a residual or activation that the others do not have (the library fuses these
// only for whole results), and weights with other readers (they would be stored twice). Columns begin at multiples of
// 16 bytes. The bias -0 changes no sum.
//
// Joined weights are copies in host memory, while the parts may be mapped from a file; so only products are joined that
// are small enough for launches to matter. Executables of one model share the copies.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "graph/ir/graph.h"

namespace tessera {

// Rewrites the graph and returns the number of products that were joined. Error OutOfMemory.
[[nodiscard]] Result<int> join_products(Graph& graph, const CudaLibraries& libraries);

} // namespace tessera
