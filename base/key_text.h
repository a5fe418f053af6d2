// Texts that are equal for equal things alone, for keys of caches: different fields give different texts, whatever they
// contain.
#pragma once
#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera {

class KeyText {
public:
  // Strings, numbers, enumerations, and pairs, lists, sets and maps of them.
  template <class T>
  void add(std::string_view name, const T& value) {
    put(name);
    put(value);
    text_ += '\n';
  }
  [[nodiscard]] const std::string& str() const { return text_; }

private:
  void put(std::string_view text) {
    text_ += std::to_string(text.size());
    text_ += ':';
    text_ += text;
  }
  template <class T>
  void put(const T& value) {
    if constexpr (std::convertible_to<const T&, std::string_view>) {
      put(std::string_view(value));
    } else if constexpr (std::is_enum_v<T>) {
      put(static_cast<int64_t>(value));
    } else if constexpr (std::floating_point<T>) {
      put(std::bit_cast<int64_t>(static_cast<double>(value)));
    } else if constexpr (std::integral<T>) {
      text_ += ' ';
      text_ += std::to_string(value);
    } else if constexpr (requires { value.first, value.second; }) {
      put(value.first);
      put(value.second);
    } else {
      put(value.size());
      for (const auto& one : value) put(one);
    }
  }
  std::string text_;
};

} // namespace tessera
