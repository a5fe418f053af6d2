#include "graph/passes/runner.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include <algorithm>
#include <cstdio>

namespace tessera {
namespace {

// Each pass reports whether it changed the graph. Checking that takes two texts of the graph for each pass.
bool checks_passes() {
#ifdef TESSERA_DEBUG
  return true;
#else
  static const bool checks = environment_lists("TESSERA_CHECKS", "passes");
  return checks;
#endif
}

void dump(const PassSubject& subject, const PassRunOptions& options, int number, std::string_view pass) {
  if (!options.dump || !dump_enabled()) return;
  char digits[24];
  std::snprintf(digits, sizeof digits, "%03d-", number);
  write_dump(options.dump_prefix + digits + std::string(pass) + "." + std::string(subject.level()), subject.text());
}

void log(const PassStats& stats) {
  if (!log_enabled(LogChannel::Passes)) return;
  char line[160];
  std::snprintf(line, sizeof line, "%-18s %-9s %5d -> %5d %s  %.2f ms", stats.name.c_str(),
                stats.changed ? "changed" : "unchanged", stats.nodes_before, stats.nodes_after,
                stats.level == "plan" ? "groups" : "nodes", stats.milliseconds);
  log_write(LogChannel::Passes, line);
}

Result<PassStats> run_step(PassSubject& subject, const PassStep& step, bool verify) {
  const std::string name(step.name);
  CheckContext context("pass " + name + " on graph " + subject.name());
  PassStats stats;
  stats.name = name;
  stats.nodes_before = subject.size();
  const bool checks = checks_passes();
  const std::string before = checks ? subject.text() : "";
  const Stopwatch watch;
  failure_point("pass", name);
  TESSERA_ASSIGN(stats.changed, step.run());
  failure_point("pass-end", name);
  stats.milliseconds = watch.ms();
  stats.level = subject.level();
  stats.nodes_after = subject.size();
  if (checks && !stats.changed)
    TESSERA_CHECK(subject.text() == before,
                  "pass " + name + " changed the " + stats.level + " and said that it did not");
  if (stats.changed && (checks || verify)) TESSERA_TRY(subject.verify());
  return stats;
}

} // namespace

Result<std::vector<PassStats>> run_steps(PassSubject& subject, std::span<const PassStep> steps,
                                         const PassRunOptions& options) {
  std::vector<PassStats> all;
  int number = 0;
  dump(subject, options, number, "input");
  for (size_t i = 0; i < steps.size();) {
    const PassStep& step = steps[i++];
    ++number;
    if (std::find(options.disabled.begin(), options.disabled.end(), step.name) != options.disabled.end()) continue;
    auto done = guarded({"pass", step.name}, [&] { return run_step(subject, step, options.verify); });
    if (!done.ok()) {
      Diagnostic failed = std::move(done).take_error();
      failed.message = "failed in pass " + std::string(step.name) + ": " + failed.message;
      if (options.failed) *options.failed = step.name;
      return failed;
    }
    PassStats stats = std::move(*done);
    log(stats);
    if (stats.changed) dump(subject, options, number, step.name);
    if (stats.changed && step.again_from >= 0) {
      TESSERA_CHECK(static_cast<size_t>(step.again_from) < i, "a pass is followed by an earlier one or by the next");
      i = static_cast<size_t>(step.again_from);
    }
    all.push_back(std::move(stats));
  }
  return all;
}

std::vector<std::string> passes_disabled_by_environment() {
  std::vector<std::string> out;
  const char* text = environment("TESSERA_DISABLE_PASSES");
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (std::string_view one = rest.substr(0, comma); !one.empty()) out.emplace_back(one);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return out;
}

} // namespace tessera
