// Forms that translations of pointwise operators have in common: the call's arguments in the dtype of its result, a
// formula, the result in that dtype. Small floats (f16, bf16) are computed in f32 and rounded once.
#pragma once
#include "frontend/fx/call.h"
#include <utility>

namespace tessera::fx {

using Formula1 = ValueId (*)(ops::B& b, ValueId x);
using Formula2 = ValueId (*)(ops::B& b, ValueId x, ValueId y);

// `self` in the dtype of the result, through the operator `record`.
[[nodiscard]] Translate by_operator(std::string_view record);
// The same for a rounding function or a sign: integers and booleans are their own result.
[[nodiscard]] Translate by_rounding(std::string_view record);
// A formula of `self`, in f32 for smaller floats.
[[nodiscard]] Translate by_formula(Formula1 formula);
// A formula of two operands (named x and y; tensors or numbers), in f32 for smaller floats.
[[nodiscard]] Translate by_formula(Formula2 formula, std::string_view x = "self", std::string_view y = "other");

// The dtype that a call computes in: that of its result, f32 where it is a smaller float.
[[nodiscard]] DType computing_dtype(Call& c);
// Yields `y` as the result, in the dtype that the exporter states.
void give(Call& c, ValueId y);

// Registers the translations of gamma.cpp, which belong to the pointwise ones.
void register_gamma(AtenTable& t);

// ---- formulas
// Whether the sign bit of a float is set: also of -0 and of a NaN.
[[nodiscard]] ValueId is_negative(ops::B& b, ValueId x);
// |x| with the sign of `negative` (bool).
[[nodiscard]] ValueId with_sign(ops::B& b, ValueId x, ValueId negative);
// x kept within [lo, hi] (numbers); NaN stays.
[[nodiscard]] ValueId clamped(ops::B& b, ValueId x, double lo, double hi);
// x kept on one side of the argument of this name, a tensor or a number. A number beyond x's dtype on that side bounds
// nothing; of one on the other side PyTorch raises an error, and this fails.
[[nodiscard]] ValueId at_least(Call& c, ValueId x, std::string_view bound);
[[nodiscard]] ValueId at_most(Call& c, ValueId x, std::string_view bound);
// The argument as a divisor in dtype d. An integer 0 is an error of the call on the host, and a number 0 fails.
[[nodiscard]] ValueId divisor(Call& c, std::string_view name, DType d);
// Floor of a quotient: one less than the truncated quotient where the remainder has not the divisor's sign. Of floats the
// remainder is taken off first, so that the quotient is exact.
[[nodiscard]] ValueId floor_quotient(ops::B& b, ValueId x, ValueId y);
// base to the power of a constant exponent.
[[nodiscard]] ValueId constant_power(ops::B& b, ValueId base, double exponent);

} // namespace tessera::fx
