// Golden tests of passes, tests/graph/passes/*.txt: a line "// passes: cse,dce", a graph, a line "// expect:", the
// graph that the passes make of it. TESSERA_BLESS=1 rewrites what is expected. Besides, for each: what the printer
// writes is read back to the same text; running the passes again on their result changes nothing where the header says
// "idempotent"; and both graphs compute the same for random inputs.
#include "graph/ops/samples.h"
#include "graph/passes/pass.h"
#include "graph/reference/evaluator.h"
#include "tests/graph/helpers.h"
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

struct Golden {
  std::vector<std::string> passes;
  std::map<std::string, std::string> options;
  std::string header, input, expected;
};

std::vector<std::string> words(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string w; in >> w;) out.push_back(w);
  return out;
}

Golden read(const std::string& path) {
  Golden g;
  std::ifstream in(path);
  enum { Header, Input, Expected } part = Header;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("// expect:", 0) == 0)
      part = Expected;
    else if (part == Header && line.rfind("//", 0) == 0) {
      g.header += line + "\n";
      if (line.rfind("// passes:", 0) == 0) g.passes = words(line.substr(10));
      if (line.rfind("// option:", 0) == 0) {
        std::vector<std::string> w = words(line.substr(10));
        EXPECT_EQ(w.size(), 2u) << line;
        g.options[w[0]] = w[1];
      }
    } else {
      if (part == Header) part = Input;
      (part == Input ? g.input : g.expected) += line + "\n";
    }
  }
  return g;
}

std::vector<std::string> golden_files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TESSERA_TEST_DIR) + "/passes"))
    if (entry.path().extension() == ".txt") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

// Inputs of sizes within what the environment says; none when a guard does not hold for them.
std::optional<std::map<std::string, Tensor>> random_inputs(const Graph& graph, int64_t size) {
  SymValues sizes;
  for (const SymExpr& s : graph.env().symbols()) {
    SymRange r = graph.env().range(s);
    int64_t d = graph.env().divisor(s), v = std::clamp(size++, r.lo, r.hi);
    if (!graph.env().substitutions().contains(s.symbol_id())) sizes[s.symbol_id()] = (v + d - 1) / d * d;
  }
  for (const auto& [id, e] : graph.env().substitutions())
    if (auto v = e.eval(sizes); v.ok()) sizes[id] = *v;
  for (const Guard& guard : graph.env().guards())
    if (auto holds = guard.condition.eval(sizes); !holds.ok() || *holds == 0) return std::nullopt;
  std::map<std::string, Tensor> out;
  uint64_t seed = 1;
  for (ValueId id : graph.inputs()) {
    Dims dims;
    for (const SymExpr& e : graph.type(id).shape) dims.push_back(e.eval(sizes).value());
    out[graph.value(id).name] = ops::random(graph.type(id).dtype, dims, seed++);
  }
  return out;
}

bool has_all_data(const Graph& graph) {
  for (NodeId id : graph.order())
    if (const Tensor* t = graph.node(id).attributes.get<Tensor>("value"); t && !has_data(*t)) return false;
  return true;
}

class PassGolden : public testing::TestWithParam<std::string> {};

TEST_P(PassGolden, Matches) {
  const std::string path = std::string(TESSERA_TEST_DIR) + "/passes/" + GetParam() + ".txt";
  const Golden golden = read(path);
  ASSERT_FALSE(golden.input.empty());
  auto input = parse_graph(golden.input, path);
  ASSERT_TRUE(input.ok()) << input.error().str();
  ASSERT_TRUE(verify(*input).ok()) << verify(*input).error().str();
  Graph graph = input->clone();
  PipelineOptions options;
  options.passes = golden.passes;
  options.run.verify = true;
  options.options.values = golden.options;
  auto stats = run_pipeline(graph, options);
  ASSERT_TRUE(stats.ok()) << stats.error().str();
  const std::string text = print(graph);
  if (std::getenv("TESSERA_BLESS"))
    std::ofstream(path) << golden.header << golden.input << "// expect:\n" << text;
  else
    EXPECT_EQ(text, golden.expected);

  auto again = parse_graph(text, path);
  ASSERT_TRUE(again.ok()) << again.error().str() << text;
  EXPECT_EQ(print(*again), text);

  if (golden.header.find("idempotent") != std::string::npos) {
    auto second = run_pipeline(graph, options);
    ASSERT_TRUE(second.ok()) << second.error().str();
    EXPECT_EQ(print(graph), text);
  }

  if (!has_all_data(*input)) return;
  int compared = 0;
  for (int64_t size : {3, 7}) {
    auto inputs = random_inputs(graph, size);
    if (!inputs) continue;
    auto before = evaluate_graph(*input, *inputs), after = evaluate_graph(graph, *inputs);
    ASSERT_TRUE(before.ok()) << before.error().str();
    ASSERT_TRUE(after.ok()) << after.error().str();
    ASSERT_EQ(before->size(), after->size());
    for (size_t i = 0; i < before->size(); ++i) {
      Comparison c = compare((*after)[i], (*before)[i], 1e-5, 1e-6);
      EXPECT_TRUE(c.same) << graph.outputs()[i].name << ": " << c.message;
    }
    ++compared;
  }
  EXPECT_GT(compared, 0) << "no sizes satisfy the guards of this test";
}

