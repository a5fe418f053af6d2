// PTX to cubin: nvJitLink where it can be loaded, else ptxas as a subprocess, else not at all (the driver then compiles
// the PTX when it loads it). Works without a GPU.
#pragma once
#include "graph/support/result.h"
#include <memory>
#include <string>
#include <vector>

namespace tessera::cuda {

struct Cubin {
  std::vector<char> bytes;
  // What ptxas says of the kernel; -1 where the assembler does not tell (nvJitLink).
  int registers = -1, spill_bytes = -1, stack_bytes = -1, shared_bytes = -1;
  std::string log; // warnings and resource lines, as printed
};

class Assembler {
public:
  enum class Kind : uint8_t { NvJitLink, Ptxas };
  // The first of the two that is there, or the one asked for. Error UnsupportedFeature naming what was looked for,
  // where, and what it would bring. TESSERA_CUDA_PATH (a toolkit folder) is searched first.
  [[nodiscard]] static Result<std::shared_ptr<Assembler>> find();
  [[nodiscard]] static Result<std::shared_ptr<Assembler>> find(Kind kind);
  virtual ~Assembler() = default;
  [[nodiscard]] virtual Kind kind() const = 0;
  [[nodiscard]] virtual std::string version() const = 0; // part of cache keys: "ptxas 13.0.88"
  // Thread-safe. Error CodegenError with the assembler's message; a C75xx line (serialised wgmma) is an error, too.
  [[nodiscard]] virtual Result<Cubin> assemble(const std::string& ptx, const std::string& arch) const = 0;
};

} // namespace tessera::cuda
