#include "api/session/file_variants.h"
#include "codegen/load/load.h"
#include "runtime/guards.h"

namespace tessera {

Result<std::vector<std::shared_ptr<SessionVariant>>> open_file_variants(const std::string& path,
                                                                        const SessionOptions& options) {
  if (!options.allow_compiled_file)
    return Diagnostic(ErrorCode::Usage, path + " is a compiled file; this needs the model itself")
        .note("give the model that it was compiled from");
  TESSERA_ASSIGN(auto loaded, load_compiled(path));
  std::vector<std::shared_ptr<SessionVariant>> all;
  for (FileExecutable& file : loaded) {
    auto& variant = all.emplace_back(std::make_shared<SessionVariant>());
    variant->label = std::move(file.label);
    variant->conditions = file.conditions;
    variant->specialized = file.conditions > 0;
    variant->from_file = true;
    variant->executable = std::move(file.executable);
  }
  const std::string& target = all.front()->executable->target;
  if (!(target + " ").starts_with(options.compiled_for + (options.compiled_for.empty() ? "" : " ")))
    return Diagnostic(ErrorCode::Usage,
                      path + " is a compiled file for '" + target + "', not for '" + options.compiled_for + "'")
        .note("compile the model for that device");
  if (!options.specialize.empty() || !options.variants.empty())
    return Diagnostic(ErrorCode::Usage, path + " is a compiled file, which cannot be specialized")
        .note("open the model itself");
  return all;
}

Diagnostic no_file_variant(const std::string& path, const Sizes& sizes) {
  return Diagnostic(ErrorCode::UnsupportedFeature,
                    path + " holds no compiled variant that fits these sizes: " + sizes_text(sizes))
      .note("open the model itself, so that another variant can be compiled");
}

} // namespace tessera
