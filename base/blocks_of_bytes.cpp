#include "base/blocks_of_bytes.h"
#include "base/fork.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <sys/mman.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace tessera {
namespace {

constexpr size_t kAlign = 64, kHuge = size_t{4} << 20;
constexpr int kPerOctave = 8; // sizes that blocks are rounded to: at most an eighth is lost
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kRounded = SIZE_MAX,
                 kLarge = SIZE_MAX; // it sees accesses beyond blocks of the heap, and beyond their ends
#else
constexpr size_t kRounded = size_t{4} << 10, kLarge = size_t{1} << 20;
#endif

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

size_t rounded(size_t bytes) {
  if (bytes < kRounded) return std::max(round_up(bytes, kAlign), kAlign);
  return round_up(bytes, std::bit_floor(bytes) / kPerOctave);
}

// From the heap. aligned_alloc() would not do: glibc's takes more than it gives back, so that a block that was freed
// never fits the next one of its size.
std::byte* allocate_small(size_t size) noexcept {
  auto* whole = static_cast<std::byte*>(::operator new(size + kAlign, std::nothrow));
  if (whole == nullptr) return nullptr;
  std::byte* data = whole + kAlign - reinterpret_cast<uintptr_t>(whole) % kAlign; // a pointer fits in front of it
  std::memcpy(data - sizeof whole, &whole, sizeof whole);
  return data;
}
void free_small(std::byte* data) noexcept {
  std::byte* whole = nullptr;
  std::memcpy(&whole, data - sizeof whole, sizeof whole);
  ::operator delete(whole);
}

// Large blocks that nobody has, the one given back last in front.
class Kept {
public:
  std::byte* take(size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count_; ++i)
      if (blocks_[i].bytes == bytes) return remove(i);
    return nullptr;
  }
  void give(std::byte* data, size_t bytes) noexcept {
    if (bytes > kMaxBytes) {
      ::munmap(data, bytes);
      return;
    }
    const std::lock_guard lock(mutex_);
    while (count_ == kMax || bytes_ + bytes > kMaxBytes) unmap_last();
    std::copy_backward(blocks_.begin(), blocks_.begin() + count_, blocks_.begin() + count_ + 1);
    blocks_[0] = {data, bytes};
    ++count_;
    bytes_ += bytes;
  }
  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    while (count_ > 0) unmap_last();
  }

private:
  static constexpr size_t kMax = 16, kMaxBytes = size_t{32} << 20;
  struct Block {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  std::byte* remove(size_t i) noexcept {
    std::byte* data = blocks_[i].data;
    bytes_ -= blocks_[i].bytes;
    std::copy(blocks_.begin() + i + 1, blocks_.begin() + count_, blocks_.begin() + i);
    --count_;
    return data;
  }
  void unmap_last() noexcept {
    const size_t bytes = blocks_[count_ - 1].bytes;
    ::munmap(remove(count_ - 1), bytes);
  }
  std::mutex mutex_;
  std::array<Block, kMax> blocks_;
  size_t count_ = 0, bytes_ = 0;
};
Kept& kept() {
  // Blocks are given back until the process ends, so it is never destroyed; it is needed where there is no memory, too.
  alignas(Kept) static std::byte place[sizeof(Kept)];
  static auto* const all = new (place) Kept;
  return *all;
}

} // namespace

BlockOfBytes take_block(size_t bytes) noexcept {
  const InsideLibrary inside; // whoever frees a tensor may be outside
  if (bytes > SIZE_MAX / 2) return {};
  const size_t size = rounded(bytes);
  if (bytes < kLarge) return {allocate_small(size), false};
  if (std::byte* again = kept().take(size)) return {again, false};
  void* fresh = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return {};
  if (size >= kHuge) (void)::madvise(fresh, size, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(fresh), true};
}

void give_block(std::byte* data, size_t bytes) noexcept {
  const InsideLibrary inside;
  if (bytes < kLarge)
    free_small(data);
  else
    kept().give(data, rounded(bytes));
}

void return_free_memory() noexcept {
  kept().clear();
#if defined(__GLIBC__)
  (void)::malloc_trim(0);
#endif
}

} // namespace tessera
