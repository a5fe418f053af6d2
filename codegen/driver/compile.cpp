#include "codegen/driver/compile.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "codegen/driver/bodies.h"
#include "codegen/driver/build.h"
#include "codegen/driver/detours.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/pipeline.h"
#include "codegen/driver/plan_file.h"
#include "codegen/driver/steering.h"
#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera {

struct KernelWork {
  struct Kernel {
    std::string name;
    size_t group;                      // index in flat_groups()
    std::optional<BoxedNest> epilogue; // of the group's library call; the kernel is the group's own where there is none
  };
  bool generated_epilogues = false; // FusionOptions::generated_epilogues
  std::vector<Kernel> kernels;      // in the order of their groups
};

namespace {

// Kernels: one for each kernel group and each library epilogue. `failed`: takes groups whose epilogue cannot be boxed.
std::shared_ptr<const KernelWork> kernel_work(Graph& graph, const FusionPlan& plan, bool generated_epilogues,
                                              FailedGroups& failed) {
  auto work = std::make_shared<KernelWork>();
  work->generated_epilogues = generated_epilogues;
  const auto groups = flat_groups(plan);
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& group = *groups[g];
    const bool boxed =
        group.kind == Group::Kind::Library && group.call.epilogue_nest && (generated_epilogues || group.call.fixed);
    if (!boxed && group.kind != Group::Kind::Kernel && group.kind != Group::Kind::Own) continue;
    KernelWork::Kernel kernel{group.name + (boxed ? ".epilogue" : ""), g, std::nullopt};
    const Status done = guarded({"listing kernel", group.name}, [&]() -> Status {
      failure_point("kernels");
      if (boxed) kernel.epilogue = (group.call.fixed ? whole_epilogue : box_epilogue)(graph, *group.call.epilogue_nest);
      return {};
    });
    if (!done.ok()) failed.emplace(g, done.error());
    work->kernels.push_back(std::move(kernel));
  }
  return work;
}

// The request for a kernel of `group`.
KernelRequest request(const KernelWork::Kernel& kernel, const Group& group, const CompileOptions& options,
                      const ForcedSchedules& schedules) {
  KernelRequest out = kernel.epilogue ? KernelRequest{kernel.name, &kernel.epilogue->nest} : request_for(group);
  if (const auto forced = schedules.find(kernel.group); forced != schedules.end())
    out.pinned = forced->second.get();
  else if (out.nest)
    out.pinned = pinned_schedules(options, group);
  return out;
}

// The groups of a plan with the code of their kernels and bodies.
std::vector<GroupCode> group_code(const Compiled& compiled, const DeviceCode& code) {
  std::vector<GroupCode> out;
  for (const Group* group : flat_groups(compiled.report.plan)) out.push_back({group});
  for (size_t k = 0; k < code.kernels.size(); ++k) {
    const KernelWork::Kernel& kernel = compiled.work->kernels[k];
    out[kernel.group].kernel = &code.kernels[k];
    if (kernel.epilogue) out[kernel.group].epilogue = &*kernel.epilogue;
  }
  for (const auto& [g, control] : compiled.bodies) out[g].control = control.get();
  return out;
}

// Generates machine code and the executable of `out`, which has graph, plan and work. `failed`: takes the groups for
// which there is no code; then the executable is null.
Status generate(Compiled& out, Backend& backend, const CompileOptions& options, FailedGroups& failed,
                const ForcedSchedules& schedules = {}) {
  CompileReport& report = out.report;
  const std::vector<KernelWork::Kernel>& kernels = out.work->kernels;
  const auto groups = flat_groups(report.plan);
  std::vector<KernelRequest> requests;
  for (const KernelWork::Kernel& k : kernels) requests.push_back(request(k, *groups[k.group], options, schedules));
  Cache cache(options.cache_dir, options.cache);
  TESSERA_ASSIGN(DeviceCode code, backend.compile(*out.graph, requests, cache, options));
  for (ContainedFailure& c : code.contained) report.contained.push_back(std::move(c));
  for (FailedKernel& f : code.failed) failed.emplace(kernels[f.request].group, std::move(f.error));
  if (!failed.empty()) return {};
  report.kernels.clear();
  for (GeneratedKernel& k : code.kernels) report.kernels.push_back(std::move(k.report));
  report.figures = options.prices ? options.prices->name : backend.figures();
  report.device = options.prices ? *options.prices : backend.device();
  report.routes = backend.routes();
  report.cache_hits = code.hits;
  report.cache_misses = code.misses;
  report.cache_warnings = cache.warnings();
  report.device_warnings = code.warnings;
  report.codegen_ms = code.codegen_ms;
  report.link_ms = code.link_ms;
  const BuildInput build{out.graph, group_code(out, code), code, backend.target(), &failed};
  auto built = guarded("building the executable", [&] { return build_executable(build); });
  if (!failed.empty()) return {};
  if (!built.ok()) return std::move(built).failure();
  out.executable = std::move(*built);
  return {};
}

