#include "emulated.h"
#include "../fusion/harness.h"
#include "../schedule/harness.h"
#include "base/hash.h"
#include "codegen/schedule/lower/block_attention.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/target/select.h"
#include <cstring>

namespace tessera::test {
namespace {

int runs = 0;
std::string arch; // of EmulatedArch; empty: the default

// Kernels are run for many sizes: compiled once.
const EmulatedProgram* compiled(const tile::Kernel& kernel, std::optional<Diagnostic>& error) {
  static std::map<Hash128, EmulatedProgram> programs;
  auto key = hash128(tile::print(kernel) + arch);
  auto it = programs.find(key);
  if (it != programs.end()) return &it->second;
  if (programs.size() > 100) programs.clear();
  auto made = kernel;
  if (key.lo % 4 == 0 && arch.empty()) // some with another number of warps than the schedule's
    if (auto warps = made.config.find("warps"); warps != made.config.end())
      warps->second = key.hi % 2 ? std::max<int64_t>(1, warps->second / 2) : std::min<int64_t>(32, warps->second * 2);
  const GpuTarget target = arch.empty() ? GpuTarget() : *GpuTarget::parse(arch);
  auto program = EmulatedProgram::compile(made, target);
  if (!program && made.config != kernel.config)
    program = EmulatedProgram::compile(kernel, target); // too many for its tiles
  if (!program) {
    error = program.error();
    return nullptr;
  }
  return &programs.emplace(key, std::move(*program)).first->second;
}

} // namespace

int emulated_runs() { return runs; }

EmulatedArch::EmulatedArch(const std::string& of) { arch = of; }
EmulatedArch::~EmulatedArch() { arch.clear(); }

Result<IndexReport> run_on_emulator(const tile::Kernel& kernel, std::span<const tile::Argument> args, int64_t grid) {
  std::optional<Diagnostic> error;
  const auto* program = compiled(kernel, error);
  if (!program) return std::move(*error);
  TESSERA_ASSIGN(auto result, program->run(args, grid, {.seed = static_cast<uint64_t>(++runs % 50)}));
  return result.report;
}

namespace {

Target gpu_traits() { return shipped_target("h200"); }

Result<bool> holds(const ScheduledKernel& k, const Symbols& symbols) {
  for (const auto& c : k.conditions) {
    const auto value = c.value.eval(symbols);
    if (!value.ok()) return false; // as when it runs: what cannot be computed does not hold
    const int64_t v = *value;
    if (v < c.min || v > c.max || v % c.multiple_of != 0) return false;
  }
  return true;
}

// The results in the order of `wanted`. Written memory starts as a pattern.
Result<std::vector<Tensor>> run_emulated(const Graph& graph, const ScheduledKernel& k,
                                         const std::map<ValueId, Tensor>& inputs, const std::vector<ValueId>& wanted,
                                         const Symbols& symbols) {
  std::map<ValueId, Tensor> results;
  std::vector<tile::Argument> args;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    Tensor t;
    if (k.written[i]) {
      Dims dims;
      for (const auto& e : graph.type(k.buffers[i]).shape) {
        TESSERA_ASSIGN(int64_t n, e.eval(symbols));
        dims.push_back(n);
      }
      TESSERA_ASSIGN(t, Tensor::create(graph.type(k.buffers[i]).dtype, dims));
      if (t.bytes()) std::memset(t.mutable_data(), 0x5b, t.bytes());
      for (const auto& [from, to] : k.begins_as)
        if (to == k.buffers[i] && t.bytes() > 0) std::memcpy(t.mutable_data(), inputs.at(from).data(), t.bytes());
      results[k.buffers[i]] = t;
    } else {
      auto it = inputs.find(k.buffers[i]);
      if (it == inputs.end()) return Diagnostic(ErrorCode::Internal, "a kernel reads what the nest does not");
      t = it->second;
    }
    args.push_back({{const_cast<std::byte*>(t.data()), t.bytes()}, {}});
  }
  // A kernel that writes nothing is not launched, and its sizes need not be computable.
  if (std::any_of(results.begin(), results.end(), [](const auto& r) { return r.second.bytes() > 0; })) {
    SharedMemory shared(k, symbols);
    shared.add_to(args);
    for (const auto& s : k.sizes) {
      TESSERA_ASSIGN(int64_t v, s.eval(symbols));
      args.push_back({{}, {0, v}});
    }
    TESSERA_ASSIGN(int64_t grid, k.grid.eval(symbols));
    TESSERA_ASSIGN(auto report, run_on_emulator(k.kernel, args, grid));
    if (!shared.at_rest()) return Diagnostic(ErrorCode::Internal, "a counter is not at rest");
    if (report.any())
      return Diagnostic(ErrorCode::BadInput, index_error(k.report_sites.at(static_cast<size_t>(report.site())),
                                                         report.position(), report.value(), symbols));
  }
  std::vector<Tensor> out;
  for (ValueId v : wanted) {
    if (v.valid() && !results.contains(v)) { // without elements, a kernel has no parameter for it
      Dims dims;
      for (const auto& e : graph.type(v).shape) {
        TESSERA_ASSIGN(int64_t n, e.eval(symbols));
        dims.push_back(n);
      }
      TESSERA_ASSIGN(results[v], Tensor::create(graph.type(v).dtype, dims));
      if (results[v].bytes() > 0)
        return Diagnostic(ErrorCode::Internal, "a kernel does not write what the nest stores");
    }
    out.push_back(v.valid() ? results.at(v) : Tensor());
  }
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
  TESSERA_ASSIGN(auto kernels, lower_own_kernel(graph, node, gpu_traits(), "own"));
  std::map<ValueId, Tensor> inputs;
  for (size_t i = 0; i < operands.size(); ++i)
    if (node.operands[i].valid()) inputs[node.operands[i]] = operands[i];
  for (const auto& k : kernels) {
    TESSERA_ASSIGN(bool fits, holds(k, symbols));
    if (fits) return run_emulated(graph, k, inputs, node.results, symbols);
  }
  return Diagnostic(ErrorCode::Internal, "no kernel takes these sizes");
}

Result<std::optional<Tensor>> emulate_attention(const Graph& graph, const AttentionCall& call,
                                                const std::map<ValueId, Tensor>& tensors, const Symbols& symbols) {
  if (!attention_by_blocks_takes(graph, call, nullptr)) return std::optional<Tensor>();
  for (const auto& k : attention_by_blocks(graph, call, "attention")) {
    TESSERA_ASSIGN(bool fits, holds(k, symbols));
    if (!fits) continue;
    TESSERA_ASSIGN(auto results, run_emulated(graph, k, tensors, {call.out.value}, symbols));
    return std::optional(std::move(results[0]));
  }
  return Diagnostic(ErrorCode::Internal, "no kernel takes these sizes");
}

[[maybe_unused]] const bool kInstalled = [] {
  kernel_runner() = {run_on_emulator, true, true};
  plan_runner() = {emulate_nest, emulate_own, emulate_attention};
  return true;
}();

} // namespace
} // namespace tessera::test
