// Epilogues of the one form that GPU libraries compute: recognised by what they compute in any spelling, refused with
// what stands in the way.
#include "fusion/library_epilogue.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

using Activation = FixedEpilogue::Activation;

FusionOptions fixed() {
  FusionOptions options;
  options.fixed_epilogues = true;
  options.scaled_operands = true;
  return options;
}

// A product x [b, 8] w [8, 16] followed by `body`, which makes %y from %p, bias %c [16] and residual %r [b, 16].
struct Planned {
  FusionPlan plan;
  std::optional<FixedEpilogue> fixed;
  double scale = 1;
  std::string refusals; // details of edges from the product that were not fused
};

Planned planned(const std::string& body, const std::string& dtype = "f32", double tolerance = 1e-5) {
  std::string text = "graph @main(%x: T[b, 8], %w: T[8, 16], %c: T[16], %r: T[b, 16], %s: T[b, 1]) -> (%y: T[b, 16]) "
                     "where b in [2, ?] {\n"
                     "  %p = matmul(%x, %w) : T[b, 16]\n" +
                     body + "}";
  for (size_t at = 0; (at = text.find("T[", at)) != std::string::npos;)
    if (at == 0 || text[at - 1] == ' ' || text[at - 1] == ':')
      text.replace(at, 1, dtype);
    else
      ++at;
  Graph g = parsed(text);
  Planned out;
  out.plan = check_plan(g, {{{"b", 2}}, {{"b", 5}}}, fixed(), tolerance);
  for (const auto& group : out.plan.groups)
    if (group.kind == Group::Kind::Library) {
      out.fixed = group.call.fixed;
      out.scale = group.call.scale;
      EXPECT_EQ(group.call.fixed.has_value(), group.call.epilogue_nest.has_value());
    }
  for (const auto& e : out.plan.ledger)
    if (e.reason == FusionReason::ResultOfLibrary || e.reason == FusionReason::RowsOfLibraryResult ||
        e.reason == FusionReason::OtherCallsEpilogue)
      out.refusals += fusion::detail_text(g, e.detail) + "\n";
  return out;
}

TEST(FixedEpilogue, BiasResidualAndRelu) {
  auto p = planned(R"(  %zero = constant {0.0} : T[]
  %h = add(%p, %c) : T[b, 16]
  %z = add(%r, %h) : T[b, 16]
  %y = max(%z, %zero) : T[b, 16]
)");
  ASSERT_TRUE(p.fixed) << p.refusals;
  EXPECT_EQ(p.fixed->activation, Activation::Relu);
  EXPECT_TRUE(p.fixed->bias && p.fixed->residual);
  EXPECT_EQ(p.fixed->bias_dim, 1);
  EXPECT_EQ(p.fixed->alpha, 1);
  EXPECT_EQ(p.plan.groups.size(), 1u);
}

TEST(FixedEpilogue, AScaleOfTheProductIsAlpha) {
  auto p = planned(R"(  %half = constant {0.5} : T[]
  %four = constant {4.0} : T[]
  %h = mul(%half, %p) : T[b, 16]
  %d = div(%h, %four) : T[b, 16]
  %y = add(%d, %r) : T[b, 16]
)");
  ASSERT_TRUE(p.fixed) << p.refusals;
  EXPECT_DOUBLE_EQ(p.fixed->alpha, 0.125);
  EXPECT_TRUE(p.fixed->residual);
}

// Spellings of gelu by tanh: as models of two exporters have it.
TEST(FixedEpilogue, GeluByTanhInEverySpelling) {
  const char* const spellings[] = {
      R"(  %h = add(%p, %c) : T[b, 16]
  %three = constant {3.0} : T[]
  %k = constant {0.044715} : T[]
  %s2 = constant {0.7978845608} : T[]
  %one = constant {1.0} : T[]
  %half = constant {0.5} : T[]
  %cube = pow(%h, %three) : T[b, 16]
  %kc = mul(%cube, %k) : T[b, 16]
  %in = add(%h, %kc) : T[b, 16]
  %arg = mul(%in, %s2) : T[b, 16]
  %t = tanh(%arg) : T[b, 16]
  %u = add(%t, %one) : T[b, 16]
  %v = mul(%h, %half) : T[b, 16]
  %y = mul(%v, %u) : T[b, 16]
)",
      R"(  %h = add(%p, %c) : T[b, 16]
  %k = constant {0.035677408136} : T[]
  %s2 = constant {0.7978845608} : T[]
  %half = constant {0.5} : T[]
  %sq = mul(%h, %h) : T[b, 16]
  %ks = mul(%k, %sq) : T[b, 16]
  %in = add(%s2, %ks) : T[b, 16]
  %arg = mul(%in, %h) : T[b, 16]
  %t = tanh(%arg) : T[b, 16]
  %th = mul(%half, %t) : T[b, 16]
  %u = add(%half, %th) : T[b, 16]
  %y = mul(%u, %h) : T[b, 16]
)"};
  for (const char* body : spellings)
    for (const char* dtype : {"f32", "f16"}) {
      auto p = planned(body, dtype, dtype == std::string("f16") ? 5e-3 : 1e-5);
      ASSERT_TRUE(p.fixed) << p.refusals << body;
      EXPECT_EQ(p.fixed->activation, Activation::GeluTanh);
      EXPECT_TRUE(p.fixed->bias);
    }
}

