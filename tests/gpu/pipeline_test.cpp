// Loops with num_stages: asynchronous copies to shared memory that each thread reads itself.
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include <regex>

namespace tessera::test {
namespace {

using tile::ValueId;

constexpr int kRow = 512, kInside = 200; // elements of a row's place; of which there are so many

// y[r] = x[r] - max x[r] + g, of rows r from 3 p on, up to `n`; the sum of all maxima goes to s[p].
tile::Kernel rows(DType d, int num_stages, bool in_place) {
  KernelMaker f("rows");
  auto x = f.in("x", d), g = f.in("g", d), y = f.out("y", d), s = f.out("s", DType::F32);
  auto n = f.size("n");
  f.k.params[0].in_place = in_place;
  f.k.params[1].invariant = true;
  f.k.params[2].once = true;
  const std::vector<int> shape = {kRow};
  auto first = f.mul(f.b.program_id(0), f.i(3));
  auto sums = f.b.for_loop(
      first, n, f.i(1), {f.b.const_f(DType::F32, 0)},
      [&](ValueId r, std::span<const ValueId> carried) -> std::vector<ValueId> {
        auto at = f.along(shape, 0), place = f.add(at, f.mul(r, f.i(kRow)));
        auto inside = f.lt(at, f.i(kInside));
        auto v = f.b.cast(f.b.load(x, place, inside), DType::F32);
        auto most = f.b.reduce(ReduceKind::Max, v, 0);
        auto gain = f.b.cast(f.b.load(g, at), DType::F32);
        auto w = f.add(f.op(ScalarOp::Sub, {v, f.b.broadcast(most, shape)}), gain);
        f.b.store(y, place, f.b.cast(w, d), inside);
        return {f.add(carried[0], most)};
      },
      num_stages);
  f.b.store(s, f.b.program_id(0), sums[0]);
  return std::move(f.k);
}

int occurrences(const std::string& text, const std::string& pattern) {
  std::regex r(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), r), std::sregex_iterator()));
}

// More iterations than stages, fewer, and none.
TEST(GpuPipelining, AnyNumberOfIterations) {
  for (auto d : {DType::F32, DType::BF16, DType::F64})
    for (int num_stages : {1, 2, 5})
      for (int64_t n : {8, 3, 1}) {
        SCOPED_TRACE(std::string(name(d)) + " num_stages " + std::to_string(num_stages) + " rows " + std::to_string(n));
        GpuRun run;
        run.buffers = {random_tensor(d, 8 * kRow, 5), random_tensor(d, kRow, 6), filled(d, 8 * kRow, -7),
                       filled(DType::F32, 2, -7)};
        run.scalars = {n};
        run.grid = 1;
        run.tolerance = d == DType::BF16 ? 2e-2 : 1e-5;
        run.seeds = 1;
        expect_as_interpreted(rows(d, num_stages, true), run);
        run.grid = 2; // the second program's rows may end before they begin
        run.scalars = {std::min<int64_t>(n, 3)};
        expect_as_interpreted(rows(d, num_stages, true), run);
        if (HasFatalFailure()) return;
      }
}

// Copies of the first rounds and of later ones, of whole accesses, but for those that the mask leaves out everywhere;
// gains are no part of them.
TEST(GpuPipelining, CopiesWhatMovesWithTheLoop) {
  auto k = rows(DType::BF16, 3, true);
  k.config["warps"] = 1;
  auto code = compile_gpu_kernel(k, {});
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_EQ(occurrences(code->ptx, "cp.async.cg.shared.global \\[[^;]*, 16"), 3 + 1);
  EXPECT_EQ(occurrences(code->ptx, "cp.async.wait_group 2;"), 1);
  EXPECT_EQ(occurrences(code->ptx, "bar.sync"), 0) << "each thread reads its own";
  EXPECT_EQ(code->shared_bytes, 3 * kRow * 2);
}
// Memory that another thread may have overwritten is read in its place, not prefetched.
TEST(GpuPipelining, NotWhatMayHaveBeenWritten) {
  auto k = rows(DType::BF16, 3, false);
  k.config["warps"] = 1;
  auto code = compile_gpu_kernel(k, {});
  ASSERT_TRUE(code.ok()) << code.error().str();
  EXPECT_EQ(occurrences(code->ptx, "cp.async"), 0);
}

