// The NVIDIA libraries that a compilation may use.
#pragma once
#include "codegen/compilation/options.h"
#include "codegen/target/select.h"

namespace tessera {

// Libraries that are available at run time, and options of their use.
struct CudaLibraries {
  bool cublaslt = true, cudnn = true; // without one, loops are generated
  Tf32 tf32 = Tf32::Conv;             // as CompileOptions::tf32
  std::set<std::string> as_loops;     // as CompileOptions::as_loops
  std::set<std::string> kept_apart; // operators that CompileOptions::no_fuse and break_at name: not joined with others
  // Use cuDNN for activations that need run-time compilation of a plan (about a second each); otherwise pointwise
  // kernels.
  bool runtime_compiled = false;
  // cuDNN computes attention as one unit: q k', softmax and the product with v, without scores in memory.
  bool attention = true;
  // A generated kernel computes attention instead of three steps, if cuDNN rejects it or is missing.
  bool attention_kernel = true;
  Target device = shipped_target("h200"); // target of the cost model
};

} // namespace tessera
