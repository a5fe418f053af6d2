// Products of one operand as one product.
//
// The idea. Query, key and value are products of one activation with three weights. With the weights side by side they
// are one product: one launch for three, the activation is read once, and a GPU that one narrow product leaves half
// empty is filled.
//
//   q = add(matmul(x, wq), bq)      w = [wq | wk | wv]    : f16[768, 2304]
//   k = add(matmul(x, wk), bk)      b = [bq | bk | -0 ..] : f16[2304]
//   v = matmul(x, wv)               y = add(matmul(x, w), b)
//                                   q = y[..., 0:768]  k = y[..., 768:1536]  v = y[..., 1536:2304]
//
// The slices are views, so what reads them sees strides: a row of q is 768 elements of 2304. That is all that changes
// for attention, gates and rotary embeddings. What would lose by it stays as it is: results that are outputs or go to a
// convolution (they would have to be copied), those to which a residual is added or an activation applied that their
// siblings do not have (the library does that for free, but only to whole results), and weights that others read, too
// (they would be held twice). Columns begin at multiples of 16 bytes. The bias -0 changes no sum.
//
// Padded products. A result whose rows begin at odd addresses, 50257 columns of 16 bits, costs a library several times
// as much as one of 50264, as tensor cores are fed and stored in whole accesses. Such a product gets columns of zeros,
// and what follows reads a slice:
//
//   y = matmul(x, w)                w' = [w | 0 ...]      : f16[768, 50264]
//                                   y = matmul(x, w')[..., 0:50257]
//
// Where y is an output that slice is a kernel of its own, which copies. Weights that others read are held twice then. A
// weight that is given at run time is padded in each call, where the faster product makes up for it.
//
// Joined weights are copies in host memory, where the parts may be mapped from a file; so only products are joined that
// are small enough for launches to matter. Executables of one model share them.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "graph/ir/graph.h"

namespace tessera {

// Both rewrite the graph and return how many products went into others, or got further columns. Error OutOfMemory.
[[nodiscard]] Result<int> join_products(Graph& graph, const CudaLibraries& libraries);
[[nodiscard]] Result<int> pad_products(Graph& graph, const CudaLibraries& libraries);

} // namespace tessera
