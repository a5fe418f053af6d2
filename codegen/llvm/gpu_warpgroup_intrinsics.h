// Instructions of sm_90a, in addition to those of gpu_intrinsics.h: barriers in shared memory that count arrivals and bytes
// (mbarriers), bulk tensor copies, and products of warpgroups. One interface, as PTX and as calls of the emulator.
// Private to codegen/llvm.
//
// Words. A warpgroup is four warps, the first of which is a multiple of four. Offsets are i32 byte offsets of shared
// memory, as in gpu_intrinsics.h. A predicate is an i1; null is true. "Collective" operations of a warp or of a
// warpgroup must be reached by all of its threads together.
//
// The asynchronous proxy. Tensor copies and products access shared memory by another path than loads and stores. What
// threads stored is there for it only behind fence_async(), executed by each thread that stored, and a barrier; what a
// copy brought is there for everything that waited for its mbarrier.
//
//   init_barrier(...) by one thread, fence_barrier_init() by the same thread, Intrinsics::barrier()
//   producer (one thread):  wait(empty, parity ^ 1); arrive_expecting(full, bytes); copy_tensor(..., full) ...
//   consumer (warpgroup):   wait(full, parity); begin_products(); multiply(...) ...; commit_products();
//                           wait_for_products(1, {}); arrive(empty of the previous stage, one thread of the warpgroup)
//   at the end              wait_for_products(0, accumulators)
//
// Clusters. The blocks of a cluster have neighbouring indices, from a multiple of their number on, and run together. A
// block may write to the shared memory of another one, by copies, and arrive at its mbarriers: behind a barrier of the
// cluster that follows all initialisations, and before one that precedes the other block's end.
#pragma once
#include "codegen/llvm/gpu_intrinsics.h"
#include "runtime/tensor_map.h"

namespace tessera::gpu {

// An operand of a product in shared memory, as tiles of 8 rows of swizzle_bytes (16 without a swizzle), permuted.
//
//   K-major (an operand's K is contiguous): `stride_bytes` lies between groups of 8 rows of M or N; `leading_bytes`
//     between the two halves of a product's 32 bytes of K where there is no swizzle, and is ignored with one. The next
//     32 bytes of K within swizzle_bytes: advance(descriptor, 32).
//   MN-major (transposed; elements of 16 bits): a tile has 8 k of swizzle_bytes of M or N. With a swizzle,
//     `leading_bytes` lies between tiles along M or N and `stride_bytes` between groups of 8 k; without one it is the
//     other way round. The next 16 k: advance(descriptor, 2 * stride_bytes), without a swizzle 2 * leading_bytes.
//
// The offset that a descriptor begins with is aligned to swizzle_alignment (16 without a swizzle), both distances are
// multiples of 16 below 2^18.
struct OperandLayout {
  Swizzle swizzle = Swizzle::Bytes128;
  int leading_bytes = 16, stride_bytes = 1024;
};

// D += A B of a warpgroup: A is 64 x k, B is k x n, D is 64 x n; k elements have 32 bytes.
struct WarpgroupProduct {
  DType a = DType::BF16, b = DType::BF16; // both F16, BF16 or F32 (as tf32); each F8E4M3FN or F8E5M2; each I8 or U8
  int n = 0; // multiples of 8 up to 256; of I8 and U8 8, 16, 24, 32 and the multiples of 16 from 48 on
  bool a_transposed = false, b_transposed = false; // MN-major in shared memory: F16 and BF16 only

  [[nodiscard]] int k() const { return 256 / info(a).bits; }
  [[nodiscard]] bool integers() const { return is_integer(a); } // D is i32, otherwise f32
  [[nodiscard]] int accumulators() const { return n / 2; }      // of a thread
};

class WarpgroupIntrinsics {
public:
  WarpgroupIntrinsics(llvm::Module& module, llvm::IRBuilder<>& builder) : module_(module), b_(builder) {}
  virtual ~WarpgroupIntrinsics() = default;

  // ---- mbarriers: 8 bytes of shared memory each, aligned to 8. A phase completes when the pending arrivals and the
  // expected bytes are 0; then the next one begins, with as many arrivals. The first phase has parity 0.

  // One thread initialises a barrier for `arrivals` (1 to 2^20 - 1) per phase; then it fences all that it has
  // initialised, and a barrier of the block follows. Memory of the barrier may be used for nothing else.
  virtual void init_barrier(Value* offset, int arrivals) = 0;
  virtual void fence_barrier_init() = 0;
  // Arrives, with release order. arrive_expecting first adds i32 `bytes` to the bytes of the current phase.
  virtual void arrive(Value* offset, Value* predicate) = 0;
  virtual void arrive_expecting(Value* offset, Value* bytes, Value* predicate) = 0;
  // The same at the mbarrier at this offset of block i32 `rank` of the cluster. What the thread wrote is not made visible
  // to the other block: an arrival says that the thread has read.
  virtual void arrive_at_block(Value* offset, Value* rank, Value* predicate) = 0;
  // Arrives when all copies of Intrinsics::copy_async that the thread has started are complete. It is one of the
  // arrivals for which the barrier was initialised.
  virtual void arrive_after_copies(Value* offset) = 0;
  // Blocks the threads that call it until the phase of i32 parity 0 or 1 is complete, with acquire order: the current
  // phase has the other parity. On a barrier without completed phases, parity 1 returns at once.
  virtual void wait(Value* offset, Value* parity) = 0;

