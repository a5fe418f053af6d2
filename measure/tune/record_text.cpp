// Records as JSON and back.
#include "measure/tune/records.h"
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 2;

std::optional<Hash128> hash_of(const std::string& hex) {
  if (hex.size() != 32 || hex.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  Hash128 h;
  h.hi = std::stoull(hex.substr(0, 16), nullptr, 16);
  h.lo = std::stoull(hex.substr(16), nullptr, 16);
  return h;
}

Json to_json(const TunedRecord& r) {
  Json j;
  j["kernel"] = r.kernel.hex();
  j["name"] = r.name;
  j["device"] = r.on.device;
  j["driver"] = r.on.driver;
  j["compiler"] = r.on.compiler;
  j["measured_at"] = r.measured_at;
  j["extents"] = Json::array();
  for (const ExtentRange& e : r.extents)
    j["extents"].push_back({{"min", e.min}, {"max", e.max}, {"multiple_of", e.multiple_of}});
  if (r.is_default()) {
    j["schedule"] = "default";
  } else {
    j["schedule"] = {{"kind", name(r.schedule->kind)}, {"config", fields(*r.schedule)}};
  }
  j["default_us"] = r.default_us;
  j["tuned_us"] = r.tuned_us;
  j["candidates"] = r.candidates;
  j["pinned"] = r.pinned;
  j["time"] = r.time;
  return j;
}

// Errors: a field is missing, of another type or out of range; the schedule's kind or a field of it is unknown.
Result<TunedRecord> from_json(const Json& j) {
  const Diagnostic damaged(ErrorCode::CorruptFile, "a field is missing, of another type or out of range");
  TunedRecord r;
  try {
    auto kernel = hash_of(j.at("kernel").get<std::string>());
    if (!kernel) return damaged;
    r.kernel = *kernel;
    r.name = j.at("name").get<std::string>();
    r.on = {j.at("device").get<std::string>(), j.at("driver").get<std::string>(), j.at("compiler").get<std::string>()};
    r.measured_at = j.at("measured_at").get<std::vector<int64_t>>();
    for (const Json& e : j.at("extents")) {
      ExtentRange range{e.at("min").get<int64_t>(), e.at("max").get<int64_t>(), e.at("multiple_of").get<int64_t>()};
      if (range.min < 0 || range.max < range.min || range.multiple_of < 1) return damaged;
      r.extents.push_back(range);
    }
    if (const Json& s = j.at("schedule"); !s.is_string()) {
      TESSERA_ASSIGN(r.schedule, make_schedule(s.at("kind").get<std::string>(), s.at("config").get<ScheduleFields>()));
    }
    r.default_us = j.at("default_us").get<double>();
    r.tuned_us = j.at("tuned_us").get<double>();
    r.candidates = j.at("candidates").get<int>();
    r.pinned = j.at("pinned").get<bool>();
    r.time = j.at("time").get<int64_t>();
  } catch (const nlohmann::json::exception&) {
    return damaged;
  }
  return r;
}

} // namespace

std::string print_records(std::span<const TunedRecord> records) {
  Json j;
  j["format"] = kFormat;
  j["records"] = Json::array();
  for (const TunedRecord& r : records) j["records"].push_back(to_json(r));
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<TunedRecord>> parse_records(std::string_view text, const std::string& file) {
  auto corrupt = [&](const std::string& what) {
    Location where;
    where.file = file;
    return Diagnostic(ErrorCode::CorruptFile, std::move(where), what);
  };
  Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object()) return corrupt("not a file of tuned schedules: no JSON object");
  auto format = j.find("format"), records = j.find("records");
  if (format == j.end() || records == j.end() || !records->is_array())
    return corrupt("not a file of tuned schedules: 'format' and 'records' are missing");
  if (*format != kFormat)
    return corrupt("tuned schedules in format " + format->dump() + ", this version reads format " +
                   std::to_string(kFormat));
  std::vector<TunedRecord> out;
  for (size_t i = 0; i < records->size(); ++i) {
    auto r = from_json((*records)[i]);
    if (!r.ok()) return corrupt("record " + std::to_string(i) + " is unusable: " + r.error().message);
    out.push_back(std::move(*r));
  }
  return out;
}

} // namespace tessera
