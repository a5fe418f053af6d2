// Tile IR to the LLVM IR of one GPU thread. Private to codegen/llvm.
//
// The idea. codegen/layout says of every tile which elements each thread holds. Here a tile becomes one LLVM value per
// register of its layout, and each operation becomes what one thread does with its registers: pointwise operations
// register by register, accesses of memory in groups of `access_width` neighbours, reductions and scans among
// registers, then lanes (shuffles), then warps (shared memory). Scalars are computed by all threads alike.
//
// The parts. All share a Context: the kernel, the function, the registers of each value. Each part emits some kinds of
// operations, and names the parts that it uses; none knows the emitter, which hands each operation to the part it
// belongs to.
//
//   Positions, Words, SharedMemory    what a thread is and where its elements go
//   Indices, Pointwise                integers that are indices; all other arithmetic
//   Accesses, Windows, Memory         memory
//   Reductions, Conversions, Dots     what threads of a block do together
//   Team                              what blocks do together
//   LoadsAhead, Control               loops, and what they copy rounds ahead
//
// Order. Within a program memory operations happen in the order of the text, but threads run on their own. A barrier
// is put where one thread might otherwise see another's memory too early or too late: Hazards (gpu_hazards.h) knows
// what has been touched since the last one.
#pragma once
#include "codegen/llvm/gpu_ahead.h"
#include "codegen/llvm/gpu_control.h"
#include "codegen/llvm/gpu_convert.h"
#include "codegen/llvm/gpu_dot.h"
#include "codegen/llvm/gpu_memory.h"
#include "codegen/llvm/gpu_pointwise.h"
#include "codegen/llvm/gpu_reduce.h"
#include "codegen/llvm/gpu_team.h"

namespace tessera::gpu {

class Emitter final : Operations {
public:
  Emitter(llvm::Module& module, const layout::KernelLayouts& layouts, bool emulated);
  // Emits the kernel's function. Error CodegenError for what a GPU cannot do.
  Status emit();
  [[nodiscard]] int threads() const { return context_.threads(); }
  [[nodiscard]] int64_t shared_bytes() const { return context_.hazards.shared_bytes(); }

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
  Team team_{context_, positions_, shared_, accesses_};
  LoadsAhead ahead_{context_, positions_, words_, shared_, accesses_, *this};
  Dots dots_{context_, positions_, words_, shared_, conversions_, ahead_};
  Control control_{context_, words_, shared_, ahead_, *this};
};

} // namespace tessera::gpu
