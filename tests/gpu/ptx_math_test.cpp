// Elementary functions of GPU threads against float64, within the bounds of codegen/llvm/gpu_functions.h. The emulator
// computes approximate instructions exactly, so what is tested here is how functions are put together of them; on a GPU
// their own errors, which the bounds allow for, come on top.
#include "codegen/llvm/gpu_functions.h"
#include "harness.h"
#include <cmath>
#include <limits>

namespace tessera::test {
namespace {

double exactly(ScalarOp op, double x, double y) {
  switch (op) {
  case ScalarOp::Sqrt: return std::sqrt(x);
  case ScalarOp::Rsqrt: return static_cast<double>(1 / std::sqrt(static_cast<long double>(x)));
  case ScalarOp::Reciprocal: return 1 / x;
  case ScalarOp::Div: return x / y;
  case ScalarOp::Exp: return std::exp(x);
  case ScalarOp::Exp2: return std::exp2(x);
  case ScalarOp::Expm1: return std::expm1(x);
  case ScalarOp::Log: return std::log(x);
  case ScalarOp::Log2: return std::log2(x);
  case ScalarOp::Log1p: return std::log1p(x);
  case ScalarOp::Sin: return std::sin(x);
  case ScalarOp::Cos: return std::cos(x);
  case ScalarOp::Tan: return std::tan(x);
  case ScalarOp::Asin: return std::asin(x);
  case ScalarOp::Acos: return std::acos(x);
  case ScalarOp::Atan: return std::atan(x);
  case ScalarOp::Sinh: return std::sinh(x);
  case ScalarOp::Cosh: return std::cosh(x);
  case ScalarOp::Tanh: return std::tanh(x);
  case ScalarOp::Asinh: return std::asinh(x);
  case ScalarOp::Acosh: return std::acosh(x);
  case ScalarOp::Atanh: return std::atanh(x);
  case ScalarOp::Erf: return std::erf(x);
  case ScalarOp::Sigmoid: return static_cast<double>(1 / (1 + std::exp(-static_cast<long double>(x))));
  case ScalarOp::Pow: return std::pow(x, y);
  case ScalarOp::Fmod: return std::fmod(x, y);
  default: ADD_FAILURE() << "no exact " << info(op).name; return 0;
  }
}

// Arguments: dense around 0 and 1, then over all magnitudes, then what is not a number or not finite.
std::vector<double> arguments(DType d) {
  std::vector<double> x;
  for (int i = -4000; i <= 4000; ++i) x.push_back(i / 400.0);
  double limit = d == DType::F32 ? 104 : 745;
  for (int i = -500; i <= 500; ++i) x.push_back(i * limit / 500);
  int top = d == DType::F32 ? 127 : 1023;
  for (int e = -top; e <= top; ++e)
    for (double m : {1.0, 1.37, 1.93})
      for (double s : {1.0, -1.0}) x.push_back(s * std::ldexp(m, e));
  for (double v : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) x.push_back(v);
  if (d == DType::F32)
    for (auto& v : x) v = static_cast<double>(static_cast<float>(v));
  return x;
}

// Distance of `got` from `want` in units of the last place of `want` rounded to d.
double ulps(DType d, double got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : HUGE_VAL;
  int digits = d == DType::F32 ? 24 : 53, lowest = d == DType::F32 ? -126 : -1022;
  double largest = d == DType::F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
  if (std::abs(want) < std::ldexp(1, lowest) && got == 0) return 0; // may be flushed
  if (std::isinf(got) || std::abs(want) > largest) { // overflow, where the exact result is within an ulp of it
    if (std::isinf(got) && std::isinf(want)) return (got > 0) == (want > 0) ? 0 : HUGE_VAL;
    if (std::isinf(got)) return std::abs(want) > largest * (1 - std::ldexp(4, -digits)) ? 0 : HUGE_VAL;
    if (std::isinf(want)) return HUGE_VAL;
  }
  if (want == got) return 0;
  int e = std::max(std::ilogb(want == 0 ? std::ldexp(1, lowest) : want), lowest);
  return std::abs(got - want) / std::ldexp(1, e - digits + 1);
}

class GpuMath : public testing::TestWithParam<GpuFunction> {};

TEST_P(GpuMath, IsWithinItsBound) {
  const auto& f = GetParam();
  for (DType d : {DType::F32, DType::F64}) {
    SCOPED_TRACE(name(d));
    auto xs = arguments(d);
    bool binary = info(f.op).arity == 2;
    std::vector<double> x, y;
    for (size_t i = 0; i < xs.size(); ++i) {
      x.push_back(xs[i]);
      y.push_back(xs[(i * 7919 + 13) % xs.size()]);
    }
    auto n = static_cast<int64_t>(x.size()), padded = (n + 255) / 256 * 256;
    KernelMaker m("math");
    auto px = m.in("x", d), py = m.in("y", d), pz = m.out("z", d);
    auto at = m.add(m.b.range(256), m.mul(m.b.program_id(0), m.i(256)));
    std::vector<tile::ValueId> args = {m.b.load(px, at)};
    if (binary) args.push_back(m.b.load(py, at));
    m.b.store(pz, at, m.b.scalar(f.op, args));
    Tensor tx = filled(d, padded, 1), ty = filled(d, padded, 1), tz = filled(d, padded, 0);
    for (int64_t i = 0; i < n; ++i) {
      tx.set_f64(i, x[static_cast<size_t>(i)]);
      ty.set_f64(i, y[static_cast<size_t>(i)]);
    }
    std::vector<tile::Argument> memory;
    for (Tensor* t : {&tx, &ty, &tz}) memory.push_back({{t->mutable_data(), t->bytes()}, {}});
    auto ran = emulate(m.k, memory, padded / 256, {});
    ASSERT_TRUE(ran.ok()) << ran.error().str();
    double worst = 0, where = 0;
    for (int64_t i = 0; i < n; ++i) {
      auto k = static_cast<size_t>(i);
      double u = ulps(d, tz.get_f64(i), exactly(f.op, x[k], y[k]));
      if (u > worst) worst = u, where = x[k];
    }
    // An exact result in float64 is itself rounded, and libm's is off by one ulp at times.
    double bound = d == DType::F32 ? f.ulp_f32 + 1e-6 : f.ulp_f64 + 1;
    EXPECT_LE(worst, bound) << info(f.op).name << " of " << where;
    RecordProperty(std::string(name(d)), std::to_string(worst) + " ulp");
    if (std::getenv("TESSERA_TEST_VERBOSE"))
      std::printf("%-10s %s %.3f ulp at %g\n", std::string(info(f.op).name).c_str(), std::string(name(d)).c_str(),
                  worst, where);
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, GpuMath, testing::ValuesIn(kGpuFunctions),
                         [](const auto& function) { return std::string(tessera::info(function.param.op).name); });

// The sums that GELU consists of have code of their own.
TEST(GpuMathSums, OnePlusErfAndTanh) {
  auto xs = arguments(DType::F32);
  for (int i = 0; i < 4000; ++i) xs.push_back(static_cast<double>(static_cast<float>(-6 + i * 0.003)));
  auto n = static_cast<int64_t>(xs.size()), padded = (n + 255) / 256 * 256;
  for (auto op : {ScalarOp::Erf, ScalarOp::Tanh}) {
    SCOPED_TRACE(info(op).name);
    KernelMaker m("sums");
    auto px = m.in("x", DType::F32), py = m.out("y", DType::F32);
    auto at = m.add(m.b.range(256), m.mul(m.b.program_id(0), m.i(256)));
    auto f = m.op(op, {m.b.load(px, at)}), one = m.b.const_f(DType::F32, 1);
    m.b.store(py, at, op == ScalarOp::Erf ? m.add(f, one) : m.add(one, f));
    Tensor x = filled(DType::F32, padded, 0), y = filled(DType::F32, padded, 0);
    for (int64_t i = 0; i < n; ++i) x.set_f64(i, xs[static_cast<size_t>(i)]);
    std::vector<tile::Argument> memory;
    for (Tensor* t : {&x, &y}) memory.push_back({{t->mutable_data(), t->bytes()}, {}});
    auto ran = emulate(m.k, memory, padded / 256, {});
    ASSERT_TRUE(ran.ok()) << ran.error().str();
    for (int64_t i = 0; i < n; ++i) {
      double v = xs[static_cast<size_t>(i)], got = y.get_f64(i);
      double want = op == ScalarOp::Erf ? std::erfc(-v) : v < 0 ? 2 / (1 + std::exp(-2 * v)) : 1 + std::tanh(v);
      if (std::isnan(v)) {
        EXPECT_TRUE(std::isnan(got));
        continue;
      }
      EXPECT_NEAR(got, want, 3e-7) << v;
      if (v > -4 && want > 0) {
        EXPECT_LE(std::abs(got - want) / want, op == ScalarOp::Erf ? 1e-2 : 2e-6) << v;
      }
      if (v < -100) {
        EXPECT_EQ(got, 0) << v;
      }
    }
  }
}

// Divided in 32 bits where all of a thread's numbers fit, in 64 elsewhere: both meet here, in different threads.
TEST(GpuDivision, ByAScalar) {
  constexpr int64_t n = 1024, lowest = std::numeric_limits<int64_t>::min();
  Tensor x = random_tensor(DType::I64, n, 3, 100000);
  for (int64_t i = 0; i < n / 2; ++i) x.set_i64(i, std::abs(x.get_i64(i)));
  const std::vector<int64_t> special = {lowest,       -1,        int64_t{1} << 31, (int64_t{1} << 31) - 1,
                                        -(1LL << 40), 1LL << 40, lowest + 1,       std::numeric_limits<int64_t>::max()};
  for (size_t i = 0; i < special.size(); ++i) x.set_i64(n - 1 - static_cast<int64_t>(i) * 5, special[i]);
  for (int64_t divisor : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{-3}, int64_t{-1}, int64_t{1} << 31,
                          (int64_t{1} << 31) - 1, int64_t{1} << 40, lowest}) {
    SCOPED_TRACE(divisor);
    KernelMaker m("division");
    auto px = m.in("x", DType::I64), q = m.out("q", DType::I64), r = m.out("r", DType::I64);
    auto s = m.out("s", DType::I64), d = m.size("d");
    auto v = m.b.load(px, m.b.range(n));
    m.b.store(q, m.b.range(n), m.op(ScalarOp::Div, {v, d}));
    m.b.store(r, m.b.range(n), m.op(ScalarOp::Mod, {v, d}));
    m.b.store(s, m.b.range(n), m.op(ScalarOp::Fmod, {v, d}));
    GpuRun run;
    run.buffers = {x, filled(DType::I64, n, 0), filled(DType::I64, n, 0), filled(DType::I64, n, 0)};
    run.scalars = {divisor};
    run.warps = {1, 4};
    run.seeds = 1;
    expect_as_interpreted(std::move(m.k), run);
  }
}

TEST(GpuMathTable, HasEveryElementaryFunction) {
  for (int o = static_cast<int>(ScalarOp::Sqrt); o <= static_cast<int>(ScalarOp::Sigmoid); ++o)
    EXPECT_NE(gpu_function(static_cast<ScalarOp>(o)), nullptr) << info(static_cast<ScalarOp>(o)).name;
}

} // namespace
} // namespace tessera::test
