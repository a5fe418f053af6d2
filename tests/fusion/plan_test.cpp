// Plans of the patterns that models are made of: what becomes one kernel, what goes into a library call, and that the
// groups compute what the reference computes.
#include "graph/passes/passes.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

using Sizes = std::vector<std::map<std::string, int64_t>>;
const Sizes kBatchAndLength = {{{"b", 1}, {"s", 1}}, {{"b", 2}, {"s", 5}}, {{"b", 3}, {"s", 4}}};

TEST(Plan, SoftmaxIsOneKernel) {
  Graph g = parsed(R"(graph @main(%x: f32[b, s, 7]) -> (%y: f32[b, s, 7]) where b in [1, ?], s in [1, ?] {
  %m = reduce_max(%x) axes=[2] keepdims=1 : f32[b, s, 1]
  %d = sub(%x, %m) : f32[b, s, 7]
  %e = exp(%d) : f32[b, s, 7]
  %t = reduce_sum(%e) axes=[2] keepdims=1 : f32[b, s, 1]
  %y = div(%e, %t) : f32[b, s, 7]
})");
  auto plan = check_plan(g, kBatchAndLength);
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  EXPECT_EQ(plan.groups[0].nest.extents(AxisRole::Row).size(), 1u);
  EXPECT_EQ(plan.groups[0].writes.size(), 1u);
  EXPECT_EQ(count_reason(plan, FusionReason::ReductionIntoConsumer), 2);
}

// A condition that follows from the range of an index decides which operand a select reads: what computes the other one
// is left out, with all that only it needs.
TEST(Plan, WhatSizesDecideNotToReadIsNotComputed) {
  struct Case {
    std::string name, condition; // of the index i of [0, m)
    bool read;
  };
  const Case cases[] = {{"never", "lt", false}, {"always", "ge", true}};
  const std::string reductions[] = {
      "  %p = reduce_sum(%x) axes=[1] keepdims=1 : f32[b, 1]\n",
      "  %m = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1]\n  %d = sub(%x, %m) : f32[b, m]\n"
      "  %e = exp(%d) : f32[b, m]\n  %t = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]\n"
      "  %p = div(%e, %t) : f32[b, m]\n",
      "  %z = matmul(%x, %w) : f32[b, m]\n  %m = reduce_max(%z) axes=[1] keepdims=1 : f32[b, 1]\n"
      "  %p = sub(%z, %m) : f32[b, m]\n"};
  for (const auto& c : cases)
    for (const auto& reduction : reductions)
      for (const std::string b : {"b", "1"}) {
        std::string text =
            "graph @main(%x: f32[b, m], %w: f32[m, m]) -> (%y: f32[b, m]) where m in [1, ?], b in [1, ?] {\n" +
            reduction + "  %i = iota() shape=[b, m] axis=1 : i64[b, m]\n" +
            "  %c0 = constant {0} : i64[]\n  %f0 = constant {0.0} : f32[]\n  %c = " + c.condition +
            "(%i, %c0) : bool[b, m]\n  %y = select(%c, %p, %f0) : f32[b, m]\n}";
        if (b == "1")
          for (size_t at = 0; (at = text.find("[b, ", at)) != std::string::npos;) text[at + 1] = '1';
        if (b == "1") text.erase(text.find(", b in [1, ?]"), 13);
        SCOPED_TRACE(text);
        Graph g = parsed(text);
        Sizes sizes = {{{"b", 1}, {"m", 1}}, {{"b", 3}, {"m", 5}}};
        if (b == "1")
          for (auto& s : sizes) s.erase("b");
        auto plan = check_plan(g, sizes);
        const bool product = reduction.find("matmul") != std::string::npos;
        EXPECT_EQ(count(plan, Group::Kind::Library), c.read && product ? 1 : 0);
        if (!c.read) {
          ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
          EXPECT_TRUE(plan.groups[0].reads.empty());
        }
      }
}

// A chain of expensive operators is cut where its code leaves the instruction cache; one of cheap operators, which has
// less code, and what has few instructions, stays whole.
TEST(Plan, CodeBeyondTheInstructionCacheIsCut) {
  auto chain = [](const std::string& op, int length, double cached) {
    std::string text = "graph @main(%t0: f32[n]) -> (%y: f32[n]) where n in [1, ?] {\n";
    for (int i = 0; i < length; ++i)
      text += "  %t" + std::to_string(i + 1) + " = " + op + "(%t" + std::to_string(i) + ") : f32[n]\n";
    text += "  %y = neg(%t" + std::to_string(length) + ") : f32[n]\n}";
    Graph g = parsed(text);
    FusionOptions options = generated();
    options.cached_instructions = cached;
    return check_plan(g, {{{"n", 3}}}, options);
  };
  EXPECT_EQ(chain("tanh", 200, 0).groups.size(), 1u);
  EXPECT_EQ(chain("abs", 200, 1024).groups.size(), 1u);
  EXPECT_EQ(chain("tanh", 40, 1024).groups.size(), 1u);
  const FusionPlan cut = chain("tanh", 200, 1024);
  EXPECT_GT(cut.groups.size(), 1u);
  EXPECT_LE(cut.groups.size(), 6u);
  EXPECT_EQ(count_reason(cut, FusionReason::TooManyBuffers), static_cast<int>(cut.groups.size()) - 1);
  for (const Group& g : cut.groups) EXPECT_LE(fusion::instructions(g.nest), 1024);
}

