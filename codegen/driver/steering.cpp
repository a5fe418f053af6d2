#include "codegen/driver/steering.h"
#include "base/similar.h"
#include "codegen/driver/plan_file.h"
#include "graph/ops/control.h"
#include <algorithm>

namespace tessera {
namespace {

void collect(const Graph& graph, std::vector<Location>& out) {
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    const auto* structured = node.op->structured();
    if (structured && structured->kind == Structured::Constant) continue;
    out.push_back(node.location);
    if (!structured || structured->kind != Structured::Control) continue;
    auto form = ops::control_form(node);
    if (!form.ok()) continue; // the compile says so
    for (const auto& body : form->bodies)
      if (body.graph) collect(*body.graph, out);
  }
}

// Operators by the names that a user may give.
class Names {
public:
  explicit Names(const Graph& model) {
    std::vector<Location> all;
    collect(model, all);
    std::map<std::string, int> times;
    for (const Location& l : all) ++times[operator_name(l)];
    std::map<std::string, int> met;
    for (const Location& l : all) {
      const std::string& name = operator_name(l);
      if (name.empty()) continue;
      const int number = ++met[name];
      const bool shared = times[name] > 1 && !l.output.empty();
      by_id_.try_emplace(number > 1 ? name + "#" + std::to_string(number) : name, shared ? l.output : name);
      if (!l.output.empty()) by_id_.try_emplace(l.output, shared ? l.output : name);
    }
  }
  [[nodiscard]] bool has(const std::string& name) const { return by_id_.contains(name); }
  Status resolve(std::string& name, const char* option) const {
    if (auto it = by_id_.find(name); it != by_id_.end()) {
      name = it->second;
      return {};
    }
    Diagnostic d(ErrorCode::Usage, std::string(option) + ": the model has no operator '" + name + "'");
    std::vector<std::string> known;
    for (const auto& [id, to] : by_id_) known.push_back(id);
    if (auto close = similar(name, known); !close.empty()) d.note("did you mean '" + close + "'?");
    return std::move(d).note("'tessera explain MODEL --format json' lists the operators by the exporter's names");
  }

private:
  std::map<std::string, std::string> by_id_;
};

std::string described(const PinnedGroup& group) { return "group '" + group.name + "' of the plan file"; }

} // namespace

Status check_operators(const Graph& model, CompileOptions& options) {
  if (options.no_fuse.empty() && options.break_at.empty()) return {};
  const Names names(model);
  for (auto& [a, b] : options.no_fuse) {
    TESSERA_TRY(names.resolve(a, "--no-fuse"));
    TESSERA_TRY(names.resolve(b, "--no-fuse"));
    if (a == b) return Diagnostic(ErrorCode::Usage, "--no-fuse names the operator '" + a + "' twice");
  }
  for (std::string& name : options.break_at) TESSERA_TRY(names.resolve(name, "--break-at"));
  return {};
}

std::string route_of(const Group& group, const Graph& graph, const DeviceRoutes* routes) {
  switch (group.kind) {
  case Group::Kind::Kernel: return "generated code";
  case Group::Kind::Host: return "the host";
  case Group::Kind::Control: return "control flow";
  case Group::Kind::Alias: return "nothing";
  case Group::Kind::Attention:
  case Group::Kind::Own:
    if (group.node.valid()) break;
    for (const AttentionRoute& route : routes ? routes->attention : std::vector<AttentionRoute>{})
      if ((route.kind == RouteKind::Library) == (group.kind == Group::Kind::Attention)) return std::string(route.by);
    return "attention";
  case Group::Kind::Library: break;
  }
  const Node& node = graph.node(group.kind == Group::Kind::Library ? group.call.node : group.node);
  const Route* route = routes ? choose_route(*routes, graph, node) : nullptr;
  return route ? std::string(route->by) : std::string(node.op->name);
}

Status report_unmet(const Graph& graph, const CompileOptions& options, CompileReport& report) {
  auto& warnings = report.plan_warnings;
  auto gone = [&](const std::string& name, const std::string& request) {
    const auto order = graph.order();
    const auto& known = report.operators;
    if (std::none_of(known.begin(), known.end(), [&](const Location& l) { return is_of(l, name); })) return;
    if (std::any_of(order.begin(), order.end(), [&](NodeId id) { return is_of(graph.node(id).location, name); }))
      return;
    warnings.push_back(request + " does nothing for '" + name +
                       "': it became constants or part of another operator before fusion");
  };
  for (const auto& [a, b] : report.requests.apart) gone(a, "--no-fuse"), gone(b, "--no-fuse");
  for (const std::string& name : report.requests.breaks) gone(name, "--break-at");
  if (!options.plan) return {};

  const size_t before = warnings.size();
  const auto& pinned = options.plan->fusion.groups;
  for (const UnmetPin& pin : report.plan.unmet)
    warnings.push_back(described(pinned[static_cast<size_t>(pin.group)]) + " does not fit: " + pin.why +
                       "; the planner decides about its operators");
  auto same_route = [&](const Group& group) {
    if (group.pin < 0) return;
    const PinnedGroup& pin = pinned[static_cast<size_t>(group.pin)];
    if (const std::string now = route_of(group, graph, report.routes.get()); !pin.route.empty() && now != pin.route)
      warnings.push_back(described(pin) + " is computed by " + now + ", not by " + pin.route);
  };
  for (const Group& group : report.plan.groups) {
    same_route(group);
    for (const Group& step : group.otherwise)
      if (step.pin != group.pin) same_route(step); // else a kernel for what the library refuses
  }
  for (const KernelReport& kernel : report.kernels)
    for (const std::string& why : kernel.unmet)
      warnings.push_back("kernel '" + kernel.name + "': " + why + "; the cost model chooses");
  if (warnings.size() == before) return {};
  // A file of another model misfits everywhere: that is one fact.
  const size_t misfits = warnings.size() - before;
  const std::string many = options.plan->file + " does not fit: " + std::to_string(misfits) +
                           " of its entries cannot be followed" +
                           (2 * misfits > pinned.size() ? "; it may be of another model" : "");
  constexpr size_t kMax = 8;
  if (options.plan_strict || options.plan->strict) {
    Diagnostic d(ErrorCode::Usage, many);
    for (size_t i = before; i < std::min(warnings.size(), before + kMax); ++i) d.note(warnings[i]);
    if (misfits > kMax) d.note("... and " + std::to_string(misfits - kMax) + " more");
    return std::move(d).note("without --plan-strict they are warnings, and the rest of the file counts");
  }
  if (misfits > kMax) warnings[before] = many + ", first: " + warnings[before], warnings.resize(before + 1);
  return {};
}

} // namespace tessera
