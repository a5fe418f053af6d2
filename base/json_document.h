// JSON whose end needs no memory: the destructor of nlohmann::json allocates where values are nested, and a destructor
// that runs out of memory ends the process.
#pragma once
#include <nlohmann/json.hpp>

namespace tessera {

// Leaves nothing that is nested.
inline void dismantle(nlohmann::json& json) noexcept {
  if (auto* array = json.get_ptr<nlohmann::json::array_t*>()) {
    for (auto& value : *array) dismantle(value);
    array->clear();
  } else if (auto* object = json.get_ptr<nlohmann::json::object_t*>()) {
    for (auto& [key, value] : *object) dismantle(value);
    object->clear();
  }
}

class JsonDocument {
public:
  JsonDocument() = default;
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;
  ~JsonDocument() { dismantle(json); }
  // False: it is no JSON.
  [[nodiscard]] bool parse(const char* begin, const char* end) {
    nlohmann::detail::json_sax_dom_parser<nlohmann::json> reader(json, false);
    return nlohmann::json::sax_parse(begin, end, &reader);
  }
  nlohmann::json json;
};

} // namespace tessera
