// Tile kernels to host machine code through LLVM: only this folder includes LLVM headers.
#pragma once
#include "codegen/tile/tile.h"
#include "runtime/host_code.h"

namespace tessera {

// The machine code of a kernel is called with runtime/launch_spec.h's HostKernelFn. `sizes` are the scalar parameters,
// each in the low bytes of its word as memory has it, so that an i64 is the word; behind them are the three extents of
// the grid where tile::uses_grid(). Programs [begin, end) are numbers in the grid.
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
// The version that a tuned schedule is measured with: emitter, LLVM and target.
[[nodiscard]] std::string host_compiler_version(const HostTarget& target);

// Differs where the sources do that make machine code of tile text: a part of the keys of kernels in the cache.
[[nodiscard]] std::string_view code_digest();

// Objects as code of this process, each found by its symbol. Errors: those of HostCode::load.
[[nodiscard]] Result<std::shared_ptr<const HostCode>> link_host_objects(std::span<const CompiledObject> objects,
                                                                        std::span<const HostSymbol> symbols = {});

} // namespace tessera
