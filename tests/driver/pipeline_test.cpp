// The pipeline of a compile: its table, each pass left out, stopping, and that it is what a compile runs.
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "graph/reference/evaluator.h"
#include "harness.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tessera::driver_test {
namespace {

Inputs image(int64_t n) { return {{"x", random(DType::F16, {n, 8, 6, 5}, 3)}}; }

// Work for every pass: a convolution of points and one of uneven pads, products of one operand, attention, an odd
// number of columns, a composite operator, equal nodes, and a value that depends on no input.
Graph work_for_all() {
  Graph g("work");
  auto weight = [&, seed = uint64_t{10}](Dims dims) mutable {
    Tensor t = random(DType::F16, dims, ++seed);
    for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, t.get_f64(i) / 8);
    return g.add_constant(std::move(t), "w" + std::to_string(seed));
  };
  auto apply = [&](std::string_view op, std::vector<ValueId> operands, Attributes attributes = {}) {
    auto v = g.apply(op, std::move(operands), std::move(attributes));
    EXPECT_TRUE(v.ok()) << op << ": " << (v.ok() ? "" : v.error().str());
    return v.ok() ? *v : ValueId{};
  };
  auto window = [](Ints begin, Ints end) {
    return Attributes{{"strides", Ints{1, 1}},
                      {"pads_begin", std::move(begin)},
                      {"pads_end", std::move(end)},
                      {"dilations", Ints{1, 1}},
                      {"groups", int64_t{1}}};
  };
  const SymExpr n = g.env().create_symbol("n", {1, 64});
  const ValueId x = g.add_input("x", {DType::F16, {n, 8, 6, 5}});
  const ValueId points = apply("Gelu", {apply("conv", {x, weight({16, 8, 1, 1})}, window({0, 0}, {0, 0}))});
  const ValueId uneven = apply("conv", {points, weight({8, 16, 3, 3})}, window({1, 0}, {1, 2}));
  const ValueId channels_last = apply("transpose", {uneven}, {{"perm", Ints{0, 2, 3, 1}}});
  const ValueId tokens = apply("reshape", {channels_last}, {{"shape", SymShape{n, 30, 8}}});
  const ValueId q = apply("matmul", {tokens, weight({8, 8})}), k = apply("matmul", {tokens, weight({8, 8})}),
                v = apply("matmul", {tokens, weight({8, 8})});
  const ValueId scores = apply("matmul", {q, apply("transpose", {k}, {{"perm", Ints{0, 2, 1}}})});
  const ValueId wide = apply("cast", {scores}, {{"to", DType::F32}});
  const Attributes rows{{"axes", Ints{2}}, {"keepdims", int64_t{1}}};
  const ValueId e = apply("exp", {apply("sub", {wide, apply("reduce_max", {wide}, rows)})});
  const ValueId shares = apply("cast", {apply("div", {e, apply("reduce_sum", {e}, rows)})}, {{"to", DType::F16}});
  const ValueId attended = apply("matmul", {shares, v});
  const ValueId odd = apply("matmul", {attended, weight({8, 301})});
  const ValueId table = apply("exp", {weight({200, 301})}); // larger than what the pass `fold` computes
  const ValueId row =
      apply("slice", {table}, {{"starts", SymShape{0, 0}}, {"steps", Ints{1, 1}}, {"sizes", SymShape{1, 301}}});
  const ValueId sum = apply("add", {odd, apply("reshape", {row}, {{"shape", SymShape{301}}})});
  g.add_output("y", apply("add", {apply("neg", {sum}), apply("neg", {sum})})); // common
  g.add_output("table", table);
  return g;
}

CompileOptions for_device(const std::string& device, const TemporaryFolder& folder) {
  CompileOptions o = options(folder.path());
  o.device = device;
  if (device == "cuda") o.arch = "sm_90a";
  return o;
}

std::vector<std::string> passes_of(const std::string& device) {
  auto names = compile_pipeline(device);
  EXPECT_TRUE(names.ok());
  std::sort(names->begin(), names->end());
  names->erase(std::unique(names->begin(), names->end()), names->end());
  std::erase(*names, "fuse");
  return *names;
}

