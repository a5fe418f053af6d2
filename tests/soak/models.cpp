#include "models.h"
#include "base/file.h"
#include "graph/reference/evaluator.h"
#include <cmath>
#include <functional>

namespace tessera::soak {
namespace {

using onnx_test::float_tensor;
using onnx_test::int_attribute;
using onnx_test::ints_attribute;
using onnx_test::Maker;
using Random = std::mt19937_64;

int64_t between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

std::vector<float> values(size_t count) {
  std::vector<float> v;
  for (size_t i = 0; i < count; ++i) v.push_back(static_cast<float>(i * 5 % 13) / 24 - 0.25F);
  return v;
}

Tensor numbers(Random& random, Dims dims) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  for (float& v : t.mutable_as<float>()) v = static_cast<float>(between(random, -8, 8)) / 8;
  return t;
}

// A product with what follows it, and a normalisation of rows.
Maker feed_forward() {
  Maker m;
  m.input("x", {"b", "s", 32}).output("y", {"b", "s", 32});
  m.weight(float_tensor("w", {32, 96}, values(32 * 96))).weight(float_tensor("c", {96}, values(96)));
  m.weight(float_tensor("v", {96, 32}, values(96 * 32))).weight(float_tensor("half", {1}, {0.5F}));
  m.add("MatMul", {"x", "w"}, {"p"}).add("Add", {"p", "c"}, {"q"}).add("Erf", {"q"}, {"e"});
  m.add("Mul", {"q", "e"}, {"g"}).add("Mul", {"g", "half"}, {"h"}).add("MatMul", {"h", "v"}, {"o"});
  m.add("Add", {"o", "x"}, {"r"}).add("Softmax", {"r"}, {"y"}, {int_attribute("axis", -1)});
  return m;
}

Maker convolution() {
  Maker m;
  m.input("x", {"b", 3, "h", "w"}).output("y", {"b", 4, 1, 1});
  m.weight(float_tensor("k", {4, 3, 3, 3}, values(108))).weight(float_tensor("c", {4}, values(4)));
  m.add("Conv", {"x", "k", "c"}, {"p"}).add("Relu", {"p"}, {"q"});
  m.add("MaxPool", {"q"}, {"n"}, {ints_attribute("kernel_shape", {2, 2}), ints_attribute("strides", {2, 2})});
  m.add("GlobalAveragePool", {"n"}, {"y"});
  return m;
}

// The mask is of each row, or of all: two dimensions that a compile without sizes takes as equal.
Maker attention() {
  Maker m;
  m.input("q", {"b", 2, "s", 8}).input("k", {"b", 2, "t", 8}).input("mask", {"m", 1, 1, "t"}).output("y");
  m.weight(float_tensor("scale", {1}, {0.353553F}));
  m.add("Transpose", {"k"}, {"kt"}, {ints_attribute("perm", {0, 1, 3, 2})}).add("MatMul", {"q", "kt"}, {"p"});
  m.add("Mul", {"p", "scale"}, {"a"}).add("Add", {"a", "mask"}, {"n"});
  m.add("Softmax", {"n"}, {"w"}, {int_attribute("axis", -1)}).add("MatMul", {"w", "k"}, {"y"});
  return m;
}

// Sizes that are data.
Maker places() {
  Maker m;
  m.input("x", {"n", 5}).output("y");
  m.weight(float_tensor("half", {1}, {0.5F}));
  m.add("Relu", {"x"}, {"a"}).add("NonZero", {"a"}, {"z"});
  m.add("Cast", {"z"}, {"f"}, {int_attribute("to", onnx_test::proto::TensorProto::FLOAT)});
  m.add("Mul", {"f", "half"}, {"y"});
  return m;
}

Inputs draw(const std::string& model, Random& random, bool one_variant) {
  const int64_t b = between(random, 1, 8), s = between(random, 1, 40), t = between(random, 2, 40);
  if (model == "feed_forward") return {{"x", numbers(random, {b, s, 32})}};
  if (model == "convolution") return {{"x", numbers(random, {b, 3, between(random, 5, 20), between(random, 5, 20)})}};
  if (model == "places") return {{"x", numbers(random, {b * s, 5})}};
  const int64_t rows = one_variant || between(random, 0, 1) == 0 ? b : 1;
  return {{"q", numbers(random, {b, 2, s, 8})},
          {"k", numbers(random, {b, 2, t, 8})},
          {"mask", numbers(random, {rows, 1, 1, t})}};
}

} // namespace

Result<std::vector<Model>> make_models(const std::string& folder, const std::string& device, int count, uint64_t seed,
                                       bool one_variant) {
  // Another order of summation; on a GPU, operands of convolutions that are rounded to TF32, too.
  const double tolerance = device == "cpu" ? 2e-5 : 2e-3;
  std::vector<Model> out;
  const std::pair<const char*, Maker (*)()> kinds[] = {
      {"feed_forward", feed_forward}, {"convolution", convolution}, {"attention", attention}, {"places", places}};
  for (const auto& [name, make] : kinds) {
    Model m{name, folder + "/" + name + ".onnx", device, tolerance, make(), {}};
    TESSERA_TRY(write_file(m.path, {m.maker.bytes()}));
    Random random(seed + out.size());
    for (int i = 0; i < count; ++i) {
      Case c{draw(name, random, one_variant), {}};
      ImportOptions import; // of these sizes as constants: it assumes nothing
      for (const auto& [input, tensor] : c.inputs) import.input_shapes[input] = tensor.dims();
      TESSERA_ASSIGN(auto imported, m.maker.import_it(import));
      TESSERA_ASSIGN(c.expected, evaluate_graph(imported.graph, c.inputs));
      m.cases.push_back(std::move(c));
    }
    out.push_back(std::move(m));
  }
  return out;
}

std::string difference(const Model& m, const Case& c, const std::vector<Tensor>& outputs) {
  if (outputs.size() != c.expected.size()) return std::to_string(outputs.size()) + " outputs";
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Tensor &got = outputs[o], &want = c.expected[o];
    if (got.dtype() != want.dtype() || got.dims() != want.dims())
      return "output " + std::to_string(o) + " is of another type or size";
    for (int64_t i = 0; i < want.count(); ++i) {
      const double g = got.get_f64(i), w = want.get_f64(i);
      if (!(std::abs(g - w) <= m.tolerance + m.tolerance * std::abs(w)))
        return "output " + std::to_string(o) + ", element " + std::to_string(i) + ": " + std::to_string(g) +
               ", expected " + std::to_string(w);
    }
  }
  return "";
}

} // namespace tessera::soak
