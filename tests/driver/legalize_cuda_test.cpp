// Decisions and rewrites for an NVIDIA GPU before planning: the rewritten graph computes the same, weights lie as their
// reader requires, and each route is taken for its reason.
#include "fusion/cost.h"
#include "graph/ir/operator.h"
#include "graph/reference/evaluator.h"
#include "tests/driver/cuda.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

using driver_test::cuda_fusion;
using driver_test::legalize_for_cuda;

Tensor numbers(DType dtype, Dims dims, uint64_t seed) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int64_t i = 0; i < t.count(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    t.set_f64(i, static_cast<double>(static_cast<int64_t>(state >> 40) % 33 - 16) / 8);
  }
  return t;
}

struct ConvGraphText {
  Dims x, w;
  Attributes attributes;
  std::string op = "conv";
  DType dtype = DType::F32;
};
Attributes window(Ints strides, Ints begin, Ints end, Ints dilations, int64_t groups, bool last) {
  Attributes a{{"strides", std::move(strides)},
               {"pads_begin", std::move(begin)},
               {"pads_end", std::move(end)},
               {"dilations", std::move(dilations)},
               {"groups", groups}};
  if (last) a.set("channels_last", int64_t{1});
  return a;
}

Graph graph_of(const ConvGraphText& c) {
  Graph g;
  ValueId x = g.add_input("x", {c.dtype, SymShape(c.x.begin(), c.x.end())});
  ValueId w = g.add_constant(numbers(c.dtype, c.w, 7), "w");
  auto y = g.apply(c.op, {x, w}, c.attributes);
  EXPECT_TRUE(y.ok()) << (y.ok() ? "" : y.error().str());
  if (y.ok()) g.add_output("y", *y);
  return g;
}

FusionPlan planned(Graph& g, const CudaLibraries& libraries = {}) {
  auto plan = plan_fusion(g, cuda_fusion(libraries));
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().str());
  return plan.ok() ? std::move(*plan) : FusionPlan();
}

// Legalizes and compares with the graph as it was; the plan.
FusionPlan legalized(const ConvGraphText& c, Graph& g, const CudaLibraries& libraries = {}) {
  g = graph_of(c);
  std::map<std::string, Tensor> inputs{{"x", numbers(c.dtype, c.x, 3)}};
  auto before = evaluate_graph(g, inputs);
  auto status = legalize_for_cuda(g, libraries);
  EXPECT_TRUE(status.ok()) << status.error().str();
  EXPECT_TRUE(verify(g).ok());
  auto after = evaluate_graph(g, inputs);
  EXPECT_TRUE(before.ok() && after.ok());
  if (before.ok() && after.ok()) {
    auto same = compare((*after)[0], (*before)[0], 1e-6, 1e-6);
    EXPECT_TRUE(same.same) << same.message;
  }
  return planned(g, libraries);
}

TEST(LegalizeCuda, WeightsOfChannelsLastConvolutionsLieAsTheLibraryReadsThem) {
  Graph g;
  auto plan = legalized({{2, 6, 5, 4}, {8, 4, 3, 2}, window({1, 1}, {1, 0}, {1, 0}, {1, 1}, 1, true)}, g);
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  ASSERT_EQ(plan.groups[0].kind, Group::Kind::Library);
  const auto& w = plan.groups[0].call.operands[1];
  EXPECT_EQ(str(w.shape), "[8, 4, 3, 2]");
  EXPECT_EQ(str(w.strides), "[24, 1, 8, 4]");
  // Channels first: as it is.
  plan = legalized({{2, 4, 6, 5}, {8, 4, 3, 2}, window({1, 1}, {1, 0}, {1, 0}, {1, 1}, 1, false)}, g);
  EXPECT_EQ(str(plan.groups[0].call.operands[1].strides), "[24, 6, 2, 1]");
}

