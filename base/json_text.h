// JSON as it is written, where memory may end at any moment: a value is its text, so that its end needs none. (A tree of
// nlohmann::json allocates in its destructor, and a destructor that throws ends the process.)
#pragma once
#include "base/text.h"
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

namespace tessera {

class JsonText {
public:
  struct Member;
  JsonText() : text_("null") {}
  JsonText(std::nullptr_t) : JsonText() {}
  JsonText(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral Int>
  requires(!std::same_as<Int, bool> && !std::same_as<Int, char>) JsonText(Int value) : text_(std::to_string(value)) {}
  JsonText(std::string_view value) : text_(json_quote(value, &repaired_)) {}
  JsonText(const std::string& value) : JsonText(std::string_view(value)) {}
  JsonText(const char* value) : JsonText(std::string_view(value)) {}
  template <std::ranges::range Range>
  requires(!std::convertible_to<Range, std::string_view>) JsonText(const Range& values) : text_("[]") {
    for (const auto& v : values) push_back(v);
  }
  [[nodiscard]] static JsonText array(std::initializer_list<JsonText> values = {}) {
    return JsonText(std::views::all(values));
  }
  [[nodiscard]] static JsonText object(std::initializer_list<Member> members = {});

  // At the end of an array, of an object.
  void push_back(const JsonText& value) { append(value.text_, value.repaired_); }
  void add(std::string_view key, const JsonText& value) {
    bool repaired = value.repaired_;
    append(json_quote(key, &repaired) + ":" + value.text_, repaired);
  }

  [[nodiscard]] const std::string& str() const { return text_; }
  // Bytes that are no UTF-8 were replaced in it.
  [[nodiscard]] bool repaired() const { return repaired_; }

private:
  void append(std::string_view value, bool repaired) {
    const char end = text_.back();
    const bool first = text_.size() == 2;
    text_.pop_back();
    if (!first) text_ += ',';
    text_ += value;
    text_ += end;
    repaired_ = repaired_ || repaired;
  }

  bool repaired_ = false;
  std::string text_;
};

struct JsonText::Member {
  std::string_view key;
  JsonText value;
};

inline JsonText JsonText::object(std::initializer_list<Member> members) {
  JsonText out;
  out.text_ = "{}";
  for (const auto& [key, value] : members) out.add(key, value);
  return out;
}

} // namespace tessera
