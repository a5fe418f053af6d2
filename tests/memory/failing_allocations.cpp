#include "failing_allocations.h"
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <execinfo.h>
#include <limits>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr long kNever = std::numeric_limits<long>::max();
std::atomic<long> counted{0};
std::atomic<long> first_failing{kNever}, last_failing{kNever};
std::atomic<bool> has_failed{false};

// The frames in which the latest allocation failed, printed where nobody catches the exception.
void* failed_at[48];
std::atomic<int> failed_frames{0};

[[noreturn]] void terminate_with_place() {
  constexpr char kHead[] = "terminate; the latest allocation that failed on purpose:\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kHead, sizeof kHead - 1);
  ::backtrace_symbols_fd(failed_at, failed_frames.load(), STDERR_FILENO);
  constexpr char kHere[] = "and terminate was called at:\n";
  [[maybe_unused]] const ssize_t also = ::write(STDERR_FILENO, kHere, sizeof kHere - 1);
  void* here[48];
  ::backtrace_symbols_fd(here, ::backtrace(here, 48), STDERR_FILENO);
  std::abort();
}
// The first call of backtrace loads a library, which allocates.
const bool prepared = (::backtrace(failed_at, 1), std::set_terminate(terminate_with_place), true);

bool fails() {
  const long number = counted.fetch_add(1, std::memory_order_relaxed) + 1;
  if (number < first_failing.load(std::memory_order_relaxed) || number > last_failing.load(std::memory_order_relaxed))
    return false;
  has_failed.store(true, std::memory_order_relaxed);
  failed_frames.store(::backtrace(failed_at, 48));
  return true;
}

void* allocate(size_t bytes, size_t alignment) {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes ? bytes : 1);
  void* p = nullptr;
  return ::posix_memalign(&p, alignment, bytes) == 0 ? p : nullptr;
}

// Follows the standard: a handler may find memory, or throws.
void* allocate_or_throw(size_t bytes, size_t alignment) {
  while (true) {
    if (void* p = allocate(bytes, alignment)) return p;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

} // namespace

// The forms for arrays call these.
void* operator new(size_t n) { return allocate_or_throw(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return allocate_or_throw(n, static_cast<size_t>(a)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* p = allocate(bytes, alignment);
  if (!p) errno = ENOMEM;
  return p;
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
}
#endif

namespace tessera::test {

long allocations() { return counted.load(); }

FailingAllocations::FailingAllocations(long first, bool once) {
  has_failed.store(false);
  const long number = counted.load() + first;
  last_failing.store(once ? number : kNever);
  first_failing.store(number);
}

bool FailingAllocations::stop() {
  first_failing.store(kNever);
  return has_failed.load();
}

} // namespace tessera::test
