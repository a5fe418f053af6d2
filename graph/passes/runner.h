// The runner of passes: all bookkeeping (verifying, timing, dumping, disabling, naming the pass in errors) for whatever
// passes transform. A graph by itself is run by run_pipeline() (pass.h), a graph that becomes a plan by the compile
// driver (codegen/driver/pipeline.h).
#pragma once
#include "base/result.h"
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The program that passes transform. The runner queries it again after each pass, since a graph may have become a plan.
class PassSubject {
public:
  PassSubject() = default;
  PassSubject(const PassSubject&) = delete;
  PassSubject& operator=(const PassSubject&) = delete;
  virtual ~PassSubject() = default;
  [[nodiscard]] virtual std::string_view level() const = 0; // "graph", "plan": the extension of dumps
  [[nodiscard]] virtual std::string name() const = 0;       // of the graph
  [[nodiscard]] virtual std::string text() const = 0;
  [[nodiscard]] virtual Status verify() const = 0;
  [[nodiscard]] virtual int size() const = 0; // nodes of a graph, groups of a plan
};

struct PassStep {
  std::string_view name; // "cse"
  // Returns whether it changed the subject.
  std::function<Result<bool>()> run;
  // The step to go on with where this one changed something, one before it; -1: the next one.
  int again_from = -1;
};
struct PassStats {
  std::string name, level; // the level behind the pass
  bool changed = false;
  double milliseconds = 0;
  int nodes_before = 0, nodes_after = 0; // groups where the level is "plan"
};
struct PassRunOptions {
  std::vector<std::string> disabled; // names of steps to leave out
  bool verify = false; // after every pass that changes something; always with TESSERA_CHECKS=passes and in debug builds
  bool dump = true;    // to TESSERA_DUMP_DIR, where that is set
  std::string dump_prefix;       // of the files' names
  std::string* failed = nullptr; // given the name of the step that failed
};
// Errors, those of failed checks and exceptions included, are prefixed with "failed in pass <name>"; the subject may then
// be half changed. With TESSERA_CHECKS=passes and in debug builds a pass that changed the subject and said that it did not is
// a failed check.
[[nodiscard]] Result<std::vector<PassStats>> run_steps(PassSubject& subject, std::span<const PassStep> steps,
                                                       const PassRunOptions& options);
// Names in TESSERA_DISABLE_PASSES.
[[nodiscard]] std::vector<std::string> passes_disabled_by_environment();

} // namespace tessera