INSTANTIATE_TEST_SUITE_P(All, PassGolden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param; });

constexpr const char* kSmall = R"(graph @main(%x: f32[n]) -> (%y: f32[n]) where n in [1, ?] {
  %a = neg(%x) : f32[n]
  %b = neg(%a) : f32[n]
  %y = exp(%b) : f32[n]   // Exp_7
}
)";

TEST(PassRunner, ReportsWhatItDid) {
  Graph g = parsed(kSmall);
  PipelineOptions options;
  options.passes = {"cse", "simplify", "dce"};
  auto stats = run_pipeline(g, options);
  ASSERT_TRUE(stats.ok()) << stats.error().str();
  ASSERT_EQ(stats->size(), 3u);
  EXPECT_FALSE((*stats)[0].changed);
  EXPECT_TRUE((*stats)[1].changed);
  EXPECT_EQ((*stats)[2].nodes_after, 1);
  EXPECT_EQ((*stats)[2].name, "dce");
}

TEST(PassRunner, DisablesAndRefuses) {
  Graph g = parsed(kSmall);
  PipelineOptions options;
  options.passes = {"simplify", "dce"};
  options.run.disabled = {"simplify"};
  auto stats = run_pipeline(g, options);
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->size(), 1u);
  EXPECT_EQ(g.order().size(), 3u);
  setenv("TESSERA_DISABLE_PASSES", "dce,simplify", 1);
  stats = run_pipeline(g, options);
  unsetenv("TESSERA_DISABLE_PASSES");
  ASSERT_TRUE(stats.ok());
  EXPECT_TRUE(stats->empty());
  options.run.disabled = {"nothing"};
  EXPECT_EQ(run_pipeline(g, options).error().code, ErrorCode::Usage);
  options.run.disabled.clear();
  options.passes = {"optimise"};
  EXPECT_EQ(run_pipeline(g, options).error().code, ErrorCode::Usage);
  options.passes = {"fold"};
  options.options.values["fold.limit"] = "much";
  auto bad = run_pipeline(g, options);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message.rfind("failed in pass fold: ", 0), 0u) << bad.error().message;
}

// In a process of its own: the variable is read once.
TEST(PassRunnerDeathTest, PassesSayWhetherTheyChangedSomething) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  setenv("TESSERA_CHECKS", "abort,passes", 1);
  const auto lie = [] {
    Graph g = parsed(kSmall);
    GraphSubject subject(g);
    const PassStep step{.name = "lie", .run = [&]() -> Result<bool> {
                          TESSERA_TRY(run_pipeline(g, {.passes = {"simplify", "dce"}}));
                          return false;
                        }};
    (void)run_steps(subject, std::span(&step, 1), {});
  };
  EXPECT_DEATH(lie(), "pass lie changed the graph and said that it did not");
}

TEST(PassRunner, TheTableAndThePipelineAgree) {
  std::vector<std::string> names;
  for (const PassDef& pass : graph_passes()) {
    EXPECT_EQ(find_graph_pass(pass.name), &pass);
    EXPECT_FALSE(pass.summary.empty());
    names.emplace_back(pass.name);
    EXPECT_NE(std::find(default_pipeline().begin(), default_pipeline().end(), pass.name), default_pipeline().end())
        << pass.name;
  }
  for (const std::string& name : default_pipeline())
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  EXPECT_EQ(find_graph_pass("nothing"), nullptr);
}

// A number that passes change, in place of a graph.
struct Number final : PassSubject {
  int value = 0;
  [[nodiscard]] std::string_view level() const override { return value < 10 ? "small" : "large"; }
  [[nodiscard]] std::string name() const override { return "n"; }
  [[nodiscard]] std::string text() const override { return std::to_string(value); }
  [[nodiscard]] Status verify() const override {
    return value <= 20 ? Status() : Diagnostic(ErrorCode::Internal, "above 20");
  }
  [[nodiscard]] int size() const override { return value; }
};

