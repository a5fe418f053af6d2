// Session: the embedding interface. Opens a model, compiles it, runs it, recompiles when shapes demand it.
//
//   auto session = tessera::Session::open("model.onnx");
//   if (!session.ok()) { std::cerr << session.error().str(); return 1; }
//   auto outputs = (*session)->run({{"input_ids", ids}, {"attention_mask", mask}});
//
// A Session may be used by one thread at a time; further executors over the same compiled code and packed weights come from
// new_executor(). No exception leaves it, it installs no signal handlers and writes only to the log and the cache folder.
#pragma once
#include "codegen/driver/compile.h"
#include "frontend/onnx/importer.h"
#include "runtime/executor.h"

namespace tessera {

// A request that code be made for less than every shape, because it may be faster: checked by a guard at each call.
struct Specialization {
  enum class Kind : uint8_t { Exact, Divisible };
  Kind kind = Kind::Exact;
  int64_t divisor = 1;   // Divisible
};

struct SessionOptions {
  CompileOptions compile;
  onnx::ImportOptions import;
  ExecutorOptions executor;                              // `recompile` is set by the session
  std::map<std::string, Specialization> specialize;      // by symbolic dimension ("batch"); empty: only the generic variant
  // A call that no specialized variant fits: compile one for it, or take the generic one.
  enum class OnMiss : uint8_t { Compile, Generic } on_miss = OnMiss::Compile;
  int max_variants = 8;                                  // beyond it, misses take the generic variant
};

struct IoInfo { std::string name; DType dtype; SymShape shape; };

// One compiled variant and what the compile said.
struct Variant {
  std::string label;                                     // "generic", "batch=4, seq%8=0"
  Compiled compiled;
};

class Session {
public:
  [[nodiscard]] static Result<std::unique_ptr<Session>> open(const std::string& path, SessionOptions options = {});
  ~Session();

  [[nodiscard]] std::vector<IoInfo> inputs() const;
  [[nodiscard]] std::vector<IoInfo> outputs() const;
  // Outputs in the model's order. Errors: see Executor::run, and those of compiling another variant.
  [[nodiscard]] Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs, RunStats* stats = nullptr);
  // Another executor over the same code and weights, for another thread.
  [[nodiscard]] Result<std::unique_ptr<Executor>> new_executor();
  [[nodiscard]] const std::vector<std::shared_ptr<Variant>>& variants() const; // in the order they were compiled
  [[nodiscard]] const onnx::ModelInfo& model_info() const;
  [[nodiscard]] double import_ms() const;

private:
  Session();
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

} // namespace tessera
