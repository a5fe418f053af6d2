#include "codegen/compilation/requests.h"
#include <algorithm>

namespace tessera {

FusionConstraints requests_of(const CompileOptions& options) {
  FusionConstraints out;
  if (options.plan) {
    out.apart = options.plan->fusion.apart;
    out.breaks = options.plan->fusion.breaks;
  }
  auto add = [](auto& list, const auto& more) {
    for (const auto& item : more)
      if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  };
  add(out.apart, options.no_fuse);
  add(out.breaks, options.break_at);
  return out;
}

const FixedSchedules* pinned_schedules(const CompileOptions& options, const Group& group) {
  if (!options.plan) return nullptr;
  const auto& groups = options.plan->fusion.groups;
  auto pin = static_cast<size_t>(group.pin);
  if (group.pin < 0) { // what the plan itself made has no nodes: by name
    if (!group.stages.empty() || group.kind != Group::Kind::Kernel) return nullptr;
    auto named = [&](const PinnedGroup& g) { return g.nodes.empty() && g.parts.empty() && g.name == group.name; };
    pin = static_cast<size_t>(std::find_if(groups.begin(), groups.end(), named) - groups.begin());
  }
  if (pin >= groups.size() || options.plan->schedules[pin].list().empty()) return nullptr;
  return &options.plan->schedules[pin];
}

} // namespace tessera
