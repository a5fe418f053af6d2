// Host machine code against the tile interpreter and, for elementary functions, against float64.
#include "codegen/llvm/host_compiler.h"
#include "tests/base/share.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

namespace tessera {
namespace {

using tile::Builder;
using tile::Kernel;
using tile::Type;

Type pointer(DType d) { return {Type::Kind::Pointer, d, {}}; }
Type scalar_i64() { return {Type::Kind::Data, DType::I64, {}}; }

HostKernelFn link(const Kernel& kernel, std::shared_ptr<const HostCode>& keep,
                  const HostTarget& target = HostTarget::detect()) {
  auto verified = tile::verify(kernel);
  EXPECT_TRUE(verified.ok()) << (verified.ok() ? "" : verified.error().str()) << tile::print(kernel);
  auto object = compile_host_kernel(kernel, target);
  EXPECT_TRUE(object.ok()) << (object.ok() ? "" : object.error().str()) << tile::print(kernel);
  if (!object.ok()) return nullptr;
  std::vector<CompiledObject> objects{*object};
  auto module = link_host_objects(objects);
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().str());
  if (!module.ok()) return nullptr;
  keep = *module;
  return keep->find(kernel.name);
}

// y[i] = body(x[i]...) over n elements in tiles of 64 with a masked tail.
Kernel elementwise(const std::vector<DType>& in, DType out,
                   const std::function<tile::ValueId(Builder&, std::span<const tile::ValueId>)>& body, int tile = 64) {
  Kernel k;
  k.name = "elementwise";
  Builder b(k);
  std::vector<tile::ValueId> xs;
  for (size_t i = 0; i < in.size(); ++i) xs.push_back(b.param("x" + std::to_string(i), pointer(in[i])));
  auto y = b.param("y", pointer(out), true);
  auto n = b.param("n", scalar_i64());
  auto zero = b.const_i(DType::I64, 0);
  auto step = b.const_i(DType::I64, tile);
  b.for_loop(zero, n, step, {}, [&](tile::ValueId i, std::span<const tile::ValueId>) -> std::vector<tile::ValueId> {
    std::array<tile::ValueId, 2> oa = {b.range(tile), i};
    auto offset = b.scalar(ScalarOp::Add, oa);
    std::array<tile::ValueId, 2> ma = {offset, n};
    auto mask = b.scalar(ScalarOp::Lt, ma);
    std::vector<tile::ValueId> v;
    for (auto x : xs) v.push_back(b.load(x, offset, mask));
    b.store(y, offset, body(b, v), mask);
    return {};
  });
  return k;
}

struct Buffers {
  std::vector<std::vector<std::byte>> data;
  std::vector<int64_t> sizes;
  std::vector<void*> pointers() {
    std::vector<void*> p;
    for (auto& d : data) p.push_back(d.data());
    return p;
  }
};

void run(HostKernelFn fn, Buffers& b, int64_t grid, IndexReport* report = nullptr) {
  auto p = b.pointers();
  IndexReport unused;
  std::vector<std::byte> scratch(1 << 16);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  fn(p.data(), b.sizes.data(), 0, grid, aligned, report ? report : &unused);
}

void set(std::vector<std::byte>& to, DType d, int64_t i, double v) {
  switch (d) {
  case DType::F32: {
    float f = static_cast<float>(v);
    std::memcpy(&to[static_cast<size_t>(i) * 4], &f, 4);
    break;
  }
  case DType::F64: std::memcpy(&to[static_cast<size_t>(i) * 8], &v, 8); break;
  case DType::F16: {
    auto h = f32_to_f16(static_cast<float>(v));
    std::memcpy(&to[static_cast<size_t>(i) * 2], &h, 2);
    break;
  }
  case DType::BF16: {
    auto h = f32_to_bf16(static_cast<float>(v));
    std::memcpy(&to[static_cast<size_t>(i) * 2], &h, 2);
    break;
  }
  case DType::Bool: to[static_cast<size_t>(i)] = std::byte(v != 0); break;
  default: {
    auto x = static_cast<int64_t>(v);
    std::memcpy(&to[static_cast<size_t>(i * info(d).bits / 8)], &x, static_cast<size_t>(info(d).bits / 8));
  }
  }
}

// Runs compiled code and the interpreter on the same bytes; written buffers must agree to the bit (`ulp` for float
// results).
void expect_as_interpreted(const Kernel& kernel, Buffers input, int64_t grid, double relative = 0) {
  for (const char* isa : {"native", "avx2", "sse"}) {
    SCOPED_TRACE(isa);
    if (std::string_view(isa) != "native") setenv("TESSERA_HOST_ISA", isa, 1);
    auto target = HostTarget::detect();
    unsetenv("TESSERA_HOST_ISA");
    std::shared_ptr<const HostCode> keep;
    auto fn = link(kernel, keep, target);
    ASSERT_NE(fn, nullptr);
    Buffers compiled = input, interpreted = input;
    run(fn, compiled, grid);
    std::vector<tile::Argument> args;
    size_t buffer = 0, size = 0;
    for (const auto& p : kernel.params) {
      tile::Argument a;
      if (p.type.kind == Type::Kind::Pointer)
        a.bytes = interpreted.data[buffer++];
      else
        a.scalar.i = interpreted.sizes[size++];
      args.push_back(a);
    }
    auto r = tile::interpret(kernel, args, grid);
    ASSERT_TRUE(r.ok()) << r.error().str();
    buffer = 0;
    for (const auto& p : kernel.params) {
      if (p.type.kind != Type::Kind::Pointer) continue;
      auto &c = compiled.data[buffer], &i = interpreted.data[buffer];
      ++buffer;
      if (!p.written) continue;
      if (relative == 0) {
        EXPECT_EQ(std::memcmp(c.data(), i.data(), c.size()), 0) << "buffer " << p.name << "\n" << tile::print(kernel);
        continue;
      }
      ASSERT_EQ(p.type.dtype, DType::F32);
      double difference = 0, norm = 0;
      for (size_t e = 0; e < c.size() / 4; ++e) {
        float x, y;
        std::memcpy(&x, &c[e * 4], 4);
        std::memcpy(&y, &i[e * 4], 4);
        if (std::isnan(y)) {
          EXPECT_TRUE(std::isnan(x)) << e;
          continue;
        }
        if (std::isinf(y)) {
          EXPECT_EQ(x, y) << e;
          continue;
        }
        difference += (double(x) - y) * (double(x) - y);
        norm += double(y) * y;
      }
      EXPECT_LE(std::sqrt(difference), relative * std::sqrt(norm) + 1e-30) << "buffer " << p.name;
    }
  }
}

Buffers filled(const std::vector<DType>& dtypes, int64_t n, unsigned seed, bool small_integers = false) {
  Buffers b;
  std::mt19937 rng(seed);
  for (auto d : dtypes) {
    std::vector<std::byte> bytes(static_cast<size_t>(std::max<int64_t>(1, byte_size(d, n))), std::byte{0xa5});
    for (int64_t i = 0; i < n; ++i) {
      double v = std::normal_distribution<double>(0, 4)(rng);
      if (!is_float(d)) v = small_integers ? std::floor(v) : v * 40;
      if (info(d).kind == DTypeKind::Unsigned) v = std::abs(v);
      if (d == DType::Bool) v = rng() % 2;
      set(bytes, d, i, v);
    }
    b.data.push_back(std::move(bytes));
  }
  return b;
}

class ElementwiseSizes : public ::testing::TestWithParam<int> {};
TEST_P(ElementwiseSizes, EveryOperatorAgreesWithTheInterpreter) {
  int n = GetParam();
  test::Share share;
  for (int o = static_cast<int>(ScalarOp::Neg); o < static_cast<int>(ScalarOp::Count_); ++o) {
    auto op = static_cast<ScalarOp>(o);
    const auto& facts = info(op);
    for (auto d : {DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::I16, DType::U32, DType::Bool}) {
      bool f = is_float(d),
           logic = op == ScalarOp::And || op == ScalarOp::Or || op == ScalarOp::Xor || op == ScalarOp::Not;
      bool transcendental =
          (op >= ScalarOp::Sqrt && op <= ScalarOp::Sigmoid) || (op == ScalarOp::Pow && f) || op == ScalarOp::Fma;
      bool bits = op == ScalarOp::Shl || op == ScalarOp::Shr;
      if (transcendental && (d != DType::F32)) continue; // f64: the accuracy test below
      if ((op == ScalarOp::IsNan || op == ScalarOp::IsInf) && !f) continue;
      if ((logic || bits) && f) continue;
      if (d == DType::Bool && !logic && op != ScalarOp::Eq && op != ScalarOp::Ne && op != ScalarOp::Select) continue;
      if (bits && n > 100) continue;
      if (!share.takes({std::string(facts.name), std::string(name(d))})) continue;
      SCOPED_TRACE(std::string(facts.name) + " " + std::string(name(d)));
      int arity = op == ScalarOp::Select ? 3 : facts.arity;
      std::vector<DType> in(static_cast<size_t>(arity), d);
      if (op == ScalarOp::Select) in[0] = DType::Bool;
      DType result = facts.yields_bool ? DType::Bool : d;
      auto k = elementwise(in, result, [&](Builder& b, std::span<const tile::ValueId> v) { return b.scalar(op, v); });
      auto dtypes = in;
      dtypes.push_back(result);
      auto data =
          filled(dtypes, n, static_cast<unsigned>(o * 31 + n),
                 bits || op == ScalarOp::Div || op == ScalarOp::Mod || op == ScalarOp::Fmod || op == ScalarOp::Pow);
      data.sizes = {n};
      expect_as_interpreted(k, data, 1, transcendental ? 2e-6 : 0);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Sizes, ElementwiseSizes, ::testing::Values(77));

TEST(HostCasts, AgreeWithTheInterpreter) {
  std::vector<DType> all = {DType::Bool, DType::I8,  DType::I16, DType::I32,  DType::I64, DType::U8, DType::U16,
                            DType::U32,  DType::U64, DType::F16, DType::BF16, DType::F32, DType::F64};
  test::Share share;
  for (auto from : all)
    for (auto to : all) {
      if (!share.takes({std::string(name(from)), std::string(name(to))})) continue;
      SCOPED_TRACE(std::string(name(from)) + " to " + std::string(name(to)));
      auto k = elementwise({from}, to, [&](Builder& b, std::span<const tile::ValueId> v) { return b.cast(v[0], to); });
      auto data = filled({from, to}, 77, 3);
      if (is_float(from)) {
        set(data.data[0], from, 0, NAN);
        set(data.data[0], from, 1, INFINITY);
        set(data.data[0], from, 2, -INFINITY);
        set(data.data[0], from, 3, 60000.0);
        set(data.data[0], from, 4, -3.0e4);
        if (is_float(to)) set(data.data[0], from, 0, 1); // which NaN is not fixed
      }
      data.sizes = {77};
      auto target = HostTarget::detect();
      expect_as_interpreted(k, data, 1);
    }
}

// Processors without arithmetic of halves compare them singly: nothing but loads, stores and conversions sees them.
TEST(HostCasts, HalvesAreWidenedBeforeAnythingElse) {
  auto one = [](ScalarOp op) { return [op](Builder& b, tile::ValueId x) { return b.scalar(op, std::array{x}); }; };
  auto bounded = [](Builder& b, tile::ValueId x) {
    auto limit = b.broadcast(b.const_f(DType::F32, 6), {64});
    auto most = b.scalar(ScalarOp::Min, std::array{x, limit});
    auto below = b.scalar(ScalarOp::Lt, std::array{x, limit});
    return b.scalar(ScalarOp::Select, std::array{below, b.scalar(ScalarOp::Max, std::array{most, x}), limit});
  };
  std::vector<std::function<tile::ValueId(Builder&, tile::ValueId)>> bodies{bounded};
  for (auto op : {ScalarOp::Exp, ScalarOp::Sigmoid, ScalarOp::Tanh, ScalarOp::Erf, ScalarOp::Abs, ScalarOp::Neg})
    bodies.push_back(one(op));
  for (size_t i = 0; i <= bodies.size(); ++i) {
    const bool truth = i == bodies.size();
    auto k =
        elementwise({DType::F16}, truth ? DType::Bool : DType::F16, [&](Builder& b, std::span<const tile::ValueId> v) {
          return truth ? b.cast(v[0], DType::Bool) : b.cast(bodies[i](b, b.cast(v[0], DType::F32)), DType::F16);
        });
    auto object = compile_host_kernel(k, HostTarget::detect(), true);
    ASSERT_TRUE(object.ok()) << object.error().str();
    std::istringstream lines(object->llvm_ir);
    size_t conversions = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" half") == std::string::npos) continue;
      EXPECT_EQ(line.find("fcmp"), std::string::npos) << line;
      conversions += line.find("fpext") != std::string::npos;
    }
    EXPECT_GT(conversions, 0u);
  }
}

