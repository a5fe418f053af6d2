// Which variant answers a call.
//
// Variants are tried in the order of the list. Specialized ones stand first, as they are made for fewer calls than those
// behind them. The generic one follows, then what was compiled because it missed, the oldest first: so a variant that is
// compiled later never takes a call from one that answered it before, and an input has the same answer at any time. A
// variant whose library calls are refused at some sizes is passed over for them, and remembered as long as it is loaded.
#pragma once
#include "runtime/loaded_variant.h"
#include <set>

namespace tessera {

// The variants of an executor, in the order in which they are tried.
struct VariantList {
  struct Loaded {
    std::unique_ptr<LoadedVariant> variant;
    std::set<std::vector<int64_t>> refused; // sizes of inputs at which libraries refuse its calls
  };
  std::vector<std::shared_ptr<const Executable>> executables;
  std::vector<Loaded> loaded; // of each executable
  size_t generic = 0;         // index; those before it are specialized

  void reserve(size_t count) {
    executables.reserve(count);
    loaded.reserve(count);
  }
  // Space for it is reserved.
  void insert(size_t at, std::shared_ptr<const Executable> executable, std::unique_ptr<LoadedVariant> variant);
};

// How many symbols of a variant the inputs bind: its first slots.
[[nodiscard]] size_t input_symbols(const Variant& variant);

// One call. run() is called again as long as wanted() is set afterwards, with what came of it said to compiled().
class VariantChoice {
public:
  // What is done with the first variant that fits.
  using Use = std::function<LoadedVariant::Outcome(LoadedVariant&)>;
  struct Options {
    bool compiles = false;       // another variant may be had
    bool before_generic = false; // one is wanted where a specialized variant missed, too
    bool profile = false;
  };
  VariantChoice(VariantList& list, RunStats& stats, Options options)
      : list_(list), stats_(stats), options_(options), may_compile_(options.compiles ? kMaxCompiles : 0) {}

  // Errors: the inputs are none that the model takes; no variant fits; those of `use`.
  [[nodiscard]] Result<std::vector<Tensor>> run(std::span<const Tensor* const> inputs, const Use& use);

  struct Wanted {
    GuardMiss miss;
    size_t at; // its index in the list
  };
  [[nodiscard]] const std::optional<Wanted>& wanted() const { return wanted_; }
  // True: it stands in its place.
  void compiled(bool done);
  // What the generic variant missed; null where that is not why the call failed.
  [[nodiscard]] const GuardMiss* missed() const;

private:
  static constexpr int kMaxCompiles = 8;     // in one call: values that are read on the way may each refute a guess
  static constexpr int kMaxReplacements = 3; // in one call, of variants with calls that libraries refuse
  struct Refusal {
    std::optional<Diagnostic> other; // where it is not that guard; the text of a guard's is made when it is needed
    LoadedVariant* variant = nullptr;
    int index = -1; // of the guard
    bool miss = false;
    GuardMiss guard;
    [[nodiscard]] Diagnostic error() const;
  };
  [[nodiscard]] std::optional<Refusal> refusal(LoadedVariant& l, std::span<const Tensor* const> inputs) const;
  [[nodiscard]] static Refusal refused_by(LoadedVariant& l, int guard);
  // Nothing: the variant answered, and `outcome` is what came of it.
  [[nodiscard]] std::optional<Refusal> use_variant(LoadedVariant& l, const Use& use,
                                                   std::optional<Result<std::vector<Tensor>>>& outcome);
  void refuse_calls(LoadedVariant& l, BodyMiss without);
  [[nodiscard]] bool skips(VariantList::Loaded& loaded);
  [[nodiscard]] bool forget_refusals();
  void record(const Refusal& refusal);
  [[nodiscard]] GuardMiss take_miss();
  [[nodiscard]] Result<std::vector<Tensor>> none_fits();

  VariantList& list_;
  RunStats& stats_;
  const Options options_;
  int may_compile_, replacements_ = 0;
  size_t at_ = 0;                     // the variant that is tried
  std::vector<GuardMiss> misses_;     // that no variant was compiled for, one for each set of sizes
  std::optional<Refusal> by_generic_; // why the generic variant does not fit
  // Library calls that the last such variant was refused, and those of this call by variant.
  std::optional<BodyMiss> without_;
  std::optional<Diagnostic> without_error_;
  std::vector<std::pair<LoadedVariant*, std::vector<int64_t>>> refusing_;
  bool skipped_ = false; // a variant, as it was refused calls at these sizes before
  std::optional<Wanted> wanted_;
};

} // namespace tessera
