// The source of a session's variants: a model that is imported and compiled, or a compiled file. session.cpp knows this
// interface and neither importer nor compiler.
#pragma once
#include "api/session.h"
#include "api/session/session_variant.h"
#include "runtime/executor.h"
#include <optional>

namespace tessera {

using Sizes = std::map<std::string, int64_t>; // of a call, by symbol

// Conditions that specialized code may assume, by symbol.
struct Conditions {
  std::string label; // "batch=4, seq%8=0"
  std::vector<std::pair<std::string, Specialization>> of;
};

// A variant that is wanted.
struct CompileRequest {
  Sizes sizes;                              // of the call that needs it, as hints; empty: none is known
  std::optional<Conditions> specialization; // at `sizes`
  bool of_call = false;                     // what the call does not say is guessed (ImportOptions::of_call)
  std::set<std::string> as_loops;           // nodes whose library calls are loops, besides those of the options
  bool background = false;                  // one kernel at a time, as calls want the processor
  bool check_operators = false;             // that the options name: once for a model
};

// Work on the variants on a thread of its own, which hears of the session's calls (ExecutableSource::begins, ended).
class BackgroundWork {
public:
  virtual ~BackgroundWork() = default;
  virtual void begins() = 0;
  virtual void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
                     std::span<const int64_t> values) = 0;
  virtual void stop() = 0;      // ends it; calls may go on
  virtual void wait_idle() = 0; // until nothing is left to do
};

// The session's functions that the work calls, on its thread.
struct BackgroundHooks {
  // The variant whose executable this is, or was; null: none.
  std::function<std::shared_ptr<const SessionVariant>(const Executable&)> variant;
  // Puts a better executable in the place of that variant's.
  std::function<void(const SessionVariant& before, std::shared_ptr<SessionVariant> better)> replace;
};

class ModelSource {
public:
  virtual ~ModelSource() = default;
  // The variants to begin with, the generic one first. Called once, before anything else.
  [[nodiscard]] virtual Result<std::vector<std::shared_ptr<SessionVariant>>> open() = 0;
  // Another one. Any thread, several at a time. Errors: those of import and compile; UnsupportedFeature where none can
  // be made.
  [[nodiscard]] virtual Result<std::shared_ptr<SessionVariant>> make(const CompileRequest& request) = 0;
  // The nodes of the model behind library calls, which are steps of the variant's executable `in` or of one of its
  // bodies, by name.
  [[nodiscard]] virtual std::set<std::string> nodes_of(const SessionVariant& variant, const Executable& in,
                                                       const std::vector<std::string>& steps) const = 0;
  // Session::report()
  [[nodiscard]] virtual std::string report(const SessionVariant& variant, const Sizes& sizes, bool thorough) const = 0;
  // Session::save() of all variants. Errors: those of save_executables; UnsupportedFeature where nothing is compiled.
  [[nodiscard]] virtual Status save(const std::vector<std::shared_ptr<const SessionVariant>>& variants,
                                    const std::string& path, bool embed_weights, const Sizes& sizes) const = 0;
  // The time that a call of these sizes loses for running this variant and not one made for them, in microseconds:
  // predicted.
  [[nodiscard]] virtual double loss_us(const SessionVariant& /*variant*/, const Sizes& /*sizes*/) const { return 0; }
  // Tuning of kernels; null: none is wanted.
  [[nodiscard]] virtual Result<std::shared_ptr<BackgroundWork>> start_tuning(BackgroundHooks hooks) = 0;
  [[nodiscard]] const ModelInfo& info() const { return info_; } // since open(), as the rest
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  [[nodiscard]] double import_ms() const { return import_ms_; }

protected:
  ModelInfo info_;
  std::vector<std::string> warnings_; // of the import
  double import_ms_ = 0;
};

// The source of a session: `program` in the place of a file, or null. `options` are complete; those of the compile that
// the source derives are set in its copy.
[[nodiscard]] std::unique_ptr<ModelSource>
make_model_source(std::string path, std::shared_ptr<const ProgramSource> program, SessionOptions options);

} // namespace tessera
