#include "codegen/llvm/arith.h"
#include "base/check.h"
#include "codegen/llvm/small_floats.h"
#include <cmath>
#include <llvm/IR/Intrinsics.h>

namespace tessera::irgen {

std::array<llvm::Value*, IndexReport::kWords> report_words(llvm::IRBuilder<>& b, int site, llvm::Value* position,
                                                           llvm::Value* index) {
  auto number = [&](uint64_t n) { return llvm::ConstantInt::get(position->getType(), n); };
  auto* at = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, position, number(IndexReport::kNoPosition));
  auto* key = b.CreateOr(at, number(static_cast<uint64_t>(site) << IndexReport::kPositionBits));
  key = b.CreateShl(b.CreateNot(key), number(IndexReport::kValueBits));
  std::array<llvm::Value*, IndexReport::kWords> words{};
  for (size_t w = 0; w < words.size(); ++w)
    words[w] = b.CreateOr(key, b.CreateAnd(b.CreateLShr(index, number(IndexReport::kValueBits * w)), number(0xffff)));
  return words;
}

llvm::AtomicRMWInst::BinOp atomic_kind(ReduceKind kind, DType dtype) {
  using Rmw = llvm::AtomicRMWInst;
  const bool is_signed = info(dtype).kind == DTypeKind::Signed;
  if (kind == ReduceKind::Max) return is_signed ? Rmw::Max : Rmw::UMax;
  if (kind == ReduceKind::Min) return is_signed ? Rmw::Min : Rmw::UMin;
  return is_float(dtype) ? Rmw::FAdd : Rmw::Add;
}

using llvm::Intrinsic::ID;

Arithmetic::Arithmetic(llvm::Module& module, std::string kernel_name)
    : ctx_(module.getContext()), module_(module), b_(ctx_), kernel_name_(std::move(kernel_name)) {}

Diagnostic Arithmetic::error(const std::string& what) const {
  return Diagnostic(ErrorCode::CodegenError, "kernel " + kernel_name_ + ": " + what);
}

llvm::Type* Arithmetic::element_type(DType dtype) {
  switch (dtype) {
  case DType::Bool: return b_.getInt1Ty();
  case DType::I8:
  case DType::U8:
  case DType::F8E4M3FN:
  case DType::F8E5M2: return b_.getInt8Ty();
  case DType::I16:
  case DType::U16:
  case DType::BF16: return b_.getInt16Ty();
  case DType::I32:
  case DType::U32: return b_.getInt32Ty();
  case DType::I64:
  case DType::U64: return b_.getInt64Ty();
  case DType::F16: return b_.getHalfTy();
  case DType::F32: return b_.getFloatTy();
  case DType::F64: return b_.getDoubleTy();
  default: return nullptr;
  }
}
llvm::Type* Arithmetic::memory_type(DType dtype) { return dtype == DType::Bool ? b_.getInt8Ty() : element_type(dtype); }

llvm::Value* Arithmetic::constant(DType dtype, double f, int64_t i) {
  if (dtype == DType::BF16) return b_.getInt16(f32_to_bf16(static_cast<float>(f)));
  if (is_small_float(dtype)) return b_.getInt8(f32_to_small_float(dtype, static_cast<float>(f)));
  if (is_float(dtype)) return llvm::ConstantFP::get(element_type(dtype), f);
  return llvm::ConstantInt::get(element_type(dtype), static_cast<uint64_t>(i), true);
}

