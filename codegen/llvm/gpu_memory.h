// Loads, stores, atomics, hints and index reports. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_accesses.h"

namespace tessera::gpu {

// Unaligned vector loads from two aligned ones (gpu_window.cpp).
class Windows final : Part {
public:
  Windows(Context& context, Words& words, Accesses& accesses) : Part(context), words_(words), accesses_(accesses) {}
  void load_tails(); // at the start of the kernel
  Status load(tile::OpId id);

private:
  std::vector<Value*> window(std::span<Value* const> words, Value* shift, DType dtype, int width);
  [[nodiscard]] Value* elements_of(tile::ValueId pointer) const; // i64, of a pointer with unaligned loads
  [[nodiscard]] bool start_alike(tile::ValueId offset, int width) const;

  Words& words_;
  Accesses& accesses_;
  // By pointer and width of an aligned access: words of the elements behind the last full one. Empty if there are none.
  std::map<std::pair<tile::ValueId, int>, std::vector<Value*>> tails_;
};

class Memory final : Part {
public:
  Memory(Context& context, Words& words, Accesses& accesses, Windows& windows)
      : Part(context), words_(words), accesses_(accesses), windows_(windows) {}
  Status load(tile::OpId id);
  Status store(tile::OpId id);
  Status atomic(tile::OpId id);
  void report_index(const tile::Op& op);
  void prefetch(const tile::Op& op);

private:
  Words& words_;
  Accesses& accesses_;
  Windows& windows_;
};

} // namespace tessera::gpu
