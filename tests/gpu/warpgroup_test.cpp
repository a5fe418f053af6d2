// Products by warpgroups (sm_90a): what they compute, of sizes that fill no tile, and what their PTX is made of.
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include "runtime/cuda/assembler.h"
#include <regex>

namespace tessera::test {
namespace {

using tile::ValueId;

int occurrences(const std::string& text, const std::string& pattern) {
  std::regex r(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator()));
}

struct Form {
  DType dtype = DType::BF16, right = dtype;
  int m = 128, n = 128, k = 64;              // of a tile
  bool a_columns = false, b_columns = false; // a factor lies in memory by columns
  int num_stages = 3;
  bool persistent = false;
  bool epilogue = false; // relu(sum + bias) + residual; and the sum of each row of the tile
  // c = a b + (a b2 + a2 b): the first product is read in each iteration, the others follow each other and are carried.
  bool several = false;

  [[nodiscard]] DType sum() const { return is_integer(dtype) ? DType::I32 : DType::F32; }
  [[nodiscard]] DType stored() const { return is_integer(dtype) ? sum() : dtype; } // of c, bias, residual
};

// c = a b, with sizes as parameters, or with several products.
tile::Kernel product(const Form& f) {
  KernelMaker w("product");
  auto a = w.in("a", f.dtype), b = w.in("b", f.right);
  auto bias = w.in("bias", f.stored()), residual = w.in("residual", f.stored());
  auto c = w.out("c", f.stored()), sums = w.out("sums", f.sum());
  auto a2 = f.several ? w.in("a2", f.dtype) : a, b2 = f.several ? w.in("b2", f.right) : b;
  for (auto& p : w.k.params) p.invariant = !p.written;
  const int aligned = 128 / info(f.dtype).bits; // elements of 16 bytes
  auto m = w.size("m", f.a_columns ? aligned : 1), n = w.size("n", f.b_columns ? 8 : aligned), k = w.size("k", aligned),
       programs = w.size("programs");
  auto up = [&](ValueId v, int by) { return w.op(ScalarOp::Div, {w.add(v, w.i(by - 1)), w.i(by)}); };
  auto tile_columns = up(n, f.n), tiles = w.mul(up(m, f.m), tile_columns);
  // A tile of a matrix: its offsets and mask, from the indices along both dimensions.
  auto access = [&](const std::vector<int>& shape, ValueId row0, ValueId column0, ValueId rows, ValueId columns,
                    bool by_columns) {
    auto along = [&](int axis, ValueId start) { return w.add(w.b.range(shape[static_cast<size_t>(axis)]), start); };
    auto spread = [&](ValueId v, int axis) { return w.b.broadcast(w.b.expand_dims(v, 1 - axis), shape); };
    auto r = along(0, row0), s = along(1, column0);
    auto in = w.op(ScalarOp::And, {spread(w.lt(r, rows), 0), spread(w.lt(s, columns), 1)});
    auto at =
        by_columns ? w.add(spread(r, 0), spread(w.mul(s, rows), 1)) : w.add(spread(w.mul(r, columns), 0), spread(s, 1));
    return std::pair(at, in);
  };
  auto one = [&](ValueId t) {
    auto row0 = w.mul(w.op(ScalarOp::Div, {t, tile_columns}), w.i(f.m)),
         column0 = w.mul(w.op(ScalarOp::Mod, {t, tile_columns}), w.i(f.n));
    const std::vector<int> out = {f.m, f.n};
    auto to = [&](ValueId v, DType d) { return w.k.type(v).dtype == d ? v : w.b.cast(v, d); };
    auto zero = w.b.broadcast(is_integer(f.sum()) ? w.b.const_i(f.sum(), 0) : w.b.const_f(f.sum(), 0), out);
    auto total = w.b.for_loop(
        w.i(0), k, w.i(f.k), f.several ? std::vector<ValueId>{zero, zero} : std::vector<ValueId>{zero},
        [&](ValueId i, std::span<const ValueId> acc) -> std::vector<ValueId> {
          auto [a_at, a_in] = access({f.m, f.k}, row0, i, m, k, f.a_columns);
          auto [b_at, b_in] = access({f.k, f.n}, i, column0, k, n, f.b_columns);
          auto x = w.b.load(a, a_at, a_in), y = w.b.load(b, b_at, b_in);
          if (!f.several) return {w.b.dot(x, y, acc[0])};
          auto first = w.b.dot(x, y, zero), others = w.b.dot(x, w.b.load(b2, b_at, b_in), acc[1]);
          others = w.b.dot(w.b.load(a2, a_at, a_in), y, others);
          return {w.add(acc[0], first), others};
        },
        f.num_stages);
    auto sum = f.several ? w.add(total[0], total[1]) : total[0];
    auto [at, in] = access(out, row0, column0, m, n, false);
    if (f.epilogue) {
      auto column = w.add(w.b.range(f.n), column0), row = w.add(w.b.range(f.m), row0);
      auto added = to(w.b.load(bias, column, w.lt(column, n)), f.sum());
      sum = w.add(sum, w.b.broadcast(w.b.expand_dims(added, 0), out));
      sum = w.op(ScalarOp::Max, {sum, zero});
      sum = w.add(sum, to(w.b.load(residual, at, in), f.sum()));
      auto row_sums = w.b.reduce(ReduceKind::Sum, w.op(ScalarOp::Select, {in, sum, zero}), 1);
      w.b.store(sums, w.add(w.mul(row, tile_columns), w.op(ScalarOp::Mod, {t, tile_columns})), row_sums, w.lt(row, m));
    }
    w.b.store(c, at, to(sum, f.stored()), in);
  };
  if (f.persistent)
    w.b.for_loop(
        w.b.program_id(0), tiles, programs, {},
        [&](ValueId t, std::span<const ValueId>) -> std::vector<ValueId> { return one(t), std::vector<ValueId>{}; });
  else
    one(w.b.program_id(0));
  return std::move(w.k);
}

GpuKernelCode compile(const Form& f, int warps) {
  auto k = product(f);
  k.config["warps"] = warps;
  auto code = compile_gpu_kernel(k, *GpuTarget::parse("sm_90a"));
  EXPECT_TRUE(code.ok()) << code.error().str();
  return code.ok() ? *code : GpuKernelCode{};
}

void run(const Form& f, int64_t m, int64_t n, int64_t k, std::vector<int> warps) {
  SCOPED_TRACE(std::string(name(f.dtype)) + " by " + std::string(name(f.right)) + ", " + std::to_string(m) + " x " +
               std::to_string(n) + " x " + std::to_string(k) + " by tiles of " + std::to_string(f.m) + " x " +
               std::to_string(f.n) + " x " + std::to_string(f.k) + (f.a_columns ? ", a by columns" : "") +
               (f.b_columns ? ", b by columns" : "") + ", stages " + std::to_string(f.num_stages));
  const int64_t columns = (n + f.n - 1) / f.n, tiles = (m + f.m - 1) / f.m * columns;
  const double limit = is_integer(f.dtype) ? 127 : 1;
  GpuRun run;
  run.buffers = {random_tensor(f.dtype, m * k, 1, limit),
                 random_tensor(f.right, k * n, 2, limit),
                 random_tensor(f.stored(), n, 3, limit),
                 random_tensor(f.stored(), m * n, 4, limit),
                 filled(f.stored(), m * n, 9),
                 filled(f.sum(), m * columns, 9)};
  if (f.several)
    run.buffers.insert(run.buffers.end(),
                       {random_tensor(f.dtype, m * k, 5, limit), random_tensor(f.right, k * n, 6, limit)});
  run.grid = f.persistent ? std::min<int64_t>(2, tiles) : tiles;
  run.scalars = {m, n, k, run.grid};
  run.tolerance = is_integer(f.dtype) ? 0 : f.epilogue ? 3e-2 : 1e-2;
  run.warps = std::move(warps);
  run.seeds = 2;
  run.arch = "sm_90a";
  EXPECT_NE(compile(f, run.warps.front()).products.find("by warpgroups"), std::string::npos);
  expect_as_interpreted(product(f), run);
}

TEST(Warpgroups, BothArrangementsOfBothFactors) {
  for (bool a_columns : {false, true})
    for (bool b_columns : {false, true}) {
      run({.m = 64, .n = 64, .a_columns = a_columns, .b_columns = b_columns}, 72, 72, 200, {4});
      run({.dtype = DType::F16, .m = 128, .n = 128, .a_columns = a_columns, .b_columns = b_columns}, 136, 104, 72, {8});
      if (HasFatalFailure()) return;
    }
}

TEST(Warpgroups, TilesOfEverySize) {
  for (auto [m, n, k] : {std::array{64, 8, 64}, {64, 16, 16}, {64, 256, 32}, {256, 64, 64}, {128, 32, 128}})
    run({.m = m, .n = n, .k = k, .b_columns = true}, m + 8, n + 8, k + 8, {4, 8});
  for (auto [m, n, k] : {std::array{64, 128, 128}, {128, 64, 32}})
    run({.m = m, .n = n, .k = k}, m, n + 8, 2 * k + 8, {4, 8});
  for (int n : {64, 32}) // two warpgroups share the columns: 32 and 16 of them, contiguous in memory
    run({.m = 64, .n = n}, 70, n + 8, 136, {8});
}

// Sums in i32 of factors whose rows and columns are contiguous along the sum. Depths of one instruction to four, and of
// chunks of 32, 64 and 128 bytes; sizes that end within a tile.
TEST(Warpgroups, IntegersOfEightBits) {
  using enum DType;
  for (auto [left, right] : {std::pair{I8, I8}, {U8, I8}, {I8, U8}, {U8, U8}}) {
    run({.dtype = left, .right = right, .m = 64, .n = 32, .k = 128, .b_columns = true}, 72, 40, 272, {4});
    if (HasFatalFailure()) return;
  }
  for (auto [m, n, k] : {std::array{64, 8, 32}, {64, 16, 64}, {64, 256, 32}, {128, 128, 64}, {64, 64, 256}})
    run({.dtype = U8, .right = I8, .m = m, .n = n, .k = k, .b_columns = true}, m + 8, n + 8, 2 * k + 16,
        n == 8 ? std::vector{4} : std::vector{4, 8});
  for (int64_t k : {0, 64, 208})
    run({.dtype = I8, .m = 64, .n = 64, .b_columns = true, .persistent = true, .epilogue = true}, 190, 136, k, {4, 8});
}

TEST(Warpgroups, IntegersOfAnotherArrangementAreLeftToWarps) {
  for (const auto& [a_columns, factor] : {std::pair(false, "right"), {true, "left"}}) {
    const auto code = compile({.dtype = DType::I8, .a_columns = a_columns, .b_columns = a_columns}, 4);
    EXPECT_EQ(code.products, "its " + std::string(factor) +
                                 " factor: its 8-bit elements are not contiguous along the dimension that is summed");
    EXPECT_GT(occurrences(code.ptx, "mma.sync.aligned.m16n8k32"), 0);
    EXPECT_EQ(occurrences(code.ptx, "wgmma"), 0);
  }
}

// Fewer iterations than stages, as many, more, and none.
TEST(Warpgroups, AnyNumberOfIterations) {
  for (int num_stages : {1, 2, 4})
    for (int64_t k : {0, 8, 64, 128, 64 * 6}) {
      run({.m = 64, .n = 64, .num_stages = num_stages}, 64, 64, k, {4});
      if (HasFatalFailure()) return;
    }
}

// The ring goes on from one tile to the next.
TEST(Warpgroups, PersistentPrograms) {
  for (int64_t k : {0, 64, 200})
    run({.m = 64, .n = 64, .num_stages = 3, .persistent = true, .epilogue = true}, 190, 136, k, {4, 8});
}

TEST(Warpgroups, WhatFollowsTheProduct) {
  run({.m = 128, .n = 64, .epilogue = true}, 130, 136, 136, {4, 8});
  run({.dtype = DType::F16, .m = 64, .n = 128, .b_columns = true, .epilogue = true}, 60, 136, 136, {8});
}

TEST(Warpgroups, SeveralProductsOfALoop) {
  for (int64_t k : {0, 64, 200})
    for (bool persistent : {false, true})
      run({.m = 64, .n = 64, .persistent = persistent, .epilogue = true, .several = true}, 130, 72, k, {4, 8});
  run({.m = 128, .n = 64, .k = 32, .b_columns = true, .several = true}, 130, 136, 136, {4, 8});
  const auto code = compile({.m = 128, .n = 128, .k = 32, .num_stages = 4, .several = true}, 8);
  EXPECT_EQ(code.products, "by warpgroups, 4 stages");
  EXPECT_EQ(occurrences(code.ptx, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"), 2 * 3);
  EXPECT_EQ(occurrences(code.ptx, "wgmma.commit_group"), 2) << "the first product, and the others";
  EXPECT_EQ(occurrences(code.ptx, "wgmma.wait_group.sync.aligned 1"), 1) << "the others run on";
}

TEST(Warpgroups, AreMadeOfTheirInstructions) {
  const auto code = compile({.m = 128, .n = 256, .num_stages = 4}, 8);
  EXPECT_EQ(code.products, "by warpgroups, 4 stages");
  EXPECT_EQ(code.threads, 384);
  EXPECT_EQ(code.tensor_maps.size(), 2U);
  EXPECT_GE(code.shared_bytes, 4 * 48 << 10);
  EXPECT_EQ(occurrences(code.ptx, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"), 4);
  EXPECT_EQ(occurrences(code.ptx, "cp.async.bulk.tensor.2d"), 1 + 4) << "one box of a, four of b";
  EXPECT_EQ(occurrences(code.ptx, "ld.global"), 0);
  EXPECT_EQ(occurrences(code.ptx, "st.global.v4.b32"), 128 * 256 / 256 / 8) << "neighbours come from other lanes";
  EXPECT_EQ(occurrences(code.ptx, "st.global"), 128 * 256 / 256 / 8);
  EXPECT_EQ(occurrences(code.ptx, "bar.sync"), 1) << "once, before the roles divide";
  EXPECT_EQ(occurrences(code.ptx, "setmaxnreg"), 2);
}

// Registers suffice, and products overlap: ptxas waits for each where it cannot prove that nothing touches the sums.
TEST(Warpgroups, AssembleWithoutSpills) {
  static auto assembler = cuda::Assembler::find(cuda::Assembler::Kind::Ptxas);
  if (!assembler.ok()) GTEST_SKIP() << assembler.error().message;
  for (bool persistent : {false, true})
    for (bool epilogue : {false, true})
      for (auto [m, n, warps] : {std::array{128, 256, 8}, {256, 128, 8}, {64, 256, 4}, {128, 128, 4}, {128, 128, 8}}) {
        const bool several = m * n == 128 * 128 && warps == 8;
        const auto code = compile({.m = m,
                                   .n = n,
                                   .k = several ? 32 : 64,
                                   .num_stages = 4,
                                   .persistent = persistent,
                                   .epilogue = epilogue,
                                   .several = several},
                                  warps);
        const std::string what = std::to_string(m) + " x " + std::to_string(n) + (persistent ? " persistent" : "") +
                                 (epilogue ? " epilogue" : "");
        EXPECT_NE(code.products.find("by warpgroups"), std::string::npos) << what << ": " << code.products;
        auto cubin = (*assembler)->assemble(code.ptx, "sm_90a");
        ASSERT_TRUE(cubin.ok()) << what << cubin.error().str();
        EXPECT_EQ(cubin->spill_bytes, 0) << what;
      }
  for (bool epilogue : {false, true}) {
    const auto code = compile({.dtype = DType::U8,
                               .right = DType::I8,
                               .n = 256,
                               .k = 128,
                               .b_columns = true,
                               .num_stages = 4,
                               .epilogue = epilogue},
                              8);
    EXPECT_EQ(occurrences(code.ptx, "wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.s8"), 4);
    auto cubin = (*assembler)->assemble(code.ptx, "sm_90a");
    ASSERT_TRUE(cubin.ok()) << cubin.error().str();
    EXPECT_EQ(cubin->spill_bytes, 0) << "integers" << (epilogue ? " epilogue" : "");
  }
}

} // namespace
} // namespace tessera::test
