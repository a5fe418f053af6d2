#include "codegen/llvm/gpu_intrinsics.h"
#include "base/check.h"
#include "codegen/llvm/gpu_warpgroup_intrinsics.h"

namespace tessera::gpu {

int word_bytes(llvm::Type* word) { return static_cast<int>(word->getIntegerBitWidth() / 8); }

namespace {

// Applies `move` to the i32 words of a value.
template <class Move>
Value* by_words(llvm::IRBuilder<>& b, Value* v, Move move) {
  auto* type = v->getType();
  auto bits = static_cast<unsigned>(type->getPrimitiveSizeInBits().getFixedValue());
  auto* whole = b.getIntNTy(bits);
  auto* i32 = b.getInt32Ty();
  Value* x = b.CreateBitCast(v, whole);
  if (bits <= 32) {
    x = b.CreateTrunc(move(b.CreateZExt(x, i32)), whole);
  } else {
    TESSERA_CHECK(bits == 64, "shuffle of a value wider than 8 bytes");
    Value* low = move(b.CreateTrunc(x, i32));
    Value* high = move(b.CreateTrunc(b.CreateLShr(x, 32), i32));
    x = b.CreateOr(b.CreateZExt(low, whole), b.CreateShl(b.CreateZExt(high, whole), 32));
  }
  return b.CreateBitCast(x, type);
}

} // namespace

Value* Intrinsics::shuffle(Value* value, Value* lane) {
  return by_words(b_, value, [&](Value* w) { return shuffle_word(w, lane); });
}
Value* Intrinsics::shuffle_xor(Value* value, int mask) {
  return by_words(b_, value, [&](Value* w) { return shuffle_xor_word(w, mask); });
}

// The descriptor of the PTX manual ("Matrix descriptor format"): 16-byte units of 14 bits each, then the swizzle.
Value* WarpgroupIntrinsics::descriptor(Value* offset, const OperandLayout& layout) {
  auto units = [](int bytes) {
    TESSERA_CHECK(bytes % 16 == 0 && bytes > 0 && bytes < 1 << 18, "distance in a matrix descriptor");
    return static_cast<uint64_t>(bytes / 16);
  };
  constexpr uint64_t kModes[] = {0, 3, 2, 1};
  const uint64_t fixed = units(layout.leading_bytes) << 16 | units(layout.stride_bytes) << 32 |
                         kModes[static_cast<size_t>(layout.swizzle)] << 62;
  auto* begin = b_.CreateAnd(b_.CreateLShr(shared_address(offset), 4), 0x3fff);
  return b_.CreateOr(b_.CreateZExt(begin, b_.getInt64Ty()), fixed);
}
Value* WarpgroupIntrinsics::advance(Value* descriptor, int bytes) {
  TESSERA_CHECK(bytes % 16 == 0 && bytes >= 0, "advance of a matrix descriptor");
  return b_.CreateAdd(descriptor, b_.getInt64(static_cast<uint64_t>(bytes / 16)));
}

} // namespace tessera::gpu
