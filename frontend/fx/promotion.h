// Numbers as tensors, and the element type that PyTorch computes in.
#pragma once
#include "frontend/fx/arguments.h"

namespace tessera::fx {

// A number as a 0-d tensor. Of one that an integer type does not hold the low bits are kept, as PyTorch does with the
// operands of arithmetic and comparisons.
[[nodiscard]] ValueId literal(ops::B& b, const Scalar& s, DType dtype);
// The same where PyTorch raises an error of a number beyond the type, as in fills: that fails, and PyTorch raises it.
[[nodiscard]] ValueId exact_literal(ops::B& b, const Scalar& s, DType dtype);
// A tensor converted to dtype, or a number as literal().
[[nodiscard]] ValueId operand(ops::B& b, Arguments& in, std::string_view name, DType dtype);
// A tensor converted to dtype, or a number as exact_literal().
[[nodiscard]] ValueId exact_operand(ops::B& b, Arguments& in, std::string_view name, DType dtype);
// Compares a number with the range of a type: -1 below, 0 within, 1 above it. Infinities and NaN are within floats.
[[nodiscard]] int side_of(const Scalar& s, DType dtype);
// A conversion that the program requests. Floats beyond an integer type keep the low bits, as in PyTorch.
[[nodiscard]] ValueId convert(ops::B& b, ValueId x, DType to);
// x times the Scalar argument, x itself where that is 1. Fails where PyTorch raises an error of the number.
[[nodiscard]] ValueId scaled(ops::B& b, Arguments& in, ValueId x, std::string_view name);

// Type promotion as torch.result_type: of two types, and of tensors and numbers of these arguments (None is passed
// over).
[[nodiscard]] DType promote(DType a, DType b);
[[nodiscard]] DType promoted(const ops::B& b, Arguments& in, std::initializer_list<std::string_view> names);

} // namespace tessera::fx
