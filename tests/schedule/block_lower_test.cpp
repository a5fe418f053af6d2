// Kernels for blocks of threads, whatever was chosen: outputs in the memory of inputs, divisions, indices out of range,
// and errors.
#include "block_harness.h"
#include "codegen/target/select.h"
#include "nests.h"
#include <algorithm>

namespace tessera::test {
namespace {

// "y<-x": y may take the memory of x.
std::string taken(const Problem& p) {
  ScheduledKernel k = lower_blocks(p).back();
  std::string s;
  for (size_t b = 0; b < k.buffers.size(); ++b)
    for (int from : k.may_overwrite[b]) {
      s += p.graph.value(k.buffers[b]).name + "<-" + p.graph.value(k.buffers[static_cast<size_t>(from)]).name + " ";
      EXPECT_FALSE(k.kernel.params[static_cast<size_t>(from)].invariant);
    }
  for (size_t b = 0; b < k.buffers.size(); ++b) {
    bool listed = std::any_of(k.may_overwrite.begin(), k.may_overwrite.end(), [&](const std::vector<int>& v) {
      return std::find(v.begin(), v.end(), static_cast<int>(b)) != v.end();
    });
    EXPECT_EQ(k.kernel.params[b].invariant, !k.written[b] && !listed);
  }
  return s;
}

TEST(BlockLower, OutputsMayTakeInputsOfTheSameThread) {
  EXPECT_EQ(taken(bias_gelu()), "y<-x ");
  EXPECT_EQ(taken(softmax()), "y<-x ");
  EXPECT_EQ(taken(softmax("f16")), "y<-x ");
  EXPECT_EQ(taken(layer_norm("768")), "z<-x z<-r y<-x y<-r "); // in registers: nothing is read again
  EXPECT_EQ(taken(layer_norm("100000")), "y<-x y<-r ");        // in a loop z is stored before x is read again
  EXPECT_EQ(taken(column_sum()), "");
  EXPECT_EQ(taken(rope()), ""); // x is read at other places, too
  // One value per row is read by all threads of the row, and written by one of them.
  EXPECT_EQ(taken(problem("x: f32[n]\nm: f32[n, 1000]\ny: f32[n]", R"(
    nest scaled outer(i0: n) row(i1: 1000) {
      %0 = load x[i0] : f32
      %1 = load m[i0, i1] : f32
      %2 = reduce.sum %1 : f32
      %3 = mul %0, %2 : f32
      store.row y[i0] = %3
    })")),
            "");
  // Fewer elements in a tile than threads in a block hold them: copies.
  EXPECT_EQ(taken(problem("x: f32[n, 2]\ny: f32[n, 2]", R"(
    nest pairs outer(i0: n) row(i1: 2) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.sum %0 : f32
      %2 = sub %0, %1 : f32
      store y[i0, i1] = %2
    })")),
            "y<-x ");
  EXPECT_EQ(taken(problem("x: f32[2]\ny: f32[2]", "nest two outer(i0: 2) { %0 = load x[i0] : f32\n %1 = exp %0 : "
                                                  "f32\n store y[i0] = %1 }")),
            "y<-x ");
}

TEST(BlockLower, RowScalarsDivideOnceUnlessExactDivisionIsAsked) {
  auto reciprocals = [](const LoweringOptions& options) {
    size_t n = 0;
    for (const ScheduledKernel& k : lower_blocks(softmax(), options))
      n += tile::print(k.kernel).find("reciprocal(") != std::string::npos;
    return n;
  };
  EXPECT_EQ(reciprocals({}), lower_blocks(softmax()).size());
  EXPECT_EQ(reciprocals({.exact_division = true}), 0u);
}

// The index is the same for the whole row, whether it is used is not: it must not be checked ahead of the row. And
// where it depends on a reduction, not before that is known.
TEST(BlockLower, ChecksUnderAPredicateOfTheRow) {
  for (const char* predicate : {"%5 = index le(5, i1) : bool", "%5 = lt %4, %9 : bool"}) {
    Problem p = problem("x: f32[10]\nw: f32[n, m]\nids: i64[n]\ny: f32[n, m]", R"(
    nest guarded outer(i0: n) row(i1: m) {
      %0 = load ids[i0] : i64
      %1 = const 10 : i64
      %2 = check_bounds %0, %1 : i64
      %3 = load w[i0, i1] : f32
      %4 = reduce.max %3 : f32
      %9 = const 0 : f32
      )" + std::string(predicate) + R"(
      %6 = load x[%2] if %5 : f32
      %7 = reduce.sum %6 : f32
      %8 = sub %6, %7 : f32
      store y[i0, i1] = %8
    })");
    expect_same(p, {{{"n", 2}, {"m", 9}}, {{"n", 3}, {"m", 4}}, {{"n", 1}, {"m", 300}}},
                {.given = {{"ids", {3, 9, 0}}}});
    std::vector<ScheduledKernel> kernels = block_kernels(p);
    kernels.push_back(lower(p));
    Tensor x = Tensor::create(DType::F32, {10}, true).value();
    std::vector<int64_t> ids{99, 2};
    for (bool used : {false, true}) {
      int64_t m = used ? 8 : 4; // position 5 exists or not
      std::vector<float> values(static_cast<size_t>(2 * m), used ? -1.0F : 1.0F);
      Tensor w = Tensor::of<float>(DType::F32, {2, m}, values);
      for (const ScheduledKernel& k : kernels) {
        if (!conditions_hold(p.graph, k, {{"n", 2}, {"m", m}})) continue;
        IndexReport report;
        run_kernel(p, k, {{"x", x}, {"w", w}, {"ids", Tensor::of<int64_t>(DType::I64, {2}, ids)}}, {{"n", 2}, {"m", m}},
                   &report);
        EXPECT_EQ(report.any(), used) << predicate << k.why << tile::print(k.kernel);
      }
    }
  }
}

TEST(BlockLower, UnsupportedElementsAndPlansThatDoNotFitAreErrors) {
  Target device = shipped_target("h200");
  Problem packed = problem("x: i4[n]\ny: i4[n]", "nest copy outer(i0: n) { %0 = load x[i0] : i4\n store y[i0] = %0 }");
  auto k = lower_for_gpu(packed.graph, packed.nest, device, "copy");
  ASSERT_FALSE(k.ok());
  EXPECT_EQ(k.error().code, ErrorCode::UnsupportedType);

  Problem p = softmax();
  Domain domain = make_domain(p.graph, p.nest).value();
  const Legal good = choose_blocks(BlockFacts(p.graph, p.nest, domain, device)).back().legal;
  auto refused = [&](auto change) {
    Legal l = good;
    change(l);
    auto result = lower_block(p.graph, p.nest, domain, l, "softmax");
    return !result.ok() && result.error().code == ErrorCode::CodegenError;
  };
  EXPECT_FALSE(refused([](Legal&) {}));
  EXPECT_TRUE(refused([](Legal& l) { l.schedule.tile.columns = 48; }));
  EXPECT_TRUE(refused([](Legal& l) { l.schedule.tile.warps = 64; }));
  EXPECT_TRUE(refused([](Legal& l) { l.groups.rows.clear(); }));
  EXPECT_TRUE(refused([](Legal& l) { l.schedule.placement.split_axis = 1; }));
}

TEST(BlockLower, LoweringIsDeterministic) {
  Problem p = layer_norm("w");
  auto texts = [&] {
    std::string s;
    for (const ScheduledKernel& k : lower_blocks(p)) s += tile::print(k.kernel) + k.grid.str() + k.why;
    return s;
  };
  EXPECT_EQ(texts(), texts());
}

} // namespace
} // namespace tessera::test