// Passes that changed something, of a compile with one left out.
std::set<std::string> changed_by(const Compiled& compiled) {
  std::set<std::string> out;
  for (const auto& p : compiled.report.passes)
    if (p.changed) out.insert(p.name);
  return out;
}

TEST(Pipeline, TheTableHasEveryPassOnceAndEachRunsOnItsDevices) {
  std::set<std::string> names, run;
  for (const CompilePass& pass : compile_passes()) {
    EXPECT_TRUE(names.insert(std::string(pass.name)).second) << pass.name;
    EXPECT_FALSE(pass.summary.empty()) << pass.name;
    EXPECT_EQ(find_compile_pass(pass.name), &pass);
  }
  for (const CompileDevice& device : devices()) {
    const auto pipeline = compile_pipeline(device.name).value();
    run.insert(pipeline.begin(), pipeline.end());
    for (const std::string& name : pipeline) {
      const std::string_view of = find_compile_pass(name)->device;
      EXPECT_TRUE(of.empty() || of == device.name) << name;
    }
  }
  EXPECT_EQ(run, names);
  EXPECT_EQ(compile_pipeline("tpu").error().code, ErrorCode::Usage);
}

TEST(Pipeline, EveryPassHasWork) {
  TemporaryFolder folder;
  std::set<std::string> changed;
  for (const CompileDevice& device : devices())
    changed.merge(changed_by(compile_it(work_for_all(), for_device(std::string(device.name), folder))));
  for (const char* pass :
       {"decompose", "cse", "channels-last", "widen-halves", "points-to-products", "even-pads", "lay-out-weights",
        "join-products", "pad-products", "fuse", "fuse-attention", "fold-constants", "place-attention"})
    EXPECT_TRUE(changed.contains(pass)) << pass;
}

TEST(Pipeline, WithoutAnyOnePassResultsOnTheHostAreRight) {
  TemporaryFolder folder;
  const Graph source = work_for_all();
  for (const std::string& pass : passes_of("cpu")) {
    SCOPED_TRACE("without " + pass);
    CompileOptions o = for_device("cpu", folder);
    o.disabled_passes = {pass};
    const Compiled compiled = compile_it(work_for_all(), o);
    EXPECT_FALSE(changed_by(compiled).contains(pass));
    expect_right(source, compiled, image(2), 2e-2);
  }
}

// And the graph that it is made of computes the same.
TEST(Pipeline, WithoutAnyOnePassCodeForAGpuIsMade) {
  TemporaryFolder folder;
  const Graph source = work_for_all();
  const auto want = evaluate_graph(source, image(2));
  ASSERT_TRUE(want.ok()) << want.error().str();
  for (const std::string& pass : passes_of("cuda")) {
    SCOPED_TRACE("without " + pass);
    CompileOptions o = for_device("cuda", folder);
    o.disabled_passes = {pass};
    const Compiled compiled = compile_it(work_for_all(), o);
    ASSERT_TRUE(compiled.executable);
    EXPECT_EQ(compiled.executable->host_steps, pass == "decompose" ? 1 : 0); // a composite by its reference
    EXPECT_FALSE(changed_by(compiled).contains(pass));
    auto got = evaluate_graph(*compiled.graph, image(2));
    ASSERT_TRUE(got.ok()) << got.error().str();
    for (size_t o = 0; o < want->size(); ++o) {
      const auto same = compare((*got)[o], (*want)[o], 2e-2, 2e-2);
      EXPECT_TRUE(same.same) << "output " << o << ": " << same.message;
    }
  }
}

