// Products, convolutions and pooling as loop nests: every sample of their records, with static and symbolic batch,
// against the reference; and what fuses with them.
#include "graph/ops/record.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

FusionOptions as_loops() {
  FusionOptions options;
  options.as_loops = [](const Graph&, NodeId) { return true; };
  return options;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
  case DType::F16: return 2e-3;
  case DType::BF16: return 1.6e-2;
  case DType::F64: return 1e-12;
  default: return 1e-5;
  }
}

// The sample's operator on inputs of its sizes; the leading size of the first operand (and of others that share it) a
// symbol when requested.
std::optional<Graph> graph_of(const OpDef& op, const Sample& sample, bool symbolic) {
  Graph g;
  SymExpr batch = g.env().create_symbol("b", {0, 64});
  int64_t lead = sample.operands[0].dims()[0];
  std::vector<ValueId> operands;
  for (size_t k = 0; k < sample.operands.size(); ++k) {
    const Tensor& t = sample.operands[k];
    SymShape shape(t.dims().begin(), t.dims().end());
    bool matrix = op.structured()->kind == Structured::Matmul || op.structured()->kind == Structured::MatmulOfParts ||
                  op.structured()->kind == Structured::GroupedMatmul;
    bool leads = k == 0 || (matrix && t.dims().size() == sample.operands[0].dims().size() && t.dims().size() > 2);
    if (symbolic && leads && t.dims()[0] == lead && lead != 1) shape[0] = batch;
    operands.push_back(g.add_input("in" + std::to_string(k), {t.dtype(), shape}));
  }
  auto y = g.apply(op.name, operands, sample.attributes, {});
  EXPECT_TRUE(y.ok()) << (y.ok() ? "" : y.error().str());
  if (!y.ok()) return std::nullopt;
  g.add_output("y", *y);
  return g;
}

class StructuredSamples : public testing::TestWithParam<std::string_view> {};

TEST_P(StructuredSamples, AreOneKernelThatComputesTheReference) {
  const OpDef* op = OpTable::get().find(GetParam());
  ASSERT_NE(op, nullptr);
  int run = 0;
  for (const auto& sample : op->samples())
    for (bool symbolic : {false, true}) {
      auto g = graph_of(*op, sample, symbolic);
      ASSERT_TRUE(g);
      int64_t lead = sample.operands[0].dims()[0];
      auto plan = check_plan(*g, {{{"b", lead}}, {{"b", lead + (symbolic ? 2 : 0)}}}, as_loops(),
                             tolerance_of(sample.operands[0].dtype()));
      EXPECT_EQ(count(plan, Group::Kind::Kernel), 1) << print(*g, plan);
      EXPECT_EQ(plan.groups.size(), 1u);
      for (const auto& group : plan.groups) {
        auto nest = verify(*g, group.nest);
        EXPECT_TRUE(nest.ok()) << (nest.ok() ? "" : nest.error().str());
      }
      ++run;
    }
  EXPECT_GE(run, 12);
}
INSTANTIATE_TEST_SUITE_P(All, StructuredSamples, testing::Values("matmul", "conv", "conv_transpose", "pool"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Structured, PoolingOfUncoveredWindowsAndAllModes) {
  for (const char* mode : {"max", "average", "average_include_pad"}) {
    Graph g = parsed(
        std::string(
            R"(graph @main(%x: f64[n, 2, h]) -> (%y: f64[n, 2, floordiv(h, 3) + 1]) where n in [1, ?], h in [3, ?] {
  %y = pool(%x) mode=")") +
        mode + R"(" kernel=[3] strides=[3] pads_begin=[2] pads_end=[1] dilations=[1] : f64[n, 2, floordiv(h, 3) + 1]
})");
    check_plan(g, {{{"n", 1}, {"h", 3}}, {{"n", 2}, {"h", 10}}, {{"n", 3}, {"h", 7}}}, as_loops(), 1e-12);
  }
}

TEST(Structured, AProductOfIntegersTakesItsZeroPointsAndScales) {
  Graph g = parsed(R"(graph @main(%a: u8[b, 6], %b: i8[6, 4], %s: f32[4]) -> (%y: u8[b, 4]) where b in [1, ?] {
  %za = constant {3} : i32[]
  %zy = constant {8.0} : f32[]
  %aw = cast(%a) to=i32 : i32[b, 6]
  %ac = sub(%aw, %za) : i32[b, 6]
  %bw = cast(%b) to=i32 : i32[6, 4]
  %p = matmul(%ac, %bw) : i32[b, 4]
  %f = cast(%p) to=f32 : f32[b, 4]
  %m = mul(%f, %s) : f32[b, 4]
  %r = round(%m) : f32[b, 4]
  %z = add(%r, %zy) : f32[b, 4]
  %y = cast(%z) to=u8 : u8[b, 4]
})");
  auto plan = check_plan(g, {{{"b", 1}}, {{"b", 5}}}, as_loops());
  EXPECT_EQ(count(plan, Group::Kind::Kernel), static_cast<int>(plan.groups.size())) << print(g, plan);
  EXPECT_GE(count_reason(plan, FusionReason::ReductionIntoConsumer), 1) << print(g, plan);
}

TEST(Structured, AConvolutionTakesBiasAndActivation) {
  Graph g =
      parsed(R"(graph @main(%x: f64[n, 4, 5], %w: f64[6, 2, 3], %b: f64[6, 1]) -> (%y: f64[n, 6, 5]) where n in [1, ?] {
  %zero = constant {0.0} : f64[]
  %c = conv(%x, %w) strides=[1] pads_begin=[1] pads_end=[1] dilations=[1] groups=2 : f64[n, 6, 5]
  %d = add(%c, %b) : f64[n, 6, 5]
  %y = max(%d, %zero) : f64[n, 6, 5]
})");
  auto plan = check_plan(g, {{{"n", 1}}, {{"n", 3}}}, as_loops(), 1e-12);
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

TEST(Structured, OnlyWhatTheDeviceAsksForBecomesLoops) {
  Graph g = parsed(
      R"(graph @main(%a: f32[3, 4], %b: f32[4, 5], %c: f64[3, 4], %d: f64[4, 5]) -> (%y: f32[3, 5], %z: f64[3, 5]) {
  %y = matmul(%a, %b) : f32[3, 5]
  %z = matmul(%c, %d) : f64[3, 5]
})");
  FusionOptions options;
  options.as_loops = [](const Graph& graph, NodeId id) {
    return graph.type(graph.node(id).operands[0]).dtype == DType::F64;
  };
  auto plan = check_plan(g, {{}}, options);
  EXPECT_EQ(count(plan, Group::Kind::Kernel), 1);
  EXPECT_EQ(count(plan, Group::Kind::Library), 1);
}

} // namespace
} // namespace tessera
