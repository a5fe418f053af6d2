// Small floats as bits: scalar bodies that round numbers to their codes and read numbers from codes.
#pragma once
#include "graph/scalar/scalar.h"

namespace tessera::ops {

// An f64 as the f32 that rounds on to any narrower type as the f64 itself would: towards zero, with the last bit set
// where it is not exact (Boldo and Melquiond, 2008). Other floats: cast to f32.
[[nodiscard]] ScalarId round_to_odd(ScalarDag& dag, ScalarId x);
// The code (u8) of a float in a type of 8 bits or less, rounded to even; `rounding` is f8e8m0's, which has no sign.
[[nodiscard]] ScalarId encode_float(ScalarDag& dag, ScalarId x, DType to, bool saturate, E8M0Rounding rounding);
// The number (f32) of a code (u8).
[[nodiscard]] ScalarId decode_float(ScalarDag& dag, ScalarId code, DType from);

} // namespace tessera::ops
