#include "base/recover.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/log.h"
#include <array>
#include <atomic>
#include <charconv>
#include <mutex>

namespace tessera {
namespace {

constexpr std::array kStages = {
    FailureStage{"import", "a model becomes a graph"},
    FailureStage{"pass", "a pass begins, before it changes anything"},
    FailureStage{"pass-end", "a pass ends, and has changed the graph or the plan"},
    FailureStage{"fuse", "planning begins"},
    FailureStage{"merge", "two units of a plan become one"},
    FailureStage{"nest", "an operator becomes a loop nest"},
    FailureStage{"bodies", "the bodies of an If or a loop become graphs"},
    FailureStage{"kernels", "the kernels of a plan are listed"},
    FailureStage{"schedule", "a schedule is chosen"},
    FailureStage{"lower", "a nest and its schedule become a tile kernel"},
    FailureStage{"own", "a structured operator, or an attention, becomes a tile kernel"},
    FailureStage{"emit", "a tile kernel becomes LLVM IR"},
    FailureStage{"llvm", "LLVM reports a fatal error while it optimises"},
    FailureStage{"llvm-emit", "LLVM reports a fatal error while it emits code"},
    FailureStage{"assemble", "PTX is assembled"},
    FailureStage{"link", "machine code of the host is linked"},
    FailureStage{"executable", "the executable is built"},
    FailureStage{"step", "a group of the plan becomes a step"},
    FailureStage{"report", "the report is written"},
};

struct Injection {
  std::mutex mutex;
  std::string stage; // with its part; empty: none
  long number = 0;   // 0: each time
  long reached = 0;
};

Injection& injection() {
  static Injection& instance = *new Injection; // never destroyed: background threads compile to the end
  return instance;
}

std::atomic<bool> injecting{false};
std::atomic<int64_t> contained{0};

bool set_injection(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string_view name = text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  long number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  bool known = text.empty() || colon == std::string_view::npos ||
               (error == std::errc() && end == digits.data() + digits.size() && number > 0);
  if (!text.empty()) {
    const std::string_view stage = name.substr(0, name.find('/'));
    bool found = false;
    for (const FailureStage& s : kStages) found = found || s.name == stage;
    known = known && found;
  }
  Injection& to = injection();
  std::lock_guard lock(to.mutex);
  to.stage = known ? name : std::string_view();
  to.number = number;
  to.reached = 0;
  injecting.store(!to.stage.empty(), std::memory_order_release);
  return known;
}

void read_environment() {
  static const bool read = [] {
    const char* text = environment("TESSERA_INJECT_FAILURE");
    if (text == nullptr || set_injection(text)) return true;
    std::string stages;
    for (const FailureStage& s : kStages) stages += (stages.empty() ? "" : ", ") + std::string(s.name);
    log_write(LogChannel::Warnings, "TESSERA_INJECT_FAILURE: '" + std::string(text) +
                                        "' is not STAGE, STAGE/PART or either with :N; stages are " + stages);
    return true;
  }();
  (void)read;
}

} // namespace

constinit thread_local int RecoveryScope::allowed_ = -1;

static bool checks_abort() noexcept {
  static const bool abort = environment_lists("TESSERA_CHECKS", "abort");
  return abort;
}

RecoveryScope::RecoveryScope() noexcept : outer_(allowed_) {
  if (!checks_abort() || injecting.load(std::memory_order_relaxed)) allowed_ = std::uncaught_exceptions();
}

InternalError::InternalError(std::string_view what, std::string_view condition, std::string_view place,
                             std::vector<std::string> contexts) {
  Diagnostic d(ErrorCode::Internal, std::string(what));
  d.note("check: " + std::string(condition) + ", at " + std::string(place));
  for (auto it = contexts.rbegin(); it != contexts.rend(); ++it) d.note("while: " + *it);
  diagnostic_ = std::make_shared<const Diagnostic>(std::move(d));
}

const char* InternalError::what() const noexcept { return diagnostic_->message.c_str(); }
Diagnostic InternalError::diagnostic() const { return *diagnostic_; }

int64_t contained_failures() noexcept { return contained.load(std::memory_order_relaxed); }
void count_contained_failure() noexcept { contained.fetch_add(1, std::memory_order_relaxed); }

std::span<const FailureStage> failure_stages() { return kStages; }

bool failure_due(std::string_view stage, std::string_view part) {
  static const bool read = (read_environment(), true);
  (void)read;
  if (!injecting.load(std::memory_order_acquire)) [[likely]]
    return false;
  Injection& from = injection();
  std::lock_guard lock(from.mutex);
  const std::string_view wanted = from.stage;
  const size_t slash = wanted.find('/');
  if (wanted.substr(0, slash) != stage || (slash != std::string_view::npos && wanted.substr(slash + 1) != part))
    return false;
  ++from.reached;
  return from.number == 0 || from.reached == from.number;
}

void failure_point(std::string_view stage, std::string_view part) {
  TESSERA_CHECK(!failure_due(stage, part), "a failure was injected at stage " + std::string(stage) +
                                               (part.empty() ? "" : "/" + std::string(part)));
}

bool inject_failure(std::string_view text) {
  (void)failure_due(""); // the environment has been read
  return set_injection(text);
}

} // namespace tessera
