// Attention on an NVIDIA GPU: by cuDNN, by a generated kernel, or by cuDNN with the kernel as fallback if cuDNN rejects
// the call at run time.
#include "codegen/device/cuda/passes.h"
#include <algorithm>

namespace tessera {
namespace {

// The group that computes attention by the generated kernel.
Group kernel_of(const Graph& graph, const Group& group) {
  Group k;
  k.kind = Group::Kind::Own;
  k.name = group.name + "_kernel";
  k.attention = group.attention;
  const AttentionCall& call = k.attention;
  auto read = [&](ValueId v) {
    if (std::find(k.reads.begin(), k.reads.end(), v) != k.reads.end()) return;
    k.reads.push_back(v);
    k.bytes_read += product(graph.type(v).shape) * byte_size(graph.type(v).dtype, 1);
  };
  for (const OperandView* view : {&call.q, &call.k, &call.v}) read(view->value);
  for (size_t i = 1; i < call.score.loads.size(); ++i) read(call.score.loads[i]);
  k.writes = group.writes;
  k.bytes_written = group.bytes_written;
  k.bytes_unfused = group.bytes_unfused;
  k.parts = group.parts;
  k.pin = group.pin;
  for (const auto& step : group.otherwise) {
    const auto& from = step.kind == Group::Kind::Kernel ? step.nest.sources : step.call.sources;
    k.nest.sources.insert(k.nest.sources.end(), from.begin(), from.end());
  }
  return k;
}

// Removes kernels of biases that only the library call would have read.
void drop_unread_biases(const std::vector<ValueId>& biases, FusionPlan& plan) {
  for (ValueId bias : biases) {
    auto reads = [&](const Group& g) { return std::find(g.reads.begin(), g.reads.end(), bias) != g.reads.end(); };
    if (std::any_of(plan.groups.begin(), plan.groups.end(), reads)) continue;
    std::erase_if(plan.groups, [&](const Group& g) { return g.writes.size() == 1 && g.writes[0] == bias; });
  }
}

} // namespace

bool place_attention(const Graph& graph, const CudaLibraries& libraries, FusionPlan& plan,
                     const std::function<bool(const Group&)>& by_kernel) {
  std::vector<ValueId> biases;
  bool changed = false;
  for (Group& group : plan.groups) {
    if (group.kind != Group::Kind::Attention || !kernel_takes_attention(graph, group.attention, libraries)) continue;
    changed = true;
    const bool library = !(by_kernel && by_kernel(group)) && cudnn_takes_attention(graph, group.attention, libraries);
    Group kernel = kernel_of(graph, group);
    if (library) {
      group.otherwise.clear();
      group.otherwise.push_back(std::move(kernel));
      continue;
    }
    const auto& fixed = group.attention.fixed;
    if (fixed && fixed->bias_nest) biases.push_back(fixed->bias->value);
    kernel.name = group.name;
    group = std::move(kernel);
  }
  drop_unread_biases(biases, plan);
  return changed;
}

} // namespace tessera
