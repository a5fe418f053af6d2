// The variants of a session, shared by its executors and by work in the background: which there are, who compiles
// another one, which one goes. Its lock is held for comparisons only, never while anything is compiled.
#pragma once
#include "api/session/model_source.h"
#include <condition_variable>

namespace tessera {

class VariantPool final : public ExecutableSource {
public:
  // `options`: complete (thread pool, memory), without contradictions.
  VariantPool(std::unique_ptr<ModelSource> source, SessionOptions options, std::shared_ptr<std::atomic<bool>> closed);
  // The variants to begin with, requested ones too. Called once, before anything else. Errors: those of the source; Usage for a
  // specialization of a dimension that the model does not have.
  [[nodiscard]] Status open();
  // Compiles end with Cancelled, and none begins.
  void close();

  [[nodiscard]] std::set<std::string> symbols() const; // dimensions of inputs
  [[nodiscard]] Diagnostic no_dimension(const std::string& name) const;
  [[nodiscard]] ModelSource& source() { return *source_; }
  [[nodiscard]] const SessionOptions& options() const { return options_; }
  [[nodiscard]] const std::shared_ptr<const Executable>& generic() const { return generic_; }
  [[nodiscard]] std::vector<std::shared_ptr<const SessionVariant>> variants() const; // the generic one first
  // Work in the background that hears of the calls from now on; not while there are executors.
  void reports_to(const std::shared_ptr<BackgroundWork>& work) { work_ = work; }
  [[nodiscard]] CompileTotals totals() const;

  // Specialized ones, more conditions first; the generic one; those that were compiled because nothing fitted a call, the
  // oldest first, so that none takes a call from another one. A variant stands before those that fit no call which it
  // fits.
  [[nodiscard]] Order order() const override;
  [[nodiscard]] uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  [[nodiscard]] bool specializes() const override {
    return !from_file_ && (!options_.specialize.empty() || options_.policy == VariantPolicy::Exact);
  }
  // The specialized variant that the options want for a call. Error OutOfMemory; any other failure is logged, and the call
  // takes another variant.
  [[nodiscard]] Status specialize(const Sizes& sizes, RunStats& stats) override;
  // Calls that miss the same guard compile once, and what does not compile is not tried again at these sizes.
  [[nodiscard]] Result<bool> compile_for(const GuardMiss& miss, std::span<const uint64_t> numbers) override;
  void begins() override;
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values, int swaps) override;

  // A variant for calls of these sizes, specialized ones aside; null: there is one, or the model refuses the sizes. Errors:
  // those of import and compile.
  [[nodiscard]] Result<std::shared_ptr<const Executable>> cover(const Sizes& sizes);
  // In the background: a variant for exactly these sizes. False: there was one, or compiling it failed.
  bool compile_exact(const Sizes& sizes);
  void count_queued(int64_t queued); // combinations of sizes that wait for compile_exact()

  // The variant of an executable, or of one that better code has replaced; null: there is none.
  [[nodiscard]] std::shared_ptr<const SessionVariant> variant_with(const Executable& executable) const;
  // A call ran it: the specialized variant that was used least recently is the first to go.
  void used(const Executable& executable);
  void replace(const SessionVariant& before, std::shared_ptr<SessionVariant> better);

private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Place : uint8_t { Opening, WarmUp, Request, Background };
  [[nodiscard]] Conditions wanted(const Sizes& sizes, bool all_exact) const;
  [[nodiscard]] size_t find(const Executable& executable) const;
  // Compiles without the lock, as the only one of this key. The variant joins the others.
  [[nodiscard]] Result<std::shared_ptr<SessionVariant>> make(Lock& lock, const std::string& key,
                                                             const CompileRequest& request, Place place);
  using Has = std::function<bool(const SessionVariant&)>; // whether the executor that asks has it
  [[nodiscard]] Result<bool> compile_fitting(Lock& lock, const GuardMiss& miss, const Has& has);
  [[nodiscard]] Result<bool> compile_without_calls(Lock& lock, const GuardMiss& miss, const Has& has);
  [[nodiscard]] int64_t own_bytes(const Executable& executable) const;
  void evict();
  [[nodiscard]] Status check_options() const;

  const std::unique_ptr<ModelSource> source_;
  const SessionOptions options_;
  const std::shared_ptr<std::atomic<bool>> closed_;
  std::weak_ptr<BackgroundWork> work_;        // which may own the pool
  std::shared_ptr<const Executable> generic_; // of the first variant
  bool from_file_ = false;                    // nothing can be compiled
  std::atomic<uint64_t> generation_{1};
  mutable std::mutex mutex_; // of the fields below
  std::condition_variable compiled_;
  std::set<std::string> compiling_; // keys
  std::vector<std::shared_ptr<SessionVariant>> variants_;
  struct Specialized {
    uint64_t last_used = 0;
    int64_t bytes = 0; // of its code and of constants that are its own
  };
  std::map<std::string, Specialized> specialized_; // by label
  uint64_t uses_ = 0, numbers_ = 0;                // numbers_: of variants so far
  std::set<std::string> as_loops_;                 // nodes whose library calls were refused
  std::set<std::string> failed_labels_;            // specializations that did not compile
  std::map<Sizes, Diagnostic> failures_;           // of compile_for(), by the sizes of the call
  CompileTotals totals_;
};

} // namespace tessera
