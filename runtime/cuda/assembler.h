// PTX to cubin: nvJitLink where it can be loaded, else ptxas as a subprocess, else not at all (the driver then compiles
// the PTX when it loads it). Works without a GPU.
#pragma once
#include "base/result.h"
#include <memory>
#include <string>
#include <vector>

namespace tessera::cuda {

struct Cubin {
  std::vector<char> bytes;
  // The assembler's report on the kernel, per thread (shared_bytes: static, per block); -1 where it does not report.
  // For several functions in one text: the largest number of registers, all spills together, the deepest stack.
  int registers = -1, spill_bytes = -1, stack_bytes = -1, shared_bytes = -1;
  std::string log; // warnings and resource lines, as printed
};

class Assembler {
public:
  enum class Kind : uint8_t { NvJitLink, Ptxas };
  // The first of the two that is there, or the requested one. Error UnsupportedFeature naming what was looked for,
  // where, and what it would bring.
  //
  // TESSERA_ASSEMBLER says which to take: nvjitlink, ptxas, the path of a ptxas program, or none (PTX goes to the
  // driver as it is). Without it: both are looked for in TESSERA_CUDA_PATH (toolkit folders separated by ':'), then
  // where the system and pip install them (dynamic_library.h); ptxas on PATH, too.
  [[nodiscard]] static Result<std::shared_ptr<Assembler>> find();
  [[nodiscard]] static Result<std::shared_ptr<Assembler>> find(Kind kind);
  // One that assembles texts as whole programs, for kernels that divide registers among their warps (setmaxnreg, which
  // relocatable code, as nvJitLink makes it, ignores): ptxas, under the same conditions.
  [[nodiscard]] static Result<std::shared_ptr<Assembler>> find_for_whole_programs();
  virtual ~Assembler() = default;
  [[nodiscard]] virtual Kind kind() const = 0;
  [[nodiscard]] virtual std::string version() const = 0; // part of cache keys: "ptxas 13.0.88"
  // Thread-safe. arch: "sm_90", "sm_90a", "sm_120". Error CodegenError with the assembler's message and the line of the
  // PTX it speaks of; a C75xx line (serialised wgmma) is an error, too.
  [[nodiscard]] virtual Result<Cubin> assemble(const std::string& ptx, const std::string& arch) const = 0;
};
[[nodiscard]] std::string_view name(Assembler::Kind kind);

} // namespace tessera::cuda
