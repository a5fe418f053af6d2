// Contractions by clusters of blocks (sm_90a), as the space of schedules offers them: blocks that share tiles of a factor,
// and what they compute where the number of tiles along the rows is odd.
#include "../schedule/block_harness.h"
#include "codegen/llvm/gpu_compiler.h"
#include "emulated.h"

namespace tessera::test {
namespace {

// Schedules in clusters that `wanted` admits, `take` of them; each is right, and by clusters.
void expect_by_clusters(const Case& c, size_t take, const std::function<bool(const Schedule&)>& wanted) {
  SCOPED_TRACE(c.problem.nest.name);
  const Meant m = meant(c);
  ASSERT_FALSE(m.expected.empty());
  const EmulatedArch arch("sm_90a");
  size_t met = 0;
  each_kernel(
      c, gpu_with(2),
      [&](const Schedule& s) {
        return s.kind == ScheduleKind::BlockContraction && s.cooperation.cluster == 2 && s.tile.rows == 64 &&
               s.tile.columns == 32 && s.tile.warps == 4 && s.traversal.num_stages == 3 &&
               std::popcount(s.placement.depth_axes) == 1 && wanted(s);
      },
      [&](const Legal& l, ScheduledKernel k) {
        if (met++ >= take) return;
        k.why = print(l.schedule);
        // As a plan without aliases says.
        for (tile::Param& param : std::span(k.kernel.params).first(k.buffers.size()))
          param.invariant = !param.written && !param.in_place;
        ASSERT_TRUE(tile::verify(k.kernel).ok()) << tile::verify(k.kernel).error().str() << tile::print(k.kernel);
        const auto code = compile_gpu_kernel(k.kernel, *GpuTarget::parse("sm_90a"));
        ASSERT_TRUE(code.ok()) << code.error().str();
        EXPECT_EQ(code->cluster, 2) << code->products << "\n" << k.why << "\n" << tile::print(k.kernel);
        expect_meant(c, m, k, 4e-3);
      });
  EXPECT_GE(met, take);
}

Problem product(const std::string& m, const std::string& n) {
  return problem("a: f16[" + m + ", k]\nb: f16[k, " + n + "]\nr: f16[" + m + ", " + n + "]\ny: f16[" + m + ", " + n +
                     "]",
                 "nest product outer(i0: " + m + ", i1: " + n +
                     ") row(i2: k) {\n %0 = load a[i0, i2] : f32\n %1 = load b[i2, i1] : f32\n %2 = mul %0, %1 : f32\n "
                     "%3 = reduce.sum %2 : f32\n %4 = load r[i0, i1] : f32\n %5 = add %3, %4 : f32\n store.row y[i0, "
                     "i1] = %5 }");
}

// Numbers of rows that are whole tiles, whose masks a schedule without clusters leaves out, and others.
TEST(Clusters, ProductsOfAnyNumberOfTiles) {
  for (const int64_t m : {65, 128, 192, 200, 320})
    for (const bool persistent : {false, true}) {
      const auto wanted = [&](const Schedule& s) {
        return (s.cooperation.max_blocks > 0) == persistent && s.tile.depth == 64;
      };
      expect_by_clusters({product("m", "n"), {{"m", m}, {"n", 72}, {"k", 136}}}, 1, wanted);
      expect_by_clusters({product(std::to_string(m), "64"), {{"k", 136}}}, 1, wanted);
    }
}

TEST(Clusters, EveryFormOfSchedule) {
  expect_by_clusters({product("m", "n"), {{"m", 330}, {"n", 200}, {"k", 72}}}, 4, [](const Schedule&) { return true; });
}

TEST(Clusters, ProductsOfABatch) {
  expect_by_clusters(
      {problem(
           "a: f16[b, m, k]\nb: f16[b, k, n]\ny: f16[b, m, n]",
           "nest batch outer(i0: b, i1: m, i2: n) row(i3: k) {\n %0 = load a[i0, i1, i3] : f32\n %1 = load b[i0, i3, "
           "i2] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1, i2] = %3 }"),
       {{"b", 3}, {"m", 70}, {"n", 40}, {"k", 72}}},
      2, [](const Schedule& s) { return s.placement.row_box == 0 && s.tile.depth == 64; });
}

// The pixels of three images and a half, or of as many as are no whole tiles, as boxes.
TEST(Clusters, Convolutions) {
  for (const int64_t n : {3, 5}) {
    const std::string images = std::to_string(n);
    const Case c{
        problem("x: f16[" + images + ", 8, 8, 32]\nw: f16[32, 3, 3, 32]\ny: f16[" + images + ", 8, 8, 32]",
                "nest conv outer(i0: " + images +
                    ", i1: 8, i2: 8, i3: 32) row(i4: 32, i5: 3, i6: 3) {\n %10 = index and(and(le(0, i1 + i5 - 1),"
                    " lt(i1 + i5 - 1, 8)), and(le(0, i2 + i6 - 1), lt(i2 + i6 - 1, 8))) : bool\n %0 = load "
                    "x[i0, i1 + i5 - 1, i2 + i6 - 1, i4] if %10 : f32\n %1 = load w[i3, i5, i6, i4] : f32\n %2 = "
                    "mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1, i2, i3] = %3 }"),
        {}};
    expect_by_clusters(c, 2, [](const Schedule& s) {
      return s.placement.row_box != 0 && std::popcount(s.placement.row_axes) == 3 && s.tile.depth == 32;
    });
  }
}

} // namespace
} // namespace tessera::test
