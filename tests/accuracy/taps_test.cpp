// Taps hold what kernels compute, and change nothing: plans, kernels and the bits of outputs are those without taps.
#include "base/temporary_folder.h"
#include "measure/accuracy/accuracy.h"
#include "tests/base/seeds.h"
#include "tests/fusion/harness.h"
#include "tests/fusion/random_graph.h"
#include <cmath>

namespace tessera::accuracy {
namespace {

CompileOptions options(const std::string& cache, bool keep = true) {
  CompileOptions o;
  o.threads = 2;
  o.cache_dir = cache;
  o.keep_values = keep;
  o.keep_tiles = true;
  return o;
}

struct Model {
  Compiled compiled;
  Inputs inputs;
  SymValues sizes;
  AccuracyOptions accuracy;
};

Model make(Graph graph, const std::map<std::string, int64_t>& sizes, const CompileOptions& options) {
  Model m;
  m.inputs = inputs_for(graph, sizes, 3);
  auto compiled = compile(std::move(graph), options);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().str());
  if (!compiled.ok()) return m;
  m.compiled = std::move(*compiled);
  auto bound = bind_symbols(*m.compiled.graph, m.inputs);
  EXPECT_TRUE(bound.ok());
  if (bound.ok()) m.sizes = *bound;
  m.accuracy.taps.compile = options;
  static const auto pool = ThreadPool::create(2);
  m.accuracy.taps.executor.pool = pool;
  return m;
}

Result<AccuracyReport> compared(const Model& m) {
  return compare_with_reference(m.compiled, m.inputs, m.sizes, m.accuracy);
}

std::string name_of(const Model& m, ValueId v) { return m.compiled.graph->value(v).name; }

class Taps : public testing::Test {
protected:
  void SetUp() override {
    auto made = TemporaryFolder::create("tessera-taps");
    ASSERT_TRUE(made.ok());
    folder_ = std::make_unique<TemporaryFolder>(std::move(*made));
  }
  [[nodiscard]] const std::string& cache() const { return folder_->path(); }

private:
  std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(Taps, RandomModelsKeepTheirBitsAndEveryTappedValueIsTheReferences) {
  int inner = 0, values = 0;
  for (uint32_t seed = 0; seed < test::seeds(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph graph = RandomGraph(seed).make(6 + static_cast<int>(seed % 25));
    Model m = make(std::move(graph), {{"b", 2}, {"s", 3}}, options(cache()));
    auto report = compared(m);
    ASSERT_TRUE(report.ok()) << report.error().str();
    EXPECT_TRUE(report->reproducible);
    for (const ValueError& v : report->values)
      EXPECT_TRUE(v.error <= 1e-4 || v.max_abs <= 1e-4)
          << name_of(m, v.value) << " " << v.error << ", " << v.max_abs << "\n"
          << print(*m.compiled.graph) << print(*m.compiled.graph, m.compiled.report.plan);
    for (const NotTapped& n : report->not_compared) // nothing is given up for a change that a tap makes
      EXPECT_EQ(n.why.find("with a store more"), std::string::npos) << n.why;
    inner += report->inner;
    values += static_cast<int>(report->values.size());
  }
  EXPECT_GT(inner, static_cast<int>(test::seeds(100)));
  EXPECT_GT(values, inner);
}

TEST_F(Taps, ListingValuesChangesNoPlanAndNoKernel) {
  for (uint32_t seed = 100; seed < 100 + test::seeds(20); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model with = make(RandomGraph(seed).make(20), {{"b", 2}, {"s", 3}}, options(cache()));
    Model without = make(RandomGraph(seed).make(20), {{"b", 2}, {"s", 3}}, options(cache(), false));
    EXPECT_EQ(print(*with.compiled.graph, with.compiled.report.plan),
              print(*without.compiled.graph, without.compiled.report.plan));
    ASSERT_EQ(with.compiled.report.kernels.size(), without.compiled.report.kernels.size());
    for (size_t k = 0; k < with.compiled.report.kernels.size(); ++k)
      EXPECT_EQ(with.compiled.report.kernels[k].tile_text, without.compiled.report.kernels[k].tile_text);
    for (const Group& g : without.compiled.report.plan.groups) EXPECT_TRUE(g.nest.inner.empty());
  }
}

TEST_F(Taps, OneAtATimeAndAllAtOnceHoldTheSame) {
  Model m = make(RandomGraph(7).make(24), {{"b", 2}, {"s", 3}}, options(cache()));
  TapOptions few = m.accuracy.taps;
  few.bytes = 1;
  auto all = run_with_taps(m.compiled, m.inputs, m.sizes, m.accuracy.taps);
  auto one = run_with_taps(m.compiled, m.inputs, m.sizes, few);
  ASSERT_TRUE(all.ok() && one.ok());
  EXPECT_GT(one->runs, all->runs);
  EXPECT_EQ(one->taps, all->taps);
  ASSERT_EQ(all->values.size(), one->values.size());
  for (const auto& [value, tapped] : all->values) {
    const auto& other = one->values.at(value);
    ASSERT_EQ(tapped.size(), other.size());
    for (size_t i = 0; i < tapped.size(); ++i) EXPECT_TRUE(same_bits(tapped[i].tensor, other[i].tensor));
  }
}

// A softmax over rows with a product before it, whose epilogue is generated: every stage lies inside a kernel.
constexpr const char* kChain = R"(
graph @main(%x: f32[n, 16], %w: f32[16, 32], %k: f32[32]) -> (%y: f32[n, 32]) where n in [1, 64] {
  %m = matmul(%x, %w) : f32[n, 32]
  %a = add(%m, %k) : f32[n, 32]
  %t = tanh(%a) : f32[n, 32]
  %e = exp(%t) : f32[n, 32]
  %s = reduce_sum(%e) axes=[1] keepdims=1 : f32[n, 1]
  %y = div(%e, %s) : f32[n, 32]
}
)";

TEST_F(Taps, ProductsEpiloguesAndRowsAreTapped) {
  Model m = make(parsed(kChain), {{"n", 5}}, options(cache()));
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  std::set<std::string> names;
  for (const ValueError& v : report->values) {
    names.insert(name_of(m, v.value));
    EXPECT_LE(v.error, 1e-5) << name_of(m, v.value);
    EXPECT_TRUE(v.own.has_value());
  }
  for (const char* name : {"m", "a", "t", "e", "s", "y"}) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_FALSE(report->first.has_value());
}

// ---- what departs
TEST_F(Taps, AnOverflowIsNamedWhereItHappens) {
  Graph graph = parsed(R"(
graph @main(%x: f16[n, 8]) -> (%y: f16[n, 8]) where n in [1, 64] {
  %k = constant {6} : f16[]
  %u = mul(%x, %k) : f16[n, 8]
  %e = exp(%u) : f16[n, 8]
  %f = add(%e, %k) : f16[n, 8]
  %s = reduce_sum(%f) axes=[1] keepdims=1 : f16[n, 1]
  %y = div(%f, %s) : f16[n, 8]
}
)");
  CompileOptions strict = options(cache());
  strict.strict_rounding = true;
  Model m = make(std::move(graph), {{"n", 4}}, strict);
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  ASSERT_TRUE(report->first.has_value());
  const ValueError& v = report->values[*report->first];
  EXPECT_EQ(name_of(m, v.value), "e");
  EXPECT_TRUE(v.not_finite);
  EXPECT_TRUE(std::isinf(v.seen));
  EXPECT_GT(v.expected, 65504);
  EXPECT_TRUE(v.own && std::isinf(*v.own)); // the operator's own error, not its operands'
}

// The device's value takes the reference's place: what is computed from it is judged again.
TEST_F(Taps, ADifferenceThatCancelsIsNotJudged) {
  Graph graph = parsed(R"(
graph @main(%x: f32[n, 8]) -> (%y: f32[n, 8]) where n in [1, 64] {
  %k = constant {1000} : f32[]
  %u = add(%x, %k) : f32[n, 8]
  %h = cast(%u) to=f16 : f16[n, 8]
  %w = cast(%h) to=f32 : f32[n, 8]
  %d = sub(%w, %k) : f32[n, 8]
  %y = mul(%d, %d) : f32[n, 8]
}
)");
  CompileOptions strict = options(cache());
  strict.strict_rounding = true;
  Model m = make(std::move(graph), {{"n", 4}}, strict);
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  EXPECT_FALSE(report->first.has_value());
  std::map<std::string, const ValueError*> by_name;
  for (const ValueError& v : report->values) by_name.emplace(name_of(m, v.value), &v);
  const ValueError& d = *by_name.at("d");
  EXPECT_GT(d.error, d.tolerance);
  ASSERT_TRUE(d.own.has_value());
  EXPECT_LE(*d.own, 1e-6);
  EXPECT_NE(std::string(d.unjudged).find("cancels"), std::string::npos) << d.unjudged;
  EXPECT_STREQ(by_name.at("y")->unjudged, "");
  EXPECT_LE(by_name.at("y")->error, 1e-6);
}

// 0.1 * 25 is 2.5 in f64, whose nearest even integer is 2, and above it in f32.
TEST_F(Taps, ATieOfRoundingIsNotJudged) {
  Graph graph = parsed(R"(
graph @main(%x: f32[n]) -> (%y: f32[n], %c: i64[n], %g: bool[n]) where n in [1, 64] {
  %k = constant {25} : f32[]
  %h = constant {2.5} : f32[]
  %u = mul(%x, %k) : f32[n]
  %y = round(%u) : f32[n]
  %c = cast(%y) to=i64 : i64[n]
  %g = gt(%u, %h) : bool[n]
}
)");
  Model m = make(std::move(graph), {{"n", 3}}, options(cache()));
  m.inputs["x"] = Tensor::of<float>(DType::F32, {3}, std::vector<float>{0.1F, 0.1F, 0.5F});
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  EXPECT_FALSE(report->first.has_value());
  for (const ValueError& v : report->values) {
    if (v.error == 0) continue;
    if (v.error <= v.tolerance) continue;
    EXPECT_NE(std::string(v.unjudged).find("rounds or compares"), std::string::npos) << name_of(m, v.value);
  }
}

// Every run draws the same numbers, and so does the reference.
TEST_F(Taps, RandomNumbersAreTheSameInAllRuns) {
  Graph graph = parsed(R"(
graph @main(%x: f32[n, 8]) -> (%y: f32[n, 8]) where n in [1, 64] {
  %s = call_seed() : i64[]
  %b = random_bits(%s) shape=[n, 8] : u32[n, 8]
  %r = cast(%b) to=f32 : f32[n, 8]
  %y = add(%x, %r) : f32[n, 8]
}
)");
  Model m = make(std::move(graph), {{"n", 4}}, options(cache()));
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  EXPECT_FALSE(report->first.has_value());
  EXPECT_TRUE(report->reproducible);
  std::set<std::string> names;
  for (const ValueError& v : report->values) names.insert(name_of(m, v.value));
  EXPECT_TRUE(names.contains("y"));
  m.accuracy.taps.bytes = 1; // a run for each value
  auto one = compared(m);
  ASSERT_TRUE(one.ok()) << one.error().str();
  EXPECT_FALSE(one->first.has_value());
  auto run = compare_with_run(m.compiled, {m.compiled, m.sizes, m.accuracy.taps}, m.inputs, m.sizes, m.accuracy);
  ASSERT_TRUE(run.ok()) << run.error().str();
  EXPECT_FALSE(run->first.has_value());
}

// Fewer bytes at a time: more runs, the same values.
TEST_F(Taps, WindowsOfValuesAreComparedAlike) {
  Model m = make(RandomGraph(7).make(24), {{"b", 2}, {"s", 3}}, options(cache()));
  auto all = compared(m);
  m.accuracy.taps.bytes = 1;
  double last = 0;
  size_t taken = 0, all_taps = 0;
  m.accuracy.taps.progress = [&](const TapProgress& now) {
    EXPECT_GE(now.done, taken);
    taken = now.done;
    all_taps = now.all;
    EXPECT_LE(now.done + now.taps, now.all);
  };
  m.accuracy.progress = [&](double share) {
    EXPECT_GE(share, last);
    last = share;
  };
  auto one = compared(m);
  ASSERT_TRUE(all.ok() && one.ok());
  EXPECT_GT(one->runs, all->runs);
  EXPECT_NEAR(last, 1, 1e-9);
  EXPECT_EQ(static_cast<int>(all_taps), one->taps);
  m.accuracy.taps.progress = {};
  ASSERT_EQ(one->values.size(), all->values.size());
  for (size_t i = 0; i < all->values.size(); ++i) {
    EXPECT_EQ(one->values[i].value, all->values[i].value);
    EXPECT_EQ(one->values[i].error, all->values[i].error);
    EXPECT_EQ(one->values[i].own.has_value(), all->values[i].own.has_value());
  }
  last = 0;
  auto run = compare_with_run(m.compiled, {m.compiled, m.sizes, m.accuracy.taps}, m.inputs, m.sizes, m.accuracy);
  ASSERT_TRUE(run.ok()) << run.error().str();
  for (const ValueError& v : run->values) EXPECT_EQ(v.error, 0);
}

// Sizes that the model reads from data, for the reference and for another run.
TEST_F(Taps, SizesThatAreDataAreThoseOfTheRun) {
  Graph graph = parsed(R"(
graph @main(%x: f32[n, 8], %k: i64[1]) -> (%y: f32[r]) where n in [1, 64], r in [0, 64] {
  %f = reshape(%x) shape=[n*8] : f32[n*8]
  %c = read(%k) symbols=["r"] : i64[1]
  %s = slice(%f) starts=[0] steps=[1] sizes=[r] : f32[r]
  %y = exp(%s) : f32[r]
}
)");
  Model m = make(std::move(graph), {{"n", 4}}, options(cache()));
  m.inputs["k"] = Tensor::of<int64_t>(DType::I64, {1}, std::vector<int64_t>{5});
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  EXPECT_FALSE(report->first.has_value());
  auto run = compare_with_run(m.compiled, {m.compiled, m.sizes, m.accuracy.taps}, m.inputs, m.sizes, m.accuracy);
  ASSERT_TRUE(run.ok()) << run.error().str();
}

// A value that is the same for a whole row is computed once for it, and is as many elements.
TEST_F(Taps, AValueThatIsTheSameAlongARowIsTapped) {
  Graph graph = parsed(R"(
graph @main(%x: f32[n, 32], %p: f32[n, 1]) -> (%y: f32[n, 1]) where n in [1, 64] {
  %e = expand(%p) shape=[n, 32] : f32[n, 32]
  %q = exp(%e) : f32[n, 32]
  %m = mul(%x, %q) : f32[n, 32]
  %y = reduce_sum(%m) axes=[1] keepdims=1 : f32[n, 1]
}
)");
  Model m = make(std::move(graph), {{"n", 5}}, options(cache()));
  auto report = compared(m);
  ASSERT_TRUE(report.ok()) << report.error().str();
  EXPECT_FALSE(report->first.has_value());
  const auto tapped = std::find_if(report->values.begin(), report->values.end(),
                                   [&](const ValueError& v) { return name_of(m, v.value) == "q"; });
  ASSERT_NE(tapped, report->values.end());
  EXPECT_EQ(tapped->compared, 5 * 32);
}

TEST_F(Taps, AnotherConstantIsFoundInsideItsKernel) {
  std::string other = kChain;
  other.replace(other.find("tanh(%a)"), 8, "sigmoid(%a)");
  Model m = make(parsed(kChain), {{"n", 5}}, options(cache())), o = make(parsed(other), {{"n", 5}}, options(cache()));
  auto report = compare_with_run(m.compiled, {o.compiled, o.sizes, o.accuracy.taps}, m.inputs, m.sizes, m.accuracy);
  ASSERT_TRUE(report.ok()) << report.error().str();
  ASSERT_TRUE(report->first.has_value());
  EXPECT_EQ(name_of(m, report->values[*report->first].value), "t");
  auto same = compare_with_run(m.compiled, {m.compiled, m.sizes, m.accuracy.taps}, m.inputs, m.sizes, m.accuracy);
  ASSERT_TRUE(same.ok());
  for (const ValueError& v : same->values) EXPECT_EQ(v.error, 0);
}

TEST_F(Taps, TolerancesAreThoseOfTheCoarsestType) {
  Graph graph = parsed(R"(
graph @main(%x: f32[4], %h: f16[4]) -> (%y: f32[4]) {
  %a = add(%x, %x) : f32[4]
  %w = cast(%h) to=f32 : f32[4]
  %y = add(%a, %w) : f32[4]
}
)");
  const auto allowed = tolerances(graph);
  std::map<std::string, double> by_name;
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).results) by_name[graph.value(v).name] = allowed[static_cast<size_t>(v.index)];
  EXPECT_LT(by_name.at("a"), by_name.at("w"));
  EXPECT_EQ(by_name.at("w"), by_name.at("y"));
}

// Roundings of a long chain add up; a short one has the tolerance of its type.
TEST_F(Taps, TolerancesGrowWithTheRootOfTheRoundings) {
  std::string text = "graph @main(%v0: f16[4]) -> (%v200: f16[4]) {\n";
  for (int i = 0; i < 200; ++i)
    text += "  %v" + std::to_string(i + 1) + " = tanh(%v" + std::to_string(i) + ") : f16[4]\n";
  Graph graph = parsed(text + "}\n");
  const auto allowed = tolerances(graph);
  std::map<std::string, double> by_name;
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).results) by_name[graph.value(v).name] = allowed[static_cast<size_t>(v.index)];
  EXPECT_EQ(by_name.at("v1"), by_name.at("v40"));
  EXPECT_NEAR(by_name.at("v200") / by_name.at("v100"), std::sqrt(2), 1e-9);
  EXPECT_LT(by_name.at("v200"), 3 * by_name.at("v1"));
}

} // namespace
} // namespace tessera::accuracy