TEST(LegalizeCuda, ConvolutionsOfSinglePointsAreProducts) {
  ConvGraphText c{{2, 6, 5, 4}, {8, 4, 1, 1}, window({1, 1}, {0, 0}, {0, 0}, {1, 1}, 1, true)};
  Graph g;
  auto plan = legalized(c, g);
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  const auto& call = plan.groups[0].call;
  ASSERT_EQ(call.kind, LibraryCall::Kind::Matmul);
  EXPECT_EQ(str(call.operands[1].shape), "[2, 6, 4, 8]");
  EXPECT_EQ(str(call.operands[1].strides), "[0, 0, 1, 4]");
  EXPECT_NE(g.constant(call.operands[1].value), nullptr) << "read from the constant itself";
  // Only those.
  for (const auto& other :
       {window({2, 1}, {0, 0}, {0, 0}, {1, 1}, 1, true), window({1, 1}, {1, 0}, {1, 0}, {1, 1}, 1, true)}) {
    c.attributes = other;
    plan = legalized(c, g);
    EXPECT_EQ(plan.groups[0].call.kind, LibraryCall::Kind::Conv);
  }
}

TEST(LegalizeCuda, AnInputThatHasToMoveLeavesTheWeightAsItIs) {
  Graph g; // an image with its channels first
  ValueId x = g.add_input("x", {DType::F16, {2, 4, 6, 5}});
  ValueId w = g.add_constant(numbers(DType::F16, {8, 4, 3, 3}, 7), "w");
  auto moved = g.apply("transpose", {x}, {{"perm", Ints{0, 2, 3, 1}}});
  ASSERT_TRUE(moved.ok());
  auto y = g.apply("conv", {*moved, w}, window({1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, true));
  ASSERT_TRUE(y.ok());
  g.add_output("y", *y);
  ASSERT_TRUE(legalize_for_cuda(g, {}).ok());
  auto plan = planned(g);
  ASSERT_EQ(plan.groups.size(), 2u) << print(g, plan);
  EXPECT_EQ(plan.groups[0].reads, std::vector<ValueId>{x});
  const auto& weight = plan.groups[1].call.operands[1];
  EXPECT_NE(g.constant(weight.value), nullptr) << "read from the constant itself";
  EXPECT_EQ(str(weight.strides), "[36, 1, 12, 4]");
}

TEST(LegalizeCuda, UnequalPadsArePaddedExplicitly) {
  for (bool last : {true, false}) {
    Graph g;
    ConvGraphText c{{2, 6, 5, 4}, {8, 4, 3, 2}, window({1, 2}, {1, 0}, {0, 1}, {1, 1}, 1, last)};
    if (!last) c.x = {2, 4, 6, 5};
    auto plan = legalized(c, g);
    ASSERT_EQ(plan.groups.size(), 2u) << print(g, plan);
    EXPECT_EQ(plan.groups[0].kind, Group::Kind::Kernel);
    EXPECT_EQ(plan.groups[1].kind, Group::Kind::Library);
    const auto& attributes = g.node(plan.groups[1].call.node).attributes;
    EXPECT_EQ(attributes.ints("pads_begin"), (Ints{0, 0}));
    EXPECT_EQ(attributes.ints("pads_end"), (Ints{0, 0}));
  }
}

TEST(LegalizeCuda, DepthwiseConvolutionsAreLoops) {
  ConvGraphText c{{2, 6, 5, 8}, {8, 1, 3, 3}, window({1, 1}, {1, 1}, {1, 1}, {1, 1}, 8, true)};
  Graph g;
  auto plan = legalized(c, g);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].kind, Group::Kind::Kernel) << print(g, plan);
  // Its weight has the channels innermost: [kernel..., C, O].
  EXPECT_EQ(str(g.type(plan.groups[0].nest.loads[1]).shape), "[3, 3, 1, 8]");
}

