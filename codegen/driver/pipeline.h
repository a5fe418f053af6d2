// The pipeline of a compile, from an imported graph to the plan that code is generated from: one list of passes, which
// `compile`, `explain` and `opt` share.
//
//   graph passes       graph/passes: composites to primitives, constants folded, algebra, common subexpressions
//   group-iterations   bodies of scans become several iterations
//   the device's       requirements of its libraries and kernels: dtypes, layouts, joined products
//   separate-fills     operators that change a fill in place get one of their own
//   fuse               makes the fusion plan; where planning fails, one without fusion
//   fuse-attention     two products and the softmax between them become one unit of the plan
//   fold-constants     computes values that depend on no input; if the graph changes, it is planned again
//   pin-plan           with a plan file: plans the graph, which is final now, once more as the file says
//   the device's       choices of how to compute a group of the plan
//   shorten-lifetimes  orders the groups so that values in memory live shortly
#pragma once
#include "codegen/compilation/compilation.h"
#include "codegen/driver/compile.h"

namespace tessera {

// All passes of all devices, each once, in pipeline order.
[[nodiscard]] const std::vector<CompilePass>& compile_passes();
[[nodiscard]] const CompilePass* find_compile_pass(std::string_view name);
// The passes of a compilation for this device, in order. Error Usage for an unknown device.
[[nodiscard]] Result<std::vector<std::string>> compile_pipeline(std::string_view device);
// Ends a pipeline after the pass `text`, at its first occurrence, or with "NAME,2" at its second. Error Usage if it has
// no such pass.
[[nodiscard]] Status stop_after(std::vector<std::string>& pipeline, const std::string& text);
// Runs passes by name. TESSERA_DISABLE_PASSES applies in addition to run.disabled. Errors: Usage for unknown names and
// for passes of another device or level; those of run_steps().
[[nodiscard]] Result<std::vector<PassStats>> run_passes(Compilation& compilation,
                                                        const std::vector<std::string>& pipeline, PassRunOptions run);

} // namespace tessera
