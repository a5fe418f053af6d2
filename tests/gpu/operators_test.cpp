// Every sample of every operator's record, compiled as for a GPU: passes, fusion and schedules are the device's,
// generated kernels run on the emulator, library calls by plain loops; held against the record's reference.
#include "../fusion/harness.h"
#include "../ops/samples_run.h"
#include "codegen/driver/backend.h"
#include "codegen/emulate/emulator.h"
#include "codegen/schedule/own_kernels.h"
#include <cctype>
#include <cstring>

namespace tessera {
namespace {

DeviceTraits gpu_traits() {
  DeviceTraits d;
  d.kind = DeviceTraits::Kind::Cuda;
  d.name = "cuda sm_90";
  return d;
}

Result<bool> holds(const ScheduledKernel& k, const Symbols& symbols) {
  for (const auto& c : k.conditions) {
    TESSERA_ASSIGN(int64_t v, c.value.eval(symbols));
    if (v < c.min || v > c.max || v % c.multiple_of != 0) return false;
  }
  return true;
}

int kernels_run = 0;

// The results in the order of `wanted`. Written memory starts as a pattern.
Result<std::vector<Tensor>> run_emulated(const Graph& graph, const ScheduledKernel& k,
                                         const std::map<ValueId, Tensor>& inputs, const std::vector<ValueId>& wanted,
                                         const Symbols& symbols) {
  std::map<ValueId, Tensor> results;
  std::vector<tile::Argument> args;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    Tensor t;
    if (k.buffer_written[i]) {
      Dims dims;
      for (const auto& e : graph.type(k.buffers[i]).shape) {
        TESSERA_ASSIGN(int64_t n, e.eval(symbols));
        dims.push_back(n);
      }
      TESSERA_ASSIGN(t, Tensor::create(graph.type(k.buffers[i]).dtype, dims));
      if (t.bytes()) std::memset(t.mutable_data(), 0x5b, t.bytes());
      results[k.buffers[i]] = t;
    } else {
      auto it = inputs.find(k.buffers[i]);
      if (it == inputs.end()) return Diagnostic(ErrorCode::Internal, "a kernel reads what the nest does not");
      t = it->second;
    }
    args.push_back({{const_cast<std::byte*>(t.data()), t.bytes()}, {}});
  }
  for (const auto& s : k.sizes) {
    TESSERA_ASSIGN(int64_t v, s.eval(symbols));
    args.push_back({{}, {0, v}});
  }
  TESSERA_ASSIGN(int64_t grid, k.grid.eval(symbols));
  TESSERA_ASSIGN(auto r, emulate(k.kernel, args, grid, {}, {.seed = static_cast<uint64_t>(++kernels_run % 9)}));
  if (!r.reported_sites.empty())
    return Diagnostic(ErrorCode::BadInput, "reported: " + k.report_sites.at(static_cast<size_t>(r.reported_sites[0])));
  std::vector<Tensor> out;
  for (ValueId v : wanted) out.push_back(v.valid() ? results.at(v) : Tensor());
  return out;
}

Result<std::vector<Tensor>> emulate_nest(const Graph& graph, const LoopNest& nest, const std::vector<Tensor>& loads,
                                         const Symbols& symbols) {
  TESSERA_ASSIGN(auto kernels, lower_for_gpu(graph, nest, gpu_traits(), "nest"));
  std::map<ValueId, Tensor> inputs;
  for (size_t i = 0; i < loads.size(); ++i) inputs[nest.loads[i]] = loads[i];
  std::vector<ValueId> wanted;
  for (const auto& s : nest.stores) wanted.push_back(s.value);
  for (const auto& k : kernels) {
    TESSERA_ASSIGN(bool fits, holds(k, symbols));
    if (fits) return run_emulated(graph, k, inputs, wanted, symbols);
  }
  return Diagnostic(ErrorCode::Internal, "no kernel takes these sizes");
}

Result<std::vector<Tensor>> emulate_own(const Graph& graph, const Node& node, const std::vector<Tensor>& operands,
                                        const Symbols& symbols) {
  TESSERA_ASSIGN(auto k, lower_own_kernel(graph, node, gpu_traits(), "own"));
  std::map<ValueId, Tensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i)
    if (node.operands[i].valid()) inputs[node.operands[i]] = operands[i];
  return run_emulated(graph, k, inputs, node.results, symbols);
}

class GpuOperators : public testing::TestWithParam<const OpDef*> {};

TEST_P(GpuOperators, OnTheEmulatorAgreesWithTheReference) {
  plan_runner() = {emulate_nest, emulate_own};
  const OpDef& op = *GetParam();
  CompileOptions options;
  options.device = "cuda";
  int before = kernels_run;
  auto samples = op.samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    bool strings = false;
    for (const auto& t : sample.operands) strings = strings || (t.defined() && t.dtype() == DType::String);
    if (strings) continue;
    // Static and symbolic sizes by turns; where one symbol for equal sizes contradicts the operator, static ones.
    auto sizes = i % 2 ? test::Sizes::Static : test::Sizes::Symbolic;
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
    auto passes = run_pipeline(graph, {});
    ASSERT_TRUE(passes.ok()) << passes.error().str();
    auto backend = Backend::create(options);
    ASSERT_TRUE(backend.ok()) << backend.error().str();
    auto legal = (*backend)->legalize(graph);
    ASSERT_TRUE(legal.ok()) << legal.error().str();
    FusionOptions fusion;
    fusion.device_supports = [&](const Graph& in, NodeId id, std::string* why) {
      std::string reason;
      return (*backend)->supports(in, id, why ? why : &reason);
    };
    (*backend)->configure(fusion);
    auto plan = plan_fusion(graph, fusion);
    ASSERT_TRUE(plan.ok()) << plan.error().str();
    auto got = run_plan(graph, *plan, inputs);
    ASSERT_TRUE(got.ok()) << got.error().str() << print(graph, *plan);
    EXPECT_EQ(test::difference(*got, wanted, sample.tolerance), "") << print(graph, *plan);
  }
  RecordProperty("kernels", kernels_run - before);
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
