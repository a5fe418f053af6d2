#include "count_allocations.h"
#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> counted{0};
}

void* operator new(size_t n) {
  counted.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n, const std::nothrow_t&) noexcept { // not ours otherwise, but freed by us
  counted.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(n ? n : 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace tessera::test {
long allocations() { return counted.load(); }
} // namespace tessera::test
