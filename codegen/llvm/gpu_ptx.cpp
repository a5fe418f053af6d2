#include "codegen/llvm/gpu_ptx.h"
#include "base/check.h"
#include <llvm/IR/Constants.h>
#include <llvm/IR/InlineAsm.h>

namespace tessera::gpu::ptx {

std::string_view factor_type(DType d) {
  switch (d) {
  case DType::F16: return "f16";
  case DType::BF16: return "bf16";
  case DType::F32: return "tf32";
  case DType::F8E4M3FN: return "e4m3";
  case DType::F8E5M2: return "e5m2";
  case DType::I8: return "s8";
  case DType::U8: return "u8";
  default: TESSERA_UNREACHABLE("dtype of a tensor core's product");
  }
}

using llvm::Value;

llvm::CallInst* call_assembly(llvm::IRBuilder<>& b, llvm::InlineAsm* code, const std::vector<Value*>& args,
                              bool touches_memory) {
  auto* call = b.CreateCall(code, args);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  call->addFnAttr(llvm::Attribute::WillReturn);
  if (!touches_memory) call->setDoesNotAccessMemory();
  return call;
}

llvm::CallInst* assembly(llvm::IRBuilder<>& b, const std::string& text, std::string constraints, llvm::Type* result,
                         const std::vector<Value*>& args, bool touches_memory) {
  std::vector<llvm::Type*> types;
  for (auto* a : args) types.push_back(a->getType());
  if (touches_memory) constraints += constraints.empty() ? "~{memory}" : ",~{memory}";
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints, touches_memory);
  return call_assembly(b, code, args, touches_memory);
}

std::string register_class(llvm::Type* type) {
  if (type->isFloatTy()) return "f";
  if (type->isDoubleTy()) return "d";
  switch (type->getIntegerBitWidth()) {
  case 16: return "h";
  case 32: return "r";
  case 64: return "l";
  default: TESSERA_UNREACHABLE("register class");
  }
}

std::string operands(int count, int first) {
  if (count == 1) return "$" + std::to_string(first);
  std::string s = "{";
  for (int i = 0; i < count; ++i) s += (i ? ", $" : "$") + std::to_string(first + i);
  return s + "}";
}

bool is_true(Value* predicate) {
  if (!predicate) return true;
  auto* c = llvm::dyn_cast<llvm::ConstantInt>(predicate);
  return c && c->isOne();
}

llvm::GlobalVariable* shared_memory(llvm::Module& module, uint64_t alignment) {
  auto* base = module.getNamedGlobal("tessera_shared");
  if (!base) {
    auto* type = llvm::ArrayType::get(llvm::Type::getInt8Ty(module.getContext()), 0);
    base = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::ExternalLinkage, nullptr, "tessera_shared",
                                    nullptr, llvm::GlobalValue::NotThreadLocal, kShared);
    base->setAlignment(llvm::Align(16));
  }
  if (base->getAlign().valueOrOne() < llvm::Align(alignment)) base->setAlignment(llvm::Align(alignment));
  return base;
}

} // namespace tessera::gpu::ptx
