// An argument of a launch, as callers have it: a number or an address. The parameter decides what becomes of it.
#pragma once
#include <cstdint>
#include <type_traits>

namespace tessera {

struct KernelArgument {
  enum class Kind : int32_t { Pointer, Integer, Unsigned, Float };
  Kind kind = Kind::Integer;
  union {
    const void* pointer;
    int64_t integer = 0;
    uint64_t natural;
    double number;
  };

  KernelArgument() = default;
  template <class T>
  KernelArgument(T* address) : kind(Kind::Pointer), pointer(address) {}
  template <class T>
  requires std::is_arithmetic_v<T> KernelArgument(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      kind = Kind::Float;
      number = value;
    } else if constexpr (std::is_unsigned_v<T>) {
      kind = Kind::Unsigned;
      natural = value;
    } else {
      integer = value;
    }
  }
};

} // namespace tessera