llvm::Value* Arithmetic::fma(Value* a, Value* b, Value* c) {
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

llvm::Value* Arithmetic::multiply_add(Value* a, Value* b, Value* c) { return fma(a, b, c); }

llvm::Value* Arithmetic::polynomial(Value* x, std::span<const double> coefficients) {
  Value* r = constant_like(x, coefficients[0]);
  for (size_t i = 1; i < coefficients.size(); ++i) r = multiply_add(r, x, constant_like(x, coefficients[i]));
  return r;
}

llvm::Value* Arithmetic::with_sign_of(Value* r, Value* divisor) {
  auto* zero = constant_like(r, 0);
  auto* differs = b_.CreateXor(b_.CreateFCmpOLT(r, zero), b_.CreateFCmpOLT(divisor, zero));
  return b_.CreateSelect(b_.CreateAnd(b_.CreateFCmpONE(r, zero), differs), b_.CreateFAdd(r, divisor), r);
}

llvm::Type* Arithmetic::like(llvm::Type* element, Value* shape) {
  if (auto* v = llvm::dyn_cast<llvm::FixedVectorType>(shape->getType()))
    return llvm::FixedVectorType::get(element, v->getNumElements());
  return element;
}

llvm::Value* Arithmetic::constant_like(Value* l, double v) { return llvm::ConstantFP::get(l->getType(), v); }
llvm::Value* Arithmetic::integer_like(Value* l, int64_t v) {
  return llvm::ConstantInt::get(l->getType(), static_cast<uint64_t>(v), true);
}

llvm::Value* Arithmetic::cast(Value* v, DType from, DType to) {
  if (from == to) return v;
  auto* target = like(element_type(to), v);
  bool from_signed = info(from).kind == DTypeKind::Signed;
  if (is_small_float(from)) return cast(from_small_float(b_, v, from), DType::F32, to);
  if (is_small_float(to)) return to_small_float(b_, cast(v, from, DType::F32), to);
  // bf16 is stored in i16; it converts through f32.
  if (from == DType::BF16) {
    auto* wide = b_.CreateShl(b_.CreateZExt(v, like(b_.getInt32Ty(), v)),
                              integer_like(b_.CreateZExt(v, like(b_.getInt32Ty(), v)), 16));
    return cast(b_.CreateBitCast(wide, like(b_.getFloatTy(), v)), DType::F32, to);
  }
  if (to == DType::BF16) {
    auto* f = cast(v, from, DType::F32);
    auto* bits = b_.CreateBitCast(f, like(b_.getInt32Ty(), v));
    auto* odd = b_.CreateAnd(b_.CreateLShr(bits, integer_like(bits, 16)), integer_like(bits, 1));
    auto* rounded =
        b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(odd, integer_like(bits, 0x7fff))), integer_like(bits, 16));
    auto* quiet = b_.CreateOr(b_.CreateLShr(bits, integer_like(bits, 16)), integer_like(bits, 0x40));
    auto* r = b_.CreateSelect(b_.CreateFCmpUNO(f, f), quiet, rounded);
    return b_.CreateTrunc(r, target);
  }
  // Half to integer and back through f32, exact in this range: the saturation limits of integers are not half values.
  if (from == DType::F16 && !is_float(to) && to != DType::Bool)
    return cast(cast(v, DType::F16, DType::F32), DType::F32, to);
  if (to == DType::F16 && !is_float(from)) return cast(cast(v, from, DType::F32), DType::F32, to);
  if (to == DType::Bool)
    return is_float(from) ? b_.CreateFCmpUNE(v, constant_like(v, 0)) : b_.CreateICmpNE(v, integer_like(v, 0));
  if (is_float(from) && is_float(to)) {
    if (from == DType::F64 && to == DType::F16)
      v = b_.CreateFPTrunc(v, target); // LLVM rounds once
    else if (info(from).bits < info(to).bits)
      v = b_.CreateFPExt(v, target);
    else
      v = b_.CreateFPTrunc(v, target);
    return v;
  }
  if (is_float(from)) return saturated(v, to);
  if (is_float(to)) return from_signed ? b_.CreateSIToFP(v, target) : b_.CreateUIToFP(v, target);
  return from_signed ? b_.CreateSExtOrTrunc(v, target) : b_.CreateZExtOrTrunc(v, target);
}

// Truncated, saturated, NaN as 0. Of LLVM's intrinsics for this x86 gets code for one element after another.
llvm::Value* Arithmetic::saturated(Value* v, DType to) {
  const auto bits = static_cast<unsigned>(info(to).bits);
  const bool is_signed = info(to).kind == DTypeKind::Signed;
  auto* least = constant_like(v, is_signed ? -std::ldexp(1.0, static_cast<int>(bits) - 1) : 0);
  auto* end = constant_like(v, std::ldexp(1.0, static_cast<int>(is_signed ? bits - 1 : bits)));
  auto* above = b_.CreateFCmpOGE(v, end);
  auto* within = b_.CreateAnd(b_.CreateFCmpOGE(v, least), b_.CreateFCmpOLT(v, end));
  auto* held = b_.CreateSelect(within, v, constant_like(v, 0));
  auto* through = like(b_.getIntNTy(std::max(bits, 32U)), v);
  Value* r = is_signed || bits < 32 ? b_.CreateFPToSI(held, through) : b_.CreateFPToUI(held, through);
  r = b_.CreateTrunc(r, like(element_type(to), v));
  auto limit = [&](const llvm::APInt& value) { return llvm::ConstantInt::get(r->getType(), value); };
  r = b_.CreateSelect(above, limit(is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits)),
                      r);
  return is_signed ? b_.CreateSelect(b_.CreateFCmpOLT(v, least), limit(llvm::APInt::getSignedMinValue(bits)), r) : r;
}

