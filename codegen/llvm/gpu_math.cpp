// Pointwise operations with special GPU instructions, and elementary functions (gpu_functions.h gives their accuracy).
#include "codegen/llvm/gpu_math.h"
#include "base/check.h"
#include "codegen/llvm/erf.h"
#include "codegen/llvm/gpu_functions.h"
#include "codegen/llvm/small_floats.h"
#include <cmath>
#include <llvm/IR/Intrinsics.h>

namespace tessera::gpu {

namespace ID = llvm::Intrinsic;

// True if every float result of the kernel is rounded to 16 bits and none is compared before.
static bool stores_halves(const tile::Kernel& kernel) {
  bool found = false;
  for (tile::OpId id = 0; id < kernel.op_count(); ++id) {
    const auto& op = kernel.op(id);
    auto dtype = [&](size_t operand) { return kernel.type(op.operands[operand]).dtype; };
    switch (op.kind) {
    case tile::OpKind::Store:
      if (dtype(0) != DType::F16 && dtype(0) != DType::BF16) return false;
      found = true;
      break;
    case tile::OpKind::Atomic: return false;
    case tile::OpKind::Reduce:
      if (op.reduce == ReduceKind::ArgMax || op.reduce == ReduceKind::ArgMin) return false;
      break;
    case tile::OpKind::Scalar: {
      bool of_float = !op.operands.empty() && is_float(dtype(op.operands.size() - 1));
      bool jumps = op.scalar == ScalarOp::Bitcast || (op.scalar >= ScalarOp::Eq && op.scalar <= ScalarOp::Ge);
      jumps = jumps || op.scalar == ScalarOp::Mod || op.scalar == ScalarOp::Fmod || op.scalar == ScalarOp::Sign ||
              (op.scalar >= ScalarOp::Floor && op.scalar <= ScalarOp::Trunc) ||
              (op.scalar == ScalarOp::Cast && !op.results.empty() && !is_float(kernel.type(op.results[0]).dtype));
      if (of_float && jumps) return false;
      break;
    }
    default: break;
    }
  }
  return found;
}

Math::Math(llvm::Module& module, const tile::Kernel& kernel, bool emulated, bool small_floats)
    : Arithmetic(module, kernel.name),
      gpu_(emulated ? emulated_numbers(module, b_) : nvptx_numbers(module, b_, small_floats)),
      short_functions_(stores_halves(kernel)) {}

void Math::target_attributes(llvm::Function& f) const { f.addFnAttr(llvm::Attribute::NoUnwind); }

Result<llvm::Value*> Math::arith(ScalarOp op, DType result, DType argument, std::span<Value* const> a) {
  if (argument == DType::F32) {
    if (op == ScalarOp::Rsqrt) return gpu_->rsqrt(a[0]);
    if (op == ScalarOp::Reciprocal) return gpu_->rcp(a[0]);
  }
  return Arithmetic::arith(op, result, argument, a);
}

// x / by in f32, rounded to nearest, without the call behind div.rn.f32: in the linkable code that nvJitLink takes, a
// call saves the thread's registers. A quotient of two f32 is either a rounding boundary or at least 2^-49 of itself
// away from each; a quotient with an error of half an ulp of f64 therefore rounds to the same f32.
llvm::Value* Math::divided(Value* x, const llvm::ConstantFP& by) {
  auto* f64 = b_.getDoubleTy();
  auto number = [&](double v) { return llvm::ConstantFP::get(f64, v); };
  const auto divisor = static_cast<double>(by.getValueAPF().convertToFloat());
  auto* wide = b_.CreateFPExt(x, f64);
  Value *inverse = number(1 / divisor), *quotient = b_.CreateFMul(wide, inverse);
  auto fma = [&](Value* a, Value* b, Value* c) { return b_.CreateIntrinsic(ID::fma, {f64}, {a, b, c}); };
  auto* corrected = fma(fma(quotient, number(-divisor), wide), inverse, quotient);
  auto* size = b_.CreateUnaryIntrinsic(ID::fabs, quotient);
  auto* ordinary = b_.CreateAnd(b_.CreateFCmpOGT(size, number(0)), b_.CreateFCmpOLT(size, number(HUGE_VAL)));
  return b_.CreateFPTrunc(b_.CreateSelect(ordinary, corrected, quotient), x->getType());
}

llvm::Value* Math::cast(Value* v, DType from, DType to) {
  if (from == DType::F32 && to == DType::BF16) return gpu_->to_bf16(v);
  if (irgen::is_small_float(from) && to != from)
    if (auto* halves = as_halves(v, v, from))
      return cast(b_.CreateBitCast(b_.CreateTrunc(halves, b_.getInt16Ty()), b_.getHalfTy()), DType::F16, to);
  if (from == DType::F32 && irgen::is_small_float(to))
    if (auto* pair = gpu_->pack_small_floats(to, v, v)) return b_.CreateTrunc(pair, b_.getInt8Ty());
  if ((from == DType::F32 || from == DType::F64) && !is_float(to) && to != DType::Bool) return to_integer(v, from, to);
  return Arithmetic::cast(v, from, to);
}

llvm::Value* Math::cast_pair(Value* low, Value* high, DType from, DType to) {
  if (from == DType::F64 || from == to || !is_float(to) || info(to).bits > 16) return nullptr;
  low = cast(low, from, DType::F32), high = cast(high, from, DType::F32);
  if (to == DType::F16) return gpu_->pack_f16(low, high);
  return to == DType::BF16 ? gpu_->pack_bf16(low, high) : gpu_->pack_small_floats(to, low, high);
}

llvm::Value* Math::as_halves(Value* low, Value* high, DType from) {
  auto* i16 = b_.getInt16Ty();
  return gpu_->small_floats_as_f16(from,
                                   b_.CreateOr(b_.CreateZExt(low, i16), b_.CreateShl(b_.CreateZExt(high, i16), 8)));
}

llvm::Value* Math::to_integer(Value* x, DType from, DType to) {
  auto bits = static_cast<unsigned>(info(to).bits);
  bool is_signed = info(to).kind == DTypeKind::Signed;
  unsigned work = bits == 64 ? 64 : 32; // width to which instructions saturate
  Value* v = gpu_->to_integer(x, work, bits < 32 || is_signed);
  if (from == DType::F64 || work == 64) v = b_.CreateSelect(b_.CreateFCmpUNO(x, x), integer_like(v, 0), v);
  if (bits == work) return v;
  int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  int64_t high = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  v = b_.CreateBinaryIntrinsic(ID::smax, v, integer_like(v, low));
  v = b_.CreateBinaryIntrinsic(ID::smin, v, integer_like(v, high));
  return b_.CreateTrunc(v, element_type(to));
}

llvm::Value* Math::min_max(bool max, DType dtype, Value* a, Value* b) {
  if (dtype == DType::F32 || dtype == DType::F64)
    return b_.CreateBinaryIntrinsic(max ? ID::maximum : ID::minimum, a, b);
  return Arithmetic::min_max(max, dtype, a, b);
}

// e^x = 2^n 2^f with n + f = x log2 e, n an integer of [-126, 126]. n is computed without comparisons: a saturating fma
// maps x to [0, 1] (NaN to 0); times 252 that is n + 126, and adding 1.5 * 2^23 + 1 rounds it to the integer n + 127 in
// the low bits of the sum. Outside the range f has the rest, so that 2^f overflows, underflows, or the product is
// denormal. If results are rounded to 16 bits, the product alone suffices: relative error up to |x| 2^-23, at most
// 2^-16.
llvm::Value* Math::exp_f32(Value* x) {
  constexpr double log2e = 1.4426950408889634;
  if (short_functions_) return gpu_->ex2_ftz(b_.CreateFMul(x, constant_like(x, log2e)));
  constexpr auto high = static_cast<float>(log2e);
  auto* unit = gpu_->fma_saturated(x, constant_like(x, log2e / 252), constant_like(x, 0.5));
  auto* shifted = fma(unit, constant_like(x, 252), constant_like(x, 12582912.0 + 1));
  auto* n = b_.CreateFSub(shifted, constant_like(x, 12582912.0 + 127));
  auto* f = fma(x, constant_like(x, high), b_.CreateFNeg(n));
  f = fma(x, constant_like(x, log2e - static_cast<double>(high)), f);
  auto* scale = b_.CreateBitCast(b_.CreateShl(b_.CreateBitCast(shifted, b_.getInt32Ty()), 23), x->getType());
  return b_.CreateFMul(gpu_->ex2_ftz(f), scale);
}

// Sign transfer to a non-negative number in one instruction; copysign takes eight.
llvm::Value* Math::with_sign(Value* magnitude, Value* sign) {
  auto* i32 = b_.getInt32Ty();
  auto* bit = b_.CreateAnd(b_.CreateBitCast(sign, i32), b_.getInt32(0x80000000));
  return b_.CreateBitCast(b_.CreateOr(b_.CreateBitCast(magnitude, i32), bit), magnitude->getType());
}

llvm::Value* Math::tanh_f32(Value* x) {
  auto* ax = b_.CreateUnaryIntrinsic(ID::fabs, x);
  auto* e = gpu_->ex2_ftz(b_.CreateFMul(ax, constant_like(x, 2 * 1.4426950408889634)));
  auto* big = fma(constant_like(x, -2), gpu_->rcp_ftz(b_.CreateFAdd(e, constant_like(x, 1))), constant_like(x, 1));
  auto* z = b_.CreateFMul(x, x);
  static constexpr std::array<double, 5> c = {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
                                              -3.33332819422e-1};
  auto* small = fma(b_.CreateFMul(polynomial(z, c), z), ax, ax);
  return with_sign(b_.CreateSelect(b_.CreateFCmpOLT(ax, constant_like(x, 0.625)), small, big), x);
}

llvm::Value* Math::erf_f32(Value* x) {
  auto* ax = b_.CreateUnaryIntrinsic(ID::fabs, x);
  auto* small = b_.CreateFMul(polynomial(b_.CreateFMul(x, x), erf::kNear), x);
  std::array<double, erf::kFar.size()> exponent{}; // base 2 instead of e
  for (size_t i = 0; i < exponent.size(); ++i) exponent[i] = erf::kFar[i] * -1.4426950408889634;
  auto* clamped = min_max(false, DType::F32, ax, constant_like(x, erf::kMax));
  auto* big = b_.CreateFSub(constant_like(x, 1), gpu_->ex2_ftz(polynomial(clamped, exponent)));
  big = with_sign(big, x);
  return b_.CreateSelect(b_.CreateFCmpOLT(ax, constant_like(x, erf::kSplit)), small, big);
}

// 1 + tanh(x) = 2 / (1 + e^-2x) and 1 + erf(x) = 2 - erfc(x), or erfc(-x) for negative x: half the instructions of
// function and sum, and no cancellation. GELU uses them. erfc(x) = 2^p(x) for x >= 0, with p of degree 8 without
// constant term, fitted on [0, 4.5] by iteratively reweighted least squares (error of erfc relative to max(erfc,
// 1e-5)); beyond 4.5 p decreases monotonically.
llvm::Value* Math::one_plus(ScalarOp op, Value* x) {
  auto* two = constant_like(x, 2);
  if (op == ScalarOp::Tanh) {
    auto* e = gpu_->ex2_ftz(b_.CreateFMul(x, constant_like(x, -2 * 1.4426950408889634)));
    return b_.CreateFMul(two, gpu_->rcp_ftz(b_.CreateFAdd(e, constant_like(x, 1))));
  }
  static constexpr std::array<double, 8> p = {-2.1940590213908105e-05, 2.5957900823339006e-4, -9.168305662449618e-4,
                                              -1.6491745085324173e-3,  2.895502793033577e-2,  -1.4876841792656834e-1,
                                              -9.183635213120404e-1,   -1.6279117171527668};
  auto* ax = b_.CreateUnaryIntrinsic(ID::fabs, x);
  auto* e = gpu_->ex2_ftz(b_.CreateFMul(polynomial(ax, p), ax));
  return b_.CreateSelect(b_.CreateFCmpOLT(x, constant_like(x, 0)), e, b_.CreateFSub(two, e));
}

Result<llvm::Value*> Math::math(ScalarOp op, DType dtype, std::span<Value* const> a) {
  if (dtype != DType::F32 && dtype != DType::F64)
    return error("function " + std::string(info(op).name) + " on " + std::string(name(dtype)));
  bool f32 = dtype == DType::F32;
  switch (op) {
  case ScalarOp::Exp:
    if (f32) return exp_f32(a[0]);
    break;
  case ScalarOp::Exp2:
    if (f32) return gpu_->ex2_ftz(a[0]);
    break;
  case ScalarOp::Tanh:
    if (f32) return tanh_f32(a[0]);
    break;
  case ScalarOp::Erf:
    if (f32) return erf_f32(a[0]);
    break;
  case ScalarOp::Sigmoid: {
    std::array<Value*, 1> n = {b_.CreateFNeg(a[0])};
    TESSERA_ASSIGN(auto* e, math(ScalarOp::Exp, dtype, n));
    auto* sum = b_.CreateFAdd(constant_like(e, 1), e);
    return f32 ? gpu_->rcp_ftz(sum) : b_.CreateFDiv(constant_like(e, 1), sum);
  }
  case ScalarOp::Mod: return with_sign_of(gpu_->library_call("fmod", a), a[1]);
  default: break;
  }
  const auto* f = gpu_function(op);
  if (!f || f->library.empty()) return error("no GPU code for " + std::string(info(op).name));
  return gpu_->library_call(f->library, a);
}

} // namespace tessera::gpu
