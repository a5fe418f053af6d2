// Memory of requests, responses and batches: where it lies, copies between such places, blocks that grow.
#pragma once
#include "serving/triton/error.h"
#include <cstddef>
#include <memory>

namespace tessera::triton {

struct Place {
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0; // number of the GPU
  [[nodiscard]] bool on_gpu() const { return memory == TRITONSERVER_MEMORY_GPU; }
};
// Whether code that runs at `a` can use memory of `b`. Pinned memory is the host's.
[[nodiscard]] inline bool same_memory(const Place& a, const Place& b) {
  return a.on_gpu() ? b.on_gpu() && a.device == b.device : !b.on_gpu();
}

// Copies in the order in which they are put on one stream of a GPU, or at once between places of the host. NVIDIA's
// driver is opened by the first copy that needs it, or by create() for a model that runs on a GPU.
class Copies {
public:
  // `home`: where the model runs. Error UNAVAILABLE where that is a GPU that cannot be used.
  [[nodiscard]] static Error create(const Place& home, std::unique_ptr<Copies>& out);
  ~Copies();
  [[nodiscard]] Error copy(void* to, const Place& to_place, const void* from, const Place& from_place, size_t bytes);
  // Until all that was put on the stream is done; an error of any of it.
  [[nodiscard]] Error wait();
  [[nodiscard]] const Place& home() const { return home_; }
  [[nodiscard]] void* stream() const; // a CUstream; null where the model runs on the host

private:
  explicit Copies(const Place& home);
  [[nodiscard]] Error open_driver(int64_t gpu);
  struct Driver;
  Place home_;
  std::unique_ptr<Driver> driver_;
};

// A block of memory at the place where a session runs, aligned for every element type. It grows and never shrinks.
class Block {
public:
  Block() = default;
  Block(Block&& other) noexcept;
  ~Block() { release(); }
  // At least `bytes` of it, without the contents of before.
  [[nodiscard]] Error reserve(const tessera_session* session, const Copies& copies, size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; } // not null after reserve()

private:
  void release();
  std::byte* data_ = nullptr;
  tessera_memory* memory_ = nullptr; // of a GPU
  size_t bytes_ = 0;
};

} // namespace tessera::triton
