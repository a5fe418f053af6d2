// Kernels are named by what their loops are, in any spelling; what only looks alike is not.
#include "fusion/idioms.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

// Names of the kernels and calls that are planned for these nodes, without their numbers.
std::vector<std::string> names(const std::string& nodes, const std::string& types, const std::string& inputs = "") {
  Graph g = parsed("graph @main(%x: " + types + inputs + ") -> (%y: " + types +
                   ") where b in [1, 64], s in [1, 512] {\n" + nodes + "}\n");
  const FusionPlan plan = check_plan(g, {{{"b", 2}, {"s", 5}}});
  std::vector<std::string> out;
  for (const Group& group : plan.groups) out.push_back(group.name.substr(group.name.find('_') + 1));
  return out;
}
using Names = std::vector<std::string>;

TEST(Idioms, Softmax) {
  EXPECT_EQ(names(R"(
  %m = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1]
  %z = sub(%x, %m) : f32[b, s]
  %e = exp(%z) : f32[b, s]
  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]
  %y = div(%e, %n) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"softmax"});
  EXPECT_EQ(names(R"(
  %e = exp(%x) : f32[b, s]
  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]
  %r = reciprocal(%n) : f32[b, 1]
  %y = mul(%r, %e) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"softmax"});
  // The softmax of f16 is rounded between the operators.
  EXPECT_EQ(names(R"(
  %xf = cast(%x) to=f32 : f32[b, s]
  %m = reduce_max(%xf) axes=[1] keepdims=1 : f32[b, 1]
  %z = sub(%xf, %m) : f32[b, s]
  %e = exp(%z) : f32[b, s]
  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]
  %d = div(%e, %n) : f32[b, s]
  %y = cast(%d) to=f16 : f16[b, s]
)",
                  "f16[b, s]"),
            Names{"softmax"});
  // The sum is of other exponentials.
  EXPECT_EQ(names(R"(
  %w = abs(%x) : f32[b, s]
  %f = exp(%w) : f32[b, s]
  %e = exp(%x) : f32[b, s]
  %n = reduce_sum(%f) axes=[1] keepdims=1 : f32[b, 1]
  %y = div(%e, %n) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"abs_exp_reduce_sum_div"});
}

TEST(Idioms, LogSoftmax) {
  EXPECT_EQ(names(R"(
  %m = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1]
  %z = sub(%x, %m) : f32[b, s]
  %e = exp(%z) : f32[b, s]
  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]
  %l = log(%n) : f32[b, 1]
  %y = sub(%z, %l) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"log_softmax"});
}

constexpr const char* kLayerNorm = R"(
  %t = reduce_sum(%x) axes=[1] keepdims=1 : f32[b, 1]
  %c = constant {0.125} : f32[]
  %mean = mul(%t, %c) : f32[b, 1]
  %d = sub(%x, %mean) : f32[b, 8]
  %q = mul(%d, %d) : f32[b, 8]
  %v = reduce_sum(%q) axes=[1] keepdims=1 : f32[b, 1]
  %vm = mul(%v, %c) : f32[b, 1]
  %eps = constant {1e-05} : f32[]
  %ve = add(%vm, %eps) : f32[b, 1]
)";