// A patch has its values in the order of the weight's row, whatever the sides of the kernel.
TEST(Pipeline, PatchesOfFewChannelsBecomeProducts) {
  TemporaryFolder folder;
  for (const Ints& kernel : {Ints{2, 4}, Ints{4, 2}, Ints{3, 3}}) {
    SCOPED_TRACE(std::to_string(kernel[0]) + "x" + std::to_string(kernel[1]));
    Graph g("patches");
    const SymExpr n = g.env().create_symbol("n", {1, 64});
    const ValueId x = g.add_input("x", {DType::F16, {n, 3, 12, 24}});
    const ValueId w = g.add_constant(random(DType::F16, {16, 3, kernel[0], kernel[1]}, 5), "w");
    const Attributes window{{"strides", kernel},
                            {"pads_begin", Ints{0, 0}},
                            {"pads_end", Ints{0, 0}},
                            {"dilations", Ints{1, 1}},
                            {"groups", int64_t{1}}};
    g.add_output("y", g.apply("conv", {x, w}, window).value());
    const Inputs inputs{{"x", random(DType::F16, {2, 3, 12, 24}, 3)}};
    const auto want = evaluate_graph(g, inputs);
    ASSERT_TRUE(want.ok()) << want.error().str();
    const Compiled compiled = compile_it(std::move(g), for_device("cuda", folder));
    const bool fills = 3 * kernel[0] * kernel[1] * 2 % 16 == 0; // rows that the library reads at full width
    bool convolves = false;
    for (NodeId id : compiled.graph->order()) {
      const auto* s = compiled.graph->node(id).op->structured();
      convolves = convolves || (s && s->kind == Structured::Conv);
    }
    EXPECT_EQ(convolves, !fills);
    const auto got = evaluate_graph(*compiled.graph, inputs);
    ASSERT_TRUE(got.ok()) << got.error().str();
    const auto same = compare((*got)[0], (*want)[0], 2e-2, 2e-2);
    EXPECT_TRUE(same.same) << same.message;
  }
}

// Beyond an integer type a float becomes what PyTorch makes of it on the device at hand.
TEST(Pipeline, FloatsBeyondIntegersFollowTheDevice) {
  TemporaryFolder folder;
  for (const bool gpu : {false, true}) {
    Graph g("beyond");
    const ValueId x = g.add_input("x", {DType::F32, {SymExpr(4)}});
    const auto as = [&](DType to) { return g.apply("cast", {x}, {{"to", to}, {"wraps", int64_t{1}}}).value(); };
    g.add_output("narrow", as(DType::I8));
    g.add_output("unsigned", as(DType::U16));
    const Compiled compiled = compile_it(std::move(g), for_device(gpu ? "cuda" : "cpu", folder));
    const std::vector<float> numbers = {-1, 300, 3e9F, std::numeric_limits<float>::quiet_NaN()};
    const Inputs inputs{{"x", Tensor::of<float>(DType::F32, {4}, numbers)}};
    const auto got = evaluate_graph(*compiled.graph, inputs);
    ASSERT_TRUE(got.ok()) << got.error().str();
    std::vector<int64_t> values;
    for (const Tensor& t : *got)
      for (int64_t i = 0; i < 4; ++i) values.push_back(t.get_i64(i));
    EXPECT_EQ(values, gpu ? (std::vector<int64_t>{-1, 44, -1, 0, 0, 300, 24064, 0})
                          : (std::vector<int64_t>{-1, 44, 0, 0, 65535, 300, 0, 0}));
  }
}

// The same of a float that the float8 type without infinities does not hold: its largest number on x86, NaN on a GPU.
TEST(Pipeline, FloatsBeyondFloat8FollowTheDevice) {
  TemporaryFolder folder;
  for (const bool gpu : {false, true})
    for (const int64_t saturate : {0, 1, 2}) {
      SCOPED_TRACE(saturate);
      Graph g("beyond");
      const ValueId x = g.add_input("x", {DType::F32, {SymExpr(2)}});
      const Attributes how{{"to", DType::F8E4M3FN}, {"saturate", saturate}, {"round_mode", std::string("nearest")}};
      const ValueId y = g.apply("cast_special", {x}, how).value();
      g.add_output("y", g.apply("cast", {y}, {{"to", DType::F32}}).value());
      const Compiled compiled = compile_it(std::move(g), for_device(gpu ? "cuda" : "cpu", folder));
      const Inputs inputs{{"x", Tensor::of<float>(DType::F32, {2}, std::vector<float>{1, 1000})}};
      const auto got = evaluate_graph(*compiled.graph, inputs);
      ASSERT_TRUE(got.ok()) << got.error().str();
      EXPECT_EQ((*got)[0].get_f64(0), 1);
      const double beyond = (*got)[0].get_f64(1);
      EXPECT_TRUE(saturate == 1 || (saturate == 2 && !gpu) ? beyond == 448 : std::isnan(beyond)) << beyond;
    }
}

