#include "graph/ir/attribute.h"
#include "graph/ir/text.h"
#include <algorithm>

namespace tessera {

namespace {
auto position(auto& items, std::string_view name) {
  return std::lower_bound(items.begin(), items.end(), name,
                          [](const auto& item, std::string_view n) { return item.first < n; });
}
} // namespace

Attribute::Attribute() = default;
Attribute::Attribute(const Attribute&) = default;
Attribute::Attribute(Attribute&&) noexcept = default;
Attribute& Attribute::operator=(const Attribute&) = default;
Attribute& Attribute::operator=(Attribute&&) noexcept = default;
Attribute::~Attribute() = default;

Attributes::Attributes() = default;
Attributes::Attributes(const Attributes&) = default;
Attributes::Attributes(Attributes&&) noexcept = default;
Attributes& Attributes::operator=(const Attributes&) = default;
Attributes& Attributes::operator=(Attributes&&) noexcept = default;
Attributes::~Attributes() = default;
Attributes::Attributes(std::initializer_list<std::pair<std::string, Attribute>> items) {
  for (const auto& [name, value] : items) set(name, value);
}

void Attributes::set(std::string_view name, Attribute value) {
  auto it = position(items_, name);
  if (it != items_.end() && it->first == name)
    it->second = std::move(value);
  else
    items_.emplace(it, std::string(name), std::move(value));
}

void Attributes::erase(std::string_view name) {
  auto it = position(items_, name);
  if (it != items_.end() && it->first == name) items_.erase(it);
}

const Attribute* Attributes::find(std::string_view name) const {
  auto it = position(items_, name);
  return it != items_.end() && it->first == name ? &it->second : nullptr;
}

int64_t Attributes::i(std::string_view name, int64_t fallback) const {
  auto* v = get<int64_t>(name);
  return v ? *v : fallback;
}

double Attributes::f(std::string_view name, double fallback) const {
  auto* v = get<double>(name);
  return v ? *v : fallback;
}

std::string Attributes::s(std::string_view name, std::string fallback) const {
  auto* v = get<std::string>(name);
  return v ? *v : fallback;
}

Ints Attributes::ints(std::string_view name, Ints fallback) const {
  auto* v = get<Ints>(name);
  return v ? *v : fallback;
}

SymShape Attributes::dims(std::string_view name) const {
  if (auto* dims = get<SymShape>(name)) return *dims;
  if (auto* ints = get<Ints>(name)) return {ints->begin(), ints->end()};
  return {};
}

std::string str(const Attribute& value) { return text::attribute(value, false, 0); }

} // namespace tessera
