// Target files: JSON to a Target and back.
#include "base/json_reader.h"
#include "base/similar.h"
#include "codegen/target/target.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using file::JsonValue;

constexpr std::array kSources = {FigureSource::Published, FigureSource::Measured, FigureSource::Estimated};
constexpr std::array<std::string_view, 5> kHeader = {"name", "kind", "gpu", "arch", "note"};

std::string number_text(double value) {
  char buffer[40];
  if (value == std::floor(value) && std::fabs(value) < 1e15)
    std::snprintf(buffer, sizeof buffer, "%.0f", value);
  else
    std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

bool whole(const TargetField& f) { return !std::holds_alternative<double Target::*>(f.member); }

// "a whole number from 1 to 4096 (count)"
std::string expected(const TargetField& f) {
  return (whole(f) ? "a whole number from " : "a number from ") + number_text(f.least) + " to " + number_text(f.most) +
         " (" + std::string(f.unit) + ")";
}

bool within(const TargetField& f, double value) {
  return value >= f.least && value <= f.most && (!whole(f) || value == std::floor(value));
}

// The error for a field that is unknown, or not of this kind of device.
[[noreturn]] void unknown_field(const JsonValue& place, std::string_view key, Target::Kind kind) {
  std::vector<std::string> known;
  for (const TargetField& f : target_fields())
    if (f.applies(kind)) known.emplace_back(f.name);
  const std::string close = similar(std::string(key), known);
  file::corrupt(place.place() + " has the field '" + std::string(key) + "', which a " + std::string(name(kind)) +
                " target does not have" + (close.empty() ? "" : "; did you mean '" + close + "'?"));
}

Target read(const JsonValue& root) {
  Target t;
  t.name = root.at("name").text();
  const std::string kind = root.at("kind").text();
  if (kind != "cpu" && kind != "cuda") root.at("kind").wrong("\"cpu\" or \"cuda\"");
  t.kind = kind == "cuda" ? Target::Kind::Cuda : Target::Kind::Cpu;
  if (t.is_gpu()) {
    t.gpu = root.at("gpu").text();
    t.arch = root.at("arch").text();
  }
  if (root.has("note")) t.note = root.at("note").text();
  for (std::string_view key : root.keys()) {
    const bool group = std::any_of(kSources.begin(), kSources.end(), [&](FigureSource s) { return key == name(s); });
    if (!group && std::find(kHeader.begin(), kHeader.end(), key) == kHeader.end())
      file::corrupt(root.place() + " has '" + std::string(key) +
                    "', expected name, kind, gpu, arch, note, published, measured or estimated");
  }
  const auto fields = target_fields();
  std::vector<int> given(fields.size(), 0);
  t.sources.resize(fields.size());
  for (FigureSource source : kSources) {
    if (!root.has(name(source))) continue;
    const JsonValue group = root.at(name(source));
    for (std::string_view key : group.keys()) {
      auto f = std::find_if(fields.begin(), fields.end(), [&](const TargetField& x) { return x.name == key; });
      if (f == fields.end() || !f->applies(t.kind)) unknown_field(group, key, t.kind);
      const JsonValue value = group.at(key);
      const auto at = static_cast<size_t>(f - fields.begin());
      if (given[at]++ > 0) file::corrupt(value.place() + ": the field is given twice");
      const double number = value.is_number() ? value.number() : std::nan("");
      if (!within(*f, number)) value.wrong(expected(*f));
      f->set(t, number);
      t.sources[at] = source;
    }
  }
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i].applies(t.kind) && given[i] == 0)
      file::corrupt(root.place() + " has no field '" + std::string(fields[i].name) + "', expected " +
                    expected(fields[i]));
  return t;
}

Diagnostic broken(const std::string& file, std::string what) {
  return Diagnostic(ErrorCode::ParseError, "target file: " + std::move(what))
      .at({.file = file})
      .note("'tessera calibrate -o FILE' writes a target file of the device at hand");
}

} // namespace

Status verify_target(const Target& t, const std::string& file) {
  for (const TargetField& f : target_fields())
    if (f.applies(t.kind) && !within(f, f.get(t)))
      return broken(file, std::string(f.name) + " is " + number_text(f.get(t)) + ", expected " + expected(f));
  struct Relation {
    std::string_view small, large;
    double less, more;
  };
  const Relation cuda[] = {
      {"shared_bytes + reserved_shared_bytes", "multiprocessor_shared_bytes",
       static_cast<double>(t.shared_bytes + t.reserved_shared_bytes),
       static_cast<double>(t.multiprocessor_shared_bytes)},
      {"block_threads", "resident_threads", static_cast<double>(t.block_threads),
       static_cast<double>(t.resident_threads)},
      {"memory_bytes_per_us", "memory_peak_bytes_per_us", t.memory_bytes_per_us, t.memory_peak_bytes_per_us},
      {"sector_bytes", "line_bytes", static_cast<double>(t.sector_bytes), static_cast<double>(t.line_bytes)},
  };
  if (t.is_gpu())
    for (const Relation& r : cuda)
      if (r.less > r.more)
        return broken(file, std::string(r.small) + " is " + number_text(r.less) + ", expected at most " +
                                std::string(r.large) + ", " + number_text(r.more));
  return {};
}

Result<Target> parse_target(std::string_view text, const std::string& file) {
  // The JSON parser silently keeps the last of two values of one name.
  std::string twice;
  std::vector<std::set<std::string>> names;
  auto watch = [&](int, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) names.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) names.pop_back();
    if (event == nlohmann::json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  const auto json = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) return broken(file, "the text is no JSON");
  if (!twice.empty()) return broken(file, "'" + twice + "' is given twice");
  try {
    Target t = read(JsonValue(json, "target"));
    TESSERA_TRY(verify_target(t, file));
    return t;
  } catch (const file::Corrupt& e) {
    return broken(file, e.what);
  }
}

std::string print_target(const Target& t) {
  Json j;
  j["name"] = t.name;
  j["kind"] = name(t.kind);
  if (t.is_gpu()) {
    j["gpu"] = t.gpu;
    j["arch"] = t.arch;
  }
  if (!t.note.empty()) j["note"] = t.note;
  const auto fields = target_fields();
  for (FigureSource source : kSources)
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!fields[i].applies(t.kind)) continue;
      if ((i < t.sources.size() ? t.sources[i] : FigureSource::Estimated) != source) continue;
      const double value = fields[i].get(t);
      Json& at = j[std::string(name(source))][std::string(fields[i].name)];
      if (value == std::floor(value))
        at = static_cast<int64_t>(value);
      else
        at = value;
    }
  return j.dump(2) + "\n";
}

} // namespace tessera
