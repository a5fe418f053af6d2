// Plans of compiled files under edits: each model is saved once; an input says which model, and which edits of its plan
// ("product 1234", 0: none). The edited file gets a right hash, is loaded and run. It ends in an error, or in a run
// that stays inside of its own buffers: inputs, outputs and weights lie before pages that cannot be touched, and inputs
// and weights cannot be written; RedZones (runtime/cpu) stand between temporaries.
#pragma once
#include "runtime/executor.h"
#include <map>

namespace tessera::fuzz {

struct PlanModel {
  std::string name;
  std::shared_ptr<const Executable> executable;
  std::map<std::string, Tensor> inputs;
};
// The models of a fuzz target, linked and ready to run.
[[nodiscard]] std::vector<PlanModel> plan_models();

} // namespace tessera::fuzz
