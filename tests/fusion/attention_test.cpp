// Attention as one unit: recognised by what it computes in any spelling and layout, refused with what stands in the
// way. check_plan() runs each plan in steps, by the score's expression and by its fixed form, against the reference.
#include "fusion/attention.h"
#include "graph/passes/pass.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

FusionOptions whole() {
  FusionOptions options;
  options.fixed_epilogues = true;
  options.scaled_operands = true;
  options.attention_accepts = [](const Graph&, const AttentionCall&, std::string*) { return true; };
  return options;
}

struct Planned {
  FusionPlan plan;
  std::vector<AttentionCall> calls;
  std::string refusals;
};

Planned planned(Graph& g, const std::vector<std::map<std::string, int64_t>>& sizes, FusionOptions options = whole()) {
  Planned out;
  bool coarse = g.type(g.inputs()[0]).dtype == DType::BF16;
  out.plan = check_plan(g, sizes, options, coarse ? 5e-2 : 6e-3);
  for (const auto& group : out.plan.groups)
    if (group.kind == Group::Kind::Attention) out.calls.push_back(group.attention);
  for (const auto& e : out.plan.ledger)
    if (const std::string detail = fusion::detail_text(g, e.detail); detail.find("no attention: ") != std::string::npos)
      out.refusals += detail.substr(detail.find("no attention: ")) + "\n";
  return out;
}

const std::vector<std::map<std::string, int64_t>> kSizes = {{{"b", 2}, {"s", 5}}, {{"b", 1}, {"s", 3}}};

// q, k and v [b, 3, s, 8] from [b, s, 24]; `score` makes %x from the product %p and the inputs; `after` makes %w from
// the softmax %y.
Planned attention(const std::string& score, const std::string& after = "", const std::string& dtype = "f16",
                  const std::string& inputs = "", const std::string& outputs = "") {
  std::string text = R"(graph @main(%a: T[b, s, 24], %c: T[b, s, 24], %d: T[b, s, 24])" + inputs +
                     R"() -> (%o: T[b, s, 24])" + outputs + R"() where b in [1, 64], s in [1, 512] {
  %q4 = reshape(%a) shape=[b, s, 3, 8] : T[b, s, 3, 8]
  %q = transpose(%q4) perm=[0, 2, 1, 3] : T[b, 3, s, 8]
  %k4 = reshape(%c) shape=[b, s, 3, 8] : T[b, s, 3, 8]
  %k = transpose(%k4) perm=[0, 2, 3, 1] : T[b, 3, 8, s]
  %v4 = reshape(%d) shape=[b, s, 3, 8] : T[b, s, 3, 8]
  %v = transpose(%v4) perm=[0, 2, 1, 3] : T[b, 3, s, 8]
  %p = matmul(%q, %k) : T[b, 3, s, s]
)" + score + R"(  %xf = cast(%x) to=f32 : f32[b, 3, s, s]
  %m = reduce_max(%xf) axes=[3] keepdims=1 : f32[b, 3, s, 1]
  %z = sub(%xf, %m) : f32[b, 3, s, s]
  %e = exp(%z) : f32[b, 3, s, s]
  %n = reduce_sum(%e) axes=[3] keepdims=1 : f32[b, 3, s, 1]
  %y = div(%e, %n) : f32[b, 3, s, s]
)" + (after.empty() ? "  %w = cast(%y) to=T : T[b, 3, s, s]\n" : after) +
                     R"(  %u = matmul(%w, %v) : T[b, 3, s, 8]
  %ut = transpose(%u) perm=[0, 2, 1, 3] : T[b, s, 3, 8]
  %o = reshape(%ut) shape=[b, s, 24] : T[b, s, 24]
})";
  for (size_t at = 0; (at = text.find('T', at)) != std::string::npos;) text.replace(at, 1, dtype);
  Graph g = parsed(text);
  return planned(g, kSizes);
}

TEST(Attention, ScaleAlone) {
  auto p = attention("  %c1 = constant {0.25} : T[]\n  %x = mul(%p, %c1) : T[b, 3, s, s]\n");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  const auto& call = p.calls[0];
  ASSERT_TRUE(call.fixed) << call.not_fixed;
  EXPECT_DOUBLE_EQ(call.fixed->scale, 0.25);
  EXPECT_FALSE(call.fixed->bias);
  EXPECT_FALSE(call.fixed->causal);
  EXPECT_EQ(str(call.q.strides), "[24*s, 8, 24, 1]");
  EXPECT_EQ(str(call.k.strides), "[24*s, 8, 24, 1]");
  EXPECT_EQ(str(call.out.strides), "[24*s, 8, 24, 1]");
  EXPECT_EQ(count(p.plan, Group::Kind::Attention), 1);
  EXPECT_EQ(p.plan.groups.size(), 1u);
  EXPECT_EQ(p.plan.groups[0].otherwise.size(), 3u);
  EXPECT_EQ(flat_groups(p.plan).size(), 4u);
  EXPECT_EQ(count_reason(p.plan, FusionReason::WithinAttention), 2);
}

