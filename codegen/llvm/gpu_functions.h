// Elementary functions on the GPU: method and largest error of each. Tests and docs/ptx.md use these bounds.
#pragma once
#include "graph/scalar/scalar.h"

namespace tessera {

struct GpuFunction {
  ScalarOp op;
  // Name in libdevice, without prefix and suffix ("erf": __nv_erff, __nv_erf), for dtypes without code here.
  std::string_view library;
  // Units in the last place of the correctly rounded result, over all finite arguments; results below 2^-126 may be 0.
  // libdevice's are NVIDIA's.
  double ulp_f32, ulp_f64;
  std::string_view method_f32; // empty: libdevice
};

inline constexpr GpuFunction kGpuFunctions[] = {
    {ScalarOp::Sqrt, "", 0.5, 0.5, "sqrt.rn"},
    {ScalarOp::Rsqrt, "", 2, 1, "rsqrt.approx; f64: 1 / sqrt, each rounded"},
    {ScalarOp::Reciprocal, "", 1, 0.5, "rcp.approx; f64: a division"},
    {ScalarOp::Div, "", 0.5, 0.5, "div.rn"},
    {ScalarOp::Exp, "exp", 3, 1, "2^n by the exponent, 2^f by ex2.approx, n clamped by a saturating fma"},
    {ScalarOp::Exp2, "exp2", 2, 1, "ex2.approx"},
    {ScalarOp::Expm1, "expm1", 1, 1, ""},
    {ScalarOp::Log, "log", 1, 1, ""},
    {ScalarOp::Log2, "log2", 1, 1, ""},
    {ScalarOp::Log1p, "log1p", 1, 1, ""},
    {ScalarOp::Sin, "sin", 2, 2, ""},
    {ScalarOp::Cos, "cos", 2, 2, ""},
    {ScalarOp::Tan, "tan", 4, 2, ""},
    {ScalarOp::Asin, "asin", 2, 2, ""},
    {ScalarOp::Acos, "acos", 2, 2, ""},
    {ScalarOp::Atan, "atan", 2, 2, ""},
    {ScalarOp::Sinh, "sinh", 3, 2, ""},
    {ScalarOp::Cosh, "cosh", 2, 1, ""},
    {ScalarOp::Tanh, "tanh", 3, 2, "|x| < 0.625: odd polynomial of degree 11; else 1 - 2 / (2^(2|x| log2 e) + 1)"},
    {ScalarOp::Asinh, "asinh", 3, 3, ""},
    {ScalarOp::Acosh, "acosh", 4, 3, ""},
    {ScalarOp::Atanh, "atanh", 3, 2, ""},
    {ScalarOp::Erf, "erf", 4, 2, "|x| < 0.9277: x times a polynomial in x^2; else 1 - 2^p(|x|), p of degree 7 up to 4"},
    {ScalarOp::Sigmoid, "", 4, 3, "1 / (1 + exp(-x)), rcp.approx"},
    {ScalarOp::Pow, "pow", 9, 2, ""},
    {ScalarOp::Fmod, "fmod", 0, 0, ""},
};

[[nodiscard]] inline const GpuFunction* gpu_function(ScalarOp op) {
  for (const auto& f : kGpuFunctions)
    if (f.op == op) return &f;
  return nullptr;
}

} // namespace tessera
