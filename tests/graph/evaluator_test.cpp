#include "graph/reference/evaluator.h"
#include "graph/reference/meaning.h"
#include "tests/graph/helpers.h"

namespace tessera {
namespace {

std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.count(); ++i) out.push_back(t.get_f64(i));
  return out;
}

TEST(Evaluator, RunsAGraphWithSymbolsBoundFromItsInputs) {
  Graph g = parsed(R"(graph @main(%x: f32[b, s]) -> (%y: f32[b, 2*s], %n: i64[1]) where b in [1, ?], s in [1, 8] {
  %e = neg(%x) : f32[b, s]
  %y = concat(%x, %e) axis=1 : f32[b, 2*s]
  %n = dims_constant() shape=[1] values=[b*s] : i64[1]
})");
  auto out = evaluate_graph(g, {{"x", floats({1, 3}, {1, 2, 3})}});
  ASSERT_TRUE(out.ok()) << out.error().str();
  EXPECT_EQ(values((*out)[0]), (std::vector<double>{1, 2, 3, -1, -2, -3}));
  EXPECT_EQ((*out)[1].get_i64(0), 3);
}

TEST(Evaluator, CompositesRunThroughTheirDecomposition) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {g.env().create_symbol("n")}});
  ValueId y = must(g, "Clip", {x, g.add_constant(floats({}, {-1})), g.add_constant(floats({}, {2}))}, {}, 13);
  g.add_output("y", y);
  auto out = evaluate_graph(g, {{"x", floats({4}, {-5, 0, 1, 7})}});
  ASSERT_TRUE(out.ok()) << out.error().str();
  EXPECT_EQ(values((*out)[0]), (std::vector<double>{-1, 0, 1, 2}));
  // The record's own reference apart: the decomposition alone gives the same.
  OpDef bare = *OpTable::get().find("Clip");
  bare.reference = nullptr;
  Node n = *g.producer(y);
  n.op = &bare;
  auto direct = evaluate_node(g, n, {floats({4}, {-5, 0, 1, 7}), floats({}, {-1}), floats({}, {2})}, {});
  ASSERT_TRUE(direct.ok()) << direct.error().str();
  EXPECT_EQ(values((*direct)[0]), (std::vector<double>{-1, 0, 1, 2}));
}

struct Refusal {
  const char* inputs; // of the graph
  std::vector<Dims> dims;
  ErrorCode code;
  const char* message;
};

TEST(BindSymbols, RefusesWhatContradicts) {
  const Refusal cases[] = {
      {"%x: f32[n, 4]", {{3, 5}}, ErrorCode::BadInput, "dimension 1 of input 'x' must be 4, not 5"},
      {"%x: f32[n], %y: f32[n]",
       {{3}, {4}},
       ErrorCode::BadInput,
       "dimension 0 of input 'y' is 4, but n is 3 elsewhere"},
      {"%x: f32[n], %y: f32[2*n + 1]",
       {{3}, {8}},
       ErrorCode::BadInput,
       "dimension 0 of input 'y' must be 7 (2*n + 1), not 8"},
      {"%x: f32[2*n]", {{3}}, ErrorCode::BadInput, "which cannot be 2*n"},
      {"%x: f32[n]", {{99}}, ErrorCode::BadInput, "dimension 0 of input 'x' (n) is 99, which is not in [1, 64]"},
      {"%x: f32[m]", {{6}}, ErrorCode::BadInput, "which is not a multiple of 4"},
      {"%x: f32[n]", {{1, 1}}, ErrorCode::BadInput, "must have rank 1 (f32[n]), not 2"},
      {"%x: i64[n]", {{1}}, ErrorCode::BadInput, "input 'x' must be i64, not f32"},
      {"%x: f32[n], %z: f32[n]", {{1}}, ErrorCode::MissingInput, "input 'z' (f32[n]) was not given"},
      {"%x: f32[floordiv(n, 2)]", {{3}}, ErrorCode::BadInput, "is not determined by the inputs"},
  };
  for (const Refusal& c : cases) {
    Graph g = parsed("graph @g(" + std::string(c.inputs) + ") -> () where n in [1, 64], m in [0, ?] div 4 {}");
    std::map<std::string, Tensor> inputs;
    const char* names[] = {"x", "y"};
    for (size_t i = 0; i < c.dims.size(); ++i)
      inputs.emplace(names[i], Tensor::create(DType::F32, c.dims[i], true).value());
    auto bound = bind_symbols(g, inputs);
    ASSERT_FALSE(bound.ok()) << c.inputs;
    EXPECT_EQ(bound.error().code, c.code) << bound.error().str();
    EXPECT_NE(bound.error().message.find(c.message), std::string::npos) << bound.error().str();
  }
}

TEST(BindSymbols, SolvesExpressionsAndBindsWhatWasReplaced) {
  Graph g =
      parsed("graph @g(%x: f32[2*n + 1, m], %y: f32[n + m + k]) -> () where n in [1, ?], m in [1, ?], k in [0, ?] {}");
  auto bound = bind_symbols(g, {{"x", Tensor::create(DType::F32, {7, 2}, true).value()},
                                {"y", Tensor::create(DType::F32, {9}, true).value()}});
  ASSERT_TRUE(bound.ok()) << bound.error().str();
  EXPECT_EQ(bound->at(g.env().find("n")->symbol_id()), 3);
  EXPECT_EQ(bound->at(g.env().find("k")->symbol_id()), 4);

  SymExpr other = g.env().create_symbol("other");
  ASSERT_TRUE(g.env().require(sym_eq(other, *g.env().find("n") + 1), GuardClass::Required, "test", {}).ok());
  bound = bind_symbols(g, {{"x", Tensor::create(DType::F32, {7, 2}, true).value()},
                           {"y", Tensor::create(DType::F32, {9}, true).value()}});
  ASSERT_TRUE(bound.ok()) << bound.error().str();
  EXPECT_EQ(g.env().simplify(other).eval(*bound).value(), 4);
}

