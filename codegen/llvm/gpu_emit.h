// Tile IR to the LLVM IR of one GPU thread. Private to codegen/llvm.
//
// codegen/layout assigns the elements of every tile to threads. Here a tile becomes one LLVM value per register of its
// layout, and an operation becomes the code of one thread: pointwise operations per register, memory accesses in
// vectors of `access_width` elements, reductions and scans first among registers, then among lanes (shuffles), then
// among warps (shared memory). All threads compute scalars redundantly.
//
// The parts share a Context: the kernel, the function, the registers of each value. Each part emits some kinds of
// operations. The emitter dispatches operations to the parts.
//
//   Positions, Words, SharedMemory    coordinates of a thread's elements; packed words; shared memory
//   Indices, Pointwise                index arithmetic; all other arithmetic
//   Accesses, Windows, Memory         memory
//   Reductions, Conversions, Dots     operations across the threads of a block
//   Cooperation                       operations of cooperative blocks
//   Pipelining, Ring, Control         loops, and their software pipelining
//
// Order. Memory operations of a program happen in the order of the text, but threads run independently. Hazards
// (gpu_hazards.h) records the accesses since the last barrier; a barrier is emitted before an access that conflicts
// with one of them.
#pragma once
#include "codegen/llvm/gpu_control.h"
#include "codegen/llvm/gpu_convert.h"
#include "codegen/llvm/gpu_cooperation.h"
#include "codegen/llvm/gpu_dot.h"
#include "codegen/llvm/gpu_memory.h"
#include "codegen/llvm/gpu_pipeline.h"
#include "codegen/llvm/gpu_pointwise.h"
#include "codegen/llvm/gpu_reduce.h"

namespace tessera::gpu {

class Emitter final : Operations {
public:
  Emitter(llvm::Module& module, const layout::KernelLayouts& layouts, Code code, const GpuTarget& target);
  // Emits the kernel's function. Error CodegenError for operations and types without GPU code.
  Status emit();
  [[nodiscard]] int threads() const { return context_.block_threads(); } // of a block
  [[nodiscard]] int cluster() const { return ring_.cluster(); }          // blocks
  [[nodiscard]] int64_t shared_bytes() const { return context_.hazards.shared_bytes(); }
  [[nodiscard]] const std::vector<KernelTensorMap>& tensor_maps() const { return context_.tensor_maps; }

private:
  Status operation(tile::OpId id) override;

  Context context_;
  Positions positions_{context_};
  Words words_{context_};
  SharedMemory shared_{context_, words_};
  Indices indices_{context_, positions_};
  Pointwise pointwise_{context_, words_, indices_};
  Accesses accesses_{context_, positions_, words_, shared_};
  Windows windows_{context_, words_, accesses_};
  Memory memory_{context_, words_, accesses_, windows_};
  Reductions reductions_{context_, positions_, shared_};
  Conversions conversions_{context_, positions_, words_, shared_};
  Cooperation cooperation_{context_, positions_, shared_, accesses_};
  Pipelining pipelining_{context_, positions_, words_, shared_, accesses_, *this};
  Dots dots_{context_, positions_, words_, shared_, conversions_, pipelining_};
  Ring ring_{context_, words_, conversions_, *this};
  Control control_{context_, words_, shared_, pipelining_, ring_, *this};
};

} // namespace tessera::gpu
