#include "api/file_variants.h"
#include "codegen/driver/load.h"

namespace tessera {

Result<std::vector<std::shared_ptr<SessionVariant>>> open_file_variants(const std::string& path,
                                                                        const SessionOptions& options) {
  if (!options.allow_compiled_file)
    return Diagnostic(ErrorCode::Usage, path + " is a compiled file; this needs the model itself")
        .note("give the model that it was compiled from");
  auto variant = std::make_shared<SessionVariant>();
  variant->label = "compiled file";
  variant->from_file = true;
  TESSERA_ASSIGN(variant->executable, load_compiled(path));
  const std::string& target = variant->executable->target;
  if (!(target + " ").starts_with(options.compiled_for + (options.compiled_for.empty() ? "" : " ")))
    return Diagnostic(ErrorCode::Usage,
                      path + " is a compiled file for '" + target + "', not for '" + options.compiled_for + "'")
        .note("compile the model for that device");
  if (!options.specialize.empty())
    return Diagnostic(ErrorCode::Usage, path + " is a compiled file, which cannot be specialized")
        .note("open the model itself");
  std::vector<std::shared_ptr<SessionVariant>> all;
  all.push_back(std::move(variant));
  return all;
}

Diagnostic no_file_variant(const std::string& path, const Sizes& sizes) {
  return Diagnostic(ErrorCode::UnsupportedFeature,
                    path + " holds one compiled variant, which does not fit these sizes: " + text_of(sizes))
      .note("open the model itself, so that another variant can be compiled");
}

} // namespace tessera
