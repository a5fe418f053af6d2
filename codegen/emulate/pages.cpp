#include "codegen/emulate/pages.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace tessera::emu {

Result<Pages> Pages::reserve(size_t bytes) {
  Pages p;
  p.bytes_ = std::max<size_t>(bytes, 1);
  void* data = ::mmap(nullptr, p.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return Diagnostic(ErrorCode::OutOfMemory,
                      std::to_string(bytes) + " bytes of address space for the emulator: " + std::strerror(errno));
  p.data_ = static_cast<std::byte*>(data);
  return p;
}
Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Pages::~Pages() {
  if (data_) ::munmap(data_, bytes_);
}

} // namespace tessera::emu
