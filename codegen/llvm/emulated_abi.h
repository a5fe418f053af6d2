// ABI of the per-thread code of a GPU kernel compiled for the host: its signature, and the functions that it calls.
// codegen/emulate defines the functions below; codegen/llvm does not link with them: link_host_objects() gets their
// addresses. The code equals the PTX instruction for instruction, except for these calls, elementary functions (libm's
// instead of the GPU's) and predicated accesses (branches).
#pragma once
#include "codegen/llvm/gpu_compiler.h"
#include "codegen/llvm/host_compiler.h"

namespace tessera {

// One call runs one thread of one block. `thread` is an opaque handle that every tessera_emu_ call gets. `args` is what
// cuLaunchKernel takes as kernelParams: args[i] is the ADDRESS of argument i (of a pointer variable, of an int64_t, of
// a scalar of the parameter's own dtype), after the tile kernel's parameters comes the address of a pointer to the
// IndexReport, and then the address of each tensor map, an object of the emulator.
using EmulatedKernelFn = void (*)(void* thread, void* const* args);

struct EmulatedKernel {
  CompiledObject object;     // defines object.symbol as an EmulatedKernelFn
  int threads = 0;           // of a block, a multiple of 32; lane = thread % 32, warp = thread / 32
  int cluster = 1;           // blocks of a cluster
  int64_t shared_bytes = 0;  // dynamic shared memory of a block: offsets are in [0, shared_bytes)
  bool asynchronous = false; // calls the functions tessera_emu_async_ (emulated_warpgroup_abi.h)
  std::vector<KernelTensorMap> tensor_maps;
};
// Errors as compile_gpu_kernel.
[[nodiscard]] Result<EmulatedKernel> compile_emulated_kernel(const tile::Kernel& kernel, const GpuTarget& target,
                                                             bool keep_ir = false);

} // namespace tessera

extern "C" {

// Kinds of access, as bits.
enum TesseraEmuAccess : int32_t { kTesseraEmuRead = 0, kTesseraEmuWrite = 1, kTesseraEmuAtomic = 2 };

// Index of the thread in its block, [0, threads); index of the block in the grid, and the grid's blocks, along an axis.
int32_t tessera_emu_thread_index(void* thread);
int64_t tessera_emu_block_index(void* thread, int32_t axis);
int64_t tessera_emu_block_count(void* thread, int32_t axis);

// `site` identifies the instruction: equal for all threads that execute it, different for different instructions of one
// kernel.

// Barrier of the block; shared and global memory written before it is visible after it.
void tessera_emu_barrier(void* thread, int32_t site);
// Collective over the 32 lanes of a warp: yields the `value` of lane `source_lane` (0..31).
uint32_t tessera_emu_shuffle(void* thread, uint32_t value, int32_t source_lane, int32_t site);
// Collective over the 32 lanes: bit l is set if the `predicate` of lane l is not 0.
uint32_t tessera_emu_ballot(void* thread, int32_t predicate, int32_t site);
// A barrier that yields 1 in all threads if any thread's `predicate` is not 0, else 0.
int32_t tessera_emu_barrier_or(void* thread, int32_t predicate, int32_t site);
// Barrier of the warp's 32 lanes: memory written before it is visible to the warp after it.
void tessera_emu_warp_barrier(void* thread, int32_t site);

// Tensor cores, collective over the 32 lanes; a word is 32 bits of elements, the first in the lowest bits.
// Reads `count` (2 or 4) matrices of 8 rows of 16 bytes: lane l gives the `offset` in shared memory of row l % 8 of
// matrix l / 8 (a multiple of 16). words[i]: of matrix i elements 2 (l % 4) and the next one of row l / 4, or, where
// `transposed`, of column l / 4.
void tessera_emu_load_matrices(void* thread, int32_t offset, int32_t count, int32_t transposed, uint32_t* words,
                               int32_t site);
// mma.m16n8k16, f16 or bf16, accumulated in f32; mma.m16n8k32, i8 or u8 each, accumulated in i32. Dtypes are DType. words: 4 of a, 2 of b, 4 of c as bits; the first 4 become the result's
// bits.
void tessera_emu_multiply(void* thread, int32_t a_dtype, int32_t b_dtype, uint32_t* words, int32_t site);

// Asynchronous copies: `bytes` (4, 8 or 16) from global `address` to `offset` in shared memory; if `exists` is 0,
// nothing is read and zeros are written. The copy happens when the thread waits; until then the destination holds NaN
// patterns. The wait covers committed groups except the last `later` ones.
void tessera_emu_copy_async(void* thread, int32_t offset, void* address, int32_t bytes, int32_t exists);
void tessera_emu_commit_copies(void* thread);
void tessera_emu_wait_for_copies(void* thread, int32_t later);

// Called by one thread of a block: adds `amount` to an arrival counter (4 bytes of global memory) and yields the sum
// (codegen/tile/cooperation.h). If `wait` is not 0, it returns when all cooperative blocks have arrived.
uint32_t tessera_emu_arrive(void* thread, void* counter, uint32_t amount, int32_t wait);

// Packets of three payload words between blocks: `address` is 16 bytes of global memory that are 0 without a packet
// (codegen/tile/cooperation.h). receive waits for the packet and clears it; await waits only, and a thread of the same
// warp receives.
void tessera_emu_send(void* thread, void* address, uint32_t first, uint32_t second, uint32_t third);
void tessera_emu_await(void* thread, void* address);
void tessera_emu_receive(void* thread, void* address, uint32_t* payload);

// Called right before each access of shared memory: `bytes` (1, 2, 4, 8 or 16) at byte `offset`. Yields the host
// address at which the access is then made directly; for an access that is not allowed the address of 16 spare bytes,
// after the error has been noted. An access must be aligned to its size.
void* tessera_emu_shared(void* thread, int32_t offset, int32_t bytes, int32_t access);
// The same for global memory: `address` is pointer argument plus offset. Not called for masked accesses.
void* tessera_emu_global(void* thread, void* address, int32_t bytes, int32_t access);
}
