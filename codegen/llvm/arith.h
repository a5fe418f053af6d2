// Pointwise operations as LLVM IR, for scalars or vectors. Shared by host and GPU emitters; a target overrides what it
// has better instructions for. Private to codegen/llvm.
#pragma once
#include "base/result.h"
#include "graph/scalar/scalar.h"
#include "runtime/index_check.h"
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

namespace tessera::irgen {

// The atomic instruction that folds a value of this dtype by Sum, Max or Min.
[[nodiscard]] llvm::AtomicRMWInst::BinOp atomic_kind(ReduceKind kind, DType dtype);

// IndexReport::words of an i64 index at an i64 position, scalars or vectors.
[[nodiscard]] std::array<llvm::Value*, IndexReport::kWords> report_words(llvm::IRBuilder<>& b, int site,
                                                                         llvm::Value* position, llvm::Value* index);

class Arithmetic {
public:
  using Value = llvm::Value;
  virtual ~Arithmetic() = default;

  // Type of a value in registers: bool is i1, bf16 is its bits as i16. Null for types without code.
  llvm::Type* element_type(DType dtype);
  llvm::Type* memory_type(DType dtype); // the same, bool i8

  // One ScalarOp with the semantics of graph/scalar/scalar.h. `result` and `argument` are the dtypes of the result and of
  // the value arguments. Error CodegenError for an operation that the dtype does not have.
  virtual Result<Value*> arith(ScalarOp op, DType result, DType argument, std::span<Value* const> args);
  virtual Value* cast(Value* v, DType from, DType to);
  virtual Value* min_max(bool max, DType dtype, Value* a, Value* b); // propagates NaN
  Value* saturated(Value* v, DType to);                              // a float as an integer
  Value* combine(ReduceKind kind, DType dtype, Value* a, Value* b);
  // i1: true if (v, i) replaces (best_v, best_i) in an arg reduction.
  Value* arg_better(ReduceKind kind, bool select_last, DType dtype, Value* v, Value* i, Value* best_v, Value* best_i);

  Value* constant(DType dtype, double f, int64_t i);          // f of float dtypes, i of the others
  static llvm::Type* like(llvm::Type* element, Value* shape); // element, or a vector of it as long as `shape`
  Value* constant_like(Value* like, double v);                // float splat of the type of `like`
  Value* integer_like(Value* like, int64_t v);
  Value* fma(Value* a, Value* b, Value* c);                  // rounds once
  virtual Value* multiply_add(Value* a, Value* b, Value* c); // rounds once or twice, whichever is faster
  // Converts a float remainder with the dividend's sign to one with the divisor's sign.
  Value* with_sign_of(Value* remainder, Value* divisor);
  Value* polynomial(Value* x, std::span<const double> coefficients); // Horner, highest first

protected:
  Arithmetic(llvm::Module& module, std::string kernel_name);
  // Elementary functions of floats, which each target implements.
  virtual Result<Value*> math(ScalarOp op, DType dtype, std::span<Value* const> args) = 0;
  virtual void target_attributes(llvm::Function& f) const = 0; // attributes of helper functions
  Value* integer_power(DType dtype, Value* base, Value* exponent);
  [[nodiscard]] Diagnostic error(const std::string& what) const;

  llvm::LLVMContext& ctx_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  std::string kernel_name_;
};

} // namespace tessera::irgen
