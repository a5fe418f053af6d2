// Every edge between two operators has exactly one verdict, with a code that has a page: of the graphs of models/, and
// of ONNX's backend tests where they were made (tools/check).
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "frontend/model.h"
#include "report/pages.h"
#include "tests/base/share.h"
#include <filesystem>
#include <gtest/gtest.h>
#include <set>

namespace tessera {
namespace {

std::vector<std::string> models_under(const std::string& folder) {
  std::vector<std::string> out;
  if (!std::filesystem::exists(folder)) return out;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder))
    if (file.path().extension() == ".onnx") out.push_back(file.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::set<std::pair<int32_t, int32_t>> edges_of(const Graph& graph) {
  std::set<std::pair<int32_t, int32_t>> out; // value, consumer
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).operands) {
      if (!v.valid() || !graph.producer(v)) continue;
      const auto* structured = graph.producer(v)->op->structured();
      if (!structured || structured->kind != Structured::Constant) out.emplace(v.index, id.index);
    }
  return out;
}

// Whether the model could be planned for the device; checks its verdicts.
bool check_verdicts(const std::string& path, const std::string& device) {
  SCOPED_TRACE(path + " on " + device);
  ImportOptions import;
  import.missing_weights = ImportOptions::MissingWeights::Empty;
  auto model = import_model(path, import);
  if (!model.ok()) return false; // of an operator that is not supported
  CompileOptions options;
  options.device = device;
  if (device == "cuda") options.arch = "sm_90a", options.target = "h200";
  auto backend = make_backend(options);
  auto pipeline = compile_pipeline(device);
  EXPECT_TRUE(backend.ok() && pipeline.ok());
  Compilation compilation(model->graph, **backend, options);
  auto passes = run_passes(compilation, *pipeline, {});
  if (!passes.ok()) return false;
  const Graph& graph = compilation.graph();
  const FusionPlan& plan = compilation.plan();
  std::set<std::pair<int32_t, int32_t>> entries;
  for (const LedgerEntry& e : plan.ledger) {
    EXPECT_TRUE(entries.emplace(e.value.index, e.consumer.index).second)
        << "two verdicts for an edge of " << graph.value(e.value).name;
    EXPECT_EQ(graph.value(e.value).producer, e.producer);
    EXPECT_FALSE(reason_page(info(e.reason)).empty());
    EXPECT_TRUE(info(e.reason).fused || e.bytes_saved.is_const(0));
  }
  EXPECT_EQ(entries, edges_of(graph));
  for (const PairEntry& e : plan.pairs) EXPECT_FALSE(reason_page(info(e.reason)).empty());
  return true;
}

class Verdicts : public testing::TestWithParam<const char*> {};

TEST_P(Verdicts, OfModels) {
  for (const auto& path : test::some_models(models_under(std::string(TESSERA_SOURCE_DIR) + "/models")))
    EXPECT_TRUE(check_verdicts(path, GetParam())) << path;
}

TEST_P(Verdicts, OfBackendTests) {
  const auto paths = test::some(models_under(std::string(TESSERA_BINARY_DIR) + "/backend-tests"));
  if (paths.empty()) GTEST_SKIP() << "build/backend-tests is not there: tools/scripts/backend_tests.py makes it";
  size_t planned = 0;
  for (const auto& path : paths) planned += check_verdicts(path, GetParam());
  EXPECT_GT(planned, paths.size() * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Devices, Verdicts, testing::Values("cpu", "cuda"));

} // namespace
} // namespace tessera
