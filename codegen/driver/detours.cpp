#include "codegen/driver/detours.h"
#include "codegen/driver/pipeline.h"
#include "codegen/driver/planned_operators.h"
#include <algorithm>

namespace tessera {

bool Detours::leave_out(const std::string& pass) {
  const CompilePass* known = find_compile_pass(pass);
  if (!known || known->level == PassLevel::Fuse) return false;
  if (std::find(passes_.begin(), passes_.end(), pass) != passes_.end()) return false;
  passes_.push_back(pass);
  plan_ = {}; // the graph will be another one
  return true;
}

bool Detours::all_on_host(const Graph& graph, const Diagnostic& error) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const auto* structured = graph.node(id).op->structured();
    if (structured && (structured->kind == Structured::Constant || structured->kind == Structured::Alias ||
                       structured->kind == Structured::Control))
      continue;
    changed = plan_.on_host.emplace(id, "generating code failed: " + error.message).second || changed;
  }
  return changed;
}

std::string Detours::around(const Graph& graph, const FusionPlan& plan, const Group& group, const Diagnostic& error) {
  if (group.kind == Group::Kind::Host || group.kind == Group::Kind::Alias) return "";
  constexpr int kRounds = 3; // after which a kernel of several operators goes to the host at once
  const bool attention =
      group.kind == Group::Kind::Attention || (group.kind == Group::Kind::Own && !group.node.valid());
  if (attention && plan_.in_steps.insert(group.attention.out.value).second) return "its three steps are planned";
  std::vector<NodeId> nodes;
  for (NodeId id : nodes_of(group)) {
    const auto* structured = graph.node(id).op->structured();
    if (!structured || (structured->kind != Structured::Constant && structured->kind != Structured::Alias))
      nodes.push_back(id);
  }
  if (group.kind == Group::Kind::Control) nodes = {group.node};
  if (nodes.empty()) { // a plan made it for an attention, which reads its result
    bool changed = false;
    for (const Group* reader : flat_groups(plan))
      for (ValueId v : reader->attention.out.value.valid() ? group.writes : std::vector<ValueId>())
        if (std::find(reader->reads.begin(), reader->reads.end(), v) != reader->reads.end())
          changed = plan_.in_steps.insert(reader->attention.out.value).second || changed;
    return changed ? "the attention that reads it is planned in steps" : "";
  }
  const bool several = nodes.size() > 1 && rounds_ < kRounds;
  bool changed = false;
  if (several) {
    const Separation failed{FusionReason::InternalFailure, "compiling them together failed"};
    for (NodeId id : nodes) changed = plan_.alone.emplace(id, failed).second || changed;
    if (changed) return "each of its operators is planned alone";
  }
  for (NodeId id : nodes)
    changed = plan_.on_host.emplace(id, "generating code for it failed: " + error.message).second || changed;
  if (!changed) return "";
  return nodes.size() > 1 ? "the host runs its operators" : "the host runs it";
}

} // namespace tessera
