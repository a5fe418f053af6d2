// Programs of torch.export to Graph: in archives (.pt2), or in memory as a process that captured one has them.
#pragma once
#include "frontend/model.h"

namespace tessera::fx {

// Advice for a model of PyTorch in a form that is not read.
inline constexpr const char* kSaveAgain =
    "export the model: torch.export.save(torch.export.export(module, inputs), \"model.pt2\") with PyTorch 2.9 or newer";

// True if the file is a zip archive, as torch.export.save writes. Error FileError.
[[nodiscard]] Result<bool> is_archive(const std::string& path);
// Reads an archive. Weights are views of the mapped file. Errors: FileError, MalformedModel, BadWeights, UnsupportedOp,
// UnsupportedFeature (archives and programs of versions that are not known, pickled weights).
[[nodiscard]] Result<ImportedModel> import_file(const std::string& path, const ImportOptions& options = {});
// An archive in memory, which its weights are views of.
[[nodiscard]] Result<ImportedModel> import_bytes(Storage file, const ImportOptions& options = {},
                                                 const std::string& display_name = "model.pt2");
// A program and its weights, without an archive.
[[nodiscard]] Result<ImportedModel> import_program(const ProgramSource& source, const ImportOptions& options = {});

// Imports an archive and goes on after each node that fails.
[[nodiscard]] Result<ModelSurvey> survey_file(const std::string& path, const ImportOptions& options = {});

// A node of a program that has no translation, named by its first result.
struct Refusal {
  int node; // position in the program's list
  std::string target, output;
  Diagnostic reason;
};
// Imports a program and goes on after each node that fails; what such a node defines is taken to be given.
[[nodiscard]] Result<std::vector<Refusal>> survey(const ProgramSource& source);

} // namespace tessera::fx
