// Fibers: cooperatively scheduled functions with separate stacks. One system thread runs the up to 1024 threads of a
// block; a switch takes about ten nanoseconds.
#pragma once
#include "base/result.h"
#include <cstddef>
#include <memory>

namespace tessera::emu {

// Contiguous stacks of 256 KB (unoptimised code may use many registers per thread); only touched pages take memory.
// There is no guard page per stack: each would take two of the 65530 mappings that Linux allows a process, and
// cooperative blocks have tens of thousands of threads. Code on a stack compares its stack pointer with least()
// instead. Below the lowest stack lie 256 KB of slack and one guard page.
class Stacks {
public:
  // Takes stacks from a pool of the process; the destructor returns them. Error OutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Stacks>> take(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  static constexpr size_t kBytes = 256 << 10;
  // The low end of stack i.
  [[nodiscard]] std::byte* bottom(int i) const;
  // The least stack pointer of a frame on stack i: below it there is no room for the functions that the frame calls.
  [[nodiscard]] const std::byte* least(int i) const { return bottom(i) + kForCalls; }
  static constexpr size_t kForCalls = 32 << 10;
  struct Region; // memory of many stacks

private:
  explicit Stacks(std::unique_ptr<Region> region);
  std::unique_ptr<Region> region_;
};

// A suspended computation. A default-constructed one is the calling thread's own stack, after a switch away from it.
class Fiber {
public:
  // The next switch to this fiber calls entry(argument) on the stack. entry must call entered() first and must not
  // return; it ends by switching away. A previous computation of the fiber is dropped without running destructors.
  void start(std::byte* stack_bottom, size_t stack_bytes, void (*entry)(void*), void* argument);
  // Suspends `from`, the running computation, and resumes `to`; returns when another computation switches to `from`.
  static void switch_from_to(Fiber& from, Fiber& to);
  static void entered();

private:
  static void arrived(void* fake_stack); // bookkeeping of the address sanitizer
  void* place_ = nullptr;                // stack pointer, or ucontext
  std::byte* bottom_ = nullptr;
  size_t bytes_ = 0;
#if !defined(__x86_64__) || defined(TESSERA_FIBERS_BY_UCONTEXT)
  std::shared_ptr<void> context_;
#endif
};

} // namespace tessera::emu
