// If, Loop and Scan compiled: bodies are graphs of their own, results are the reference's, and the plan says what runs.
#include "codegen/driver/bodies.h"
#include "harness.h"

namespace tessera::driver_test {
namespace {

struct Case {
  std::string name, text;
  std::vector<Inputs> calls;
};

Tensor flag(bool v) { return Tensor::of<int64_t>(DType::Bool, {}, std::vector<int64_t>{v ? 1 : 0}); }
Tensor count(int64_t v) { return Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{v}); }
Tensor values(std::vector<float> v) { return Tensor::of<float>(DType::F32, {static_cast<int64_t>(v.size())}, v); }

std::vector<Case> cases() {
  return {
      {"branches of one size",
       R"(graph @main(%c: bool[], %x: f32[n], %k: f32[]) -> (%y: f32[n]) where n in [1, ?] {
  %t = exp(%x) : f32[n]
  %r = if(%c, %t, %x, %k) captures=[1, 2] else_branch=graph @e(%a: f32[n]) -> (%b: f32[n]) {
    %b = neg(%a) : f32[n]
  } then_branch=graph @t(%a: f32[n], %k: f32[]) -> (%b: f32[n]) {
    %b = mul(%a, %k) : f32[n]
  } : f32[n]
  %y = add(%r, %x) : f32[n]
}
)",
       {{{"c", flag(true)}, {"x", random(DType::F32, {5}, 1)}, {"k", random(DType::F32, {}, 2)}},
        {{"c", flag(false)}, {"x", random(DType::F32, {3}, 1)}, {"k", random(DType::F32, {}, 2)}}}},
      {"branches of two sizes",
       R"(graph @main(%c: bool[], %x: f32[n]) -> (%y: f32[s]) where n in [1, ?], s in [0, ?] {
  %r = if(%c, %x, %x) captures=[1, 1] else_branch=graph @e(%a: f32[n]) -> (%b: f32[1]) {
    %b = reduce_sum(%a) axes=[0] keepdims=1 : f32[1]
  } then_branch=graph @t(%a: f32[n]) -> (%b: f32[2*n]) {
    %b = concat(%a, %a) axis=0 : f32[2*n]
  } : f32[s]
  %y = exp(%r) : f32[s]
}
)",
       {{{"c", flag(true)}, {"x", random(DType::F32, {5}, 1)}},
        {{"c", flag(false)}, {"x", random(DType::F32, {5}, 1)}}}},
      {"a value that grows",
       R"(graph @main(%m: i64[], %x: f32[n]) -> (%y: f32[s], %z: f32[t]) where n in [0, ?], s in [0, ?], t in [0, ?] {
  %y, %z = loop(%m, _, %x) body=graph @b(%i: i64[], %on: bool[], %v: f32[k]) -> (%on: bool[], %w: f32[k + 1], %s: f32[]) where k in [0, ?] {
    %f = cast(%i) to=f32 : f32[]
    %u = reshape(%f) shape=[1] : f32[1]
    %w = concat(%v, %u) axis=0 : f32[k + 1]
    %s = reduce_sum(%w) axes=[0] keepdims=0 : f32[]
  } captures=[0] : f32[s], f32[t]
}
)",
       {{{"m", count(4)}, {"x", random(DType::F32, {3}, 1)}},
        {{"m", count(0)}, {"x", random(DType::F32, {2}, 1)}},
        {{"m", count(2)}, {"x", random(DType::F32, {0}, 1)}}}},
      {"a condition ends it",
       R"(graph @main(%m: i64[], %x: f32[4], %most: f32[]) -> (%y: f32[4]) {
  %y = loop(%m, _, %x, %most) body=graph @b(%i: i64[], %on: bool[], %v: f32[4], %most: f32[]) -> (%c: bool[], %w: f32[4]) {
    %w = add(%v, %v) : f32[4]
    %s = reduce_max(%w) axes=[0] keepdims=0 : f32[]
    %c = lt(%s, %most) : bool[]
  } captures=[1] : f32[4]
}
)",
       {{{"m", count(50)}, {"x", values({1, 2, 3, 4})}, {"most", values({100}).reshaped({})}},
        {{"m", count(2)}, {"x", values({1, 2, 3, 4})}, {"most", values({100}).reshaped({})}},
        {{"m", count(0)}, {"x", values({1, 2, 3, 4})}, {"most", values({100}).reshaped({})}}}},
      {"a scan from the last slice on",
       R"(graph @main(%h: f32[b], %x: f32[t, b], %w: f32[b]) -> (%y: f32[b], %all: f32[t, b]) where b in [1, ?], t in [0, ?] {
  %y, %all = scan_graph(%h, %x, %w) body=graph @b(%h: f32[b], %x: f32[b], %w: f32[b]) -> (%z: f32[b], "out" = %z: f32[b]) {
    %p = mul(%h, %w) : f32[b]
    %s = add(%p, %x) : f32[b]
    %z = tanh(%s) : f32[b]
  } captures=[1] num_scan_inputs=1 reverse_inputs=[1] reverse_outputs=[0] : f32[b], f32[t, b]
}
)",
       {{{"h", random(DType::F32, {3}, 1)}, {"x", random(DType::F32, {6, 3}, 2)}, {"w", random(DType::F32, {3}, 3)}},
        {{"h", random(DType::F32, {2}, 1)}, {"x", random(DType::F32, {0, 2}, 2)}, {"w", random(DType::F32, {2}, 3)}}}},
      {"a branch in a loop",
       R"(graph @main(%m: i64[], %x: f32[n], %k: f32[]) -> (%y: f32[n]) where n in [1, ?] {
  %y = loop(%m, _, %x, %k) body=graph @b(%i: i64[], %on: bool[], %v: f32[n], %k: f32[]) -> (%on: bool[], %w: f32[n]) {
    %two = constant {2} : i64[]
    %c = lt(%i, %two) : bool[]
    %w = if(%c, %v, %v, %k) captures=[1, 2] else_branch=graph @e(%a: f32[n]) -> (%b: f32[n]) {
      %b = neg(%a) : f32[n]
    } then_branch=graph @t(%a: f32[n], %k: f32[]) -> (%b: f32[n]) {
      %b = mul(%a, %k) : f32[n]
    } : f32[n]
  } captures=[1] : f32[n]
}
)",
       {{{"m", count(5)}, {"x", random(DType::F32, {4}, 1)}, {"k", random(DType::F32, {}, 2)}}}},
      {"two values change places",
       R"(graph @main(%m: i64[], %a: f32[2], %b: f32[2]) -> (%y: f32[2], %z: f32[2]) {
  %y, %z = loop(%m, _, %a, %b) body=graph @b(%i: i64[], %on: bool[], %p: f32[2], %q: f32[2]) -> (%on: bool[], "first" = %q: f32[2], %s: f32[2]) {
    %s = add(%p, %q) : f32[2]
  } captures=[0] : f32[2], f32[2]
}
)",
       {{{"m", count(7)}, {"a", values({0, 1})}, {"b", values({1, 1})}},
        {{"m", count(0)}, {"a", values({0, 1})}, {"b", values({1, 1})}}}},
      {"sizes from around the body",
       R"(graph @main(%m: i64[], %x: f32[n]) -> (%y: f32[], %z: i64[1]) where n in [1, ?] {
  %zero = constant {0} : f32[]
  %y = loop(%m, _, %zero) body=graph @b(%i: i64[], %on: bool[], %v: f32[]) -> (%on: bool[], %w: f32[]) {
    %d = dims_constant() shape=[] values=[n] : i64[]
    %f = cast(%d) to=f32 : f32[]
    %w = add(%v, %f) : f32[]
  } captures=[0] : f32[]
  %z = dims_constant() shape=[1] values=[n] : i64[1]
}
)",
       {{{"m", count(3)}, {"x", random(DType::F32, {4}, 1)}}, {{"m", count(1)}, {"x", random(DType::F32, {9}, 1)}}}},
  };
}

