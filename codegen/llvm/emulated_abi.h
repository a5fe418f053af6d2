// The per-thread code of a GPU kernel, compiled for the host: what it is called with, and what it calls. The functions
// below are the emulator's (codegen/emulate defines them; nothing in codegen/llvm links with them: their addresses are
// handed to HostModule::load). The code is the one that becomes PTX, instruction for instruction, but for these calls,
// for elementary functions (libm's instead of the GPU's) and for predicated accesses (branches).
#pragma once
#include "codegen/llvm/gpu_compiler.h"
#include "codegen/llvm/host_compiler.h"

namespace tessera {

// One call runs one thread of one block from beginning to end. `thread` is handed back in every tessera_emu_ call and
// not looked into. `args` is what cuLaunchKernel takes as kernelParams: args[i] is the ADDRESS of argument i (of a
// pointer variable, of an int64_t, of a scalar of the parameter's own dtype), and behind the tile kernel's parameters
// comes the address of a pointer to the int32_t of bounds violations, which is stored to directly (site + 1).
using EmulatedKernelFn = void (*)(void* thread, void* const* args);

struct EmulatedKernel {
  CompiledObject object;    // defines object.symbol as an EmulatedKernelFn
  int threads = 0;          // of a block, a multiple of 32; lane = thread % 32, warp = thread / 32
  int64_t shared_bytes = 0; // dynamic shared memory of a block: offsets are in [0, shared_bytes)
};
// Errors as compile_gpu_kernel.
[[nodiscard]] Result<EmulatedKernel> compile_emulated_kernel(const tile::Kernel& kernel, const GpuTarget& target,
                                                             bool keep_ir = false);

} // namespace tessera

extern "C" {

// Kinds of access, as bits.
enum TesseraEmuAccess : int32_t { kTesseraEmuRead = 0, kTesseraEmuWrite = 1, kTesseraEmuAtomic = 2 };

// Number of the thread in its block, [0, threads); number of the block in the grid.
int32_t tessera_emu_thread_index(void* thread);
int64_t tessera_emu_block_index(void* thread);

// `site` numbers the place in the code: equal for all threads that execute the same instruction, different for
// different instructions of one kernel.

// All threads of the block wait for each other; shared and global memory written before is seen after.
void tessera_emu_barrier(void* thread, int32_t site);
// All 32 lanes of a warp take part: yields the `value` that lane `source_lane` (0..31) gave.
uint32_t tessera_emu_shuffle(void* thread, uint32_t value, int32_t source_lane, int32_t site);
// All 32 lanes take part: bit l is whether lane l gave a `predicate` that is not 0.
uint32_t tessera_emu_ballot(void* thread, int32_t predicate, int32_t site);
// As barrier; yields 1 in all threads when any thread of the block gave a `predicate` that is not 0, else 0.
int32_t tessera_emu_barrier_or(void* thread, int32_t predicate, int32_t site);
// All 32 lanes of a warp wait for each other: memory written before is seen by the others of the warp after.
void tessera_emu_warp_barrier(void* thread, int32_t site);

// Tensor cores, all 32 lanes together; a word is two 16-bit elements, the first in the low half.
// Reads `count` (2 or 4) matrices of 8 rows of 16 bytes: lane l gives the `offset` in shared memory of row l % 8 of
// matrix l / 8 (a multiple of 16). words[i]: of matrix i elements 2 (l % 4) and the next one of row l / 4, or, where
// `transposed`, of column l / 4.
void tessera_emu_load_matrices(void* thread, int32_t offset, int32_t count, int32_t transposed, uint32_t* words,
                               int32_t site);
// mma.m16n8k16, f16 or bf16, accumulated in f32. words: 4 of a, 2 of b, 4 of c as bits; the first 4 become the result's
// bits.
void tessera_emu_multiply(void* thread, int32_t bf16, uint32_t* words, int32_t site);

// Asynchronous copies: `bytes` (4, 8 or 16) from global `address` to `offset` in shared memory; zeros, and nothing is
// read, where `exists` is 0. They are made when the thread waits: until then the place holds NaN patterns. What has not
// been committed is not waited for, nor are the `later` groups that were committed last.
void tessera_emu_copy_async(void* thread, int32_t offset, void* address, int32_t bytes, int32_t exists);
void tessera_emu_commit_copies(void* thread);
void tessera_emu_wait_for_copies(void* thread, int32_t later);

// One thread of a block tells at a counter (4 bytes of global memory) that the block is there: adds `amount` and yields
// the sum (codegen/tile/team.h). With `wait` not 0 it comes back when all of the team have come.
uint32_t tessera_emu_arrive(void* thread, void* counter, uint32_t amount, int32_t wait);

// Messages of three numbers between blocks: `address` is 16 bytes of global memory, 0 where there is none
// (codegen/tile/team.h). Receiving waits for it and clears the place; listening waits and leaves it to a thread of the
// same warp.
void tessera_emu_send(void* thread, void* address, uint32_t first, uint32_t second, uint32_t third);
void tessera_emu_listen(void* thread, void* address);
void tessera_emu_receive(void* thread, void* address, uint32_t* numbers);

// Called right before each access of shared memory: `bytes` (1, 2, 4, 8 or 16) at byte `offset`. Yields the host
// address at which the access is then made directly; for an access that is not allowed the address of 16 spare bytes,
// after the error has been noted. An access must be aligned to its size.
void* tessera_emu_shared(void* thread, int32_t offset, int32_t bytes, int32_t access);
// The same for global memory: `address` is pointer argument plus offset. Not called for accesses masked away.
void* tessera_emu_global(void* thread, void* address, int32_t bytes, int32_t access);
}
