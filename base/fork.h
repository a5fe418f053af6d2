// Handling of fork(). Only the thread that forks lives on in the child: a lock that another one held stays locked
// there, and a thread that would do work is gone. So a fork waits until no thread is inside the library, for
// kForkWaitMs at most; then the child can go on with all that there is. If one was inside all that time (a compile
// takes longer), the child is refused: each entry is an error at once. Threads of the library's own are started again
// where they help a caller (helper_threads.h); work in the background does not go on in a child.
#pragma once
#include "base/result.h"
#include <cstdint>

namespace tessera {

inline constexpr int kForkWaitMs = 1000;

// How many forks lie between the process that loaded the library and this one.
[[nodiscard]] uint32_t fork_generation() noexcept;
// Error Usage: this process was forked while a thread was inside the library.
[[nodiscard]] bool refused_after_fork() noexcept;
[[nodiscard]] Diagnostic fork_refusal();

// Remembers in which process it was made.
class OfProcess {
public:
  [[nodiscard]] bool here() const noexcept { return generation_ == fork_generation(); }

private:
  uint32_t generation_ = fork_generation();
};

// This thread is inside the library as long as it lives. They nest. A few nanoseconds.
class InsideLibrary {
public:
  InsideLibrary() noexcept;
  ~InsideLibrary();
  InsideLibrary(const InsideLibrary&) = delete;
  InsideLibrary& operator=(const InsideLibrary&) = delete;
};
// This thread, which is inside, is for a while as if it were not: in a function of the caller's, which may wait for what a fork holds (Python's lock): a fork does not wait
// for it. The caller of the function holds no lock that others need.
class OutsideLibrary {
public:
  OutsideLibrary() noexcept;
  ~OutsideLibrary();
  OutsideLibrary(const OutsideLibrary&) = delete;
  OutsideLibrary& operator=(const OutsideLibrary&) = delete;

private:
  int depth_;
};

// Waits until ready(), outside of the library: what a thread of ours does that has no work. The lock is released while the
// thread comes back inside.
template <class Lock, class Condition, class Ready>
void wait_outside(Lock& lock, Condition& condition, const Ready& ready) {
  while (!ready()) {
    {
      const OutsideLibrary outside;
      condition.wait(lock, ready);
      lock.unlock();
    }
    lock.lock();
  }
}
// The same, for so long at most.
template <class Lock, class Condition, class Duration, class Ready>
void wait_outside_for(Lock& lock, Condition& condition, const Duration& most, const Ready& ready) {
  {
    const OutsideLibrary outside;
    condition.wait_for(lock, most, ready);
    lock.unlock();
  }
  lock.lock();
}

} // namespace tessera
