#include "codegen/schedule/schedule_records.h"
#include "base/embed.h"
#include "base/file.h"
#include "codegen/schedule/tuned.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <mutex>
#include TESSERA_RECORD_NAMES // of the files under records/

#define TESSERA_RECORDS_FILE(NAME) TESSERA_EMBED(records_##NAME, TESSERA_RECORDS_DATA "/" #NAME ".txt")
TESSERA_RECORDS(TESSERA_RECORDS_FILE)

namespace tessera {
namespace {

constexpr double kNear = 2; // of an axis that is not narrow: doublings between two extents that are near
constexpr size_t kSignatureDigits = 16;

std::string_view shipped_text(std::string_view target) {
#define TESSERA_RECORDS_ENTRY(NAME)                                                                                    \
  if (target == #NAME) return records_##NAME();
  TESSERA_RECORDS(TESSERA_RECORDS_ENTRY)
#undef TESSERA_RECORDS_ENTRY
  return {};
}

std::string extents_text(const std::vector<int64_t>& extents) {
  std::string text;
  for (int64_t n : extents) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}
std::string time_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", us);
  return text;
}

std::string_view word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  std::string_view out = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return out;
}

template <class Number>
bool number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// Error Usage: what is wrong with the line.
Result<MeasuredSchedule> parse_line(std::string_view line) {
  MeasuredSchedule r;
  if (const size_t comment = line.find(" # "); comment != std::string_view::npos) {
    r.name = line.substr(comment + 3);
    line = line.substr(0, comment);
  }
  auto wrong = [](std::string what) { return Diagnostic(ErrorCode::Usage, std::move(what)); };
  r.signature = word(line);
  if (r.signature.size() != kSignatureDigits || r.signature.find_first_not_of("0123456789abcdef") != std::string::npos)
    return wrong("'" + r.signature + "' is no signature, expected 16 hexadecimal digits");
  const std::string_view extents = word(line);
  for (size_t at = 0; at <= extents.size();) {
    const size_t end = std::min(extents.find('x', at), extents.size());
    int64_t n = 0;
    if (!number(extents.substr(at, end - at), n) || n < 1)
      return wrong("'" + std::string(extents) + "' are no extents, expected positive numbers such as 8192x1024");
    r.extents.push_back(n);
    at = end + 1;
  }
  const std::string_view us = word(line);
  if (!number(us, r.us) || !(r.us > 0)) return wrong("'" + std::string(us) + "' is no time, expected microseconds");
  TESSERA_ASSIGN(r.schedule, parse_schedule(line));
  return r;
}

// The records of a target, read once.
const Result<ScheduleRecords>& loaded(const Target& target) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::pair<std::string, std::string>, Result<ScheduleRecords>>;
  std::lock_guard lock(mutex);
  const auto key = std::pair(target.name, target.records);
  if (auto it = all->find(key); it != all->end()) return it->second;
  auto read = [&]() -> Result<ScheduleRecords> {
    if (target.records.empty()) return parse_schedule_records(shipped_text(target.name), target.name + ".txt");
    TESSERA_ASSIGN(std::string text, read_file(target.records));
    return parse_schedule_records(text, target.records);
  };
  return all->emplace(key, read()).first->second;
}

} // namespace

std::string MeasuredSchedule::text() const { return time_text(us) + " us at " + extents_text(extents); }

std::string record_signature(const Graph& graph, const LoopNest& nest, const Domain& domain) {
  return nest_signature(graph, nest, domain).hex().substr(0, kSignatureDigits);
}

const ScheduleRecords& ScheduleRecords::of(const Target& target) {
  static const auto* const none = new ScheduleRecords;
  const Result<ScheduleRecords>& records = loaded(target);
  return records.ok() ? *records : *none;
}

Status ScheduleRecords::check(const Target& target) {
  const Result<ScheduleRecords>& records = loaded(target);
  return records.ok() ? Status() : Status(records.error());
}

const MeasuredSchedule* ScheduleRecords::find(const std::string& signature, std::span<const int64_t> extents,
                                              uint64_t narrow) const {
  const auto all = by_signature_.find(signature);
  if (all == by_signature_.end()) return nullptr;
  const MeasuredSchedule* nearest = nullptr;
  double least = 0;
  for (const MeasuredSchedule& r : all->second) {
    if (r.extents.size() != extents.size()) continue;
    bool near = true;
    double distance = 0;
    for (size_t i = 0; near && i < extents.size(); ++i) {
      const double d = std::abs(
          std::log2(static_cast<double>(std::max<int64_t>(1, extents[i])) / static_cast<double>(r.extents[i])));
      near = narrow >> i & 1 ? bucket_of(extents[i]) == bucket_of(r.extents[i]) : d <= kNear;
      distance += d;
    }
    if (near && (!nearest || distance < least)) nearest = &r, least = distance;
  }
  return nearest;
}

void ScheduleRecords::add(MeasuredSchedule record) {
  std::vector<MeasuredSchedule>& all = by_signature_[record.signature];
  auto same = std::find_if(all.begin(), all.end(), [&](const auto& r) { return r.extents == record.extents; });
  if (same == all.end())
    all.push_back(std::move(record));
  else
    *same = std::move(record);
}

size_t ScheduleRecords::size() const {
  size_t n = 0;
  for (const auto& [signature, list] : by_signature_) n += list.size();
  return n;
}

std::string print_schedule_records(const ScheduleRecords& records) {
  std::vector<std::string> lines;
  for (const auto& [signature, list] : records.by_signature_)
    for (const MeasuredSchedule& r : list) {
      lines.push_back(signature + " " + extents_text(r.extents) + " " + time_text(r.us) + " " + print(r.schedule) +
                      (r.name.empty() ? "" : " # " + r.name) + "\n");
    }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& l : lines) text += l;
  return text;
}

Result<ScheduleRecords> parse_schedule_records(std::string_view text, const std::string& file) {
  ScheduleRecords out;
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 1;
    if (one.empty() || one.front() == '#') continue;
    auto record = parse_line(one);
    if (!record.ok())
      return Diagnostic(ErrorCode::CorruptFile, file + ":" + std::to_string(line) + ": " + record.error().message)
          .note("'tessera tune --corpus' writes such a file anew");
    out.add(std::move(*record));
  }
  return out;
}

} // namespace tessera
