// Accesses of shared memory, and packing of elements into words. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_context.h"

namespace tessera::gpu {

// Packs the elements of an access into words and unpacks them; a bool is a byte.
class Words final : Part {
public:
  explicit Words(Context& context) : Part(context) {}
  llvm::Type* type(DType dtype, int elements, int* count);
  std::vector<Value*> pack(std::span<Value* const> elements, DType dtype);
  Registers unpack(std::span<Value* const> words, DType dtype, int elements);
};

class SharedMemory final : Part {
public:
  SharedMemory(Context& context, Words& words) : Part(context), words_(words) {}
  void barrier();
  Result<int64_t> region(int64_t bytes); // byte offset of memory that no thread still uses; recorded as accessed
  // i32: byte offset of element `part ^ by` of a tile in shared memory at `region` + `stage` (null: 0). `part` has no
  // bits outside of `reach`.
  Value* offset(Value* part, uint32_t by, uint32_t reach, DType dtype, int64_t region, Value* stage = nullptr);
  void store(Value* byte_offset, std::span<Value* const> elements, DType dtype, Value* predicate);
  Registers load(Value* byte_offset, DType dtype, int elements);

private:
  Words& words_;
};

} // namespace tessera::gpu
