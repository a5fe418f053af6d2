// Elementary functions. exp, tanh, sigmoid and the like are inlined polynomials for f32 vectors (accuracy below, tested
// against float64); the rarer ones call glibc's vector library (libmvec, at most 4 ulp) by its vector-ABI names, or
// libm for scalars.
//
//   function   method                                                                    largest error seen, f32
//   exp        n = round(x log2 e), r = x - n ln 2 in two parts, degree-6 polynomial, scaled by 2^n      1 ulp
//   tanh       |x| < 0.625: odd polynomial of degree 11; else 1 - 2 / (exp(2|x|) + 1), sign copied       2 ulp
//   erf        |x| < 0.9277: x times a polynomial in x^2; else 1 - exp(-p(|x|)), p of degree 7 up to 4, sign copied
//              (both fitted on Chebyshev nodes against float64); with AVX-512 sixteen pieces instead     2.5 ulp
//   sigmoid    1 / (1 + exp(-x))                                                                         2.5 ulp
// Without FMA exp has 1.5 ulp.
#include "codegen/llvm/emit_math.h"
#include "base/check.h"
#include "codegen/llvm/erf.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace tessera::host {

// The fence keeps LLVM from moving a comparison with a constant before the conversion, which would compare halves
// singly.
llvm::Value* VectorMath::cast(Value* v, DType from, DType to) {
  if (from != DType::F16 || to == DType::F16) return Arithmetic::cast(v, from, to);
  auto* wide = b_.CreateFPExt(v, like(b_.getFloatTy(), v));
  return Arithmetic::cast(b_.CreateArithmeticFence(wide, wide->getType()), DType::F32, to);
}

// Without FMA instructions, llvm.fma is a call of libm for every element.
llvm::Value* VectorMath::multiply_add(Value* a, Value* b, Value* c) {
  return target_.vector_bytes > 16 ? fma(a, b, c) : b_.CreateFAdd(b_.CreateFMul(a, b), c);
}

// The machine instruction, so that LLVM does not merge two selects into a longer sequence. It returns its second
// operand if one is NaN, so only NaN of `c` needs a check, for which a loop that folds into `a` does not wait.
llvm::Value* VectorMath::min_max(bool max, DType dtype, Value* a, Value* c) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  const unsigned lanes = vector ? vector->getNumElements() : 0;
  const bool native =
      lanes > 0 && lanes <= 16 && (lanes & (lanes - 1)) == 0 && lanes * 4 <= unsigned(target_.vector_bytes);
  if (dtype != DType::F32 || !native) return Arithmetic::min_max(max, dtype, a, c);
  auto most = [&](Value* x, Value* y) -> Value* {
    using namespace llvm;
    if (lanes == 16)
      return b_.CreateIntrinsic(max ? Intrinsic::x86_avx512_max_ps_512 : Intrinsic::x86_avx512_min_ps_512, {},
                                {x, y, b_.getInt32(4)});
    if (lanes == 8)
      return b_.CreateIntrinsic(max ? Intrinsic::x86_avx_max_ps_256 : Intrinsic::x86_avx_min_ps_256, {}, {x, y});
    return b_.CreateIntrinsic(max ? Intrinsic::x86_sse_max_ps : Intrinsic::x86_sse_min_ps, {}, {x, y});
  };
  auto resized = [&](Value* v, unsigned to) -> Value* {
    std::vector<int> idx(to, llvm::PoisonMaskElem);
    for (unsigned i = 0; i < std::min(lanes, to); ++i) idx[i] = static_cast<int>(i);
    return b_.CreateShuffleVector(v, idx);
  };
  Value* found = lanes < 4 ? resized(most(resized(c, 4), resized(a, 4)), lanes) : most(c, a);
  return b_.CreateSelect(b_.CreateFCmpUNO(c, c), c, found);
}

