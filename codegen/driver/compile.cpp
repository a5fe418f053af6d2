#include "codegen/driver/compile.h"
#include "codegen/driver/build.h"
#include "graph/support/log.h"
#include <chrono>

namespace tessera {
namespace {

class Timer {
public:
  double lap() {
    auto now = std::chrono::steady_clock::now();
    double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

} // namespace

Result<Compiled> compile(Graph imported, const CompileOptions& options) {
  Timer total, timer;
  Compiled out;
  auto graph = std::make_shared<Graph>(std::move(imported));
  out.graph = graph;
  auto& report = out.report;
  for (auto id : graph->order())
    report.source_nodes +=
        graph->node(id).op->structured() && graph->node(id).op->structured()->kind == Structured::Constant ? 0 : 1;

  TESSERA_ASSIGN(auto backend, Backend::create(options));

  // Passes: composites to primitives, shape arithmetic and constants folded away, then what this device wants.
  PipelineOptions pipeline;
  pipeline.disabled = options.disabled_passes;
  TESSERA_ASSIGN(report.passes, run_pipeline(*graph, pipeline));
  TESSERA_TRY(backend->legalize(*graph));
  report.passes_ms = timer.lap();

  // Fusion.
  std::map<NodeId, std::string> host_reasons;
  FusionOptions fusion;
  fusion.enabled = options.fusion;
  fusion.strict_rounding = options.strict_rounding;
  backend->configure(fusion);
  fusion.device_supports = [&](const Graph& g, NodeId id, std::string* why) {
    std::string reason;
    if (backend->supports(g, id, &reason)) return true;
    host_reasons[id] = reason;
    if (why) *why = reason;
    return false;
  };
  TESSERA_ASSIGN(report.plan, plan_fusion(*graph, fusion));
  backend->refine(*graph, report.plan);
  if (log_enabled(LogChannel::Fusion)) log_write(LogChannel::Fusion, print(*graph, report.plan));
  if (dump_enabled()) {
    write_dump("graph.txt", print(*graph));
    write_dump("plan.txt", print(*graph, report.plan));
  }
  report.fusion_ms = timer.lap();

  // Kernels: one for each kernel group and each library epilogue.
  ObjectCache cache(options.cache_dir, options.cache);
  BuildInput build{graph, report.plan, {}, {}, {}, host_reasons, backend->target()};
  auto groups = flat_groups(report.plan);
  build.kernel_of_group.assign(groups.size(), -1);
  build.boxes.resize(groups.size());
  std::vector<KernelRequest> requests;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& group = *groups[g];
    const LoopNest* nest = nullptr;
    if (group.kind == Group::Kind::Kernel) nest = &group.nest;
    if (group.kind == Group::Kind::Library && group.call.epilogue_nest &&
        (fusion.generated_epilogues || group.call.fixed)) {
      build.boxes[g] = (group.call.fixed ? whole_epilogue : box_epilogue)(*graph, *group.call.epilogue_nest);
      nest = &build.boxes[g].nest;
    }
    bool own = group.kind == Group::Kind::Own;
    if (!nest && !own) continue;
    build.kernel_of_group[g] = static_cast<int>(requests.size());
    requests.push_back({group.name + (group.kind == Group::Kind::Library ? ".epilogue" : ""), nest,
                        own ? group.node : NodeId{}, nullptr, own && !group.node.valid() ? &group.attention : nullptr});
  }
  TESSERA_ASSIGN(build.code, backend->compile(*graph, requests, cache, options));
  report.kernels = build.code.reports;
  report.cache_hits = build.code.hits;
  report.cache_misses = build.code.misses;
  report.cache_warnings = cache.warnings();
  report.device_warnings = build.code.warnings;
  report.codegen_ms = build.code.codegen_ms;
  report.link_ms = build.code.link_ms;
  TESSERA_ASSIGN(auto executable, build_executable(build));
  out.executable = executable;
  report.total_ms = total.lap();
  return out;
}

} // namespace tessera