TEST(FixedEpilogue, OtherActivations) {
  auto p = planned(R"(  %k = constant {0.70710678} : T[]
  %one = constant {1.0} : T[]
  %half = constant {0.5} : T[]
  %arg = mul(%p, %k) : T[b, 16]
  %e = erf(%arg) : T[b, 16]
  %u = add(%e, %one) : T[b, 16]
  %v = mul(%p, %u) : T[b, 16]
  %y = mul(%v, %half) : T[b, 16]
)");
  ASSERT_TRUE(p.fixed) << p.refusals;
  EXPECT_EQ(p.fixed->activation, Activation::GeluErf);
  p = planned(R"(  %g = sigmoid(%p) : T[b, 16]
  %y = mul(%p, %g) : T[b, 16]
)");
  ASSERT_TRUE(p.fixed) << p.refusals;
  EXPECT_EQ(p.fixed->activation, Activation::Silu);
  p = planned(R"(  %low = constant {0.0} : T[]
  %high = constant {6.0} : T[]
  %h = min(%p, %high) : T[b, 16]
  %y = max(%h, %low) : T[b, 16]
)");
  ASSERT_TRUE(p.fixed) << p.refusals;
  EXPECT_EQ(p.fixed->activation, Activation::Clip);
  EXPECT_EQ(p.fixed->clip_low, 0);
  EXPECT_EQ(p.fixed->clip_high, 6);
}

// Nothing that only looks like one of them.
TEST(FixedEpilogue, WhatIsAlmostAnActivationIsNone) {
  auto refused = [&](const std::string& body, const std::string& part) {
    auto p = planned(body);
    EXPECT_FALSE(p.fixed) << body;
    EXPECT_NE(p.refusals.find(part), std::string::npos) << p.refusals << body;
  };
  refused(R"(  %k = constant {0.6} : T[]
  %one = constant {1.0} : T[]
  %half = constant {0.5} : T[]
  %arg = mul(%p, %k) : T[b, 16]
  %e = erf(%arg) : T[b, 16]
  %u = add(%e, %one) : T[b, 16]
  %v = mul(%p, %u) : T[b, 16]
  %y = mul(%v, %half) : T[b, 16]
)",
          "a product with another tensor");
  refused("  %k = constant {1.0} : T[]\n  %y = max(%p, %k) : T[b, 16]\n", "it takes no max");
  refused("  %y = mul(%p, %r) : T[b, 16]\n", "a product with another tensor");
  refused("  %y = exp(%p) : T[b, 16]\n", "it takes no exp");
  refused("  %k = constant {1.5} : T[]\n  %y = add(%p, %k) : T[b, 16]\n", "a constant is added");
  refused("  %y = add(%p, %p) : T[b, 16]\n", "used more than once");
  refused("  %k = constant {0.5} : T[]\n  %h = add(%p, %c) : T[b, 16]\n  %y = mul(%h, %k) : T[b, 16]\n", "scaled");
  refused("  %h = add(%p, %r) : T[b, 16]\n  %t = transpose(%h) perm=[1, 0] : T[16, b]\n"
          "  %n = neg(%t) : T[16, b]\n  %y = transpose(%n) perm=[1, 0] : T[b, 16]\n",
          "it takes no neg");
}

TEST(FixedEpilogue, GrowsWhileTheLibraryCanAndStopsThere) {
  // The operators behind relu are a separate kernel; the bias and relu stay with the product.
  auto p = planned(R"(  %zero = constant {0.0} : T[]
  %h = add(%p, %c) : T[b, 16]
  %y = max(%h, %zero) : T[b, 16]
)");
  ASSERT_TRUE(p.fixed);
  Graph g = parsed(
      R"(graph @main(%x: f32[b, 8], %w: f32[8, 16], %c: f32[16]) -> (%y: f32[b, 16], %h: f32[b, 16]) where b in [2, ?] {
  %p = matmul(%x, %w) : f32[b, 16]
  %h = add(%p, %c) : f32[b, 16]
  %y = exp(%h) : f32[b, 16]
})");
  auto plan = check_plan(g, {{{"b", 3}}}, fixed());
  ASSERT_EQ(plan.groups.size(), 2u) << print(g, plan);
  EXPECT_TRUE(plan.groups[0].call.fixed && plan.groups[0].call.fixed->bias);
  EXPECT_EQ(plan.groups[1].kind, Group::Kind::Kernel);
}

