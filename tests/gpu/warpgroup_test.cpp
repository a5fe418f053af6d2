// Products by warpgroups (sm_90a): what they compute, of sizes that fill no tile, and what their PTX is made of.
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include "products.h"
#include "runtime/cuda/assembler.h"
#include <regex>

namespace tessera::test {
namespace {

int occurrences(const std::string& text, const std::string& pattern) {
  std::regex r(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator()));
}

GpuKernelCode compile(const ProductForm& f, int warps) {
  auto k = masked_product(f);
  k.config["warps"] = warps;
  auto code = compile_gpu_kernel(k, *GpuTarget::parse("sm_90a"));
  EXPECT_TRUE(code.ok()) << code.error().str();
  return code.ok() ? *code : GpuKernelCode{};
}

void run(const ProductForm& f, int64_t m, int64_t n, int64_t k, std::vector<int> warps) {
  SCOPED_TRACE(std::string(name(f.dtype)) + " by " + std::string(name(f.right)) + ", " + std::to_string(m) + " x " +
               std::to_string(n) + " x " + std::to_string(k) + " by tiles of " + std::to_string(f.m) + " x " +
               std::to_string(f.n) + " x " + std::to_string(f.k) + (f.a_columns ? ", a by columns" : "") +
               (f.b_columns ? ", b by columns" : "") + ", stages " + std::to_string(f.num_stages) + ", clusters of " +
               std::to_string(f.cluster));
  const int64_t columns = (n + f.n - 1) / f.n, tiles = programs_of(f, m, n) / f.split;
  const double limit = is_integer(f.dtype) ? 127 : 1;
  GpuRun run;
  run.buffers = {random_tensor(f.loaded, m * k, 1, is_integer(f.loaded) ? 127 : limit),
                 random_tensor(f.right, k * n, 2, limit),
                 random_tensor(f.stored(), n, 3, limit),
                 random_tensor(f.stored(), m * n, 4, limit),
                 filled(f.stored(), m * n, 9),
                 filled(f.sum(), m * columns, 9)};
  if (f.several)
    run.buffers.insert(run.buffers.end(),
                       {random_tensor(f.dtype, m * k, 5, limit), random_tensor(f.right, k * n, 6, limit)});
  if (f.left != Left::Loaded) {
    run.buffers.push_back(random_tensor(DType::F32, m, 7, is_integer(f.loaded) ? 1.0 / 127 : 1));
    run.buffers.push_back(random_tensor(DType::F32, k, 8, 1));
    if (!f.several) run.buffers.push_back(random_tensor(f.loaded, m * k, 5, limit));
  }
  if (f.split > 1) {
    run.buffers.push_back(filled(DType::F32, tiles * f.split * f.m * f.n, 9));
    run.buffers.push_back(filled(DType::I32, tiles, 0));
  }
  run.grid = f.persistent ? std::min<int64_t>(2 * f.cluster, tiles) : tiles * f.split;
  run.scalars = {m, n, k, run.grid};
  run.tolerance = is_integer(f.dtype) ? 0 : f.epilogue ? 3e-2 : 1e-2;
  run.warps = std::move(warps);
  run.seeds = 2;
  run.arch = "sm_90a";
  const std::string products = compile(f, run.warps.front()).products;
  EXPECT_NE(products.find("by warpgroups"), std::string::npos) << products;
  const std::string clusters = "clusters of " + std::to_string(f.cluster);
  EXPECT_EQ(products.find(clusters) != std::string::npos, f.cluster > 1) << products;
  tile::Kernel kernel = masked_product(f);
  kernel.config["warps"] = run.warps.front();
  const auto emulated = EmulatedProgram::compile(kernel, *GpuTarget::parse(run.arch));
  ASSERT_TRUE(emulated.ok()) << emulated.error().str();
  EXPECT_EQ(emulated->threads(), 32 * (run.warps.front() + 4)) << "a producer, here too";
  EXPECT_EQ(emulated->cluster(), f.cluster);
  expect_as_interpreted(masked_product(f), run);
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

// The same of floats of 8 bits, whose sums are f32; without an epilogue and with one.
TEST(Warpgroups, FloatsOfEightBits) {
  using enum DType;
  for (auto [left, right] : {std::pair{F8E4M3FN, F8E4M3FN}, {F8E5M2, F8E4M3FN}, {F8E4M3FN, F8E5M2}})
    run({.dtype = left, .right = right, .m = 64, .n = 32, .k = 64, .b_columns = true}, 72, 40, 144, {4});
  run({.dtype = F8E4M3FN, .m = 128, .n = 64, .k = 128, .b_columns = true, .persistent = true, .epilogue = true}, 190,
      72, 272, {8});
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

// Fewer iterations than stages, as many, and more. Without any, a tensor map would have an empty dimension, which the
// driver refuses.
TEST(Warpgroups, AnyNumberOfIterations) {
  for (int num_stages : {1, 2, 4})
    for (int64_t k : {8, 64, 128, 64 * 6}) {
      run({.m = 64, .n = 64, .num_stages = num_stages}, 64, 64, k, {4});
      if (HasFatalFailure()) return;
    }
}

// The ring goes on from one tile to the next.
TEST(Warpgroups, PersistentPrograms) {
  for (int64_t k : {64, 200})
    run({.m = 64, .n = 64, .num_stages = 3, .persistent = true, .epilogue = true}, 190, 136, k, {4, 8});
}

// The producer takes no part in the arrival of a program.
TEST(Warpgroups, ProgramsThatShareATile) {
  for (int64_t k : {0, 64, 200, 400})
    run({.m = 64, .n = 64, .b_columns = true, .epilogue = true, .split = 3}, 100, 72, k, {4, 8});
  run({.dtype = DType::F16, .m = 128, .n = 64, .split = 2}, 130, 136, 264, {8});
  run({.m = 64, .n = 64, .persistent = true, .epilogue = true, .split = 2}, 100, 136, 264, {4});
  run({.m = 64, .n = 64, .k = 32, .several = true, .split = 2}, 100, 72, 200, {4});
}

TEST(Warpgroups, WhatFollowsTheProduct) {
  run({.m = 128, .n = 64, .epilogue = true}, 130, 136, 136, {4, 8});
  run({.dtype = DType::F16, .m = 64, .n = 128, .b_columns = true, .epilogue = true}, 60, 136, 136, {8});
}

TEST(Warpgroups, SeveralProductsOfALoop) {
  for (int64_t k : {64, 200})
    for (bool persistent : {false, true})
      run({.m = 64, .n = 64, .persistent = persistent, .epilogue = true, .several = true}, 130, 72, k, {4, 8});
  run({.m = 128, .n = 64, .k = 32, .b_columns = true, .several = true}, 130, 136, 136, {4, 8});
  const auto code = compile({.m = 128, .n = 128, .k = 32, .num_stages = 4, .several = true}, 8);
  EXPECT_EQ(code.products, "by warpgroups, 4 stages");
  EXPECT_EQ(occurrences(code.ptx, "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"), 2 * 3);
  EXPECT_EQ(occurrences(code.ptx, "wgmma.commit_group"), 2) << "the first product, and the others";
  EXPECT_EQ(occurrences(code.ptx, "wgmma.wait_group.sync.aligned 1"), 1) << "the others run on";
}

// Consumers compute the left factor from a tile of the ring, by rows and by columns, and from rows and columns in memory.
TEST(Warpgroups, LeftFactorsThatAreComputed) {
  using enum DType;
  for (const bool columns : {false, true}) {
    run({.m = 64, .n = 64, .a_columns = columns, .left = Left::Normalised}, 72, 72, 200, {4});
    run({.dtype = F16, .m = 128, .n = 64, .k = 32, .a_columns = columns, .left = Left::Gated}, 136, 104, 72, {4, 8});
    run({.m = 64, .n = 64, .a_columns = columns, .left = Left::Scaled, .loaded = I8}, 80, 80, 208, {4, 8});
    run({.m = 128, .n = 64, .a_columns = columns, .left = Left::Normalised, .loaded = F32}, 136, 72, 136, {8});
    if (HasFatalFailure()) return;
  }
}

TEST(Warpgroups, ComputedLeftFactorsOfEverySize) {
  for (auto [m, n, k] : {std::array{64, 8, 64}, {64, 16, 16}, {64, 256, 32}, {256, 64, 64}, {128, 32, 128}})
    run({.m = m, .n = n, .k = k, .b_columns = true, .left = Left::Normalised}, m + 8, n + 8, k + 8,
        m == 256 ? std::vector{8} : std::vector{4, 8}); // its registers
  for (const int64_t rows : {1, 63, 64, 65})
    for (const int64_t k : {0, 8, 64, 264})
      run({.m = 64, .n = 64, .num_stages = 2, .left = Left::Gated}, rows, 64, k, {4});
  for (int num_stages : {2, 3, 4})
    run({.m = 64, .n = 64, .num_stages = num_stages, .left = Left::Normalised}, 64, 64, 384, {8});
}

TEST(Warpgroups, ComputedLeftFactorsOfSeveralTilesAndProducts) {
  for (int64_t k : {0, 64, 200})
    run({.m = 64, .n = 64, .num_stages = 3, .persistent = true, .epilogue = true, .left = Left::Normalised}, 190, 136,
        k, {4, 8});
  run({.m = 64, .n = 64, .b_columns = true, .epilogue = true, .left = Left::Gated, .split = 3}, 100, 72, 400, {4, 8});
  for (const bool persistent : {false, true}) // of one product a computed factor, of the last one a loaded one
    run({.m = 64, .n = 64, .persistent = persistent, .epilogue = true, .several = true, .left = Left::Normalised}, 130,
        72, 200, {4, 8});
}

// Blocks of a cluster share tiles of the right factor: as chunks, or as rows; the last cluster may have a block without
// rows.
TEST(Warpgroups, ClustersShareTheRightFactor) {
  for (const bool a_columns : {false, true})
    for (const bool b_columns : {false, true})
      for (const int64_t rows : {1, 64, 65, 128, 136, 200})
        run({.m = 64, .n = 64, .a_columns = a_columns, .b_columns = b_columns, .epilogue = true, .cluster = 2},
            a_columns ? (rows + 7) / 8 * 8 : rows, 72, 200, {4});
  for (auto [m, n, k] : {std::array{64, 16, 16}, {64, 256, 32}, {128, 128, 64}, {128, 32, 128}})
    run({.dtype = DType::F16, .m = m, .n = n, .k = k, .b_columns = true, .cluster = 2}, m + 8, n + 8, k + 8, {4, 8});
  run({.m = 64, .n = 256, .k = 32, .cluster = 2}, 136, 264, 72, {8});
}

TEST(Warpgroups, ClustersTakeTilesInTurn) {
  for (const int num_stages : {2, 3, 4})
    for (const int64_t k : {0, 64, 200})
      run({.m = 64, .n = 64, .num_stages = num_stages, .persistent = true, .epilogue = true, .cluster = 2}, 330, 136, k,
          {4, 8});
  run({.m = 64, .n = 64, .b_columns = true, .num_stages = 3, .persistent = true, .several = true, .cluster = 2}, 190,
      136, 200, {8});
}

TEST(Warpgroups, ClustersOfOtherSizesAndFactors) {
  using enum DType;
  run({.m = 64, .n = 64, .b_columns = true, .persistent = true, .cluster = 4}, 330, 136, 200, {4});
  run({.m = 64, .n = 64, .k = 32, .b_columns = true, .cluster = 8}, 64 * 5, 64, 72, {4});
  for (const bool columns : {false, true}) // the left factor
    run({.m = 128,
         .n = 64,
         .a_columns = columns,
         .persistent = true,
         .epilogue = true,
         .cluster = 2,
         .along_columns = true},
        136, 200, 200, {8});
  run({.dtype = U8, .right = I8, .m = 64, .n = 64, .k = 128, .b_columns = true, .persistent = true, .cluster = 2}, 190,
      72, 272, {4, 8});
  run({.dtype = F8E4M3FN, .m = 64, .n = 64, .k = 128, .b_columns = true, .cluster = 2}, 190, 72, 272, {4});
  for (const Left left : {Left::Normalised, Left::Gated})
    run({.m = 64, .n = 64, .persistent = true, .epilogue = true, .left = left, .cluster = 2}, 190, 136, 200, {4, 8});
  run({.m = 64, .n = 64, .left = Left::Normalised, .loaded = F32, .cluster = 2, .along_columns = true}, 72, 136, 136,
      {8});
}

// The hint is not followed where blocks have nothing in common, or may not go the same way.
TEST(Warpgroups, ClustersAreRefused) {
  const ProductForm plain{.m = 64, .n = 64, .persistent = true};
  auto products = [](tile::Kernel k, int64_t cluster) {
    k.config["warps"] = 4;
    k.config["cluster"] = cluster;
    const auto code = compile_gpu_kernel(k, *GpuTarget::parse("sm_90a"));
    if (!code.ok()) return code.error().message;
    EXPECT_EQ(code->cluster, 1);
    EXPECT_EQ(occurrences(code->ptx, "cluster_|barrier.cluster|multicast|mapa"), 0);
    return code->products;
  };
  EXPECT_EQ(products(masked_product(plain), 2),
            "by warpgroups, 3 stages, no cluster: its programs share no tile of a factor");
  ProductForm form = plain;
  form.persistent = false;
  form.cluster = 2;
  EXPECT_EQ(products(masked_product(form), 4),
            "by warpgroups, 3 stages, no cluster: its programs share no tile of a factor")
      << "programs of two clusters have different columns";
  EXPECT_EQ(products(masked_product({.m = 64, .n = 8, .k = 64, .b_columns = true, .cluster = 2}), 2),
            "by warpgroups, 3 stages, no cluster: its programs share no tile of a factor")
      << "4 rows are no share";
  for (const int cluster : {0, -2, 3, 16})
    EXPECT_EQ(products(masked_product(plain), cluster),
              "kernel product: config cluster is 1, 2, 4 or 8 programs, not " + std::to_string(cluster));
  auto on_other = masked_product(form);
  on_other.config["warps"] = 4;
  const auto code = compile_gpu_kernel(on_other, *GpuTarget::parse("sm_80"));
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_EQ(code->cluster, 1);
}

TEST(Warpgroups, GridsAreWholeClusters) {
  const ProductForm form{.m = 64, .n = 64, .cluster = 2};
  auto kernel = masked_product(form);
  kernel.config["warps"] = 4;
  const auto program = EmulatedProgram::compile(kernel, *GpuTarget::parse("sm_90a"));
  ASSERT_TRUE(program.ok()) << program.error().str();
  std::vector<Tensor> buffers;
  for (int i = 0; i < 6; ++i) buffers.push_back(filled(i == 5 ? DType::F32 : DType::BF16, 64 * 64, 0));
  std::vector<tile::Argument> args;
  for (auto& t : buffers) args.push_back({{t.mutable_data(), t.bytes()}, {}});
  for (const int64_t v : {64, 64, 64, 3}) args.push_back({{}, {static_cast<double>(v), v}});
  const auto done = program->run(args, 3);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "kernel 'product': a grid of 3 programs is no multiple of its clusters of 2");
}

TEST(Warpgroups, ClustersAreMadeOfTheirInstructions) {
  const auto code = compile({.m = 128, .n = 256, .num_stages = 4, .persistent = true, .cluster = 2}, 8);
  EXPECT_EQ(code.products, "by warpgroups, 4 stages, clusters of 2");
  EXPECT_EQ(code.cluster, 2);
  EXPECT_EQ(occurrences(code.ptx, "cp.async.bulk.tensor.2d"), 1 + 2) << "one box of a, half of four of b";
  EXPECT_EQ(occurrences(code.ptx, "multicast::cluster"), 2);
  EXPECT_EQ(occurrences(code.ptx, "mapa.shared::cluster"), occurrences(code.ptx, "mbarrier.arrive.shared::cluster"));
  EXPECT_GT(occurrences(code.ptx, "mapa.shared::cluster"), 0);
  EXPECT_EQ(occurrences(code.ptx, "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned"), 3)
      << "behind the initialisation, and at the end of each role";
  EXPECT_EQ(occurrences(code.ptx, "fence.mbarrier_init.release.cluster"), 1);
  EXPECT_EQ(occurrences(code.ptx, "bar.sync"), 0);
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

// The assembler says if it cannot keep products in flight.
TEST(Warpgroups, ComputedLeftFactorsAssembleWithoutSpills) {
  static auto assembler = cuda::Assembler::find(cuda::Assembler::Kind::Ptxas);
  if (!assembler.ok()) GTEST_SKIP() << assembler.error().message;
  for (const Left left : {Left::Scaled, Left::Normalised, Left::Gated})
    for (const DType loaded : {DType::BF16, DType::I8, DType::F32})
      for (auto [m, n, warps] : {std::array{128, 256, 8}, {64, 256, 4}, {128, 128, 8}, {64, 64, 4}}) {
        if (n == 256 && loaded == DType::F32) continue; // stages do not fit
        const auto code = compile({.m = m, .n = n, .num_stages = 4, .left = left, .loaded = loaded}, warps);
        const std::string what = std::to_string(m) + " x " + std::to_string(n) + " of " + std::string(name(loaded));
        EXPECT_NE(code.products.find("by warpgroups"), std::string::npos) << what << ": " << code.products;
        auto cubin = (*assembler)->assemble(code.ptx, "sm_90a");
        ASSERT_TRUE(cubin.ok()) << what << cubin.error().str();
        // Divisions next to the most sums spill a few words.
        EXPECT_LE(cubin->spill_bytes, left == Left::Gated && n == 256 ? 64 : 0) << what;
        EXPECT_EQ(cubin->log.find("serialized"), std::string::npos) << what << cubin->log;
      }
}

// Registers suffice, and products overlap: ptxas waits for each where it cannot prove that nothing touches the sums.
TEST(Warpgroups, AssembleWithoutSpills) {
  static auto assembler = cuda::Assembler::find(cuda::Assembler::Kind::Ptxas);
  if (!assembler.ok()) GTEST_SKIP() << assembler.error().message;
  for (bool persistent : {false, true})
    for (bool epilogue : {false, true})
      for (auto [m, n, warps, split] : {std::array{128, 256, 8, 1},
                                        {256, 128, 8, 1},
                                        {64, 256, 4, 1},
                                        {128, 128, 4, 1},
                                        {128, 128, 8, 1},
                                        {128, 128, 8, 4},
                                        {64, 128, 4, 4}}) {
        const bool several = m * n == 128 * 128 && warps == 8 && split == 1;
        const auto code = compile({.m = m,
                                   .n = n,
                                   .k = several ? 32 : 64,
                                   .num_stages = 4,
                                   .persistent = persistent,
                                   .epilogue = epilogue,
                                   .several = several,
                                   .split = split},
                                  warps);
        const std::string what = std::to_string(m) + " x " + std::to_string(n) + (persistent ? " persistent" : "") +
                                 (epilogue ? " epilogue" : "") + (split > 1 ? " shared" : "");
        EXPECT_NE(code.products.find("by warpgroups"), std::string::npos) << what << ": " << code.products;
        auto cubin = (*assembler)->assemble(code.ptx, "sm_90a");
        ASSERT_TRUE(cubin.ok()) << what << cubin.error().str();
        // Partial sums are loaded as early as registers allow: a few words spill behind the products.
        EXPECT_LE(cubin->spill_bytes, split > 1 ? 32 : 0) << what;
      }
  for (const bool persistent : {false, true})
    for (const bool b_columns : {false, true})
      for (auto [m, n, warps] : {std::array{128, 256, 8}, {256, 128, 8}, {64, 256, 4}, {128, 128, 8}}) {
        const std::string what = std::to_string(m) + " x " + std::to_string(n) + " of a cluster";
        const auto code = compile({.m = m,
                                   .n = n,
                                   .b_columns = b_columns,
                                   .num_stages = 4,
                                   .persistent = persistent,
                                   .epilogue = persistent,
                                   .cluster = 2},
                                  warps);
        EXPECT_EQ(code.cluster, 2) << what << code.products;
        auto cubin = (*assembler)->assemble(code.ptx, "sm_90a");
        ASSERT_TRUE(cubin.ok()) << what << cubin.error().str();
        EXPECT_EQ(cubin->spill_bytes, 0) << what;
        EXPECT_EQ(cubin->log.find("serialized"), std::string::npos) << what << cubin->log;
      }
  const auto code =
      compile({.dtype = DType::U8, .right = DType::I8, .n = 256, .k = 128, .b_columns = true, .num_stages = 4}, 8);
  EXPECT_EQ(occurrences(code.ptx, "wgmma.mma_async.sync.aligned.m64n256k32.s32.u8.s8"), 4);
  auto cubin = (*assembler)->assemble(code.ptx, "sm_90a");
  ASSERT_TRUE(cubin.ok()) << cubin.error().str();
  EXPECT_EQ(cubin->spill_bytes, 0) << "integers";
}

} // namespace
} // namespace tessera::test