llvm::Value* VectorMath::exp_f32(Value* x) {
  // Outside of [-104, 89] the result is 0 or infinity; comparisons keep NaN. Below -104, such as at a mask's -inf,
  // nothing is scaled, because subnormal results take a hundred cycles.
  auto *zero = constant_like(x, 0), *hi = constant_like(x, 89.0);
  auto* stays = b_.CreateFCmpUGE(x, constant_like(x, -104.0));
  auto* clamped = b_.CreateSelect(b_.CreateFCmpOGT(x, hi), hi, x);
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits; subtracting it gives the rounded value.
  auto* magic = constant_like(x, 12582912.0);
  auto* n = b_.CreateFSub(multiply_add(clamped, constant_like(x, 1.4426950408889634), magic), magic);
  n = b_.CreateSelect(stays, n, zero);
  auto* r = multiply_add(n, constant_like(x, -0.693359375), clamped);
  r = multiply_add(n, constant_like(x, 2.12194440e-4), r);
  // 1 + r + r^2 q(r): q fitted for the least relative error, 3.6e-9, by Lawson's algorithm on Chebyshev nodes.
  static constexpr std::array<double, 7> c = {
      0.0013814539415761828, 0.00836874544620514, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552, 1, 1};
  auto* p = polynomial(r, c);
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector && vector->getNumElements() == 16 && target_.vector_bytes == 64) {
    auto* mask = b_.CreateBitCast(stays, b_.getInt16Ty());
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {}, {p, n, zero, mask, b_.getInt32(4)});
  }
  // 2^n in two factors, each a normal number.
  auto* it = vector ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b_.getInt32Ty(), vector->getNumElements()))
                    : b_.getInt32Ty();
  auto* safe = b_.CreateSelect(b_.CreateFCmpUNO(n, n), constant_like(x, 0), n);
  auto* ni = b_.CreateFPToSI(safe, it);
  auto* half = b_.CreateAShr(ni, integer_like(ni, 1));
  auto power = [&](Value* e) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(e, integer_like(e, 127)), integer_like(e, 23)), x->getType());
  };
  auto* scaled = b_.CreateFMul(b_.CreateFMul(p, power(half)), power(b_.CreateSub(ni, half)));
  return b_.CreateSelect(stays, scaled, zero);
}

llvm::Value* VectorMath::tanh_f32(Value* x) {
  auto* ax = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  auto* e = exp_f32(b_.CreateFMul(ax, constant_like(x, 2)));
  auto* big =
      b_.CreateFSub(constant_like(x, 1), b_.CreateFDiv(constant_like(x, 2), b_.CreateFAdd(e, constant_like(x, 1))));
  auto* z = b_.CreateFMul(x, x);
  static constexpr std::array<double, 5> c = {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
                                              -3.33332819422e-1};
  auto* small = multiply_add(b_.CreateFMul(polynomial(z, c), z), ax, ax);
  auto* magnitude = b_.CreateSelect(b_.CreateFCmpOLT(ax, constant_like(x, 0.625)), small, big);
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, x);
}

