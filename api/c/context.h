// A session of the C interface, and calls of it.
#pragma once
#include "api/c/last_error.h"
#include "api/c/metrics.h"
#include "api/session.h"
#include "base/fork.h"
#include "base/in_use.h"
#include "base/stopwatch.h"
#include <deque>

struct tessera_session {
  std::shared_ptr<tessera::Session> session;
  std::unique_ptr<tessera::Executor> executor; // of a clone; the first one runs by the session's own
  std::unique_ptr<tessera::ContextMetrics> metrics;
  std::string device;
  int gpu = 0;                                  // of device "cuda"
  int threads = 0;                              // of the host
  bool sizes_known = true;                      // of outputs, from those of inputs
  std::vector<tessera::IoInfo> inputs, outputs; // as the model declares them
  std::vector<tessera::IoInfo> states;
  std::map<std::string, size_t, std::less<>> input_named;
  tessera::InUse in_use;
  tessera::OfProcess process;
  std::vector<tessera::DeviceTensor> called_with; // inputs of the last tessera_call(), all of them looked at
  std::vector<tessera::Tensor> fresh;             // what tessera_run_fresh() shows
  struct Bound {                                  // by place
    std::vector<tessera::DeviceTensor> inputs, outputs;
  };
  std::optional<Bound> bound; // by tessera_bind()
  // These are shown by tessera_output_sizes() and tessera_run_fresh().
  std::vector<tessera::DeviceTensor> yields;
  std::vector<tessera_tensor> sizes; // of them
  // This is shown by tessera_inputs(), tessera_outputs() and tessera_states().
  struct Shown {
    std::vector<std::vector<std::string>> dims;
    std::vector<std::vector<const char*>> texts;
    std::vector<tessera_io> ios;
  };
  Shown shown_inputs, shown_outputs, shown_states;
  std::string report, last_miss, metrics_text;
  // These are shown by tessera_run_items(): a deque, as items point to each other.
  std::vector<tessera::Tensor> yielded;
  std::deque<std::vector<tessera_item>> items;
  std::deque<std::vector<const char*>> texts;
  std::deque<std::vector<size_t>> lengths;
};

namespace tessera {

[[nodiscard]] inline Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

// Runs body(session) as the only one in it; the error's text, or null.
template <class Body>
const char* call(tessera_session* session, const Doing& doing, const Body& body) {
  return recorded(doing, [&]() -> Status {
    if (session == nullptr) return usage("the session is null");
    TESSERA_ASSIGN(auto alone, session->in_use.begin("the session", "open a session for each thread"));
    return body(*session);
  });
}

// The same of a call that runs the model, or would: body(session, stats), which is counted.
template <class Body>
const char* counted_call(tessera_session* session, ContextMetrics::Kind kind, const Doing& doing, const Body& body) {
  return call(session, doing, [&](tessera_session& s) -> Status {
    const Stopwatch watch;
    RunStats stats;
    Status outcome = guarded(doing, [&] { return body(s, stats); });
    s.metrics->add(kind, stats, outcome.ok(), watch.us());
    return outcome;
  });
}
template <class Body>
const char* run_call(tessera_session* session, const Body& body) {
  return counted_call(session, ContextMetrics::Kind::Call, "running the model", body);
}

// Shows an array that the session keeps.
template <class T>
void show(const std::vector<T>& all, const T** to, int32_t* count) {
  *to = all.data();
  *count = static_cast<int32_t>(all.size());
}

// Does the same by the context's executor: the session's own, or that of a clone.
template <class Use>
auto on_executor(tessera_session& s, const Use& use) {
  return s.executor ? use(*s.executor) : use(*s.session);
}

} // namespace tessera
