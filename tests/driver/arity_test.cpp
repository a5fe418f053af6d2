// Operators of many operands, and graphs of many nodes: work and memory grow with the size, not with its square. Counts
// of what is made are exact; the processor's times are compared with each other only, generously: other programs' share of
// the processor is no part of them.
#include "harness.h"
#include "tests/base/share.h"
#include <ctime>

namespace tessera::driver_test {
namespace {

using onnx_test::Maker;

Graph apply_many(std::string_view op, std::vector<ValueId> operands, Graph g, Attributes attributes = {}) {
  const OpDef* def = OpTable::get().find(op);
  auto node = g.add_node(*def, std::move(operands), std::move(attributes), {}, {"y"}, 13);
  EXPECT_TRUE(node.ok()) << (node.ok() ? "" : node.error().str());
  if (node.ok()) g.add_output("y", g.node(*node).results[0]);
  return g;
}

// Seconds of the processor that this process has taken, on all of its threads.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// n operands of 1 to 5 elements (Concat), or of 3 (the others): graph inputs, constants, or parts of one value.
enum class From : uint8_t { Inputs, Constants, Parts, OneValue };
Graph many(std::string_view op, int64_t n, From from) {
  Graph g("main");
  const bool concat = op == "Concat";
  auto size = [&](int64_t i) { return concat ? 1 + i % 5 : 3; };
  std::vector<ValueId> operands;
  if (from == From::Parts || from == From::OneValue) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; ++i) total += size(i);
    ValueId x = g.add_input("x", {DType::F32, {from == From::Parts ? SymExpr(total) : SymExpr(3)}});
    ValueId r = g.apply("exp", {x}).value();
    for (int64_t i = 0, at = 0; i < n; at += size(i++))
      operands.push_back(from == From::OneValue ? r
                                                : g.apply("slice", {r},
                                                          {{"starts", SymShape{total - at - size(i)}}, // back to front
                                                           {"steps", Ints{1}},
                                                           {"sizes", SymShape{size(i)}}})
                                                      .value());
  }
  for (int64_t i = 0; i < n && from == From::Inputs; ++i)
    operands.push_back(g.add_input("x" + std::to_string(i), {DType::F32, {SymExpr(size(i))}}));
  for (int64_t i = 0; i < n && from == From::Constants; ++i)
    operands.push_back(g.add_constant(random(DType::F32, {size(i)}, static_cast<uint64_t>(i + 1))));
  Attributes attributes;
  if (concat) attributes.set("axis", int64_t{0});
  return apply_many(op, std::move(operands), std::move(g), std::move(attributes));
}

Inputs inputs_of(const Graph& g) {
  Inputs out;
  uint64_t seed = 1;
  for (ValueId v : g.inputs()) {
    Dims dims;
    for (const SymExpr& e : g.type(v).shape) dims.push_back(e.const_value());
    out.emplace(g.value(v).name, random(g.type(v).dtype, dims, seed++));
  }
  return out;
}

struct Case {
  const char* op;
  From from;
};
class ManyOperands : public testing::TestWithParam<Case> {};

TEST_P(ManyOperands, AreRight) {
  TemporaryFolder folder;
  for (int64_t n : {1, 15, 16, 17, 18, 33, 300}) {
    SCOPED_TRACE(n);
    const Graph source = many(GetParam().op, n, GetParam().from);
    auto c = compile_it(source.clone(), options(folder.path()));
    ASSERT_TRUE(c.executable);
    expect_right(source, c, inputs_of(source), 1e-5);
  }
}

class TimeOfManyOperands : public ManyOperands {};

