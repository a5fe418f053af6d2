// Target-specific instructions of a GPU thread: thread and block index, barriers, shuffles, shared and global memory,
// approximate arithmetic. Two interfaces with two implementations each, so that one emitter generates both:
//
//   nvptx_...      PTX instructions, for the GPU
//   emulated_...   calls of the emulator (emulated_abi.h), for tests on the host
//
// Private to codegen/llvm. All methods emit code at the builder's insertion point. Everything collective (barriers,
// shuffles, votes) must be reached by all threads of the block, or of the warp, together.
//
// Words. Memory moves in vectors of up to 16 bytes, given as `count` words of one integer type: i8, i16, i32 or i64.
// Addresses are aligned to the bytes of the vector.
#pragma once
#include "codegen/tile/tile.h"
#include "runtime/tensor_map.h"
#include <array>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <memory>

namespace tessera::gpu {

using llvm::Value;

// The kind of code that is generated. DependentPtx: for GPUs that have programmatic dependent launch, a kernel that
// itself waits until the one before it in the stream is complete; it may use atomic sums of vectors, too.
enum class Code : uint8_t { Ptx, DependentPtx, Emulated };

// The kernel's function, with the builder standing in its entry block.
struct KernelFunction {
  llvm::Function* function = nullptr;
  std::vector<Value*> params;      // the tile kernel's; bool as i1
  Value* report = nullptr;         // address of the IndexReport
  std::vector<Value*> tensor_maps; // operands of WarpgroupIntrinsics (gpu_warpgroup_intrinsics.h)
};

// The stability of global memory: Invariant if nothing writes it while the kernel runs.
enum class Stability : uint8_t { Varying, Invariant };

// Arithmetic of one thread: approximate instructions, conversions, functions.
class NumberIntrinsics {
public:
  NumberIntrinsics(llvm::Module& module, llvm::IRBuilder<>& builder) : module_(module), b_(builder) {}
  virtual ~NumberIntrinsics() = default;

  // f32. Accuracy as the PTX manual gives it; denormals are kept unless the name has ftz.
  virtual Value* ex2_ftz(Value* x) = 0; // 2^x, 2 ulp; results below 2^-126 become 0
  virtual Value* lg2(Value* x) = 0;     // log2 x; absolute 2^-22 around 1, elsewhere 2 ulp
  virtual Value* rcp(Value* x) = 0;     // 1 / x, 1 ulp
  virtual Value* rcp_ftz(Value* x) = 0; // the same, denormals as 0
  virtual Value* rsqrt(Value* x) = 0;   // 2 ulp
  // a * b + c clamped to [0, 1], NaN to 0.
  virtual Value* fma_saturated(Value* a, Value* b, Value* c) = 0;
  // Truncated and saturated to i32 or i64; NaN becomes 0 if x is f32 and bits is 32, else it is undefined.
  virtual Value* to_integer(Value* x, unsigned bits, bool is_signed) = 0;
  // f32 to bf16 (as i16) and two of them, or two halves, to an i32, the first in the low half. To nearest even; NaN
  // stays NaN.
  virtual Value* to_bf16(Value* x) = 0;
  virtual Value* pack_bf16(Value* low, Value* high) = 0;
  virtual Value* pack_f16(Value* low, Value* high) = 0;
  // Two f32 rounded to f8e4m3fn or f8e5m2 and saturated, as an i16; two such numbers as halves, in an i32. The first in
  // the low half; null where the target has no instruction for it.
  virtual Value* pack_small_floats(DType, Value* /*low*/, Value* /*high*/) { return nullptr; }
  virtual Value* small_floats_as_f16(DType, Value* /*pair*/) { return nullptr; }

  // Bits [shift, shift + 32) of two i32 words side by side, `low` before `high`; the shift is i32, below 32.
  virtual Value* funnel_shift(Value* low, Value* high, Value* shift) = 0;

  // A function of the mathematical library by its C name without suffix, "erf": of float or double arguments.
  virtual Value* library_call(std::string_view name, std::span<Value* const> args) = 0;

protected:
  llvm::Module& module_;
  llvm::IRBuilder<>& b_;
};

// Collective operations and memory.
// What a block knows of the grid: its own index, how many blocks there are.
enum class GridValue : uint8_t { Index, Count };

class Intrinsics {
public:
  Intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder) : module_(module), b_(builder) {}
  virtual ~Intrinsics() = default;

  // Declares the function of `kernel` for blocks of `threads` threads, with the tensor maps as its last parameters. Code
  // that is emitted afterwards reads and writes global memory only when the kernels before this one are complete.
  virtual KernelFunction begin(const tile::Kernel& kernel, int threads,
                               std::span<const KernelTensorMap> tensor_maps) = 0;
  // Called after the last instruction, with the shared memory of a block in bytes.
  virtual void finish(int64_t shared_bytes) = 0;

  virtual Value* thread_index() = 0; // i32, [0, threads)
  // The same; LLVM does not know it to be equal, so that what depends on it is not what was computed before.
  virtual Value* other_thread_index() = 0;
  virtual Value* of_grid(GridValue what, int axis) = 0; // i64, along the axis

  // Barrier of the block; memory written before it is visible after it.
  virtual void barrier() = 0;
  virtual Value* barrier_any(Value* predicate) = 0; // the same; i1: true if the predicate is true in any thread
  // Lanes of a warp exchange i32 words; `lane` is an i32, `mask` which bits of the lane's number to flip.
  virtual Value* shuffle_word(Value* word, Value* lane) = 0;
  virtual Value* shuffle_xor_word(Value* word, int mask) = 0;
  virtual Value* vote_any(Value* predicate) = 0; // i1 of i1
  virtual Value* vote_all(Value* predicate) = 0;
  virtual Value* ballot(Value* predicate) = 0; // i32: one bit per lane

