// Products, convolutions and pooling as loops: for devices and element types that no library takes.
//
// The result's dimensions are outer axes, what is summed over are row axes, and the whole is one fold:
//
//   matmul           outer(batch..., m, n)      row(k)               sum a[batch, m, k] * b[batch, k, n]
//     of parts       the same                                        sum (a0[...] + a1[...]) * (b0[...] + b1[...])
//     rows in groups outer(t, n)               row(k)                sum a[t, k] * b[g(t), k, n]
//     depth in groups outer(g, m, n)           row(t)                sum a[m, t] * b[t, n] for the t of group g
//   conv             outer(n, o, y...)          row(c, k...)         sum x[n, g*C/G + c, y*s - p + k*d] * w[o, c, k]
//   conv_transpose   outer(n, o, y...)          row(c, k...)         sum x[n, g*C/G + c, t/s] *
//                                                                    w[g*C/G + c, o mod O/G, k],
//                                                                    where t = y + p - k*d is a multiple of s
//   pool             outer(n, c, y...)          row(k...)            max, or sum over count, of x[n, c, y*s - p + k*d]
//
// g(t) is the number of ends of groups that are at most t, found by bisection. Of a convolution, G are its groups, and
// g = o / (O/G) the group of an output channel. Padding is a predicate on the load, which then yields 0
// (or, for a maximum, is replaced by the least value). Sums are in the compute dtype: f32 for f16 and bf16, the type
// itself, wrapping, for integers. Being nests, they fuse with what precedes and follows like any reduction.
#pragma once
#include "fusion/expand.h"

namespace tessera::fusion {

// Whether the node folds over elements, as a reduction or as one of the above: never written out into its readers.
[[nodiscard]] bool folds(const Node& node);
// The body of a structured node that folds(); loads are numbered by operand position. Error UnsupportedFeature
// for structured operators of other kinds.
[[nodiscard]] Result<NodeBody> structured_body(const Graph& graph, const Node& node, AxisPool& pool);

} // namespace tessera::fusion
