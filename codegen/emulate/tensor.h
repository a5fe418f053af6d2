// Tensor cores as a warp uses them, and asynchronous copies of a thread from global to shared memory.
#pragma once
#include "base/dtype.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::emu {

class Block;
struct Thread;

// The value of an element of a tensor core's operand; of f32, as TF32.
[[nodiscard]] double matrix_element(DType dtype, const std::byte* at);

// Loads, stores and products of matrices, as NVIDIA's PTX manual defines them ("ldmatrix", "stmatrix",
// "mma.m16n8k16", "mma.m16n8k32"). Operands and results of a lane are words on its stack; the last lane to arrive computes for all
// lanes.
class Matrices {
public:
  explicit Matrices(Block& block) : block_(block) {}
  void load(Thread& t, int64_t offset, int count, bool transposed, uint32_t* words, int32_t site);
  void store(Thread& t, int64_t offset, int count, bool transposed, uint32_t* words, int32_t site);
  void multiply(Thread& t, DType a_dtype, DType b_dtype, uint32_t* words, int32_t site);

private:
  Block& block_;
};

// A copy by a thread from global to shared memory.
struct ThreadCopy {
  int64_t offset = 0;
  const std::byte* from = nullptr; // null: zeros
  int bytes = 0;
};

// The destination counts as written when the copy starts, so no thread may still read it, and again when the copy ends,
// so reads must follow a barrier behind the wait. Between, no thread may access it, whatever barriers there are.
class ThreadCopies {
public:
  explicit ThreadCopies(Block& block) : block_(block) {}
  void begin(int64_t shared_bytes); // of a block
  void start(Thread& t, int64_t offset, std::byte* from, int bytes, bool exists);
  void wait(Thread& t, size_t later);
  void complete(const ThreadCopy& copy);
  // Others than the thread wait for it: Order checks accesses of its destination.
  void hand_over(const ThreadCopy& copy) { mark(copy, -1); }
  // True, and an error of the thread that accesses these bytes, if a copy to one of them is in flight.
  [[nodiscard]] bool refuse(const Thread& t, int64_t offset, int64_t bytes) const;

private:
  static constexpr int64_t kLeastBytes = 4; // of a copy, to whose multiple it is aligned
  void mark(const ThreadCopy& copy, int thread);

  Block& block_;
  std::vector<int16_t> threads_; // with a copy in flight, by words of shared memory; -1: there is none
};

} // namespace tessera::emu
