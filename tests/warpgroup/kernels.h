// Kernels with tensor copies, mbarriers and products of warpgroups, emitted by hand.
#pragma once
#include "codegen/emulate/emulator.h"
#include "codegen/llvm/emulated_abi.h"

namespace tessera::test {

// An error planted in a kernel.
enum class Fault {
  None,
  // of the ring
  NoWaitForEmpty,
  SameParityOfEmpty,
  NoWaitForFull,
  FewerBytesExpected,
  MoreBytesExpected,
  ReleasedBeforeWait,
  ReleasedByOneConsumer,
  NoFenceOfRegisters,
  NoWaitForProducts,
  NoFenceOfBarriers,
  NoBarrierAfterInit,
  MisalignedStage,
  TooManyRegisters,
  // of operands that threads store
  NoFenceOfStores,
  NoBarrierOfStores,
  NoFenceOfResults,
  NoWaitForTensorStore,
  ResultsOverTensorStore,
  NoWaitForCopies,
  ResultsOverProducts,
  OneWarpLess,
};

// c = a b of an m x k and a k x n matrix, in row-major order unless transposed; n at most 256. Blocks of 128 rows with a
// producer warp and two consumer warpgroups. Parameters: %a, %b, %c (f32 or i32), %m, %n, %k. Operands that are
// transposed have their other dimension contiguous: a is k x m, b is k x n instead of n x k.
struct RingKernel {
  DType a = DType::BF16, b = DType::BF16;
  int columns = 64; // of a product: n rounded up
  bool a_transposed = false, b_transposed = false;
  Swizzle swizzle = Swizzle::Bytes128;
  int stages = 3;
  Fault fault = Fault::None;
};
// c = a b of 64 x 32 and 32 x 64 bf16 elements by one warpgroup, rounded to bf16. Threads store the operands to shared
// memory, or copy them asynchronously and arrive at an mbarrier, without a swizzle, a in registers or not; matrices of the
// result are stored by stmatrix and a tensor store.
struct StoredKernel {
  bool a_in_registers = false, copies = false;
  Fault fault = Fault::None;
};

// Copies a box of a dense tensor, from coordinates that may lie outside, to a
// dense tensor, by tensor copies alone. Parameters: %a, %c.
struct CopyKernel {
  DType dtype = DType::F32;
  std::vector<int> box;  // up to 5 dimensions, the contiguous one first
  std::vector<int> dims; // of a
  std::vector<int> coordinates;
  Swizzle swizzle = Swizzle::None;
  std::vector<int> steps; // elements of `a` from one of the box to the next; empty: 1 each
};

// The parameters as a tile kernel without a body.
[[nodiscard]] tile::Kernel parameters(const RingKernel& form);
[[nodiscard]] tile::Kernel parameters(const StoredKernel& form);
[[nodiscard]] tile::Kernel parameters(const CopyKernel& form);
[[nodiscard]] Result<EmulatedKernel> emulated(const RingKernel& form);
[[nodiscard]] Result<EmulatedKernel> emulated(const CopyKernel& form);
[[nodiscard]] Result<EmulatedKernel> emulated(const StoredKernel& form);
// For sm_90a.
[[nodiscard]] Result<GpuKernelCode> ptx(const RingKernel& form);
[[nodiscard]] Result<GpuKernelCode> ptx(const StoredKernel& form);
[[nodiscard]] Result<GpuKernelCode> ptx(const CopyKernel& form);
// Instructions that the other kernels leave out.
[[nodiscard]] Result<GpuKernelCode> ptx_of_other_instructions();

} // namespace tessera::test
