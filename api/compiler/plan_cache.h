// Plans of models in the cache folder: a model that was compiled with the same options opens without import and compile.
//
// A plan's key is what its compile depended on: the model's bytes, the options of import and compile, the request, the
// device, the compiler's build, measured schedules and the libraries of operators. Files of weights are named by the
// model; the entry has their digests, which must be those of the files that are there.
//
// The payload of an entry: where the plan begins in it, and the bytes of the description, as u64; the description
// (JSON: what the import said of the model, its files of weights); the plan (runtime/plan_bytes.h), 64-byte aligned in
// the file. Constants that the model has are mapped from there; those that were computed are in the plan.
#pragma once
#include "api/compiler/model_content.h"
#include "codegen/compilation/options.h"
#include "frontend/options.h"
#include "runtime/cache/cache.h"
#include "runtime/executable.h"

namespace tessera {

// The inputs of a compile besides the model.
struct PlanRequest {
  CompileOptions compile;
  ImportOptions import;
  std::string conditions; // of a specialization
  std::string measured;   // the schedules that compile.tuned has; empty: they have no text
};

struct KeptPlan {
  std::shared_ptr<const Executable> executable;
  ModelInfo info;
  std::vector<std::string> warnings, weight_files; // of the import
  int64_t kernels = 0;
};

class PlanCache {
public:
  // A cache for compiles of one model, called `name`. `pool`: threads that help; null: none.
  PlanCache(const PlanRequest& request, std::string name, ThreadPool* pool);

  // Whether such compiles have a key at all: the cache is on, nothing is dumped or logged of a compile, and every option
  // has a text.
  [[nodiscard]] bool usable() const { return usable_; }
  // The plan for this model. Nothing: there is none, its weights are others, or it is damaged, which is reported.
  [[nodiscard]] std::optional<KeptPlan> find(ModelContent& model);
  // Keeps a plan, if the model is unchanged since it was digested; says in the log why it does not.
  // `copied`: of the import.
  void store(ModelContent& model, const KeptPlan& plan, std::span<const CopiedWeight> copied);
  [[nodiscard]] Cache& cache() { return cache_; }
  [[nodiscard]] std::vector<std::string> warnings() const { return cache_.warnings(); }

private:
  [[nodiscard]] Hash128 key(const ModelContent& model) const;
  [[nodiscard]] Result<KeptPlan> read(const Storage& payload, ModelContent& model, bool& other_weights);
  void skip(const std::string& why) const;

  std::string name_, key_text_, device_;
  ThreadPool* pool_;
  bool usable_ = false;
  Cache cache_;
};

} // namespace tessera
