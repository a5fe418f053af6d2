#include "codegen/driver/pipeline.h"
#include "base/guarded.h"
#include "codegen/driver/devices.h"
#include "codegen/driver/fold_constants.h"
#include "codegen/driver/group_iterations.h"
#include "codegen/driver/plan_file.h"
#include "codegen/driver/separate_fills.h"
#include "fusion/attention.h"
#include "fusion/lifetimes.h"
#include <algorithm>
#include <charconv>

namespace tessera {

namespace {

// The plan; if it cannot be made, one without fusion; then one in which the host runs every operator.
Result<FusionPlan> plan_or_less(Compilation& c) {
  FusionOptions& fusion = c.planning().fusion;
  auto attempt = [&] { return guarded("planning", [&] { return plan_groups(c.graph(), c.planning().axes, fusion); }); };
  auto made = attempt();
  if (made.ok() || made.error().code != ErrorCode::Internal) return made;
  const Diagnostic first = made.error();
  fusion.enabled = false;
  fusion.constraints.groups.clear();
  std::string instead = "nothing is fused";
  made = attempt();
  if (!made.ok() && made.error().code == ErrorCode::Internal) {
    for (NodeId id : c.graph().order()) {
      const auto* structured = c.graph().node(id).op->structured();
      if (!structured || structured->kind != Structured::Constant)
        fusion.constraints.detours.on_host.emplace(id, "planning failed: " + first.message);
    }
    instead = "the host runs every operator";
    made = attempt();
  }
  if (!made.ok()) return first;
  c.planning().failures.push_back({"planning", first, instead});
  return made;
}

// ---- the passes of every device from a graph to its plan

Result<bool> fuse(Compilation& c) {
  const CompileOptions& options = c.options();
  Compilation::Planning& its = c.planning();
  its.fusion = FusionOptions();
  its.fusion.enabled = options.fusion;
  its.fusion.strict_rounding = options.strict_rounding;
  its.fusion.constraints = requests_of(options);
  if (its.pinned) its.fusion.constraints.groups = options.plan->fusion.groups;
  its.fusion.keep_values = options.keep_values;
  c.backend().configure(its.fusion);
  set_routes(its.fusion, c.backend().routes());
  if (!its.contractions.empty())
    its.fusion.as_loops = [&its, as_loops = its.fusion.as_loops](const Graph& graph, NodeId id) {
      const auto found = its.contractions.find(id);
      return (found != its.contractions.end() && found->second.choice.taken) || as_loops(graph, id);
    };
  its.fusion.written_out = [&its](ValueId v) {
    return std::any_of(its.contractions.begin(), its.contractions.end(),
                       [&](const auto& entry) { return entry.second.choice.taken && entry.second.factor == v; });
  };
  its.fusion.constraints.detours = its.detours;
  TESSERA_ASSIGN(its.plan, plan_or_less(c));
  for (PlanFailure& failure : its.plan->failures) its.failures.push_back(std::move(failure));
  its.plan->failures.clear();
  if (!its.failures.empty()) TESSERA_TRY(verify(c.graph(), *its.plan));
  return true;
}

Result<bool> fuse_attention(Compilation& c) {
  return fusion::fuse_attention(c.graph(), c.planning().axes, c.fusion(), c.plan());
}

Result<bool> pin(Compilation& c) {
  Compilation::Planning& its = c.planning();
  if (its.pinned || !c.options().plan || c.options().plan->fusion.groups.empty()) return false;
  its.pinned = true;
  its.plan.reset();
  return true;
}

Result<bool> fold(Compilation& c) {
  Compilation::Planning& its = c.planning();
  if (its.pinned || !its.contractions.empty()) return false; // it was done for the plan before
  TESSERA_ASSIGN(bool changed, fold_constants(c.graph(), c.plan(), c.options(), its.constants));
  if (changed) its.plan.reset();
  return changed;
}

} // namespace

const std::vector<CompilePass>& compile_passes() {
  static const std::vector<CompilePass> table = [] {
    std::vector<CompilePass> all;
    for (const PassDef& pass : graph_passes())
      all.push_back(
          {pass.name, pass.summary, PassLevel::Graph, [&pass](Compilation& c) { return pass.run(c.graph(), {}); }});
    auto of_devices = [&](bool plans) {
      for (const CompileDevice& device : devices())
        for (CompilePass& pass : device.passes()) {
          if ((pass.level == PassLevel::Plan) != plans) continue;
          pass.device = device.name;
          all.push_back(std::move(pass));
        }
    };
    all.push_back({"group-iterations", "bodies of scans become several iterations, with their constants",
                   PassLevel::Graph, [](Compilation& c) { return group_iterations(c.graph(), c.backend().device()); }});
    of_devices(false);
    all.push_back({"separate-fills", "what operators change in place begins with a fill of their own", PassLevel::Graph,
                   [](Compilation& c) { return separate_fills(c.graph()); }});
    all.push_back({"fuse", "plans kernels, library calls and host operators", PassLevel::Fuse, fuse});
    all.push_back({"fuse-attention", "two products and the softmax between them become one unit", PassLevel::Plan,
                   fuse_attention});
    all.push_back(
        {"fold-constants", "computes what depends on no input, and plans again", PassLevel::Plan, fold, "fuse"});
    all.push_back({"pin-plan", "plans again as a plan file says", PassLevel::Plan, pin, "fuse"});
    of_devices(true);
    all.push_back({"shorten-lifetimes", "orders the groups so that values live shortly", PassLevel::Plan,
                   [](Compilation& c) { return fusion::shorten_lifetimes(c.graph(), c.plan()); }});
    return all;
  }();
  return table;
}

const CompilePass* find_compile_pass(std::string_view name) {
  for (const CompilePass& pass : compile_passes())
    if (pass.name == name) return &pass;
  return nullptr;
}

Result<std::vector<std::string>> compile_pipeline(std::string_view device) {
  TESSERA_ASSIGN([[maybe_unused]] const CompileDevice* known, find_device(device));
  std::vector<std::string> names = default_pipeline();
  for (const CompilePass& pass : compile_passes())
    if (!find_graph_pass(pass.name) && (pass.device.empty() || pass.device == device)) names.emplace_back(pass.name);
  return names;
}

Status stop_after(std::vector<std::string>& pipeline, const std::string& text) {
  const size_t comma = text.find(',');
  const std::string name = text.substr(0, comma), number = comma == std::string::npos ? "1" : text.substr(comma + 1);
  int left = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), left);
  if (error != std::errc() || end != number.data() + number.size() || left < 1)
    return Diagnostic(ErrorCode::Usage,
                      "'" + number + "' in '" + text + "' is no occurrence of a pass: 1 is the first");
  for (size_t i = 0; i < pipeline.size(); ++i)
    if (pipeline[i] == name && --left == 0) {
      pipeline.resize(i + 1);
      return {};
    }
  std::string names;
  for (const std::string& pass : pipeline) names += (names.empty() ? "" : ", ") + pass;
  return Diagnostic(ErrorCode::Usage,
                    "the pipeline does not run pass '" + name + "'" + (number == "1" ? "" : " " + number + " times"))
      .note("it runs " + names);
}