TEST(LegalizeCuda, TransposedConvolutionsKeepTheirWeights) {
  Graph g;
  ConvGraphText c{{2, 3, 4, 4}, {4, 6, 2, 2}, window({2, 2}, {0, 0}, {0, 0}, {1, 1}, 1, true), "conv_transpose"};
  auto plan = legalized(c, g);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].kind, Group::Kind::Library);
  EXPECT_EQ(str(plan.groups[0].call.operands[1].strides), "[24, 1, 12, 6]");
  c.attributes = window({2, 2}, {0, 0}, {0, 1}, {1, 1}, 1, true); // a cropped result: loops
  plan = legalized(c, g);
  EXPECT_EQ(plan.groups[0].kind, Group::Kind::Kernel);
}

TEST(LegalizeCuda, EachTypeTakesItsRoute) {
  auto kind = [](const ConvGraphText& c, const CudaLibraries& libraries = {}) {
    Graph g;
    auto plan = legalized(c, g, libraries);
    EXPECT_EQ(plan.groups.size(), 1u);
    return plan.groups.empty() ? Group::Kind::Host : plan.groups[0].kind;
  };
  ConvGraphText c{{2, 4, 5, 5}, {8, 4, 3, 3}, window({1, 1}, {0, 0}, {0, 0}, {1, 1}, 1, false)};
  for (DType d : {DType::F16, DType::BF16, DType::F32}) {
    c.dtype = d;
    EXPECT_EQ(kind(c), Group::Kind::Library);
    EXPECT_EQ(kind(c, {true, false}), Group::Kind::Kernel) << "without cuDNN";
  }
  c.dtype = DType::F64;
  EXPECT_EQ(kind(c), Group::Kind::Kernel);
}

Graph product(const std::string& dtype, const std::string& a = "[3, 4]", const std::string& b = "[4, 5]") {
  auto g = parse_graph("graph @main(%a: " + dtype + a + ", %b: " + dtype + b + ") -> (%y: " + dtype +
                       "[3, 5]) {\n  %y = matmul(%a, %b) : " + dtype + "[3, 5]\n}");
  EXPECT_TRUE(g.ok());
  return std::move(*g);
}

TEST(LegalizeCuda, ProductsGoToTheLibraryWhereItHasTheirType) {
  auto kind = [](Graph g, const CudaLibraries& libraries = {}) { return planned(g, libraries).groups.at(0).kind; };
  for (const char* d : {"f16", "bf16", "f32", "f64"}) {
    EXPECT_EQ(kind(product(d)), Group::Kind::Library) << d;
    EXPECT_EQ(kind(product(d), {false, true}), Group::Kind::Kernel) << d;
  }
  for (const char* d : {"i8", "u8", "i32", "i64"}) EXPECT_EQ(kind(product(d)), Group::Kind::Kernel) << d;
  EXPECT_EQ(kind(product("f32", "[3, 1]", "[1, 5]")), Group::Kind::Kernel) << "nothing is summed";
}

TEST(LegalizeCuda, OperandsThatCublasCannotAddressGetMemory) {
  // Every second element: neither rows nor columns are dense.
  auto g = parse_graph(R"(graph @main(%a: f32[3, 4, 2], %b: f32[4, 5]) -> (%y: f32[3, 5]) {
  %z = constant {0} : i64[]
  %s = gather(%a, %z) axis=2 : f32[3, 4]
  %y = matmul(%s, %b) : f32[3, 5]
})");
  ASSERT_TRUE(g.ok()) << g.error().str();
  auto plan = planned(*g);
  ASSERT_EQ(plan.groups.size(), 2u) << print(*g, plan);
  EXPECT_EQ(plan.groups[0].kind, Group::Kind::Kernel);
  EXPECT_EQ(plan.groups[1].kind, Group::Kind::Library);
  EXPECT_EQ(str(plan.groups[1].call.operands[0].strides), "[4, 1]");
}

