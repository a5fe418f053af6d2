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
// Padded products. A result with misaligned rows, for example 50257 columns of 16 bits, takes a library several times
// as long as one of 50264 columns, because tensor cores load and store aligned vectors. Such a product gets columns of
// zeros, and its readers use a slice:
//
//   y = matmul(x, w)                w' = [w | 0 ...]      : f16[768, 50264]
//                                   y = matmul(x, w')[..., 0:50257]
//
// If y is an output, the slice is a separate kernel that copies. Weights with other readers are then stored twice. A
// weight that is a run-time input is padded in each call, if the faster product saves more time.
//
// Joined weights are copies in host memory, while the parts may be mapped from a file; so only products are joined that
// are small enough for launches to matter. Executables of one model share the copies.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "graph/ir/graph.h"

namespace tessera {

// Both functions rewrite the graph and return the number of products that were joined or padded. Error OutOfMemory.
[[nodiscard]] Result<int> join_products(Graph& graph, const CudaLibraries& libraries);
[[nodiscard]] Result<int> pad_products(Graph& graph, const CudaLibraries& libraries);

} // namespace tessera
