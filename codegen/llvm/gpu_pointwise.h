// Pointwise operations per register. Index arithmetic comes first, because most integers of a kernel are indices.
// Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

// Largest position of an index with a 32-bit form.
inline constexpr int64_t kMaxPosition = 1 << 30;

// gpu_index.cpp
class Indices final : Part {
public:
  Indices(Context& context, Positions& positions) : Part(context), positions_(positions) {}
  void range(const tile::Op& op);
  void index_form(const tile::Op& op);                  // records the index form of the result, if it has one
  std::optional<Registers> narrow(const tile::Op& op);  // in 32 bits, if operands and result fit
  std::optional<Registers> compare(const tile::Op& op); // of an index with a scalar, in 32 bits
  // Division of i64 by a scalar: all registers in 32 bits if they fit.
  Result<std::optional<Registers>> divide(const tile::Op& op);
  // Register bits on which an index or mask does not depend: x / 120 is equal for 8 adjacent elements and is computed
  // once.
  [[nodiscard]] int constant_bits(tile::ValueId id) const;

private:
  // An i64 tile as a scalar plus positions. It also has i64 registers, but a comparison with a scalar, as in masks,
  // uses the 32-bit positions: half the instructions.
  struct Index {
    Value* base = nullptr; // i64
    Registers positions;   // i32, not negative
    int64_t most = 0;      // of the positions; below kMaxPosition
  };
  [[nodiscard]] std::vector<layout::Bounds>
  register_bounds(tile::ValueId id) const; // value range of each register's element
  Result<llvm::Function*> division(ScalarOp op);

  Positions& positions_;
  std::map<tile::ValueId, Index> indices_;
};

class Pointwise final : Part {
public:
  Pointwise(Context& context, Words& words, Indices& indices) : Part(context), words_(words), indices_(indices) {}
  void constant(const tile::Op& op);
  void program_id(const tile::Op& op);
  void num_programs(const tile::Op& op);
  void expand_dims(const tile::Op& op);
  Status broadcast(const tile::Op& op);
  Status scalar_op(const tile::Op& op);

private:
  std::optional<Registers> one_plus(const tile::Op& op);
  Registers cast_registers(const Registers& from, DType from_type, DType to); // pairs at a time

  Words& words_;
  Indices& indices_;
};

} // namespace tessera::gpu
