// Structs of the C interface that begin with struct_size: what of a caller's the library knows.
#pragma once
#include "base/result.h"
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

namespace tessera {

constexpr size_t kLargestStruct = 4096; // bytes; beyond it, struct_size was not set

// Bytes of a struct up to a field and with it: of the fields that the ABI version's first library has.
#define TESSERA_BYTES_WITH(type, field) (offsetof(type, field) + sizeof(type::field))

// `first`: bytes of the ABI version's first library. Error Usage: the size is none that a version has.
[[nodiscard]] inline Status check_struct_size(const char* name, size_t size, size_t first, size_t known) {
  if (size >= first && size <= kLargestStruct) return {};
  return Diagnostic(ErrorCode::Usage, std::string(name) + ": struct_size is " + std::to_string(size) + ", expected " +
                                          std::to_string(known))
      .note("set it to sizeof(" + std::string(name) +
            "), and the rest of the struct to zero before its fields are set");
}

// A copy with what the caller's version has; fields that it lacks are zero. Errors: Usage; UnsupportedFeature where a
// field that this library does not know is not zero.
template <class T>
[[nodiscard]] Result<T> take_struct(const char* name, const T& given, size_t first) {
  const size_t size = given.struct_size;
  TESSERA_TRY(check_struct_size(name, size, first, sizeof(T)));
  const auto* bytes = reinterpret_cast<const std::byte*>(&given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](std::byte b) { return b != std::byte{}; }))
    return Diagnostic(ErrorCode::UnsupportedFeature, std::string(name) + ": struct_size is " + std::to_string(size) +
                                                         ", this library knows " + std::to_string(sizeof(T)) +
                                                         " bytes, and the rest is not zero")
        .note("the program was built for a later version: leave its new fields zero, or use that version's library");
  T out{};
  std::memcpy(&out, &given, std::min(size, sizeof(T)));
  out.struct_size = sizeof(T);
  return out;
}

// The same in the other direction: fills as much as the caller's version has, and its later fields with zero.
template <class T>
[[nodiscard]] Status give_struct(const char* name, const T& from, size_t first, T& to) {
  const size_t size = to.struct_size;
  TESSERA_TRY(check_struct_size(name, size, first, sizeof(T)));
  auto* bytes = reinterpret_cast<std::byte*>(&to);
  std::memcpy(bytes, &from, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  to.struct_size = size;
  return {};
}

} // namespace tessera
