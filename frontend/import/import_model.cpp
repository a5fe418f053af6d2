#include "base/file.h"
#include "frontend/description.h"
#include "frontend/fx/importer.h"
#include "frontend/named_import.h"
#include "frontend/onnx/importer.h"
#include <array>
#include <unordered_set>

namespace tessera {
namespace {

// A pickle begins with the opcode PROTO and its version. A model of ONNX cannot: it has no field of such a number.
Result<bool> is_pickle(const std::string& path) {
  TESSERA_ASSIGN(FileDescriptor file, open_file(path));
  unsigned char magic[2] = {};
  TESSERA_ASSIGN(size_t read, read_some(file, path, magic, sizeof magic));
  return read == sizeof magic && magic[0] == 0x80 && magic[1] >= 2 && magic[1] <= 5;
}

enum class Format : uint8_t { Onnx, Archive };

// True for the pointer that a checkout without Git LFS has in the place of a large file.
Result<bool> is_lfs_pointer(const std::string& path) {
  constexpr std::string_view kBegins = "version https://git-lfs.github.com/";
  TESSERA_ASSIGN(FileDescriptor file, open_file(path));
  std::array<char, kBegins.size()> text{};
  TESSERA_ASSIGN(size_t read, read_some(file, path, text.data(), text.size()));
  return std::string_view(text.data(), read) == kBegins;
}

Result<Format> format_of(const std::string& path) {
  TESSERA_ASSIGN(const bool pointer, is_lfs_pointer(path));
  if (pointer)
    return Diagnostic(ErrorCode::MalformedModel, Location{.file = path},
                      "is a Git LFS pointer, which stands for the model")
        .note("`git lfs pull` in its repository gets the model, and its weights");
  TESSERA_ASSIGN(bool archive, fx::is_archive(path));
  TESSERA_ASSIGN(bool pickle, is_pickle(path));
  if (pickle) {
    Location where;
    where.file = path;
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "the file is a pickle, as torch.save writes; pickles are not read")
        .note(fx::kSaveAgain);
  }
  return archive ? Format::Archive : Format::Onnx;
}

// The name says what the file was meant to be.
template <class T>
Result<T> named_as_read(Result<T> read, const std::string& path) {
  if (!read.ok() && read.error().code == ErrorCode::MalformedModel && path.ends_with(".tsr"))
    return Diagnostic(ErrorCode::CorruptFile, Location{.file = path},
                      "is a damaged compiled file: it does not begin as one")
        .note("compile the model again with `tessera compile`, or copy the file again");
  if (!read.ok() && read.error().code == ErrorCode::MalformedModel && path.ends_with(".pt2"))
    return std::move(read).take_error().note("nor is it an archive of torch.export.save, which begins as a zip file: "
                                             "save the program again, or copy it again");
  return read;
}

// Values that nothing reads become outputs, so that what computes them stays.
void yield_unread(Graph& graph) {
  const auto users = graph.users();
  std::unordered_set<int32_t> yielded;
  std::unordered_set<std::string> names;
  for (const auto& output : graph.outputs()) {
    yielded.insert(output.value.index);
    names.insert(output.name);
  }
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).results) {
      if (!v.valid() || !users[static_cast<size_t>(v.index)].empty() || yielded.contains(v.index)) continue;
      std::string name = graph.value(v).name;
      if (name.empty() || !names.insert(name).second) name = "unread_" + std::to_string(v.index);
      graph.add_output(std::move(name), v);
    }
}

} // namespace

Result<ImportedModel> import_model(const std::string& path, const std::string& name, const ImportOptions& options) {
  const auto import = [&]() -> Result<ImportedModel> {
    TESSERA_ASSIGN(Format format, format_of(path));
    if (format == Format::Archive) return fx::import_file(path, name, options);
    return named_as_read(onnx::import_file(path, name, options), name);
  };
  auto imported = import();
  if (imported.ok() || imported.error().location.file != path) return imported;
  Diagnostic error = std::move(imported).take_error(); // of opening it
  error.location.file = name;
  return error;
}

Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options) {
  return import_model(path, path, options);
}

Result<ModelDescription> describe_model(const std::string& path) {
  TESSERA_ASSIGN(Format format, format_of(path));
  return format == Format::Archive ? fx::describe_file(path) : named_as_read(onnx::describe_file(path), path);
}

Result<ModelSurvey> survey_model(const std::string& path, const ImportOptions& options) {
  TESSERA_ASSIGN(Format format, format_of(path));
  auto survey = format == Format::Archive ? fx::survey_file(path, options)
                                          : named_as_read(onnx::survey_file(path, options), path);
  if (survey.ok()) yield_unread(survey->model.graph);
  return survey;
}

} // namespace tessera
