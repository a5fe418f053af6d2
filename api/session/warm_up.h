// Ranges of sizes that calls are expected to have (api/sizes.h), made ready before they come.
//
// Variants. Compiled code may rely on sizes being equal, or divisible. Each such assumption that sizes of the ranges can
// violate is violated here, by sizes at the ends of the ranges, and what is compiled then is examined in turn: a call
// within the ranges finds a variant. Assumptions on values that are read during a run are not seen.
//
// Memory and plans. The model runs once at the largest sizes and once at the smallest ones, with zeros: what does not fit
// the memory limit is an error here. The typical sizes are made ready as by Executor::warm_up.
#pragma once
#include "api/session/variant_pool.h"

namespace tessera {

// `inputs`: values of those inputs that zeros are no valid values of, used where their sizes are those of the ranges.
// `executor`: of the pool; null: variants are compiled and nothing runs. Errors: Usage for a range of no dimension, or a
// dimension without one; those of a call, with the sizes.
[[nodiscard]] Status warm_up_ranges(VariantPool& pool, const SizeRanges& ranges,
                                    const std::map<std::string, Tensor>& inputs, Executor* executor);

} // namespace tessera