llvm::Value* Arithmetic::min_max(bool max, DType dtype, Value* a, Value* c) {
  if (is_float(dtype)) { // propagates NaN of either operand: the comparison selects a if it is NaN, the second select c
    // This is the hardware's max(c, a). LLVM 19 turns a > c into x > 0 where a is |x| and c is 0.
    auto* m = b_.CreateSelect(max ? b_.CreateFCmpUGE(a, c) : b_.CreateFCmpULE(a, c), a, c);
    return b_.CreateSelect(b_.CreateFCmpUNO(c, c), c, m);
  }
  bool is_signed = info(dtype).kind == DTypeKind::Signed;
  auto* cmp = is_signed ? (max ? b_.CreateICmpSGT(a, c) : b_.CreateICmpSLT(a, c))
                        : (max ? b_.CreateICmpUGT(a, c) : b_.CreateICmpULT(a, c));
  return b_.CreateSelect(cmp, a, c);
}

llvm::Value* Arithmetic::combine(ReduceKind kind, DType dtype, Value* a, Value* c) {
  bool f = is_float(dtype);
  switch (kind) {
  case ReduceKind::Sum: return f ? b_.CreateFAdd(a, c) : b_.CreateAdd(a, c);
  case ReduceKind::Prod: return f ? b_.CreateFMul(a, c) : b_.CreateMul(a, c);
  case ReduceKind::Max: return min_max(true, dtype, a, c);
  case ReduceKind::Min: return min_max(false, dtype, a, c);
  case ReduceKind::Any: return b_.CreateOr(a, c);
  case ReduceKind::All: return b_.CreateAnd(a, c);
  default: TESSERA_UNREACHABLE("combine of an arg reduction");
  }
}

llvm::Value* Arithmetic::arg_better(ReduceKind kind, bool select_last, DType dtype, Value* v, Value* i, Value* best,
                                    Value* best_i) {
  bool max = kind == ReduceKind::ArgMax;
  Value *wins, *ties;
  if (is_float(dtype)) {
    auto* vn = b_.CreateFCmpUNO(v, v);
    auto* bn = b_.CreateFCmpUNO(best, best);
    wins = b_.CreateOr(max ? b_.CreateFCmpOGT(v, best) : b_.CreateFCmpOLT(v, best), b_.CreateAnd(vn, b_.CreateNot(bn)));
    ties = b_.CreateOr(b_.CreateFCmpOEQ(v, best), b_.CreateAnd(vn, bn));
  } else {
    bool s = info(dtype).kind == DTypeKind::Signed;
    wins = s ? (max ? b_.CreateICmpSGT(v, best) : b_.CreateICmpSLT(v, best))
             : (max ? b_.CreateICmpUGT(v, best) : b_.CreateICmpULT(v, best));
    ties = b_.CreateICmpEQ(v, best);
  }
  return b_.CreateOr(wins, b_.CreateAnd(ties, select_last ? b_.CreateICmpSGT(i, best_i) : b_.CreateICmpSLT(i, best_i)));
}

// Squares and multiplies until no lane has exponent bits left. One helper function per type, because it is a loop of as
// many iterations as the largest exponent has bits.
llvm::Value* Arithmetic::integer_power(DType dtype, Value* base, Value* exponent) {
  auto* type = base->getType();
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  std::string symbol =
      "integer_power." + std::string(name(dtype)) + (vector ? "x" + std::to_string(vector->getNumElements()) : "");
  auto* f = module_.getFunction(symbol);
  if (!f) {
    f = llvm::Function::Create(llvm::FunctionType::get(type, {type, type}, false), llvm::Function::InternalLinkage,
                               symbol, module_);
    target_attributes(*f);
    llvm::IRBuilderBase::InsertPointGuard keep(b_);
    auto* entry = llvm::BasicBlock::Create(ctx_, "entry", f);
    auto* body = llvm::BasicBlock::Create(ctx_, "body", f);
    auto* done = llvm::BasicBlock::Create(ctx_, "done", f);
    Value *x = f->getArg(0), *e = f->getArg(1);
    auto *zero = integer_like(x, 0), *one = integer_like(x, 1);
    b_.SetInsertPoint(entry);
    b_.CreateBr(body);
    b_.SetInsertPoint(body);
    auto *left = b_.CreatePHI(type, 2), *square = b_.CreatePHI(type, 2), *product = b_.CreatePHI(type, 2);
    auto* odd = b_.CreateICmpNE(b_.CreateAnd(left, one), zero);
    auto* next = b_.CreateSelect(odd, b_.CreateMul(product, square), product);
    auto* rest = b_.CreateLShr(left, one);
    left->addIncoming(e, entry), left->addIncoming(rest, body);
    square->addIncoming(x, entry), square->addIncoming(b_.CreateMul(square, square), body);
    product->addIncoming(one, entry), product->addIncoming(next, body);
    auto* more = b_.CreateICmpNE(rest, zero);
    b_.CreateCondBr(vector ? b_.CreateOrReduce(more) : more, body, done);
    b_.SetInsertPoint(done);
    Value* r = next;
    if (info(dtype).kind == DTypeKind::Signed) { // 1 / x^-e, truncated: 1 and -1 are kept, all others become 0
      auto* minus_one = integer_like(x, -1);
      auto* of_minus_one = b_.CreateSelect(b_.CreateICmpEQ(b_.CreateAnd(e, one), zero), one, minus_one);
      auto* inverse = b_.CreateSelect(b_.CreateICmpEQ(x, one), one,
                                      b_.CreateSelect(b_.CreateICmpEQ(x, minus_one), of_minus_one, zero));
      r = b_.CreateSelect(b_.CreateICmpSLT(e, zero), inverse, r);
    }
    b_.CreateRet(r);
  }
  return b_.CreateCall(f, {base, exponent});
}

