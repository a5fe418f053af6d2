#include "graph/reference/evaluator.h"
#include "tests/graph/helpers.h"

namespace tessera {
namespace {

struct Chain {
  Graph g;
  ValueId x, a, b, c;
  Chain() {
    x = g.add_input("x", {DType::F32, {SymExpr(2), SymExpr(3)}});
    a = must(g, "exp", {x});
    b = must(g, "neg", {a});
    c = must(g, "add", {a, b});
    g.add_output("y", c);
  }
};

TEST(GraphTest, AddsNodesWithTypesAndFindsUsers) {
  Chain t;
  EXPECT_EQ(t.g.type(t.c).str(), "f32[2, 3]");
  auto users = t.g.users();
  EXPECT_EQ(users[static_cast<size_t>(t.a.index)].size(), 2u);
  EXPECT_EQ(users[static_cast<size_t>(t.c.index)].size(), 0u); // outputs are no users
  EXPECT_EQ(t.g.producer(t.x), nullptr);
  EXPECT_EQ(t.g.producer(t.c)->op->name, "add");
}

TEST(GraphTest, OrderPutsAppendedNodesBeforeTheirUsers) {
  Chain t;
  ValueId late = must(t.g, "abs", {t.x}); // appended last, then used by an earlier node
  t.g.replace_all_uses(t.a, late);
  std::vector<std::string> names;
  for (NodeId id : t.g.order()) names.emplace_back(t.g.node(id).op->name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp", "abs", "neg", "add"}));
  EXPECT_TRUE(verify(t.g).ok()) << verify(t.g).error().str();
}

TEST(GraphTest, CompactDropsRemovedNodesAndKeepsMeaning) {
  Chain t;
  ValueId late = must(t.g, "abs", {t.x});
  t.g.replace_all_uses(t.a, late);
  t.g.remove_node(t.g.value(t.a).producer);
  t.g.compact();
  EXPECT_EQ(t.g.node_count(), 3);
  EXPECT_EQ(t.g.value_count(), 4);
  EXPECT_EQ(print(t.g), "graph @main(%x: f32[2, 3]) -> (\"y\" = %2: f32[2, 3]) {\n"
                        "  %0 = abs(%x) : f32[2, 3]\n"
                        "  %1 = neg(%0) : f32[2, 3]\n"
                        "  %2 = add(%0, %1) : f32[2, 3]\n"
                        "}\n");
  EXPECT_TRUE(verify(t.g).ok()) << verify(t.g).error().str();
}

TEST(GraphTest, ReplaceUsesFollowsChains) {
  Chain t;
  std::vector<ValueId> by(static_cast<size_t>(t.g.value_count()));
  by[static_cast<size_t>(t.c.index)] = t.b;
  by[static_cast<size_t>(t.b.index)] = t.a;
  t.g.replace_uses(by);
  EXPECT_EQ(t.g.outputs()[0].value, t.a);
}

TEST(GraphTest, OperandsLeftOutAtTheEndHaveOneSpelling) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {SymExpr(4)}});
  ValueId lo = g.add_constant(floats({}, {0}));
  const OpDef* clip = OpTable::get().find("Clip");
  ASSERT_NE(clip, nullptr);
  auto node = g.add_node(*clip, {x, lo, ValueId{}}, {}, {}, {""}, 13);
  ASSERT_TRUE(node.ok()) << node.error().str();
  EXPECT_EQ(g.node(*node).operands.size(), 2u);
}

TEST(GraphTest, CloneHasAnEnvironmentOfItsOwn) {
  Graph g;
  SymExpr s = g.env().create_symbol("s", {1, 64});
  g.add_input("x", {DType::F32, {s}});
  Graph copy = g.clone();
  copy.env().set_range(s, {1, 8});
  EXPECT_EQ(g.env().range(s).hi, 64);
  EXPECT_EQ(copy.env().range(s).hi, 8);
}

TEST(GraphTest, SimplifyShapesUsesWhatWasLearnt) {
  Graph g;
  SymExpr s = g.env().create_symbol("s"), t = g.env().create_symbol("t");
  ValueId x = g.add_input("x", {DType::F32, {s}});
  ValueId y = g.add_input("y", {DType::F32, {t}});
  ASSERT_TRUE(g.env().require(sym_eq(t, s), GuardClass::Required, "test", {}).ok());
  g.simplify_shapes();
  EXPECT_EQ(g.type(x).shape, g.type(y).shape);
}