// erf on [0, 4) in sixteen intervals of width 1/4: coefficients of a polynomial in the distance from the left edge,
// highest first, fitted on Chebyshev nodes against float64 (the first interval without constant term, for relative
// accuracy near 0). Lane i has interval i's coefficient, so a permutation of a register fetches a coefficient.
static constexpr float kErfPieces[6][16] = {
    {0.106041782f, 0.045326151f, -0.0270350482f, -0.0667091832f, -0.061061196f, -0.0306439158f, -0.002303252f,
     0.011328022f, 0.0124442121f, 0.00836057868f, 0.0042364141f, 0.00172770733f, 0.000584262016f, 0.000166579804f,
     4.0459603e-05f, 8.43044381e-06f},
    {0.00197638548f, 0.137084961f, 0.192390591f, 0.153846025f, 0.0664981231f, -0.0108305775f, -0.0479417332f,
     -0.0492430702f, -0.0341805592f, -0.0184313077f, -0.00811469741f, -0.00298835547f, -0.000933386385f,
     -0.000249455334f, -5.73909165e-05f, -1.14154791e-05f},
    {-0.376324654f, -0.310499728f, -0.147645861f, 0.0264199451f, 0.13874203f, 0.168141395f, 0.139172688f, 0.0902936757f,
     0.0481836796f, 0.0216398221f, 0.00828569103f, 0.00272664661f, 0.000775364926f, 0.000191260566f, 4.10405992e-05f,
     7.67723577e-06f},
    {6.60820706e-06f, -0.264925063f, -0.439322948f, -0.482178122f, -0.415130168f, -0.295686871f, -0.178419635f,
     -0.0923638344f, -0.0413314998f, -0.0160652492f, -0.00544198742f, -0.00161032774f, -0.000416976662f,
     -9.46066211e-05f, -1.88272679e-05f, -3.28897272e-06f},
    {1.12837911f, 1.06001246f, 0.87878114f, 0.642930686f, 0.415107995f, 0.236521885f, 0.118930802f, 0.052775152f,
     0.0206669308f, 0.00714221271f, 0.00217820518f, 0.000586236361f, 0.000139236596f, 2.91836259e-05f, 5.39794974e-06f,
     8.81090898e-07f},
    {0.0f, 0.276326388f, 0.520499885f, 0.711155653f, 0.842700779f, 0.92290014f, 0.966105163f, 0.986671686f,
     0.995322287f, 0.998537302f, 0.999593019f, 0.999899387f, 0.999977887f, 0.999995708f, 0.999999285f, 0.999999881f}};

llvm::Value* VectorMath::erf_pieces(Value* x) {
  auto* ax = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  auto* limit = constant_like(x, 3.9999998);
  auto* a = b_.CreateSelect(b_.CreateFCmpOGT(ax, limit), limit, ax);
  // floor(4a), as a float and in the low bits of `shifted`; at the edges either interval is right.
  auto* magic = constant_like(x, 12582912.0);
  auto* shifted = b_.CreateFAdd(multiply_add(a, constant_like(x, 4), constant_like(x, -0.5)), magic);
  auto* piece = b_.CreateBitCast(shifted, llvm::FixedVectorType::get(b_.getInt32Ty(), 16));
  auto* t = multiply_add(b_.CreateFSub(shifted, magic), constant_like(x, -0.25), a);
  Value* r = nullptr;
  for (const auto& row : kErfPieces) {
    auto* table = llvm::ConstantDataVector::get(ctx_, llvm::ArrayRef<float>(row, 16));
    auto* c = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {table, piece});
    r = r ? multiply_add(r, t, c) : c;
  }
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, r, x);
}

llvm::Value* VectorMath::erf_f32(Value* x) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector && vector->getNumElements() == 16 && target_.vector_bytes == 64) return erf_pieces(x);
  auto* ax = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  auto* small = b_.CreateFMul(polynomial(b_.CreateFMul(x, x), erf::kNear), x);
  auto* limit = constant_like(x, erf::kMax);
  auto* clamped = b_.CreateSelect(b_.CreateFCmpOGT(ax, limit), limit, ax);
  auto* big = b_.CreateFSub(constant_like(x, 1), exp_f32(b_.CreateFNeg(polynomial(clamped, erf::kFar))));
  big = b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, big, x);
  return b_.CreateSelect(b_.CreateFCmpOLT(ax, constant_like(x, erf::kSplit)), small, big);
}

llvm::Value* VectorMath::sigmoid(Value* x, DType dtype) {
  std::array<Value*, 1> n = {b_.CreateFNeg(x)};
  auto* e = math(ScalarOp::Exp, dtype, n).value();
  return b_.CreateFDiv(constant_like(x, 1), b_.CreateFAdd(constant_like(x, 1), e));
}

