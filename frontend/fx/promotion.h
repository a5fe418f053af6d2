// Numbers as tensors, and the element type that PyTorch computes in.
#pragma once
#include "frontend/fx/arguments.h"

namespace tessera::fx {

[[nodiscard]] ValueId literal(ops::B& b, const Scalar& s, DType dtype); // a 0-d tensor
// A tensor cast to dtype, or a number as literal().
[[nodiscard]] ValueId operand(ops::B& b, Arguments& in, std::string_view name, DType dtype);
// x times the Scalar argument, x itself where that is 1.
[[nodiscard]] ValueId scaled(ops::B& b, Arguments& in, ValueId x, std::string_view name);

// Type promotion as torch.result_type: of two types, and of tensors and numbers of these arguments (None is passed
// over).
[[nodiscard]] DType promote(DType a, DType b);
[[nodiscard]] DType promoted(const ops::B& b, Arguments& in, std::initializer_list<std::string_view> names);

} // namespace tessera::fx
