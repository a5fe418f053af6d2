// Constant weights of a convolution in the format that its primitive reads.
#pragma once
#include "runtime/library/onednn.h"
#include "runtime/library/packed_weights.h"

namespace tessera {

// `offset`: of the first element that `plain` describes, in elements of the constant. Error OutOfMemory.
[[nodiscard]] Result<std::shared_ptr<const PackedWeight>> want_conv_weights(PackRequests& packs, const Tensor& constant,
                                                                            int64_t offset,
                                                                            const dnnl::memory::desc& plain,
                                                                            const dnnl::memory::desc& wanted);

} // namespace tessera