// Calls function `name` of libm for scalars, of libmvec for vectors (split to the machine's width), or of libm per
// element if the machine has no vector form.
Result<llvm::Value*> VectorMath::library_call(const char* name, DType dtype, std::span<Value* const> args) {
  auto* element = element_type(dtype);
  std::string scalar_name = std::string(name) + (dtype == DType::F32 ? "f" : "");
  std::vector<llvm::Type*> scalar_types(args.size(), element);
  auto declare = [&](const std::string& symbol, llvm::Type* type) {
    std::vector<llvm::Type*> types(args.size(), type);
    auto callee = module_.getOrInsertFunction(symbol, llvm::FunctionType::get(type, types, false));
    if (auto* f = llvm::dyn_cast<llvm::Function>(callee.getCallee())) {
      f->setDoesNotThrow();
      f->setDoesNotAccessMemory();
      f->setWillReturn();
    }
    return callee;
  };
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType());
  if (!vector) return b_.CreateCall(declare(scalar_name, element), std::vector<Value*>(args.begin(), args.end()));

  int lanes = static_cast<int>(vector->getNumElements());
  static constexpr std::array<std::string_view, 23> in_libmvec = {
      "acos",  "acosh", "asin",  "asinh", "atan",  "atanh", "cbrt", "cos", "cosh", "erf",  "erfc", "exp",
      "exp10", "exp2",  "expm1", "log",   "log10", "log1p", "log2", "pow", "sin",  "sinh", "tan"};
  bool vectorized =
      std::find(in_libmvec.begin(), in_libmvec.end(), name) != in_libmvec.end() || std::string_view(name) == "tanh";
  int native = target_.vector_bytes / (info(dtype).bits / 8);
  std::vector<std::vector<Value*>> pieces; // per argument
  int width = vectorized ? native : 1;
  int padded = (lanes + width - 1) / width * width;
  for (auto* a : args) {
    if (padded != lanes) {
      std::vector<int> widen;
      for (int i = 0; i < padded; ++i) widen.push_back(i < lanes ? i : 0);
      a = b_.CreateShuffleVector(a, widen);
    }
    pieces.push_back(width == 1 ? std::vector<Value*>{a} : split(a, width));
  }
  if (vectorized) {
    char isa = target_.vector_bytes == 64 ? 'e' : target_.vector_bytes == 32 ? 'd' : 'b';
    std::string symbol =
        std::string("_ZGV") + isa + "N" + std::to_string(native) + std::string(args.size(), 'v') + "_" + scalar_name;
    auto callee = declare(symbol, llvm::FixedVectorType::get(element, static_cast<unsigned>(native)));
    std::vector<Value*> out;
    for (size_t p = 0; p < pieces[0].size(); ++p) {
      std::vector<Value*> call_args;
      for (auto& piece : pieces) call_args.push_back(piece[p]);
      out.push_back(b_.CreateCall(callee, call_args));
    }
    auto* whole = join(out);
    if (padded == lanes) return whole;
    std::vector<int> narrow;
    for (int i = 0; i < lanes; ++i) narrow.push_back(i);
    return b_.CreateShuffleVector(whole, narrow);
  }
  auto callee = declare(scalar_name, element);
  Value* out = llvm::PoisonValue::get(vector);
  for (int i = 0; i < lanes; ++i) {
    std::vector<Value*> call_args;
    for (auto* a : args) call_args.push_back(b_.CreateExtractElement(a, static_cast<uint64_t>(i)));
    out = b_.CreateInsertElement(out, b_.CreateCall(callee, call_args), static_cast<uint64_t>(i));
  }
  return out;
}

