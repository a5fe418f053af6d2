// The report of a compile: what fused, what did not and why, in bytes. It is what `tessera explain` shows, of a model
// or of a compiled file, which holds it.
#pragma once
#include "codegen/driver/compile.h"
#include "frontend/model.h"

namespace tessera {

// JSON, for every size: a number that follows from the sizes of a call is {"expression": "4*b*s"}, over the symbols of
// the inputs. `path` and `label`: of the model and the variant, for people. The graph of `compiled` is there.
[[nodiscard]] std::string report_text(const Compiled& compiled, const ModelInfo& model, const std::string& path,
                                      const std::string& label);

} // namespace tessera
