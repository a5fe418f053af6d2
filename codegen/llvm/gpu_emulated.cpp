#include "codegen/llvm/gpu_emulated.h"

namespace tessera::gpu {

using llvm::Value;

Value* EmulatorCalls::call(const char* symbol, llvm::Type* result, std::vector<Value*> args) {
  args.insert(args.begin(), builder_.GetInsertBlock()->getParent()->getArg(0));
  std::vector<llvm::Type*> types;
  for (auto* a : args) types.push_back(a->getType());
  auto callee = of_.getOrInsertFunction(symbol, llvm::FunctionType::get(result, types, false));
  auto* c = builder_.CreateCall(callee, args);
  c->addFnAttr(llvm::Attribute::NoUnwind);
  c->addFnAttr(llvm::Attribute::Convergent);
  return c;
}

// One allocation, as large as the largest use.
Value* EmulatorCalls::stack(int words) {
  auto* type = llvm::ArrayType::get(builder_.getInt32Ty(), static_cast<uint64_t>(std::max(words, stack_words_)));
  if (!stack_) {
    auto& entry = builder_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> start(&entry, entry.begin());
    stack_ = start.CreateAlloca(type);
    stack_->setAlignment(llvm::Align(8));
  }
  stack_->setAllocatedType(type);
  stack_words_ = std::max(words, stack_words_);
  return stack_;
}

std::vector<Value*> EmulatorCalls::load_words(Value* at, llvm::Type* word, int count) {
  std::vector<Value*> words;
  for (int i = 0; i < count; ++i)
    words.push_back(builder_.CreateLoad(word, builder_.CreateConstInBoundsGEP1_64(word, at, static_cast<uint64_t>(i))));
  return words;
}
void EmulatorCalls::store_words(Value* at, std::span<Value* const> words) {
  for (size_t i = 0; i < words.size(); ++i)
    builder_.CreateStore(words[i], builder_.CreateConstInBoundsGEP1_64(words[i]->getType(), at, i));
}

} // namespace tessera::gpu
