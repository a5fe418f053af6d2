// JSON of a file that may be damaged: every access checks what is there, and an error says where it stands.
#pragma once
#include "base/tensor.h"
#include <nlohmann/json.hpp>

namespace tessera::file {

// Thrown by readers of files and caught where the file was opened.
struct Corrupt {
  std::string what;
};
[[noreturn]] inline void corrupt(const std::string& what) { throw Corrupt{what}; }

// One value of a document. Views: the document and the values that this one was reached by outlive it.
class JsonValue {
public:
  using Json = nlohmann::json;
  JsonValue(const Json& json, std::string_view name) : json_(&json), name_(name) {}

  [[nodiscard]] JsonValue at(std::string_view key) const {
    if (!json_->is_object()) wrong("an object");
    auto it = json_->find(key);
    if (it == json_->end()) corrupt(place() + " has no '" + std::string(key) + "'");
    return {*it, key, this};
  }
  [[nodiscard]] bool has(std::string_view key) const { return json_->is_object() && json_->contains(key); }
  [[nodiscard]] bool is_null() const { return json_->is_null(); }
  [[nodiscard]] size_t size() const {
    if (!json_->is_array()) wrong("an array");
    return json_->size();
  }
  [[nodiscard]] JsonValue at(size_t index) const {
    if (index >= size())
      corrupt(place() + " has " + std::to_string(size()) + " entries, not " + std::to_string(index + 1));
    return {(*json_)[index], index, this};
  }
  // read(value) of every entry.
  template <class Read>
  void each(Read&& read) const {
    for (size_t i = 0, n = size(); i < n; ++i) read(at(i));
  }
  template <class Read>
  auto list(Read&& read) const {
    std::vector<std::decay_t<decltype(read(*this))>> all;
    each([&](const JsonValue& v) { all.push_back(read(v)); });
    return all;
  }

  // Names of an object's members, in the order of the alphabet.
  [[nodiscard]] std::vector<std::string_view> keys() const {
    if (!json_->is_object()) wrong("an object");
    std::vector<std::string_view> all;
    for (const auto& [key, value] : json_->get_ref<const Json::object_t&>()) all.emplace_back(key);
    return all;
  }
  [[nodiscard]] bool is_text() const { return json_->is_string(); }
  [[nodiscard]] bool is_number() const { return json_->is_number(); }
  [[nodiscard]] double number() const {
    if (!json_->is_number()) wrong("a number");
    return json_->get<double>();
  }
  [[nodiscard]] std::string text() const {
    if (!json_->is_string()) wrong("a string");
    return json_->get_ref<const std::string&>();
  }
  [[nodiscard]] bool flag() const {
    if (!json_->is_boolean()) wrong("true or false");
    return json_->get<bool>();
  }
  // A whole number in [least, most].
  template <class Int = int64_t>
  [[nodiscard]] Int integer(Int least, Int most) const {
    bool fits = false;
    Int value{};
    if (json_->is_number_unsigned()) {
      auto v = json_->get<uint64_t>();
      fits = std::in_range<Int>(v);
      value = static_cast<Int>(v);
    } else if (json_->is_number_integer()) {
      auto v = json_->get<int64_t>();
      fits = std::in_range<Int>(v);
      value = static_cast<Int>(v);
    }
    if (!fits || value < least || value > most)
      wrong("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return value;
  }
  [[nodiscard]] int64_t integer() const { return integer<int64_t>(INT64_MIN, INT64_MAX); }
  [[nodiscard]] uint64_t word() const { return integer<uint64_t>(0, UINT64_MAX); }
  [[nodiscard]] DType dtype() const {
    auto found = dtype_from_name(text());
    if (!found) wrong("an element type");
    return *found;
  }

  // "plan.steps[3].kernel.grid"
  [[nodiscard]] std::string place() const {
    if (!parent_) return std::string(name_);
    return parent_->place() + (name_.empty() ? "[" + std::to_string(index_) + "]" : "." + std::string(name_));
  }
  // Error: something else was expected here.
  [[noreturn]] void wrong(const std::string& expected) const {
    constexpr size_t kMax = 60; // characters of what is there
    std::string found =
        json_->is_structured() ? json_->type_name() : json_->dump(-1, ' ', true, Json::error_handler_t::replace);
    if (found.size() > kMax) found = found.substr(0, kMax) + "...";
    corrupt(place() + " is " + found + ", expected " + expected);
  }

private:
  JsonValue(const Json& json, std::string_view name, const JsonValue* parent)
      : json_(&json), name_(name), parent_(parent) {}
  JsonValue(const Json& json, size_t index, const JsonValue* parent) : json_(&json), index_(index), parent_(parent) {}

  const Json* json_;
  std::string_view name_;
  size_t index_ = 0;
  const JsonValue* parent_ = nullptr;
};

} // namespace tessera::file
