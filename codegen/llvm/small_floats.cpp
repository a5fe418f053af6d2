#include "codegen/llvm/small_floats.h"
#include "codegen/llvm/arith.h"
#include <cmath>
#include <llvm/IR/Intrinsics.h>

namespace tessera::irgen {

using llvm::Value;

namespace {

Value* number_like(Value* like, int64_t v) {
  return llvm::ConstantInt::get(like->getType(), static_cast<uint64_t>(v), true);
}

} // namespace

// As a half: f8e5m2 is the upper byte of one. f8e4m3fn has its exponent in the lower bits of a half's, whose bias is
// larger by 8; it has no infinity, and one NaN.
Value* from_small_float(llvm::IRBuilder<>& b, Value* v, DType from) {
  auto* f32 = Arithmetic::like(b.getFloatTy(), v);
  auto* bits = b.CreateZExt(v, Arithmetic::like(b.getInt16Ty(), v));
  auto as_f32 = [&](Value* half) {
    return b.CreateFPExt(b.CreateBitCast(half, Arithmetic::like(b.getHalfTy(), v)), f32);
  };
  if (from == DType::F8E5M2) return as_f32(b.CreateShl(bits, number_like(bits, 8)));
  auto* magnitude = b.CreateAnd(bits, number_like(bits, 0x7f));
  auto* sign = b.CreateShl(b.CreateAnd(bits, number_like(bits, 0x80)), number_like(bits, 8));
  auto* x = as_f32(b.CreateOr(b.CreateShl(magnitude, number_like(bits, 7)), sign));
  x = b.CreateFMul(x, llvm::ConstantFP::get(f32, 256));
  return b.CreateSelect(b.CreateICmpEQ(magnitude, number_like(bits, 0x7f)), llvm::ConstantFP::getQNaN(f32), x);
}

// Normal numbers are rounded as integers, with a carry into the exponent; a sum with a power of two, whose last bit is
// the smallest subnormal number, rounds the others.
Value* to_small_float(llvm::IRBuilder<>& b, Value* x, DType to) {
  const bool e5 = to == DType::F8E5M2;
  const int mantissa = e5 ? 2 : 3, bias = e5 ? 15 : 7, shift = 23 - mantissa;
  const int64_t largest = e5 ? 0x7b : 0x7e, nan = e5 ? 0x7e : 0x7f, infinity = 0x7f800000;
  auto* i32 = Arithmetic::like(b.getInt32Ty(), x);
  auto* bits = b.CreateBitCast(x, i32);
  auto number = [&](int64_t n) { return number_like(bits, n); };
  auto* sign = b.CreateAnd(b.CreateLShr(bits, number(24)), number(0x80));
  auto* magnitude = b.CreateAnd(bits, number(0x7fffffff));
  auto* odd = b.CreateAnd(b.CreateLShr(magnitude, number(shift)), number(1));
  auto* rounded = b.CreateAdd(b.CreateAdd(magnitude, number((int64_t{1} << (shift - 1)) - 1)), odd);
  auto* normal = b.CreateSub(b.CreateLShr(rounded, number(shift)), number(int64_t{127 - bias} << mantissa));
  auto* power = llvm::ConstantFP::get(x->getType(), std::ldexp(1.0, 24 - mantissa - bias));
  auto* sum = b.CreateFAdd(b.CreateBitCast(magnitude, x->getType()), power);
  auto* subnormal = b.CreateSub(b.CreateBitCast(sum, i32), b.CreateBitCast(power, i32));
  auto* code = b.CreateSelect(b.CreateICmpULT(magnitude, number(int64_t{128 - bias} << 23)), subnormal, normal);
  code = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, code, number(largest));
  code = b.CreateSelect(b.CreateICmpUGT(magnitude, number(infinity)), number(nan), code);
  return b.CreateTrunc(b.CreateOr(code, sign), Arithmetic::like(b.getInt8Ty(), x));
}

} // namespace tessera::irgen
