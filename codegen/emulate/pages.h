// Sparsely used address space.
#pragma once
#include "base/result.h"
#include <cstddef>

namespace tessera::emu {

// Reserved address space, initially zero; only touched pages take memory.
class Pages {
public:
  Pages() = default;
  [[nodiscard]] static Result<Pages> reserve(size_t bytes);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

} // namespace tessera::emu
