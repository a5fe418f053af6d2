// Fixed schedules of typical nests, lowered for a GPU: TESSERA_BLESS=1 rewrites the texts.
#include "block_harness.h"
#include "codegen/schedule/space.h"
#include "codegen/target/select.h"
#include "nests.h"
#include <optional>

namespace tessera::test {
namespace {

// The first schedule of the space, at sizes of 4096 (of 64 along columns of rows), with this form and tile.
struct Wanted {
  ScheduleKind kind;
  int rows, columns, warps;
  bool staged = false;
};
void expect_block_golden(const std::string& name, const Problem& p, const Wanted& w) {
  const Target device = shipped_target("h200");
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  BlockFacts facts(p.graph, p.nest, *domain, device);
  CallSizes sizes;
  for (const char* symbol : {"n", "m", "s", "t", "b", "c", "h"})
    if (auto s = p.graph.env().find(symbol)) sizes[s->symbol_id()] = 4096;
  auto sized = sized_facts(facts, sizes);
  ASSERT_TRUE(sized.ok());
  std::optional<ScheduledKernel> kernel;
  std::vector<ExtentRange> ranges;
  for (int64_t n : sized->extents) ranges.push_back({n > 4000 ? 1 : n, n, 1});
  for_each_schedule(facts, *sized, sizes, true, [&](const Schedule& s, int64_t) {
    if (kernel || s.kind != w.kind || s.tile.rows != w.rows || s.tile.columns != w.columns || s.tile.warps != w.warps ||
        s.access.staged != w.staged)
      return;
    if (const Legal l = legal(facts, s, ranges))
      if (auto k = lower_block(p.graph, p.nest, *domain, l, p.nest.name); k.ok()) kernel = std::move(*k);
  });
  ASSERT_TRUE(kernel.has_value()) << name;
  kernel->why = "a fixed schedule";
  expect_golden("block_" + name, *kernel);
}

Problem add() {
  return problem("x: f32[n]\nr: f32[n]\ny: f32[n]", R"(
    nest add outer(i0: n) {
      %0 = load x[i0] : f32
      %1 = load r[i0] : f32
      %2 = add %0, %1 : f32
      store y[i0] = %2
    })");
}
Problem bias_gelu_768() {
  return problem("x: f16[s, 768]\nbias: f16[768]\ny: f16[s, 768]", R"(
    nest bias_gelu outer(i0: s, i1: 768) {
      %0 = load x[i0, i1] : f32
      %1 = load bias[i1] : f32
      %2 = add %0, %1 : f32
      %3 = const 0.70710678 : f32
      %4 = mul %2, %3 : f32
      %5 = erf %4 : f32
      %6 = const 1 : f32
      %7 = add %5, %6 : f32
      %8 = mul %2, %7 : f32
      %9 = const 0.5 : f32
      %10 = mul %8, %9 : f32
      store y[i0, i1] = %10
    })");
}
Problem transpose_add() {
  return problem("x: f32[n, m]\nw: f32[m, n]\ny: f32[n, m]", R"(
    nest transpose_add outer(i0: n, i1: m) {
      %0 = load x[i0, i1] : f32
      %1 = load w[i1, i0] : f32
      %2 = add %0, %1 : f32
      store y[i0, i1] = %2
    })");
}
Problem spatial_mean() {
  return problem("x: f32[n, c, 7, 7]\ny: f32[n, c]", R"(
    nest mean outer(i0: n, i1: c) row(i2: 7, i3: 7) {
      %0 = load x[i0, i1, i2, i3] : f32
      %1 = reduce.sum %0 : f32
      %2 = const 0.020408163 : f32
      %3 = mul %1, %2 : f32
      store.row y[i0, i1] = %3
    })");
}
// Scores of attention: a mask over [b, t] added before the softmax over t.
Problem masked_softmax() {
  return problem("x: f16[b, 12, s, t]\nmask: f16[b, t]\ny: f16[b, 12, s, t]", R"(
    nest masked outer(i0: b, i1: 12, i2: s) row(i3: t) {
      %0 = load x[i0, i1, i2, i3] : f32
      %1 = load mask[i0, i3] : f32
      %2 = add %0, %1 : f32
      %3 = reduce.max %2 : f32
      %4 = sub %2, %3 : f32
      %5 = exp %4 : f32
      %6 = reduce.sum %5 : f32
      %7 = div %5, %6 : f32
      store y[i0, i1, i2, i3] = %7
    })");
}

TEST(BlockGolden, Add) { expect_block_golden("add", add(), {ScheduleKind::BlockFlat, 1, 1024, 8}); }
TEST(BlockGolden, BiasGelu) { expect_block_golden("bias_gelu", bias_gelu_768(), {ScheduleKind::BlockFlat, 256, 8, 8}); }
TEST(BlockGolden, Softmax) {
  expect_block_golden("softmax_rows", softmax("f16"), {ScheduleKind::BlockRows, 1, 4096, 4});
  expect_block_golden("softmax_loop", softmax("f16"), {ScheduleKind::BlockLoop, 1, 1024, 4});
}
TEST(BlockGolden, MaskedSoftmax) {
  expect_block_golden("masked_softmax", masked_softmax(), {ScheduleKind::BlockRows, 1, 4096, 8});
}
TEST(BlockGolden, LayerNorm) {
  expect_block_golden("layer_norm", layer_norm("768", "f16"), {ScheduleKind::BlockRows, 1, 1024, 2});
}
TEST(BlockGolden, TransposeAdd) {
  expect_block_golden("transpose_add", transpose_add(), {ScheduleKind::BlockFlat, 64, 64, 8});
  expect_block_golden("transpose_add_staged", transpose_add(), {ScheduleKind::BlockFlat, 64, 64, 8, true});
}
TEST(BlockGolden, ColumnSum) {
  expect_block_golden("column_sum", column_sum(), {ScheduleKind::BlockColumns, 32, 64, 8});
  expect_block_golden("column_sum_shared", column_sum(), {ScheduleKind::BlockCooperative, 32, 32, 4});
}
TEST(BlockGolden, SpatialMean) {
  expect_block_golden("spatial_mean", spatial_mean(), {ScheduleKind::BlockRows, 4, 64, 2});
}
TEST(BlockGolden, Rope) { expect_block_golden("rope", rope(), {ScheduleKind::BlockFlat, 16, 64, 8}); }
// relu(x w + bias), which is stored in 16 bits.
Problem product() {
  return problem("x: f16[s, 768]\nw: f16[768, n]\nbias: f16[n]\ny: f16[s, n]", R"(
    nest product outer(i0: s, i1: n) row(i2: 768) {
      %0 = load x[i0, i2] : f32
      %1 = load w[i2, i1] : f32
      %2 = mul %0, %1 : f32
      %3 = reduce.sum %2 : f32
      %4 = load bias[i1] : f32
      %5 = add %3, %4 : f32
      %6 = const 0 : f32
      %7 = max %5, %6 : f32
      store.row y[i0, i1] = %7
    })");
}
TEST(BlockGolden, Product) { expect_block_golden("product", product(), {ScheduleKind::BlockContraction, 128, 128, 8}); }

TEST(BlockGolden, Embedding) { expect_block_golden("embedding", embedding(), {ScheduleKind::BlockFlat, 256, 4, 8}); }

} // namespace
} // namespace tessera::test