TEST(BindSymbols, RequiredGuardsHold) {
  Graph g = parsed("graph @g(%x: f32[n, m]) -> () where n in [1, ?], m in [1, ?], require le(n + m, 10) \"the table "
                   "has 10 rows\" {}");
  EXPECT_TRUE(bind_symbols(g, {{"x", Tensor::create(DType::F32, {4, 6}, true).value()}}).ok());
  auto bound = bind_symbols(g, {{"x", Tensor::create(DType::F32, {5, 6}, true).value()}});
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, ErrorCode::GuardFailed);
  EXPECT_NE(bound.error().message.find("the table has 10 rows"), std::string::npos) << bound.error().str();
}

TEST(Evaluator, UnknownInputsAndMissingDataAreErrors) {
  Graph g = parsed("graph @g(%x: f32[4]) -> (%y: f32[4]) {\n  %w = weight : f32[4]\n  %y = add(%x, %w) : f32[4]\n}");
  auto out = evaluate_graph(g, {{"x", floats({4}, {1, 2, 3, 4})}});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, ErrorCode::BadWeights);
  out = evaluate_graph(g, {{"x", floats({4}, {1, 2, 3, 4})}, {"z", floats({}, {1})}});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, ErrorCode::UnknownInput);
}

TEST(Evaluator, DeepGraphsNeedNoStack) {
  Graph g;
  ValueId v = g.add_input("x", {DType::F32, {SymExpr(1)}});
  for (int i = 0; i < 20000; ++i) v = must(g, "neg", {v});
  g.add_output("y", v);
  auto out = evaluate_graph(g, {{"x", floats({1}, {3})}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].get_f64(0), 3);
}

// The meaning, run element by element, against the plain reference; concrete and symbolic sizes.
TEST(Meaning, AgreesWithTheReference) {
  Graph g = parsed(
      R"(graph @main(%x: f32[b, s, 4], %r: f32[s, 1], %i: i64[3], %h: f16[b, 4]) -> () where b in [1, ?], s in [3, ?] {
  %a = add(%x, %r) : f32[b, s, 4]
  %m = reduce_max(%x) axes=[1] keepdims=0 : f32[b, 4]
  %k = argmax(%x) axes=[0, 2] keepdims=1 : i64[1, s, 1]
  %t = transpose(%x) perm=[2, 0, 1] : f32[4, b, s]
  %f = reshape(%x) shape=[b, 4*s] : f32[b, 4*s]
  %c = concat(%x, %x) axis=2 : f32[b, s, 8]
  %g = gather(%x, %i) axis=1 : f32[b, 3, 4]
  %q = mul(%h, %h) : f16[b, 4]
  %e = lt(%x, %r) : bool[b, s, 4]
  %z = slice(%x) sizes=[b, s - 2, 2] starts=[0, 1, 3] steps=[1, 1, -2] : f32[b, s - 2, 2]
})");
  std::map<std::string, Tensor> inputs = {{"x", Tensor::create(DType::F32, {2, 5, 4}).value()},
                                          {"r", Tensor::create(DType::F32, {5, 1}).value()},
                                          {"i", ints({4, 0, 2})},
                                          {"h", Tensor::create(DType::F16, {2, 4}).value()}};
  for (auto& [name, t] : inputs)
    if (name != "i")
      for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, static_cast<double>((i * 37 + 11) % 17) / 4 - 2);
  auto symbols = bind_symbols(g, inputs);
  ASSERT_TRUE(symbols.ok()) << symbols.error().str();
  int compared = 0;
  for (NodeId id : g.order()) {
    const Node& n = g.node(id);
    std::vector<Tensor> operands;
    for (ValueId v : n.operands) operands.push_back(inputs.at(g.value(v).name));
    auto reference = evaluate_node(g, n, operands, *symbols);
    auto meaning = evaluate_meaning(g, n, operands, *symbols);
    ASSERT_TRUE(reference.ok()) << n.op->name << reference.error().str();
    ASSERT_TRUE(meaning.ok()) << n.op->name << meaning.error().str();
    Comparison c = compare((*meaning)[0], (*reference)[0], 0, 0);
    EXPECT_TRUE(c.same) << n.op->name << ": " << c.message;
    ++compared;
  }
  EXPECT_EQ(compared, 10);
}

TEST(Meaning, IndicesOutsideAreErrors) {
  Graph g = parsed("graph @g(%x: f32[4], %i: i64[1]) -> () {\n  %y = gather(%x, %i) axis=0 : f32[1]\n}");
  const Node& n = g.node(NodeId{0});
  auto out = evaluate_meaning(g, n, {floats({4}, {1, 2, 3, 4}), ints({9})}, {});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, ErrorCode::BadInput);
}

} // namespace
} // namespace tessera
