#include "codegen/driver/compile.h"
#include "codegen/driver/build.h"
#include "codegen/driver/fold_constants.h"
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

struct KernelWork {
  std::vector<int> kernel_of_group; // by position in flat_groups(): index into kernels, -1
  std::vector<BoxedNest> boxes;     // likewise
  struct Kernel {
    std::string name;
    int group;
    bool boxed; // the nest of boxes[group]
  };
  std::vector<Kernel> kernels;
  std::map<NodeId, std::string> host_reasons;
};

namespace {

// Kernels: one for each kernel group and each library epilogue.
std::shared_ptr<const KernelWork> kernel_work(Graph& graph, const FusionPlan& plan, const FusionOptions& fusion,
                                              std::map<NodeId, std::string> host_reasons) {
  auto work = std::make_shared<KernelWork>();
  work->host_reasons = std::move(host_reasons);
  const auto groups = flat_groups(plan);
  work->kernel_of_group.assign(groups.size(), -1);
  work->boxes.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& group = *groups[g];
    const bool boxed = group.kind == Group::Kind::Library && group.call.epilogue_nest &&
                       (fusion.generated_epilogues || group.call.fixed);
    if (boxed)
      work->boxes[g] = (group.call.fixed ? whole_epilogue : box_epilogue)(graph, *group.call.epilogue_nest);
    else if (group.kind != Group::Kind::Kernel && group.kind != Group::Kind::Own)
      continue;
    work->kernel_of_group[g] = static_cast<int>(work->kernels.size());
    work->kernels.push_back({group.name + (boxed ? ".epilogue" : ""), static_cast<int>(g), boxed});
  }
  return work;
}

// Machine code and executable of `out`, which has graph, plan and work.
Status generate(Compiled& out, Backend& backend, const CompileOptions& options) {
  CompileReport& report = out.report;
  const KernelWork& work = *out.work;
  const auto groups = flat_groups(report.plan);
  std::vector<KernelRequest> requests;
  for (const auto& k : work.kernels) {
    const Group& group = *groups[static_cast<size_t>(k.group)];
    const bool own = group.kind == Group::Kind::Own;
    const LoopNest* nest = k.boxed ? &work.boxes[static_cast<size_t>(k.group)].nest : own ? nullptr : &group.nest;
    requests.push_back(
        {k.name, nest, own ? group.node : NodeId{}, nullptr, own && !group.node.valid() ? &group.attention : nullptr});
  }
  ObjectCache cache(options.cache_dir, options.cache);
  BuildInput build{out.graph, report.plan, {}, work.kernel_of_group, work.boxes, work.host_reasons, backend.target()};
  TESSERA_ASSIGN(build.code, backend.compile(*out.graph, requests, cache, options));
  report.kernels = build.code.reports;
  report.figures = backend.figures();
  report.cache_hits = build.code.hits;
  report.cache_misses = build.code.misses;
  report.cache_warnings = cache.warnings();
  report.device_warnings = build.code.warnings;
  report.codegen_ms = build.code.codegen_ms;
  report.link_ms = build.code.link_ms;
  TESSERA_ASSIGN(out.executable, build_executable(build));
  return {};
}

} // namespace

std::optional<Tf32> parse_tf32(std::string_view name) {
  if (name == "off") return Tf32::Off;
  if (name == "conv") return Tf32::Conv;
  return name == "all" ? std::optional(Tf32::All) : std::nullopt;
}

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
  const bool folds =
      std::any_of(report.passes.begin(), report.passes.end(), [](const auto& p) { return p.name == "fold"; });
  for (bool changed = true; changed;) {
    host_reasons.clear();
    TESSERA_ASSIGN(report.plan, plan_fusion(*graph, fusion));
    if (!folds) break;
    TESSERA_ASSIGN(changed, fold_constants(*graph, report.plan, options, report));
  }
  backend->refine(*graph, report.plan);
  if (log_enabled(LogChannel::Fusion)) log_write(LogChannel::Fusion, print(*graph, report.plan));
  if (dump_enabled()) {
    write_dump("graph.txt", print(*graph));
    write_dump("plan.txt", print(*graph, report.plan));
  }
  report.fusion_ms = timer.lap();

  out.work = kernel_work(*graph, report.plan, fusion, std::move(host_reasons));
  TESSERA_TRY(generate(out, *backend, options));
  report.total_ms = total.lap();
  return out;
}

Result<Compiled> compile_again(const Compiled& before, const CompileOptions& options) {
  TESSERA_CHECK(before.graph && before.work, "it was compiled here");
  Timer total;
  TESSERA_ASSIGN(auto backend, Backend::create(options));
  Compiled out;
  out.graph = before.graph;
  out.work = before.work;
  out.report.passes = before.report.passes;
  out.report.plan = before.report.plan;
  out.report.constants = before.report.constants;
  out.report.source_nodes = before.report.source_nodes;
  TESSERA_TRY(generate(out, *backend, options));
  out.report.total_ms = total.lap();
  return out;
}

} // namespace tessera
