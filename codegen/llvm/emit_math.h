// Arithmetic of vectors on the host, and elementary functions. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/arith.h"
#include "codegen/llvm/host_compiler.h"

namespace tessera::host {

class VectorMath : public irgen::Arithmetic {
protected:
  VectorMath(llvm::Module& module, std::string kernel_name, const HostTarget& target)
      : Arithmetic(module, std::move(kernel_name)), target_(target) {}
  Value* cast(Value* v, DType from, DType to) override;
  Value* multiply_add(Value* a, Value* b, Value* c) override;
  Value* min_max(bool max, DType dtype, Value* a, Value* b) override;
  Result<Value*> math(ScalarOp op, DType dtype, std::span<Value* const> args) override;
  void target_attributes(llvm::Function& f) const override;
  Value* join(const std::vector<Value*>& parts); // one long vector
  std::vector<Value*> split(Value* whole, int lanes);

  HostTarget target_;

private:
  Value* exp_f32(Value* x);
  Value* tanh_f32(Value* x);
  Value* erf_f32(Value* x);
  Value* erf_pieces(Value* x); // sixteen lanes
  Value* sigmoid(Value* x, DType dtype);
  Result<Value*> library_call(const char* name, DType dtype, std::span<Value* const> args);
};

} // namespace tessera::host
