// The source of variants of libtessera_runtime.so: compiled files alone.
#include "api/session/file_variants.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "codegen/load/load.h"

namespace tessera {
namespace {

// The likely kind of a file that is no compiled file, for people.
Result<std::string> kind_of_file(const std::string& path) {
  TESSERA_ASSIGN(auto file, open_file(path));
  char begin[4] = {};
  TESSERA_ASSIGN(const size_t bytes, read_some(file, path, begin, sizeof begin));
  if (bytes == sizeof begin && std::string_view(begin, sizeof begin) == "PK\x03\x04")
    return std::string("a program of torch.export");
  if (path.ends_with(".tsr")) return std::string("a damaged compiled file, as it does not begin as one");
  return std::string(path.ends_with(".onnx") ? "an ONNX model" : "no compiled file");
}

class FileSource final : public ModelSource {
public:
  FileSource(std::string path, bool program, SessionOptions options)
      : path_(std::move(path)), program_(program), options_(std::move(options)) {}

  Result<std::vector<std::shared_ptr<SessionVariant>>> open() override {
    const Stopwatch watch;
    if (program_ || !is_compiled_file(path_)) {
      std::string kind = "a program in memory";
      if (!program_) {
        TESSERA_ASSIGN(kind, kind_of_file(path_));
      }
      return Diagnostic(ErrorCode::UnsupportedFeature,
                        quote(path_) + " is " + kind + "; libtessera_runtime runs compiled files alone")
          .note("compile it with `tessera compile MODEL -o FILE` and open FILE, or link with libtessera");
    }
    TESSERA_ASSIGN(auto all, open_file_variants(path_, options_));
    import_ms_ = watch.ms();
    return all;
  }
  Result<std::shared_ptr<SessionVariant>> make(const CompileRequest& request) override {
    return no_file_variant(path_, request.sizes);
  }
  std::set<std::string> nodes_of(const SessionVariant&, const Executable&,
                                 const std::vector<std::string>&) const override {
    return {};
  }
  std::string report(const SessionVariant& variant, const Sizes&, bool) const override {
    return variant.executable->report;
  }
  Status save(const std::vector<std::shared_ptr<const SessionVariant>>&, const std::string&, bool,
              const Sizes&) const override {
    return Diagnostic(ErrorCode::UnsupportedFeature, "libtessera_runtime writes no files");
  }
  Result<std::shared_ptr<BackgroundWork>> start_tuning(BackgroundHooks) override {
    return std::shared_ptr<BackgroundWork>();
  }

private:
  const std::string path_; // or the name of a program
  const bool program_;
  const SessionOptions options_;
};

} // namespace

std::unique_ptr<ModelSource> make_model_source(std::string path, std::shared_ptr<const ProgramSource> program,
                                               SessionOptions options) {
  return std::make_unique<FileSource>(std::move(path), program != nullptr, std::move(options));
}

} // namespace tessera
