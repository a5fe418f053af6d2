// Internal failures that cost one piece of work rather than the process.
//
// A failed check (check.h) inside a RecoveryScope throws an InternalError; elsewhere it aborts, since nobody would take
// another way. guarded() and the tasks of FirstException (guarded.h) are such scopes, so entry points of the API, threads
// and everything that a compile can do in another way are. What was thrown becomes a Diagnostic of code Internal, with
// the check, its place and what was being worked on; the compile driver then takes the next schedule, route or plan
// (codegen/driver/detours.h).
//
// Two kinds of check always abort: checks of who owns memory at run time (TESSERA_MEMORY_CHECK), behind which memory may
// be damaged, and those that fail while another exception is on its way. With TESSERA_CHECKS=abort in the environment,
// which debuggers, fuzzers and the tests of this project use, all of them do, unless failures are injected.
#pragma once
#include "base/diagnostic.h"
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A failed check, or a fatal error of a library. Copies share their text.
class InternalError : public std::exception {
public:
  InternalError(std::string_view what, std::string_view condition, std::string_view place,
                std::vector<std::string> contexts);
  [[nodiscard]] const char* what() const noexcept override; // "merging nests that share nothing: argmax, select"
  [[nodiscard]] Diagnostic diagnostic() const;              // with the condition, its place and the contexts as notes

private:
  std::shared_ptr<const Diagnostic> diagnostic_;
};

// While one exists, failed checks of this thread throw. Scopes nest.
class RecoveryScope {
public:
  RecoveryScope() noexcept;
  ~RecoveryScope() { allowed_ = outer_; }
  RecoveryScope(const RecoveryScope&) = delete;
  RecoveryScope& operator=(const RecoveryScope&) = delete;
  // True if a check that fails now throws.
  [[nodiscard]] static bool open() noexcept { return allowed_ >= 0 && std::uncaught_exceptions() == allowed_; }

private:
  static constinit thread_local int
      allowed_; // exceptions that were on their way where the innermost scope began; -1: no scope
  int outer_;
};

// Always aborts, with the text of check_failed().
[[noreturn]] void memory_check_failed(const char* condition, const char* file, int line, std::string_view what);

// Failures of this process that cost a schedule, a route or a pass instead of a compile.
[[nodiscard]] int64_t contained_failures() noexcept;
void count_contained_failure() noexcept;

// ---- failures on purpose
// Stages of a compile at which TESSERA_INJECT_FAILURE=STAGE[:N] lets a check fail: each time the stage is reached, or
// the Nth time of the process only. A stage of several parts may name one: "pass/cse".
struct FailureStage {
  std::string_view name, summary;
};
[[nodiscard]] std::span<const FailureStage> failure_stages();
// True where the failure of this stage is due. `part`: "cse" of "pass/cse". Costs one relaxed load where nothing is
// injected.
[[nodiscard]] bool failure_due(std::string_view stage, std::string_view part = {});
// A failing check where the failure is due.
void failure_point(std::string_view stage, std::string_view part = {});
// Sets the failure to inject in the place of the environment's, for tests; empty: none. Counting begins anew. Returns
// false for an unknown stage.
bool inject_failure(std::string_view text);

} // namespace tessera

#define TESSERA_MEMORY_CHECK(cond, what)                                                                               \
  do {                                                                                                                 \
    if (!(cond)) [[unlikely]]                                                                                          \
      ::tessera::memory_check_failed(#cond, __FILE__, __LINE__, (what));                                               \
  } while (0)
