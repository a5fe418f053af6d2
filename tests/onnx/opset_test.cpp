// Old forms of operators: what they compute once the importer has upgraded them.
#include "graph/reference/evaluator.h"
#include "model_maker.h"
#include <cmath>
#include <gtest/gtest.h>

namespace tessera::onnx_test {
namespace {

struct OldForm {
  std::string op;
  int64_t opset;
  std::vector<proto::AttributeProto> attributes;
  std::vector<proto::TensorProto> operands; // the first one is an input, the others are weights
  Dims dims;
  std::vector<float> values;
  int outputs = 1;
};

proto::TensorProto f(const Dims& dims, const std::vector<float>& values) { return float_tensor("", dims, values); }
proto::AttributeProto floats_attribute(const std::string& name, const std::vector<float>& values) {
  proto::AttributeProto a;
  a.set_name(name);
  a.set_type(proto::AttributeProto::FLOATS);
  for (float v : values) a.add_floats(v);
  return a;
}

std::vector<OldForm> old_forms() {
  auto i = int_attribute;
  const auto ramp = f({2, 3}, {0, 1, 2, 3, 4, 5});
  const auto image = f({1, 2, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  return {
      {"Relu", 1, {ints_attribute("consumed_inputs", {0})}, {f({2}, {-1, 2})}, {2}, {0, 2}},
      {"Add", 6, {i("broadcast", 1), i("axis", 0)}, {ramp, f({2}, {10, 20})}, {2, 3}, {10, 11, 12, 23, 24, 25}},
      {"Mul", 1, {i("broadcast", 1)}, {ramp, f({3}, {1, 2, 3})}, {2, 3}, {0, 2, 6, 3, 8, 15}},
      {"Sub", 6, {i("broadcast", 1), i("axis", -2)}, {ramp, f({2}, {0, 3})}, {2, 3}, {0, 1, 2, 0, 1, 2}},
      {"Pow", 6, {i("broadcast", 1)}, {ramp, f({}, {2})}, {2, 3}, {0, 1, 4, 9, 16, 25}},
      {"PRelu", 6, {}, {f({1, 2, 2}, {-1, 1, -1, 1}), f({2}, {2, 3})}, {1, 2, 2}, {-2, 1, -3, 1}},
      {"BatchNormalization",
       6,
       {i("is_test", 1), float_attribute("epsilon", 0)},
       {f({1, 2, 1}, {3, 4}), f({2}, {2, 1}), f({2}, {1, 0}), f({2}, {1, 2}), f({2}, {4, 1})},
       {1, 2, 1},
       {3, 2},
       5},
      {"BatchNormalization",
       7,
       {i("spatial", 0), float_attribute("epsilon", 0)},
       {f({1, 1, 2}, {3, 4}), f({1, 2}, {2, 1}), f({1, 2}, {1, 0}), f({1, 2}, {1, 2}), f({1, 2}, {4, 1})},
       {1, 1, 2},
       {3, 2}},
      {"Cast", 1, {string_attribute("to", "FLOAT")}, {ramp}, {2, 3}, {0, 1, 2, 3, 4, 5}},
      {"Concat", 3, {}, {ramp, ramp}, {2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}},
      {"Dropout", 6, {i("is_test", 1), float_attribute("ratio", 0.5)}, {ramp}, {2, 3}, {0, 1, 2, 3, 4, 5}},
      {"Gemm", 6, {i("broadcast", 1)}, {ramp, f({3, 1}, {1, 1, 1}), f({1}, {1})}, {2, 1}, {4, 13}},
      {"Reshape", 1, {ints_attribute("shape", {3, -1})}, {ramp}, {3, 2}, {0, 1, 2, 3, 4, 5}},
      {"Pad",
       1,
       {ints_attribute("paddings", {0, 1, 0, 0}), float_attribute("value", 9)},
       {f({1, 2}, {1, 2})},
       {1, 3},
       {9, 1, 2}},
      {"Tile", 1, {}, {f({1, 2}, {1, 2}), f({1}, {2}), f({1}, {1})}, {1, 4}, {1, 2, 1, 2}},
      {"Upsample",
       1,
       {float_attribute("height_scale", 1), float_attribute("width_scale", 2), string_attribute("mode", "nearest")},
       {f({1, 1, 1, 2}, {1, 2})},
       {1, 1, 1, 4},
       {1, 1, 2, 2}},
      {"GlobalLpPool", 1, {float_attribute("p", 2)}, {f({1, 1, 2}, {3, 4})}, {1, 1, 1}, {5}},
      {"MeanVarianceNormalization",
       1,
       {i("normalize_variance", 0)},
       {image},
       {1, 2, 2, 3},
       {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5}},
      {"ThresholdedRelu", 1, {float_attribute("alpha", 2)}, {ramp}, {2, 3}, {0, 0, 0, 3, 4, 5}},
      {"Affine", 9, {float_attribute("alpha", 2), float_attribute("beta", 3)}, {f({2}, {0, 1})}, {2}, {3, 5}},
      {"Scale", 1, {float_attribute("scale", 2)}, {f({2}, {0, 1})}, {2}, {0, 2}},
      {"ScaledTanh",
       1,
       {float_attribute("alpha", 2), float_attribute("beta", 3)},
       {f({2}, {0, 1})},
       {2},
       {0, 2 * std::tanh(3.0f)}},
      {"ParametricSoftplus",
       1,
       {float_attribute("alpha", 2), float_attribute("beta", 3)},
       {f({2}, {0, 100})},
       {2},
       {2 * std::log(2.0f), 600}},
      {"ImageScaler",
       1,
       {float_attribute("scale", 2), floats_attribute("bias", {1, 2})},
       {f({1, 2, 1, 1}, {3, 4})},
       {1, 2, 1, 1},
       {7, 10}},
      {"Crop", 1, {ints_attribute("border", {1, 0, 1, 1})}, {image}, {1, 2, 1, 1}, {1, 7}},
      {"Crop",
       9,
       {ints_attribute("border", {1, 1, 0, 0}), ints_attribute("scale", {1, 2})},
       {image},
       {1, 2, 1, 2},
       {4, 5, 10, 11}},
  };
}

Maker model_of(const OldForm& form) {
  Maker m(form.opset);
  Names inputs, outputs;
  for (size_t i = 0; i < form.operands.size(); ++i) {
    proto::TensorProto t = form.operands[i];
    inputs.push_back("x" + std::to_string(i));
    t.set_name(inputs.back());
    if (i > 0) {
      m.weight(t);
      continue;
    }
    DimList dims;
    for (int64_t d : t.dims()) dims.emplace_back(d);
    m.input(inputs.back(), dims);
  }
  for (int i = 0; i < form.outputs; ++i) outputs.push_back("y" + std::to_string(i));
  auto n = node(form.op, inputs, outputs);
  for (const auto& a : form.attributes) *n.add_attribute() = a;
  m.add(n).output("y0");
  return m;
}

TEST(OldOpsets, ComputeWhatTheyDid) {
  for (const OldForm& form : old_forms()) {
    SCOPED_TRACE(form.op + " of opset " + std::to_string(form.opset));
    auto m = model_of(form).import_it();
    ASSERT_TRUE(m.ok()) << m.error().str();
    EXPECT_TRUE(verify(m->graph).ok()) << verify(m->graph).error().str();
    const auto& x = form.operands[0];
    Tensor input = Tensor::of<float>(DType::F32, Dims(x.dims().begin(), x.dims().end()),
                                     std::vector<float>(x.float_data().begin(), x.float_data().end()));
    auto y = evaluate_graph(m->graph, {{"x0", input}});
    ASSERT_TRUE(y.ok()) << y.error().str();
    EXPECT_EQ((*y)[0].dims(), form.dims);
    for (size_t i = 0; i < form.values.size(); ++i)
      EXPECT_NEAR((*y)[0].get_f64(static_cast<int64_t>(i)), form.values[i], 1e-5) << "element " << i;
  }
}

TEST(OldOpsets, WrongFormsAreNamed) {
  auto error = [](const OldForm& form, ErrorCode code, const Names& texts) {
    expect_error(model_of(form).import_it(), code, texts);
  };
  const auto ramp = f({2, 3}, {0, 1, 2, 3, 4, 5});
  error({"Cast", 1, {string_attribute("to", "FLOOT")}, {ramp}, {}, {}}, ErrorCode::BadAttribute, {"n_y0", "FLOOT"});
  error({"Add", 6, {int_attribute("broadcast", 1), int_attribute("axis", 5)}, {ramp, f({3}, {1, 2, 3})}, {}, {}},
        ErrorCode::BadAttribute, {"n_y0", "axis 5"});
  error({"Reshape", 1, {}, {ramp}, {}, {}}, ErrorCode::BadAttribute, {"n_y0", "'shape'"});
  error({"Affine", 10, {}, {ramp}, {}, {}}, ErrorCode::UnsupportedOp, {"'Affine' of opset 10"});
  error({"Relu", 1, {int_attribute("frob", 1)}, {ramp}, {}, {}}, ErrorCode::BadAttribute, {"n_y0", "frob"});
  error({"Relu", 1, {graph_attribute("frob", {})}, {ramp}, {}, {}}, ErrorCode::BadAttribute, {"n_y0", "frob"});
}

// ---- what ONNX Runtime loads as well, with one warning each
void expect_warning(const Maker& m, const std::string& text) {
  auto imported = m.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  ASSERT_EQ(imported->warnings.size(), 1u) << text;
  EXPECT_NE(imported->warnings[0].find(text), std::string::npos) << imported->warnings[0];
}

TEST(Tolerance, OneWarningEach) {
  Maker twice = relu_model();
  twice.import("ai.onnx", 18);
  expect_warning(twice, "imports the default domain twice, versions 17 and 18; the last one counts");
  EXPECT_EQ(twice.import_it()->info.opsets.at("ai.onnx"), 18);
  Maker none = relu_model();
  none.model.mutable_opset_import(0)->set_domain("ai.onnx.ml");
  none.add("Relu", {"y"}, {"z"}).output("z");
  expect_warning(none,
                 "operators of the default domain are used, and no opset of it is imported; version 28 is assumed");
  Maker domain = relu_model();
  domain.add("Binarizer", {"y"}, {"z"}, {float_attribute("threshold", 1)}, "ai.onnx.ml").output("z");
  expect_warning(domain, "domain 'ai.onnx.ml' are used, and no opset of it is imported; version 1 is assumed");

  Maker weights = relu_model();
  for (float v : {1.0f, 2.0f}) weights.weight(float_tensor("w", {}, {v}));
  weights.add("Add", {"y", "w"}, {"z"}).output("z");
  expect_warning(weights, "'w' is defined twice; the last one counts");
  auto sum =
      evaluate_graph(weights.import_it()->graph, {{"x", Tensor::of<float>(DType::F32, {1, 4}, std::vector<float>(4))}});
  ASSERT_TRUE(sum.ok()) << sum.error().str();
  EXPECT_EQ((*sum)[1].get_f64(0), 2);
  Maker unnamed = relu_model();
  unnamed.weight(float_tensor("", {}, {1}));
  expect_warning(unnamed, "has no name and is ignored");
  Maker unused = relu_model();
  for (const char* name : {"a", "b", "c", "d"}) unused.weight(float_tensor(name, {}, {1}));
  expect_warning(unused, "4 initializers are read by nothing: 'a', 'b', 'c' ...");
  Maker given = relu_model();
  given.input("w", {}).weight(float_tensor("w", {}, {1})).add("Add", {"y", "w"}, {"z"}).output("z");
  expect_warning(given, "1 inputs have an initializer and cannot be given: 'w'");
  given.model.set_ir_version(3); // where it must be so
  EXPECT_TRUE(given.import_it()->warnings.empty());
  Maker nothing = relu_model();
  nothing.model.clear_opset_import();
  expect_error(nothing.import_it(), ErrorCode::MalformedModel, {"imports no opset"});

  Maker order(17);
  order.input("x", {2}).add("Neg", {"a"}, {"y"}).add("Relu", {"x"}, {"a"}).output("y");
  expect_warning(order, "stands behind a node that reads its result");
  Maker shape = Maker().input("x", {"b", 4}).add("Relu", {"x"}, {"y"}).output("y", {"b", 5});
  expect_warning(shape, "'y' is declared as [b, 5], and its shape is [b, 4]");
  Maker dropout(6);
  dropout.input("x", {2}).add("Dropout", {"x"}, {"y"}).output("y");
  expect_warning(dropout, "is_test is 0");
}

TEST(Tolerance, NoWarningForWhatIsUsual) {
  for (int64_t version : {1, 2}) { // of the format: opset 1, which is not imported
    Maker old = relu_model();
    old.model.set_ir_version(version);
    old.model.clear_opset_import();
    auto m = old.import_it();
    ASSERT_TRUE(m.ok()) << m.error().str();
    EXPECT_EQ(m->info.opsets.at("ai.onnx"), 1);
    EXPECT_TRUE(m->warnings.empty());
  }
  // Operands and results that are left out, at the end and between others.
  auto m = Maker()
               .input("x", {2})
               .add("Clip", {"x", "", ""}, {"a"})
               .add("Dropout", {"a", "", ""}, {"b", ""})
               .output("b")
               .import_it();
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_TRUE(m->warnings.empty());
}

} // namespace
} // namespace tessera::onnx_test