TEST(GraphTest, InputsKeepTheSizesThatACallBinds) {
  Graph g;
  SymExpr s = g.env().create_symbol("s"), t = g.env().create_symbol("t");
  ValueId x = g.add_input("x", {DType::F32, {s}}), y = g.add_input("y", {DType::F32, {t}});
  auto sum = g.apply("add", {x, y});
  ASSERT_TRUE(sum.ok());
  g.add_output("sum", *sum);
  g.simplify_shapes();
  EXPECT_EQ(g.type(y).shape, SymShape{s});
  EXPECT_EQ(g.declared_shape(y), SymShape{t});
  EXPECT_FALSE(g.value(x).declared);
  EXPECT_TRUE(verify(g).ok()) << verify(g).error().str();

  auto copy = parse_graph(print(g));
  ASSERT_TRUE(copy.ok()) << copy.error().str() << print(g);
  EXPECT_EQ(print(*copy), print(g));
  EXPECT_EQ(str(copy->declared_shape(copy->inputs()[1])), "[t]");
  EXPECT_EQ(str(copy->type(copy->inputs()[1]).shape), "[s]");

  auto floats = [](int64_t n) { return Tensor::create(DType::F32, {n}, true).value(); };
  auto values = bind_symbols(g, {{"x", floats(3)}, {"y", floats(3)}});
  ASSERT_TRUE(values.ok()) << values.error().str();
  EXPECT_EQ(values->at(t.symbol_id()), 3);
  auto refused = bind_symbols(g, {{"x", floats(3)}, {"y", floats(1)}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::GuardFailed);
  EXPECT_NE(refused.error().str().find("dimension 0 of input 'y' (t) is 1"), std::string::npos)
      << refused.error().str();
}

TEST(AttributesTest, AreSortedAndTyped) {
  Attributes a{{"z", int64_t{1}}, {"a", Ints{1, 2}}, {"m", 0.5}};
  EXPECT_EQ(a.items()[0].first, "a");
  EXPECT_EQ(a.items()[2].first, "z");
  EXPECT_EQ(a.i("z"), 1);
  EXPECT_EQ(a.i("m", 7), 7); // of another kind: the default
  EXPECT_EQ(str(a.dims("a")), "[1, 2]");
  a.set("z", int64_t{5});
  a.erase("m");
  EXPECT_EQ(a.items().size(), 2u);
  EXPECT_EQ(a.i("z"), 5);
}

TEST(VerifierTest, NamesTheNodeAndTheFault) {
  auto fault = [](const std::function<void(Chain&)>& damage) {
    Chain t;
    EXPECT_TRUE(verify(t.g).ok());
    damage(t);
    auto status = verify(t.g);
    if (status.ok()) return std::string("nothing found");
    EXPECT_EQ(status.error().code, ErrorCode::Internal);
    return status.error().str();
  };
  auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.value(t.b).type.dtype = DType::F16; }),
                  "has type f16[2, 3], but inference yields f32[2, 3]"));
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.value(t.b).type.shape.pop_back(); }), "has type f32[2], but inference"));
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.node(t.g.value(t.a).producer).operands[0] = t.c; }),
                  "is used before its definition"));
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.remove_node(t.g.value(t.a).producer); }), "is used before its definition"));
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.node(t.g.value(t.b).producer).operands[0] = ValueId{99}; }),
                  "value 99, which does not exist"));
  EXPECT_TRUE(
      has(fault([](Chain& t) { t.g.node(t.g.value(t.b).producer).operands.clear(); }), "takes 1 operand, not 0"));
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.node(t.g.value(t.b).producer).attributes.set("what", int64_t{1}); }),
                  "'neg' has no attribute 'what'"));
  EXPECT_TRUE(
      has(fault([](Chain& t) { t.g.value(t.b).producer = t.g.value(t.a).producer; }), "names another producer"));
  EXPECT_TRUE(
      has(fault([](Chain& t) { t.g.value(t.b).name = t.g.value(t.c).name = "same"; }), "two values are called 'same'"));
  EXPECT_TRUE(has(fault([](Chain& t) { t.g.add_output("y", t.a); }), "two outputs are called 'y'"));
  EXPECT_TRUE(
      has(fault([](Chain& t) { t.g.value(t.b).contents = std::vector<SymExpr>{1}; }), "contents of another size"));
}

} // namespace
} // namespace tessera