// A device on which one program reads a whole row computes the results of few long rows in a separate kernel, which has
// more programs.
TEST(Plan, FewLongRowsAreOneKernelWhereBlocksShareThem) {
  auto groups = [](int64_t rows, int64_t row, bool cooperative) {
    const std::string r = std::to_string(rows), x = "f32[" + r + ", " + std::to_string(row) + "]",
                      one = "f32[" + r + ", 1]";
    Graph g =
        parsed("graph @main(%x: " + x + ") -> (%y: " + x + ") {\n  %m = reduce_max(%x) axes=[1] keepdims=1 : " + one +
               "\n  %d = sub(%x, %m) : " + x + "\n  %e = exp(%d) : " + x +
               "\n  %t = reduce_sum(%e) axes=[1] keepdims=1 : " + one + "\n  %y = div(%e, %t) : " + x + "\n}");
    FusionOptions options = generated();
    options.cooperative_rows = cooperative;
    auto plan = plan_fusion(g, options);
    EXPECT_TRUE(plan.ok()) << plan.error().str();
    return std::pair(plan->groups.size(), print(g, *plan).find("7 rows would leave cores idle") != std::string::npos);
  };
  EXPECT_EQ(groups(7, 1 << 20, false), std::pair(size_t{2}, true)); // and the ledger says why
  EXPECT_EQ(groups(7, 1 << 20, true), std::pair(size_t{1}, false));
  EXPECT_EQ(groups(8, 1 << 20, false), std::pair(size_t{1}, false));
  EXPECT_EQ(groups(7, 1 << 12, false), std::pair(size_t{1}, false));
}

TEST(Plan, SoftmaxThatIsCheckedForNanIsOneKernel) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, 4, s, s], %mask: bool[b, 1, s, s]) -> (%y: f32[b, 4, s, s]) where b in [1, ?], s in [1, ?] {
  %c0 = constant {0.0} : f32[]
  %low = constant {-3.4028235e+38} : f32[]
  %bias = select(%mask, %c0, %low) : f32[b, 1, s, s]
  %z = add(%x, %bias) : f32[b, 4, s, s]
  %m = reduce_max(%z) axes=[3] keepdims=1 : f32[b, 4, s, 1]
  %d = sub(%z, %m) : f32[b, 4, s, s]
  %e = exp(%d) : f32[b, 4, s, s]
  %t = reduce_sum(%e) axes=[3] keepdims=1 : f32[b, 4, s, 1]
  %p = div(%e, %t) : f32[b, 4, s, s]
  %n = isnan(%p) : bool[b, 4, s, s]
  %y = select(%n, %c0, %p) : f32[b, 4, s, s]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

const char* const kLayerNormByMeans =
    R"(graph @main(%x: f32[b, s, 12], %r: f32[b, s, 12], %g: f32[12], %o: f32[12]) -> (%y: f32[b, s, 12], %z: f32[b, s, 12]) where b in [1, ?], s in [1, ?] {
  %two = constant {2.0} : f32[]
  %n = constant {12.0} : f32[]
  %eps = constant {1e-05} : f32[]
  %z = add(%x, %r) : f32[b, s, 12]
  %ms = reduce_sum(%z) axes=[2] keepdims=1 : f32[b, s, 1]
  %m = div(%ms, %n) : f32[b, s, 1]
  %d = sub(%z, %m) : f32[b, s, 12]
  %q = pow(%d, %two) : f32[b, s, 12]
  %vs = reduce_sum(%q) axes=[2] keepdims=1 : f32[b, s, 1]
  %v = div(%vs, %n) : f32[b, s, 1]
  %e = add(%v, %eps) : f32[b, s, 1]
  %i = sqrt(%e) : f32[b, s, 1]
  %w = div(%d, %i) : f32[b, s, 12]
  %p = mul(%w, %g) : f32[b, s, 12]
  %y = add(%p, %o) : f32[b, s, 12]
})";

