// Scalar arithmetic of one GPU thread. Owns the builder and the target's instructions. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/arith.h"
#include "codegen/llvm/gpu_intrinsics.h"

namespace tessera::gpu {

class Math final : public irgen::Arithmetic {
public:
  // `small_floats`: the target has conversions of 8-bit floats.
  Math(llvm::Module& module, const tile::Kernel& kernel, bool emulated, bool small_floats);
  [[nodiscard]] llvm::IRBuilder<>& builder() { return b_; }
  [[nodiscard]] llvm::Module& module() { return module_; }
  [[nodiscard]] NumberIntrinsics& numbers() { return *gpu_; }

  // Overrides with special GPU instructions.
  Result<Value*> arith(ScalarOp op, DType result, DType argument, std::span<Value* const> args) override;
  Value* cast(Value* v, DType from, DType to) override;
  // Two elements, packed into a word, the first in the low bits; null where no instruction rounds two.
  Value* cast_pair(Value* low, Value* high, DType from, DType to);
  // Two halves of a word with two 8-bit floats; null where there is no instruction for it.
  Value* as_halves(Value* low, Value* high, DType from);
  Value* min_max(bool max, DType dtype, Value* a, Value* b) override;
  Value* one_plus(ScalarOp op, Value* x); // 1 + erf(x), 1 + tanh(x)
  Value* divided(Value* x, const llvm::ConstantFP& by);
  void target_attributes(llvm::Function& f) const override;
  using Arithmetic::error;

private:
  Result<Value*> math(ScalarOp op, DType dtype, std::span<Value* const> args) override;
  Value* exp_f32(Value* x);
  Value* tanh_f32(Value* x);
  Value* erf_f32(Value* x);
  Value* with_sign(Value* magnitude, Value* sign);
  Value* to_integer(Value* x, DType from, DType to);

  std::unique_ptr<NumberIntrinsics> gpu_;
  bool short_functions_; // elementary functions need only 16-bit accuracy
};

} // namespace tessera::gpu
