// Long reductions with few results, in two steps.
//
// The idea. A block of threads folds a row; a sum of 67 million elements has one row, so one multiprocessor of 132
// would work. Such a reduction becomes two, by a reshape that cuts the axis: [n] -> [k, n/k], folded along the second
// axis by k blocks, and then [k] along the first by one. What the compiler fuses into either is its business: the first
// one still takes its producers in (x*x), the second its consumers. Maxima and sums of a softmax over few long rows are
// cut likewise.
//
//   y = reduce_sum(x) axes=[0]   x: f32[67108864]
//   x2 = reshape(x)              : f32[1024, 65536]
//   p  = reduce_sum(x2) axes=[1] : f32[1024]
//   y  = reduce_sum(p) axes=[0]  : f32[]
//
// Which ones: those where the blocks that there are would take longer for their bytes than all multiprocessors and a
// second launch. Sizes must be known and have a divisor of use; arg-reductions stay. Partial results of 16-bit floats
// are kept in f32.
#pragma once
#include "codegen/schedule/schedule.h"

namespace tessera {

// Rewrites the graph; yields the number of reductions that were cut. Order of folding is not defined (docs/tile-ir.md),
// so results may differ in their last bits from those of a whole fold.
[[nodiscard]] Result<int> split_reductions(Graph& graph, const DeviceTraits& device);

} // namespace tessera
