// compile(): graph text in, an executable with the right number of kernels, objects and host steps out, right results.
#include "harness.h"
#include "tests/base/share.h"
#include <cmath>
#include <set>

namespace tessera::driver_test {
namespace {

// A normalization over rows, twice: enough for reductions, broadcasts and a library call between.
constexpr const char* kLayers = R"(
graph @main(%x: f32[b, 32], %w: f32[32, 32]) -> (%y: f32[b, 32]) where b in [0, ?] {
  %eps = constant {1e-05} : f32[]
  %part = constant {0.03125} : f32[]
  %s0 = reduce_sum(%x) axes=[1] keepdims=1 : f32[b, 1]
  %m0 = mul(%s0, %part) : f32[b, 1]
  %d0 = sub(%x, %m0) : f32[b, 32]
  %q0 = mul(%d0, %d0) : f32[b, 32]
  %t0 = reduce_sum(%q0) axes=[1] keepdims=1 : f32[b, 1]
  %v0 = mul(%t0, %part) : f32[b, 1]
  %e0 = add(%v0, %eps) : f32[b, 1]
  %i0 = rsqrt(%e0) : f32[b, 1]
  %n0 = mul(%d0, %i0) : f32[b, 32]
  %p0 = matmul(%n0, %w) : f32[b, 32]
  %s1 = reduce_sum(%p0) axes=[1] keepdims=1 : f32[b, 1]
  %m1 = mul(%s1, %part) : f32[b, 1]
  %d1 = sub(%p0, %m1) : f32[b, 32]
  %q1 = mul(%d1, %d1) : f32[b, 32]
  %t1 = reduce_sum(%q1) axes=[1] keepdims=1 : f32[b, 1]
  %v1 = mul(%t1, %part) : f32[b, 1]
  %e1 = add(%v1, %eps) : f32[b, 1]
  %i1 = rsqrt(%e1) : f32[b, 1]
  %n1 = mul(%d1, %i1) : f32[b, 32]
  %p1 = matmul(%n1, %w) : f32[b, 32]
  %y = tanh(%p1) : f32[b, 32]
}
)";

int kernels(const Compiled& c) {
  int n = 0;
  for (const auto& s : c.executable->steps) n += std::holds_alternative<KernelLaunch>(s);
  return n;
}
Inputs layers_inputs(int64_t b) { return {{"x", random(DType::F32, {b, 32})}, {"w", random(DType::F32, {32, 32}, 2)}}; }

TEST(Compile, KernelsOfEqualTextAreCompiledOnce) {
  TemporaryFolder folder;
  auto c = compile_it(parse(kLayers), options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_EQ(kernels(c), 2) << "one normalization each, the tanh is the second product's epilogue";
  EXPECT_EQ(c.executable->objects.size(), 2u) << "both normalizations share one";
  EXPECT_EQ(c.report.cache_misses, 2);
  EXPECT_EQ(c.report.kernels.size(), 3u) << "what is reported is one each";
  std::set<std::string> names;
  for (const auto& k : c.report.kernels) names.insert(k.name);
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(c.executable->host_steps, 0);
  for (int64_t b : {0, 1, 3, 64, 131}) {
    SCOPED_TRACE(b);
    expect_right(parse(kLayers), c, layers_inputs(b), 1e-4);
  }
}

TEST(Compile, WithoutFusionTheResultsAreTheSame) {
  TemporaryFolder folder;
  auto o = options(folder.path());
  auto fused = compile_it(parse(kLayers), o);
  o.fusion = false;
  auto plain = compile_it(parse(kLayers), o);
  ASSERT_TRUE(fused.executable && plain.executable);
  EXPECT_GT(plain.executable->steps.size(), 2 * fused.executable->steps.size());
  for (int64_t b : {1, 37}) {
    auto a = run(fused, layers_inputs(b)), p = run(plain, layers_inputs(b));
    ASSERT_TRUE(a.ok() && p.ok());
    for (int64_t i = 0; i < (*a)[0].count(); ++i) ASSERT_NEAR((*a)[0].get_f64(i), (*p)[0].get_f64(i), 2e-6) << i;
    expect_right(parse(kLayers), plain, layers_inputs(b), 1e-4);
  }
}

TEST(Compile, StrictRoundingRoundsAfterEveryOperator) {
  constexpr const char* kText = R"(
graph @main(%x: f16[n], %y: f16[n], %z: f16[n]) -> (%r: f16[n]) where n in [0, ?] {
  %a = mul(%x, %y) : f16[n]
  %b = add(%a, %z) : f16[n]
  %c = div(%b, %y) : f16[n]
  %r = sub(%c, %x) : f16[n]
}
)";
  TemporaryFolder folder;
  auto o = options(folder.path());
  auto loose = compile_it(parse(kText), o);
  o.strict_rounding = true;
  auto strict = compile_it(parse(kText), o);
  Inputs in{
      {"x", random(DType::F16, {1000})}, {"y", random(DType::F16, {1000}, 2)}, {"z", random(DType::F16, {1000}, 3)}};
  for (int64_t i = 0; i < 1000; ++i)
    if (std::abs(in["y"].get_f64(i)) < 0.1) in["y"].set_f64(i, 1.7);
  expect_right(parse(kText), strict, in, 0); // operator by operator, as the reference does
  expect_right(parse(kText), loose, in, 0.05);
  auto a = run(strict, in), b = run(loose, in);
  ASSERT_TRUE(a.ok() && b.ok());
  int different = 0;
  for (int64_t i = 0; i < 1000; ++i) different += (*a)[0].get_f64(i) != (*b)[0].get_f64(i);
  EXPECT_GT(different, 0) << "otherwise this test shows nothing";
}

TEST(Compile, WhatTheHostRunsIsReportedWithItsReason) {
  auto model =
      Maker()
          .input("x", {"n"})
          .add("NonZero", {"x"}, {"at"})
          .add("Neg", {"x"}, {"y"})
          .add("Cast", {"x"}, {"h"}, {onnx_test::int_attribute("to", onnx_test::proto::TensorProto::FLOAT8E4M3FN)})
          .add("Cast", {"h"}, {"z"}, {onnx_test::int_attribute("to", onnx_test::proto::TensorProto::FLOAT)})
          .output("at", {1, "count"}, onnx_test::proto::TensorProto::INT64)
          .output("y")
          .output("z");
  model.model.mutable_opset_import(0)->set_version(19);
  auto imported = model.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  TemporaryFolder folder;
  Graph source = imported->graph.clone();
  auto c = compile_it(std::move(imported->graph), options(folder.path()));
  ASSERT_TRUE(c.executable);
  std::map<std::string, std::string> reasons;
  for (const auto& s : c.executable->steps)
    if (const auto* h = std::get_if<HostStep>(&s)) {
      EXPECT_FALSE(h->reason.empty()) << h->name;
      reasons[h->name] = h->reason;
    }
  EXPECT_EQ(c.executable->host_steps, 0);
  EXPECT_EQ(reasons["n_at"], "the sizes of its results depend on data");
  for (const char* generated : {"n_y", "n_h", "n_z"}) EXPECT_FALSE(reasons.contains(generated)) << generated;
  std::string plan = print(*c.graph, c.report.plan);
  Inputs in{{"x", random(DType::F32, {9})}};
  in["x"].set_f64(4, 0);
  expect_right(source, c, in, 0);
}

TEST(Compile, ASizeOfDataThatMeetsAnInputIsBoundByItsStep) {
  auto model = Maker()
                   .input("x", {"n"})
                   .input("v", {1, "r"}, onnx_test::proto::TensorProto::INT64)
                   .add("NonZero", {"x"}, {"at"})
                   .add("Add", {"at", "v"}, {"y"})
                   .output("y");
  auto imported = model.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  TemporaryFolder folder;
  auto c = compile_it(std::move(imported->graph), options(folder.path()));
  ASSERT_TRUE(c.executable);
  int defined = 0;
  for (const auto& s : c.executable->steps)
    if (const auto* h = std::get_if<HostStep>(&s)) defined += static_cast<int>(h->defines.size());
  EXPECT_EQ(defined, 1) << "though the size is known to be r under the guard, the guard needs what it was called";
}

TEST(Compile, AGraphWithoutKernelsIsCopies) {
  TemporaryFolder folder;
  auto c = compile_it(
      parse("graph @main(%x: f32[n, 3]) -> (\"a\" = %x: f32[n, 3], \"b\" = %x: f32[n, 3]) where n in [0, ?] {\n}\n"),
      options(folder.path()));
  ASSERT_TRUE(c.executable);
  EXPECT_EQ(c.executable->objects.size(), 0u);
  auto out = run(c, {{"x", random(DType::F32, {4, 3})}});
  ASSERT_TRUE(out.ok()) << out.error().str();
  for (const auto& o : *out)
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(o.get_f64(i), random(DType::F32, {4, 3}).get_f64(i));
}

TEST(Compile, KeepsTextsWhenAsked) {
  TemporaryFolder folder;
  auto o = options(folder.path());
  o.keep_texts = true;
  for (int i = 0; i < 2; ++i) { // also when the object is in the cache
    auto c = compile_it(parse(kLayers), o);
    ASSERT_TRUE(c.executable);
    for (const auto& k : c.report.kernels) {
      EXPECT_NE(k.tile_text.find("tile.kernel"), std::string::npos) << k.name;
      EXPECT_NE(k.llvm_text.find("define"), std::string::npos) << k.name;
    }
  }
}

// ---- the model graphs that come with the project

class Models : public testing::TestWithParam<std::string> {};
TEST_P(Models, CompileWithoutHostSteps) {
  static const TemporaryFolder folder; // the same kernels recur between models
  ImportOptions import;
  import.missing_weights = ImportOptions::MissingWeights::Empty;
  auto load = [&]() -> Graph {
    auto model = onnx::import_file(std::string(TESSERA_SOURCE_DIR) + "/models/" + GetParam() + ".onnx", import);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().str());
    return model.ok() ? std::move(model->graph) : Graph();
  };
  auto c = compile_it(load(), options(folder.path()));
  ASSERT_TRUE(c.executable);
  for (const auto& s : c.executable->steps)
    if (const auto* h = std::get_if<HostStep>(&s))
      ADD_FAILURE() << h->name << " (" << h->op << ") runs on the host: " << h->reason;
  EXPECT_EQ(c.executable->host_steps, 0);
  EXPECT_GT(c.executable->steps.size(), 0u);
  EXPECT_TRUE(c.report.cache_warnings.empty());
  auto again = compile_it(load(), options(folder.path()));
  ASSERT_TRUE(again.executable);
  EXPECT_EQ(again.report.cache_misses, 0) << "the same input gives the same kernels";
  EXPECT_EQ(again.executable->steps.size(), c.executable->steps.size());
  EXPECT_EQ(again.executable->objects, c.executable->objects);
}
INSTANTIATE_TEST_SUITE_P(All, Models,
                         testing::ValuesIn(test::some_models(
                             {"bert.dynamo.f16", "bert.dynamo.f32", "bert.legacy.f32", "gpt2.dynamo.f16",
                              "gpt2.dynamo.f32", "llama.dynamo.f16", "llama.dynamo.f32", "mobilenet_v3.dynamo.f16",
                              "mobilenet_v3.dynamo.f32", "mobilenet_v3.legacy.f32", "resnet50.dynamo.f16",
                              "resnet50.dynamo.f32", "resnet50.legacy.f32", "vit.dynamo.f16", "vit.dynamo.f32"})),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name)
                             if (c == '.') c = '_';
                           return name;
                         });

} // namespace
} // namespace tessera::driver_test
