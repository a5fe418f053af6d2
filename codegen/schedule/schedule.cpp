#include "codegen/schedule/schedule.h"
#include <charconv>
#include <limits>

namespace tessera {
namespace {

constexpr std::string_view kNames[] = {"flat",       "row-loop",     "column-loop",      "tiled-2d",
                                       "block-flat", "block-rows",   "block-loop",       "block-columns",
                                       "block-team", "block-window", "block-contraction"};

template <class T>
constexpr bool holds(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) return value == 0 || value == 1;
  if constexpr (std::is_enum_v<T>) return value >= 0 && value <= static_cast<int64_t>(tile::Caching::EvictFirst);
  if constexpr (std::is_same_v<T, uint64_t>) return value >= 0;
  if constexpr (std::is_same_v<T, int>)
    return value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max();
  return true;
}

} // namespace

std::string_view name(ScheduleKind kind) { return kNames[static_cast<size_t>(kind)]; }
std::optional<ScheduleKind> schedule_kind(std::string_view text) {
  for (size_t k = 0; k < std::size(kNames); ++k)
    if (kNames[k] == text) return static_cast<ScheduleKind>(k);
  return std::nullopt;
}

ScheduleFields fields(const Schedule& schedule) {
  static const std::vector<int64_t> defaults = [] {
    std::vector<int64_t> values;
    each_field(static_cast<const Schedule&>(Schedule()),
               [&](const char*, const auto& v) { values.push_back(static_cast<int64_t>(v)); });
    return values;
  }();
  ScheduleFields out;
  size_t i = 0;
  each_field(schedule, [&](const char* name, const auto& v) {
    if (static_cast<int64_t>(v) != defaults[i++]) out.emplace(name, static_cast<int64_t>(v));
  });
  return out;
}

Status set_field(Schedule& schedule, std::string_view name, int64_t value) {
  bool found = false, fits = false;
  each_field(schedule, [&](const char* field, auto& v) {
    using T = std::decay_t<decltype(v)>;
    if (name != field) return;
    found = true;
    fits = holds<T>(value);
    if (fits) v = static_cast<T>(value);
  });
  if (!found) return Diagnostic(ErrorCode::Usage, "a schedule has no field '" + std::string(name) + "'");
  if (!fits)
    return Diagnostic(ErrorCode::Usage,
                      "field '" + std::string(name) + "' of a schedule cannot be " + std::to_string(value));
  return {};
}

Result<Schedule> make_schedule(std::string_view kind, const ScheduleFields& fields) {
  Schedule s;
  const auto k = schedule_kind(kind);
  if (!k) return Diagnostic(ErrorCode::Usage, "there is no kind of schedule '" + std::string(kind) + "'");
  s.kind = *k;
  for (const auto& [name, value] : fields) TESSERA_TRY(set_field(s, name, value));
  return s;
}

std::string PredictedTime::bound() const {
  auto greatest = std::max_element(terms.begin(), terms.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return greatest == terms.end() ? "" : greatest->first;
}

std::string print(const Schedule& schedule) {
  std::string text(name(schedule.kind));
  for (const auto& [field, value] : fields(schedule)) text += " " + field + "=" + std::to_string(value);
  return text;
}

Result<Schedule> parse_schedule(std::string_view text) {
  ScheduleFields values;
  std::string_view kind = text.substr(0, text.find(' '));
  for (size_t at = kind.size(); at < text.size();) {
    const size_t start = text.find_first_not_of(' ', at);
    if (start == std::string_view::npos) break;
    at = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, at - start);
    const size_t equals = word.find('=');
    int64_t value = 0;
    const char* last = word.data() + word.size();
    if (equals == std::string_view::npos || std::from_chars(word.data() + equals + 1, last, value).ptr != last ||
        equals + 1 == word.size())
      return Diagnostic(ErrorCode::Usage,
                        "'" + std::string(word) + "' is no field of a schedule; expected NAME=NUMBER");
    values[std::string(word.substr(0, equals))] = value;
  }
  return make_schedule(kind, values);
}

} // namespace tessera
