// The memory that executors hold, counted over all that share an account: arenas, scratch memory, copies of inputs, outputs
// that the library allocates, plans of shapes with their graphs, and weights that were packed or uploaded for one of the
// executors first (others that show the same weights share them). Code and mapped files are not in it. An account may have
// a limit, and functions of the caller's that give the host's part of it, plans and weights excepted.
#pragma once
#include "base/result.h"
#include <atomic>
#include <memory>

namespace tessera {

class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
public:
  enum class Where : uint8_t { Host, Device };
  // Called from any thread, also several at a time. All null: the library allocates by itself.
  struct Functions {
    void* (*allocate)(void* context, size_t bytes, size_t alignment) = nullptr; // null: there is no memory
    void (*release)(void* context, void* data, size_t bytes) = nullptr;
    void* context = nullptr;
  };
  // `limit`: most bytes of host and device together, 0 for any number.
  explicit MemoryAccount(int64_t limit) : MemoryAccount(limit, Functions()) {}
  MemoryAccount(int64_t limit, const Functions& functions) : limit_(limit), functions_(functions) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // Counts memory that is about to be allocated. Error OutOfMemory: the limit would be exceeded, and nothing is counted.
  // `what`: "intermediate results".
  [[nodiscard]] Status take(Where where, int64_t bytes, const char* what);
  void give(Where where, int64_t bytes) noexcept;
  // Error OutOfMemory: a call that needs so much exceeds the limit whatever else is held.
  [[nodiscard]] Status check_call(int64_t temporaries, int64_t outputs) const;
  // Memory of the host, counted until its last owner is gone; that may be after the executors. 64-byte aligned. Errors:
  // OutOfMemory.
  [[nodiscard]] Result<std::shared_ptr<std::byte>> allocate(size_t bytes, const char* what);

  // The same for memory that somebody else allocates: counted for as long as what is returned lives.
  [[nodiscard]] Result<std::shared_ptr<const void>> hold(Where where, int64_t bytes, const char* what);

  [[nodiscard]] int64_t limit() const { return limit_; }
  [[nodiscard]] bool has_functions() const { return functions_.allocate != nullptr; }
  // The caller's functions, or null; what they give is not counted here.
  [[nodiscard]] std::byte* call_allocate(size_t bytes, size_t alignment) const;
  void call_release(std::byte* data, size_t bytes) const;
  [[nodiscard]] int64_t held(Where where) const { return held_[index(where)].load(std::memory_order_relaxed); }
  [[nodiscard]] int64_t peak() const { return peak_.load(std::memory_order_relaxed); } // of both together

private:
  static constexpr size_t index(Where where) { return static_cast<size_t>(where); }
  const int64_t limit_;
  const Functions functions_;
  std::atomic<int64_t> held_[2] = {0, 0}, total_{0}, peak_{0}; // bytes
};

} // namespace tessera
