// Contractions one of whose factors is computed: by warpgroups (sm_90a), whose consumers compute a left one in registers,
// and by the tensor cores of warps.
#include "../schedule/block_harness.h"
#include "codegen/llvm/gpu_compiler.h"
#include "emulated.h"
#include <regex>

namespace tessera::test {
namespace {

// y[m, n] = sum over k of left * right: scalar programs that end in %l and %r, f32 values rounded to bf16.
Problem product(const std::string& tensors, const std::string& left, const std::string& right,
                const std::string& rows = "i2: k") {
  return problem(tensors + "\ny: bf16[m, n]", "nest product outer(i0: m, i1: n) row(" + rows + ") {\n" + left + right +
                                                  " %90 = mul %40, %80 : f32\n %91 = reduce.sum %90 : f32\n"
                                                  " store.row y[i0, i1] = %91 }");
}
std::string rounded(const std::string& value, const std::string& by, const std::string& result) {
  return " " + by + " = cast " + value + " : bf16\n " + result + " = cast " + by + " : f32\n";
}
const std::string kLoadedLeft = " %40 = load x[i0, i2] : f32\n", kLoadedRight = " %80 = load w[i2, i1] : f32\n";

// Weights of a byte with a scale for each row: the right factor.
Problem quantised(const std::string& dtype) {
  return product("x: bf16[m, k]\nw: " + dtype + "[n, k]\ns: f32[n]", kLoadedLeft,
                 " %50 = load w[i1, i2] : " + dtype + "\n %51 = cast %50 : f32\n %52 = load s[i1] : f32\n" +
                     " %53 = mul %51, %52 : f32\n" + rounded("%53", "%54", "%80"));
}
// A scale for each group of 64 along the depth.
Problem quantised_in_groups() {
  return product("x: bf16[m, 64*g]\nw: i8[n, 64*g]\ns: bf16[n, g]", " %40 = load x[i0, 64*i2 + i3] : f32\n",
                 " %50 = load w[i1, 64*i2 + i3] : i8\n %51 = cast %50 : f32\n %52 = load s[i1, i2] : f32\n"
                 " %53 = mul %51, %52 : f32\n" +
                     rounded("%53", "%54", "%80"),
                 "i2: g, i3: 64");
}
Problem normalised() {
  return product("x: bf16[m, k]\nmean: f32[m]\nrstd: f32[m]\ng: f32[k]\nb: f32[k]\nw: bf16[k, n]",
                 " %0 = load x[i0, i2] : f32\n %1 = load mean[i0] : f32\n %2 = load rstd[i0] : f32\n"
                 " %3 = load g[i2] : f32\n %4 = load b[i2] : f32\n %5 = sub %0, %1 : f32\n %6 = mul %5, %2 : f32\n"
                 " %7 = mul %6, %3 : f32\n %8 = add %7, %4 : f32\n" +
                     rounded("%8", "%9", "%40"),
                 kLoadedRight);
}
Problem gated(const std::string& dtype) {
  return product("u: " + dtype + "[m, k]\nv: " + dtype + "[m, k]\nw: bf16[k, n]",
                 " %0 = load u[i0, i2] : f32\n %1 = load v[i0, i2] : f32\n %2 = neg %0 : f32\n %3 = exp %2 : f32\n"
                 " %4 = const 1 : f32\n %5 = add %3, %4 : f32\n %6 = div %0, %5 : f32\n %7 = mul %6, %1 : f32\n" +
                     rounded("%7", "%9", "%40"),
                 kLoadedRight);
}

// `take` kernels of the schedules of a few tiles: those by warpgroups, or for sm_80 those by tensor cores of warps.
void expect_computed(const Case& c, bool by_warpgroups = true, int depth = 64, int columns = 16, int rows = 64,
                     int warps = 4) {
  constexpr size_t kTake = 2;
  SCOPED_TRACE(c.problem.nest.name);
  const Meant m = meant(c);
  ASSERT_FALSE(m.expected.empty());
  const std::string name = by_warpgroups ? "sm_90a" : "sm_80";
  const EmulatedArch arch(name);
  size_t met = 0;
  each_kernel(
      c, gpu_with(3),
      [&](const Schedule& s) {
        return s.kind == ScheduleKind::BlockContraction && s.tile.rows == rows && s.tile.columns == columns &&
               s.tile.warps == warps && s.tile.depth == depth && s.traversal.num_stages == 3 &&
               std::popcount(s.placement.depth_axes) == 1 && s.placement.row_box == 0;
      },
      [&](const Legal& l, ScheduledKernel k) {
        if (by_warpgroups && !l.warpgroups) return;
        if (met++ >= kTake) return;
        k.why = print(l.schedule);
        for (tile::Param& param : std::span(k.kernel.params).first(k.buffers.size()))
          param.invariant = !param.written && !param.in_place;
        ASSERT_TRUE(tile::verify(k.kernel).ok()) << tile::verify(k.kernel).error().str() << tile::print(k.kernel);
        const auto code = compile_gpu_kernel(k.kernel, *GpuTarget::parse(name));
        ASSERT_TRUE(code.ok()) << code.error().str();
        static const std::regex awaited("wgmma\\.commit_group[^;]*;[^;]*wgmma\\.wait_group\\.sync\\.aligned 0;");
        EXPECT_EQ(std::regex_search(code->ptx, awaited), by_warpgroups) << "others take registers of products";
        if (by_warpgroups)
          EXPECT_NE(code->products.find("by warpgroups"), std::string::npos) << code->products << "\n"
                                                                             << k.why << "\n"
                                                                             << tile::print(k.kernel);
        else
          EXPECT_NE(code->ptx.find("mma.sync"), std::string::npos);
        expect_meant(c, m, k, 2e-2);
      });
  EXPECT_GE(met, 1U);
}

TEST(ComputedFactors, OfQuantisedWeights) {
  for (const int64_t rows : {1, 16, 65})
    for (const char* dtype : {"i8", "u8"})
      expect_computed({quantised(dtype), {{"m", rows}, {"n", 72}, {"k", 160}}}, true, 64, rows == 1 ? 8 : 16);
  expect_computed({quantised_in_groups(), {{"m", 24}, {"n", 72}, {"g", 3}}});
}

// Two warpgroups with rows, or columns, of their own; a stage of several chunks.
TEST(ComputedFactors, ByTwoWarpgroups) {
  for (const auto& [rows, columns] : {std::pair{128, 128}, {128, 64}, {64, 128}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    expect_computed({quantised("i8"), {{"m", 136}, {"n", 136}, {"k", 544}}}, true, 128, columns, rows, 8);
  }
}

TEST(ComputedFactors, OfActivations) {
  for (const int64_t rows : {63, 64, 130})
    for (const char* dtype : {"bf16", "f32"}) expect_computed({gated(dtype), {{"m", rows}, {"n", 72}, {"k", 136}}});
}

TEST(ComputedFactors, OfNormalisedRows) {
  for (const auto& [k, depth] : {std::pair{8, 16}, {200, 64}})
    expect_computed({normalised(), {{"m", 65}, {"n", 40}, {"k", k}}}, true, depth);
}

TEST(ComputedFactors, ByTensorCoresOfWarps) {
  expect_computed({quantised("i8"), {{"m", 65}, {"n", 72}, {"k", 160}}}, false);
  expect_computed({gated("bf16"), {{"m", 65}, {"n", 72}, {"k", 136}}}, false);
  expect_computed({normalised(), {{"m", 65}, {"n", 40}, {"k", 200}}}, false);
}

} // namespace
} // namespace tessera::test
