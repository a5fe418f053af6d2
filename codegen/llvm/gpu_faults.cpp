#include "codegen/llvm/gpu_faults.h"
#include <cmath>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>

namespace tessera::gpu {
namespace {

using llvm::Value;

// A condition as a signed number is -1 or 0, which instcombine makes of a select; the backend takes it for 1.
Value* of_condition(llvm::IRBuilder<>& b, llvm::SIToFPInst& i) {
  if (!i.getOperand(0)->getType()->isIntegerTy(1)) return nullptr;
  return b.CreateSelect(i.getOperand(0), llvm::ConstantFP::get(i.getType(), -1), llvm::ConstantFP::get(i.getType(), 0));
}

// ptxas converts the signed number where a signed byte or half word is taken as an unsigned word.
Value* of_signed_part(llvm::IRBuilder<>& b, llvm::UIToFPInst& i) {
  Value* x = i.getOperand(0);
  const auto* shift = llvm::dyn_cast<llvm::BinaryOperator>(x);
  const bool shifted =
      shift && shift->getOpcode() == llvm::Instruction::AShr && llvm::isa<llvm::ConstantInt>(shift->getOperand(1));
  if (!x->getType()->isIntegerTy(32) || !(llvm::isa<llvm::SExtInst>(x) || shifted)) return nullptr;
  // Both conversions and the sum round at most once: a part has at most as many bits as f32.
  Value* number = b.CreateSIToFP(x, i.getType());
  Value* moved = b.CreateFAdd(number, llvm::ConstantFP::get(i.getType(), std::ldexp(1.0, 32)));
  return b.CreateSelect(b.CreateICmpSLT(x, llvm::ConstantInt::get(x->getType(), 0)), moved, number);
}

// The abs of the least number is that number; ptxas takes the result for positive. In 16 bits it drops the negation from
// the maximum of a number, its negative and another one.
Value* of_abs(llvm::IRBuilder<>& b, llvm::IntrinsicInst& i) {
  auto* type = llvm::dyn_cast<llvm::IntegerType>(i.getType());
  if (i.getIntrinsicID() != llvm::Intrinsic::abs || !type) return nullptr;
  const unsigned bits = type->getBitWidth();
  if (bits == 16) {
    Value* wide = b.CreateSExt(i.getArgOperand(0), b.getInt32Ty());
    return b.CreateTrunc(b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, wide, b.getFalse()), type);
  }
  if (bits != 32 && bits != 64) return nullptr;
  // Assembly, because LLVM makes abs of a maximum with the negative.
  const std::string letter = bits == 32 ? "r" : "l";
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(type, {type}, false),
                                    "neg.s" + std::to_string(bits) + " $0, $1;", "=" + letter + "," + letter, false);
  auto* negative = b.CreateCall(code, {i.getArgOperand(0)});
  negative->setDoesNotAccessMemory();
  negative->addFnAttr(llvm::Attribute::NoUnwind);
  negative->addFnAttr(llvm::Attribute::WillReturn);
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, i.getArgOperand(0), negative);
}

Value* replaced(llvm::Instruction& i) {
  llvm::IRBuilder<> b(&i);
  if (auto* conversion = llvm::dyn_cast<llvm::SIToFPInst>(&i)) return of_condition(b, *conversion);
  if (auto* conversion = llvm::dyn_cast<llvm::UIToFPInst>(&i)) return of_signed_part(b, *conversion);
  if (auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i)) return of_abs(b, *call);
  return nullptr;
}
} // namespace

bool avoid_faults(llvm::Function& function) {
  bool any = false;
  for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(function))) {
    Value* other = replaced(i);
    if (!other) continue;
    i.replaceAllUsesWith(other);
    i.eraseFromParent();
    any = true;
  }
  return any;
}

} // namespace tessera::gpu
