// The compiler's part of opening a session in the C interface: texts among the options, and surveys of programs.
// compiler/ defines it; libtessera_runtime.so, which has no compiler, takes the definitions of runtime_only/, which
// refuse.
#pragma once
#include "base/result.h"
#include "codegen/compilation/options.h"
#include "codegen/kernels/tile_kernel.h"
#include "frontend/options.h"

namespace tessera {

// The fields of tessera_options that only a compiler reads, as they are there; null: the default.
struct CompileTexts {
  const char *tf32 = nullptr, *plan = nullptr;
  bool strict_rounding = false;
};
[[nodiscard]] Status apply(const CompileTexts& texts, CompileOptions& options);
// The answer of tessera_survey_program().
[[nodiscard]] Result<std::string> survey_text(const ProgramSource& program);
// The answer of tessera_known_sizes(), which lives as long as the process.
[[nodiscard]] Result<const std::string*> known_sizes_text();

// A tile kernel to be compiled: the arguments of tessera_kernel_create().
struct KernelOpening {
  std::string text, file = "<text>", device = "auto", cache_dir;
  int threads = 0;
};
// Errors: those of choose_device_here() and of TileKernel::create().
[[nodiscard]] Result<std::unique_ptr<TileKernel>> open_kernel(const KernelOpening& opening);

} // namespace tessera
