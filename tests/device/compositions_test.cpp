// Fused compositions over dtypes and shapes (empty, one, odd, prime, aligned, long and short rows), symbolic and
// static, compiled for the device and held against the reference evaluator of the graph.
#include "graph/ir/graph.h"
#include "graph/ops/samples.h"
#include "graph/reference/evaluator.h"
#include "tests/base/share.h"
#include "tests/device/device.h"
#include <algorithm>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// DT, N and M stand for the element type and the sizes.
struct Composition {
  const char* name;
  const char* text;
  bool floats_only = true;
};

const Composition kCompositions[] = {
    {"Softmax", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N, M]) { %y = Softmax(%x) axis=-1 : DT[N, M] })"},
    {"LogSoftmax", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N, M]) { %y = LogSoftmax(%x) axis=-1 : DT[N, M] })"},
    {"SoftmaxOfColumns", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N, M]) { %y = Softmax(%x) axis=0 : DT[N, M] })"},
    {"AddLayerNorm",
     R"(graph @main(%x: DT[N, M], %r: DT[N, M], %g: DT[M], %b: DT[M]) -> (%y: DT[N, M], %z: DT[N, M]) {
  %z = add(%x, %r) : DT[N, M]
  %y = LayerNormalization(%z, %g, %b) axis=-1 : DT[N, M] })"},
    {"RmsNormGelu", R"(graph @main(%x: DT[N, M], %g: DT[M]) -> (%y: DT[N, M]) {
  %n = RMSNormalization(%x, %g) axis=-1 : DT[N, M]
  %y = Gelu(%n) : DT[N, M] })"},
    {"BiasGeluMask", R"(graph @main(%x: DT[N, M], %b: DT[M], %m: DT[N, M]) -> (%y: DT[N, M]) {
  %s = add(%x, %b) : DT[N, M]
  %g = Gelu(%s) : DT[N, M]
  %y = mul(%g, %m) : DT[N, M] })"},
    {"SwiGlu", R"(graph @main(%x: DT[N, M], %u: DT[N, M]) -> (%y: DT[N, M]) {
  %s = sigmoid(%x) : DT[N, M]
  %h = mul(%x, %s) : DT[N, M]
  %y = mul(%h, %u) : DT[N, M] })"},
    {"AddTransposed", R"(graph @main(%x: DT[N, M], %t: DT[M, N]) -> (%y: DT[N, M]) {
  %p = transpose(%t) perm=[1, 0] : DT[N, M]
  %y = add(%x, %p) : DT[N, M] })",
     false},
    {"Transposed", R"(graph @main(%t: DT[M, N]) -> (%y: DT[N, M]) { %y = transpose(%t) perm=[1, 0] : DT[N, M] })",
     false},
    {"RowSums", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N]) { %y = reduce_sum(%x) axes=[1] keepdims=0 : DT[N] })",
     false},
    {"ColumnSums", R"(graph @main(%x: DT[N, M]) -> (%y: DT[M]) { %y = reduce_sum(%x) axes=[0] keepdims=0 : DT[M] })",
     false},
    {"SumOfAll", R"(graph @main(%x: DT[N, M]) -> (%y: DT[]) { %y = reduce_sum(%x) axes=[0, 1] keepdims=0 : DT[] })",
     false},
    {"RowMaxima", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N]) { %y = reduce_max(%x) axes=[1] keepdims=0 : DT[N] })",
     false},
    {"ArgMaxOfRows",
     R"(graph @main(%x: DT[N, M]) -> (%y: i64[N]) where NONEMPTY { %y = argmax(%x) axes=[1] keepdims=0 : i64[N] })",
     false},
    {"ArgMaxOfColumns",
     R"(graph @main(%x: DT[N, M]) -> (%y: i64[M]) where NONEMPTY { %y = argmax(%x) axes=[0] keepdims=0 : i64[M] })",
     false},
    {"VarianceOfRows", R"(graph @main(%x: DT[N, M]) -> (%v: DT[N]) {
  %q = mul(%x, %x) : DT[N, M]
  %s = ReduceMean(%q) axes=[1] keepdims=0 : DT[N]
  %m = ReduceMean(%x) axes=[1] keepdims=0 : DT[N]
  %w = mul(%m, %m) : DT[N]
  %v = sub(%s, %w) : DT[N] })"},
    {"RunningSums", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N, M]) { %y = scan(%x) axis=1 kind="sum" : DT[N, M] })",
     false},
    {"Reversed", R"(graph @main(%x: DT[N, M]) -> (%y: DT[N, M]) { %y = flip(%x) axes=[1] : DT[N, M] })", false},
    {"SideBySide",
     R"(graph @main(%x: DT[N, M], %z: DT[N, M]) -> (%y: DT[N, 2*M]) { %y = concat(%x, %z) axis=1 : DT[N, 2*M] })",
     false},
};

struct Shape {
  int64_t n, m;
};
const Shape kShapes[] = {{0, 5},   {5, 0},    {1, 1},    {1, 7},     {3, 1},    {7, 13},   {16, 64},
                         {33, 97}, {128, 96}, {5, 1000}, {2, 16385}, {4099, 3}, {64, 768}, {1, 70001}};
