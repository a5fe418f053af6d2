// Graphs: names, order, dimensions, declared types, and what is wrong with them.
#include "graph/ir/operator.h"
#include "model_maker.h"
#include <gtest/gtest.h>

namespace tessera::onnx_test {
namespace {

using A = proto::AttributeProto;

TEST(Import, KeepsNamesShapesAndPlaces) {
  auto m = relu_model().import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  const Graph& g = m->graph;
  ASSERT_EQ(g.inputs().size(), 1u);
  EXPECT_EQ(g.value(g.inputs()[0]).name, "x");
  EXPECT_EQ(g.type(g.inputs()[0]).str(), "f32[b, 4]");
  EXPECT_EQ(g.outputs()[0].name, "y");
  EXPECT_EQ(type_of_output(*m), "f32[b, 4]");
  const Node& n = *g.producer(g.outputs()[0].value);
  EXPECT_EQ(n.location.str(), (Location{"model.onnx", "n_y", "Relu", "y"}).str());
  EXPECT_EQ(n.opset, 17);
  EXPECT_EQ(m->info.opsets.at("ai.onnx"), 17);
  EXPECT_EQ(m->info.nodes, 1);
  EXPECT_TRUE(verify(g).ok()) << verify(g).error().str();
}

TEST(Import, SortsNodes) {
  auto m = Maker()
               .input("x", {2})
               .add("Relu", {"b"}, {"c"})
               .add("Relu", {"a"}, {"b"})
               .add("Relu", {"x"}, {"a"})
               .output("c")
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  std::string order;
  for (NodeId id : m->graph.order()) order += m->graph.node(id).location.output;
  EXPECT_EQ(order, "abc");
}

TEST(Import, ACycleIsNamed) {
  auto m = Maker()
               .input("x", {2})
               .add("Add", {"x", "c"}, {"a"})
               .add("Relu", {"a"}, {"b"})
               .add("Relu", {"b"}, {"c"})
               .output("c");
  expect_error(m.import_it(), ErrorCode::MalformedModel,
               {"cycle", "'n_a' (Add) -> ", "'n_b' (Relu) -> ", "'n_c' (Relu) -> "});
  auto self = Maker().input("x", {2}).add("Relu", {"y"}, {"y"}).output("y");
  expect_error(self.import_it(), ErrorCode::MalformedModel, {"cycle: 'n_y' (Relu) -> 'n_y' (Relu)"});
}

TEST(Import, ALongChainAndALongCycleTakeNoStack) {
  Maker chain;
  chain.input("v0", {2});
  constexpr int kLength = 20000;
  for (int i = kLength; i > 0; --i) chain.add("Relu", {"v" + std::to_string(i - 1)}, {"v" + std::to_string(i)});
  chain.output("v" + std::to_string(kLength));
  auto m = chain.import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  chain.add("Relu", {"w"}, {"v0"}).add("Relu", {"v" + std::to_string(kLength)}, {"w"});
  chain.graph().clear_input();
  expect_error(chain.import_it(), ErrorCode::MalformedModel, {"cycle", "more)"});
}

TEST(Import, NamesThatAreUndefinedOrTwice) {
  expect_error(Maker().input("x", {2}).add("Add", {"x", "gone"}, {"y"}).output("y").import_it(),
               ErrorCode::MalformedModel, {"model.onnx", "n_y", "Add", "reads 'gone', which nothing defines"});
  expect_error(Maker().input("x", {2}).add("Relu", {"x"}, {"y"}).add("Neg", {"x"}, {"y"}).output("y").import_it(),
               ErrorCode::MalformedModel, {"Neg", "defines 'y', which node 'n_y' (Relu) defines already"});
  expect_error(Maker().input("x", {2}).add("Relu", {"x"}, {"x"}).output("x").import_it(), ErrorCode::MalformedModel,
               {"cycle"});
  expect_error(Maker().input("x", {2}).input("z", {2}).add("Relu", {"x"}, {"z"}).output("z").import_it(),
               ErrorCode::MalformedModel, {"defines 'z', which is an input or initializer already"});
  expect_error(Maker().input("x", {2}).input("x", {3}).output("x").import_it(), ErrorCode::MalformedModel,
               {"two inputs are called 'x'"});
  expect_error(Maker().input("x", {2}).output("y").import_it(), ErrorCode::MalformedModel,
               {"output 'y' is not defined"});
  expect_error(Maker().input("x", {2}).output("x").output("x").import_it(), ErrorCode::MalformedModel,
               {"two outputs are called 'x'"});
  expect_error(Maker().input("x", {2}).import_it(), ErrorCode::MalformedModel, {"no outputs"});
  expect_error(Maker().input("x", {2}).add("Relu", {"x"}, {}).output("x").import_it(), ErrorCode::MalformedModel,
               {"defines no output"});
}

TEST(Import, InputsThatAreWeightsAreNotInputs) {
  auto m = Maker()
               .input("x", {2})
               .input("w", {2})
               .weight(float_tensor("w", {2}, {1, 2}))
               .add("Add", {"x", "w"}, {"y"})
               .output("y")
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_EQ(m->graph.inputs().size(), 1u);
  EXPECT_NE(weight_named(m->graph, "w"), nullptr);
}

TEST(Import, AnInputMayBeAnOutput) {
  auto m = Maker().input("x", {2}).output("x").import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_EQ(m->graph.outputs()[0].value, m->graph.inputs()[0]);
}

TEST(Import, OperandsThatAreLeftOut) {
  // Clip(x, , max): the lower bound is left out.
  auto m = Maker()
               .input("x", {2})
               .weight(float_tensor("hi", {}, {6}))
               .add("Clip", {"x", "", "hi"}, {"y"})
               .output("y")
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  const Node& n = *m->graph.producer(m->graph.outputs()[0].value);
  ASSERT_EQ(n.operands.size(), 3u);
  EXPECT_FALSE(n.operands[1].valid());
  auto trailing = Maker().input("x", {2}).add("Clip", {"x", "", ""}, {"y"}).output("y").import_it();
  ASSERT_TRUE(trailing.ok()) << trailing.error().str();
  EXPECT_EQ(trailing->graph.producer(trailing->graph.outputs()[0].value)->operands.size(), 1u);
}

TEST(Import, ConstantsOfEverySpelling) {
  auto text = [](const std::string& name, std::initializer_list<std::string> values) {
    A a;
    a.set_name(name);
    a.set_type(A::STRINGS);
    for (const auto& v : values) a.add_strings(v);
    return a;
  };
  A floats;
  floats.set_name("value_floats");
  floats.set_type(A::FLOATS);
  floats.add_floats(1.5f);
  floats.add_floats(2);
  struct Case {
    A attribute;
    std::string type;
  };
  for (const Case& c :
       {Case{tensor_attribute("value", int64_tensor("", {2}, {3, 4})), "i64[2]"},
        Case{float_attribute("value_float", 2), "f32[]"}, Case{floats, "f32[2]"},
        Case{int_attribute("value_int", 2), "i64[]"}, Case{ints_attribute("value_ints", {1, 2, 3}), "i64[3]"},
        Case{string_attribute("value_string", "s"), "string[]"},
        Case{text("value_strings", {"a", "b"}), "string[2]"}}) {
    auto m = Maker().add("Constant", {}, {"y"}, {c.attribute}).output("y").import_it();
    ASSERT_TRUE(m.ok()) << m.error().str();
    EXPECT_EQ(type_of_output(*m), c.type);
  }
  expect_error(Maker().add("Constant", {}, {"y"}).output("y").import_it(), ErrorCode::BadAttribute,
               {"exactly one value"});
  expect_error(Maker().add("Constant", {}, {"y"}, {int_attribute("value", 1)}).output("y").import_it(),
               ErrorCode::BadAttribute, {"'value' has type INT; type TENSOR is expected"});
}

TEST(Attributes, AreCheckedAgainstTheRecord) {
  auto softmax = [](const A& a) {
    return Maker().input("x", {2, 3}).add("Softmax", {"x"}, {"y"}, {a}).output("y").import_it();
  };
  EXPECT_TRUE(softmax(int_attribute("axis", 1)).ok());
  expect_error(softmax(float_attribute("axis", 1)), ErrorCode::BadAttribute,
               {"n_y", "'axis' has type FLOAT; type INT is expected"});
  expect_error(softmax(int_attribute("axes", 1)), ErrorCode::BadAttribute, {"no attribute 'axes'", "it has axis"});
  A untyped = int_attribute("axis", 1);
  untyped.clear_type();
  expect_error(softmax(untyped), ErrorCode::BadAttribute, {"has no type"});
  expect_error(softmax(reference("axis", "outer", A::INT)), ErrorCode::BadAttribute,
               {"refers to attribute 'outer' of a function"});
  expect_error(Maker()
                   .input("x", {2, 3})
                   .add("Softmax", {"x"}, {"y"}, {int_attribute("axis", 1), int_attribute("axis", 1)})
                   .output("y")
                   .import_it(),
               ErrorCode::BadAttribute, {"given twice"});
  expect_error(softmax(int_attribute("axis", 7)), ErrorCode::BadAttribute, {"n_y", "7"});
}

TEST(Versions, OldNewAndMissing) {
  Maker old = relu_model(), fresh = relu_model(), ir = relu_model(), future = relu_model();
  old.model.mutable_opset_import(0)->set_version(0);
  expect_error(old.import_it(), ErrorCode::MalformedModel, {"version 0 of the default domain"});
  fresh.model.mutable_opset_import(0)->set_version(99);
  expect_error(fresh.import_it(), ErrorCode::UnsupportedFeature, {"opset 99", "newest known"});
  ir.model.set_ir_version(-1);
  expect_error(ir.import_it(), ErrorCode::UnsupportedFeature, {"IR version -1"});
  future.model.set_ir_version(1000);
  expect_error(future.import_it(), ErrorCode::UnsupportedFeature, {"IR version 1000"});
  proto::ModelProto empty;
  expect_error(onnx::import_bytes(empty.SerializeAsString(), ""), ErrorCode::MalformedModel, {"is empty"});
  empty.set_ir_version(8);
  expect_error(onnx::import_bytes(empty.SerializeAsString(), ""), ErrorCode::MalformedModel, {"has no graph"});
}

TEST(Operators, UnknownOnesAreNamed) {
  expect_error(Maker().input("x", {2}).add("Frobnicate", {"x"}, {"y"}).output("y").import_it(),
               ErrorCode::UnsupportedOp, {"model.onnx", "n_y", "'Frobnicate' of opset 17 is not supported"});
  expect_error(
      Maker().import("com.acme", 3).input("x", {2}).add("Frob", {"x"}, {"y"}, {}, "com.acme").output("y").import_it(),
      ErrorCode::UnsupportedOp, {"'com.acme.Frob' of opset 3", "no operator of domain 'com.acme' is known"});
  expect_error(Maker().input("x", {2}).add("Frob", {"x"}, {"y"}, {}, "com.acme").output("y").import_it(),
               ErrorCode::UnsupportedOp, {"no operator of domain 'com.acme' is known"});
  EXPECT_TRUE(Maker().input("x", {2}).add("Relu", {"x"}, {"y"}, {}, "ai.onnx").output("y").import_it().ok());
}

TEST(Dimensions, OneNameIsOneSymbol) {
  auto m = Maker()
               .input("x", {"b", "s"})
               .input("z", {"b", "s"})
               .add("Add", {"x", "z"}, {"y"})
               .output("y", {"out_0", "out_1"})
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  const Graph& g = m->graph;
  EXPECT_EQ(g.type(g.inputs()[0]).shape, g.type(g.inputs()[1]).shape);
  EXPECT_EQ(type_of_output(*m), "f32[b, s]"); // the names of the output say nothing
  EXPECT_TRUE(g.env().guards().empty());
  EXPECT_EQ(g.env().range(g.type(g.inputs()[0]).shape[0]), (SymRange{0, kSymMax}));
}

TEST(Dimensions, UnnamedOnesAndOddNames) {
  auto m = Maker().input("x", {"", "", "past + 1", "past * 1", "min", -1}).output("x").import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  const SymShape& shape = m->graph.type(m->graph.inputs()[0]).shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    EXPECT_TRUE(shape[i].is_symbol()) << str(shape);
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(shape[i] == shape[j]) << str(shape);
  }
  EXPECT_EQ(shape[0].symbol_name(), "x_d0");
  EXPECT_EQ(shape[2].symbol_name(), "past___1");
  auto again = parse_graph(print(m->graph));
  EXPECT_TRUE(again.ok()) << again.error().str() << print(m->graph);
}

TEST(Dimensions, Impossible) {
  expect_error(Maker().input("x", {2, -3}).output("x").import_it(), ErrorCode::ShapeMismatch,
               {"dimension 1 of 'x' is negative: -3"});
  expect_error(Maker().input("x", {int64_t{1} << 50}).output("x").import_it(), ErrorCode::SizeOverflow,
               {"dimension 0 of 'x'"});
  expect_error(Maker().input("x", {int64_t{1} << 40, int64_t{1} << 40}).output("x").import_it(),
               ErrorCode::SizeOverflow, {"'x'"});
  EXPECT_TRUE(Maker().input("x", {0, 4}).add("Relu", {"x"}, {"y"}).output("y").import_it().ok());
  expect_error(Maker().input("x", {2, 3}).input("z", {2, 4}).add("Add", {"x", "z"}, {"y"}).output("y").import_it(),
               ErrorCode::ShapeMismatch, {"n_y", "Add"});
}

TEST(Options, GiveSizes) {
  ImportOptions options;
  options.dim_values = {{"b", 3}};
  auto m = relu_model().import_it(options);
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_EQ(type_of_output(*m), "f32[3, 4]");
  options.dim_values.clear();
  options.input_shapes = {{"x", {5, -1}}};
  auto by_input = Maker()
                      .input("x", {"b", "c"})
                      .input("z", {"b", "c"})
                      .add("Add", {"x", "z"}, {"y"})
                      .output("y")
                      .import_it(options);
  ASSERT_TRUE(by_input.ok()) << by_input.error().str();
  EXPECT_EQ(type_of_output(*by_input), "f32[5, c]");
  EXPECT_EQ(by_input->graph.type(by_input->graph.inputs()[1]).str(), "f32[5, c]");

  options.input_shapes = {{"x", {5}}};
  expect_error(relu_model().import_it(options), ErrorCode::Usage,
               {"'x' has 2 dimensions [b, 4], and 1 sizes are given"});
  options.input_shapes = {{"x", {5, 6}}};
  expect_error(relu_model().import_it(options), ErrorCode::Usage,
               {"dimension 1 of input 'x' is 4 in the model, and 6 is given"});
  options.input_shapes = {{"q", {5, 4}}};
  expect_error(relu_model().import_it(options), ErrorCode::UnknownInput, {"no input is called 'q'", "inputs are x"});
  options.input_shapes.clear();
  options.dim_values = {{"n", 3}};
  expect_error(relu_model().import_it(options), ErrorCode::UnknownInput,
               {"no dimension is called 'n'", "dimensions are b"});
  options.dim_values = {{"b", -3}};
  expect_error(relu_model().import_it(options), ErrorCode::Usage, {"cannot be -3"});
  options.dim_values.clear();
  options.dim_hints = {{"b", 8}};
  auto hinted = relu_model().import_it(options);
  ASSERT_TRUE(hinted.ok());
  EXPECT_EQ(hinted->graph.env().hint(hinted->graph.type(hinted->graph.inputs()[0]).shape[0]), 8);
  EXPECT_EQ(type_of_output(*hinted), "f32[b, 4]");
}

TEST(Options, GiveARankWhereTheModelHasNone) {
  Maker m;
  m.graph().add_input()->set_name("x");
  m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(proto::TensorProto::FLOAT);
  m.add("Relu", {"x"}, {"y"}).output("y");
  expect_error(m.import_it(), ErrorCode::MissingValues, {"input 'x' has no shape", "--shape x="});
  ImportOptions options;
  options.input_shapes = {{"x", {2, -1}}};
  auto given = m.import_it(options);
  ASSERT_TRUE(given.ok()) << given.error().str();
  EXPECT_EQ(type_of_output(*given), "f32[2, x_d1]");
}

TEST(Declared, TypesAreHeldAgainstInference) {
  auto declare = [](const DimList& dims, int elem = proto::TensorProto::FLOAT) {
    return Maker().input("x", {"b", 4}).add("Relu", {"x"}, {"y"}).output("y", dims, elem).import_it();
  };
  EXPECT_TRUE(declare({"b", 4}).ok());
  EXPECT_TRUE(declare({"other", "names"}).ok());
  expect_error(declare({"b", 4}, proto::TensorProto::INT64), ErrorCode::TypeMismatch,
               {"declared as INT64, and it is f32"});
  // A batch that the model was traced with and that its input does not have: the input decides.
  auto traced = declare({1, 4});
  ASSERT_TRUE(traced.ok()) << traced.error().str();
  EXPECT_EQ(type_of_output(*traced), "f32[b, 4]");
  // Inside of the graph a stale declaration is a warning.
  Maker stale = relu_model();
  stale.add("Relu", {"y"}, {"z"}).output("z");
  set_value(*stale.graph().add_value_info(), "y", {1, 5});
  auto m = stale.import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  ASSERT_EQ(m->warnings.size(), 1u);
  EXPECT_NE(m->warnings[0].find("declared as [1, 5]"), std::string::npos);
}

TEST(Declared, SizesKnownOnlyAtRunTimeTakeTheDeclaredOnes) {
  ASSERT_NE(OpTable::get().find_onnx("NonZero", "", 17), nullptr);
  auto m = Maker()
               .input("x", {"b"})
               .add("NonZero", {"x"}, {"y"})
               .output("y", {1, "b"}, proto::TensorProto::INT64)
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_EQ(type_of_output(*m), "i64[1, b]");
}

TEST(Types, ListsHaveATypeOfItems) {
  Maker m;
  m.graph().add_input()->set_name("x");
  auto& type = *m.graph().mutable_input(0)->mutable_type();
  set_type(*type.mutable_sequence_type()->mutable_elem_type(), {2});
  m.output("x");
  auto list = m.import_it();
  ASSERT_TRUE(list.ok()) << list.error().str();
  EXPECT_EQ(list->graph.type(list->graph.inputs()[0]).str(), "list<sequence f32[2]>[x_length]");
  type.mutable_optional_type();
  expect_error(m.import_it(), ErrorCode::UnsupportedType, {"input 'x' is a value without a type"});
  m.graph().mutable_input(0)->clear_type();
  expect_error(m.import_it(), ErrorCode::MalformedModel, {"'x' has no type"});
}

// The names that exporters write for "unknown" are no names: dimensions that share one need not be equal.
TEST(Dimensions, WithoutANameAreApart) {
  for (const char* text : {"?", "_", "-1", "None", "unk__12", "n"}) {
    Maker m;
    m.input("x", {text, text}).add("Relu", {"x"}, {"y"}).output("y");
    auto made = m.import_it();
    ASSERT_TRUE(made.ok()) << made.error().str();
    EXPECT_EQ(made->graph.type(made->graph.inputs()[0]).str(),
              text == std::string_view("n") ? "f32[n, n]" : "f32[x_d0, x_d1]")
        << text;
  }
}

TEST(Protobuf, DamageIsReported) {
  std::string good = relu_model().bytes();
  expect_error(onnx::import_bytes("", ""), ErrorCode::MalformedModel, {"is empty"});
  expect_error(onnx::import_bytes("this is no protobuf at all", ""), ErrorCode::MalformedModel,
               {"not a valid ONNX protobuf"});
  for (size_t n = 1; n < good.size(); ++n)
    EXPECT_FALSE(onnx::import_bytes(good.substr(0, n), "").ok()) << n; // and no crash
  TemporaryFolder folder;
  expect_error(onnx::import_file(folder.path() + "/none.onnx"), ErrorCode::FileError, {"none.onnx", "No such file"});
  expect_error(onnx::import_file(folder.path()), ErrorCode::FileError, {"is a folder"});
  expect_error(onnx::import_file(folder.write("empty.onnx", "")), ErrorCode::MalformedModel,
               {"empty.onnx", "is empty"});
}

TEST(Protobuf, DeepNestingIsRefused) {
  // If in If in If ...: 60 levels are 180 nested messages.
  proto::GraphProto inner;
  inner.set_name("g");
  inner.add_output()->set_name("y");
  *inner.add_node() = node("Relu", {"x"}, {"y"});
  for (int i = 0; i < 60; ++i) {
    proto::GraphProto outer;
    outer.set_name("g");
    outer.add_output()->set_name("y");
    *outer.add_node() =
        node("If", {"c"}, {"y"},
             {graph_attribute("then_branch", inner),
              graph_attribute("else_branch", inner.node(0).attribute_size() > 0 ? proto::GraphProto() : inner)});
    inner = outer;
  }
  Maker m;
  m.input("c", {}, proto::TensorProto::BOOL).input("x", {2});
  *m.graph().add_node() = inner.node(0);
  expect_error(m.output("y").import_it(), ErrorCode::MalformedModel, {"nested deeper"});
}

} // namespace
} // namespace tessera::onnx_test
