// Finds operators and steps in the report by the names that a user calls them.
#include "base/similar.h"
#include "report/report.h"
#include <algorithm>
#include <charconv>

namespace tessera::command::report {

namespace {

using Objects = std::vector<const Json*>;

bool is(const Json& object, const char* field, const std::string& name) {
  return object.contains(field) && object.at(field).get<std::string>() == name;
}

// "model.py:42" of "/home/me/model.py:42".
bool is_source(const Json& o, const std::string& name) {
  if (!o.contains("source")) return false;
  const std::string source = o.at("source").get<std::string>();
  return source == name || source.ends_with("/" + name);
}

bool is_in_module(const Json& o, const std::string& name) {
  if (!o.contains("module")) return false;
  const std::string module = o.at("module").get<std::string>();
  return module == name || module.starts_with(name + ".");
}

Diagnostic unknown(const std::string& message, const std::string& name, const std::vector<std::string>& known) {
  Diagnostic d(ErrorCode::Usage, message);
  if (const auto close = similar(name, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return d;
}

} // namespace

Result<std::vector<const Json*>> find_operators(const Json& report, const std::string& name) {
  const Json& all = report.at("operators");
  const auto those = [&](const auto& matches) {
    Objects out;
    for (const Json& o : all)
      if (matches(o)) out.push_back(&o);
    return out;
  };
  if (auto found = those([&](const Json& o) { return is(o, "id", name) || is(o, "name", name); }); !found.empty())
    return found;
  if (auto found = those([&](const Json& o) { return is_source(o, name); }); !found.empty()) return found;
  if (auto found = those([&](const Json& o) { return is_in_module(o, name); }); !found.empty()) return found;
  if (auto found = those([&](const Json& o) { return is(o, "op", name); }); !found.empty()) return found;
  std::vector<std::string> known;
  for (const char* field : {"id", "source", "module", "op"})
    for (const Json& o : all)
      if (o.contains(field)) known.push_back(o.at(field).get<std::string>());
  return unknown("no operator has the name, source line, module or type '" + name + "'", name, known)
      .note("--full and --format json list the operators");
}

Result<const Json*> find_step(const Json& report, const std::string& name) {
  const Json& steps = report.at("steps");
  int64_t index = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool number = error == std::errc() && end == name.data() + name.size() && !name.empty();
  std::vector<std::string> known;
  int64_t last = -1;
  const Json* short_name = nullptr;
  for (const Json& s : steps) {
    const std::string id = s.at("id");
    const int64_t at = s.at("index").get<int64_t>();
    if (id == name || (number && at == index && !s.contains("inside"))) return &s;
    if (short_name == nullptr && id.starts_with(name + "_")) short_name = &s;
    last = std::max(last, s.contains("inside") ? -1 : at);
    known.push_back(id);
    known.push_back(id.substr(0, id.find('_')));
  }
  if (short_name != nullptr) return short_name;
  return unknown("there is no step '" + name + "'", name, number ? std::vector<std::string>() : known)
      .note("steps are 0 to " + std::to_string(last) + ", or ids such as " +
            (steps.empty() ? "k0" : shown(steps.at(0).at("id").get<std::string>())) + "; --full lists them");
}

} // namespace tessera::command::report
