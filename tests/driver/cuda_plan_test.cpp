// Plans for an NVIDIA GPU, made without one: what of the models' layers the libraries compute with which epilogue, what
// is refused and why. The texts in golden/ are rewritten with TESSERA_BLESS=1.
#include "frontend/onnx/importer.h"
#include "fusion/activation.h"
#include "fusion/cost.h"
#include "graph/ir/operator.h"
#include "graph/passes/pass.h"
#include "tests/driver/cuda.h"
#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace tessera {
namespace {

Result<FusionPlan> plan_for_cuda(Graph& graph, const CudaLibraries& libraries = {}) {
  TESSERA_TRY(driver_test::legalize_for_cuda(graph, libraries));
  return plan_fusion(graph, driver_test::cuda_fusion(libraries));
}

// One line for each kind of group and of refusal, in order of first appearance, with how often it occurs.
std::string summary(const Graph& graph, const FusionPlan& plan) {
  std::vector<std::pair<std::string, int>> lines;
  auto count = [&](const std::string& line) {
    for (auto& [text, n] : lines)
      if (text == line) {
        ++n;
        return;
      }
    lines.emplace_back(line, 1);
  };
  int kernels = 0;
  for (const auto& group : plan.groups) {
    if (group.kind == Group::Kind::Kernel) ++kernels;
    if (group.kind == Group::Kind::Host) count("host " + std::string(graph.node(group.node).op->name));
    if (group.kind == Group::Kind::Attention) {
      const auto& a = group.attention;
      std::string line = "attention " + std::string(name(graph.type(a.out.value).dtype)) + " " + str(a.q.shape);
      line += " over " + a.k.shape[a.k.shape.size() - 2].str() + " keys";
      if (a.fixed && a.fixed->bias)
        line += ", bias " + str(a.fixed->bias->strides) + (a.fixed->bias_nest ? " of a kernel" : "");
      if (a.fixed && a.fixed->causal) line += ", causal";
      count(line);
    }
    if (group.kind != Group::Kind::Library) continue;
    const auto& call = group.call;
    std::string line(graph.node(call.node).op->name);
    line += " " + std::string(name(graph.type(call.result.value).dtype)) + " " + str(call.result.shape);
    if (call.result.value != graph.node(call.node).results[0]) line += ", stored transposed";
    std::ostringstream alpha;
    alpha << call.scale * (call.fixed ? call.fixed->alpha : 1);
    if (alpha.str() != "1") line += ", times " + alpha.str();
    if (call.fixed) {
      if (call.fixed->bias) line += ", bias along " + std::to_string(call.fixed->bias_dim);
      if (call.fixed->residual) line += ", residual";
      if (call.fixed->activation != FixedEpilogue::Activation::None)
        line += ", " + std::string(fusion::name(call.fixed->activation));
    }
    count(line);
  }
  for (const auto& edge : plan.ledger)
    if (edge.reason == FusionReason::ResultOfLibrary || edge.reason == FusionReason::RowsOfLibraryResult ||
        edge.reason == FusionReason::OtherCallsEpilogue)
      count(std::string(graph.node(edge.producer).op->name) + " -> " + std::string(graph.node(edge.consumer).op->name) +
            " not fused: " + fusion::detail_text(graph, edge.detail));
  std::string out = std::to_string(kernels) + " generated kernels\n";
  for (const auto& [text, n] : lines) out += std::to_string(n) + " x " + text + "\n";
  return out;
}

class CudaPlan : public testing::TestWithParam<const char*> {};

TEST_P(CudaPlan, GivesTheLibrariesWhatTheyCompute) {
  ImportOptions import;
  import.missing_weights = ImportOptions::MissingWeights::Empty;
  auto model = onnx::import_file(std::string(TESSERA_SOURCE_DIR) + "/models/" + GetParam() + ".onnx", import);
  ASSERT_TRUE(model.ok()) << model.error().str();
  Graph& graph = model->graph;
  auto passes = run_pipeline(graph, {});
  ASSERT_TRUE(passes.ok()) << passes.error().str();
  auto plan = plan_for_cuda(graph);
  ASSERT_TRUE(plan.ok()) << plan.error().str();
  auto fine = verify(graph, *plan);
  ASSERT_TRUE(fine.ok()) << fine.error().str();
  for (const auto& group : plan->groups) {
    EXPECT_NE(group.kind, Group::Kind::Host) << group.name;
    bool follows = group.kind == Group::Kind::Library && group.call.epilogue_nest.has_value();
    EXPECT_EQ(follows, group.call.fixed.has_value()) << group.name;
  }
  std::string file = std::string(TESSERA_SOURCE_DIR) + "/tests/driver/golden/" + GetParam() + ".cuda-plan.txt";
  std::string text = summary(graph, *plan);
  if (std::getenv("TESSERA_BLESS")) std::ofstream(file) << text;
  std::ifstream in(file);
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(text, golden.str());
}
INSTANTIATE_TEST_SUITE_P(Models, CudaPlan,
                         testing::Values("bert.dynamo.f16", "bert.dynamo.f32", "gpt2.dynamo.f16", "gpt2.dynamo.f32",
                                         "resnet50.dynamo.f16", "resnet50.dynamo.f32", "vit.dynamo.f16",
                                         "llama.dynamo.f16", "mobilenet_v3.dynamo.f16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

} // namespace
} // namespace tessera