TEST(FixedEpilogue, TheRawResultIsNotForOthers) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, 8], %w: f32[8, 16], %c: f32[16]) -> (%p: f32[b, 16], %h: f32[b, 16]) where b in [2, ?] {
  %p = matmul(%x, %w) : f32[b, 16]
  %h = add(%p, %c) : f32[b, 16]
})");
  auto plan = check_plan(g, {{{"b", 3}}}, fixed());
  EXPECT_EQ(plan.groups.size(), 2u) << print(g, plan);
  for (const auto& group : plan.groups) EXPECT_FALSE(group.call.fixed);
}

TEST(FixedEpilogue, AConvolutionTakesBiasOfItsChannelsInBothLayouts) {
  for (bool last : {false, true}) {
    std::string y = last ? "f32[n, 5, 6]" : "f32[n, 6, 5]";
    Graph g = parsed("graph @main(%x: " + std::string(last ? "f32[n, 5, 4]" : "f32[n, 4, 5]") +
                     ", %w: f32[6, 4, 3], %b: " + (last ? "f32[6]" : "f32[6, 1]") + ", %r: " + y + ") -> (%y: " + y +
                     ") where n in [2, ?] {\n  %zero = constant {0.0} : f32[]\n"
                     "  %c = conv(%x, %w) strides=[1] pads_begin=[1] pads_end=[1] dilations=[1] groups=1" +
                     (last ? " channels_last=1 : " : " : ") + y + "\n  %d = add(%c, %b) : " + y +
                     "\n  %e = add(%d, %r) : " + y + "\n  %y = max(%e, %zero) : " + y + "\n}");
    auto plan = check_plan(g, {{{"n", 2}}, {{"n", 3}}}, fixed());
    ASSERT_EQ(plan.groups.size(), 1u) << print(g, plan);
    ASSERT_TRUE(plan.groups[0].call.fixed);
    EXPECT_EQ(plan.groups[0].call.fixed->bias_dim, 1);
    EXPECT_TRUE(plan.groups[0].call.fixed->residual);
    EXPECT_EQ(plan.groups[0].call.fixed->activation, Activation::Relu);
  }
}

TEST(ScaledOperands, BecomeTheProductsScale) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 3, 4, 8], %k: f32[b, 3, 5, 8]) -> (%y: f32[b, 3, 4, 5]) where b in [1, ?] {
  %s = constant {0.5} : f32[]
  %two = constant {2.0} : f32[]
  %one = add(%x, %x) : f32[b, 3, 4, 8]
  %q = mul(%one, %s) : f32[b, 3, 4, 8]
  %t = transpose(%k) perm=[0, 1, 3, 2] : f32[b, 3, 8, 5]
  %d = div(%t, %two) : f32[b, 3, 8, 5]
  %y = matmul(%q, %d) : f32[b, 3, 4, 5]
})");
  auto plan = check_plan(g, {{{"b", 1}}, {{"b", 2}}}, fixed());
  ASSERT_EQ(plan.groups.size(), 2u) << print(g, plan); // x + x, and the product
  EXPECT_DOUBLE_EQ(plan.groups[1].call.scale, 0.25);
  EXPECT_EQ(plan.groups[1].reads.size(), 2u);
  // Not without the library's factor.
  FusionOptions options = fixed();
  options.scaled_operands = false;
  plan = check_plan(g, {{{"b", 2}}}, options);
  for (const auto& group : plan.groups) EXPECT_EQ(group.call.scale, 1);
}

TEST(ScaledOperands, AConstantsProductStaysOne) {
  // Both operands of the multiplication known: no scaling of something in memory.
  Graph g = parsed(R"(graph @main(%x: f32[b, 4], %w: f32[4, 4], %s: f32[1]) -> (%y: f32[b, 4]) where b in [1, ?] {
  %v = mul(%w, %s) : f32[4, 4]
  %y = matmul(%x, %v) : f32[b, 4]
})");
  auto plan = check_plan(g, {{{"b", 2}}}, fixed());
  for (const auto& group : plan.groups) EXPECT_EQ(group.call.scale, 1);
}

} // namespace
} // namespace tessera