Result<std::vector<PassStats>> run_passes(Compilation& c, const std::vector<std::string>& pipeline,
                                          PassRunOptions run) {
  for (std::string& name : passes_disabled_by_environment()) run.disabled.push_back(std::move(name));
  for (const std::string& name : run.disabled)
    if (const CompilePass* pass = find_compile_pass(name); !pass || pass->level == PassLevel::Fuse)
      return Diagnostic(ErrorCode::Usage, "cannot disable pass '" + name +
                                              "': " + (pass ? "without it there is no plan" : "there is no such pass"));
  std::vector<PassStep> steps;
  bool planned = c.has_plan();
  for (const std::string& name : pipeline) {
    const CompilePass* pass = find_compile_pass(name);
    if (!pass) return Diagnostic(ErrorCode::Usage, "there is no pass '" + name + "'");
    if (!pass->device.empty() && pass->device != c.options().device)
      return Diagnostic(ErrorCode::Usage, "pass '" + name + "' is for device " + std::string(pass->device) + ", not " +
                                              c.options().device);
    if (planned != (pass->level == PassLevel::Plan))
      return Diagnostic(ErrorCode::Usage, planned ? "pass '" + name + "' works on a graph and stands before 'fuse'"
                                                  : "pass '" + name + "' works on a plan and stands behind 'fuse'");
    planned = planned || pass->level == PassLevel::Fuse;
    const auto again =
        std::find_if(steps.rbegin(), steps.rend(), [&](const PassStep& s) { return s.name == pass->again_from; });
    const int from = again == steps.rend() ? -1 : static_cast<int>(steps.rend() - again) - 1;
    steps.push_back({pass->name, [&c, pass] { return pass->run(c); }, from});
  }
  return run_steps(c, steps, run);
}

} // namespace tessera
