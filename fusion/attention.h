// Attention recognised in a plan: two products and the softmax between them become one unit.
//
// The idea. Fusion leaves attention as three groups, since a product's result that a reduction reads goes through
// memory:
//
//   product    s = q k'                      [batch..., query, key], perhaps with an epilogue of the library
//   kernel     p = softmax(f(s)) over keys   rows of a nest
//   product    out = p v
//
// They are one when s is read by the kernel alone and p by the second product alone. What the kernel computes is read
// from its scalar expression, whatever the operators were called:
//
//   %2 = add(load s[i0, i1, i2, i3], load mask[i0, 0, i2, i3])     the score x: any expression of one element of s
//   %7 = div(exp(sub(%2, reduce.max(%2))), reduce.sum(exp(...)))   softmax of x
//   %9 = select(isnan(%7), 0, %7)                                  undefined rows yield zeros; so do guards of the
//                                                                  maximum (-inf becomes 0) and of the sum (0 becomes
//                                                                  1)
//
// The dimensions of the three need not agree: a head dimension may be split in one and not in another. They are refined
// to common atoms (axes.h), over which q, k, v and out are strided.
//
// The fixed form, scale * s + bias with -inf above the diagonal, is read from x as algebra. Addends are loads, or any
// expression without s: it becomes a small kernel of its own over the axes that it depends on. A finite addend that is
// the same for all keys cancels and is dropped. A selection of -inf is an addend of -inf; one of another large negative
// number only where no row can be masked as a whole, for such a row would be uniform. Libraries yield zeros for a row
// of nothing but -inf: where the model asks for NaN and the addends may be such a row, the kernel puts NaN into it.
#pragma once
#include "fusion/axes.h"
#include "fusion/plan.h"

namespace tessera::fusion {

// The unit of three groups, in this order; nullopt, and why, when they are none. Without strict rounding only.
[[nodiscard]] std::optional<AttentionCall> match_attention(const Graph& graph, AxisPool& pool,
                                                           const LibraryCall& scores, const LoopNest& softmax,
                                                           const LibraryCall& values, std::string* why_not);
// Puts Attention groups in the place of all that match and that options.attention_accepts takes, with kernels for
// biases in front of them, and says so in the ledger; with the reason where it is refused. Adds values to the graph.
// `pool`: what the plan was made with. Returns whether the plan changed, its ledger included.
bool fuse_attention(Graph& graph, AxisPool& pool, const FusionOptions& options, FusionPlan& plan);

// A new value of the graph, for what a plan keeps in memory between its kernels. It counts as made by a
// node that is no part of the graph.
[[nodiscard]] ValueId add_temporary(Graph& graph, TensorType type);

} // namespace tessera::fusion