TEST(LegalizeCuda, PoolingOfUnequalPadsAndDilationsIsLoops) {
  auto kind = [](const std::string& attributes, const std::string& y) {
    auto g = parse_graph("graph @main(%x: f16[1, 2, 9]) -> (%y: f16[1, 2, " + y +
                         "]) {\n  %y = pool(%x) mode=\"max\" " + attributes + " : f16[1, 2, " + y + "]\n}");
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().str());
    return g.ok() ? planned(*g).groups.at(0).kind : Group::Kind::Host;
  };
  EXPECT_EQ(kind("kernel=[3] strides=[2] pads_begin=[1] pads_end=[1] dilations=[1]", "5"), Group::Kind::Library);
  EXPECT_EQ(kind("kernel=[3] strides=[2] pads_begin=[1] pads_end=[0] dilations=[1]", "4"), Group::Kind::Kernel);
  EXPECT_EQ(kind("kernel=[3] strides=[2] pads_begin=[1] pads_end=[1] dilations=[2]", "4"), Group::Kind::Kernel);
}

TEST(LegalizeCuda, AttentionGoesToCudnnWhereItReadsTheHeads) {
  struct Found {
    bool attention;
    std::string why;
  };
  auto found = [](const std::string& dtype, const std::string& width, const CudaLibraries& libraries = {},
                  const std::string& cap = "") {
    std::string text = "graph @main(%q: T[2, 3, s, W], %k: T[2, 3, s, W], %v: T[2, 3, s, W]) -> (%y: T[2, 3, s, W]) "
                       "where s in [1, 64] {\n  %kt = transpose(%k) perm=[0, 1, 3, 2] : T[2, 3, W, s]\n"
                       "  %p = matmul(%q, %kt) : T[2, 3, s, s]\n" +
                       (cap.empty() ? "  %x = cast(%p) to=f32 : f32[2, 3, s, s]\n" : cap) +
                       "  %m = reduce_max(%x) axes=[3] keepdims=1 : f32[2, 3, s, 1]\n"
                       "  %z = sub(%x, %m) : f32[2, 3, s, s]\n  %e = exp(%z) : f32[2, 3, s, s]\n"
                       "  %n = reduce_sum(%e) axes=[3] keepdims=1 : f32[2, 3, s, 1]\n"
                       "  %d = div(%e, %n) : f32[2, 3, s, s]\n  %w = cast(%d) to=T : T[2, 3, s, s]\n"
                       "  %y = matmul(%w, %v) : T[2, 3, s, W]\n}";
    for (size_t at = 0; (at = text.find_first_of("TW", at)) != std::string::npos;)
      text.replace(at, 1, text[at] == 'T' ? dtype : width);
    auto g = parse_graph(text);
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().str());
    auto plan = planned(*g, libraries);
    Found out{plan.groups[0].kind == Group::Kind::Attention, ""};
    for (const auto& e : plan.ledger) out.why += fusion::detail_text(*g, e.detail) + "\n";
    return out;
  };
  EXPECT_TRUE(found("f16", "64").attention);
  EXPECT_TRUE(found("bf16", "8").attention);
  EXPECT_TRUE(found("f16", "12").attention) << "by a kernel";
  EXPECT_TRUE(
      found("f16", "64", {}, "  %t = tanh(%p) : T[2, 3, s, s]\n  %x = cast(%t) to=f32 : f32[2, 3, s, s]\n").attention);
  CudaLibraries library;
  library.attention_kernel = false;
  auto refused = [](const Found& f, const char* why) {
    EXPECT_FALSE(f.attention);
    EXPECT_NE(f.why.find(why), std::string::npos) << f.why;
  };
  refused(found("f16", "12", library),
          "no attention: cuDNN's heads have a width that is a multiple of 8 up to 256, not 12");
  refused(found("f16", "264"), "not 264");
  refused(found("f32", "64"), "not in f32");
  refused(found("f16", "64", library, "  %t = tanh(%p) : T[2, 3, s, s]\n  %x = cast(%t) to=f32 : f32[2, 3, s, s]\n"),
          "tanh");
  CudaLibraries without;
  without.cudnn = without.attention_kernel = false;
  EXPECT_FALSE(found("f16", "64", without).attention);
}

} // namespace
} // namespace tessera
