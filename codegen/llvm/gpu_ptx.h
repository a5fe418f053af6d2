// Inline assembly of PTX. Private to codegen/llvm.
#pragma once
#include "base/dtype.h"
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::gpu::ptx {

constexpr unsigned kGlobal = 1, kShared = 3; // address spaces

// Assembly that accesses no memory, or only invariant memory, may be merged, moved and removed.
llvm::CallInst* call_assembly(llvm::IRBuilder<>& b, llvm::InlineAsm* code, const std::vector<llvm::Value*>& args,
                              bool touches_memory);
llvm::CallInst* assembly(llvm::IRBuilder<>& b, const std::string& text, std::string constraints, llvm::Type* result,
                         const std::vector<llvm::Value*>& args, bool touches_memory);
// "r" of an i32.
[[nodiscard]] std::string register_class(llvm::Type* type);
// "{$4, $5}", or "$4" of one.
[[nodiscard]] std::string operands(int count, int first);
// "bf16", "e4m3": the name that instructions of tensor cores give an operand's dtype; f32 is "tf32".
[[nodiscard]] std::string_view factor_type(DType dtype);
// Null and a constant true.
[[nodiscard]] bool is_true(llvm::Value* predicate);
// The begin of the block's dynamic shared memory, aligned at least to `alignment` in bytes.
[[nodiscard]] llvm::GlobalVariable* shared_memory(llvm::Module& module, uint64_t alignment);

} // namespace tessera::gpu::ptx