// Tiles of a row of x to places of scratch, 2 iterations ahead; their sum; then they are found there, from the last on:
// y = x - sum. `stride`: from one round's place to the next's; `again`: the scratch is written before.
tile::Kernel held(DType d, int tiles, int64_t stride, bool again = false) {
  KernelMaker f("held");
  auto x = f.in("x", d), y = f.out("y", d);
  const std::vector<int> shape = {kRow};
  auto kept = f.b.scratch(d, f.i(std::max<int64_t>(stride, kRow) * tiles));
  auto row = f.mul(f.b.program_id(0), f.i(kRow * tiles)), at = f.along(shape, 0);
  if (again) f.b.store(kept, at, f.b.cast(at, d));
  auto sum = f.b.for_loop(
      f.i(0), f.i(tiles), f.i(1), {f.b.const_f(DType::F32, 0)},
      [&](ValueId i, std::span<const ValueId> carried) -> std::vector<ValueId> {
        auto place = f.add(at, f.mul(i, f.i(stride)));
        f.b.store(kept, place,
                  f.b.load(x, f.add(f.add(at, f.mul(i, f.i(kRow))), row), -1, -1, tile::Caching::EvictLast));
        return {f.add(carried[0], f.b.reduce(ReduceKind::Sum, f.b.cast(f.b.load(kept, place), DType::F32), 0))};
      },
      2);
  f.b.for_loop(f.i(0), f.i(tiles), f.i(1), {}, [&](ValueId i, std::span<const ValueId>) -> std::vector<ValueId> {
    auto back = f.op(ScalarOp::Sub, {f.i(tiles - 1), i});
    auto v = f.b.cast(f.b.load(kept, f.add(at, f.mul(back, f.i(stride)))), DType::F32);
    f.b.store(y, f.add(f.add(at, f.mul(back, f.i(kRow))), row),
              f.b.cast(f.op(ScalarOp::Sub, {v, f.b.broadcast(sum[0], shape)}), d));
    return {};
  });
  return std::move(f.k);
}

TEST(GpuPipelining, WhatIsOnlyStoredToScratchIsCopiedThere) {
  for (auto d : {DType::F32, DType::BF16})
    for (int tiles : {1, 2, 5})
      for (int64_t stride : {kRow, 2 * kRow, 0}) { // the same place in all rounds is none of their own
        SCOPED_TRACE(std::string(name(d)) + " tiles " + std::to_string(tiles) + " stride " + std::to_string(stride));
        GpuRun run;
        run.buffers = {random_tensor(d, 2 * tiles * kRow, 5), filled(d, 2 * tiles * kRow, -7)};
        run.warps = {1, 4, 32}; // of which several threads have each element
        run.grid = 2;
        run.tolerance = d == DType::BF16 ? 2e-2 : 1e-4;
        run.seeds = 1;
        expect_as_interpreted(held(d, tiles, stride), run);
        expect_as_interpreted(held(d, tiles, stride, true), run);
        if (HasFatalFailure()) return;
      }
}
// The second of two loads that are stored to the same memory stays.
TEST(GpuPipelining, NotWhereSomethingElseWritesTheScratch) {
  KernelMaker f("twice");
  auto x = f.in("x", DType::F32), y = f.out("y", DType::F32);
  const std::vector<int> shape = {kRow};
  auto kept = f.b.scratch(DType::F32, f.i(2 * kRow)), at = f.along(shape, 0);
  f.b.for_loop(
      f.i(0), f.i(2), f.i(1), {},
      [&](ValueId i, std::span<const ValueId>) -> std::vector<ValueId> {
        auto place = f.add(at, f.mul(i, f.i(kRow)));
        for (int half : {0, 2}) f.b.store(kept, place, f.b.load(x, f.add(place, f.i(half * kRow))));
        return {};
      },
      2);
  for (int i : {0, 1}) f.b.store(y, f.add(at, f.i(i * kRow)), f.b.load(kept, f.add(at, f.i(i * kRow))));
  GpuRun run;
  run.buffers = {random_tensor(DType::F32, 4 * kRow, 5), filled(DType::F32, 2 * kRow, -7)};
  expect_as_interpreted(f.k, run);
}
TEST(GpuPipelining, NothingIsLoadedOfWhatIsCopied) {
  auto ptx = [](tile::Kernel k) {
    k.config["warps"] = 2;
    auto code = compile_gpu_kernel(k, {});
    EXPECT_TRUE(code.ok()) << code.error().str();
    return code->ptx;
  };
  const std::string copied = ptx(held(DType::BF16, 5, kRow));
  // Two before the loop, one in it, each with its eviction hint, to a place that the assembler does not take apart.
  EXPECT_EQ(occurrences(copied, "cp.async.cg.shared.global.L2::cache_hint \\[place\\], [^;]*, 16, "), 2 + 1);
  EXPECT_EQ(occurrences(copied, "prmt.b32 place, "), 2 + 1);
  EXPECT_EQ(occurrences(copied, "ld.global"), 0);
  EXPECT_EQ(occurrences(ptx(held(DType::BF16, 5, 0)), "cp.async.*place"), 0 + 3) << "to stages";
  EXPECT_EQ(occurrences(ptx(held(DType::BF16, 5, kRow, true)), "st.shared"), occurrences(copied, "st.shared") + 1 + 1)
      << "what was written before is stored in its turn";
}

} // namespace
} // namespace tessera::test
