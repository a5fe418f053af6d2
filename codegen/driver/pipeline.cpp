#include "codegen/driver/pipeline.h"
#include "codegen/device/device.h"
#include "codegen/driver/fold_constants.h"
#include "codegen/driver/group_iterations.h"
#include "codegen/driver/plan_file.h"
#include "codegen/driver/separate_fills.h"
#include "codegen/driver/steering.h"
#include "fusion/attention.h"
#include "fusion/lifetimes.h"
#include "graph/support/guarded.h"
#include <algorithm>
#include <charconv>

namespace tessera {

Compilation::Compilation(Graph& graph, Backend& backend, const CompileOptions& options)
    : GraphSubject(graph), backend_(backend), options_(options), axes_(graph.env()) {}

FusionPlan& Compilation::plan() {
  TESSERA_CHECK(plan_.has_value(), "a pass over plans stands behind fuse");
  return *plan_;
}

std::string Compilation::text() const {
  return plan_ ? print(graph_) + "\n" + print(graph_, *plan_) : GraphSubject::text();
}

Status Compilation::verify() const {
  TESSERA_TRY(GraphSubject::verify());
  return plan_ ? tessera::verify(graph_, *plan_) : Status();
}

int Compilation::size() const { return plan_ ? static_cast<int>(plan_->groups.size()) : GraphSubject::size(); }

Result<bool> Compilation::fuse() {
  fusion_ = FusionOptions();
  fusion_.enabled = options_.fusion;
  fusion_.strict_rounding = options_.strict_rounding;
  fusion_.constraints = requests_of(options_);
  if (pinned_) fusion_.constraints.groups = options_.plan->fusion.groups;
  fusion_.keep_values = options_.keep_values;
  backend_.configure(fusion_);
  set_routes(fusion_, backend_.routes());
  fusion_.constraints.detours = detours_;
  TESSERA_ASSIGN(plan_, plan_or_less());
  for (PlanFailure& failure : plan_->failures) failures_.push_back(std::move(failure));
  plan_->failures.clear();
  if (!failures_.empty()) TESSERA_TRY(tessera::verify(graph_, *plan_));
  return true;
}

// The plan; if it cannot be made, one without fusion; then one in which the host runs every operator.
Result<FusionPlan> Compilation::plan_or_less() {
  auto attempt = [&] { return guarded("planning", [&] { return plan_groups(graph_, axes_, fusion_); }); };
  auto plan = attempt();
  if (plan.ok() || plan.error().code != ErrorCode::Internal) return plan;
  const Diagnostic first = plan.error();
  fusion_.enabled = false;
  fusion_.constraints.groups.clear();
  std::string instead = "nothing is fused";
  plan = attempt();
  if (!plan.ok() && plan.error().code == ErrorCode::Internal) {
    for (NodeId id : graph_.order()) {
      const auto* structured = graph_.node(id).op->structured();
      if (!structured || structured->kind != Structured::Constant)
        fusion_.constraints.detours.on_host.emplace(id, "planning failed: " + first.message);
    }
    instead = "the host runs every operator";
    plan = attempt();
  }
  if (!plan.ok()) return first;
  failures_.push_back({"planning", first, instead});
  return plan;
}

void Compilation::plan_around(const FusionDetours& detours) {
  detours_ = detours;
  plan_.reset();
}

Result<bool> Compilation::fuse_attention() { return fusion::fuse_attention(graph_, axes_, fusion_, plan()); }

Result<bool> Compilation::pin() {
  if (pinned_ || !options_.plan || options_.plan->fusion.groups.empty()) return false;
  pinned_ = true;
  plan_.reset();
  return true;
}

Result<bool> Compilation::fold() {
  if (pinned_) return false; // it was done for the plan before
  TESSERA_ASSIGN(bool changed, fold_constants(graph_, plan(), options_, constants_));
  if (changed) plan_.reset();
  return changed;
}

const std::vector<CompilePass>& compile_passes() {
  static const std::vector<CompilePass> table = [] {
    std::vector<CompilePass> all;
    for (const PassDef& pass : graph_passes())
      all.push_back(
          {pass.name, pass.summary, PassLevel::Graph, [&pass](Compilation& c) { return pass.run(c.graph(), {}); }});
    auto of_devices = [&](bool plans) {
      for (const Device& device : devices())
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
    all.push_back({"fuse", "plans kernels, library calls and host operators", PassLevel::Fuse,
                   [](Compilation& c) { return c.fuse(); }});
    all.push_back({"fuse-attention", "two products and the softmax between them become one unit", PassLevel::Plan,
                   [](Compilation& c) { return c.fuse_attention(); }});
    all.push_back({"fold-constants", "computes what depends on no input, and plans again", PassLevel::Plan,
                   [](Compilation& c) { return c.fold(); }, "fuse"});
    all.push_back({"pin-plan", "plans again as a plan file says", PassLevel::Plan,
                   [](Compilation& c) { return c.pin(); }, "fuse"});
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
  TESSERA_ASSIGN([[maybe_unused]] const Device* known, find_device(device));
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
