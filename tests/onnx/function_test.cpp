// Local functions and subgraphs.
#include "graph/ir/operator.h"
#include "model_maker.h"
#include <gtest/gtest.h>

namespace tessera::onnx_test {
namespace {

using A = proto::AttributeProto;

proto::FunctionProto function(const std::string& name, const Names& inputs, const Names& outputs,
                              const Names& attributes, std::initializer_list<proto::NodeProto> nodes,
                              int64_t opset = 17) {
  proto::FunctionProto f;
  f.set_name(name);
  f.set_domain("local");
  for (const auto& i : inputs) f.add_input(i);
  for (const auto& o : outputs) f.add_output(o);
  for (const auto& a : attributes) f.add_attribute(a);
  for (const auto& n : nodes) *f.add_node() = n;
  auto& o = *f.add_opset_import();
  o.set_domain("");
  o.set_version(opset);
  return f;
}

struct WithFunctions : Maker {
  explicit WithFunctions(std::initializer_list<proto::FunctionProto> functions) {
    import("local", 1);
    for (const auto& f : functions) *model.add_functions() = f;
  }
};

std::string ops_of(const Graph& g) {
  std::string out;
  for (NodeId id : g.order())
    if (const Location& at = g.node(id).location; !at.op.empty()) out += (out.empty() ? "" : " ") + at.node;
  return out;
}

TEST(Functions, AreInlinedWithNamesOfTheirCalls) {
  WithFunctions m({function("F", {"a", "b"}, {"r"}, {}, {node("Add", {"a", "b"}, {"t"}), node("Relu", {"t"}, {"r"})})});
  m.input("x", {2}).input("t", {2});
  m.add("F", {"x", "t"}, {"u"}, {}, "local").add("F", {"u", "x"}, {"y"}, {}, "local").output("y");
  auto imported = m.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  EXPECT_EQ(ops_of(imported->graph), "n_u/n_t n_u/n_r n_y/n_t n_y/n_r");
  EXPECT_EQ(imported->graph.value(imported->graph.outputs()[0].value).name, "y");
  EXPECT_TRUE(verify(imported->graph).ok()) << verify(imported->graph).error().str(); // names are unique
  EXPECT_EQ(imported->info.functions, 1);
}

TEST(Functions, AttributesAreReferredTo) {
  proto::FunctionProto f =
      function("F", {"a"}, {"r"}, {"ax"}, {node("Softmax", {"a"}, {"r"}, {reference("axis", "ax", A::INT)})});
  auto call = [](const proto::FunctionProto& f, std::initializer_list<A> attributes) {
    WithFunctions m({f});
    m.input("x", {2, 3}).add("F", {"x"}, {"y"}, attributes, "local").output("y");
    return m.import_it();
  };
  auto axis = [](const ImportedModel& m) {
    return m.graph.producer(m.graph.outputs()[0].value)->attributes.i("axis", -99);
  };
  auto given = call(f, {int_attribute("ax", 0)});
  ASSERT_TRUE(given.ok()) << given.error().str();
  EXPECT_EQ(axis(*given), 0);
  auto left_out = call(f, {}); // then the node has none
  ASSERT_TRUE(left_out.ok()) << left_out.error().str();
  EXPECT_EQ(axis(*left_out), -99);
  proto::FunctionProto with_default = f;
  with_default.clear_attribute();
  *with_default.add_attribute_proto() = int_attribute("ax", 1);
  auto defaulted = call(with_default, {});
  ASSERT_TRUE(defaulted.ok()) << defaulted.error().str();
  EXPECT_EQ(axis(*defaulted), 1);
  expect_error(call(f, {float_attribute("ax", 0)}), ErrorCode::BadAttribute,
               {"type FLOAT; type INT is expected", "called by"});
  expect_error(call(f, {int_attribute("other", 0)}), ErrorCode::BadAttribute,
               {"function 'local.F' has no attribute 'other'"});
}

TEST(Functions, CallEachOtherAndHandAttributesOn) {
  WithFunctions m(
      {function("Outer", {"a"}, {"r"}, {"k"}, {node("Inner", {"a"}, {"r"}, {reference("ax", "k", A::INT)}, "local")}),
       function("Inner", {"a"}, {"r"}, {"ax"}, {node("Softmax", {"a"}, {"r"}, {reference("axis", "ax", A::INT)})})});
  m.input("x", {2, 3}).add("Outer", {"x"}, {"y"}, {int_attribute("k", 0)}, "local").output("y");
  auto imported = m.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  EXPECT_EQ(imported->graph.producer(imported->graph.outputs()[0].value)->attributes.i("axis", -99), 0);
}

TEST(Functions, UseTheirOwnOpset) {
  WithFunctions m({function("F", {"a"}, {"r"}, {}, {node("Relu", {"a"}, {"r"})}, 14)});
  m.input("x", {2}).add("F", {"x"}, {"y"}, {}, "local").output("y");
  auto imported = m.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  EXPECT_EQ(imported->graph.producer(imported->graph.outputs()[0].value)->opset, 14);
}

TEST(Functions, OperandsAndResultsMayBeLeftOut) {
  WithFunctions m({function("F", {"a", "lo", "hi"}, {"r", "s"}, {},
                            {node("Clip", {"a", "lo", "hi"}, {"r"}), node("Neg", {"a"}, {"s"})})});
  m.input("x", {2}).weight(float_tensor("six", {}, {6})).add("F", {"x", "", "six"}, {"y"}, {}, "local").output("y");
  auto imported = m.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  const Node& clip = *imported->graph.producer(imported->graph.outputs()[0].value);
  ASSERT_EQ(clip.operands.size(), 3u);
  EXPECT_FALSE(clip.operands[1].valid());
}

TEST(Functions, Errors) {
  auto call = [](std::initializer_list<proto::FunctionProto> functions, const Names& inputs = {"x"}) {
    WithFunctions m(functions);
    m.input("x", {2}).add("F", inputs, {"y"}, {}, "local").output("y");
    return m.import_it();
  };
  auto relu = node("Relu", {"a"}, {"r"});
  expect_error(call({function("F", {"a"}, {"r"}, {}, {node("F", {"a"}, {"r"}, {}, "local")})}),
               ErrorCode::MalformedModel, {"function 'local.F' calls itself"});
  expect_error(call({function("F", {"a"}, {"r"}, {}, {node("G", {"a"}, {"r"}, {}, "local")}),
                     function("G", {"a"}, {"r"}, {}, {node("F", {"a"}, {"r"}, {}, "local")})}),
               ErrorCode::MalformedModel, {"calls itself", "in function 'local.G', called by"});
  expect_error(call({function("F", {"a"}, {"r"}, {}, {relu}), function("F", {"a"}, {"r"}, {}, {relu})}),
               ErrorCode::MalformedModel, {"'local.F' is defined twice"});
  expect_error(call({function("F", {"a"}, {"gone"}, {}, {relu})}), ErrorCode::MalformedModel,
               {"does not define its output 'gone'"});
  expect_error(call({function("F", {"a"}, {"r"}, {}, {node("Relu", {"x"}, {"r"})})}), ErrorCode::MalformedModel,
               {"reads 'x', which nothing defines"}); // the caller's names are not seen
  expect_error(call({function("F", {"a"}, {"r"}, {}, {relu})}, {"x", "x"}), ErrorCode::MalformedModel,
               {"takes 1", "called with 2"});
  expect_error(call({function("F", {"a", "a"}, {"r"}, {}, {relu})}), ErrorCode::MalformedModel,
               {"two inputs called 'a'"});
}

TEST(Functions, ExplosionsAndDepthAreBounded) {
  // F0 calls F1 twice, F1 calls F2 twice ...: 2^40 nodes.
  auto make = [](int levels, int calls) {
    WithFunctions m({});
    for (int i = 0; i < levels; ++i) {
      std::string next = i + 1 == levels ? "Relu" : "F" + std::to_string(i + 1),
                  domain = i + 1 == levels ? "" : "local";
      proto::FunctionProto f = function("F" + std::to_string(i), {"v0"}, {"v" + std::to_string(calls)}, {}, {});
      for (int c = 0; c < calls; ++c)
        *f.add_node() = node(next, {"v" + std::to_string(c)}, {"v" + std::to_string(c + 1)}, {}, domain);
      *m.model.add_functions() = f;
    }
    m.input("x", {2}).add("F0", {"x"}, {"y"}, {}, "local").output("y");
    return m.import_it();
  };
  expect_error(make(150, 1), ErrorCode::UnsupportedFeature, {"nested deeper than 100 levels"});
  expect_error(make(40, 2), ErrorCode::UnsupportedFeature, {"is node 100", "inlining may add 100000 at most"});
  auto deep = make(90, 1);
  EXPECT_TRUE(deep.ok()) << deep.error().str();
}

// ---- subgraphs
proto::GraphProto branch(const std::string& result, std::initializer_list<proto::NodeProto> nodes) {
  proto::GraphProto g;
  g.set_name("branch");
  g.add_output()->set_name(result);
  for (const auto& n : nodes) *g.add_node() = n;
  return g;
}

TEST(If, WithAKnownConditionIsItsBranch) {
  for (bool condition : {true, false}) {
    proto::TensorProto c;
    c.set_name("c");
    c.set_data_type(proto::TensorProto::BOOL);
    c.add_int32_data(condition ? 1 : 0);
    auto m = Maker()
                 .input("x", {2})
                 .weight(c)
                 .add("If", {"c"}, {"y"},
                      {graph_attribute("then_branch", branch("t", {node("Relu", {"x"}, {"t"})})),
                       graph_attribute("else_branch", branch("x", {}))})
                 .output("y")
                 .import_it();
    ASSERT_TRUE(m.ok()) << m.error().str();
    EXPECT_EQ(ops_of(m->graph), condition ? "n_y/n_t" : "");
    EXPECT_EQ(m->graph.outputs()[0].name, "y");
  }
}

TEST(If, AConditionOverShapesIsKnownToo) {
  // rank(x) == 2
  auto m = Maker()
               .input("x", {"b", 4})
               .weight(int64_tensor("two", {1}, {2}))
               .add("Shape", {"x"}, {"s"})
               .add("Shape", {"s"}, {"r"})
               .add("Equal", {"r", "two"}, {"c"})
               .add("If", {"c"}, {"y"},
                    {graph_attribute("then_branch", branch("t", {node("Relu", {"x"}, {"t"})})),
                     graph_attribute("else_branch", branch("e", {node("Frobnicate", {"x"}, {"e"})}))})
               .output("y")
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_EQ(type_of_output(*m), "f32[b, 4]");
}

TEST(If, WithAConditionFromDataStays) {
  auto m = Maker()
               .input("x", {2})
               .input("c", {}, proto::TensorProto::BOOL)
               .add("If", {"c"}, {"y"},
                    {graph_attribute("then_branch", branch("t", {node("Relu", {"x"}, {"t"})})),
                     graph_attribute("else_branch", branch("e", {node("Neg", {"x"}, {"e"})}))})
               .output("y")
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  const Node& n = *m->graph.producer(m->graph.outputs()[0].value);
  auto* then_branch = n.attributes.get<std::shared_ptr<Graph>>("then_branch");
  ASSERT_NE(then_branch, nullptr);
  EXPECT_EQ((*then_branch)->inputs().size(), 1u); // x, taken from around
  EXPECT_EQ(n.attributes.ints("captures"), (Ints{1, 1}));
  EXPECT_EQ(n.operands.size(), 3u);
}

TEST(If, WrongBranches) {
  proto::TensorProto c;
  c.set_name("c");
  c.set_data_type(proto::TensorProto::BOOL);
  c.add_int32_data(1);
  auto with = [&](std::initializer_list<A> attributes) {
    return Maker().input("x", {2}).weight(c).add("If", {"c"}, {"y"}, attributes).output("y").import_it();
  };
  expect_error(with({}), ErrorCode::BadAttribute, {"'then_branch' is missing"});
  expect_error(with({int_attribute("then_branch", 1)}), ErrorCode::BadAttribute, {"type INT; type GRAPH is expected"});
  proto::GraphProto two = branch("t", {node("Relu", {"x"}, {"t"})});
  two.add_output()->set_name("x");
  expect_error(with({graph_attribute("then_branch", two)}), ErrorCode::MalformedModel,
               {"0 inputs and 2 outputs; none and 1"});
}

// Sizes that may be equal are taken to differ, unless the call's are known; which of two is larger is not guessed.
TEST(If, OverSizesIsAnAssumption) {
  auto with = [&](const std::string& compare, const std::map<std::string, int64_t>& hints) {
    ImportOptions options;
    options.dim_hints = hints;
    return Maker()
        .input("x", {"b", 4})
        .weight(int64_tensor("zero", {}, {0}))
        .weight(int64_tensor("one", {}, {1}))
        .add("Shape", {"x"}, {"s"})
        .add("Gather", {"s", "zero"}, {"d"})
        .add(compare, {"d", "one"}, {"c"})
        .add("If", {"c"}, {"y"},
             {graph_attribute("then_branch", branch("t", {node("Relu", {"x"}, {"t"})})),
              graph_attribute("else_branch", branch("e", {node("Neg", {"x"}, {"e"})}))})
        .output("y")
        .import_it(options);
  };
  auto last = [](const Result<ImportedModel>& m) { return m->graph.producer(m->graph.outputs()[0].value)->op->name; };
  auto differ = with("Equal", {}), equal = with("Equal", {{"b", 1}}), less = with("Less", {});
  ASSERT_TRUE(differ.ok() && equal.ok() && less.ok());
  EXPECT_EQ(last(differ), "neg");
  EXPECT_EQ(last(equal), "Relu");
  EXPECT_EQ(last(less), "if");
  ASSERT_EQ(differ->graph.env().guards().size(), 1u);
  EXPECT_EQ(differ->graph.env().guards()[0].reason, "which branch is taken");
}

proto::GraphProto loop_body(const std::string& op) {
  proto::GraphProto g;
  g.set_name("body");
  for (const char* name : {"i", "on", "v"}) g.add_input()->set_name(name);
  for (const char* name : {"on", "w"}) g.add_output()->set_name(name);
  *g.add_node() =
      op == "Concat" ? node(op, {"v", "x"}, {"w"}, {int_attribute("axis", 0)}) : node(op, {"v", "x"}, {"w"});
  return g;
}

Result<ImportedModel> loop(const std::string& op, bool counted) {
  Maker m;
  m.input("x", {"n"});
  if (counted)
    m.weight(int64_tensor("m", {}, {3}));
  else
    m.input("m", {}, proto::TensorProto::INT64);
  return m.add("Loop", {"m", "", "x"}, {"y"}, {graph_attribute("body", loop_body(op))}).output("y").import_it();
}

TEST(Loop, CarriedSizesAreThoseThatTheBodyKeeps) {
  auto kept = loop("Add", false), grown = loop("Concat", false);
  ASSERT_TRUE(kept.ok()) << kept.error().str();
  ASSERT_TRUE(grown.ok()) << grown.error().str();
  EXPECT_EQ(type_of_output(*kept), "f32[n]");
  EXPECT_EQ(type_of_output(*grown), "f32[loop_d0]");
  const auto& body =
      *grown->graph.producer(grown->graph.outputs()[0].value)->attributes.get<std::shared_ptr<Graph>>("body");
  EXPECT_EQ(body->type(body->inputs()[2]).str(), "f32[v_d0]");
  EXPECT_EQ(body->type(body->outputs()[1].value).str(), "f32[n + v_d0]");
}

TEST(Loop, OfAFewIterationsIsUnrolled) {
  auto m = loop("Concat", true);
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_EQ(type_of_output(*m), "f32[4*n]");
  EXPECT_EQ(ops_of(m->graph), "n_y/0/n_w n_y/1/n_w n_y/2/n_w");
}

TEST(Loop, WrongBodies) {
  auto with = [](const proto::GraphProto& body) {
    return Maker()
        .input("x", {"n"})
        .input("m", {}, proto::TensorProto::INT64)
        .add("Loop", {"m", "", "x"}, {"y"}, {graph_attribute("body", body)})
        .output("y")
        .import_it();
  };
  auto few = loop_body("Add"), other = loop_body("Shape");
  few.mutable_input()->RemoveLast();
  *other.mutable_node(0) = node("Shape", {"v"}, {"w"});
  expect_error(with(few), ErrorCode::MalformedModel, {"2 inputs and 2 outputs; 3 and at least 2"});
  expect_error(with(other), ErrorCode::UnsupportedFeature, {"carried value 0", "f32[", "i64[1]"});
}

} // namespace
} // namespace tessera::onnx_test
