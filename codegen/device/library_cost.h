// The time that a library call takes, predicted, in the terms of codegen/schedule/cost.h:
//
//   time    = launch + start + max(memory, compute)
//   memory  = bytes / bandwidth
//   compute = waves of tiles over the multiprocessors (cores) * multiply-adds of a tile / rate of one
//
// A product of few tiles is divided along its sum, as libraries do: the tile and the number of parts with the least time
// are taken. Parameters are fitted to calls that tools/scripts/price_accuracy.py measured.
// A convolution is the product of its windows and its weights. An attention is two products whose scores stay on the
// device.
#pragma once
#include "codegen/schedule/tuned.h"
#include "fusion/plan.h"

namespace tessera {

// Predicted times err: a route is given up for another one that is predicted to be faster by this factor.
constexpr double kPriceError = 1.05;

// A call as products, at sizes of a call.
struct ProductShape {
  double batch = 1, m = 1, n = 1, k = 1; // k: 0 where nothing is multiplied, as in pooling
  DType dtype = DType::F32;
  bool tf32 = false;
  bool windows = false; // of a convolution whose weights are more than one element wide
  double padding = 1;   // by which a library extends k, to whole groups of 16 bytes; 1: it does not
  double bytes = 0;     // read and written
  // Bytes to whose multiples all rows of the matrices extend, at most 16. Tensor cores read and write whole groups of 16.
  int64_t alignment = 16;
};
[[nodiscard]] double flops(const ProductShape& shape); // multiplications and additions

// Parts and multiples of the target's figures; "launches": of a kernel by itself on a GPU, of a parallel loop on a host.
struct LibraryCost {
#define TESSERA_LIBRARY_COST_PARAMETERS(X)                                                                             \
  X(bandwidth, 0.71)       /* of the memory's bandwidth that a copy reaches */                                         \
  X(cached, 0.3)           /* of the level-2 cache's bandwidth, where everything fits half of it */                    \
  X(pooling, 0.53)         /* of either, in pooling */                                                                 \
  X(tensor, 0.86)          /* of the rate of tensor cores, in the largest tiles and long sums */                       \
  X(tile_small, 0.62)      /* of that, in tiles of 64 x 64 */                                                          \
  X(tile_least, 0.91)      /* of that, in tiles of 64 x 32 */                                                          \
  X(group_tile, 0.775)     /* of the rate of warpgroups, in tiles of 128 x 256 */                                      \
  X(group_epilogue, 0.44)  /* launches: such a tile is stored before the next one begins */                            \
  X(convolution, 0.75)     /* of that, in a convolution that is no product */                                          \
  X(unaligned, 0.46)       /* of that, where a pixel's channels are not whole groups of 16 bytes */                    \
  X(rows_of_4, 0.24)       /* of that, where rows of a product are no multiple of 16 bytes, but one of 4 */            \
  X(rows_of_2, 0.15)       /* of that, where they are no multiple of 4 bytes */                                        \
  X(vectors, 0.75)         /* of the rate of vector instructions: f32 and f64 of a GPU, everything of a host */        \
  X(start, 0.635)          /* launches: a GPU's kernel until its pipeline is full, and its epilogue */                 \
  X(chain, 0.0188)         /* launches: 64 further elements of a sum, which follow each other */                       \
  X(split, 0.72)           /* launches: partial sums of a divided product put together */                              \
  X(host_start, 0.2)       /* launches: a call of a host's library */                                                  \
  X(attention, 0.296)      /* of the rate of tensor cores: the softmax is computed between the products */             \
  X(attention_rows, 128)   /* of queries that a block of an attention computes */                                      \
  X(attention_start, 1.51) /* launches: as start */
#define X(name, value) double name = value;
  TESSERA_LIBRARY_COST_PARAMETERS(X)
#undef X
};
// Terms "memory", "compute", "latency" and "launch".
[[nodiscard]] PredictedTime product_time(const ProductShape& shape, const Target& device, const LibraryCost& cost = {});
// An attention, which only a GPU computes at once.
[[nodiscard]] PredictedTime attention_time(const ProductShape& scores, const ProductShape& values, const Target& device,
                                           const LibraryCost& cost = {});

// The time of a kernel that only moves so many bytes.
[[nodiscard]] double copy_time(double bytes, const Target& device, const LibraryCost& cost = {});

// The shape of a call. `value`: of an expression at the sizes of a call; nothing where they do not say it.
using SizeValue = std::function<std::optional<double>(const SymExpr&)>;
[[nodiscard]] std::optional<ProductShape> product_shape(const Graph& graph, const LibraryCall& call,
                                                        const SizeValue& value);
// The shapes of the products q k' and p v. Scores are moved nowhere.
[[nodiscard]] std::optional<std::pair<ProductShape, ProductShape>>
product_shapes(const Graph& graph, const AttentionCall& call, const SizeValue& value);

// Multiplications and additions of a call, as an expression.
[[nodiscard]] SymExpr flops(const LibraryCall& call);
[[nodiscard]] SymExpr flops(const AttentionCall& call);

} // namespace tessera
