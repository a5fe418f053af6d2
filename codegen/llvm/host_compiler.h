// Tile kernels to host machine code through LLVM: only this folder includes LLVM headers.
#pragma once
#include "codegen/tile/tile.h"
#include "runtime/executable.h"

namespace tessera {

// The machine code of a kernel is called with runtime/executable.h's HostKernelFn.
struct HostTarget {
  std::string cpu;       // LLVM name, "sapphirerapids"
  std::string features;  // "+avx512f,..."
  int vector_bytes = 32; // 64 with AVX-512, 32 with AVX2, 16 otherwise
  // The machine that this process runs on. TESSERA_HOST_ISA=avx512|avx2|sse restricts it, for tests.
  static HostTarget detect();
};

struct CompiledObject {
  std::string symbol;
  std::vector<char> object;
  std::string llvm_ir; // empty unless texts are kept
};

// Emits LLVM IR, optimises it, returns a relocatable object. Thread-safe. Errors: CodegenError with the LLVM message.
[[nodiscard]] Result<CompiledObject> compile_host_kernel(const tile::Kernel& kernel, const HostTarget& target,
                                                         bool keep_ir = false);
// Version of emitter, LLVM and target: part of every cache key.
[[nodiscard]] std::string host_compiler_version(const HostTarget& target);

// A function of this process that objects call and that no shared library exports.
struct HostSymbol {
  std::string name;
  const void* address = nullptr;
};

// Links objects into this process. Owns the code; function pointers are valid during its lifetime.
class HostModule {
public:
  [[nodiscard]] static Result<std::shared_ptr<HostModule>> load(std::span<const CompiledObject> objects,
                                                                std::span<const HostSymbol> symbols = {});
  [[nodiscard]] HostKernelFn find(const std::string& symbol) const;
  // Address of a function with another type than HostKernelFn; null if there is none.
  [[nodiscard]] void* address(const std::string& symbol) const;
  ~HostModule();

private:
  HostModule();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace tessera
