// Requests of a user for the plan of a compile: a plan file that was read (codegen/driver/plan_file.h), and the options
// no_fuse and break_at.
#pragma once
#include "codegen/compilation/options.h"
#include "codegen/schedule/tuned.h"
#include "fusion/plan.h"

namespace tessera {

struct PlanFile {
  std::string file, target; // of the compile that wrote it
  bool strict = false;
  FusionConstraints fusion;
  std::vector<FixedSchedules> schedules;                         // by group of `fusion`; an empty list: none
  std::map<std::string, std::shared_ptr<const PlanFile>> bodies; // of control flow, by body_key()
};

// Operators to keep apart, of the options and of their plan file.
[[nodiscard]] FusionConstraints requests_of(const CompileOptions& options);
// The schedules that a plan file has for a group; null: none.
[[nodiscard]] const FixedSchedules* pinned_schedules(const CompileOptions& options, const Group& group);

} // namespace tessera
