// The few things every oneDNN primitive here shares. Rules, each for a reason that was measured (docs/runtime.md):
// OpenMP's thread count is 1 in every thread that creates or executes a primitive (SingleThreadOpenMP; the pool sees to
// it); scratchpads are the user's, because a primitive's own scratchpad is not safe to share between threads; a stream
// per thread.
#pragma once
#include "base/result.h"
#include <oneapi/dnnl/dnnl.hpp>

namespace tessera {

inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
inline const dnnl::stream& onednn_stream() {
  thread_local const dnnl::stream stream(onednn_engine());
  return stream;
}
inline dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}
// A memory object whose data is set before each execution.
inline dnnl::memory onednn_memory(const dnnl::memory::desc& desc) {
  return dnnl::memory(desc, onednn_engine(), DNNL_MEMORY_NONE);
}

// oneDNN does not ask whether it got memory for the code that it generates, and writes to address 0 without. Error
// OutOfMemory: the process has no 32 MB of address space left, more than one primitive was seen to take.
[[nodiscard]] Status room_for_code();
// oneDNN generates the code of dnnl_sgemm in its first calls, for all sizes: these are made here, once in the process,
// and products that run later need no memory for code. Errors: OutOfMemory, of room_for_code.
[[nodiscard]] Status generate_product_code();

} // namespace tessera
