// Parts of the report's JSON.
#include "report/report.h"
#include <algorithm>

namespace tessera::command::report {

std::optional<double> number(const Json& j) { return j.is_null() ? std::nullopt : std::optional(j.get<double>()); }

std::string text_of(const Json& j) { return j.is_null() ? "" : shown(j.get<std::string>()); }

std::string count_text(const Json& j) { return std::to_string(j.get<int64_t>()); }

std::string wrapped(const std::string& text, const std::string& indent, size_t width) {
  std::string out, line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t space = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, space - begin);
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width)
      out += indent + line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + word;
    begin = space + 1;
  }
  return line.empty() ? out : out + indent + line + "\n";
}

std::string bytes_text(const Json& sized) {
  constexpr size_t kMaxCharacters = 40;
  if (const auto v = number(sized.at("at_sizes"))) return format_bytes(*v);
  const std::string expression = text_of(sized.at("expression"));
  return expression.size() <= kMaxCharacters ? expression + " bytes" : "bytes that only a run knows";
}

std::string us_text(const std::optional<double>& us) { return us ? format_ms(*us / 1e3) : "?"; }

std::string price_text(const Json& e) {
  const auto us = number(e.at("price_us"));
  if (!us) return "price unknown: its sizes are known only when it runs";
  return (e.at("fused").get<bool>() ? "saves " : "costs ") + us_text(us);
}

std::string advice_text(const Json& c) {
  const std::string change = text_of(c.at("change"));
  return (change == "none"     ? "nothing to do"
          : change == "option" ? "use an option"
                               : "change the " + change) +
         ": " + text_of(c.at("text"));
}

std::string View::verdict(const Json& e, const std::string& indent) const {
  const bool edge = e.contains("producer");
  std::string line = text_of(e.at("code")) + " " + text_of(e.at("reason")) +
                     (e.at("fused").get<bool>() ? ": fused, " : ": not fused, ") + price_text(e);
  if (edge) line += ", " + bytes_text(e.at("bytes")) + (e.at("fused").get<bool>() ? " at the edge" : " through memory");
  std::string out = wrapped(line, indent);
  out += wrapped(shown_operator(e.at(edge ? "producer" : "first")) + (edge ? " -> " : " and ") +
                     shown_operator(e.at(edge ? "consumer" : "second")) +
                     (edge ? ", " + text_of(e.at("value")) + " " + text_of(e.at("type")) : ""),
                 indent + "  ");
  if (!text_of(e.at("detail")).empty()) out += wrapped("why: " + text_of(e.at("detail")), indent + "  ");
  if (e.contains("counterfactual")) out += wrapped(advice_text(e.at("counterfactual")), indent + "  ");
  return out;
}

View::View(const Json& report) : json(report), measured_(report.at("totals").contains("measured_us")) {
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
  return text_of(o.at("id")) + (o.contains("source") ? " (" + text_of(o.at("source")) + ")" : "");
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
  if (s.contains("bodies")) return "control flow without its bodies";
  return kind;
}

std::optional<double> View::us(const Json& s) const {
  if (measured_) return s.contains("measured_us") ? number(s.at("measured_us")) : std::nullopt;
  return predicted_us(s);
}

std::optional<double> View::predicted_us(const Json& s) {
  const auto us = number(s.at("price").at("us"));
  if (!us) return std::nullopt;
  if (s.contains("bodies")) return s.at("price").at("terms_us").value("iterations", 0.0);
  if (!s.contains("inside")) return us;
  const auto runs = s.contains("runs") ? number(s.at("runs")) : std::nullopt;
  return runs ? std::optional(*runs * *us) : std::nullopt;
}

} // namespace tessera::command::report
