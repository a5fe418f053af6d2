// Attributes of a node: a small sorted map from name to a typed value.
#pragma once
#include "base/tensor.h"
#include "symbols/expr.h"
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

class Graph;

using Ints = std::vector<int64_t>;
using AttributeValue =
    std::variant<int64_t, double, std::string, Ints, std::vector<double>, std::vector<std::string>, DType,
                 SymShape /* dimensions, offsets */, Tensor, std::shared_ptr<Graph> /* subgraph */>;
struct Attribute : AttributeValue {
  using AttributeValue::AttributeValue;
  Attribute();
  Attribute(const Attribute&);
  Attribute(Attribute&&) noexcept;
  Attribute& operator=(const Attribute&);
  Attribute& operator=(Attribute&&) noexcept;
  ~Attribute();
};

class Attributes {
public:
  Attributes();
  Attributes(const Attributes&);
  Attributes(Attributes&&) noexcept;
  Attributes& operator=(const Attributes&);
  Attributes& operator=(Attributes&&) noexcept;
  ~Attributes();
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> items);
  void set(std::string_view name, Attribute value);
  void erase(std::string_view name);
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] const Attribute* find(std::string_view name) const;
  template <class T>
  [[nodiscard]] const T* get(std::string_view name) const {
    auto* a = find(name);
    return a ? std::get_if<T>(a) : nullptr;
  }
  // With a default; the type was checked against the record when the node was added.
  [[nodiscard]] int64_t i(std::string_view name, int64_t fallback = 0) const;
  [[nodiscard]] double f(std::string_view name, double fallback = 0) const;
  [[nodiscard]] std::string s(std::string_view name, std::string fallback = "") const;
  [[nodiscard]] Ints ints(std::string_view name, Ints fallback = {}) const;
  [[nodiscard]] SymShape dims(std::string_view name) const; // of SymShape or Ints
  [[nodiscard]] const std::vector<std::pair<std::string, Attribute>>& items() const { return items_; }

private:
  std::vector<std::pair<std::string, Attribute>> items_; // sorted by name
};
[[nodiscard]] std::string str(const Attribute& value); // as the text form prints it

} // namespace tessera
