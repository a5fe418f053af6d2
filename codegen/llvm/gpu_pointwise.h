// Pointwise operations, register by register: index arithmetic first, as most of a kernel's integers are indices.
// Private to codegen/llvm.
#pragma once
#include "codegen/llvm/gpu_positions.h"
#include "codegen/llvm/gpu_shared.h"

namespace tessera::gpu {

// What is beyond it has no form of 32 bits.
inline constexpr int64_t kMostPosition = 1 << 30;

// gpu_index.cpp
class Indices final : Part {
public:
  Indices(Context& context, Positions& positions) : Part(context), positions_(positions) {}
  void range(const tile::Op& op);
  void index_form(const tile::Op& op);                  // of the result, where it has one
  std::optional<Registers> narrow(const tile::Op& op);  // in 32 bits, where operands and result are known to fit
  std::optional<Registers> compare(const tile::Op& op); // of an index with a scalar, in 32 bits
  // i64 by a scalar, all registers in 32 bits where they fit.
  Result<std::optional<Registers>> divide(const tile::Op& op);
  // Bits of a register's number that an index or mask does not depend on, by what is known of its elements: x / 120 is
  // one number for 8 neighbours, and is computed once.
  [[nodiscard]] int constant_bits(tile::ValueId id) const;

private:
  // An i64 tile that is a scalar plus positions in a tile. Its elements are registers, too, but what compares them
  // with a scalar, as masks do, compares 32-bit positions instead: half the instructions.
  struct Index {
    Value* base = nullptr; // i64
    Registers positions;   // i32, not negative
    int64_t most = 0;      // of the positions; below kMostPosition
  };
  [[nodiscard]] std::vector<layout::Bounds> register_bounds(tile::ValueId id) const; // of each register's element
  Result<llvm::Function*> division(ScalarOp op);

  Positions& positions_;
  std::map<tile::ValueId, Index> indices_;
};

class Pointwise final : Part {
public:
  Pointwise(Context& context, Words& words, Indices& indices) : Part(context), words_(words), indices_(indices) {}
  void constant(const tile::Op& op);
  void program_id(const tile::Op& op);
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