TEST(Attention, MasksBecomeBiases) {
  // Read as it is; undefined rows are guarded, so a row of -inf may be left to the library.
  const char* guarded = "  %nan = isnan(%y) : bool[b, 3, s, s]\n  %zero = constant {0.0} : f32[]\n"
                        "  %yy = select(%nan, %zero, %y) : f32[b, 3, s, s]\n  %w = cast(%yy) to=T : T[b, 3, s, s]\n";
  auto p = attention("  %x = add(%p, %mask) : T[b, 3, s, s]\n", guarded, "bf16", ", %mask: T[b, 1, 1, s]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  EXPECT_TRUE(p.calls[0].zero_where_undefined);
  ASSERT_TRUE(p.calls[0].fixed && p.calls[0].fixed->bias) << p.calls[0].not_fixed;
  EXPECT_EQ(str(p.calls[0].fixed->bias->strides), "[s, 0, 0, 1]");
  EXPECT_FALSE(p.calls[0].fixed->bias_nest);
  EXPECT_EQ(p.plan.groups.size(), 1u);
  // Not guarded: the kernel of the bias finds rows that are masked as a whole.
  p = attention("  %x = add(%p, %mask) : T[b, 3, s, s]\n", "", "f16", ", %mask: T[b, 1, s, s]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  ASSERT_TRUE(p.calls[0].fixed && p.calls[0].fixed->bias_nest) << p.calls[0].not_fixed;
  EXPECT_TRUE(p.calls[0].fixed->bias_nest->has_reduction());
  EXPECT_EQ(p.plan.groups.size(), 2u);
  // A mask of bools, and one made of lengths, with what has to be computed first over its own dimensions only.
  const char* low = "  %low = constant {-inf} : T[]\n  %x = select(%keep, %p, %low) : T[b, 3, s, s]\n";
  p = attention(low, guarded, "f16", ", %keep: bool[b, 1, 1, s]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  ASSERT_TRUE(p.calls[0].fixed && p.calls[0].fixed->bias_nest) << p.calls[0].not_fixed;
  EXPECT_EQ(p.calls[0].fixed->bias_nest->axes.size(), 2u);
  EXPECT_FALSE(p.calls[0].fixed->bias_nest->has_reduction());
}

// Spellings of a mask differ in the value that it adds: -inf or a finite number; neither is taken for the other.
const char* kCausal = "  %i = iota() shape=[s, 1] axis=0 : i64[s, 1]\n  %j = iota() shape=[1, s] axis=1 : i64[1, s]\n"
                      "  %see = le(%j, %i) : bool[s, s]\n";

TEST(Attention, CausalMasks) {
  auto p = attention(std::string(kCausal) + "  %low = constant {-inf} : T[]\n"
                                            "  %x = select(%see, %p, %low) : T[b, 3, s, s]\n");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  ASSERT_TRUE(p.calls[0].fixed) << p.calls[0].not_fixed;
  EXPECT_TRUE(p.calls[0].fixed->causal);
  EXPECT_FALSE(p.calls[0].fixed->bias);
  // A finite number: no row is masked as a whole, so it is an addend; it depends on query and key alone.
  p = attention(std::string(kCausal) + "  %low = constant {-30000.0} : T[]\n"
                                       "  %x = select(%see, %p, %low) : T[b, 3, s, s]\n");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  ASSERT_TRUE(p.calls[0].fixed && p.calls[0].fixed->bias_nest) << p.calls[0].not_fixed;
  EXPECT_EQ(p.calls[0].fixed->bias_nest->axes.size(), 2u);
  EXPECT_FALSE(p.calls[0].fixed->bias_nest->has_reduction());
  // On data a row may be masked as a whole; softmax of equal numbers is uniform, which no addend yields.
  p = attention("  %low = constant {-30000.0} : T[]\n  %x = select(%keep, %p, %low) : T[b, 3, s, s]\n", "", "f16",
                ", %keep: bool[b, 1, s, s]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  EXPECT_FALSE(p.calls[0].fixed);
  EXPECT_NE(p.calls[0].not_fixed.find("uniform"), std::string::npos) << p.calls[0].not_fixed;
}

TEST(Attention, AddendsThatAreTheSameForAllKeysCancel) {
  auto p = attention("  %none = constant {0.0} : T[]\n  %low = constant {-5.0} : T[]\n"
                     "  %r = select(%keep, %none, %low) : T[b, 1, s, 1]\n  %x = add(%p, %r) : T[b, 3, s, s]\n",
                     "", "f16", ", %keep: bool[b, 1, s, 1]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  ASSERT_TRUE(p.calls[0].fixed) << p.calls[0].not_fixed;
  EXPECT_FALSE(p.calls[0].fixed->bias);
}

TEST(Attention, OtherScoresHaveNoFixedForm) {
  auto p = attention("  %t = tanh(%p) : T[b, 3, s, s]\n  %x = add(%t, %p) : T[b, 3, s, s]\n");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  EXPECT_FALSE(p.calls[0].fixed);
  EXPECT_NE(p.calls[0].not_fixed.find("tanh"), std::string::npos) << p.calls[0].not_fixed;
  p = attention("  %t = add(%p, %big) : T[b, 3, s, s]\n  %x = mul(%t, %big) : T[b, 3, s, s]\n", "", "f16",
                ", %big: T[b, 3, s, s]");
  EXPECT_TRUE(p.calls.empty() || !p.calls[0].fixed);
}

TEST(Attention, RefusalsSayWhy) {
  auto refused = [](const Planned& p, const char* why) {
    EXPECT_TRUE(p.calls.empty());
    EXPECT_NE(p.refusals.find(why), std::string::npos) << p.refusals;
  };
  const std::string plain = "  %one = constant {0.5} : T[]\n  %x = mul(%p, %one) : T[b, 3, s, s]\n";
  refused(attention(plain, "", "f32"), "not in f32");
  refused(attention(plain, "", "f16", "", ", %w: T[b, 3, s, s]"), "the probabilities are read elsewhere");
  refused(attention(plain, "", "f16", "", ", %p: T[b, 3, s, s]"), "the scores are read elsewhere");
  refused(attention(plain, "  %w0 = cast(%y) to=T : T[b, 3, s, s]\n  %w = mul(%w0, %drop) : T[b, 3, s, s]\n", "f16",
                    ", %drop: T[b, 3, s, s]"),
          "no softmax between the products");
}

TEST(Attention, LibraryRefusals) {
  auto options = whole();
  options.attention_accepts = [](const Graph&, const AttentionCall& call, std::string* why) {
    if (why) *why = "of width " + call.q.shape.back().str();
    return false;
  };
  Graph g = parsed(
      R"(graph @main(%q: f16[2, s, 8], %k: f16[2, 8, s], %v: f16[2, s, 4]) -> (%o: f16[2, s, 4]) where s in [1, 64] {
  %p = matmul(%q, %k) : f16[2, s, s]
  %m = reduce_max(%p) axes=[2] keepdims=1 : f16[2, s, 1]
  %z = sub(%p, %m) : f16[2, s, s]
  %e = exp(%z) : f16[2, s, s]
  %n = reduce_sum(%e) axes=[2] keepdims=1 : f16[2, s, 1]
  %w = div(%e, %n) : f16[2, s, s]
  %o = matmul(%w, %v) : f16[2, s, 4]
})");
  auto p = planned(g, {{{"s", 5}}}, options);
  EXPECT_EQ(p.plan.groups.size(), 3u);
  EXPECT_NE(p.refusals.find("of width 8"), std::string::npos) << p.refusals;
  EXPECT_EQ(planned(g, {{{"s", 5}}}).calls.size(), 1u);
  options = whole();
  options.strict_rounding = true;
  EXPECT_TRUE(planned(g, {{{"s", 5}}}, options).calls.empty());
}

// The operator of ONNX, decomposed by its record: grouped heads, masks of bools, causal, and one query.
TEST(Attention, TheOperator) {
  auto run = [](const std::string& signature, const std::string& arguments, const std::string& attributes,
                const std::string& type) {
    Graph g = parsed("graph @main(" + signature + ") -> (%o: " + type +
                     ") where b in [1, 8], s in [2, 64] {\n  %o = Attention(" + arguments + ") " + attributes + " : " +
                     type + "\n}");
    auto passes = run_pipeline(g, {});
    EXPECT_TRUE(passes.ok());
    return planned(g, {{{"b", 2}, {"s", 5}}, {{"b", 1}, {"s", 3}}});
  };
  auto p = run("%q: f16[b, 4, s, 8], %k: f16[b, 4, s, 8], %v: f16[b, 4, s, 8]", "%q, %k, %v", "is_causal=1",
               "f16[b, 4, s, 8]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  EXPECT_TRUE(p.calls[0].fixed && p.calls[0].fixed->causal) << p.calls[0].not_fixed;
  p = run("%q: f16[b, 4, s, 8], %k: f16[b, 2, s, 8], %v: f16[b, 2, s, 8], %m: bool[s, s]", "%q, %k, %v, %m", "",
          "f16[b, 4, s, 8]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals << print(p.calls.empty() ? Graph() : Graph());
  EXPECT_TRUE(p.calls[0].zero_where_undefined);
  EXPECT_EQ(p.calls[0].q.shape.size(), 5u); // batch, heads of keys, what shares them
  EXPECT_TRUE(p.calls[0].k.strides[2].is_const(0));
  p = run("%q: f16[b, 4, 1, 8], %k: f16[b, 4, s, 8], %v: f16[b, 4, s, 8]", "%q, %k, %v", "", "f16[b, 4, 1, 8]");
  ASSERT_EQ(p.calls.size(), 1u) << p.refusals;
  EXPECT_EQ(str(p.calls[0].q.shape), "[b, 4, 1, 8]");
}

} // namespace
} // namespace tessera
