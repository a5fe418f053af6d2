#include "trace.h"
#include <algorithm>
#include <cmath>

namespace tessera::command {

namespace {

constexpr int kHost = 1, kDevice = 2, kThread = 1; // ids of processes, and of the one thread of each

double nanoseconds(double us) { return std::round(us * 1e3) / 1e3; }

Json name_event(const char* what, int process, const std::string& name) {
  Json e{{"ph", "M"}, {"name", what}, {"pid", process}};
  if (std::string_view(what) == "thread_name") e["tid"] = kThread;
  e["args"] = {{"name", name}};
  return e;
}

} // namespace

ChromeTrace::ChromeTrace(const Json& report) {
  about_ = {{"schema", {{"name", "tessera.trace"}, {"version", 1}}}};
  for (const char* key : {"tessera", "model", "target", "sizes"})
    if (report.contains(key)) about_[key] = report[key];
  const std::string target = report.value("target", "");
  const bool gpu = target.starts_with("cuda");
  events_.push_back(name_event("process_name", kHost, "host"));
  events_.push_back(name_event("thread_name", kHost, "calls"));
  events_.push_back(name_event("process_name", kDevice, gpu ? "GPU (" + target + ")" : "CPU (" + target + ")"));
  events_.push_back(name_event("thread_name", kDevice, gpu ? "stream" : "steps, on all threads of the pool"));
  for (int process : {kHost, kDevice})
    events_.push_back(
        {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", process}, {"args", {{"sort_index", process}}}});
  if (!report.contains("steps")) return;
  for (const Json& s : report["steps"]) {
    Json about;
    for (const char* key : {"kind", "operators", "library_call", "iteration"})
      if (s.contains(key)) about[key] = s[key];
    if (s.contains("price") && s["price"].contains("alone_us") && s["price"]["alone_us"].is_number())
      about["predicted_us"] = s["price"]["alone_us"];
    steps_.emplace(s["id"].get<std::string>(), std::move(about));
  }
}

Json ChromeTrace::slice(const std::string& name, const char* category, bool device, double begin_ms, double ms) const {
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"pid", device ? kDevice : kHost},
          {"tid", kThread},
          {"ts", nanoseconds((begin_ms - origin_ms_) * 1e3)},
          {"dur", nanoseconds(std::max(ms, 0.0) * 1e3)}};
}

Json ChromeTrace::arguments(const StepProfile& step) const {
  Json args{{"call", calls_}, {"step", step.step}, {"bytes", step.bytes}};
  if (!step.kernel.empty()) {
    args["kernel"] = step.kernel;
    args[step.threads > 0 ? "blocks" : "programs"] = step.blocks;
    if (step.threads > 0) args["threads"] = step.threads;
  }
  if (auto known = steps_.find(step.name); known != steps_.end()) args.update(known->second);
  return args;
}

void ChromeTrace::add(const RunStats& call) {
  constexpr double kIdleMs = 0.1;
  if (calls_ == 0)
    origin_ms_ = call.begin_ms;
  else
    origin_ms_ += std::max(0.0, call.begin_ms - ended_ms_ - kIdleMs);
  ended_ms_ = call.begin_ms + call.total_ms;
  Json whole = slice("call " + std::to_string(calls_), "call", false, call.begin_ms, call.total_ms);
  whole["args"] = {{"call", calls_}, {"variant", call.variant}, {"new_shape", call.new_shape}};
  events_.push_back(std::move(whole));
  for (const HostPhase& p : call.phases) events_.push_back(slice(p.name, "phase", false, p.begin_ms, p.ms));
  for (const StepProfile& s : call.steps) {
    Json submission = slice(s.name, s.on_host ? "host step" : "submit", false, s.submit_begin_ms, s.submit_ms);
    submission["args"] = arguments(s);
    events_.push_back(submission);
    if (s.on_host) continue;
    Json run = slice(s.name, "step", true, s.begin_ms, s.ms);
    run["args"] = std::move(submission["args"]);
    Json flow{{"ph", "s"},    {"name", "submit"}, {"cat", "flow"},         {"id", ++flows_},
              {"pid", kHost}, {"tid", kThread},   {"ts", submission["ts"]}};
    events_.push_back(flow);
    flow["ph"] = "f";
    flow["bp"] = "e"; // the slice that begins there
    flow["pid"] = kDevice;
    flow["ts"] = run["ts"];
    events_.push_back(std::move(run));
    events_.push_back(std::move(flow));
  }
  ++calls_;
}

Json ChromeTrace::json() const { return {{"displayTimeUnit", "ms"}, {"otherData", about_}, {"traceEvents", events_}}; }

} // namespace tessera::command