const DType kTypes[] = {DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::U8};

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

Graph make(const Composition& c, DType dtype, Shape s, bool symbolic) {
  std::string text = c.text;
  std::string facts = symbolic ? "n in [0, ?], m in [0, ?]" : "";
  if (text.find("where NONEMPTY") != std::string::npos)
    text = replace_all(text, "where NONEMPTY", symbolic ? "where n in [1, ?], m in [1, ?]" : "");
  else if (symbolic)
    text.insert(text.find(" {", text.find("->")), " where " + facts);
  text = replace_all(text, "DT", std::string(name(dtype)));
  text = replace_all(text, "2*M", symbolic ? "2*m" : std::to_string(2 * s.m));
  text = replace_all(text, "[N", symbolic ? "[n" : "[" + std::to_string(s.n));
  text = replace_all(text, "[M", symbolic ? "[m" : "[" + std::to_string(s.m));
  text = replace_all(text, ", N]", symbolic ? ", n]" : ", " + std::to_string(s.n) + "]");
  text = replace_all(text, ", M]", symbolic ? ", m]" : ", " + std::to_string(s.m) + "]");
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << text << "\n" << (graph.ok() ? "" : graph.error().str());
  return graph.ok() ? std::move(*graph) : Graph();
}

double tolerance(DType d) {
  return d == DType::F16 ? 2e-3 : d == DType::BF16 ? 1.2e-2 : d == DType::F64 ? 1e-12 : 1e-5;
}

class Compositions : public testing::TestWithParam<std::tuple<size_t, DType>> {};

TEST_P(Compositions, AgreesWithTheReference) {
  const Composition& c = kCompositions[std::get<0>(GetParam())];
  DType dtype = std::get<1>(GetParam());
  bool needs_elements = std::string(c.text).find("NONEMPTY") != std::string::npos;
  std::optional<Compiled> generic;
  std::unique_ptr<Executor> executor;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const Shape& s = kShapes[i];
    if ((needs_elements && (s.n == 0 || s.m == 0)) || !device_test::is_wanted(i, std::size(kShapes))) continue;
    SCOPED_TRACE(std::to_string(s.n) + " x " + std::to_string(s.m));
    Graph source = make(c, dtype, s, true);
    if (!executor) { // one compile serves every shape
      auto compiled = compile(make(c, dtype, s, true), device_test::options());
      ASSERT_TRUE(compiled.ok()) << compiled.error().str();
      EXPECT_EQ(compiled->executable->host_steps, 0);
      generic = std::move(*compiled);
      ExecutorOptions o;
      o.pool = ThreadPool::create(2);
      o.poison = true;
      auto made = Executor::create({generic->executable}, o);
      ASSERT_TRUE(made.ok()) << made.error().str();
      executor = std::move(*made);
    }
    std::map<std::string, Tensor> inputs;
    uint64_t seed = static_cast<uint64_t>(s.n * 131 + s.m);
    // Long sums of either sign cancel, and the order of adding shows.
    const double lowest = std::string(c.name).find("Sum") == std::string::npos ? -2 : -0.5;
    for (auto v : source.inputs()) {
      Dims dims;
      for (const auto& d : source.type(v).shape) {
        auto symbol = d.str();
        dims.push_back(symbol == "n" ? s.n : symbol == "m" ? s.m : 0);
      }
      inputs[source.value(v).name] =
          is_float(dtype) ? ops::random(dtype, dims, ++seed, lowest) : ops::random(dtype, dims, ++seed, 0, 3);
    }
    auto expected = evaluate_graph(source, inputs);
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    auto check = [&](const Result<std::vector<Tensor>>& got, const char* which) {
      ASSERT_TRUE(got.ok()) << which << ": " << got.error().str();
      ASSERT_EQ(got->size(), expected->size());
      for (size_t o = 0; o < got->size(); ++o) {
        Comparison compared = compare((*got)[o], (*expected)[o], 0, 0);
        bool exact = !is_float((*got)[o].dtype());
        EXPECT_TRUE(compared.same || (!exact && compared.norm_ratio <= tolerance(dtype)))
            << which << ", output " << o << ": " << compared.message;
      }
    };
    check(executor->run(inputs), "symbolic");
    if (s.n * s.m <= 20000) check(device_test::compile_and_run(make(c, dtype, s, false), inputs), "static");
  }
}

std::vector<std::tuple<size_t, DType>> compositions() {
  std::vector<std::tuple<size_t, DType>> out;
  test::Share share;
  for (size_t c = 0; c < std::size(kCompositions); ++c)
    for (DType dtype : kTypes)
      if ((is_float(dtype) || !kCompositions[c].floats_only) &&
          share.takes({kCompositions[c].name, std::string(name(dtype))}))
        out.emplace_back(c, dtype);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Compositions, testing::ValuesIn(compositions()), [](const auto& info) {
  return std::string(kCompositions[std::get<0>(info.param)].name) + "_" + std::string(name(std::get<1>(info.param)));
});

} // namespace
} // namespace tessera