TEST_P(TimeOfManyOperands, IsInProportion) {
  TemporaryFolder folder;
  auto seconds = [&](int64_t n) {
    CompileOptions o = options(folder.path());
    o.cache = false;
    double least = 1e9;
    for (int i = 0; i < (n < 2000 ? 2 : 1); ++i) {
      const double begin = processor_seconds();
      auto c = compile_it(many(GetParam().op, n, GetParam().from), o);
      least = std::min(least, processor_seconds() - begin);
      EXPECT_TRUE(c.executable != nullptr);
      EXPECT_LE(c.executable ? c.executable->objects.size() : 0, 100u) << "kernels that differ in numbers share code";
    }
    return least;
  };
  const double small = seconds(1000), large = seconds(4000);
  EXPECT_LT(large, std::max(8 * small, 0.5))
      << "4 times as many took " << small << " and " << large << " s of the processor";
}

std::string called(const testing::TestParamInfo<Case>& info) {
  const char* from[] = {"Inputs", "Constants", "Parts", "OneValue"};
  return std::string(info.param.op) + from[static_cast<int>(info.param.from)];
}
const std::vector<Case> kCases = {{"Concat", From::Inputs},   {"Concat", From::Constants}, {"Concat", From::Parts},
                                  {"Concat", From::OneValue}, {"Sum", From::Inputs},       {"Sum", From::Constants},
                                  {"Sum", From::Parts},       {"Max", From::Inputs},       {"Min", From::Parts},
                                  {"Mean", From::Inputs}};
// One of the operators that combine their operands stands for the others.
std::vector<Case> timed_cases() {
  std::vector<Case> cases = kCases;
  test::Share share;
  std::erase_if(cases, [&](const Case& c) {
    return !share.takes(
        {std::to_string(static_cast<int>(c.from)), c.op == std::string("Concat") ? "joined" : "combined"});
  });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, ManyOperands, testing::ValuesIn(kCases), called);
INSTANTIATE_TEST_SUITE_P(All, TimeOfManyOperands, testing::ValuesIn(timed_cases()), called);

TEST(ManyResults, SplitSharesOneKernel) {
  TemporaryFolder folder;
  Graph g("main");
  constexpr int kParts = 2000;
  ValueId x = g.add_input("x", {DType::F32, {SymExpr(3 * kParts)}});
  std::vector<std::string> names;
  for (int i = 0; i < kParts; ++i) names.push_back("y" + std::to_string(i));
  auto node = g.add_node(*OpTable::get().find("Split"), {x}, {{"axis", int64_t{0}}}, {}, names, 13);
  ASSERT_TRUE(node.ok()) << node.error().str();
  for (int i = 0; i < kParts; ++i)
    g.add_output(names[static_cast<size_t>(i)], g.node(*node).results[static_cast<size_t>(i)]);
  const Graph source = g.clone();
  auto c = compile_it(std::move(g), options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_LE(c.executable->objects.size(), 3u);
  expect_right(source, c, inputs_of(source), 0);
}

// Deep and wide graphs: nothing recurses as deep as the graph, nothing looks at all readers for each of them.
TEST(ManyNodes, OneValueReadByAllAndAChainOfAll) {
  TemporaryFolder folder;
  auto seconds = [&](int n) {
    const double begin = processor_seconds();
    Graph g("main");
    ValueId x = g.add_input("x", {DType::F32, {SymExpr(4)}});
    ValueId shared = g.apply("exp", {x}).value(), chain = shared;
    for (int i = 0; i < n; ++i) {
      ValueId c = g.add_constant(random(DType::F32, {4}, static_cast<uint64_t>(i + 1)));
      ValueId y = g.apply("add", {shared, c}).value();
      chain = g.apply("max", {chain, y}).value();
      if (i % 4 == 0) g.add_output("y" + std::to_string(i), y);
    }
    g.add_output("chain", chain);
    CompileOptions o = options(folder.path());
    o.cache = false;
    const Graph source = g.clone();
    auto c = compile_it(std::move(g), o);
    const double took = processor_seconds() - begin;
    if (n < 2000) expect_right(source, c, {{"x", random(DType::F32, {4})}}, 1e-5);
    return took;
  };
  const double small = seconds(1500), large = seconds(6000);
  EXPECT_LT(large, std::max(8 * small, 0.5))
      << "4 times as many took " << small << " and " << large << " s of the processor";
}

} // namespace
} // namespace tessera::driver_test
