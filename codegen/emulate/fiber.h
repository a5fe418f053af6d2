// Fibers: functions with stacks of their own that hand the processor to each other. One system thread runs a thousand
// threads of a block this way, and a switch costs some ten nanoseconds.
#pragma once
#include "graph/support/result.h"
#include <cstddef>
#include <memory>

namespace tessera::emu {

// Stacks of 256 KB (unoptimized code of tiles with many registers a thread), of which pages cost memory once they are
// touched. They lie side by side: a page below each one whose touch is a fault would cost two of the 65530 areas of
// memory that Linux gives a process, and blocks that wait for each other are tens of thousands of threads. Who runs on
// them checks against least() instead; below the lowest one lie as many bytes again, and a page whose touch is a fault.
class Stacks {
public:
  // Stacks come from a pool of the process and go back to it. Error OutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Stacks>> take(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  static constexpr size_t kBytes = 256 << 10;
  // The low end of stack i.
  [[nodiscard]] std::byte* bottom(int i) const;
  // A stack pointer below this is of a frame that stack i has no room for, with what it calls.
  [[nodiscard]] const std::byte* least(int i) const { return bottom(i) + kForCalls; }
  static constexpr size_t kForCalls = 32 << 10;
  struct Region; // of memory, with room for many stacks

private:
  explicit Stacks(std::unique_ptr<Region> region);
  std::unique_ptr<Region> region_;
};

// A place in a computation. A default one stands for the caller's own stack, once it has switched away from it.
class Fiber {
public:
  // The next switch to this fiber calls entry(argument) on the stack. entry calls entered() first and must not return:
  // it switches away for good. What the fiber did before, if anything, is forgotten without destructors.
  void start(std::byte* stack_bottom, size_t stack_bytes, void (*entry)(void*), void* argument);
  // Leaves the computation `from`, which is the running one, and goes on with `to`, until somebody switches back.
  static void switch_from_to(Fiber& from, Fiber& to);
  static void entered();

private:
  static void arrived(void* fake_stack); // the address sanitizer's bookkeeping
  void* place_ = nullptr;                // stack pointer, or context of the C library
  std::byte* bottom_ = nullptr;
  size_t bytes_ = 0;
#if !defined(__x86_64__) || defined(TESSERA_FIBERS_BY_UCONTEXT)
  std::shared_ptr<void> context_;
#endif
};

} // namespace tessera::emu
