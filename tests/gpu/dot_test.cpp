// Products of tiles: on tensor cores (f16, bf16, i8, u8, 8-bit floats) and by fma, of every size and in chains, against what the interpreter
// says; and what their PTX is made of.
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include "runtime/cuda/assembler.h"
#include <cmath>
#include <regex>

namespace tessera::test {
namespace {

using tile::ValueId;

int occurrences(const std::string& text, const std::string& pattern) {
  std::regex r(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator()));
}

DType sum_dtype(DType d) { return d == DType::I8 || d == DType::U8 ? DType::I32 : compute_dtype(d); }

// y = x z + y0; either factor lies in memory by rows or by columns.
tile::Kernel product(DType x_type, DType z_type, int m, int n, int k, bool x_columns, bool z_columns) {
  KernelMaker f("product");
  auto x = f.in("x", x_type), z = f.in("z", z_type);
  DType sum = sum_dtype(x_type);
  auto y0 = f.in("y0", sum), y = f.out("y", sum);
  auto place = [&](int rows, int columns, bool by_columns) {
    if (!by_columns) return f.offsets({rows, columns});
    return f.add(f.along({rows, columns}, 0), f.mul(f.along({rows, columns}, 1), f.i(rows)));
  };
  auto a = f.b.load(x, place(m, k, x_columns)), b = f.b.load(z, place(k, n, z_columns));
  auto c = f.b.load(y0, f.offsets({m, n}));
  f.b.store(y, f.offsets({m, n}), f.b.dot(a, b, c));
  return std::move(f.k);
}

TEST(GpuDot, EverySizeTypeAndArrangement) {
  struct Size {
    int m, n, k;
  };
  int turn = 0;
  using enum DType;
  for (auto [d, right] : {std::pair{F16, F16},
                          {BF16, BF16},
                          {F32, F32},
                          {F64, F64},
                          {I32, I32},
                          {I8, I8},
                          {I8, U8},
                          {U8, I8},
                          {U8, U8},
                          {F8E4M3FN, F8E4M3FN},
                          {F8E4M3FN, F8E5M2},
                          {F8E5M2, F8E4M3FN},
                          {F8E5M2, F8E5M2}})
    for (auto [m, n, k] : {Size{16, 8, 16},
                           {16, 16, 16},
                           {64, 64, 64},
                           {32, 128, 32},
                           {128, 32, 16},
                           {16, 64, 128},
                           {8, 16, 16},
                           {16, 4, 32},
                           {1, 1, 1},
                           {64, 8, 4}}) {
      bool tensor = info(d).bits <= 16;
      if (!tensor && int64_t{m} * n * k > 1 << 16) continue;
      ++turn;
      SCOPED_TRACE(std::string(name(d)) + " " + std::string(name(right)) + " " + std::to_string(m) + "x" +
                   std::to_string(n) + "x" + std::to_string(k) + " turn " + std::to_string(turn));
      GpuRun run;
      DType sum = sum_dtype(d);
      run.buffers = {random_tensor(d, m * k, static_cast<uint64_t>(turn), 2),
                     random_tensor(right, k * n, static_cast<uint64_t>(turn) + 1, 2),
                     random_tensor(sum, m * n, static_cast<uint64_t>(turn) + 2, 2), filled(sum, m * n, 99)};
      run.tolerance = is_float(sum) ? 1e-5 * std::sqrt(k) : 0;
      run.warps = {1 << turn % 4, 8 >> turn % 4};
      run.seeds = 2;
      expect_as_interpreted(product(d, right, m, n, k, turn % 2 == 0, turn / 2 % 2 == 0), run);
      if (HasFatalFailure()) return;
    }
}

// softmax(q kt) v for one block of queries, the keys block after block, sizes that fill no block: a chain of two
// products with pointwise operations and reductions between them, sums carried through a loop.
tile::Kernel attention(DType d, int queries, int keys, int head) {
  KernelMaker f("attention");
  auto q = f.in("q", d), k = f.in("k", d), v = f.in("v", d), o = f.out("o", d);
  auto n = f.size("n"), m = f.size("m"); // of keys, of queries
  std::vector<int> scores = {queries, keys}, out = {queries, head};
  auto low = f.b.const_f(DType::F32, -HUGE_VAL);
  auto spread = [&](ValueId t, const std::vector<int>& to) { return f.b.broadcast(f.b.expand_dims(t, 1), to); };
  auto row = f.add(f.along(out, 0), f.mul(f.b.program_id(0), f.i(queries)));
  auto in_rows = f.lt(row, m);
  auto at = f.add(f.mul(row, f.i(head)), f.along(out, 1));
  auto a = f.b.load(q, at, in_rows);
  auto zero = f.b.const_f(DType::F32, 0);
  auto results = f.b.for_loop(
      f.i(0), n, f.i(keys), {f.b.broadcast(low, {queries}), f.b.broadcast(zero, {queries}), f.b.broadcast(zero, out)},
      [&](ValueId start, std::span<const ValueId> c) -> std::vector<ValueId> {
        std::vector<int> kt = {head, keys}, vs = {keys, head};
        auto key = f.add(f.along(kt, 1), start);
        auto b = f.b.load(k, f.add(f.mul(key, f.i(head)), f.along(kt, 0)), f.lt(key, n));
        auto s = f.b.dot(a, b, f.b.broadcast(zero, scores));
        s = f.op(ScalarOp::Select, {f.lt(f.add(f.along(scores, 1), start), n), s, f.b.broadcast(low, scores)});
        auto most = f.op(ScalarOp::Max, {c[0], f.b.reduce(ReduceKind::Max, s, 1)});
        auto p = f.op(ScalarOp::Exp, {f.op(ScalarOp::Sub, {s, spread(most, scores)})});
        auto shrink = f.op(ScalarOp::Exp, {f.op(ScalarOp::Sub, {c[0], most})});
        auto sum = f.add(f.mul(c[1], shrink), f.b.reduce(ReduceKind::Sum, p, 1));
        auto value = f.add(f.along(vs, 0), start);
        auto w = f.b.load(v, f.add(f.mul(value, f.i(head)), f.along(vs, 1)), f.lt(value, n));
        return {most, sum, f.b.dot(f.b.cast(p, d), w, f.mul(c[2], spread(shrink, out)))};
      });
  f.b.store(o, at, f.b.cast(f.op(ScalarOp::Div, {results[2], spread(results[1], out)}), d), in_rows);
  return std::move(f.k);
}

TEST(GpuDot, ChainsInLoops) {
  int turn = 0;
  for (auto d : {DType::F16, DType::BF16, DType::F32})
    for (auto [queries, keys, head] : {std::array{64, 32, 64}, {16, 16, 16}, {32, 64, 16}, {128, 16, 32}}) {
      if (d == DType::F32 && queries * keys > 2048) continue;
      SCOPED_TRACE(std::string(name(d)) + " " + std::to_string(queries) + " " + std::to_string(keys));
      int64_t n = 2 * keys + 5, m = queries + 3;
      GpuRun run;
      run.buffers = {random_tensor(d, m * head, 1, 1), random_tensor(d, n * head, 2, 1),
                     random_tensor(d, n * head, 3, 1), filled(d, m * head, 9)};
      run.scalars = {n, m};
      run.grid = 2;
      run.tolerance = d == DType::F16 ? 2e-3 : d == DType::BF16 ? 1e-2 : 1e-5;
      run.warps = {1 << turn % 4, 4};
      run.seeds = 2;
      ++turn;
      expect_as_interpreted(attention(d, queries, keys, head), run);
      if (HasFatalFailure()) return;
    }
}

// The code computes all fragments by mma and loads factors by ldmatrix, four matrices at a time; the result of the
// first product goes into the second one without an exchange.
TEST(GpuDot, IsMadeOfTensorCoreInstructions) {
  auto k = attention(DType::F16, 64, 64, 64);
  k.config["warps"] = 4;
  auto code = compile_gpu_kernel(k, {});
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_EQ(occurrences(code->ptx, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), 2 * 8 * 4);
  EXPECT_EQ(occurrences(code->ptx, "ldmatrix.sync.aligned.m8n8.x4.shared.b16"), 4 + 16);   // q, k
  EXPECT_EQ(occurrences(code->ptx, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"), 16); // v
  // k and v are prefetched by one iteration: before the loop, and in it; q is stored. Nothing else goes to shared memory.
  EXPECT_EQ(occurrences(code->ptx, "cp.async.cg.shared.global"), 2 * (4 + 4));
  EXPECT_EQ(occurrences(code->ptx, "st.shared.v4"), 4);
  EXPECT_EQ(occurrences(code->ptx, "st.shared"), 4);
  EXPECT_EQ(occurrences(code->ptx, "bar.sync"), 4)
      << "q is there, q has been read, one a round, the result may lie on top of q";
  auto b = attention(DType::BF16, 64, 64, 64);
  auto bf16 = compile_gpu_kernel(b, {});
  ASSERT_TRUE(bf16.ok()) << bf16.error().str();
  EXPECT_EQ(occurrences(bf16->ptx, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), 2 * 8 * 4);
}

// y = x z for one block of y, the depth in steps, the last one masked; the right factor by rows or by columns.
tile::Kernel stepped_product(DType x_type, DType z_type, int m, int n, int step, bool z_columns) {
  KernelMaker f("stepped");
  auto x = f.in("x", x_type), z = f.in("z", z_type), y = f.out("y", sum_dtype(x_type));
  auto depth = f.size("depth", 16);
  auto zero = f.b.broadcast(f.b.const_i(sum_dtype(x_type), 0), {m, n});
  auto sums = f.b.for_loop(
      f.i(0), depth, f.i(step), {zero}, [&](ValueId start, std::span<const ValueId> c) -> std::vector<ValueId> {
        std::vector<int> left = {m, step}, right = {step, n};
        auto at = f.add(f.along(left, 1), start), in = f.add(f.along(right, 0), start);
        auto a = f.b.load(x, f.add(f.mul(f.along(left, 0), depth), at), f.lt(at, depth));
        auto column = f.along(right, 1);
        auto b = f.b.load(z, z_columns ? f.add(f.mul(column, depth), in) : f.add(f.mul(in, f.i(n)), column),
                          f.lt(in, depth));
        return {f.b.dot(a, b, c[0])};
      });
  f.b.store(y, f.offsets({m, n}), sums[0]);
  return std::move(f.k);
}

TEST(GpuDot, PrefetchesFactorsOf8Bits) {
  int turn = 0;
  for (auto [x, z] : {std::pair{DType::I8, DType::I8}, {DType::U8, DType::I8}, {DType::I8, DType::U8}})
    for (auto [m, n, step] : {std::array{64, 64, 64}, {16, 8, 32}, {32, 128, 64}})
      for (bool z_columns : {false, true}) {
        SCOPED_TRACE(std::string(name(x)) + " " + std::string(name(z)) + " " + std::to_string(m) + " " +
                     std::to_string(n) + (z_columns ? " by columns" : " by rows"));
        const int64_t depth = 2 * step + 16;
        auto kernel = stepped_product(x, z, m, n, step, z_columns);
        GpuRun run;
        run.buffers = {random_tensor(x, m * depth, 1, 100), random_tensor(z, depth * n, 2, 100),
                       filled(DType::I32, int64_t{m} * n, 9)};
        run.scalars = {depth};
        run.warps = {1 << turn++ % 4, 4};
        run.seeds = 2;
        expect_as_interpreted(kernel, run);
        kernel.config["warps"] = 4;
        auto code = compile_gpu_kernel(kernel, {});
        ASSERT_TRUE(code.ok()) << code.error().str();
        EXPECT_GT(occurrences(code->ptx, "mma.sync.aligned.m16n8k32"), 0);
        EXPECT_GT(occurrences(code->ptx, "cp.async"), 0);
        if (HasFatalFailure()) return;
      }
}

TEST(GpuDot, MultipliesIntegersOf8BitsOnTensorCores) {
  for (auto [x, z, types] : {std::tuple{DType::I8, DType::I8, "s8.s8"},
                             {DType::I8, DType::U8, "s8.u8"},
                             {DType::U8, DType::I8, "u8.s8"},
                             {DType::U8, DType::U8, "u8.u8"}}) {
    auto k = product(x, z, 64, 64, 64, false, true);
    k.config["warps"] = 4;
    auto code = compile_gpu_kernel(k, {});
    ASSERT_TRUE(code.ok()) << code.error().str();
    EXPECT_EQ(occurrences(code->ptx, "mma.sync.aligned.m16n8k32.row.col.s32." + std::string(types) + ".s32"), 4 * 2 * 2)
        << types;
  }
}

// From sm_89 on; before, they are summed by fma.
TEST(GpuDot, MultipliesFloatsOf8BitsOnTensorCores) {
  auto k = product(DType::F8E4M3FN, DType::F8E5M2, 64, 64, 64, false, true);
  k.config["warps"] = 4;
  static auto assembler = cuda::Assembler::find(cuda::Assembler::Kind::Ptxas);
  for (const auto& [arch, count] : {std::pair{"sm_80", 0}, {"sm_89", 4 * 2 * 2}, {"sm_90", 4 * 2 * 2}}) {
    auto code = compile_gpu_kernel(k, *GpuTarget::parse(arch));
    ASSERT_TRUE(code.ok()) << code.error().str();
    EXPECT_EQ(occurrences(code->ptx, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"), count) << arch;
    if (!assembler.ok()) continue;
    const auto cubin = (*assembler)->assemble(code->ptx, arch);
    EXPECT_TRUE(cubin.ok()) << cubin.error().str();
  }
}

} // namespace
} // namespace tessera::test
