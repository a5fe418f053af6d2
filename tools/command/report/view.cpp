// Parts of the report's JSON.
#include "report/report.h"
#include <algorithm>

namespace tessera::command::report {

std::optional<double> number(const Json& j) { return j.is_null() ? std::nullopt : std::optional(j.get<double>()); }

std::string text_of(const Json& j) { return j.is_null() ? "" : shown(j.get<std::string>()); }

std::string bytes_text(const Json& sized) {
  const auto v = number(sized.at("at_sizes"));
  return v ? format_bytes(*v) : text_of(sized.at("expression"));
}

std::string us_text(const std::optional<double>& us) { return us ? format_ms(*us / 1e3) : "?"; }

View::View(const Json& report) : json(report) {
  for (const Json& s : report.at("steps")) steps_.emplace(s.at("id"), &s);
  for (const Json& o : report.at("operators")) operators_.emplace(o.at("id"), &o);
}

std::string View::types(const Json& operator_ids, size_t most) const {
  std::vector<std::pair<std::string, int>> counts;
  for (const Json& id : operator_ids) {
    const std::string type = text_of(op(id).at("op"));
    auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == type; });
    if (it == counts.end())
      counts.emplace_back(type, 1);
    else
      ++it->second;
  }
  std::stable_sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  for (size_t i = 0; i < counts.size() && i < most; ++i)
    out +=
        (i > 0 ? ", " : "") + counts[i].first + (counts[i].second > 1 ? " x" + std::to_string(counts[i].second) : "");
  return counts.size() > most ? out + ", ..." : out;
}

std::string View::shown_operator(const std::string& id) const {
  const Json& o = op(id);
  return text_of(o.at("name")) + (o.contains("source") ? " (" + text_of(o.at("source")) + ")" : "");
}

std::string View::what(const Json& s) {
  const std::string kind = text_of(s.at("kind"));
  if (s.contains("library_call")) {
    std::string out = text_of(s.at("library_call"));
    for (const Json& o : s.at("operands"))
      out += (&o == &s.at("operands").front() ? " " : " x ") + text_of(o.at("shape"));
    return out;
  }
  if (s.contains("iteration")) return text_of(s.at("iteration"));
  return kind;
}

std::optional<double> View::us(const Json& s) {
  if (s.contains("inside")) return std::nullopt; // in the price of its loop
  if (s.contains("measured_us")) return number(s.at("measured_us"));
  return number(s.at("price").at("us"));
}

} // namespace tessera::command::report