// `tessera opt` prints this plan.
TEST(Pipeline, MakesThePlanOfACompile) {
  TemporaryFolder folder;
  for (const CompileDevice& device : devices()) {
    const CompileOptions o = for_device(std::string(device.name), folder);
    auto backend = make_backend(o);
    ASSERT_TRUE(backend.ok()) << backend.error().str();
    Graph graph = work_for_all();
    Compilation planned(graph, **backend, o);
    PassRunOptions run;
    run.verify = true;
    auto stats = run_passes(planned, compile_pipeline(device.name).value(), run);
    ASSERT_TRUE(stats.ok()) << stats.error().str();
    const Compiled compiled = compile_it(work_for_all(), o);
    EXPECT_EQ(planned.text(), print(*compiled.graph) + "\n" + print(*compiled.graph, compiled.report.plan));
    EXPECT_EQ(stats->size(), compiled.report.passes.size());
    EXPECT_EQ(stats->front().level, "graph");
    EXPECT_EQ(stats->back().level, "plan");
  }
}

TEST(Pipeline, StopsBehindAPass) {
  const auto whole = compile_pipeline("cuda").value();
  auto stopped = [&](const std::string& text) {
    auto names = whole;
    auto status = stop_after(names, text);
    EXPECT_TRUE(status.ok() || status.error().code == ErrorCode::Usage);
    return status.ok() ? static_cast<int>(names.size()) : -1;
  };
  EXPECT_EQ(stopped("simplify-shapes"), 1);
  EXPECT_EQ(stopped("simplify-shapes,2"), static_cast<int>(default_pipeline().size()) - 1);
  EXPECT_EQ(stopped("shorten-lifetimes"), static_cast<int>(whole.size()));
  for (const char* wrong : {"", "widen-halves", "simplify-shapes,9", "simplify-shapes,0", "simplify-shapes,x"})
    EXPECT_EQ(stopped(wrong), -1) << wrong;
}

TEST(Pipeline, RefusesWhatCannotRun) {
  struct Case {
    std::vector<std::string> passes, disabled;
    std::string why;
  };
  const Case cases[] = {
      {{"nothing"}, {}, "there is no pass 'nothing'"},
      {{"cse"}, {"nothing"}, "cannot disable pass 'nothing'"},
      {{"cse"}, {"fuse"}, "cannot disable pass 'fuse': without it there is no plan"},
      {{"join-products"}, {}, "pass 'join-products' is for device cuda, not cpu"},
      {{"fuse-attention"}, {}, "stands behind 'fuse'"},
      {{"fuse", "cse"}, {}, "stands before 'fuse'"},
      {{"fuse", "fuse"}, {}, "stands before 'fuse'"},
  };
  const CompileOptions o;
  auto backend = make_backend(o);
  ASSERT_TRUE(backend.ok());
  for (const Case& c : cases) {
    Graph graph = work_for_all();
    Compilation compilation(graph, **backend, o);
    PassRunOptions run;
    run.disabled = c.disabled;
    auto stats = run_passes(compilation, c.passes, run);
    ASSERT_FALSE(stats.ok()) << c.why;
    EXPECT_EQ(stats.error().code, ErrorCode::Usage);
    EXPECT_NE(stats.error().message.find(c.why), std::string::npos) << stats.error().message;
  }
}

} // namespace
} // namespace tessera::driver_test
