// Calls that were profiled as a Chrome trace: the JSON that Perfetto, chrome://tracing and PyTorch's tools open.
//
// One process is the host: a call with its phases and, for each step, its submission. Another one is the device: the
// steps as they ran. An arrow (flow) leads from a submission to its step. Times are in microseconds; of the idle time
// between two calls 100 remain. Those of a GPU are put on the host's clock some microseconds late (runtime/run.h).
#pragma once
#include "command.h"

namespace tessera::command {

class ChromeTrace {
public:
  // `report`: of the model that ran (explain_json()): what steps compute. A call's steps have its ids.
  explicit ChromeTrace(const Json& report);
  // A call of a profiling executor. Calls are added in the order in which they were made.
  void add(const RunStats& call);
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] Json json() const;

private:
  [[nodiscard]] Json slice(const std::string& name, const char* category, bool device, double begin_ms,
                           double ms) const;
  [[nodiscard]] Json arguments(const StepProfile& step) const;

  Json about_;
  std::map<std::string, Json> steps_; // of the report by id: operators, kind, predicted time
  Json events_ = Json::array();
  double origin_ms_ = 0, ended_ms_ = 0; // of the host's clock
  int calls_ = 0, flows_ = 0;
};

} // namespace tessera::command
