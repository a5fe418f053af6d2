#include "api/c/opening.h"

namespace tessera {

namespace {
Diagnostic no_compiler(const std::string& what) {
  return Diagnostic(ErrorCode::UnsupportedFeature, "libtessera_runtime has no compiler, which " + what)
      .note("link with libtessera, or leave it out: what compiled the file has decided it");
}
} // namespace

Status apply(const CompileTexts& texts, CompileOptions&) {
  if (texts.tf32 != nullptr) return no_compiler("the option tf32 is for");
  if (texts.strict_rounding) return no_compiler("the option strict_rounding is for");
  if (texts.plan != nullptr) return no_compiler("the option plan is for");
  return {};
}

Result<std::string> survey_text(const ProgramSource&) { return no_compiler("surveys programs"); }

Result<const std::string*> known_sizes_text() { return no_compiler("knows which sizes code has as constants"); }

Result<std::unique_ptr<TileKernel>> open_kernel(const KernelOpening&) {
  return no_compiler("makes code of a kernel's text");
}

} // namespace tessera
