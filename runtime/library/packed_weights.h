// Constant weights in the layout that a library call reads, made once per process: executors, variants and shapes that
// need the same weights in the same layout share them, for as long as any of them lives.
//
// A plan requests a pack (PackRequests::want) while it is made; build() then fills all that were requested, in parallel
// over their parts, and gives the pages of mapped weight files back to the system as soon as they have been read.
// Whoever else reads such a constant, a gather of embeddings that are also the last product's weights, has its pages
// back when it touches them.
#pragma once
#include "base/hash.h"
#include "base/tensor.h"
#include "runtime/executor.h"
#include "runtime/mapped_regions.h"
#include "runtime/memory_account.h"
#include <atomic>
#include <mutex>

namespace tessera {

class PackedWeight {
public:
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

private:
  friend class PackRequests;
  enum State : int { Building, Ready, Failed, NoMemory }; // NoMemory: an exception ended the packing
  const std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<std::byte> block_;
  std::shared_ptr<const void> counted_; // by the account of who requested it first
  std::shared_ptr<const void> source_;  // keeps the source's address from being reused while this is found by it
  std::atomic<int> state_{Building};
};

class PackRequests {
public:
  explicit PackRequests(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  // Packs that were not built have failed: nobody waits for them any longer.
  ~PackRequests();
  PackRequests(const PackRequests&) = delete;
  PackRequests& operator=(const PackRequests&) = delete;
  struct Job {
    std::string key; // layout, besides the address of the source: equal keys mean equal packs
    size_t bytes = 0;
    int parts = 1; // fill() is called for each part, on any thread
    // Parts [i * parts_per_range, (i + 1) * parts_per_range) read the bytes [first, second) of the source that
    // range(i) gives, or any when it is not set: their pages go when these parts are done.
    int parts_per_range = 1;
    std::function<std::pair<size_t, size_t>(int)> range;
    std::function<bool(std::byte* to, const std::byte* from, int part)> fill; // false: the library refused
  };
  // Thread-safe. Error OutOfMemory.
  [[nodiscard]] Result<std::shared_ptr<const PackedWeight>> want(const Tensor& source, Job job);
  // Fills what this object was the first to request, then waits for what others were. To be called before any pack is
  // read, and also when planning has failed: others may wait for what was requested. Error DeviceError.
  [[nodiscard]] Status build(ThreadPool& pool);
  [[nodiscard]] int64_t built_bytes() const { return built_bytes_; }
  [[nodiscard]] MemoryAccount& account() const { return *account_; }

private:
  struct Pending {
    std::shared_ptr<PackedWeight> pack;
    Tensor source;
    Job job;
  };
  void finish(PackedWeight::State state); // of those that are still being built

  std::shared_ptr<MemoryAccount> account_;
  std::mutex mutex_;
  std::vector<Pending> mine_;
  std::vector<std::shared_ptr<PackedWeight>> others_;
  int64_t built_bytes_ = 0;
};

} // namespace tessera
