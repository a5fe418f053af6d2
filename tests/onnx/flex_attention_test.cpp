// FlexAttention: its subgraphs are inlined, and see the scores' sizes.
#include "graph/reference/evaluator.h"
#include "model_maker.h"
#include <cmath>
#include <gtest/gtest.h>

namespace tessera::onnx_test {
namespace {

// A subgraph of one input and one output, of the nodes given.
proto::GraphProto modifier(std::initializer_list<proto::NodeProto> nodes, const std::string& input = "s",
                           const std::string& output = "t") {
  proto::GraphProto g;
  set_value(*g.add_input(), input, {"B", "H", "L", "S"});
  set_value(*g.add_output(), output, {"B", "H", "L", "S"});
  for (const auto& n : nodes) *g.add_node() = n;
  return g;
}

Maker model(std::initializer_list<proto::AttributeProto> attributes) {
  Maker m(26);
  m.import("ai.onnx.preview", 1);
  m.input("q", {1, 2, "l", 4}).input("k", {1, 1, 3, 4}).input("v", {1, 1, 3, 2});
  return m.add("FlexAttention", {"q", "k", "v"}, {"y"}, attributes, "ai.onnx.preview").output("y");
}

Tensor ones(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return Tensor::of<float>(DType::F32, dims, std::vector<float>(static_cast<size_t>(n), 1));
}

TEST(FlexAttention, AppliesBothSubgraphs) {
  // Equal scores: every probability is 1/3, doubled by prob_mod; three values of 1 add up to 2.
  auto halved = modifier({node("Neg", {"s"}, {"t"})}), doubled = modifier({node("Add", {"s", "s"}, {"t"})});
  auto m = model({graph_attribute("score_mod", halved), graph_attribute("prob_mod", doubled)}).import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_TRUE(verify(m->graph).ok()) << verify(m->graph).error().str();
  EXPECT_EQ(type_of_output(*m), "f32[1, 2, l, 2]");
  auto y = evaluate_graph(m->graph, {{"q", ones({1, 2, 5, 4})}, {"k", ones({1, 1, 3, 4})}, {"v", ones({1, 1, 3, 2})}});
  ASSERT_TRUE(y.ok()) << y.error().str();
  for (int64_t i = 0; i < (*y)[0].count(); ++i) EXPECT_NEAR((*y)[0].get_f64(i), 2, 1e-6);
}

TEST(FlexAttention, WrongSubgraphsAreNamed) {
  auto error = [](std::initializer_list<proto::AttributeProto> attributes, ErrorCode code, const Names& texts) {
    expect_error(model(attributes).import_it(), code, texts);
  };
  auto two = modifier({node("Neg", {"s"}, {"t"})});
  set_value(*two.add_input(), "more", {1});
  error({graph_attribute("score_mod", two)}, ErrorCode::MalformedModel, {"n_y", "'score_mod' has 2 inputs"});
  auto other = modifier({node("Shape", {"s"}, {"t"})});
  error({graph_attribute("prob_mod", other)}, ErrorCode::TypeMismatch, {"'prob_mod' makes i64[4]"});
  error({int_attribute("score_mod", 1)}, ErrorCode::BadAttribute, {"score_mod"});
  error({int_attribute("frob", 1)}, ErrorCode::BadAttribute, {"frob", "it has prob_mod"});
  error({graph_attribute("score_mod", modifier({node("Neg", {"gone"}, {"t"})}))}, ErrorCode::MalformedModel, {"gone"});
}

} // namespace
} // namespace tessera::onnx_test
