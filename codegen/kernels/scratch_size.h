// The scratch memory of a program on the host (the operation `scratch`), from the arguments of a launch.
#pragma once
#include "codegen/tile/tile.h"

namespace tessera {

class ScratchSize {
public:
  static constexpr size_t kAlignment = 64; // of each block, in bytes

  // Error CodegenError for a size that depends on what a program computes, and for scratch inside a region. `kernel` is
  // verified.
  [[nodiscard]] static Result<ScratchSize> of(const tile::Kernel& kernel);
  [[nodiscard]] bool none() const { return counts_.empty(); }
  // Bytes that a program takes, each block rounded up to kAlignment. `words` as ArgumentPacker makes them. Errors: BadInput for
  // a negative size; OutOfMemory for one that no memory has.
  [[nodiscard]] Result<int64_t> bytes(const Grid& grid, const uint64_t* words) const;

private:
  // Computes a value: a scalar parameter, a constant, an extent of the grid, or a scalar operation of earlier steps.
  struct Step {
    enum class Kind : uint8_t { Parameter, Constant, Extent, Operation };
    Kind kind = Kind::Constant;
    DType dtype = DType::I64, argument = DType::I64; // of the result; of the operands
    size_t word = 0;                                 // Parameter
    int axis = 0;                                    // Extent
    ScalarValue constant;
    ScalarOp op = ScalarOp::Add;
    std::vector<size_t> operands; // steps
  };
  struct Count {
    size_t step = 0;
    int64_t element_bytes = 1;
  };
  class Reader;

  std::string kernel_;
  std::vector<Step> steps_;
  std::vector<Count> counts_;
};

} // namespace tessera