TEST(Plan, LayerNormIsOneKernelWithItsResidual) {
  Graph g = parsed(kLayerNormByMeans);
  auto plan = check_plan(g, kBatchAndLength);
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  EXPECT_EQ(plan.groups[0].writes.size(), 2u);
  EXPECT_EQ(count_reason(plan, FusionReason::ReductionIntoConsumer) > 0, true);
}

TEST(Plan, LayerNormByMomentsIsOneKernel) {
  Graph g = parsed(R"(graph @main(%z: f32[b, s, 12]) -> (%y: f32[b, s, 12]) where b in [1, ?], s in [1, ?] {
  %n = constant {0.0833333358168602} : f32[]
  %eps = constant {1e-05} : f32[]
  %ms = reduce_sum(%z) axes=[2] keepdims=1 : f32[b, s, 1]
  %m = mul(%ms, %n) : f32[b, s, 1]
  %q = mul(%z, %z) : f32[b, s, 12]
  %qs = reduce_sum(%q) axes=[2] keepdims=1 : f32[b, s, 1]
  %q2 = mul(%qs, %n) : f32[b, s, 1]
  %mm = mul(%m, %m) : f32[b, s, 1]
  %v = sub(%q2, %mm) : f32[b, s, 1]
  %e = add(%v, %eps) : f32[b, s, 1]
  %i = rsqrt(%e) : f32[b, s, 1]
  %d = sub(%z, %m) : f32[b, s, 12]
  %y = mul(%d, %i) : f32[b, s, 12]
})");
  auto plan = check_plan(g, kBatchAndLength, generated(), 1e-4);
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

TEST(Plan, GroupNormSplitsTheChannelAxis) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, 8, h, w], %g: f32[8, 1, 1]) -> (%y: f32[b, 8, h, w]) where b in [1, ?], h in [1, ?], w in [1, ?] {
  %r = reshape(%x) shape=[b, 2, 4*h*w] : f32[b, 2, 4*h*w]
  %m = reduce_max(%r) axes=[2] keepdims=1 : f32[b, 2, 1]
  %d = sub(%r, %m) : f32[b, 2, 4*h*w]
  %q = mul(%d, %d) : f32[b, 2, 4*h*w]
  %v = reduce_sum(%q) axes=[2] keepdims=1 : f32[b, 2, 1]
  %n = div(%d, %v) : f32[b, 2, 4*h*w]
  %k = reshape(%n) shape=[b, 8, h, w] : f32[b, 8, h, w]
  %y = mul(%k, %g) : f32[b, 8, h, w]
})");
  auto plan = check_plan(g, {{{"b", 2}, {"h", 3}, {"w", 2}}, {{"b", 1}, {"h", 2}, {"w", 5}}});
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

TEST(Plan, GeluBiasAndResidualVanishIntoTheProduct) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, s, 6], %w: f32[6, 8], %c: f32[8], %r: f32[b, s, 8]) -> (%y: f32[b, s, 8]) where b in [1, ?], s in [1, ?] {
  %root = constant {1.4142135} : f32[]
  %one = constant {1.0} : f32[]
  %half = constant {0.5} : f32[]
  %m = matmul(%x, %w) : f32[b, s, 8]
  %a = add(%m, %c) : f32[b, s, 8]
  %d = div(%a, %root) : f32[b, s, 8]
  %e = erf(%d) : f32[b, s, 8]
  %f = add(%e, %one) : f32[b, s, 8]
  %h = mul(%a, %f) : f32[b, s, 8]
  %k = mul(%h, %half) : f32[b, s, 8]
  %y = add(%k, %r) : f32[b, s, 8]
})");
  auto plan = check_plan(g, kBatchAndLength);
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  ASSERT_TRUE(plan.groups[0].call.epilogue_nest.has_value());
  EXPECT_EQ(plan.groups[0].writes.size(), 1u);
  EXPECT_GE(count_reason(plan, FusionReason::EpilogueOfLibrary), 1);
}

TEST(Plan, WithoutEpiloguesTheProductIsAlone) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 6], %w: f32[6, 8]) -> (%y: f32[b, 8]) where b in [1, ?] {
  %m = matmul(%x, %w) : f32[b, 8]
  %y = exp(%m) : f32[b, 8]
})");
  FusionOptions options;
  auto plan = check_plan(g, {{{"b", 3}}}, options);
  EXPECT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(count_reason(plan, FusionReason::ResultOfLibrary), 1);
  options.library_accepts = [](const Graph&, const LibraryCall& call, std::string* why) {
    if (why) *why = "no epilogue of that kind";
    return !call.epilogue_nest;
  };
  plan = check_plan(g, {{{"b", 3}}}, options);
  EXPECT_EQ(plan.groups.size(), 2u);
  EXPECT_NE(print(g, plan).find("no epilogue of that kind"), std::string::npos);
}

