// The entry of Executable::objects for a kernel of an NVIDIA GPU: its PTX and, where an assembler was there when it was
// compiled, a cubin for one architecture.
//
// A cubin runs on the GPU it was made for (and on later minor versions of that generation); PTX for "sm_90" is compiled
// by the driver of any newer GPU. A loader takes the cubin first and the PTX when the driver refuses it.
#pragma once
#include "base/result.h"
#include "runtime/tensor_map.h"
#include <span>

namespace tessera::cuda {

struct CodeObject {
  std::string symbol;       // the kernel's .entry
  std::string ptx_arch;     // the PTX's target: "sm_90"; "sm_90a" is for that GPU alone
  std::string ptx;          // text, without a terminating zero
  std::string cubin_arch;   // empty without a cubin
  std::vector<char> cubin;  // an ELF image
  int32_t threads = 0;      // of a block
  int64_t shared_bytes = 0; // dynamic shared memory of a block
  int32_t cluster = 1;      // blocks that are launched as a cluster
  // True if the kernel itself waits until the one before it in the stream is complete (griddepcontrol.wait), so that it
  // may be launched before: programmatic dependent launch.
  bool dependent_launch = false;
  int32_t registers = -1;   // of a thread; -1 where the assembler did not report
  int32_t spill_bytes = -1; // stores to local memory of a thread, bytes
  int32_t stack_bytes = -1; // of a thread
  std::string assembler;    // "ptxas 13.0.88"; empty without a cubin
  std::vector<KernelTensorMap> tensor_maps;
  bool operator==(const CodeObject&) const = default;
};

// Bytes with a magic number, a version and a checksum.
[[nodiscard]] std::vector<char> encode(const CodeObject& object);
// Error CorruptFile for bytes that are no code object, are cut off, changed, or of another version.
[[nodiscard]] Result<CodeObject> decode(std::span<const char> bytes);

} // namespace tessera::cuda
