// Fourier transforms as products with matrices of roots of unity.
#pragma once
#include "graph/ops/builder.h"

namespace tessera::ops {

struct Fourier {
  SymExpr length;        // of the transform: x is cut or padded with zeros to it
  bool inverse = false;  // the conjugate one, divided by the length
  bool onesided = false; // bins up to half the length; of an inverse one: x has these, the result is real
};
// x: f32 or f64 [..., size, parts], parts 1 (real) or 2 (real and imaginary part). The result is [..., bins, 2], or
// [..., length, 1] where it is real. Fails ShapeMismatch for other shapes.
[[nodiscard]] ValueId fourier(B& b, ValueId x, const Fourier& transform);

} // namespace tessera::ops
