// The variants of a compiled file.
#pragma once
#include "api/session/model_source.h"

namespace tessera {

// Errors: those of load_compiled; Usage where the options want what a compiled file cannot give.
[[nodiscard]] Result<std::vector<std::shared_ptr<SessionVariant>>> open_file_variants(const std::string& path,
                                                                                      const SessionOptions& options);
// The error of a call that none of them fits.
[[nodiscard]] Diagnostic no_file_variant(const std::string& path, const Sizes& sizes);

} // namespace tessera