// The same where no other plan is made: the first failure is an error.
Status generate_or_fail(Compiled& out, Backend& backend, const CompileOptions& options,
                        const ForcedSchedules& schedules = {}) {
  FailedGroups failed;
  TESSERA_TRY(generate(out, backend, options, failed, schedules));
  if (!failed.empty()) return std::move(failed.begin()->second);
  return {};
}

// One compile, with its detours.
class Compile {
public:
  Compile(Graph imported, const CompileOptions& options, const std::string& dump_prefix)
      : options_(options), dump_prefix_(dump_prefix), imported_(imported.clone()), detours_(options) {
    out_.graph = std::make_shared<Graph>(std::move(imported));
  }

  Result<Compiled> run() {
    const Stopwatch watch;
    list_operators();
    for (bool again = true; again;) {
      again = false;
      TESSERA_TRY(start());
      TESSERA_TRY(plan(again));
      while (!again && !out_.executable) TESSERA_TRY(code(again));
    }
    CompileReport& report = out_.report;
    for (const PassStats& pass : report.passes)
      (pass.level == "graph" ? report.passes_ms : report.fusion_ms) += pass.milliseconds;
    report.requests = requests_of(options_);
    const Status told = guarded("writing the report", [&]() -> Status {
      failure_point("report");
      return report_unmet(*out_.graph, options_, report);
    });
    if (!told.ok() && told.error().code != ErrorCode::Internal) return told.error();
    if (!told.ok()) contain(report.contained, options_, "the report", told.error(), "it is not complete", "");
    report.total_ms = watch.ms();
    return std::move(out_);
  }

private:
  void list_operators() {
    for (NodeId id : imported_.order()) {
      const auto* structured = imported_.node(id).op->structured();
      if (structured && structured->kind == Structured::Constant) continue;
      auto& operators = out_.report.operators;
      operators.push_back(imported_.node(id).location);
      if (operators.back().op.empty()) operators.back().op = imported_.node(id).op->name;
    }
  }

  // The graph as it was imported, and the device.
  Status start() {
    if (begun_) out_.graph = std::make_shared<Graph>(imported_.clone());
    begun_ = true;
    bodies_.clear();
    out_.report.passes.clear();
    planned_.reset();
    TESSERA_ASSIGN(backend_, make_backend(options_));
    planned_ = std::make_unique<Compilation>(*out_.graph, *backend_, options_);
    TESSERA_ASSIGN(pipeline_, compile_pipeline(options_.device));
    return {};
  }

  // Runs the pipeline, or the part of it that begins with planning. `again`: set where all begins anew, without the pass
  // that failed.
  Status plan(bool& again) {
    PassRunOptions run;
    std::string failed;
    run.disabled = detours_.passes();
    run.dump_prefix = dump_prefix_;
    run.failed = &failed;
    auto passes = run_passes(*planned_, pipeline_, std::move(run));
    std::vector<ContainedFailure>& contained = out_.report.contained;
    for (const PlanFailure& f : planned_->take_failures())
      contain(contained, options_, f.what, f.error, f.instead, print(*out_.graph));
    if (passes.ok()) {
      for (PassStats& pass : *passes) out_.report.passes.push_back(std::move(pass));
      take_plan();
      return {};
    }
    Diagnostic error = std::move(passes).take_error();
    if (error.code != ErrorCode::Internal || !detours_.leave_out(failed)) return first_ ? *first_ : error;
    if (!first_) first_ = error;
    contain(contained, options_, "pass " + failed, error, "it is left out", print(imported_));
    again = true;
    return {};
  }

  void take_plan() {
    CompileReport& report = out_.report;
    report.plan = std::move(planned_->plan());
    report.contractions.clear();
    for (const auto& [product, contraction] : planned_->planning().contractions)
      report.contractions.emplace(product, contraction.choice);
    for (const auto& [product, why] : planned_->planning().uncompared)
      report.contractions.emplace(product, ContractionChoice{INFINITY, INFINITY, false, why});
    report.constants = std::move(planned_->constants());
    for (ContainedFailure& failure : std::exchange(report.constants.contained, {}))
      report.contained.push_back(std::move(failure));
    if (log_enabled(LogChannel::Fusion)) log_write(LogChannel::Fusion, print(*out_.graph, report.plan));
    if (dump_enabled()) {
      write_dump(dump_prefix_ + "graph.txt", print(*out_.graph));
      write_dump(dump_prefix_ + "plan.txt", print(*out_.graph, report.plan));
    }
  }

