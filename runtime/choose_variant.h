// Which variant answers a call.
//
// Variants are tried in the order that their source gives. Specialized ones stand first, as they are made for fewer calls
// than those behind them. The generic one follows, then what was compiled because it missed, the oldest first: so a
// variant that is compiled later never takes a call from one that answered it before, and an input has the same answer at
// any time. A variant whose library calls are refused at some sizes is passed over for them, and remembered as long as it
// is loaded.
#pragma once
#include "runtime/loaded_executable.h"
#include <set>

namespace tessera {

// A variant of an executor.
struct Candidate {
  ExecutableSource::Entry entry;
  std::unique_ptr<LoadedExecutable> loaded;
  std::set<std::vector<int64_t>> refused = {}; // sizes of inputs at which libraries refuse its calls
  uint64_t tried = 0;                          // the last call that tried it
};
struct Candidates {
  std::vector<Candidate> all; // in the order in which they are tried
  size_t generic = 0;         // index
};

// How many symbols of a variant the inputs bind: its first slots.
[[nodiscard]] size_t input_symbols(const Variant& variant);

// One call's way through the candidates:
//   next()      the next one that fits; it runs, and answered() or refused() says what came of it
//   wanted()    once there is none left: what another variant has to take; compiled() when there is one, then next()
class CallChoice {
public:
  // `call`: the number of the call, unlike that of any earlier one. `phases`: of a profile, or null.
  CallChoice(Candidates& candidates, uint64_t call, RunStats& stats, std::vector<HostPhase>* phases)
      : candidates_(candidates), call_(call), stats_(stats), phases_(phases) {}

  // Null: none is left. Errors: no variant takes such inputs.
  [[nodiscard]] Result<Candidate*> next(std::span<const Tensor* const> inputs);
  void answered();
  // The error is the call's, which no other variant would answer.
  [[nodiscard]] Status refused(Candidate& candidate, Refusal refusal);
  // Nothing: no other variant would help, or enough were compiled for this call.
  [[nodiscard]] std::optional<GuardMiss> wanted();
  void compiled() { misses_.clear(); } // what is compiled is made for the call
  // The error of a call that no variant answers.
  [[nodiscard]] Diagnostic error() const { return without_error_ ? *without_error_ : by_generic_->error(); }
  // The generic variant missed a guard, and that is why the call failed.
  [[nodiscard]] bool missed() const { return !without_error_ && by_generic_ && by_generic_->miss; }

private:
  [[nodiscard]] bool skips(Candidate& candidate);
  [[nodiscard]] bool takes_skipped();
  void note(Candidate& candidate, Refusal refusal);

  Candidates& candidates_;
  const uint64_t call_;
  RunStats& stats_;
  std::vector<HostPhase>* const phases_;
  int compiles_ = 0, replacements_ = 0;
  std::vector<GuardMiss> misses_;     // that no variant was compiled for, one for each set of sizes
  std::optional<Refusal> by_generic_; // why the generic variant does not fit
  // Library calls that the last such variant was refused, and the sizes of those of this call by number of the variant.
  std::optional<GuardMiss> without_;
  std::optional<Diagnostic> without_error_;
  std::vector<std::pair<uint64_t, std::vector<int64_t>>> refusing_;
  std::vector<Candidate*> skipped_; // since they were refused calls at these sizes before
};

} // namespace tessera