Result<llvm::Value*> Arithmetic::arith(ScalarOp op, DType result, DType argument, std::span<Value* const> a) {
  bool f = is_float(argument), s = info(argument).kind == DTypeKind::Signed, boolean = argument == DType::Bool;
  auto bits = static_cast<int64_t>(info(argument).bits);
  switch (op) {
  case ScalarOp::Cast: return cast(a[0], argument, result);
  case ScalarOp::Bitcast: return b_.CreateBitCast(a[0], like(element_type(result), a[0]));
  case ScalarOp::Neg: return f ? b_.CreateFNeg(a[0]) : b_.CreateNeg(a[0]);
  case ScalarOp::Abs:
    if (f) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a[0]);
    if (!s) return a[0];
    return b_.CreateSelect(b_.CreateICmpSLT(a[0], integer_like(a[0], 0)), b_.CreateNeg(a[0]), a[0]);
  case ScalarOp::Sign:
    if (f) { // NaN is kept
      auto* one = b_.CreateSelect(b_.CreateFCmpOGT(a[0], constant_like(a[0], 0)), constant_like(a[0], 1), a[0]);
      auto* signed_one = b_.CreateSelect(b_.CreateFCmpOLT(a[0], constant_like(a[0], 0)), constant_like(a[0], -1), one);
      return b_.CreateSelect(b_.CreateFCmpOEQ(a[0], constant_like(a[0], 0)), constant_like(a[0], 0), signed_one);
    } else {
      auto* zero = integer_like(a[0], 0);
      auto* positive = b_.CreateSelect(b_.CreateICmpNE(a[0], zero), integer_like(a[0], 1), zero);
      return s ? b_.CreateSelect(b_.CreateICmpSLT(a[0], zero), integer_like(a[0], -1), positive) : positive;
    }
  case ScalarOp::Floor: return f ? b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a[0]) : a[0];
  case ScalarOp::Ceil: return f ? b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a[0]) : a[0];
  case ScalarOp::Round: return f ? b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, a[0]) : a[0];
  case ScalarOp::Trunc: return f ? b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a[0]) : a[0];
  case ScalarOp::Sqrt: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a[0]);
  case ScalarOp::Rsqrt:
    return b_.CreateFDiv(constant_like(a[0], 1), b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a[0]));
  case ScalarOp::Reciprocal: return b_.CreateFDiv(constant_like(a[0], 1), a[0]);
  case ScalarOp::IsNan: return f ? b_.CreateFCmpUNO(a[0], a[0]) : b_.CreateICmpNE(a[0], a[0]);
  case ScalarOp::IsInf:
    if (!f) return b_.CreateICmpNE(a[0], a[0]);
    return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a[0]),
                            llvm::ConstantFP::getInfinity(a[0]->getType()));
  case ScalarOp::Not: return b_.CreateNot(a[0]); // bitwise; logical for bool
  case ScalarOp::Add:
    return f ? b_.CreateFAdd(a[0], a[1]) : boolean ? b_.CreateOr(a[0], a[1]) : b_.CreateAdd(a[0], a[1]);
  case ScalarOp::Sub: return f ? b_.CreateFSub(a[0], a[1]) : b_.CreateSub(a[0], a[1]);
  case ScalarOp::Mul:
    return f ? b_.CreateFMul(a[0], a[1]) : boolean ? b_.CreateAnd(a[0], a[1]) : b_.CreateMul(a[0], a[1]);
  case ScalarOp::Div:
  case ScalarOp::Mod:
  case ScalarOp::Fmod: {
    if (f) {
      if (op == ScalarOp::Div) return b_.CreateFDiv(a[0], a[1]);
      return math(op, argument, a);
    }
    // Division by zero yields 0 and lowest / -1 wraps: the divisor is replaced by 1 where it would trap.
    auto* zero = integer_like(a[0], 0);
    auto* by_zero = b_.CreateICmpEQ(a[1], zero);
    Value* minus_one = s ? b_.CreateICmpEQ(a[1], integer_like(a[0], -1)) : nullptr;
    auto* traps = s ? b_.CreateOr(by_zero, minus_one) : by_zero;
    auto* divisor = b_.CreateSelect(traps, integer_like(a[0], 1), a[1]);
    if (op == ScalarOp::Div) {
      auto* q = s ? b_.CreateSDiv(a[0], divisor) : b_.CreateUDiv(a[0], divisor);
      if (s) q = b_.CreateSelect(minus_one, b_.CreateNeg(a[0]), q);
      return b_.CreateSelect(by_zero, zero, q);
    }
    auto* r = s ? b_.CreateSRem(a[0], divisor) : b_.CreateURem(a[0], divisor);
    if (s && op == ScalarOp::Mod) { // sign of the divisor
      auto* differs = b_.CreateICmpSLT(b_.CreateXor(r, a[1]), zero);
      r = b_.CreateSelect(b_.CreateAnd(b_.CreateICmpNE(r, zero), differs), b_.CreateAdd(r, a[1]), r);
    }
    return b_.CreateSelect(traps, zero, r);
  }
  case ScalarOp::Min: return boolean ? b_.CreateAnd(a[0], a[1]) : min_max(false, argument, a[0], a[1]);
  case ScalarOp::Max: return boolean ? b_.CreateOr(a[0], a[1]) : min_max(true, argument, a[0], a[1]);
  case ScalarOp::Pow:
    if (f || boolean) break;
    return integer_power(argument, a[0], a[1]);
  case ScalarOp::And: return b_.CreateAnd(a[0], a[1]);
  case ScalarOp::Or: return b_.CreateOr(a[0], a[1]);
  case ScalarOp::Xor: return b_.CreateXor(a[0], a[1]);
  case ScalarOp::Shl:
  case ScalarOp::Shr: {
    auto* width = integer_like(a[0], bits);
    auto* fits = b_.CreateICmpULT(a[1], width);
    auto* by = b_.CreateSelect(fits, a[1], integer_like(a[0], op == ScalarOp::Shr && s ? bits - 1 : 0));
    auto* r = op == ScalarOp::Shl ? b_.CreateShl(a[0], by) : s ? b_.CreateAShr(a[0], by) : b_.CreateLShr(a[0], by);
    return op == ScalarOp::Shr && s ? r : b_.CreateSelect(fits, r, integer_like(a[0], 0));
  }
  case ScalarOp::Eq: return f ? b_.CreateFCmpOEQ(a[0], a[1]) : b_.CreateICmpEQ(a[0], a[1]);
  case ScalarOp::Ne: return f ? b_.CreateFCmpUNE(a[0], a[1]) : b_.CreateICmpNE(a[0], a[1]);
  case ScalarOp::Lt:
    return f ? b_.CreateFCmpOLT(a[0], a[1]) : s ? b_.CreateICmpSLT(a[0], a[1]) : b_.CreateICmpULT(a[0], a[1]);
  case ScalarOp::Le:
    return f ? b_.CreateFCmpOLE(a[0], a[1]) : s ? b_.CreateICmpSLE(a[0], a[1]) : b_.CreateICmpULE(a[0], a[1]);
  case ScalarOp::Gt:
    return f ? b_.CreateFCmpOGT(a[0], a[1]) : s ? b_.CreateICmpSGT(a[0], a[1]) : b_.CreateICmpUGT(a[0], a[1]);
  case ScalarOp::Ge:
    return f ? b_.CreateFCmpOGE(a[0], a[1]) : s ? b_.CreateICmpSGE(a[0], a[1]) : b_.CreateICmpUGE(a[0], a[1]);
  case ScalarOp::Select: return b_.CreateSelect(a[0], a[1], a[2]);
  case ScalarOp::Fma: return f ? fma(a[0], a[1], a[2]) : b_.CreateAdd(b_.CreateMul(a[0], a[1]), a[2]);
  default: break;
  }
  if (!f) return error("operation " + std::string(info(op).name) + " on " + std::string(name(argument)));
  return math(op, argument, a);
}

} // namespace tessera::irgen