TEST(Plan, SwigluIsTwoProducts) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, s, 6], %wg: f32[6, 8], %wu: f32[6, 8]) -> (%y: f32[b, s, 8]) where b in [1, ?], s in [1, ?] {
  %gate = matmul(%x, %wg) : f32[b, s, 8]
  %sig = sigmoid(%gate) : f32[b, s, 8]
  %act = mul(%gate, %sig) : f32[b, s, 8]
  %up = matmul(%x, %wu) : f32[b, s, 8]
  %y = mul(%act, %up) : f32[b, s, 8]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(plan.groups.size(), 2u) << print(g, plan);
  EXPECT_EQ(count(plan, Group::Kind::Library), 2);
}

const char* const kAttention =
    R"(graph @main(%x: f32[b, s, 24], %wq: f32[24, 24], %wk: f32[24, 24], %wv: f32[24, 24], %c: f32[24], %mask: f32[b, 1, 1, s]) -> (%y: f32[b, s, 24]) where b in [1, ?], s in [1, ?] {
  %scale = constant {0.35355338} : f32[]
  %q0 = matmul(%x, %wq) : f32[b, s, 24]
  %q1 = add(%q0, %c) : f32[b, s, 24]
  %q2 = reshape(%q1) shape=[b, s, 3, 8] : f32[b, s, 3, 8]
  %q3 = transpose(%q2) perm=[0, 2, 1, 3] : f32[b, 3, s, 8]
  %q = mul(%q3, %scale) : f32[b, 3, s, 8]
  %k0 = matmul(%x, %wk) : f32[b, s, 24]
  %k1 = add(%k0, %c) : f32[b, s, 24]
  %k2 = reshape(%k1) shape=[b, s, 3, 8] : f32[b, s, 3, 8]
  %k = transpose(%k2) perm=[0, 2, 3, 1] : f32[b, 3, 8, s]
  %v0 = matmul(%x, %wv) : f32[b, s, 24]
  %v1 = add(%v0, %c) : f32[b, s, 24]
  %v2 = reshape(%v1) shape=[b, s, 3, 8] : f32[b, s, 3, 8]
  %v = transpose(%v2) perm=[0, 2, 1, 3] : f32[b, 3, s, 8]
  %qk = matmul(%q, %k) : f32[b, 3, s, s]
  %z = add(%qk, %mask) : f32[b, 3, s, s]
  %m = reduce_max(%z) axes=[3] keepdims=1 : f32[b, 3, s, 1]
  %d = sub(%z, %m) : f32[b, 3, s, s]
  %e = exp(%d) : f32[b, 3, s, s]
  %t = reduce_sum(%e) axes=[3] keepdims=1 : f32[b, 3, s, 1]
  %p = div(%e, %t) : f32[b, 3, s, s]
  %o0 = matmul(%p, %v) : f32[b, 3, s, 8]
  %o1 = transpose(%o0) perm=[0, 2, 1, 3] : f32[b, s, 3, 8]
  %o2 = reshape(%o1) shape=[b, s, 24] : f32[b, s, 24]
  %y = matmul(%o2, %wq) : f32[b, s, 24]
})";

TEST(Plan, AttentionIsProductsAndOneSoftmax) {
  Graph g = parsed(kAttention);
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(count(plan, Group::Kind::Library), 6) << print(g, plan);
  EXPECT_EQ(count(plan, Group::Kind::Kernel), 1) << print(g, plan);
  // The context is written where the last product reads it: strides of the result.
  bool strided = false;
  for (const auto& group : plan.groups)
    strided = strided || (group.kind == Group::Kind::Library && !group.call.epilogue_nest &&
                          group.call.result.value != g.node(group.call.node).results[0]);
  EXPECT_TRUE(strided) << print(g, plan);
}