  // The same for values of any type up to 8 bytes: i1, integers, half, float, double.
  Value* shuffle(Value* value, Value* lane);
  Value* shuffle_xor(Value* value, int mask);

  // Shared memory, at i32 byte offsets. A null predicate is true.
  virtual std::vector<Value*> load_shared(Value* offset, llvm::Type* word, int count) = 0;
  virtual void store_shared(Value* offset, std::span<Value* const> words, Value* predicate) = 0;

  // Tensor cores, collective over the warp. A word is 32 bits of elements, the first in the lowest bits.
  // Loads `count` (2 or 4) matrices of 8 rows of 16 bytes from shared memory: lane l gives the i32 byte offset of row
  // l % 8 of matrix l / 8, and gets of each matrix elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4; transposed, of
  // column l / 4.
  virtual std::vector<Value*> load_matrices(Value* offset, int count, bool transposed) = 0;
  // c + a b: 16x8 f32 of 16x16 and 16x8 elements, both f16 or both bf16, or of 16x32 and 32x8 elements, each f8e4m3fn
  // or f8e5m2; or 16x8 i32 of 16x32 and 32x8 elements, each i8 or u8, where sums wrap. 4, 2 and 4 registers of a lane,
  // in the layouts of codegen/layout/dot.h.
  virtual std::array<Value*, 4> multiply(DType a_dtype, DType b_dtype, const std::array<Value*, 4>& a,
                                         const std::array<Value*, 2>& b, const std::array<Value*, 4>& c) = 0;

  // Global memory. `caching` is a hint. If the predicate is false, nothing is read and the result is `other` (null:
  // zeros).
  virtual std::vector<Value*> load_global(Value* address, llvm::Type* word, int count, Value* predicate,
                                          std::span<Value* const> other, Stability stability,
                                          tile::Caching caching) = 0;
  virtual void store_global(Value* address, std::span<Value* const> words, Value* predicate, bool streaming) = 0;
  // Folds `values`, of 32 or 64 bits, into neighbours in memory: sums, or the extremes of integers that are signed or
  // not. Several values are f32 and summed, at an address that is aligned to them all; each is updated by itself.
  virtual void atomic(llvm::AtomicRMWInst::BinOp kind, Value* address, std::span<Value* const> values,
                      Value* predicate) = 0;

  // Prefetches the line of the address to L2.
  virtual void prefetch(Value* address, Value* predicate) = 0;

  // Asynchronous copies of 4, 8 or 16 bytes from global memory to shared memory at an i32 byte offset, both aligned to
  // the size. If `exists` is false, nothing is read and zeros are written; if `predicate` is false, nothing is done;
  // null is true. `caching` as for load_global. commit_copies ends a group of a thread's copies; wait_for_copies waits
  // for all groups but the last `later` ones. Other threads may read them behind a barrier.
  virtual void copy_async(Value* offset, Value* address, int bytes, Value* exists, Value* predicate,
                          tile::Caching caching) = 0;
  virtual void commit_copies() = 0;
  virtual void wait_for_copies(int later) = 0;

  // Cooperative programs (codegen/tile/cooperation.h). Adds `amount` (i32) to the counter if the predicate is true
  // (null: always) and yields the sum (i32), which is undefined if the predicate is false. Has acquire-release order at
  // GPU scope: with a block barrier before and after it, the block's writes are visible to later arrivals, and those of
  // earlier arrivals to the block.
  virtual Value* arrive(Value* counter, Value* amount, Value* predicate) = 0;
  // The same, and waits until all programs have arrived.
  virtual void grid_barrier(Value* counter, Value* amount, Value* predicate) = 0;

  // Packets of 16 bytes between programs (codegen/tile/cooperation.h), if the predicate is true. The payload is three
  // i32 words. Between send and receive, all threads of the block call await_packet: each warp waits for the packet at
  // the address of its one thread with a true predicate, which a thread of the same warp then receives.
  virtual void send(Value* address, std::span<Value* const> payload, Value* predicate) = 0;
  virtual void await_packet(Value* address, Value* predicate) = 0;
  // Waits for the packet, clears it, and yields its payload; zeros if the predicate is false.
  virtual std::vector<Value*> receive(Value* address, Value* predicate) = 0;

  // Folds the words of a bad index into the IndexReport at `report`.
  virtual void report(Value* report, std::span<Value* const> words) = 0;

protected:
  llvm::Module& module_;
  llvm::IRBuilder<>& b_;
};

[[nodiscard]] std::unique_ptr<NumberIntrinsics> nvptx_numbers(llvm::Module& module, llvm::IRBuilder<>& builder,
                                                              bool small_floats);
[[nodiscard]] std::unique_ptr<NumberIntrinsics> emulated_numbers(llvm::Module& module, llvm::IRBuilder<>& builder);
[[nodiscard]] std::unique_ptr<Intrinsics> nvptx_intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder,
                                                           bool dependent_launch);
[[nodiscard]] std::unique_ptr<Intrinsics> emulated_intrinsics(llvm::Module& module, llvm::IRBuilder<>& builder);

// Bytes of a word: 1, 2, 4 or 8.
[[nodiscard]] int word_bytes(llvm::Type* word);

} // namespace tessera::gpu