TEST(Idioms, Norms) {
  EXPECT_EQ(names(std::string(kLayerNorm) + R"(  %r = sqrt(%ve) : f32[b, 1]
  %y = div(%d, %r) : f32[b, 8]
)",
                  "f32[b, 8]"),
            Names{"layer_norm"});
  EXPECT_EQ(names(std::string(kLayerNorm) + R"(  %r = rsqrt(%ve) : f32[b, 1]
  %n = mul(%r, %d) : f32[b, 8]
  %g = mul(%n, %w) : f32[b, 8]
  %zero = constant {0.0} : f32[]
  %y = max(%g, %zero) : f32[b, 8]
)",
                  "f32[b, 8]", ", %w: f32[8]"),
            Names{"layer_norm_relu"});
  EXPECT_EQ(names(std::string(kLayerNorm) + R"(  %r = rsqrt(%ve) : f32[b, 1]
  %n = mul(%r, %d) : f32[b, 8]
  %y = mul(%n, %w) : f32[b, 8]
)",
                  "f32[b, 8]", ", %w: f32[b, 1]"),
            Names{"group_norm"});
  EXPECT_EQ(names(R"(
  %q = mul(%x, %x) : f32[b, 8]
  %v = reduce_sum(%q) axes=[1] keepdims=1 : f32[b, 1]
  %c = constant {0.125} : f32[]
  %vm = mul(%v, %c) : f32[b, 1]
  %r = rsqrt(%vm) : f32[b, 1]
  %y = mul(%x, %r) : f32[b, 8]
)",
                  "f32[b, 8]"),
            Names{"rms_norm"});
  EXPECT_EQ(names(R"(
  %q = mul(%x, %x) : f32[b, 8]
  %v = reduce_sum(%q) axes=[1] keepdims=1 : f32[b, 1]
  %r = sqrt(%v) : f32[b, 1]
  %y = div(%x, %r) : f32[b, 8]
)",
                  "f32[b, 8]"),
            Names{"l2_norm"});
}

TEST(Idioms, Activations) {
  EXPECT_EQ(names(R"(
  %c = constant {0.70710678} : f32[]
  %h = constant {0.5} : f32[]
  %one = constant {1.0} : f32[]
  %z = mul(%x, %c) : f32[b, s]
  %e = erf(%z) : f32[b, s]
  %g = add(%e, %one) : f32[b, s]
  %w = mul(%x, %g) : f32[b, s]
  %y = mul(%w, %h) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"gelu"});
  EXPECT_EQ(names(R"(
  %g = sigmoid(%x) : f32[b, s]
  %y = mul(%g, %x) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"silu"});
  EXPECT_EQ(names(R"(
  %t = tanh(%x) : f32[b, s]
  %y = add(%t, %x) : f32[b, s]
)",
                  "f32[b, s]"),
            Names{"tanh_add"});
  EXPECT_EQ(names(R"(
  %p = matmul(%x, %w) : f32[b, 4]
  %zero = constant {0.0} : f32[]
  %y = max(%p, %zero) : f32[b, 4]
)",
                  "f32[b, 4]", ", %w: f32[4, 4]"),
            Names{"matmul_relu"});
}

TEST(Idioms, ProductsAsLoops) {
  EXPECT_EQ(names(R"(
  %c = reshape(%x) shape=[b, 4, 1] : f32[b, 4, 1]
  %p = mul(%c, %w) : f32[b, 4, 4]
  %y = reduce_sum(%p) axes=[1] keepdims=0 : f32[b, 4]
)",
                  "f32[b, 4]", ", %w: f32[4, 4]"),
            Names{"matmul"});
}

// One name for every nest, for profilers.
TEST(Idioms, Titles) {
  const auto titles = [](const std::string& nodes, const std::string& types, const std::string& inputs = "") {
    Graph g = parsed("graph @main(%x: f32[b, s]" + inputs + ") -> (%y: " + types +
                     ") where b in [1, 64], s in [1, 512] {\n" + nodes + "}\n");
    const FusionPlan plan = check_plan(g, {{{"b", 2}, {"s", 5}}});
    Names out;
    for (const Group& group : plan.groups) out.push_back(fusion::title(group.nest));
    return out;
  };
  EXPECT_EQ(titles("  %y = add(%x, %x) : f32[b, s]\n", "f32[b, s]"), Names{"map"});
  EXPECT_EQ(titles("  %y = cast(%x) to=f16 : f16[b, s]\n", "f16[b, s]"), Names{"copy"});
  EXPECT_EQ(titles("  %y = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1]\n", "f32[b, 1]"), Names{"max"});
  EXPECT_EQ(titles("  %y = gather(%x, %i) axis=0 : f32[3, s]\n", "f32[3, s]", ", %i: i64[3]"), Names{"gather"});
}

} // namespace
} // namespace tessera
