// NVIDIA's libraries as a compile counts on them.
#pragma once
#include "codegen/driver/options.h"
#include "codegen/target/select.h"

namespace tessera {

// What the executable may count on where it runs, and what of it is wanted.
struct CudaLibraries {
  bool cublaslt = true, cudnn = true; // without one, what it would do becomes generated loops
  Tf32 tf32 = Tf32::Conv;             // as CompileOptions::tf32
  std::set<std::string> as_loops;     // as CompileOptions::as_loops
  // Activations for which cuDNN compiles a kernel when a plan is made (a second or so each); otherwise pointwise
  // kernels.
  bool runtime_compiled = false;
  // Whether cuDNN computes attention as one unit: q k', softmax and the product with v, scores in no memory.
  bool attention = true;
  // The same by a kernel of ours, in place of three steps: where cuDNN does not take it, or is not there.
  bool attention_kernel = true;
  Target device = shipped_target("h200"); // whose figures decide
};

} // namespace tessera
