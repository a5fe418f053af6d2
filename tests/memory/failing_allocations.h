// Allocations that fail on purpose. Linking this file's source replaces operator new, aligned_alloc and mmap in the
// test program, on all of its threads and for the libraries that it loads. Under the address sanitizer only operator
// new.
#pragma once

namespace tessera::test {

[[nodiscard]] long allocations(); // since the program began

// From now on, allocation number `first` (1 is the next one) fails, and unless `once` all that follow, too.
class FailingAllocations {
public:
  explicit FailingAllocations(long first, bool once = true);
  ~FailingAllocations() { stop(); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
  // Allocations succeed again. True: one of them has failed.
  bool stop();
};

} // namespace tessera::test
