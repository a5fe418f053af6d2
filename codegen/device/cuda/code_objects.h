// Tile kernels to code objects for an NVIDIA GPU: PTX and, where there is an assembler, cubins; from the cache where they
// are there. Needs no GPU.
#pragma once
#include "codegen/device/cuda/gpu_kernels.h"

namespace tessera {

// Compilation of one distinct text.
struct MadeObject {
  Hash128 key; // hash of the text and of the compiler's version: ObjectCompiler::seed()
  const tile::Kernel* kernel = nullptr;
  std::string first_user; // a request's name, for errors and warnings
  cuda::CodeObject object;
  std::string llvm_ir;
  std::optional<Diagnostic> error, not_assembled;
  bool cached = false;
  double ms = 0;
};

class ObjectCompiler {
public:
  // `registers`: of a multiprocessor; `thread_registers`: those that a thread may have. `cancelled`: as of
  // CompileOptions.
  ObjectCompiler(const GpuTarget& target, const GpuKernelOptions& gpu, Cache& cache, bool keep_ir,
                 const std::function<bool()>& cancelled, int64_t registers, int64_t thread_registers);
  // Seed of the hashes of texts: the compiler's version, and what makes cubins.
  [[nodiscard]] uint64_t seed() const { return seed_; }
  // Compiles m.kernel, whose name is the symbol; errors are in `m`. Any thread may call it.
  void make(MadeObject& m) const;

private:
  void make_guarded(MadeObject& m) const;
  void store(const MadeObject& m) const;
  [[nodiscard]] bool from_cache(MadeObject& m) const;
  void compile(MadeObject& m) const;
  void compile(const tile::Kernel& kernel, MadeObject& m, const std::string* known = nullptr) const;

  const GpuTarget& target_;
  const GpuKernelOptions& gpu_;
  const std::string arch_; // architecture of cubins
  Cache& cache_;
  const bool keep_ir_;
  const std::function<bool()>& cancelled_;
  const int64_t registers_, thread_registers_;
  const uint64_t seed_;
};

} // namespace tessera
