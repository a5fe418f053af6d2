#include "graph/ops/samples.h"
#include <cmath>

namespace tessera::ops {

namespace {
// splitmix64: the same numbers on every machine.
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
Tensor make(DType dtype, Dims dims) { return Tensor::create(dtype, std::move(dims), true).value(); }
} // namespace

Tensor random(DType dtype, Dims dims, uint64_t seed, double lo, double hi) {
  Tensor t = make(dtype, std::move(dims));
  uint64_t state = seed * 0x2545f4914f6cdd1dull + 7;
  DTypeKind kind = info(dtype).kind;
  if (kind == DTypeKind::Unsigned && lo < 0) lo = std::min(-lo, hi);
  for (int64_t i = 0; i < t.count(); ++i) {
    uint64_t r = next_random(state);
    double u = static_cast<double>(r >> 11) * 0x1p-53;
    if (kind == DTypeKind::Float)
      t.set_f64(i, lo + u * (hi - lo));
    else if (kind == DTypeKind::Bool)
      t.set_i64(i, static_cast<int64_t>(r & 1));
    else
      t.set_i64(i, static_cast<int64_t>(std::floor(lo + u * (hi - lo + 1))));
  }
  return t;
}

Tensor filled(DType dtype, Dims dims, double v) {
  Tensor t = make(dtype, std::move(dims));
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, v);
  return t;
}

Tensor floats(DType dtype, Dims dims, std::initializer_list<double> values) {
  return Tensor::of<double>(dtype, std::move(dims), {values.begin(), values.size()});
}

Tensor integers(DType dtype, Dims dims, std::initializer_list<int64_t> values) {
  return Tensor::of<int64_t>(dtype, std::move(dims), {values.begin(), values.size()});
}

Tensor vec(std::initializer_list<int64_t> values) {
  return integers(DType::I64, {static_cast<int64_t>(values.size())}, values);
}

Tensor scalar(DType dtype, double v) { return filled(dtype, {}, v); }

double tolerance(DType dtype) {
  switch (dtype) {
  case DType::F64: return 1e-12;
  case DType::F16: return 2e-3;
  case DType::BF16: return 2e-2;
  default: return is_float(dtype) && info(dtype).bits <= 8 ? 0.1 : 1e-5;
  }
}

Sample sample(std::vector<Tensor> operands, Attributes attributes, int opset) {
  Sample s;
  for (const Tensor& t : operands)
    if (t.defined() && is_float(t.dtype())) s.tolerance = std::max(s.tolerance, tolerance(t.dtype()));
  s.operands = std::move(operands);
  s.attributes = std::move(attributes);
  s.opset = opset;
  return s;
}

std::vector<Sample> unary_samples(const std::vector<DType>& dtypes, Domain domain, const Attributes& attributes,
                                  int opset) {
  static const Dims shapes[] = {{}, {1}, {0, 3}, {7}, {3, 5}, {2, 1, 4}, {5, 17, 3}};
  std::vector<Sample> out;
  uint64_t seed = 1;
  for (DType d : dtypes)
    for (const Dims& dims : shapes)
      out.push_back(sample({random(d, dims, seed++, domain.lo, domain.hi)}, attributes, opset));
  return out;
}

std::vector<Sample> binary_samples(const std::vector<DType>& dtypes, Domain a, Domain b, const Attributes& attributes,
                                   int opset) {
  static const std::pair<Dims, Dims> shapes[] = {{{}, {}},         {{3, 5}, {3, 5}},     {{4, 1}, {1, 3}},
                                                 {{2, 3, 4}, {4}}, {{}, {2, 2}},         {{0, 3}, {1, 3}},
                                                 {{1}, {7}},       {{3, 17, 5}, {17, 1}}};
  std::vector<Sample> out;
  uint64_t seed = 101;
  for (DType d : dtypes)
    for (const auto& [x, y] : shapes) {
      Tensor t = random(d, x, seed++, a.lo, a.hi), u = random(d, y, seed++, b.lo, b.hi);
      out.push_back(sample({std::move(t), std::move(u)}, attributes, opset));
    }
  return out;
}

ErrorSample wrong(std::vector<Tensor> operands, Attributes attributes, ErrorCode code, std::string_view part,
                  int opset) {
  return {sample(std::move(operands), std::move(attributes), opset), code, part};
}

} // namespace tessera::ops
