// Nests of single operators: against the reference, in text, and what verify() refuses.
#include "graph/ir/operator.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

// Every node of the graph as a nest of its own: right, verified, and printed so that it reads back.
void check_nests(const std::string& text, const std::map<std::string, int64_t>& sizes, int64_t int_limit = 2) {
  Graph g = parsed(text);
  Inputs inputs = inputs_for(g, sizes, 7, int_limit);
  auto symbols = bind_symbols(g, inputs);
  ASSERT_TRUE(symbols.ok()) << symbols.error().str();
  std::map<ValueId, Tensor> values;
  for (ValueId v : g.inputs()) values[v] = inputs.at(g.value(v).name);
  for (NodeId id : g.order()) {
    const Node node = g.node(id);
    if (const Tensor* t = g.constant(node.results[0])) {
      values[node.results[0]] = *t;
      continue;
    }
    std::vector<Tensor> operands;
    for (ValueId v : node.operands) operands.push_back(v.valid() ? values[v] : Tensor());
    auto expected = evaluate_node(g, node, operands, *symbols);
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    values[node.results[0]] = (*expected)[0];
    auto nest = make_nest(g, id, false);
    ASSERT_TRUE(nest.ok()) << nest.error().str();
    auto fine = verify(g, *nest);
    ASSERT_TRUE(fine.ok()) << fine.error().str() << print(g, *nest);
    auto run = [&](const LoopNest& n) {
      std::vector<Tensor> loads;
      for (ValueId v : n.loads) loads.push_back(values[v]);
      auto actual = interpret(g, n, loads, *symbols);
      ASSERT_TRUE(actual.ok()) << actual.error().str() << print(g, n);
      auto c = compare((*actual)[0], (*expected)[0], 1e-5, 1e-5);
      EXPECT_TRUE(c.same) << c.message << print(g, n);
    };
    run(*nest);
    std::string once = print(g, *nest);
    auto again = parse_nest(g, once);
    ASSERT_TRUE(again.ok()) << again.error().str() << once;
    EXPECT_EQ(print(g, *again), once);
    run(*again);
  }
}

TEST(Nest, Pointwise) {
  check_nests(
      R"(graph @main(%x: f32[b, 3, 4], %y: f32[3, 1], %i: i64[b, 1, 1]) -> (%k: bool[b, 3, 4]) where b in [1, ?] {
  %c = constant {2.5} : f32[1]
  %a = add(%x, %y) : f32[b, 3, 4]
  %d = mul(%a, %c) : f32[b, 3, 4]
  %f = cast(%i) to=f32 : f32[b, 1, 1]
  %k = lt(%d, %f) : bool[b, 3, 4]
})",
      {{"b", 2}});
}

TEST(Nest, Reductions) {
  check_nests(R"(graph @main(%x: f32[b, 3, 4]) -> (%e: f32[]) where b in [1, ?] {
  %a = reduce_sum(%x) axes=[0, 2] keepdims=1 : f32[1, 3, 1]
  %c = reduce_max(%x) axes=[1] keepdims=0 : f32[b, 4]
  %d = argmax(%x) axes=[2] keepdims=0 select_last=0 : i64[b, 3]
  %e = reduce_prod(%x) axes=[0, 1, 2] keepdims=0 : f32[]
})",
              {{"b", 2}});
}

TEST(Nest, Indexing) {
  check_nests(R"(graph @main(%x: f32[b, 3, 4], %i: i64[b]) -> (%f: f32[b, 12]) where b in [1, ?] {
  %a = transpose(%x) perm=[2, 0, 1] : f32[4, b, 3]
  %c = slice(%x) starts=[0, 2, 0] steps=[1, -1, 2] sizes=[b, 3, 2] : f32[b, 3, 2]
  %d = concat(%c, %c, %x) axis=2 : f32[b, 3, 8]
  %e = gather(%x, %i) axis=1 : f32[b, b, 4]
  %f = reshape(%x) shape=[b, 12] : f32[b, 12]
})",
              {{"b", 2}});
}

