// Pointwise operations as LLVM IR, for values of one LLVM type: scalars or vectors alike. Host and GPU emitters share
// it; where a device has a better instruction it overrides. Private to codegen/llvm.
#pragma once
#include "graph/ops/scalar.h"
#include "graph/support/result.h"
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

namespace tessera::irgen {

class Arithmetic {
public:
  using Value = llvm::Value;
  virtual ~Arithmetic() = default;

  // In registers: bool is i1, bf16 travels as its bits in i16. Null for types without code.
  llvm::Type* element_type(DType dtype);
  llvm::Type* memory_type(DType dtype); // the same, bool i8

  // One ScalarOp with the meaning of graph/ops/scalar.h. `result` and `argument` are the dtypes of the result and of
  // the (value) arguments. Error CodegenError for an operation that the dtype does not have.
  virtual Result<Value*> arith(ScalarOp op, DType result, DType argument, std::span<Value* const> args);
  virtual Value* cast(Value* v, DType from, DType to);
  virtual Value* min_max(bool max, DType dtype, Value* a, Value* b); // keeps NaN
  Value* combine(ReduceKind kind, DType dtype, Value* a, Value* b);
  // i1: whether (v, i) beats (best_v, best_i) in an arg reduction.
  Value* arg_better(ReduceKind kind, bool select_last, DType dtype, Value* v, Value* i, Value* best_v, Value* best_i);

  Value* constant(DType dtype, double f, int64_t i);          // f of float dtypes, i of the others
  static llvm::Type* like(llvm::Type* element, Value* shape); // element, or a vector of it as long as `shape`
  Value* constant_like(Value* like, double v);                // float splat of the type of `like`
  Value* integer_like(Value* like, int64_t v);
  Value* fma(Value* a, Value* b, Value* c);                  // rounds once
  virtual Value* multiply_add(Value* a, Value* b, Value* c); // rounds once or twice, whichever is fast
  // Of a float remainder with its dividend's sign: the one with the divisor's.
  Value* with_sign_of(Value* remainder, Value* divisor);
  Value* polynomial(Value* x, std::span<const double> coefficients); // Horner, highest first

protected:
  Arithmetic(llvm::Module& module, std::string kernel_name);
  // Elementary functions of floats: what arith does not know itself.
  virtual Result<Value*> math(ScalarOp op, DType dtype, std::span<Value* const> args) = 0;
  virtual void target_attributes(llvm::Function& f) const = 0; // of helper functions
  Value* integer_power(DType dtype, Value* base, Value* exponent);
  [[nodiscard]] Diagnostic error(const std::string& what) const;

  llvm::LLVMContext& ctx_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  std::string kernel_name_;
};

} // namespace tessera::irgen
