// Several spellings of one computation have plans of one form: the same kernels and calls, over the same loops, of the
// same reads and writes.
#include "graph/passes/pass.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

void write(std::string& out, const Graph& g, const LoopNest& nest) {
  for (const Axis& axis : nest.axes) out += " " + std::to_string(static_cast<int>(axis.role)) + ":" + axis.extent.str();
  std::vector<std::string> loads;
  for (ValueId v : nest.loads) loads.push_back(g.type(v).str());
  std::sort(loads.begin(), loads.end());
  for (const std::string& type : loads) out += " reads " + type;
  for (const Store& s : nest.stores) out += " writes " + g.type(s.value).str() + (s.per_row ? " a row" : "");
}

// Without names and without the arithmetic of elements.
std::string form(const std::string& graph) {
  Graph g = parsed(graph);
  const auto passes = run_pipeline(g, {});
  EXPECT_TRUE(passes.ok()) << passes.error().str();
  const FusionPlan plan = check_plan(g, {{{"b", 2}, {"s", 5}}});
  std::string out;
  for (const Group& group : plan.groups) {
    out += std::to_string(static_cast<int>(group.kind));
    if (group.kind == Group::Kind::Kernel) write(out, g, group.nest);
    if (group.kind == Group::Kind::Library && group.call.epilogue_nest) write(out, g, *group.call.epilogue_nest);
    out += "\n";
  }
  return out;
}

// Spellings of `y` from `x` and further inputs: the operators between.
void expect_same(const std::string& inputs, const std::string& type, const std::vector<std::string>& spellings) {
  std::string first;
  for (const std::string& nodes : spellings) {
    const std::string text =
        "graph @main(" + inputs + ") -> (%y: " + type + ") where b in [1, 64], s in [1, 512] {\n" + nodes + "\n}\n";
    const std::string its = form(text);
    if (first.empty()) first = its;
    EXPECT_EQ(its, first) << nodes;
  }
}

TEST(SamePlan, Softmax) {
  expect_same("%x: f32[b, s]", "f32[b, s]",
              {"%y = Softmax(%x) axis=-1 : f32[b, s]",
               R"(%m = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1]
                  %z = sub(%x, %m) : f32[b, s]
                  %e = exp(%z) : f32[b, s]
                  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]
                  %y = div(%e, %n) : f32[b, s])",
               R"(%m = reduce_max(%x) axes=[1] keepdims=1 : f32[b, 1]
                  %w = expand(%m) shape=[b, s] : f32[b, s]
                  %z = sub(%x, %w) : f32[b, s]
                  %e = exp(%z) : f32[b, s]
                  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[b, 1]
                  %r = reciprocal(%n) : f32[b, 1]
                  %y = mul(%r, %e) : f32[b, s])"});
}

TEST(SamePlan, LayerNorm) {
  const std::string mean = R"(%mean = ReduceMean(%x) axes=[1] keepdims=1 : f32[b, 1]
                              %d = sub(%x, %mean) : f32[b, 8]
                              %eps = constant {1e-05} : f32[]
)";
  expect_same("%x: f32[b, 8]", "f32[b, 8]",
              {mean + R"(%q = mul(%d, %d) : f32[b, 8]
                         %v = ReduceMean(%q) axes=[1] keepdims=1 : f32[b, 1]
                         %ve = add(%v, %eps) : f32[b, 1]
                         %r = sqrt(%ve) : f32[b, 1]
                         %y = div(%d, %r) : f32[b, 8])",
               mean + R"(%two = constant {2.0} : f32[]
                         %q = pow(%d, %two) : f32[b, 8]
                         %v = ReduceMean(%q) axes=[1] keepdims=1 : f32[b, 1]
                         %ve = add(%eps, %v) : f32[b, 1]
                         %s = sqrt(%ve) : f32[b, 1]
                         %r = reciprocal(%s) : f32[b, 1]
                         %y = mul(%d, %r) : f32[b, 8])",
               R"(%eight = constant {8.0} : f32[]
                  %t = reduce_sum(%x) axes=[1] keepdims=1 : f32[b, 1]
                  %mean = div(%t, %eight) : f32[b, 1]
                  %d = sub(%x, %mean) : f32[b, 8]
                  %eps = constant {1e-05} : f32[]
                  %v = ReduceSumSquare(%d) axes=[1] keepdims=1 : f32[b, 1]
                  %vm = div(%v, %eight) : f32[b, 1]
                  %ve = add(%vm, %eps) : f32[b, 1]
                  %r = sqrt(%ve) : f32[b, 1]
                  %y = div(%d, %r) : f32[b, 8])"});
}

TEST(SamePlan, Activations) {
  expect_same("%x: f32[b, s]", "f32[b, s]",
              {"%y = Gelu(%x) : f32[b, s]", R"(%c = constant {1.4142135} : f32[]
                  %one = constant {1.0} : f32[]
                  %half = constant {0.5} : f32[]
                  %z = div(%x, %c) : f32[b, s]
                  %e = erf(%z) : f32[b, s]
                  %g = add(%e, %one) : f32[b, s]
                  %w = mul(%x, %g) : f32[b, s]
                  %y = mul(%w, %half) : f32[b, s])",
               R"(%g = sigmoid(%x) : f32[b, s]
                  %y = mul(%g, %x) : f32[b, s])"});
}

TEST(SamePlan, Linear) {
  const std::string w = "%w = constant {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 8.0, 7.0, 6.0} : f32[4, 3]\n",
                    c = "%c = constant {0.5, 1.5, 2.5} : f32[3]\n%zero = constant {0.0} : f32[]\n";
  expect_same("%x: f32[b, 4]", "f32[b, 3]",
              {w + c + R"(%p = Gemm(%x, %w, %c) : f32[b, 3]
                          %y = Relu(%p) : f32[b, 3])",
               w + c + R"(%p = matmul(%x, %w) : f32[b, 3]
                          %q = add(%c, %p) : f32[b, 3]
                          %y = max(%q, %zero) : f32[b, 3])",
               w + c + R"(%v = transpose(%w) perm=[1, 0] : f32[3, 4]
                          %p = Gemm(%x, %v) transB=1 : f32[b, 3]
                          %q = add(%p, %c) : f32[b, 3]
                          %y = Relu(%q) : f32[b, 3])"});
}

TEST(SamePlan, Views) {
  expect_same("%x: f32[b, s, 4]", "f32[b, s, 4]",
              {"%y = exp(%x) : f32[b, s, 4]", R"(%t = Transpose(%x) perm=[1, 0, 2] : f32[s, b, 4]
                  %e = exp(%t) : f32[s, b, 4]
                  %y = transpose(%e) perm=[1, 0, 2] : f32[b, s, 4])",
               R"(%t = reshape(%x) shape=[b * s, 4] : f32[b*s, 4]
                  %e = exp(%t) : f32[b*s, 4]
                  %y = reshape(%e) shape=[b, s, 4] : f32[b, s, 4])",
               R"(%t = Unsqueeze(%x) axes=[1] : f32[b, 1, s, 4]
                  %e = exp(%t) : f32[b, 1, s, 4]
                  %i = Identity(%e) : f32[b, 1, s, 4]
                  %y = Squeeze(%i) axes=[1] : f32[b, s, 4])"});
}

} // namespace
} // namespace tessera