TEST(Plan, RotaryEmbeddingIsOneKernel) {
  Graph g = parsed(
      R"(graph @main(%q: f32[b, s, 24], %cos: f32[s, 8], %sin: f32[s, 8]) -> (%y: f32[b, 3, s, 8]) where b in [1, ?], s in [1, ?] {
  %r = reshape(%q) shape=[b, s, 3, 8] : f32[b, s, 3, 8]
  %h = transpose(%r) perm=[0, 2, 1, 3] : f32[b, 3, s, 8]
  %lo = slice(%h) starts=[0, 0, 0, 0] steps=[1, 1, 1, 1] sizes=[b, 3, s, 4] : f32[b, 3, s, 4]
  %hi = slice(%h) starts=[0, 0, 0, 4] steps=[1, 1, 1, 1] sizes=[b, 3, s, 4] : f32[b, 3, s, 4]
  %n = neg(%hi) : f32[b, 3, s, 4]
  %rot = concat(%n, %lo) axis=3 : f32[b, 3, s, 8]
  %a = mul(%h, %cos) : f32[b, 3, s, 8]
  %c = mul(%rot, %sin) : f32[b, 3, s, 8]
  %y = add(%a, %c) : f32[b, 3, s, 8]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

TEST(Plan, SharedHeadsSplitTheBatchOfTheProduct) {
  Graph g = parsed(
      R"(graph @main(%q: f32[b, 6, s, 4], %k: f32[b, 2, s, 4]) -> (%y: f32[b, 6, s, s]) where b in [1, ?], s in [1, ?] {
  %u = reshape(%k) shape=[b, 2, 1, s, 4] : f32[b, 2, 1, s, 4]
  %e = expand(%u) shape=[b, 2, 3, s, 4] : f32[b, 2, 3, s, 4]
  %r = reshape(%e) shape=[b, 6, s, 4] : f32[b, 6, s, 4]
  %t = transpose(%r) perm=[0, 1, 3, 2] : f32[b, 6, 4, s]
  %y = matmul(%q, %t) : f32[b, 6, s, s]
})");
  auto plan = check_plan(g, kBatchAndLength);
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  EXPECT_EQ(plan.groups[0].call.result.shape.size(), 5u);
  EXPECT_TRUE(plan.groups[0].call.operands[1].strides[2].is_const(0)) << print(g, plan);
}

TEST(Plan, ConvolutionTakesNormalisationResidualAndActivation) {
  Graph g = parsed(
      R"(graph @main(%x: f32[n, 3, 5, 5], %w: f32[4, 3, 1, 1], %a: f32[4, 1, 1], %c: f32[4, 1, 1], %r: f32[n, 4, 5, 5]) -> (%y: f32[n, 4, 5, 5]) where n in [1, ?] {
  %zero = constant {0.0} : f32[]
  %k = conv(%x, %w) strides=[1, 1] pads_begin=[0, 0] pads_end=[0, 0] dilations=[1, 1] groups=1 : f32[n, 4, 5, 5]
  %m = mul(%k, %a) : f32[n, 4, 5, 5]
  %s = add(%m, %c) : f32[n, 4, 5, 5]
  %t = add(%s, %r) : f32[n, 4, 5, 5]
  %y = max(%t, %zero) : f32[n, 4, 5, 5]
})");
  auto plan = check_plan(g, {{{"n", 1}}, {{"n", 3}}});
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

// The call speaks of [N, C, spatial...] whatever the layout: strides say where the channels are.
TEST(Plan, ConvolutionWithChannelsLastTakesItsEpilogueToo) {
  Graph g = parsed(
      R"(graph @main(%x: f32[n, 3, 6, 5], %w: f32[4, 3, 3, 2], %c: f32[4], %r: f32[n, 4, 4, 4]) -> (%y: f32[n, 4, 4, 4]) where n in [1, ?] {
  %zero = constant {0.0} : f32[]
  %t = transpose(%x) perm=[0, 2, 3, 1] : f32[n, 6, 5, 3]
  %k = conv(%t, %w) strides=[1, 1] pads_begin=[0, 0] pads_end=[0, 0] dilations=[1, 1] groups=1 channels_last=1 : f32[n, 4, 4, 4]
  %s = add(%k, %c) : f32[n, 4, 4, 4]
  %u = add(%s, %r) : f32[n, 4, 4, 4]
  %y = max(%u, %zero) : f32[n, 4, 4, 4]
})");
  auto plan = check_plan(g, {{{"n", 1}}, {{"n", 3}}});
  ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
  const LibraryCall& call = plan.groups[0].call;
  auto strides = [](const OperandView& v) { return str(SymShape(v.strides.begin(), v.strides.end())); };
  EXPECT_EQ(str(call.operands[0].shape), "[n, 3, 6, 5]");
  EXPECT_EQ(strides(call.operands[0]), "[90, 30, 5, 1]"); // the input, as it is
  EXPECT_EQ(str(call.operands[1].shape), "[4, 3, 3, 2]");
  EXPECT_EQ(str(call.result.shape), "[n, 4, 4, 4]");
  EXPECT_EQ(strides(call.result), "[64, 1, 16, 4]");
  ASSERT_TRUE(call.epilogue_nest.has_value());
  EXPECT_EQ(call.epilogue_nest->axes.size(), 4u);
  EXPECT_EQ(plan.groups[0].writes.size(), 1u);
}

TEST(Plan, ConcatSliceAndGatherAreLoads) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, 4], %y: f32[b, 3], %t: f32[5, 7], %i: i64[b]) -> (%z: f32[b, 6]) where b in [1, ?] {
  %c = concat(%x, %y) axis=1 : f32[b, 7]
  %e = exp(%c) : f32[b, 7]
  %k = gather(%t, %i) axis=0 : f32[b, 7]
  %a = add(%e, %k) : f32[b, 7]
  %z = slice(%a) starts=[0, 1] steps=[1, 1] sizes=[b, 6] : f32[b, 6]
})");
  auto plan = check_plan(g, {{{"b", 1}}, {{"b", 4}}});
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