Result<llvm::Value*> VectorMath::math(ScalarOp op, DType dtype, std::span<Value* const> a) {
  if (dtype != DType::F32 && dtype != DType::F64)
    return error("function " + std::string(info(op).name) + " on " + std::string(name(dtype)));
  bool f32 = dtype == DType::F32;
  switch (op) {
  case ScalarOp::Exp: return f32 ? Result<Value*>(exp_f32(a[0])) : library_call("exp", dtype, a);
  case ScalarOp::Tanh: return f32 ? Result<Value*>(tanh_f32(a[0])) : library_call("tanh", dtype, a);
  case ScalarOp::Sigmoid: return sigmoid(a[0], dtype);
  case ScalarOp::Erf: return f32 ? Result<Value*>(erf_f32(a[0])) : library_call("erf", dtype, a);
  case ScalarOp::Exp2: return library_call("exp2", dtype, a);
  case ScalarOp::Expm1: return library_call("expm1", dtype, a);
  case ScalarOp::Log: return library_call("log", dtype, a);
  case ScalarOp::Log2: return library_call("log2", dtype, a);
  case ScalarOp::Log1p: return library_call("log1p", dtype, a);
  case ScalarOp::Sin: return library_call("sin", dtype, a);
  case ScalarOp::Cos: return library_call("cos", dtype, a);
  case ScalarOp::Tan: return library_call("tan", dtype, a);
  case ScalarOp::Asin: return library_call("asin", dtype, a);
  case ScalarOp::Acos: return library_call("acos", dtype, a);
  case ScalarOp::Atan: return library_call("atan", dtype, a);
  case ScalarOp::Sinh: return library_call("sinh", dtype, a);
  case ScalarOp::Cosh: return library_call("cosh", dtype, a);
  case ScalarOp::Asinh: return library_call("asinh", dtype, a);
  case ScalarOp::Acosh: return library_call("acosh", dtype, a);
  case ScalarOp::Atanh: return library_call("atanh", dtype, a);
  case ScalarOp::Pow: return library_call("pow", dtype, a);
  case ScalarOp::Fmod: return library_call("fmod", dtype, a);
  case ScalarOp::Mod: { // sign of the divisor
    TESSERA_ASSIGN(auto* r, library_call("fmod", dtype, a));
    return with_sign_of(r, a[1]);
  }
  default: return error("no host code for " + std::string(info(op).name));
  }
}

void VectorMath::target_attributes(llvm::Function& f) const {
  f.addFnAttr("target-cpu", target_.cpu);
  f.addFnAttr("target-features", target_.features);
  f.addFnAttr("prefer-vector-width", std::to_string(target_.vector_bytes * 8));
  f.addFnAttr("min-legal-vector-width", std::to_string(target_.vector_bytes * 8));
  f.addFnAttr(llvm::Attribute::NoUnwind);
}

llvm::Value* VectorMath::join(const std::vector<Value*>& parts) {
  std::vector<Value*> level = parts;
  while (level.size() > 1) {
    std::vector<Value*> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) {
      unsigned n = llvm::cast<llvm::FixedVectorType>(level[i]->getType())->getNumElements();
      unsigned m = llvm::cast<llvm::FixedVectorType>(level[i + 1]->getType())->getNumElements();
      Value *x = level[i], *y = level[i + 1];
      if (m < n) { // a shorter last part: widen it first
        std::vector<int> widen;
        for (unsigned k = 0; k < n; ++k) widen.push_back(k < m ? static_cast<int>(k) : -1);
        y = b_.CreateShuffleVector(y, widen);
      }
      std::vector<int> idx;
      for (unsigned k = 0; k < n + m; ++k) idx.push_back(static_cast<int>(k));
      next.push_back(b_.CreateShuffleVector(x, y, idx));
    }
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0];
}

std::vector<llvm::Value*> VectorMath::split(Value* whole, int lanes) {
  int n = static_cast<int>(llvm::cast<llvm::FixedVectorType>(whole->getType())->getNumElements());
  std::vector<Value*> out;
  if (n <= lanes) return {whole};
  for (int s = 0; s < n; s += lanes) {
    std::vector<int> idx;
    for (int k = s; k < std::min(n, s + lanes); ++k) idx.push_back(k);
    out.push_back(b_.CreateShuffleVector(whole, idx));
  }
  return out;
}

} // namespace tessera::host