TEST(Nest, TextNamesWhatIsWrong) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 3]) -> (%y: f32[b, 3]) where b in [1, ?] {
  %y = exp(%x) : f32[b, 3]
})");
  const std::pair<const char*, const char*> cases[] = {
      {"nest n outer(i0: b) {\n  %0 = load q[i0, 0] : f32\n}", "no value named 'q'"},
      {"nest n outer(i0: b) {\n  %0 = exp %1 : f32\n}", "%1 is not defined"},
      {"nest n outer(i0: b) {\n  %0 = frob %1 : f32\n}", "no scalar operator 'frob'"},
      {"nest n outer(i0: c) {\n}", "no symbol named 'c'"},
      {"nest n outer(i0: b) {\n  %0 = load x[i0] : f32\n  store y[i0, 0] = %0\n}", "another rank"},
      {"nest n outer(i0: b) {\n  %0 = load x[i0, 0] : f32\n  %1 = reduce.sum %0 : f32\n  store y[i0, 0] = %1\n}",
       "without row axes"},
      {"nest n outer(i0: b) {\n  %0 = load x[i0, 0] : i64\n  store y[i0, 0] = %0\n}", "dtype"},
      {"nest n outer(i0: b) {\n  %0 = load x[i0, 0] : f32\n  %1 = const 1 : i64\n  %2 = add %0, %1 : f32\n}",
       "differ in dtype"},
      {"nest n outer(i0: b) {\n  %0 = load x[i0, 0] : f32\n  %1 = lt %0, %0 : f32\n}", "yields bool"},
      {"nest n outer(i0: b) {\n  %0 = load x[i0, 0] : f32\n  %1 = load x[%0, 0] : f32\n}", "indices are i64"},
      {"nest n outer(i0: b) {\n  %0 = const 1 : i64\n  %1 = index i0 : i64\n  %2 = div %1, %0 : i64\n  store y[%2, 0] "
       "= %2\n}",
       "dtype"},
      {"nest n outer(i0: b) {", "expected"},
      {"", "expected 'nest'"},
  };
  for (const auto& [text, message] : cases) {
    auto nest = parse_nest(g, text);
    ASSERT_FALSE(nest.ok()) << text;
    EXPECT_NE(nest.error().message.find(message), std::string::npos) << nest.error().str();
  }
}

TEST(Nest, RowsFoldAndStoresOncePerRow) {
  Graph g = parsed(R"(graph @main(%x: f32[b, 3]) -> (%y: f32[b, 3], %m: f32[b]) where b in [1, ?] {
  %m = reduce_max(%x) axes=[1] keepdims=0 : f32[b]
  %y = exp(%x) : f32[b, 3]
})");
  auto nest = parse_nest(g, R"(nest both outer(i0: b) row(i1: 3) {
  %0 = load x[i0, i1] : f32
  %1 = reduce.sum %0 : f32
  %2 = sub %0, %1 : f32
  %3 = reduce.max %2 : f32
  store.row m[i0] = %3
  store y[i0, i1] = %2
})");
  ASSERT_TRUE(nest.ok()) << nest.error().str();
  Tensor x = Tensor::of<double>(DType::F32, {2, 3}, std::vector<double>{1, 2, 3, 10, 20, 30});
  auto results = interpret(g, *nest, {x}, {{g.env().find("b")->symbol_id(), 2}});
  ASSERT_TRUE(results.ok()) << results.error().str();
  EXPECT_EQ((*results)[0].get_f64(0), 3 - 6);
  EXPECT_EQ((*results)[0].get_f64(1), 30 - 60);
  EXPECT_EQ((*results)[1].get_f64(0), 1 - 6);
  EXPECT_EQ((*results)[1].get_f64(5), 30 - 60);
}

} // namespace
} // namespace tessera
