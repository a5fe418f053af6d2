// Which attentions of an executable cuDNN may compute, as far as compiling knew their sizes. What a shape plan then
// chooses is choose_attention() (library.h).
#pragma once
#include "runtime/cuda/context.h"
#include "runtime/cuda/library_attention.h"
#include "runtime/variant.h"

namespace tessera::cuda {

// Whether every size and stride of the call is a number.
[[nodiscard]] bool sizes_are_known(const Executable& exe, const LibraryStep& step);
// The attentions of known sizes that the library is to compute where it has an engine, each once.
[[nodiscard]] std::vector<AttentionProblem> known_attentions(const Context& context, const Executable& exe);

} // namespace tessera::cuda
