#include "codegen/driver/compile.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/build.h"
#include "codegen/driver/pipeline.h"
#include "codegen/driver/plan_file.h"
#include "codegen/driver/steering.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"

namespace tessera {

struct KernelWork {
  bool generated_epilogues = false; // FusionOptions::generated_epilogues
  std::vector<int> kernel_of_group; // by index in flat_groups(): index into kernels, or -1
  std::vector<BoxedNest> boxes;     // by group
  struct Kernel {
    std::string name;
    int group;
    bool boxed; // the nest of boxes[group]
  };
  std::vector<Kernel> kernels;
};

namespace {

// Kernels: one for each kernel group and each library epilogue.
std::shared_ptr<const KernelWork> kernel_work(Graph& graph, const FusionPlan& plan, bool generated_epilogues) {
  auto work = std::make_shared<KernelWork>();
  work->generated_epilogues = generated_epilogues;
  const auto groups = flat_groups(plan);
  work->kernel_of_group.assign(groups.size(), -1);
  work->boxes.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& group = *groups[g];
    const bool boxed =
        group.kind == Group::Kind::Library && group.call.epilogue_nest && (generated_epilogues || group.call.fixed);
    if (boxed)
      work->boxes[g] = (group.call.fixed ? whole_epilogue : box_epilogue)(graph, *group.call.epilogue_nest);
    else if (group.kind != Group::Kind::Kernel && group.kind != Group::Kind::Own)
      continue;
    work->kernel_of_group[g] = static_cast<int>(work->kernels.size());
    work->kernels.push_back({group.name + (boxed ? ".epilogue" : ""), static_cast<int>(g), boxed});
  }
  return work;
}

// Generates machine code and the executable of `out`, which has graph, plan and work.
Status generate(Compiled& out, Backend& backend, const CompileOptions& options, const ForcedSchedules& schedules = {}) {
  CompileReport& report = out.report;
  const KernelWork& work = *out.work;
  const auto groups = flat_groups(report.plan);
  std::vector<KernelRequest> requests;
  for (const auto& k : work.kernels) {
    const Group& group = *groups[static_cast<size_t>(k.group)];
    const bool own = group.kind == Group::Kind::Own;
    const LoopNest* nest = k.boxed ? &work.boxes[static_cast<size_t>(k.group)].nest : own ? nullptr : &group.nest;
    const auto kept = schedules.find(static_cast<size_t>(k.group));
    const FixedSchedules* pinned = kept != schedules.end() ? kept->second.get()
                                   : nest                  ? pinned_schedules(options, group)
                                                           : nullptr;
    requests.push_back({k.name, nest, own ? group.node : NodeId{}, nullptr,
                        own && !group.node.valid() ? &group.attention : nullptr, pinned});
  }
  Cache cache(options.cache_dir, options.cache);
  BuildInput build{out.graph, report.plan, {}, work.kernel_of_group, work.boxes, backend.target(), out.bodies};
  TESSERA_ASSIGN(build.code, backend.compile(*out.graph, requests, cache, options));
  report.kernels = build.code.reports;
  report.figures = backend.figures();
  report.device = backend.device();
  report.routes = backend.routes();
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

Result<Compiled> compile(Graph imported, const CompileOptions& options, const std::string& dump_prefix) {
  const Stopwatch watch;
  Compiled out;
  out.graph = std::make_shared<Graph>(std::move(imported));
  Graph& graph = *out.graph;
  CompileReport& report = out.report;
  for (NodeId id : graph.order()) {
    const auto* structured = graph.node(id).op->structured();
    if (structured && structured->kind == Structured::Constant) continue;
    report.operators.push_back(graph.node(id).location);
    if (report.operators.back().op.empty()) report.operators.back().op = graph.node(id).op->name;
  }

  TESSERA_ASSIGN(auto backend, Backend::create(options));
  TESSERA_ASSIGN(const std::vector<std::string> pipeline, compile_pipeline(options.device));
  PassRunOptions run;
  run.disabled = options.disabled_passes;
  run.dump_prefix = dump_prefix;
  Compilation planned(graph, *backend, options);
  TESSERA_ASSIGN(report.passes, run_passes(planned, pipeline, std::move(run)));
  for (const PassStats& pass : report.passes)
    (pass.level == "graph" ? report.passes_ms : report.fusion_ms) += pass.milliseconds;
  report.plan = std::move(planned.plan());
  report.constants = std::move(planned.constants());
  if (log_enabled(LogChannel::Fusion)) log_write(LogChannel::Fusion, print(graph, report.plan));
  if (dump_enabled()) {
    write_dump(dump_prefix + "graph.txt", print(graph));
    write_dump(dump_prefix + "plan.txt", print(graph, report.plan));
  }

  const auto groups = flat_groups(report.plan);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g]->kind != Group::Kind::Control) continue;
    TESSERA_ASSIGN(auto bodies, compile_bodies(graph, groups[g]->node, options, dump_prefix));
    for (const auto& body : bodies.bodies)
      for (const std::string& warning : body.compiled->report.plan_warnings)
        report.plan_warnings.push_back("in a body of " + groups[g]->name + ": " + warning);
    out.bodies.emplace(g, std::make_shared<const ControlCode>(std::move(bodies)));
  }
  out.work = kernel_work(graph, report.plan, planned.fusion().generated_epilogues);
  TESSERA_TRY(generate(out, *backend, options));
  report.requests = requests_of(options);
  TESSERA_TRY(report_unmet(graph, options, report));
  report.total_ms = watch.ms();
  return out;
}

Result<Compiled> compile_plan(const Compiled& before, std::shared_ptr<Graph> graph, FusionPlan plan,
                              const CompileOptions& options, const ForcedSchedules& schedules) {
  TESSERA_CHECK(before.graph && before.work, "it was compiled here");
  TESSERA_ASSIGN(auto backend, Backend::create(options));
  Compiled out;
  out.graph = std::move(graph);
  out.bodies = before.bodies;
  out.report.plan = std::move(plan);
  out.work = kernel_work(*out.graph, out.report.plan, before.work->generated_epilogues);
  TESSERA_TRY(generate(out, *backend, options, schedules));
  return out;
}

Result<Compiled> compile_again(const Compiled& before, const CompileOptions& options) {
  TESSERA_CHECK(before.graph && before.work, "it was compiled here");
  const Stopwatch watch;
  TESSERA_ASSIGN(auto backend, Backend::create(options));
  Compiled out;
  out.graph = before.graph;
  out.work = before.work;
  out.bodies = before.bodies;
  out.report.passes = before.report.passes;
  out.report.plan = before.report.plan;
  out.report.constants = before.report.constants;
  out.report.operators = before.report.operators;
  out.report.requests = before.report.requests;
  out.report.plan_warnings = before.report.plan_warnings;
  TESSERA_TRY(generate(out, *backend, options));
  out.report.total_ms = watch.ms();
  return out;
}

} // namespace tessera
