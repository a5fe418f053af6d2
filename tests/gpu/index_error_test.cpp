// Computed indices out of range: on the host and on the emulator, the error names the first operator that has one, the
// value, the position, the range and the table, once, and the next call is right.
#include "codegen/driver/compile.h"
#include "emulated.h"
#include "graph/passes/pass.h"
#include "runtime/executor.h"
#include "tests/fusion/harness.h"

namespace tessera::test {
namespace {

struct Case {
  const char* name;
  const char* graph;             // input i: indices less one
  std::vector<int64_t> good;     // contents of i
  std::map<size_t, int64_t> bad; // elements of i that are bad
  std::string message;
  std::map<std::string, int64_t> sizes = {}; // of symbols
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"Gather",
       R"(
graph @main(%t: f32[11, 4], %i: i64[b, 3]) -> (%y: f32[b, 3, 4]) where b in [1, ?] {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[b, 3]
  %g = gather(%t, %j) axis=0 : f32[b, 3, 4]   // rows
  %y = neg(%g) : f32[b, 3, 4]
})",
       {0, 9, -1, 3, -12, 5},
       {{4, 4710}, {5, -1000}},
       "index 4711 at [1, 1] of 'j' is out of range [-11, 11) of 't' in rows",
       {{"b", 2}}},
      {"GatherBelow",
       R"(
graph @main(%t: f32[v, 4], %i: i32[6]) -> (%y: f32[6, 4]) where v in [1, ?] {
  %one = constant {1} : i32[]
  %j = add(%i, %one) : i32[6]
  %y = gather(%t, %j) axis=0 : f32[6, 4]   // rows
})",
       {0, 1, 2, 3, -6, -5},
       {{3, -7}},
       "index -6 at [3] of 'j' is out of range [-5, 5) of 't' in rows",
       {{"v", 5}}},
      {"GatherTransposed",
       R"(
graph @main(%t: f32[11, 4], %i: i64[5, 3]) -> (%y: f32[4, 3, 5]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[5, 3]
  %g = gather(%t, %j) axis=0 : f32[5, 3, 4]   // rows
  %y = transpose(%g) perm=[2, 1, 0] : f32[4, 3, 5]
})",
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4},
       {{7, 50}, {9, 60}},
       "index 51 at [2, 1] of 'j' is out of range [-11, 11) of 't' in rows"},
      {"GatherElements",
       R"(
graph @main(%t: f32[3, 7], %i: i64[3, 4]) -> (%y: f32[3, 4]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[3, 4]
  %y = gather_elements(%t, %j) axis=1 : f32[3, 4]   // picked
})",
       {0, 1, 2, 3, 4, 5, -8, -2, 0, 0, 0, 0},
       {{6, 6}},
       "index 7 at [1, 2] of 'j' is out of range [-7, 7) of 't' in picked"},
      {"GatherND",
       R"(
graph @main(%t: f32[3, 7], %i: i64[4, 2]) -> (%y: f32[4]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[4, 2]
  %y = gather_nd(%t, %j) batch_dims=0 : f32[4]   // picked
})",
       {0, 1, 1, 5, -4, -8, 0, 0},
       {{5, 7}},
       "index 8 at [2, 1] of 'j' is out of range [-7, 7) of 't' in picked"},
      {"ScatterElements",
       R"(
graph @main(%t: f32[3, 7], %i: i64[3, 2], %u: f32[3, 2]) -> (%y: f32[3, 7]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[3, 2]
  %y = scatter_elements(%t, %j, %u) axis=1 reduction="none" : f32[3, 7]   // written
})",
       {0, 1, -8, 3, 4, 5},
       {{3, -9}, {5, 6}},
       "index -8 at [1, 1] of 'j' is out of range [-7, 7) of 't' in written"},
      {"ScatterND",
       R"(
graph @main(%t: f32[3, 7], %i: i64[2, 2, 2], %u: f32[2, 2]) -> (%y: f32[3, 7]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[2, 2, 2]
  %y = scatter_nd(%t, %j, %u) reduction="none" : f32[3, 7]   // written
})",
       {0, 1, 1, 5, -4, -8, 0, 3},
       {{7, 6}},
       "index 7 at [1, 1, 1] of 'j' is out of range [-7, 7) of 't' in written"},
      {"TheFirstOfTwo",
       R"(
graph @main(%t: f32[11, 4], %u: f32[5, 4], %i: i64[6]) -> (%y: f32[6, 4]) {
  %one = constant {1} : i64[]
  %two = constant {2} : i64[]
  %j = add(%i, %one) : i64[6]
  %k = sub(%two, %i) : i64[6]
  %a = gather(%t, %j) axis=0 : f32[6, 4]   // first
  %b = gather(%u, %k) axis=0 : f32[6, 4]   // second
  %y = sub(%b, %a) : f32[6, 4]
})",
       {0, 1, 2, -1, 0, 1},
       {{1, 70}, {4, 40}},
       "index 71 at [1] of 'j' is out of range [-11, 11) of 't' in first"},
      {"TheFirstOfTwoThatShareACheck",
       R"(
graph @main(%t: f32[11, 4], %u: f32[11, 4], %i: i64[6]) -> (%y: f32[6, 4]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[6]
  %a = gather(%t, %j) axis=0 : f32[6, 4]   // first
  %b = gather(%u, %j) axis=0 : f32[6, 4]   // second
  %y = sub(%b, %a) : f32[6, 4]
})",
       {0, 1, 2, -1, 0, 1},
       {{4, 40}},
       "index 41 at [4] of 'j' is out of range [-11, 11) of 't' in first"},
      {"InAPartOfAConcatenation",
       R"(
graph @main(%x: f32[2, 4], %t: f32[11, 4], %i: i64[3]) -> (%y: f32[5, 4]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[3]
  %g = gather(%t, %j) axis=0 : f32[3, 4]   // rows
  %c = concat(%x, %g) axis=0 : f32[5, 4]
  %y = neg(%c) : f32[5, 4]
})",
       {0, 1, 2},
       {{2, 10}},
       "index 11 at [2] of 'j' is out of range [-11, 11) of 't' in rows"},
      {"InARow",
       R"(
graph @main(%t: f32[11, 64], %i: i64[40]) -> (%y: f32[40, 1]) {
  %one = constant {1} : i64[]
  %j = add(%i, %one) : i64[40]
  %g = gather(%t, %j) axis=0 : f32[40, 64]   // rows
  %y = reduce_sum(%g) axes=[1] keepdims=1 : f32[40, 1]
})",
       std::vector<int64_t>(40, 3),
       {{39, int64_t{-1} << 40}, {38, (int64_t{1} << 62) + 12345}},
       "index 4611686018427400250 at [38] of 'j' is out of range [-11, 11) of 't' in rows"},
  };
  return all;
}

