#include "base/missing_weights.h"
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace tessera {
namespace {

constexpr size_t kBlock = size_t{4} << 20;    // bytes that are in memory once
constexpr size_t kPattern = size_t{64} << 10; // bytes after which values repeat

Result<Tensor> values(DType dtype, Dims dims) {
  TESSERA_ASSIGN(Tensor out, Tensor::create(dtype, std::move(dims), true));
  const bool real = info(dtype).kind == DTypeKind::Float;
  for (int64_t i = 0; i < out.count(); ++i) {
    const auto mixed = static_cast<uint32_t>(i) * 2654435761U >> 16U;
    if (real)
      out.set_f64(i, 0.01 + 0.1 * mixed / 65536.0);
    else
      out.set_i64(i, mixed & 1U);
  }
  return out;
}

Diagnostic no_memory(const char* what) {
  return {ErrorCode::OutOfMemory,
          std::string("there is no address space for weights without data: ") + what + ": " + std::strerror(errno)};
}

// A file in memory of kBlock bytes of such values, by dtype; it lives as long as the process.
Result<int> block_of(DType dtype) {
  static std::mutex mutex;
  static std::map<DType, int> files;
  std::lock_guard lock(mutex);
  if (auto it = files.find(dtype); it != files.end()) return it->second;
  const auto bits = static_cast<size_t>(info(dtype).bits);
  TESSERA_ASSIGN(const Tensor pattern, values(dtype, {static_cast<int64_t>(kPattern * 8 / bits)}));
  const int fd = ::memfd_create("tessera-weights", MFD_CLOEXEC);
  if (fd < 0) return no_memory("memfd_create");
  for (size_t at = 0; at < kBlock; at += kPattern)
    if (::pwrite(fd, pattern.data(), kPattern, static_cast<off_t>(at)) != static_cast<ssize_t>(kPattern)) {
      Diagnostic d = no_memory("pwrite");
      ::close(fd);
      return d;
    }
  return files[dtype] = fd;
}

} // namespace

Result<Tensor> missing_weight(DType dtype, Dims dims, bool made_up) {
  TESSERA_ASSIGN(const int64_t count, element_count(dims));
  const auto bytes = static_cast<size_t>(byte_size(dtype, count));
  if (bytes == 0) return Tensor::create(dtype, std::move(dims));
  if (!made_up) return Tensor::view(dtype, std::move(dims), {nullptr, nullptr, bytes});
  const auto kind = info(dtype).kind;
  if (bytes <= kPattern || kind == DTypeKind::Complex || kind == DTypeKind::Held || info(dtype).bits < 8)
    return kind == DTypeKind::Complex || kind == DTypeKind::Held ? Tensor::create(dtype, std::move(dims), true)
                                                                 : values(dtype, std::move(dims));
  TESSERA_ASSIGN(const int fd, block_of(dtype));
  const size_t whole = (bytes + kBlock - 1) / kBlock * kBlock;
  void* memory = ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return no_memory("mmap");
  std::shared_ptr<const void> owner(memory, [whole](const void* p) { ::munmap(const_cast<void*>(p), whole); });
  auto* data = static_cast<std::byte*>(memory);
  for (size_t at = 0; at < whole; at += kBlock)
    if (::mmap(data + at, kBlock, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return no_memory("mmap");
  return Tensor::view(dtype, std::move(dims), {owner, data, bytes});
}

} // namespace tessera
