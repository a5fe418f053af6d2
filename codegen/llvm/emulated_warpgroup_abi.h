// ABI of emulated kernels, continued (emulated_abi.h): mbarriers, bulk tensor copies and warpgroups, as
// gpu_warpgroup_intrinsics.h describes them. `offset` is in shared memory, `map` an object of the emulator, `site` as in
// emulated_abi.h.
#pragma once
#include <cstdint>

extern "C" {

void tessera_emu_async_init_barrier(void* thread, int32_t offset, int32_t arrivals);
void tessera_emu_async_fence_barrier_init(void* thread);
void tessera_emu_async_arrive_barrier(void* thread, int32_t offset, int32_t expected_bytes);
// At the mbarrier of the block of this rank in the cluster; then the barrier of all threads of the cluster, which is at any
// of its places in the code.
void tessera_emu_async_arrive_at_block(void* thread, int32_t offset, int32_t rank);
void tessera_emu_async_cluster_barrier(void* thread, int32_t site);
void tessera_emu_async_arrive_after_copies(void* thread, int32_t offset);
void tessera_emu_async_wait_barrier(void* thread, int32_t offset, int32_t parity, int32_t site);

// Copies complete later, in an order that depends on the seed: until then the destination holds NaN patterns. Stores
// read shared memory when they are waited for. `coordinates`: one per dimension of the map.
void tessera_emu_async_copy_tensor(void* thread, int32_t offset, const void* map, const int32_t* coordinates,
                                   int32_t barrier);
// To each block of the cluster whose bit is set in `blocks`.
void tessera_emu_async_multicast_tensor(void* thread, int32_t offset, const void* map, const int32_t* coordinates,
                                        int32_t barrier, int32_t blocks);
void tessera_emu_async_store_tensor(void* thread, const void* map, const int32_t* coordinates, int32_t offset);
void tessera_emu_async_commit_stores(void* thread);
void tessera_emu_async_wait_for_stores(void* thread, int32_t later, int32_t until_read);
void tessera_emu_async_fence(void* thread);

// Collective over the four warps of a warpgroup. A product reads its operands when it is waited for. Until then its
// accumulators hold NaN patterns that name it. `form`: see TesseraEmuProduct. `a`: a descriptor of 8 bytes, or 4 words.
struct TesseraEmuProduct {
  int32_t a_dtype, b_dtype; // DType
  int32_t n, a_transposed, b_transposed, a_in_registers;
};
void tessera_emu_async_begin_products(void* thread, int32_t site);
void tessera_emu_async_multiply_warpgroup(void* thread, const TesseraEmuProduct* form, const void* a, uint64_t b,
                                          uint32_t* accumulators, int32_t accumulates, int32_t site);
void tessera_emu_async_commit_products(void* thread, int32_t site);
void tessera_emu_async_wait_for_products(void* thread, int32_t later, uint32_t* accumulators, int32_t count,
                                         int32_t site);
void tessera_emu_async_set_registers(void* thread, int32_t count, int32_t raise, int32_t site);

// Barrier `id` of `threads` threads; with `wait` 0 the thread does not wait.
void tessera_emu_async_join(void* thread, int32_t id, int32_t threads, int32_t wait, int32_t site);
// Collective over the warp: 1 in one lane.
int32_t tessera_emu_elect(void* thread, int32_t site);
// The inverse of tessera_emu_load_matrices; `count` is 1, 2 or 4.
void tessera_emu_store_matrices(void* thread, int32_t offset, int32_t count, int32_t transposed, uint32_t* words,
                                int32_t site);
}
