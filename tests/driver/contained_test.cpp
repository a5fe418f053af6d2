// A failure at any stage of a compile costs a schedule, a route or a pass, never the process, and hardly ever the
// compile: three models, on the host with results held against the reference, and for a GPU.
#include "base/guarded.h"
#include "codegen/driver/detours.h"
#include "codegen/driver/pipeline.h"
#include "harness.h"
#include "tests/base/share.h"
#include <filesystem>

namespace tessera::driver_test {
namespace {

using onnx_test::int_attribute;

struct Model {
  const char* name;
  Maker model;
  Inputs inputs;
};

// Two products, and a softmax.
Model mlp(bool) {
  Maker m;
  m.input("x", {"b", 8}).output("y", {"b", 8});
  m.input("w", {8, 16}).input("c", {16}).input("u", {16, 8});
  m.add("MatMul", {"x", "w"}, {"p"}).add("Add", {"p", "c"}, {"q"}).add("Tanh", {"q"}, {"r"});
  m.add("MatMul", {"r", "u"}, {"s"}).add("Softmax", {"s"}, {"y"}, {int_attribute("axis", -1)});
  return {"mlp",
          m,
          {{"x", random(DType::F32, {3, 8}, 1)},
           {"w", random(DType::F32, {8, 16}, 2)},
           {"c", random(DType::F32, {16}, 3)},
           {"u", random(DType::F32, {16, 8}, 4)}}};
}

// Attention, which a GPU takes as one in half precision, and a layer norm.
Model attention(bool half) {
  const DType type = half ? DType::F16 : DType::F32;
  const int element = info(type).onnx;
  Maker m;
  for (const char* name : {"q", "k", "v"}) m.input(name, {"b", 2, "s", 16}, element);
  m.input("g", {16}, element).output("y", {"b", 2, "s", 16}, element);
  m.add("Transpose", {"k"}, {"t"}, {onnx_test::ints_attribute("perm", {0, 1, 3, 2})});
  m.add("MatMul", {"q", "t"}, {"s"}).add("Softmax", {"s"}, {"p"}, {int_attribute("axis", -1)});
  m.add("MatMul", {"p", "v"}, {"o"}).add("LayerNormalization", {"o", "g"}, {"y"});
  return {"attention",
          m,
          {{"q", random(type, {1, 2, 5, 16}, 1)},
           {"k", random(type, {1, 2, 5, 16}, 2)},
           {"v", random(type, {1, 2, 5, 16}, 3)},
           {"g", random(type, {16}, 4)}}};
}

onnx_test::proto::GraphProto branch(const char* op, const char* name) {
  Maker body;
  body.output(name);
  body.add(op, {"v"}, {name});
  return body.graph();
}

// A loop, a branch and a sort.
Model control(bool) {
  Maker m;
  m.input("n", {}, onnx_test::proto::TensorProto::INT64).input("on", {}, onnx_test::proto::TensorProto::BOOL);
  m.input("x", {"b", 6}).output("y").output("i");
  m.weight(onnx_test::int64_tensor("three", {1}, {3}));
  Maker body;
  body.input("it", {}, onnx_test::proto::TensorProto::INT64);
  body.input("go", {}, onnx_test::proto::TensorProto::BOOL).input("h", {"b", 6});
  body.output("stay", {}, onnx_test::proto::TensorProto::BOOL).output("next", {"b", 6});
  body.add("Identity", {"go"}, {"stay"}).add("Tanh", {"h"}, {"f"}).add("Add", {"f", "x"}, {"next"});
  m.add("Loop", {"n", "", "x"}, {"v"}, {onnx_test::graph_attribute("body", body.graph())});
  m.add("If", {"on"}, {"z"},
        {onnx_test::graph_attribute("then_branch", branch("Exp", "a")),
         onnx_test::graph_attribute("else_branch", branch("Neg", "c"))});
  m.add("TopK", {"z", "three"}, {"y", "i"}, {int_attribute("axis", -1)});
  return {"control",
          m,
          {{"n", Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{3})},
           {"on", Tensor::of<int64_t>(DType::Bool, {}, std::vector<int64_t>{0})},
           {"x", random(DType::F32, {2, 6}, 1)}}};
}

// True for stages that a compile cannot replace by another way where they fail each time.
bool inevitable(const std::string& failure) {
  for (const char* stage : {"pass", "pass-end", "pass/fuse:1", "pass-end/fuse:1", "fuse", "executable", "step"})
    if (failure == stage) return true;
  return false;
}

// Failures at every stage, each time and once, and behind every pass.
std::vector<std::string> failures(const std::string& device) {
  std::vector<std::string> out;
  for (const FailureStage& stage : failure_stages())
    if (stage.name != "import")
      for (const char* when : {"", ":1"}) out.push_back(std::string(stage.name) + when);
  const std::vector<std::string> passes = compile_pipeline(device).value();
  for (const std::string& pass : passes) out.push_back("pass-end/" + pass + ":1");
  test::Share share;
  std::erase_if(out, [&](const std::string& failure) {
    return !share.takes(
        {failure.substr(0, failure.find_first_of("/:")), failure.ends_with(":1") ? "once" : "each time"});
  });
  return out;
}

class Contained : public testing::TestWithParam<Model (*)(bool)> {
protected:
  ~Contained() override { inject_failure(""); }
  Graph graph(const Model& model) const {
    auto imported = model.model.import_it();
    EXPECT_TRUE(imported.ok()) << imported.error().str();
    return std::move(imported->graph);
  }
  TemporaryFolder cache_;
};

TEST_P(Contained, OnTheHost) {
  const Model model = GetParam()(false);
  const Graph source = graph(model);
  CompileOptions o = options(cache_.path());
  size_t contained = 0;
  const std::vector<std::string> all = failures("cpu");
  for (const std::string& failure : all) {
    SCOPED_TRACE(failure);
    ASSERT_TRUE(inject_failure(failure));
    auto compiled = compile(source.clone(), o);
    inject_failure("");
    if (!compiled.ok()) {
      EXPECT_EQ(compiled.error().code, ErrorCode::Internal) << compiled.error().str();
      EXPECT_TRUE(inevitable(failure)) << compiled.error().str();
      continue;
    }
    expect_right(source, *compiled, model.inputs, 1e-5);
    if (HasFatalFailure()) return;
    for (const ContainedFailure& c : compiled->report.contained) {
      ++contained;
      EXPECT_FALSE(c.instead.empty());
      const bool last = &c == &compiled->report.contained.back(); // the place keeps the last ones
      EXPECT_TRUE(!last || std::filesystem::exists(c.saved)) << c.str();
    }
  }
  EXPECT_GT(contained, all.size() / 2);
  const auto texts = std::filesystem::directory_iterator(cache_.path() + "/failures");
  EXPECT_LE(std::distance(begin(texts), end(texts)), 16); // a bounded place
  for (int i = 0; i < 10; ++i) {                          // locks, caches and threads are as they were
    o.cache = i % 2 == 0;
    const Compiled good = compile_it(source.clone(), o);
    EXPECT_TRUE(good.report.contained.empty());
    expect_right(source, good, model.inputs, 1e-5);
  }
}

TEST_P(Contained, ForAGpu) {
  const Model model = GetParam()(true);
  const Graph source = graph(model);
  CompileOptions o = options(cache_.path());
  o.device = "cuda";
  o.arch = "sm_90a";
  for (const std::string& failure : failures("cuda")) {
    SCOPED_TRACE(failure);
    ASSERT_TRUE(inject_failure(failure));
    auto compiled = compile(source.clone(), o);
    inject_failure("");
    EXPECT_TRUE(compiled.ok() || inevitable(failure)) << compiled.error().str();
  }
  const Compiled good = compile_it(source.clone(), o);
  EXPECT_TRUE(good.report.contained.empty());
}

INSTANTIATE_TEST_SUITE_P(Models, Contained, testing::Values(mlp, attention, control),
                         [](const auto& info) { return info.param(false).name; });

// The order is: another schedule, then the operators alone, then the host.
TEST(Detours, OfAKernelComeInOrder) {
  const TemporaryFolder cache;
  const Model model = mlp(false);
  auto imported = model.model.import_it();
  ASSERT_TRUE(imported.ok());
  auto instead = [&](const std::string& failure) {
    inject_failure(failure);
    CompileOptions o = options(cache.path());
    o.cache = false;
    const Compiled compiled = compile_it(imported->graph.clone(), o);
    inject_failure("");
    std::string out;
    for (const ContainedFailure& c : compiled.report.contained) out += c.instead + "\n";
    return std::pair(out, compiled.executable ? compiled.executable->host_steps : -1);
  };
  auto [once, none] = instead("emit:1");
  EXPECT_NE(once.find("the next schedule after"), std::string::npos) << once;
  EXPECT_EQ(none, 0);
  auto [always, all] = instead("emit");
  const size_t next = always.find("the next schedule"), alone = always.find("planned alone"),
               host = always.find("the host runs it");
  EXPECT_LT(next, alone) << always;
  EXPECT_LT(alone, host) << always;
  EXPECT_NE(host, std::string::npos) << always;
  EXPECT_GT(all, 0);
}

// An attention whose kernel fails becomes its three steps.
TEST(Detours, OfAnAttentionAreItsSteps) {
  const TemporaryFolder cache;
  auto imported = attention(true).model.import_it();
  ASSERT_TRUE(imported.ok());
  CompileOptions o = options(cache.path());
  o.device = "cuda";
  o.arch = "sm_90a";
  o.cudnn = false;
  inject_failure("own:1");
  const Compiled compiled = compile_it(imported->graph.clone(), o);
  inject_failure("");
  ASSERT_EQ(compiled.report.contained.size(), 1U);
  EXPECT_EQ(compiled.report.contained[0].instead, "its three steps are planned");
  EXPECT_EQ(compiled.executable->host_steps, 0);
  bool told = false;
  for (const LedgerEntry& e : compiled.report.plan.ledger) told = told || e.reason == FusionReason::InternalFailure;
  EXPECT_TRUE(told);
}

} // namespace
} // namespace tessera::driver_test