TEST(Plan, DearSharedProducerIsStoredOnce) {
  // A table of cosines, small, read along the heads of two large tensors that nothing else joins.
  Graph g = parsed(
      R"(graph @main(%f: f32[s, 8], %p: f32[b, 64, s, 8], %q: f32[64, b, s, 8]) -> (%y: f32[b, 64, s, 8], %z: f32[64, b, s, 8]) where b in [1, ?], s in [1, ?] {
  %c = cos(%f) : f32[s, 8]
  %y = mul(%p, %c) : f32[b, 64, s, 8]
  %z = mul(%q, %c) : f32[64, b, s, 8]
})");
  auto plan = check_plan(g, {{{"b", 2}, {"s", 3}}});
  EXPECT_EQ(plan.groups.size(), 3u) << print(g, plan);
  EXPECT_EQ(count_reason(plan, FusionReason::RecomputeTooExpensive), 2) << print(g, plan);
}

TEST(Plan, CheapSharedProducerIsInlined) {
  Graph g = parsed(
      R"(graph @main(%f: f32[b, s], %w: f32[s, 3]) -> (%y: f32[s, b], %z: f32[b, 3]) where b in [1, ?], s in [1, ?] {
  %n = neg(%f) : f32[b, s]
  %t = transpose(%n) perm=[1, 0] : f32[s, b]
  %y = exp(%t) : f32[s, b]
  %m = reduce_max(%n) axes=[1] keepdims=1 : f32[b, 1]
  %z = expand(%m) shape=[b, 3] : f32[b, 3]
})");
  auto plan = check_plan(g, kBatchAndLength);
  for (const auto& group : plan.groups)
    for (ValueId v : group.writes) EXPECT_NE(g.value(v).name, "n") << print(g, plan);
  EXPECT_GE(count_reason(plan, FusionReason::Inlined), 1);
}

// A mask is in memory for whoever needs it there. What runs over the same points is computed where it is; what runs
// over more reads a byte of its condition instead of four of the mask.
TEST(Plan, WhatOthersNeedInMemoryIsRecomputedWhereThatMovesLess) {
  Graph g = parsed(
      R"(graph @main(%c: bool[b, s], %x: f32[b, s], %y: f32[3, b, s]) -> (%m: f32[b, s], %p: f32[b, s], %q: f32[3, b, s]) where b in [1, ?], s in [1, ?] {
  %m = cast(%c) to=f32 : f32[b, s]
  %p = mul(%x, %m) : f32[b, s]
  %q = mul(%y, %m) : f32[3, b, s]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(plan.groups.size(), 2u) << print(g, plan);
  EXPECT_EQ(count_reason(plan, FusionReason::Recomputed), 1) << print(g, plan);
  for (const auto& group : plan.groups)
    for (ValueId v : group.reads) EXPECT_NE(g.value(v).name, "m") << print(g, plan);
  EXPECT_NE(print(g, plan).find("recomputed, saves 4*b*s: computed 16.4 kB, read 65.5 kB"), std::string::npos)
      << print(g, plan);
}

// Under a condition, too: padded, the mask is 0 where there is none.
TEST(Plan, WhatIsReadUnderAConditionIsRecomputedUnderIt) {
  Graph g = parsed(
      R"(graph @main(%c: bool[b, s], %y: f32[3, b, s + 2]) -> (%m: f32[b, s], %q: f32[3, b, s + 2]) where b in [1, ?], s in [1, ?] {
  %w = cast(%c) to=f32 : f32[b, s]
  %one = constant {1} : f32[]
  %m = sub(%w, %one) : f32[b, s]
  %d = pad(%m) pads_begin=[0, 1] pads_end=[0, 1] mode="constant" : f32[b, s + 2]
  %q = mul(%y, %d) : f32[3, b, s + 2]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(count_reason(plan, FusionReason::Recomputed), 1) << print(g, plan);
}

TEST(Plan, WhatOthersNeedInMemoryIsReadWhereComputingMovesMore) {
  // The cases: as many bytes to read; more; arithmetic that costs more than the bytes; a read of a product's result.
  for (
      const char* text : {
          R"(graph @main(%x: f32[b, s], %y: f32[3, b, s]) -> (%m: f32[b, s], %q: f32[3, b, s]) where b in [1, ?], s in [1, ?] {
  %m = neg(%x) : f32[b, s]
  %q = mul(%y, %m) : f32[3, b, s]
})",
          R"(graph @main(%x: f32[b, s], %y: f16[3, b, s]) -> (%m: f16[b, s], %q: f16[3, b, s]) where b in [1, ?], s in [1, ?] {
  %m = cast(%x) to=f16 : f16[b, s]
  %q = mul(%y, %m) : f16[3, b, s]
})",
          R"(graph @main(%x: f16[b, s], %y: f32[3, b, s]) -> (%m: f32[b, s], %q: f32[3, b, s]) where b in [1, ?], s in [1, ?] {
  %w = cast(%x) to=f32 : f32[b, s]
  %v = sin(%w) : f32[b, s]
  %m = cos(%v) : f32[b, s]
  %q = mul(%y, %m) : f32[3, b, s]
})",
          R"(graph @main(%x: f16[b, s], %y: f32[3, b, s], %k: f16[s, s]) -> (%m: f32[b, s], %q: f32[3, b, s]) where b in [1, ?], s in [1, ?] {
  %w = matmul(%x, %k) : f16[b, s]
  %m = cast(%w) to=f32 : f32[b, s]
  %q = mul(%y, %m) : f32[3, b, s]
})"}) {
    Graph g = parsed(text);
    auto plan = check_plan(g, kBatchAndLength, generated(), 1e-2);
    EXPECT_EQ(count_reason(plan, FusionReason::Recomputed), 0) << print(g, plan);
    EXPECT_EQ(plan.groups.size(), 2u) << print(g, plan);
  }
}

