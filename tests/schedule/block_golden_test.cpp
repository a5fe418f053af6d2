// Kernels for a GPU of typical nests, whole, one file for each set of sizes: TESSERA_BLESS=1 rewrites them.
#include "block_harness.h"
#include "nests.h"

namespace tessera::test {
namespace {

// `count` kernels, of which those in `which` are compared.
void expect_block_golden(const std::string& name, const Problem& p, size_t count, const std::vector<size_t>& which) {
  std::vector<ScheduledKernel> kernels = lower_blocks(p);
  ASSERT_EQ(kernels.size(), count);
  for (size_t i : which) expect_golden("block_" + name + (count > 1 ? "_" + std::to_string(i) : ""), kernels[i]);
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

TEST(BlockGolden, Add) { expect_block_golden("add", add(), 1, {0}); }
TEST(BlockGolden, BiasGelu) { expect_block_golden("bias_gelu", bias_gelu_768(), 1, {0}); }
TEST(BlockGolden, Softmax) { expect_block_golden("softmax", softmax("f16"), 10, {1, 3, 5, 9}); }
TEST(BlockGolden, MaskedSoftmax) { expect_block_golden("masked_softmax", masked_softmax(), 7, {4}); }
TEST(BlockGolden, LayerNorm) { expect_block_golden("layer_norm", layer_norm("768", "f16"), 1, {0}); }
TEST(BlockGolden, TransposeAdd) { expect_block_golden("transpose_add", transpose_add(), 2, {0, 1}); }
TEST(BlockGolden, ColumnSum) { expect_block_golden("column_sum", column_sum(), 4, {0, 2, 3}); }
TEST(BlockGolden, SpatialMean) { expect_block_golden("spatial_mean", spatial_mean(), 1, {0}); }
TEST(BlockGolden, Rope) { expect_block_golden("rope", rope(), 1, {0}); }
TEST(BlockGolden, Embedding) { expect_block_golden("embedding", embedding(), 1, {0}); }

} // namespace
} // namespace tessera::test
