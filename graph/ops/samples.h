// Tensors of samples: seeded, so that a failing sample is the same one everywhere.
#pragma once
#include "graph/ops/record.h"
#include <initializer_list>

namespace tessera::ops {

// Uniform in [lo, hi] (integers inclusive; unsigned ones take |lo|..hi; bool by a coin). Any dtype but String and
// complex.
[[nodiscard]] Tensor random(DType dtype, Dims dims, uint64_t seed = 1, double lo = -2, double hi = 2);
[[nodiscard]] Tensor filled(DType dtype, Dims dims, double v);
[[nodiscard]] Tensor floats(DType dtype, Dims dims, std::initializer_list<double> values);
[[nodiscard]] inline Tensor floats(Dims dims, std::initializer_list<double> values) {
  return floats(DType::F32, std::move(dims), values);
}
[[nodiscard]] Tensor integers(DType dtype, Dims dims, std::initializer_list<int64_t> values);
[[nodiscard]] Tensor vec(std::initializer_list<int64_t> values); // i64 vector: axes, shapes
[[nodiscard]] Tensor scalar(DType dtype, double v);

// The most that a result of `dtype` may differ by: rounding of its storage, with room for a few operations.
[[nodiscard]] double tolerance(DType dtype);

[[nodiscard]] Sample sample(std::vector<Tensor> operands, Attributes attributes = {}, int opset = 0);
// One tensor of each dtype at scalar, size-1, empty, odd and larger shapes.
struct Domain {
  double lo = -2, hi = 2;
};
[[nodiscard]] std::vector<Sample> unary_samples(const std::vector<DType>& dtypes, Domain domain = {},
                                                const Attributes& attributes = {}, int opset = 0);
// Two tensors of each dtype: equal shapes, broadcasting both ways, scalar, empty.
[[nodiscard]] std::vector<Sample> binary_samples(const std::vector<DType>& dtypes, Domain a = {}, Domain b = {},
                                                 const Attributes& attributes = {}, int opset = 0);
// An error sample.
[[nodiscard]] ErrorSample wrong(std::vector<Tensor> operands, Attributes attributes, ErrorCode code,
                                std::string_view part, int opset = 0);

inline constexpr std::initializer_list<DType> kFloats = {DType::F32, DType::F64, DType::F16, DType::BF16};
inline constexpr std::initializer_list<DType> kNumbers = {DType::F32, DType::F16, DType::F64, DType::I32,
                                                          DType::I64, DType::I8,  DType::U8,  DType::U64};

} // namespace tessera::ops
