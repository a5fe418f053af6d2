#include "frontend/fx/schema.h"
#include "base/embed.h"
#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

TESSERA_EMBED(aten_schemas, TESSERA_ATEN_SCHEMAS)

namespace tessera::fx {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Parts between commas outside of brackets and quotes.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> out;
  int nested = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '"' || c == '\'') quoted = !quoted;
    if (quoted) continue;
    if (c == '(' || c == '[') ++nested;
    if (c == ')' || c == ']') --nested;
    if (c == ',' && (nested == 0 || i == text.size())) {
      if (auto part = trimmed(text.substr(start, i - start)); !part.empty()) out.push_back(part);
      start = i + 1;
    }
  }
  return out;
}

// "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
Schema parse(std::string_view name, std::string_view line) {
  Schema s;
  s.name = name;
  size_t arrow = line.rfind(" -> "), open = line.find('('), close = line.rfind(')', arrow);
  for (std::string_view part : split(line.substr(open + 1, close - open - 1))) {
    if (part == "*") continue;
    SchemaArgument a;
    if (size_t equals = part.find('='); equals != std::string_view::npos) {
      a.fallback = part.substr(equals + 1);
      a.has_fallback = true;
      part = part.substr(0, equals);
    }
    size_t space = part.rfind(' ');
    a.name = part.substr(space + 1);
    a.type = trimmed(part.substr(0, space));
    s.arguments.push_back(a);
  }
  std::string_view results = trimmed(line.substr(arrow + 4));
  if (results.starts_with('(')) results = results.substr(1, results.size() - 2);
  for (std::string_view r : split(results)) s.results.push_back(r);
  return s;
}

class Schemas {
public:
  Schemas() {
    std::string_view text = aten_schemas();
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (size_t open = line.find('('); open != std::string_view::npos && !line.starts_with('#'))
        lines_.emplace(line.substr(0, open), line);
    }
  }
  const Schema* find(std::string_view name) {
    std::lock_guard lock(mutex_);
    if (auto it = parsed_.find(name); it != parsed_.end()) return &it->second;
    auto line = lines_.find(name);
    if (line == lines_.end()) return nullptr;
    return &parsed_.emplace(line->first, parse(line->first, line->second)).first->second;
  }

private:
  std::mutex mutex_;
  std::unordered_map<std::string_view, std::string_view> lines_;
  std::map<std::string_view, Schema> parsed_;
};

} // namespace

const SchemaArgument* Schema::argument(std::string_view name) const {
  auto it = std::find_if(arguments.begin(), arguments.end(), [&](const SchemaArgument& a) { return a.name == name; });
  return it == arguments.end() ? nullptr : &*it;
}

const Schema* find_schema(std::string_view name) {
  static Schemas schemas;
  return schemas.find(name);
}

} // namespace tessera::fx