TEST(ControlFlow, ResultsAreThoseOfTheReference) {
  TemporaryFolder cache;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Graph source = parse(c.text);
    const std::string text = print(source);
    EXPECT_EQ(print(parse(text)), text) << "the text comes back";
    Compiled compiled = compile_it(source.clone(), options(cache.path()));
    ASSERT_TRUE(compiled.executable);
    EXPECT_EQ(compiled.executable->host_steps, 0);
    for (const Inputs& inputs : c.calls) expect_right(source, compiled, inputs, 1e-5);
  }
}

TEST(ControlFlow, BodiesArePlannedByTheSamePipeline) {
  TemporaryFolder cache;
  CompileOptions o = options(cache.path());
  o.disabled_passes = {"group-iterations"};
  Compiled compiled = compile_it(parse(cases()[4].text), o);
  ASSERT_EQ(compiled.bodies.size(), 1u);
  const ControlCode& code = *compiled.bodies.begin()->second;
  ASSERT_EQ(code.bodies.size(), 1u);
  const auto& body = code.bodies[0].compiled->report;
  ASSERT_EQ(body.plan.groups.size(), 1u) << "product, sum and tanh are one kernel";
  EXPECT_EQ(body.plan.groups[0].kind, Group::Kind::Kernel);
  bool said = false;
  for (const auto& group : compiled.report.plan.groups) said = said || group.kind == Group::Kind::Control;
  EXPECT_TRUE(said);
  const auto& step = std::get<ControlStep>(compiled.executable->steps[0]);
  EXPECT_EQ(step.reason, "it runs t times");
  EXPECT_FALSE(step.continues);
  EXPECT_TRUE(step.defines.empty()) << "every size is known before the run";
}

