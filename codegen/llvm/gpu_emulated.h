// Calls of the emulator's functions from a kernel's code. Private to codegen/llvm.
#pragma once
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <span>
#include <vector>

namespace tessera::gpu {

class EmulatorCalls {
public:
  EmulatorCalls(llvm::Module& module, llvm::IRBuilder<>& builder) : of_(module), builder_(builder) {}

  // Calls `symbol` with the thread before the arguments.
  llvm::Value* call(const char* symbol, llvm::Type* result, std::vector<llvm::Value*> args);
  void call(const char* symbol, std::vector<llvm::Value*> args) { call(symbol, builder_.getVoidTy(), std::move(args)); }
  [[nodiscard]] llvm::Value* site() { return builder_.getInt32(static_cast<uint32_t>(sites_++)); }
  [[nodiscard]] llvm::Value* number(llvm::Value* predicate) {
    return builder_.CreateZExt(predicate, builder_.getInt32Ty());
  }
  // Memory of `words` i32 words on the thread's stack: operands and results of the emulator's functions.
  [[nodiscard]] llvm::Value* stack(int words);
  [[nodiscard]] std::vector<llvm::Value*> load_words(llvm::Value* at, llvm::Type* word, int count);
  void store_words(llvm::Value* at, std::span<llvm::Value* const> words);

  // Emits `body` under the predicate; null is true. Returns the basic block in which it ends.
  template <class Body>
  llvm::BasicBlock* guarded(llvm::Value* predicate, Body body) {
    if (!predicate) {
      body();
      return builder_.GetInsertBlock();
    }
    auto* function = builder_.GetInsertBlock()->getParent();
    auto* then = llvm::BasicBlock::Create(of_.getContext(), "then", function);
    auto* end = llvm::BasicBlock::Create(of_.getContext(), "end", function);
    builder_.CreateCondBr(predicate, then, end);
    builder_.SetInsertPoint(then);
    body();
    auto* last = builder_.GetInsertBlock();
    builder_.CreateBr(end);
    builder_.SetInsertPoint(end);
    return last;
  }

private:
  llvm::Module& of_;
  llvm::IRBuilder<>& builder_;
  llvm::AllocaInst* stack_ = nullptr;
  int stack_words_ = 0, sites_ = 0;
};

} // namespace tessera::gpu