TEST(PassRunner, TransformsAnything) {
  Number n;
  auto add = [&](int amount, int least) {
    return [&n, amount, least]() -> Result<bool> {
      const bool adds = n.value < least;
      n.value += adds ? amount : 0;
      return adds;
    };
  };
  const PassStep steps[] = {{"five", add(5, 100), -1}, {"one", add(1, 3), -1}, {"again", add(2, 14), 0}};
  auto stats = run_steps(n, steps, {});
  ASSERT_TRUE(stats.ok()) << stats.error().str();
  EXPECT_EQ(n.value, 19) << "5 and 2, again from five 5 and 2, and again 5";
  std::string names;
  for (const PassStats& s : *stats) names += s.name + (s.changed ? "+ " : "- ");
  EXPECT_EQ(names, "five+ one- again+ five+ one- again+ five+ one- again- ");
  EXPECT_EQ(stats->front().level, "small");
  EXPECT_EQ(stats->back().level, "large");
  EXPECT_EQ(stats->back().nodes_after, n.value);
}

TEST(PassRunner, VerifiesWhatChanged) {
  Number n;
  n.value = 18;
  auto one = [&]() -> Result<bool> {
    ++n.value;
    return true;
  };
  PassRunOptions options;
  options.verify = true;
  const PassStep steps[] = {{"a", one, -1}, {"b", one, -1}, {"c", one, -1}, {"d", one, -1}};
  auto stats = run_steps(n, steps, options);
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().message, "failed in pass c: above 20");
  options.disabled = {"a", "d"};
  n.value = 18;
  EXPECT_TRUE(run_steps(n, steps, options).ok());
  EXPECT_EQ(n.value, 20);
}

// Ten thousand nodes in a row: neither deep recursion nor time that grows with the square.
TEST(PassRunner, LongChains) {
  Graph g;
  SymExpr n = g.env().create_symbol("n", {1, kSymMax});
  ValueId v = g.add_input("x", {DType::F32, {n}});
  for (int i = 0; i < 20000; ++i) v = must(g, i % 2 ? "neg" : "exp", {v});
  g.add_output("y", v);
  auto stats = run_pipeline(g, {});
  ASSERT_TRUE(stats.ok()) << stats.error().str();
  EXPECT_EQ(g.order().size(), 20000u);
}

// Views and pointwise operators in turn: each operator moves past all views before it, and the pass ends. Views that
// compose leave one; the graph stays within a multiple of its size where they do not.
TEST(PassRunner, OperatorsMovePastChainsOfViews) {
  struct View {
    std::string op;
    Attributes attributes;
  };
  const View turned{"transpose", {{"perm", Ints{0, 2, 1}}}}, flat{"reshape", {{"shape", SymShape{3, 6}}}},
      turned_flat{"transpose", {{"perm", Ints{1, 0}}}}, back{"reshape", {{"shape", SymShape{2, 3, 3}}}};
  const std::vector<View> chains[] = {{turned}, {flat, back}, {flat, turned_flat, back}};
  for (const auto& views : chains)
    for (const int count : {1, 2, 63, 64, 65, 500}) {
      SCOPED_TRACE(std::to_string(views.size()) + " views in turn, " + std::to_string(count));
      Graph g;
      ValueId v = must(g, "exp", {g.add_input("x", {DType::F32, {2, 3, 3}})});
      for (int i = 0; i < count; ++i) {
        const View& view = views[static_cast<size_t>(i) % views.size()];
        v = must(g, "tanh", {must(g, view.op, {v}, view.attributes)});
      }
      g.add_output("y", v);
      const int before = g.node_count();
      const Graph source = g.clone();
      PipelineOptions options;
      options.passes = {"sink-views"};
      auto stats = run_pipeline(g, options);
      ASSERT_TRUE(stats.ok()) << stats.error().str();
      EXPECT_LE(g.node_count(), 10 * before);
      options.passes = {"dce"};
      ASSERT_TRUE(run_pipeline(g, options).ok());
      int left = 0;
      for (NodeId id : g.order()) left += g.node(id).op->indexing() ? 1 : 0;
      EXPECT_LE(left, views.size() < 3 ? 1 : count);
      if (count > 100) continue;
      const Tensor x = ops::random(DType::F32, {2, 3, 3}, 1);
      auto want = evaluate_graph(source, {{"x", x}}), have = evaluate_graph(g, {{"x", x}});
      ASSERT_TRUE(want.ok() && have.ok());
      for (int64_t i = 0; i < (*want)[0].count(); ++i) EXPECT_EQ((*want)[0].get_f64(i), (*have)[0].get_f64(i));
    }
}

} // namespace
} // namespace tessera