  // Code of the plan. Where a group has none, plans around it; `again` as of plan().
  Status code(bool& again) {
    CompileReport& report = out_.report;
    FailedGroups failed;
    TESSERA_TRY(compile_control(failed));
    if (failed.empty())
      out_.work = kernel_work(*out_.graph, report.plan, planned_->fusion().generated_epilogues, failed);
    Status made;
    if (failed.empty()) made = guarded("generating code", [&] { return generate(out_, *backend_, options_, failed); });
    if (made.ok() && failed.empty()) return {};
    const auto groups = flat_groups(report.plan);
    const std::string text = print(*out_.graph) + "\n" + print(*out_.graph, report.plan);
    if (!made.ok()) { // in no group
      if (made.error().code != ErrorCode::Internal || !detours_.all_on_host(*out_.graph, made.error())) return made;
      contain(report.contained, options_, "generating code", made.error(), "the host runs every operator", text);
    }
    for (const auto& [g, error] : failed) {
      const std::string instead = may_detour(error) ? detours_.around(*out_.graph, report.plan, *groups[g], error) : "";
      if (instead.empty()) return error;
      contain(report.contained, options_, groups[g]->name, error, instead, text);
    }
    detours_.next_round();
    planned_->plan_around(detours_.plan());
    pipeline_.erase(pipeline_.begin(), std::find(pipeline_.begin(), pipeline_.end(), "fuse"));
    return plan(again);
  }

  // Bodies are compiled once, whatever else is planned.
  Status compile_control(FailedGroups& failed) {
    out_.bodies.clear();
    const auto groups = flat_groups(out_.report.plan);
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g]->kind != Group::Kind::Control) continue;
      auto& made = bodies_[groups[g]->node];
      if (!made) {
        auto compiled = guarded({"compiling the bodies of", groups[g]->name},
                                [&] { return compile_bodies(*out_.graph, groups[g]->node, options_, dump_prefix_); });
        if (!compiled.ok()) {
          if (compiled.error().code != ErrorCode::Internal) return std::move(compiled).failure();
          failed.emplace(g, compiled.error());
          continue;
        }
        ControlCode bodies = std::move(*compiled);
        for (const auto& body : bodies.bodies) {
          const CompileReport& of_body = body.compiled->report;
          for (const std::string& warning : of_body.plan_warnings)
            out_.report.plan_warnings.push_back("in a body of " + groups[g]->name + ": " + warning);
          for (ContainedFailure failure : of_body.contained) {
            failure.where = "a body of " + groups[g]->name + ", " + failure.where;
            out_.report.contained.push_back(std::move(failure));
          }
        }
        made = std::make_shared<const ControlCode>(std::move(bodies));
      }
      out_.bodies.emplace(g, made);
    }
    return {};
  }

  const CompileOptions& options_;
  const std::string& dump_prefix_;
  const Graph imported_;
  bool begun_ = false;
  Detours detours_;
  std::optional<Diagnostic> first_; // of a pass
  Compiled out_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Compilation> planned_;
  std::vector<std::string> pipeline_;
  std::map<NodeId, std::shared_ptr<const ControlCode>> bodies_;
};

} // namespace

std::optional<Tf32> parse_tf32(std::string_view name) {
  const auto* at = std::find(kTf32Names.begin(), kTf32Names.end(), name);
  return at == kTf32Names.end() ? std::nullopt : std::optional(static_cast<Tf32>(at - kTf32Names.begin()));
}

Result<Compiled> compile(Graph imported, const CompileOptions& options, const std::string& dump_prefix) {
  return guarded("compiling", [&] { return Compile(std::move(imported), options, dump_prefix).run(); });
}

Result<Compiled> compile_plan(const Compiled& before, std::shared_ptr<Graph> graph, FusionPlan plan,
                              const CompileOptions& options, const ForcedSchedules& schedules) {
  TESSERA_CHECK(before.graph && before.work, "it was compiled here");
  TESSERA_ASSIGN(auto backend, make_backend(options));
  Compiled out;
  out.graph = std::move(graph);
  out.bodies = before.bodies;
  out.report.plan = std::move(plan);
  FailedGroups failed;
  out.work = kernel_work(*out.graph, out.report.plan, before.work->generated_epilogues, failed);
  if (!failed.empty()) return std::move(failed.begin()->second);
  TESSERA_TRY(generate_or_fail(out, *backend, options, schedules));
  return out;
}

void add_states(std::vector<Constant> first, Compiled& compiled) {
  if (first.empty()) return;
  auto with = std::make_shared<Executable>(*compiled.executable);
  for (Constant& c : first) {
    with->states.push_back(static_cast<int>(with->constants.size()));
    with->constants.push_back(std::move(c));
  }
  compiled.executable = std::move(with);
}

Result<Compiled> compile_again(const Compiled& before, const CompileOptions& options) {
  TESSERA_CHECK(before.graph && before.work, "it was compiled here");
  const Stopwatch watch;
  TESSERA_ASSIGN(auto backend, make_backend(options));
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
  out.report.contained = before.report.contained;
  TESSERA_TRY(generate_or_fail(out, *backend, options));
  std::vector<Constant> states;
  for (const int s : before.executable->states) states.push_back(before.executable->constants[static_cast<size_t>(s)]);
  add_states(std::move(states), out);
  out.report.total_ms = watch.ms();
  return out;
}

} // namespace tessera
