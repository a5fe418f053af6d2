// Plans of the model graphs: how many kernels they come to, and what stands alone.
#include "frontend/onnx/importer.h"
#include "graph/passes/pass.h"
#include "tests/fusion/harness.h"

namespace tessera {
namespace {

struct Model {
  const char* name;
  int kernels; // at most, library calls aside
};

class ModelPlan : public testing::TestWithParam<Model> {};

TEST_P(ModelPlan, IsFused) {
  ImportOptions import;
  import.missing_weights = ImportOptions::MissingWeights::Empty;
  auto model = onnx::import_file(std::string(TESSERA_SOURCE_DIR) + "/models/" + GetParam().name + ".onnx", import);
  ASSERT_TRUE(model.ok()) << model.error().str();
  Graph& graph = model->graph;
  auto passes = run_pipeline(graph, {});
  ASSERT_TRUE(passes.ok()) << passes.error().str();
  auto plan = plan_fusion(graph, generated());
  ASSERT_TRUE(plan.ok()) << plan.error().str();
  auto fine = verify(graph, *plan);
  EXPECT_TRUE(fine.ok()) << fine.error().str();
  std::string names;
  for (const auto& g : plan->groups)
    if (g.kind == Group::Kind::Kernel) names += g.name + "\n";
  EXPECT_LE(count(*plan, Group::Kind::Kernel), GetParam().kernels) << names;

  // Reductions stand together with what follows them: a softmax or a norm is one kernel, so no kernel reads a sum or
  // maximum per row that another one wrote.
  for (const auto& e : plan->ledger) {
    if (!graph.node(e.producer).op->reduction() || info(e.reason).fused) continue;
    if (!is_float(graph.type(e.value).dtype)) continue; // positions in a mask, counted once for all layers
    EXPECT_EQ(e.reason, FusionReason::OperandOfLibrary) << print(graph, *plan).substr(0, 2000); // a pooled feature
  }
  // Activations and additions never stand alone.
  for (const auto& g : plan->groups) {
    if (g.kind != Group::Kind::Kernel) continue;
    bool expensive = false;
    for (NodeId n : g.nest.sources) {
      auto name = graph.node(n).op->name;
      expensive = expensive || name == "erf" || name == "tanh" || name == "sigmoid";
    }
    EXPECT_FALSE(expensive) << g.name;
  }
  auto again = plan_fusion(graph, generated());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(print(graph, *plan), print(graph, *again));
}

INSTANTIATE_TEST_SUITE_P(Models, ModelPlan,
                         testing::Values(Model{"bert.legacy.f32", 40}, Model{"bert.dynamo.f32", 40},
                                         Model{"bert.dynamo.f16", 40}, Model{"gpt2.dynamo.f32", 66},
                                         Model{"gpt2.dynamo.f16", 66}, Model{"llama.dynamo.f32", 56},
                                         Model{"llama.dynamo.f16", 56}, Model{"vit.dynamo.f32", 38},
                                         Model{"vit.dynamo.f16", 38}, Model{"resnet50.legacy.f32", 2},
                                         Model{"resnet50.dynamo.f32", 2}, Model{"resnet50.dynamo.f16", 2},
                                         Model{"mobilenet_v3.legacy.f32", 18}, Model{"mobilenet_v3.dynamo.f32", 18},
                                         Model{"mobilenet_v3.dynamo.f16", 18}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

} // namespace
} // namespace tessera
