// Every sample of every operator's record, compiled as for a GPU: passes, fusion and schedules are the device's,
// generated kernels run on the emulator, library calls by plain loops; held against the record's reference.
#include "../fusion/harness.h"
#include "../ops/samples_run.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "emulated.h"
#include <cctype>

namespace tessera {
namespace {

// Operators no part of which may run on the host, whatever their dtypes; sizes that they find are read there.
bool is_generated(std::string_view name) {
  for (std::string_view op :
       {"sort_indices", "topk", "scatter", "scatter_runs", "scatter_elements", "scatter_nd", "tensor_scatter", "unique",
        "nonzero", "compress", "non_max_suppression", "RNN", "GRU", "LSTM", "LinearAttention"})
    if (name == op) return true;
  return false;
}

class GpuOperators : public testing::TestWithParam<const OpDef*> {};

TEST_P(GpuOperators, OnTheEmulatorAgreesWithTheReference) {
  const OpDef& op = *GetParam();
  CompileOptions options;
  options.device = "cuda";
  int before = test::emulated_runs();
  auto samples = op.samples();
  test::Share share;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    bool strings = false;
    for (const auto& t : sample.operands) strings = strings || (t.defined() && t.dtype() == DType::String);
    if (strings) continue;
    // Static and symbolic sizes by turns; where one symbol for equal sizes contradicts the operator, static ones.
    auto sizes = i % 2 ? test::Sizes::Static : test::Sizes::Symbolic;
    if (!test::takes(share, sample, sizes)) continue;
    SCOPED_TRACE(test::describe(sample, i) + (sizes == test::Sizes::Symbolic ? ", symbolic" : ""));
    auto g = test::build(op, sample, sizes);
    if (!g.ok() && sizes == test::Sizes::Symbolic) g = test::build(op, sample, test::Sizes::Static);
    ASSERT_TRUE(g.ok()) << g.error().str();
    auto expected = evaluate_node(g->graph, g->get(), sample.operands, g->symbols);
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    Inputs inputs;
    for (auto v : g->graph.inputs()) {
      const std::string& name = g->graph.value(v).name;
      inputs[name] = sample.operands[std::stoul(name.substr(1))];
    }
    std::vector<Tensor> wanted;
    auto results = g->get().results;
    for (size_t r = 0; r < results.size() && r < expected->size(); ++r)
      if (results[r].valid()) {
        g->graph.add_output("y" + std::to_string(r), results[r]);
        wanted.push_back((*expected)[r]);
      }
    Graph& graph = g->graph;
    auto backend = make_backend(options);
    ASSERT_TRUE(backend.ok()) << backend.error().str();
    Compilation compilation(graph, **backend, options);
    std::vector<std::string> pipeline = compile_pipeline(options.device).value();
    ASSERT_TRUE(stop_after(pipeline, "fuse-attention").ok());
    std::erase(pipeline,
               "convert-as-here"); // which makes another operator of a cast that wraps; a sample has it itself
    auto passes = run_passes(compilation, pipeline, {});
    ASSERT_TRUE(passes.ok()) << passes.error().str();
    const FusionPlan& plan = compilation.plan();
    for (const Group& group : plan.groups)
      EXPECT_FALSE(is_generated(op.name) && group.kind == Group::Kind::Host &&
                   graph.node(group.node).op->name != "read")
          << group.name << " runs on the host";
    auto got = run_plan(graph, plan, inputs);
    ASSERT_TRUE(got.ok()) << got.error().str() << print(graph, plan);
    EXPECT_EQ(test::difference(*got, wanted, sample.tolerance), "") << print(graph, plan);
  }
  RecordProperty("kernels", test::emulated_runs() - before);
}

std::vector<const OpDef*> operators() {
  std::vector<const OpDef*> out;
  for (const auto& op : OpTable::get().all())
    if (op->samples && !op->side_effect && op->name != std::string_view("constant")) out.push_back(op.get());
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, GpuOperators, testing::ValuesIn(operators()), [](const auto& info) {
  std::string name;
  for (char c : info.param->name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

} // namespace
} // namespace tessera
