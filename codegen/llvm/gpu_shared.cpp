#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

llvm::Type* Words::type(DType dtype, int elements, int* count) {
  int bytes = element_bytes(dtype) * elements;
  int word = element_bytes(dtype) == 8 ? 8 : std::min(bytes, 4);
  *count = bytes / word;
  return b_.getIntNTy(static_cast<unsigned>(word) * 8);
}

std::vector<llvm::Value*> Words::pack(std::span<Value* const> elements, DType dtype) {
  int count = 0;
  auto* word = type(dtype, static_cast<int>(elements.size()), &count);
  auto bits = static_cast<unsigned>(element_bytes(dtype)) * 8;
  auto* element = b_.getIntNTy(bits);
  size_t each = elements.size() / static_cast<size_t>(count);
  std::vector<Value*> words;
  for (size_t w = 0; w < static_cast<size_t>(count); ++w) {
    Value* sum = nullptr;
    for (size_t e = 0; e < each; ++e) {
      Value* v = elements[w * each + e];
      v = dtype == DType::Bool ? b_.CreateZExt(v, element) : b_.CreateBitCast(v, element);
      v = b_.CreateZExt(v, word);
      if (e > 0) v = b_.CreateShl(v, static_cast<uint64_t>(e) * bits);
      sum = sum ? disjoint_or(b_, sum, v) : v;
    }
    words.push_back(sum);
  }
  return words;
}

Registers Words::unpack(std::span<Value* const> words, DType dtype, int elements) {
  auto bits = static_cast<unsigned>(element_bytes(dtype)) * 8;
  auto* whole = b_.getIntNTy(bits);
  size_t each = static_cast<size_t>(elements) / words.size();
  Registers out;
  for (auto* w : words)
    for (size_t e = 0; e < each; ++e) {
      Value* v = b_.CreateTrunc(e > 0 ? b_.CreateLShr(w, static_cast<uint64_t>(e) * bits) : w, whole);
      out.push_back(dtype == DType::Bool ? b_.CreateICmpNE(v, math_.integer_like(v, 0))
                                         : b_.CreateBitCast(v, math_.element_type(dtype)));
    }
  return out;
}

void SharedMemory::barrier() {
  constexpr uint32_t kConsumers = 1; // the barrier of the whole block is 0
  if (c_.divided)
    c_.warpgroups->join(b_.getInt32(kConsumers), c_.threads());
  else
    gpu_.barrier();
  c_.hazards.barrier();
}

Result<int64_t> SharedMemory::region(int64_t bytes) {
  auto at = c_.hazards.find_shared(bytes);
  if (!at) {
    barrier();
    at = c_.hazards.find_shared(bytes);
  }
  if (!at && c_.hazards.extend_for(bytes)) at = c_.hazards.find_shared(bytes);
  if (!at)
    return error("an exchange between warps takes " + std::to_string(bytes) + " bytes of shared memory next to " +
                 std::to_string(c_.hazards.reserved_bytes()) + "; smaller tiles are needed");
  c_.hazards.touch_shared({*at, *at + bytes});
  return *at;
}

// The part that differs between registers is added last, as a constant: an immediate of the access.
llvm::Value* SharedMemory::offset(Value* part, uint32_t by, uint32_t reach, DType dtype, int64_t region, Value* stage) {
  auto bytes = static_cast<uint32_t>(element_bytes(dtype));
  Value* offset = b_.CreateMul(part, b_.getInt32(bytes), "", true, true);
  if (by & reach) offset = b_.CreateXor(offset, b_.getInt32((by & reach) * bytes));
  if (stage) offset = b_.CreateAdd(offset, stage, "", true, true);
  auto fixed = static_cast<uint32_t>(region) + (by & ~reach) * bytes;
  return fixed == 0 ? offset : b_.CreateAdd(offset, b_.getInt32(fixed), "", true, true);
}

void SharedMemory::store(Value* offset, std::span<Value* const> elements, DType dtype, Value* predicate) {
  gpu_.store_shared(offset, words_.pack(elements, dtype), predicate);
}
Registers SharedMemory::load(Value* offset, DType dtype, int elements) {
  int count = 0;
  auto* word = words_.type(dtype, elements, &count);
  return words_.unpack(gpu_.load_shared(offset, word, count), dtype, elements);
}

} // namespace tessera::gpu
