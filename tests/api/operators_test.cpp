// Operators that a program registers itself. tests/python/custom_operators_test.py has those of shared libraries.
#include "api/operators.hpp"
#include "harness.h"

TESSERA_OPERATORS(library) {
  using namespace tessera::operators;
  // Sums of neighbours: attributes, several operands, sizes that are computed.
  Operator blend("com.example.program", "Blend");
  blend.variadic("x").attribute("weights", Kind::Floats, true);
  blend.decompose([](Decomposition& d) {
    const std::vector<double> weights = d.numbers("weights");
    if (static_cast<int>(weights.size()) != d.operands()) throw std::runtime_error("one weight for each operand");
    Value sum;
    for (int i = 0; i < d.operands(); ++i) {
      const Value part = d.op("Mul", {d.operand(i), d.constant(d.dtype(i), weights[static_cast<size_t>(i)])});
      sum = i == 0 ? part : d.op("Add", {sum, part});
    }
    d.result(0, sum);
  });
  library.add(blend);

  // Every n-th element of a vector; n is an operand.
  Operator every("com.example.program", "Every");
  every.operand("x").operand("n");
  every.shape([](ShapeCall& c) {
    const std::vector<Dim> n = c.contents(1, 1);
    int64_t step = 0;
    if (n.size() != 1 || !n[0].is_number(&step) || step < 1) throw std::runtime_error("n is a positive constant");
    c.result(0, c.dtype(0), {ceil_div(c.dim(0, 0), step)});
  });
  every.run([](Run& r) {
    const tessera_tensor x = r.operand(0);
    const int64_t n = *r.data<int64_t>(1), count = (x.dims[0] + n - 1) / n;
    auto* out = static_cast<float*>(r.result(0, TESSERA_F32, {count}));
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<const float*>(x.data)[i * n];
  });
  library.add(every);
}

namespace tessera::api_test {
namespace {

class Program : public testing::Test {
protected:
  static void SetUpTestSuite() { ASSERT_EQ(tessera_add_operators(tessera_register_operators), nullptr); }
};
Maker of_program() { return std::move(Maker().import("com.example.program", 1)); }

TEST_F(Program, ADecompositionIsOneKernel) {
  Maker m = of_program();
  onnx_test::proto::AttributeProto weights;
  weights.set_name("weights");
  weights.set_type(onnx_test::proto::AttributeProto::FLOATS);
  for (float w : {0.5f, 2.0f, -1.0f}) weights.add_floats(w);
  m.input("a", {"n", 3}).input("b", {"n", 3}).input("c", {3});
  m.add("Blend", {"a", "b", "c"}, {"y"}, {weights}, "com.example.program").output("y");
  auto session = open(m);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->variants()[0]->compiled->executable->steps.size(), 1u);
  const Tensor a = numbers({2, 3}, 1), b = numbers({2, 3}, 2), c = numbers({3}, 3);
  auto y = session->run({{"a", a}, {"b", b}, {"c", c}});
  ASSERT_TRUE(y.ok()) << y.error().str();
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_FLOAT_EQ((*y)[0].as<float>()[static_cast<size_t>(i)],
                    static_cast<float>(0.5 * a.get_f64(i) + 2 * b.get_f64(i) - c.get_f64(i % 3)));
  weights.add_floats(1);
  Maker wrong = of_program();
  wrong.input("a", {3}).add("Blend", {"a"}, {"y"}, {weights}, "com.example.program").output("y");
  auto refused = wrong.import_it();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().str().find("one weight for each operand"), std::string::npos) << refused.error().str();
  Maker without = of_program();
  without.input("a", {3}).add("Blend", {"a"}, {"y"}, {}, "com.example.program").output("y");
  EXPECT_EQ(without.import_it().error().code, ErrorCode::BadAttribute);
}

TEST_F(Program, AFunctionReadsIntegersOfOperands) {
  Maker m = of_program();
  m.input("x", {"n"}).weight(onnx_test::int64_tensor("step", {}, {3}));
  m.add("Every", {"x", "step"}, {"y"}, {}, "com.example.program").add("Neg", {"y"}, {"z"}).output("z");
  auto session = open(m);
  ASSERT_TRUE(session);
  for (int64_t n : {0, 1, 3, 10}) {
    const Tensor x = numbers({n});
    auto z = session->run({{"x", x}});
    ASSERT_TRUE(z.ok()) << z.error().str();
    ASSERT_EQ((*z)[0].count(), (n + 2) / 3);
    for (int64_t i = 0; i < (*z)[0].count(); ++i) EXPECT_EQ((*z)[0].get_f64(i), -x.get_f64(3 * i));
  }
}

TEST_F(Program, NamesAreTakenOnce) {
  const char* error = tessera_add_operators(tessera_register_operators);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find("is defined already"), std::string::npos) << error;
  EXPECT_NE(tessera_add_operators(nullptr), nullptr);
  EXPECT_NE(tessera_load_operators(nullptr), nullptr);
  EXPECT_NE(tessera_add_operators([](const tessera_operators_api* api, tessera_registry* registry) -> const char* {
              tessera_operator op{};
              op.struct_size = 8;
              op.name = "Small";
              return api->add(registry, &op);
            }),
            nullptr);
}

} // namespace
} // namespace tessera::api_test
