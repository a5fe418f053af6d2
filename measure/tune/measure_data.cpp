// Random inputs of a measured loop nest, and comparison of its results.
#include "measure/tune/measure.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera {
namespace {

constexpr int64_t kPattern = 65537; // elements before the data repeats: prime, so that rows differ

// The least extent that an integer operand indexes; nothing if the operand is not an index.
std::optional<int64_t> index_limit(const MeasuredNest& what, size_t operand) {
  const ScalarDag& dag = what.nest.dag;
  std::vector<char> from(static_cast<size_t>(dag.size())); // whether a node depends on the operand's elements
  std::optional<int64_t> least;
  for (ScalarId id = 0; id < dag.size(); ++id) {
    const ScalarNode& n = dag[id];
    auto& mine = from[static_cast<size_t>(id)];
    mine = n.op == ScalarOp::Load && n.operand == static_cast<int32_t>(operand);
    if (n.op == ScalarOp::Load || info(n.op).yields_bool) continue; // a condition is no index, and none is chosen by it
    for (size_t a = n.op == ScalarOp::Select ? 1 : 0; a < n.args.size(); ++a)
      mine |= from[static_cast<size_t>(n.args[a])];
    if (n.op != ScalarOp::CheckBounds || !from[static_cast<size_t>(n.args[0])]) continue;
    if (auto extent = dag.as_sym(n.args[1]))
      if (auto v = extent->eval(what.sizes); v.ok()) least = std::min(least.value_or(*v), *v);
  }
  return least;
}

double tolerance(DType dtype) {
  switch (dtype) {
  case DType::F64: return 1e-10;
  case DType::F32: return 2e-5;
  case DType::F16: return 2e-3;
  default: return 1.6e-2; // bf16 and narrower
  }
}

// The smallest positive subnormal number of a type, the least distance of two neighbours: results that differ only by
// rounding may differ by this much even near 0.
double least_step(DType dtype) {
  auto one = Tensor::create(dtype, {1});
  if (!one.ok()) return 0;
  std::memset(one->mutable_data(), 0, one->bytes());
  one->mutable_data()[0] = std::byte{1};
  return one->get_f64(0);
}

} // namespace

Result<Tensor> random_input(const MeasuredNest& what, size_t operand) {
  const TensorType& type = what.graph.type(what.nest.loads[operand]);
  Dims dims;
  for (const SymExpr& d : type.shape) {
    TESSERA_ASSIGN(int64_t n, d.eval(what.sizes));
    dims.push_back(n);
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(type.dtype, std::move(dims)));
  const bool floats = is_float(type.dtype);
  const int64_t limit = std::max<int64_t>(1, floats ? 1 : index_limit(what, operand).value_or(2));
  const int64_t pattern = std::min(kPattern, out.count());
  uint64_t state = 0x9e3779b97f4a7c15ULL * (operand + 1);
  for (int64_t i = 0; i < pattern; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    uint64_t random = state >> 33;
    if (floats)
      out.set_f64(i, static_cast<double>(random % 4096) / 2048 - 0.5);
    else
      out.set_i64(i, static_cast<int64_t>(random % static_cast<uint64_t>(limit)));
  }
  const size_t period = static_cast<size_t>(byte_size(type.dtype, pattern));
  for (size_t at = period; at < out.bytes(); at += period)
    std::memcpy(out.mutable_data() + at, out.data(), std::min(period, out.bytes() - at));
  return out;
}

std::string difference(const Tensor& actual, const Tensor& expected) {
  constexpr int64_t kChunk = 4096;
  const bool floats = is_float(expected.dtype());
  double scale = 0; // mean magnitude, so that a difference of nearly equal numbers is compared relative to them
  const int64_t step = std::max<int64_t>(1, expected.count() / 4096);
  int64_t sampled = 0;
  for (int64_t i = 0; floats && i < expected.count(); i += step)
    if (double v = std::abs(expected.get_f64(i)); std::isfinite(v)) scale += v, ++sampled;
  if (sampled > 0) scale /= static_cast<double>(sampled);
  const double allowed = tolerance(expected.dtype()), rounding = floats ? least_step(expected.dtype()) : 0;
  for (int64_t begin = 0; begin < expected.count(); begin += kChunk) {
    const int64_t n = std::min(kChunk, expected.count() - begin);
    const auto at = static_cast<size_t>(byte_size(expected.dtype(), begin));
    if (std::memcmp(actual.data() + at, expected.data() + at, static_cast<size_t>(byte_size(expected.dtype(), n))) == 0)
      continue;
    for (int64_t i = begin; i < begin + n; ++i) {
      bool same = actual.get_i64(i) == expected.get_i64(i);
      if (floats) {
        double a = actual.get_f64(i), b = expected.get_f64(i);
        same =
            a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= allowed * (std::abs(b) + scale) + rounding;
      }
      if (!same)
        return "element " + std::to_string(i) + " is " + std::to_string(actual.get_f64(i)) + " and not " +
               std::to_string(expected.get_f64(i));
    }
  }
  return "";
}

} // namespace tessera
