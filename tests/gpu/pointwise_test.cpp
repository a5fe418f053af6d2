// Every scalar operator and every conversion between types, as a GPU thread computes it.
#include "harness.h"
#include <cmath>

namespace tessera::test {
namespace {

using tile::ValueId;

// y[i] = f(x0[i], x1[i], ...) for i < n, in tiles of 128.
tile::Kernel elementwise(const std::vector<DType>& in, DType result,
                         const std::function<ValueId(KernelMaker&, std::span<const ValueId>)>& f) {
  KernelMaker m("elementwise");
  std::vector<ValueId> pointers;
  for (size_t a = 0; a < in.size(); ++a) pointers.push_back(m.in("x" + std::to_string(a), in[a]));
  auto y = m.out("y", result), n = m.size("n");
  auto at = m.add(m.b.range(128), m.mul(m.b.program_id(0), m.i(128)));
  auto mask = m.lt(at, n);
  std::vector<ValueId> values;
  for (auto p : pointers) values.push_back(m.b.load(p, at, mask));
  m.b.store(y, at, f(m, values), mask);
  return std::move(m.k);
}

struct Range {
  double lo, hi;
};
// The range in which an elementary function is defined and its results are of moderate size.
Range range_of(ScalarOp op) {
  switch (op) {
  case ScalarOp::Log:
  case ScalarOp::Log2:
  case ScalarOp::Rsqrt:
  case ScalarOp::Sqrt: return {0.01, 50};
  case ScalarOp::Log1p: return {-0.9, 50};
  case ScalarOp::Asin:
  case ScalarOp::Acos:
  case ScalarOp::Atanh: return {-0.95, 0.95};
  case ScalarOp::Acosh: return {1.05, 20};
  case ScalarOp::Tan: return {-1.4, 1.4};
  default: return {-4, 4};
  }
}

// The operands are in one thread; results are rounded as IEEE has it, also at the ends of the exponent.
TEST(GpuPointwise, DivisionsByConstants) {
  std::vector<double> x = {0.0,   -0.0,  HUGE_VAL, -HUGE_VAL, std::nan(""), 1,   -3,
                           1e-45, 3e-45, 7e-45,    -1e-44,    1e-38,        3e38};
  for (int i = 0; i < 500; ++i) x.push_back(std::ldexp(1 + i * 0.0123456789, i % 253 - 126) * (i % 2 ? 1 : -1));
  for (double by : {3.0, 100417.0, 2.0, 7e-39, 1e-45, 3.4e38, -0.1}) {
    KernelMaker m("divisions");
    auto in = m.in("x", DType::F32), y = m.out("y", DType::F32), p = m.b.program_id(0);
    m.b.store(y, p, m.op(ScalarOp::Div, {m.b.load(in, p), m.b.const_f(DType::F32, by)}));
    GpuRun run;
    run.grid = static_cast<int64_t>(x.size());
    run.buffers = {filled(DType::F32, run.grid, 0), filled(DType::F32, run.grid, 0)};
    for (size_t i = 0; i < x.size(); ++i) run.buffers[0].set_f64(static_cast<int64_t>(i), x[i]);
    run.warps = {1};
    run.seeds = 1;
    expect_as_interpreted(std::move(m.k), run);
  }
}

TEST(GpuPointwise, EveryOperatorAgreesWithTheInterpreter) {
  constexpr int64_t n = 301;
  int warps = 1;
  for (int o = static_cast<int>(ScalarOp::Neg); o < static_cast<int>(ScalarOp::Count_); ++o) {
    auto op = static_cast<ScalarOp>(o);
    const auto& facts = info(op);
    for (auto d : {DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::I16, DType::U32, DType::Bool}) {
      bool f = is_float(d),
           logic = op == ScalarOp::And || op == ScalarOp::Or || op == ScalarOp::Xor || op == ScalarOp::Not;
      bool elementary =
          (op >= ScalarOp::Sqrt && op <= ScalarOp::Sigmoid) || (op == ScalarOp::Pow && f) || op == ScalarOp::Fma;
      bool bits = op == ScalarOp::Shl || op == ScalarOp::Shr;
      if (elementary && !f) continue;
      if ((op == ScalarOp::IsNan || op == ScalarOp::IsInf) && !f) continue;
      if ((logic || bits) && f) continue;
      if (d == DType::Bool && !logic && op != ScalarOp::Eq && op != ScalarOp::Ne && op != ScalarOp::Select) continue;
      SCOPED_TRACE(std::string(facts.name) + " " + std::string(name(d)));
      int arity = op == ScalarOp::Select ? 3 : facts.arity;
      std::vector<DType> in(static_cast<size_t>(arity), d);
      if (op == ScalarOp::Select) in[0] = DType::Bool;
      DType result = facts.yields_bool ? DType::Bool : d;
      GpuRun run;
      for (size_t a = 0; a < in.size(); ++a) {
        Tensor t = random_tensor(in[a], n, static_cast<uint64_t>(o) * 7 + a, bits ? 7 : 9);
        if (f && in[a] == d) {
          Range r = elementary ? range_of(op) : Range{-9, 9};
          if (op == ScalarOp::Pow) r = a == 0 ? Range{0.1, 9} : Range{-3, 3};
          for (int64_t i = 0; i < n; ++i) t.set_f64(i, r.lo + (t.get_f64(i) + 9) / 18 * (r.hi - r.lo));
          if (!elementary) { // which NaN is not compared, that it is one is
            t.set_f64(static_cast<int64_t>(a), std::nan(""));
            t.set_f64(5 + static_cast<int64_t>(a), HUGE_VAL);
            t.set_f64(9 + static_cast<int64_t>(a), -HUGE_VAL);
            t.set_f64(13 + static_cast<int64_t>(a), -0.0);
            t.set_f64(20, 2.5);
          }
        }
        run.buffers.push_back(t);
      }
      run.buffers.push_back(filled(result, n, 0));
      run.scalars = {n};
      run.grid = 3;
      run.tolerance = elementary ? (d == DType::F64 ? 1e-11 : 4e-6) : f && op == ScalarOp::Fmod ? 1e-6 : 0;
      run.warps = {warps};
      run.seeds = 1;
      warps = warps == 8 ? 1 : warps * 2;
      expect_as_interpreted(
          elementwise(in, result, [&](KernelMaker& m, std::span<const ValueId> v) { return m.b.scalar(op, v); }), run);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GpuPointwise, ConversionsAgreeWithTheInterpreter) {
  const std::vector<DType> all = {DType::Bool, DType::I8,  DType::I16, DType::I32,      DType::I64,
                                  DType::U8,   DType::U16, DType::U32, DType::U64,      DType::F16,
                                  DType::BF16, DType::F32, DType::F64, DType::F8E4M3FN, DType::F8E5M2};
  int warps = 1;
  constexpr int64_t n = 200;
  for (auto from : all) {
    // All targets in one kernel.
    KernelMaker m("casts");
    auto x = m.in("x", from);
    std::vector<ValueId> y;
    for (auto to : all) y.push_back(m.out("y_" + std::string(name(to)), to));
    auto size = m.size("n");
    auto at = m.add(m.b.range(256), m.i(0));
    auto mask = m.lt(at, size);
    auto v = m.b.load(x, at, mask);
    for (size_t t = 0; t < all.size(); ++t) m.b.store(y[t], at, m.b.cast(v, all[t]), mask);
    GpuRun run;
    Tensor values = random_tensor(from, n, 3, is_float(from) ? 300 : 100);
    if (is_float(from)) {
      values.set_f64(1, HUGE_VAL);
      values.set_f64(2, -HUGE_VAL);
      values.set_f64(3, 60000.0);
      values.set_f64(4, -3.0e4);
      values.set_f64(5, 0.5);
      values.set_f64(6, std::nan(""));
      values.set_f64(7, 65519.99);
      values.set_f64(8, 1e-7);
      for (int64_t i = 0; i < 100; ++i) // subnormal numbers of f8e4m3fn and of f8e5m2 among them
        values.set_f64(100 + i, std::ldexp(1 + 0.01 * static_cast<double>(i), static_cast<int>(i % 30) - 20));
    }
    run.buffers.push_back(values);
    for (auto to : all) run.buffers.push_back(filled(to, n, 1));
    run.scalars = {n};
    run.warps = {warps};
    run.seeds = 1;
    warps = warps == 8 ? 1 : warps * 2;
    SCOPED_TRACE("from " + std::string(name(from)));
    expect_as_interpreted(std::move(m.k), run);
    if (HasFatalFailure()) return;
  }
}

// Loads, selects and stores of types that nothing else is computed in.
TEST(GpuPointwise, StorageTypesAreMovedAndSelected) {
  for (auto d : {DType::F16, DType::BF16, DType::I8, DType::Bool, DType::F64, DType::F8E5M2})
    for (int tile : {16, 64, 512}) {
      KernelMaker m("selected");
      auto c = m.in("c", DType::Bool), x = m.in("x", d), y = m.in("y", d), z = m.out("z", d), n = m.size("n");
      auto at = m.add(m.b.range(tile), m.mul(m.b.program_id(0), m.i(tile)));
      auto mask = m.lt(at, n);
      auto v = m.op(ScalarOp::Select, {m.b.load(c, at, mask), m.b.load(x, at, mask), m.b.load(y, at, mask)});
      m.b.store(z, at, v, mask);
      for (int64_t size : {int64_t{1}, int64_t{tile}, int64_t{2} * tile - 3}) {
        GpuRun run;
        run.buffers = {random_tensor(DType::Bool, size, 1), random_tensor(d, size, 2), random_tensor(d, size, 3),
                       filled(d, size, 0)};
        run.scalars = {size};
        run.grid = 2;
        run.seeds = 1;
        run.warps = size == tile ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{4};
        expect_as_interpreted(m.k, run);
        if (HasFatalFailure()) return;
      }
    }
}

} // namespace
} // namespace tessera::test