struct Accuracy {
  ScalarOp op;
  double lo, hi, ulp;
  double (*reference)(double);
};
class HostMath : public ::testing::TestWithParam<Accuracy> {};
TEST_P(HostMath, WithinUlpsOfFloat64) {
  auto p = GetParam();
  for (const char* isa : {"native", "avx2", "sse"}) {
    SCOPED_TRACE(isa);
    if (std::string_view(isa) != "native") setenv("TESSERA_HOST_ISA", isa, 1);
    auto target = HostTarget::detect();
    unsetenv("TESSERA_HOST_ISA");
    auto k = elementwise({DType::F32}, DType::F32,
                         [&](Builder& b, std::span<const tile::ValueId> v) { return b.scalar(p.op, v); });
    std::shared_ptr<const HostCode> keep;
    auto fn = link(k, keep, target);
    ASSERT_NE(fn, nullptr);
    const int64_t n = 200003;
    Buffers b;
    b.data.assign(2, std::vector<std::byte>(n * 4));
    for (int64_t i = 0; i < n; ++i)
      set(b.data[0], DType::F32, i, p.lo + (p.hi - p.lo) * static_cast<double>(i) / (n - 1));
    b.sizes = {n};
    run(fn, b, 1);
    double worst = 0;
    float worst_x = 0;
    for (int64_t i = 0; i < n; ++i) {
      float x, y;
      std::memcpy(&x, &b.data[0][static_cast<size_t>(i) * 4], 4);
      std::memcpy(&y, &b.data[1][static_cast<size_t>(i) * 4], 4);
      double r = p.reference(x);
      float rounded = static_cast<float>(r);
      if (std::isinf(rounded)) {
        EXPECT_EQ(y, rounded) << x;
        continue;
      }
      double ulp =
          std::max<double>(std::abs(std::nextafter(std::abs(rounded), INFINITY) - std::abs(rounded)), 1.2e-38 * 1.2e-7);
      double e = std::abs(y - r) / ulp;
      if (!(e <= worst)) {
        worst = e;
        worst_x = x;
      }
    }
    EXPECT_LE(worst, p.ulp) << "at " << worst_x;
    // Special values.
    float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
    for (int i = 0; i < 5; ++i) std::memcpy(&b.data[0][static_cast<size_t>(i) * 4], &special[i], 4);
    b.sizes = {5};
    run(fn, b, 1);
    for (int i = 0; i < 5; ++i) {
      float y;
      std::memcpy(&y, &b.data[1][static_cast<size_t>(i) * 4], 4);
      double r = p.reference(special[i]);
      if (std::isnan(r))
        EXPECT_TRUE(std::isnan(y)) << special[i];
      else
        EXPECT_FLOAT_EQ(y, static_cast<float>(r)) << special[i];
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    Functions, HostMath,
    ::testing::Values(Accuracy{ScalarOp::Exp, -104, 89, 1.5, [](double x) { return std::exp(x); }},
                      Accuracy{ScalarOp::Tanh, -10, 10, 3, [](double x) { return std::tanh(x); }},
                      Accuracy{ScalarOp::Erf, -5, 5, 4, [](double x) { return std::erf(x); }},
                      Accuracy{ScalarOp::Sigmoid, -80, 80, 4, [](double x) { return 1 / (1 + std::exp(-x)); }},
                      Accuracy{ScalarOp::Log, 1e-30, 1e4, 4, [](double x) { return std::log(x); }},
                      Accuracy{ScalarOp::Sin, -100, 100, 4, [](double x) { return std::sin(x); }},
                      Accuracy{ScalarOp::Cos, -100, 100, 4, [](double x) { return std::cos(x); }},
                      Accuracy{ScalarOp::Sqrt, 0, 1e6, 0.51, [](double x) { return std::sqrt(x); }},
                      Accuracy{ScalarOp::Expm1, -20, 80, 4, [](double x) { return std::expm1(x); }},
                      Accuracy{ScalarOp::Log1p, -0.999, 100, 4, [](double x) { return std::log1p(x); }},
                      Accuracy{ScalarOp::Atan, -100, 100, 4, [](double x) { return std::atan(x); }}));

// Every reduction over one-, two-dimensional tiles and both axes.
TEST(HostReduce, AgreesWithTheInterpreter) {
  test::Share share;
  for (auto kind :
       {ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::ArgMax, ReduceKind::ArgMin})
    for (auto d : {DType::F32, DType::I32})
      for (auto shape : std::vector<std::vector<int>>{{64}, {16}, {4}, {4, 16}, {16, 4}, {8, 8}})
        for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
          bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
          const std::string along = std::to_string(axis) + " of " + std::to_string(shape.size());
          if (!share.takes({std::string(name(kind)), std::string(name(d)), along})) continue;
          SCOPED_TRACE(std::string(name(kind)) + " " + std::string(name(d)) + " axis " + along);
          Kernel k;
          k.name = "reduction";
          Builder b(k);
          auto x = b.param("x", pointer(d));
          auto y = b.param("y", pointer(arg ? DType::I64 : d), true);
          int n = 1, m = 1;
          for (size_t i = 0; i < shape.size(); ++i) {
            n *= shape[i];
            if (static_cast<int>(i) != axis) m *= shape[i];
          }
          tile::ValueId offset = b.range(shape.back());
          if (shape.size() == 2) {
            std::array<tile::ValueId, 2> rows = {b.expand_dims(b.range(shape[0]), 1), b.const_i(DType::I64, shape[1])};
            std::array<tile::ValueId, 2> sum = {b.broadcast(b.scalar(ScalarOp::Mul, rows), shape),
                                                b.broadcast(b.expand_dims(offset, 0), shape)};
            offset = b.scalar(ScalarOp::Add, sum);
          }
          auto v = b.load(x, offset);
          auto r = arg ? b.reduce_arg(kind, v, offset, axis, false).second : b.reduce(kind, v, axis);
          b.store(y, shape.size() == 1 ? b.const_i(DType::I64, 0) : b.range(m), r);
          auto data = filled({d, arg ? DType::I64 : d}, n, 9, kind == ReduceKind::Prod);
          data.data[1].resize(static_cast<size_t>(byte_size(arg ? DType::I64 : d, m)));
          expect_as_interpreted(k, data, 1, d == DType::F32 && !arg ? 1e-6 : 0);
        }
}

TEST(HostLoops, CarriedTilesScratchAndPrograms) {
  // Softmax of each row, exponentials kept in scratch.
  Kernel k;
  k.name = "softmax";
  Builder b(k);
  auto x = b.param("x", pointer(DType::F32));
  auto y = b.param("y", pointer(DType::F32), true);
  auto n = b.param("n", scalar_i64());
  auto pid = b.program_id(0);
  auto op = [&](ScalarOp o, std::initializer_list<tile::ValueId> a) {
    return b.scalar(o, std::vector<tile::ValueId>(a));
  };
  auto row = op(ScalarOp::Mul, {pid, n});
  auto zero = b.const_i(DType::I64, 0), step = b.const_i(DType::I64, 32);
  auto low = b.broadcast(b.const_f(DType::F32, -INFINITY), {32});
  auto mx = b.for_loop(
      zero, n, step, {low}, [&](tile::ValueId i, std::span<const tile::ValueId> c) -> std::vector<tile::ValueId> {
        auto col = op(ScalarOp::Add, {b.range(32), i});
        return {op(ScalarOp::Max, {c[0], b.load(x, op(ScalarOp::Add, {col, row}), op(ScalarOp::Lt, {col, n}), low)})};
      });
  auto m = b.reduce(ReduceKind::Max, mx[0], 0);
  auto keep = b.scratch(DType::F32, n);
  auto none = b.broadcast(b.const_f(DType::F32, 0), {32});
  auto sums = b.for_loop(
      zero, n, step, {none}, [&](tile::ValueId i, std::span<const tile::ValueId> c) -> std::vector<tile::ValueId> {
        auto col = op(ScalarOp::Add, {b.range(32), i});
        auto mask = op(ScalarOp::Lt, {col, n});
        auto e = op(ScalarOp::Exp, {op(ScalarOp::Sub, {b.load(x, op(ScalarOp::Add, {col, row}), mask), m})});
        e = op(ScalarOp::Select, {mask, e, none});
        b.store(keep, col, e, mask);
        return {op(ScalarOp::Add, {c[0], e})};
      });
  auto s = b.reduce(ReduceKind::Sum, sums[0], 0);
  b.for_loop(zero, n, step, {}, [&](tile::ValueId i, std::span<const tile::ValueId>) -> std::vector<tile::ValueId> {
    auto col = op(ScalarOp::Add, {b.range(32), i});
    auto mask = op(ScalarOp::Lt, {col, n});
    b.store(y, op(ScalarOp::Add, {col, row}), op(ScalarOp::Div, {b.load(keep, col, mask), s}), mask);
    return {};
  });
  for (int columns : {1, 31, 32, 33, 100}) {
    SCOPED_TRACE(columns);
    auto data = filled({DType::F32, DType::F32}, columns * 5, 1);
    data.sizes = {columns};
    expect_as_interpreted(k, data, 5, 1e-6);
  }
}

// A line for each 64 bytes of neighbours, none for a gather; wherever the place lies.
TEST(HostPrefetch, IsOneInstructionALineAndHarmless) {
  Kernel k;
  k.name = "ahead";
  Builder b(k);
  auto x = b.param("x", pointer(DType::F32)), y = b.param("y", pointer(DType::F32), true),
       n = b.param("n", scalar_i64());
  std::array<tile::ValueId, 2> along = {b.range(64), n};
  auto near = b.scalar(ScalarOp::Add, along);
  std::array<tile::ValueId, 2> squares = {near, near};
  b.prefetch(x, near);
  b.prefetch(x, n);
  b.prefetch(x, b.scalar(ScalarOp::Mul, squares));
  b.store(y, b.range(64), b.load(x, b.range(64)));
  auto target = HostTarget::detect();
  auto object = compile_host_kernel(k, target, true);
  ASSERT_TRUE(object.ok()) << object.error().str();
  size_t calls = 0;
  for (size_t at = 0; (at = object->llvm_ir.find("call void @llvm.prefetch", at)) != std::string::npos; ++at) ++calls;
  EXPECT_EQ(calls, 5u); // 64 floats are four lines
  std::shared_ptr<const HostCode> keep;
  auto* fn = link(k, keep);
  ASSERT_NE(fn, nullptr);
  for (int64_t far : {int64_t{0}, int64_t{1} << 40, -(int64_t{1} << 40)}) {
    Buffers buffers;
    buffers.data = {std::vector<std::byte>(256, std::byte{3}), std::vector<std::byte>(256)};
    buffers.sizes = {far};
    run(fn, buffers, 1);
    EXPECT_EQ(buffers.data[1], buffers.data[0]);
  }
}

// Squares along memory, across it, and what has one of their dimensions; of any size next to the vectors'.
TEST(HostSquares, AlongAndAcrossAgreeWithTheInterpreter) {
  test::Share share;
  for (const char* type : {"f32", "f64", "i8"})
    for (int n : {4, 8, 16}) {
      SCOPED_TRACE(std::string(type) + " " + std::to_string(n));
      const std::string N = std::to_string(n), of = std::string(", ") + type + ">", at = ", i64>",
                        square = "tile<[" + N + ", " + N + "]", column = "tile<[" + N + ", 1]",
                        row = "tile<[1, " + N + "]";
      auto k =
          tile::parse("tile.kernel @squares(%x: ptr<" + std::string(type) + ">, %g: ptr<" + type + ">, %y: ptr<" +
                      type + "> written, %z: ptr<" + type + "> written, %n: i64) {\n%r = range " + N + " : tile<[" + N +
                      "], i64>\n%i = expand_dims(%r) axis=1 : " + column + at +
                      "\n%j = expand_dims(%r) axis=0 : " + row + at + "\n%in = mul(%i, %n) : " + column + at +
                      "\n%jn = mul(%j, %n) : " + row + at + "\n%a0 = broadcast(%in) : " + square + at +
                      "\n%a1 = broadcast(%j) : " + square + at + "\n%along = add(%a0, %a1) : " + square + at +
                      "\n%b0 = broadcast(%i) : " + square + at + "\n%b1 = broadcast(%jn) : " + square + at +
                      "\n%across = add(%b1, %b0) : " + square + at + "\n%v = load %x[%along] : " + square + of +
                      "\n%w = load %x[%across] : " + square + of + "\n%c = load %g[%i] : " + column + of +
                      "\n%d = load %g[%in] : " + column + of + "\n%e = load %g[%j] : " + row + of +
                      "\n%cs = broadcast(%c) : " + square + of + "\n%ds = broadcast(%d) : " + square + of +
                      "\n%es = broadcast(%e) : " + square + of + "\n%s = add(%v, %cs) : " + square + of +
                      "\n%t = sub(%w, %ds) : " + square + of + "\n%u = add(%t, %es) : " + square + of +
                      "\n%q = sub(%s, %u) : " + square + of + "\nstore %y[%along] = %q\nstore %z[%across] = %s\n}");
      ASSERT_TRUE(k.ok()) << k.error().str();
      const DType d = k->params[0].type.dtype;
      for (int pitch : {n, n + 3}) {
        if (!share.takes({type, std::to_string(n), pitch == n ? "dense" : "padded"})) continue;
        auto data = filled({d, d, d, d}, pitch * n, 1);
        data.sizes = {pitch};
        expect_as_interpreted(*k, data, 1);
      }
    }
}

TEST(HostGather, MasksGatherScatterAndReports) {
  // y[i] = x[index[i]] where the index is in range, else 0 and a report.
  Kernel k;
  k.name = "gather";
  Builder b(k);
  auto x = b.param("x", pointer(DType::F32));
  auto index = b.param("index", pointer(DType::I64));
  auto y = b.param("y", pointer(DType::F32), true);
  auto n = b.param("n", scalar_i64());
  auto size = b.param("size", scalar_i64());
  auto op = [&](ScalarOp o, std::initializer_list<tile::ValueId> a) {
    return b.scalar(o, std::vector<tile::ValueId>(a));
  };
  b.for_loop(
      b.const_i(DType::I64, 0), n, b.const_i(DType::I64, 16), {},
      [&](tile::ValueId i, std::span<const tile::ValueId>) -> std::vector<tile::ValueId> {
        auto at = op(ScalarOp::Add, {b.range(16), i});
        auto mask = op(ScalarOp::Lt, {at, n});
        auto ix = b.load(index, at, mask);
        auto good = op(ScalarOp::And, {op(ScalarOp::Ge, {ix, b.const_i(DType::I64, 0)}), op(ScalarOp::Lt, {ix, size})});
        b.report_index(op(ScalarOp::And, {mask, op(ScalarOp::Not, {good})}), ix, at, 6);
        b.store(y, at, b.load(x, ix, op(ScalarOp::And, {mask, good})), mask);
        return {};
      });
  std::shared_ptr<const HostCode> keep;
  auto fn = link(k, keep);
  ASSERT_NE(fn, nullptr);
  Buffers data;
  data.data.assign(3, {});
  data.data[0].resize(40);
  data.data[1].resize(21 * 8);
  data.data[2].resize(21 * 4);
  for (int i = 0; i < 10; ++i) set(data.data[0], DType::F32, i, i * 1.5);
  for (int i = 0; i < 21; ++i) set(data.data[1], DType::I64, i, (i * 7) % 10);
  data.sizes = {21, 10};
  IndexReport report;
  run(fn, data, 1, &report);
  EXPECT_FALSE(report.any());
  for (int i = 0; i < 21; ++i) {
    float v;
    std::memcpy(&v, &data.data[2][static_cast<size_t>(i) * 4], 4);
    EXPECT_EQ(v, ((i * 7) % 10) * 1.5f);
  }
  set(data.data[1], DType::I64, 20, 10);
  set(data.data[1], DType::I64, 17, -1e15);
  run(fn, data, 1, &report);
  IndexReport expected;
  expected.add(6, 17, -1'000'000'000'000'000);
  EXPECT_EQ(report, expected);
}

// Logic of masks, some of which LLVM's instruction selection does not come to an end with on vectors of booleans.
TEST(HostMasks, FormulasOfTwoBoundsAgreeWithTheInterpreter) {
  for (DType d : {DType::I64, DType::F32, DType::I16}) {
    Kernel k;
    k.name = "masks";
    Builder b(k);
    auto x = b.param("x", pointer(d)), y = b.param("y", pointer(d), true);
    auto m = b.param("m", scalar_i64()), n = b.param("n", scalar_i64());
    auto op = [&](ScalarOp o, std::initializer_list<tile::ValueId> a) {
      return b.scalar(o, std::vector<tile::ValueId>(a));
    };
    auto zero = b.const_i(DType::I64, 0);
    auto none = is_float(d) ? b.const_f(d, 0) : b.const_i(d, 0);
    b.for_loop(zero, b.const_i(DType::I64, 128), b.const_i(DType::I64, 32), {},
               [&](tile::ValueId i, std::span<const tile::ValueId>) -> std::vector<tile::ValueId> {
                 auto at = op(ScalarOp::Add, {b.range(32), i});
                 auto first = op(ScalarOp::Lt, {at, m}), second = op(ScalarOp::Lt, {at, n});
                 auto other = op(ScalarOp::Not, {second});
                 auto v = b.load(x, at, op(ScalarOp::Or, {first, second}));
                 auto inner = op(ScalarOp::Select, {other, v, none});
                 auto outer = op(ScalarOp::Select, {first, inner, none});
                 b.store(y, at, op(ScalarOp::Select, {second, v, outer}));
                 return {};
               });
    for (auto [size_m, size_n] : {std::pair<int64_t, int64_t>{100, 37}, {37, 100}, {0, 128}, {128, 0}}) {
      Buffers data = filled({d, d}, 128, 3, true);
      data.sizes = {size_m, size_n};
      expect_as_interpreted(k, data, 1);
    }
  }
}

} // namespace
} // namespace tessera