  // ---- bulk tensor copies: by one thread each, under a predicate. `map` is one of KernelFunction::tensor_maps, the
  // coordinates (i32, one per dimension, the contiguous one first, may be negative or beyond the end) are those of the
  // box's first element.

  // Global to shared memory; all bytes of the box count, zeros included, when the copy completes at the mbarrier.
  virtual void copy_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                           Value* predicate) = 0;
  // To the same offset of each block of the cluster whose bit is set in `blocks`; each one's mbarrier at `barrier` counts the
  // bytes.
  virtual void multicast_tensor(Value* offset, Value* map, std::span<Value* const> coordinates, Value* barrier,
                                int blocks) = 0;
  // Shared to global memory, in the thread's current group. commit_stores ends the group; wait_for_stores waits for all
  // groups of the thread but the last `later` ones: until shared memory has been read and may be overwritten by whoever
  // is ordered after the thread, or until the stores are complete.
  virtual void store_tensor(Value* map, std::span<Value* const> coordinates, Value* offset, Value* predicate) = 0;
  virtual void commit_stores() = 0;
  virtual void wait_for_stores(int later, bool until_read) = 0;
  virtual void prefetch_map(Value* map, Value* predicate) = 0;

  // Makes the thread's earlier accesses of shared memory, and those that it has acquired, visible to the asynchronous
  // proxy.
  virtual void fence_async() = 0;

  // ---- products. Collective over the warpgroup; asynchronous: accumulators have no value, and operands may not change,
  // until wait_for_products.

  // i64, of an operand at `offset`. advance adds bytes, a multiple of 16.
  [[nodiscard]] Value* descriptor(Value* offset, const OperandLayout& layout);
  [[nodiscard]] Value* advance(Value* descriptor, int bytes);
  // Orders the registers that were written before with the products behind it: before the first product, and before one
  // whose accumulators or registers of A were written since. Products that read A from registers are waited for before
  // it: ptxas gives registers of A to other values while products in flight read them.
  virtual void begin_products() = 0;
  // Moves words of A to registers of their own, between the last wait and begin_products.
  [[nodiscard]] virtual std::vector<Value*> move_words(std::span<Value* const> words) = 0;
  // Starts a product and yields the accumulators: of warp w of the group and lane l, register 4 j + 2 h + i has row
  // 16 w + l / 4 + 8 h and column 8 j + 2 (l % 4) + i. `a` is a descriptor, or 4 i32 registers of 4 bytes of A each:
  // register 2 q + h has row 16 w + l / 4 + 8 h and the bytes from 16 q + 4 (l % 4) on of the 32 of a row. `b` is a
  // descriptor. If i1 `accumulates` (null: true) is false, D = A B, and the accumulators given may be poison.
  [[nodiscard]] virtual std::vector<Value*> multiply(const WarpgroupProduct& product, std::span<Value* const> a,
                                                     Value* b, std::span<Value* const> accumulators,
                                                     Value* accumulates) = 0;
  virtual void commit_products() = 0;
  // Waits for all committed groups but the last `later` ones; their operands may then be overwritten. Yields the
  // accumulators with their values; none need be given where more products accumulate into them. At most 256 at once.
  virtual std::vector<Value*> wait_for_products(int later, std::span<Value* const> accumulators) = 0;

  // ---- warps and warpgroups

  // Sets the registers of each thread of the warpgroup, collective: a multiple of 8 from 24 to 256. The kernel needs
  // the config "min_blocks", so that the number it is launched with is known.
  virtual void raise_registers(int count) = 0;
  virtual void lower_registers(int count) = 0;
  // Barriers of a part of the block: i32 `id` 1 to 15, `threads` a multiple of 32. `join` waits until so many have
  // joined or announced themselves; `announce` does not wait.
  virtual void join(Value* id, int threads) = 0;
  virtual void announce(Value* id, int threads) = 0;
  virtual void warp_barrier() = 0;
  // Barrier of all threads of the cluster, collective over each warp, which may be at any of its places in the code; memory
  // written before it is visible after it.
  virtual void cluster_barrier() = 0;
  // i1: true in one lane of the warp, the same one at each call; collective over the warp.
  [[nodiscard]] virtual Value* elect() = 0;
  // Stores 1, 2 or 4 matrices of 8 rows of 16 bytes: the inverse of Intrinsics::load_matrices. Collective over the warp.
  virtual void store_matrices(Value* offset, std::span<Value* const> words, bool transposed) = 0;

protected:
  [[nodiscard]] virtual Value* shared_address(Value* offset) = 0; // i32, for descriptors

  llvm::Module& module_;
  llvm::IRBuilder<>& b_;
};

// The function of the kernel must have begun. For PTX, shared memory becomes aligned to 1024.
[[nodiscard]] std::unique_ptr<WarpgroupIntrinsics> nvptx_warpgroup_intrinsics(llvm::Module& module,
                                                                              llvm::IRBuilder<>& builder);
[[nodiscard]] std::unique_ptr<WarpgroupIntrinsics> emulated_warpgroup_intrinsics(llvm::Module& module,
                                                                                 llvm::IRBuilder<>& builder);

} // namespace tessera::gpu