TEST(Plan, ReductionsOverDifferentAxesTellWhatBothRead) {
  Graph g = parsed(R"(graph @main(%x: f32[b, s]) -> (%y: f32[b], %z: f32[s]) where b in [1, ?], s in [1, ?] {
  %y = reduce_sum(%x) axes=[1] keepdims=0 : f32[b]
  %z = reduce_sum(%x) axes=[0] keepdims=0 : f32[s]
})");
  auto plan = check_plan(g, kBatchAndLength);
  ASSERT_EQ(plan.pairs.size(), 1u) << print(g, plan);
  EXPECT_EQ(plan.pairs[0].reason, FusionReason::DifferentReduction);
  const std::string detail = fusion::detail_text(g, plan.pairs[0].detail);
  EXPECT_NE(detail.find("both read 65.5 kB"), std::string::npos) << detail;
}

TEST(Plan, CyclesAreNotMade) {
  // y needs e and, through the product, what is made from e: e and y cannot be one kernel.
  Graph g = parsed(R"(graph @main(%x: f32[s, s], %r: f32[s, s]) -> (%y: f32[s, s]) where s in [1, ?] {
  %a = add(%x, %r) : f32[s, s]
  %e = reduce_max(%a) axes=[1] keepdims=1 : f32[s, 1]
  %d = sub(%a, %e) : f32[s, s]
  %m = matmul(%d, %d) : f32[s, s]
  %k = reduce_sum(%m) axes=[1] keepdims=1 : f32[s, 1]
  %l = mul(%d, %k) : f32[s, s]
  %y = add(%l, %e) : f32[s, s]
})");
  auto plan = check_plan(g, {{{"s", 1}}, {{"s", 4}}});
  EXPECT_EQ(plan.groups.size(), 3u) << print(g, plan);
  EXPECT_GE(count_reason(plan, FusionReason::WouldCycle), 1) << print(g, plan);
}

TEST(Plan, SiblingsReadTheirInputOnce) {
  Graph g = parsed(R"(graph @main(%x: f32[b, s]) -> (%y: f32[b], %z: f32[b]) where b in [1, ?], s in [1, ?] {
  %y = reduce_max(%x) axes=[1] keepdims=0 : f32[b]
  %z = reduce_sum(%x) axes=[1] keepdims=0 : f32[b]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(plan.groups.size(), 1u) << print(g, plan);
}

TEST(Plan, DifferentReductionsStayApart) {
  Graph g = parsed(R"(graph @main(%x: f32[b, s, 5]) -> (%y: f32[b, 1, 1]) where b in [1, ?], s in [1, ?] {
  %m = reduce_max(%x) axes=[2] keepdims=1 : f32[b, s, 1]
  %y = reduce_sum(%m) axes=[1] keepdims=1 : f32[b, 1, 1]
})");
  auto plan = check_plan(g, kBatchAndLength);
  EXPECT_EQ(plan.groups.size(), 2u) << print(g, plan);
}

TEST(Plan, OutputsThatAreInputsAreAliases) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 4]) -> (%x: f32[b, 4], %y: f32[4, b]) where b in [1, ?] {
  %y = transpose(%x) perm=[1, 0] : f32[4, b]
})");
  auto plan = check_plan(g, {{{"b", 3}}});
  EXPECT_EQ(count(plan, Group::Kind::Alias), 1);
  EXPECT_EQ(count(plan, Group::Kind::Kernel), 1);
}