// The loop runs in groups of iterations, each of which reads a count of its own.
TEST(ControlFlow, IterationsReadSizes) {
  TemporaryFolder cache;
  const Graph source = parse(R"(graph @main(%x: f32[n, 2], %k: f32[]) -> (%y: f32[n, 2]) where n in [0, ?] {
  %y = scan_graph(%x, %k) body=graph @b(%a: f32[2], %k: f32[]) -> (%o: f32[2]) where count in [0, 1000000] {
    %zero = constant {0.0} : f32[]
    %step = constant {0.5} : f32[]
    %first = slice(%a) sizes=[1] starts=[0] steps=[1] : f32[1]
    %one = reshape(%first) shape=[] : f32[]
    %end = add(%one, %k) : f32[]
    %r = Range@11(%zero, %end, %step) stash_type=1 : f32[count]
    %s = ReduceSum@13(%r) keepdims=0 noop_with_empty_axes=0 : f32[]
    %o = add(%a, %s) : f32[2]
  } captures=[1] num_scan_inputs=1 : f32[n, 2]
}
)");
  Compiled compiled = compile_it(source.clone(), options(cache.path()));
  ASSERT_TRUE(compiled.executable);
  for (const int64_t n : {0, 1, 3, 70})
    for (const float k : {-3.F, 2.2F, 5.F})
      expect_right(
          source, compiled,
          {{"x", random(DType::F32, {n, 2}, 1)}, {"k", Tensor::of<float>(DType::F32, {}, std::vector<float>{k})}},
          1e-5);
}

TEST(ControlFlow, IterationsOfAScanAreGrouped) {
  TemporaryFolder cache;
  const Graph source = parse(cases()[4].text);
  Compiled compiled = compile_it(source.clone(), options(cache.path()));
  ASSERT_EQ(compiled.bodies.size(), 2u) << "of groups, and of the iterations that are left";
  std::vector<size_t> kernels;
  for (const auto& [group, code] : compiled.bodies)
    kernels.push_back(code->bodies[0].compiled->report.plan.groups.size());
  EXPECT_GT(kernels[0], kernels[1]);
  for (int64_t steps : {0, 1, 5, 40, 101})
    expect_right(source, compiled,
                 {{"h", random(DType::F32, {3}, 1)},
                  {"x", random(DType::F32, {steps, 3}, 2)},
                  {"w", random(DType::F32, {3}, 3)}},
                 1e-5);
}

} // namespace
} // namespace tessera::driver_test
