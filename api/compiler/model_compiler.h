// A model or a program, imported and compiled for a request. Any thread, several at a time.
#pragma once
#include "api/session/model_source.h"
#include "codegen/driver/compile.h"
#include "frontend/model.h"
#include "measure/tune/records.h"

namespace tessera {

// Describes a variant before it is compiled.
[[nodiscard]] SessionVariant described(const CompileRequest& request, const CompileOptions& options);

struct CompiledModel {
  Compiled compiled;
  ModelInfo info;
  std::vector<std::string> warnings, weight_files; // of the import
  std::vector<CopiedWeight> copied_weights;
  double import_ms = 0;
  bool fits_no_call = false; // ImportOptions::undetermined
};

class ModelCompiler {
public:
  // `program` in the place of a file, or null. `records`: those that options.compile.tuned shows, if they are the
  // session's own.
  ModelCompiler(std::string path, std::shared_ptr<const ProgramSource> program, SessionOptions options,
                std::shared_ptr<TunedRecords> records);

  // The options of a request.
  [[nodiscard]] ImportOptions import_options(const CompileRequest& request) const;
  [[nodiscard]] CompileOptions compile_options(const CompileRequest& request) const;
  // Imports anew (a graph is consumed by its compile) and compiles, with the sizes of the requesting call as hints.
  // Errors: those of both; Usage for a specialization of a dimension that the model does not have.
  [[nodiscard]] Result<CompiledModel> compile(const CompileRequest& request) const;

  [[nodiscard]] const std::string& path() const { return path_; } // as it was given, for people
  [[nodiscard]] const std::string& file() const { return file_; } // the same, wherever the process works now
  [[nodiscard]] const std::shared_ptr<const ProgramSource>& program() const { return program_; }
  [[nodiscard]] const std::shared_ptr<TunedRecords>& records() const { return records_; }

private:
  [[nodiscard]] Status assume(const CompileRequest& request, Graph& graph) const;

  const std::string path_, file_;
  const std::shared_ptr<const ProgramSource> program_;
  const SessionOptions options_;
  const std::shared_ptr<TunedRecords> records_;
};

} // namespace tessera