TEST(Plan, HalfRoundsWhereItIsStored) {
  Graph g = parsed(R"(graph @main(%x: f16[b, 4], %y: f16[b, 4]) -> (%z: f16[b, 4]) where b in [1, ?] {
  %a = add(%x, %y) : f16[b, 4]
  %e = exp(%a) : f16[b, 4]
  %z = mul(%e, %y) : f16[b, 4]
})");
  check_plan(g, {{{"b", 3}}}, generated(), 5e-3);
  FusionOptions strict = generated();
  strict.strict_rounding = true;
  check_plan(g, {{{"b", 64}}}, strict, 0); // bit for bit what operator by operator gives
}

TEST(Plan, EmptyTensors) {
  Graph g = parsed(
      R"(graph @main(%x: f32[0, 4], %w: f32[4, 5], %k: f32[3, 0], %i: i64[b], %t: f32[0, 2]) -> (%y: f32[0, 5], %z: f32[3], %m: f32[3, 5], %c: f32[b, 2]) where b in [0, ?] {
  %p = matmul(%x, %w) : f32[0, 5]
  %y = exp(%p) : f32[0, 5]
  %z = reduce_sum(%k) axes=[1] keepdims=0 : f32[3]
  %m = matmul(%k, %y) : f32[3, 5]
  %c = gather(%t, %i) axis=0 : f32[b, 2]
})");
  check_plan(g, {{{"b", 0}}});
}

TEST(Plan, OffMeansOneKernelAnOperator) {
  Graph g = parsed(kAttention);
  FusionOptions off = generated();
  off.enabled = false;
  auto plan = check_plan(g, kBatchAndLength, off);
  EXPECT_EQ(plan.groups.size(), 24u) << print(g, plan);
}

TEST(Plan, BuffersAreLimited) {
  std::string text = "graph @main(";
  for (int i = 0; i < 40; ++i) text += (i ? ", %x" : "%x") + std::to_string(i) + ": f32[b, 4]";
  text += ") -> (%y39: f32[b, 4]) where b in [1, ?] {\n";
  for (int i = 1; i < 40; ++i)
    text += "  %y" + std::to_string(i) + " = add(" + (i == 1 ? "%x0" : "%y" + std::to_string(i - 1)) + ", %x" +
            std::to_string(i) + ") : f32[b, 4]\n";
  Graph g = parsed(text + "}");
  auto plan = check_plan(g, {{{"b", 2}}});
  for (const auto& group : plan.groups) EXPECT_LE(group.reads.size() + group.writes.size(), 24u) << print(g, plan);
}

TEST(Plan, LongChainsStayShallow) {
  std::string text = "graph @main(%x0: f32[b]) -> (%x2000: f32[b]) where b in [1, ?] {\n";
  for (int i = 1; i <= 2000; ++i)
    text +=
        "  %x" + std::to_string(i) + " = " + (i % 2 ? "neg" : "abs") + "(%x" + std::to_string(i - 1) + ") : f32[b]\n";
  Graph g = parsed(text + "}");
  auto plan = check_plan(g, {{{"b", 2}}});
  EXPECT_LE(plan.groups.size(), 20u);
}

TEST(Plan, TheSameGraphGivesTheSamePlan) {
  for (const char* text : {kAttention, kLayerNormByMeans}) {
    Graph a = parsed(text), b = parsed(text);
    auto x = plan_fusion(a, generated()), y = plan_fusion(b, generated());
    ASSERT_TRUE(x.ok() && y.ok());
    EXPECT_EQ(print(a, *x), print(b, *y));
  }
}

// One update along an axis into one number everywhere: rows of which one element differs, as a comparison.
TEST(Plan, AScatterIntoOneNumberIsAComparison) {
  for (const std::string reduction : {"none", "add", "mul", "max", "min"}) {
    Graph g = parsed(
        R"(graph @main(%i: i64[b, 1, 3], %u: f32[b, 1, 3]) -> (%y: f32[b, 7, 3]) where b in [1, ?] {
  %z = constant {2.0} : f32[]
  %x = expand(%z) shape=[b, 7, 3] : f32[b, 7, 3]
  %v = scatter_elements(%x, %i, %u) axis=1 reduction=")" +
        reduction + R"(" : f32[b, 7, 3]
  %y = exp(%v) : f32[b, 7, 3]
})");
    ASSERT_TRUE(run_pipeline(g, {}).ok());
    EXPECT_EQ(check_plan(g, {{{"b", 1}}, {{"b", 4}}}).groups.size(), 1u) << print(g);
  }
}

} // namespace
} // namespace tessera