Graph graph_of(const Case& c) { return parsed(c.graph); }
Inputs inputs_of(const Case& c, bool bad) {
  const Graph g = graph_of(c);
  Inputs inputs = inputs_for(g, c.sizes, 1);
  Tensor& i = inputs.at("i");
  for (int64_t k = 0; k < i.count(); ++k) i.set_i64(k, c.good.at(static_cast<size_t>(k)));
  if (bad)
    for (auto [k, v] : c.bad) i.set_i64(static_cast<int64_t>(k), v);
  return inputs;
}
using Run = std::function<Result<std::vector<Tensor>>(const Inputs&)>;
void expect_named(const Case& c, const Run& run) {
  const auto expected = evaluate_graph(graph_of(c), inputs_of(c, false));
  ASSERT_TRUE(expected.ok()) << expected.error().str();
  for (bool bad : {true, false, true, false}) {
    auto r = run(inputs_of(c, bad));
    ASSERT_EQ(r.ok(), !bad) << (r.ok() ? "" : r.error().str());
    if (!bad) {
      auto same = compare((*r)[0], (*expected)[0], 1e-5, 1e-5);
      EXPECT_TRUE(same.same) << same.message;
    } else {
      EXPECT_EQ(r.error().code, ErrorCode::BadInput);
      EXPECT_EQ(r.error().message, c.message);
    }
  }
}

class IndexError : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Computed, IndexError, ::testing::ValuesIn(cases()),
                         [](const auto& c) { return c.param.name; });

TEST_P(IndexError, NamesTheFirstOnTheHost) {
  CompileOptions options;
  options.cache = false;
  auto compiled = compile(graph_of(GetParam()), options);
  ASSERT_TRUE(compiled.ok()) << compiled.error().str();
  ExecutorOptions run;
  run.pool = ThreadPool::create(2);
  auto executor = Executor::create({compiled->executable}, run);
  ASSERT_TRUE(executor.ok()) << executor.error().str();
  expect_named(GetParam(), [&](const Inputs& inputs) { return (*executor)->run(inputs); });
}

TEST_P(IndexError, NamesTheFirstOnTheEmulator) {
  Graph g = graph_of(GetParam());
  auto passed = run_pipeline(g, {});
  ASSERT_TRUE(passed.ok()) << passed.error().str();
  auto plan = plan_fusion(g, generated());
  ASSERT_TRUE(plan.ok()) << plan.error().str();
  const int before = emulated_runs();
  expect_named(GetParam(), [&](const Inputs& inputs) { return run_plan(g, *plan, inputs); });
  EXPECT_GT(emulated_runs(), before);
}

} // namespace
} // namespace tessera::test
