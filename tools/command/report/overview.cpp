// The first screen of the report.
#include "report/report.h"
#include <algorithm>
#include <cmath>

namespace tessera::command::report {

namespace {

constexpr size_t kRows = 5; // of each list

// Colours of a terminal, where they are wanted.
class Paint {
public:
  explicit Paint(bool on) : on_(on) {}
  [[nodiscard]] std::string bold(const std::string& s) const { return in("1", s); }
  [[nodiscard]] std::string dim(const std::string& s) const { return in("2", s); }
  [[nodiscard]] std::string bad(const std::string& s) const { return in("31", s); }
  [[nodiscard]] std::string good(const std::string& s) const { return in("32", s); }

private:
  [[nodiscard]] std::string in(const char* code, const std::string& s) const {
    return on_ ? "\033[" + std::string(code) + "m" + s + "\033[0m" : s;
  }
  bool on_;
};

std::string percent(double part, double all) { return all > 0 ? format_number(100 * part / all, 0) + " %" : "-"; }
std::string times(int n) { return n > 1 ? "x" + std::to_string(n) : ""; }
std::string many(const Json& n, const std::string& what, const std::string& plural = "s") {
  return count_text(n) + " " + what + (n == 1 ? "" : plural);
}

// Shapes without spaces: "[b,s,768] x [768,768]".
std::string narrow(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != ' ' || i == 0 || text[i - 1] != ',') out += text[i];
  return out;
}

std::string heading(const Json& j, const Paint& paint) {
  std::string out = paint.bold(text_of(j.at("model")));
  if (!text_of(j.at("format")).empty()) out += "  " + text_of(j.at("format"));
  if (!text_of(j.at("producer")).empty()) out += " (" + text_of(j.at("producer")) + ")";
  out += "\n";
  std::string plan = text_of(j.at("target")) + ", figures of " + text_of(j.at("figures")) + "; " +
                     text_of(j.at("variant")) + " variant";
  if (!j.at("sizes").empty()) {
    plan += "; sizes";
    for (const auto& [name, size] : j.at("sizes").items()) plan += " " + shown(name) + "=" + count_text(size);
    if (j.contains("priced_sizes")) {
      plan += " (times at";
      for (const auto& [name, size] : j.at("priced_sizes").items()) plan += " " + shown(name) + "=" + count_text(size);
      plan += ")";
    }
    if (j.at("sizes") != j.at("planned_sizes") && !j.at("planned_sizes").empty()) {
      plan += " (planned at";
      for (const auto& [name, size] : j.at("planned_sizes").items()) plan += " " + shown(name) + "=" + count_text(size);
      plan += ")";
    }
  }
  out += wrapped(plan, "");
  if (const Json& absent = j.at("absent_weights"); absent.at("count") != 0)
    out += paint.dim(many(absent.at("count"), "weight") + " (" + format_bytes(absent.at("bytes").get<double>()) +
                     ") have no data: the plan takes them as constants") +
           "\n";
  return out;
}

std::string totals(const Json& j, const Paint& paint) {
  const Json& t = j.at("totals");
  std::string out = "\n" + paint.bold(many(t.at("operators"), "operator") + " -> " + many(t.at("kernels"), "kernel") +
                                      " + " + many(t.at("library_calls"), "library call"));
  if (t.at("host_operators") != 0) out += paint.bad(" + " + many(t.at("host_operators"), "CPU fallback"));
  if (t.at("control_flow") != 0) out += " + " + many(t.at("control_flow"), "control flow step");
  out += ", " + many(t.at("launches"), "launch", "es") + "\n";
  const auto bytes = number(t.at("bytes").at("at_sizes")), before = number(t.at("bytes_unfused").at("at_sizes"));
  out += "  moves " + bytes_text(t.at("bytes")) + " instead of " + bytes_text(t.at("bytes_unfused")) + " unfused";
  if (bytes && before && *before >= *bytes && *before > 0)
    out += paint.good(" (" + percent(*before - *bytes, *before) + " saved)");
  else if (bytes && before && *before > 0)
    out += paint.bad(" (" + percent(*bytes - *before, *before) + " more)");
  if (t.at("control_flow") != 0) out += ", bodies of control flow not counted";
  const auto us = number(t.at("predicted_us")), unfused = number(t.at("predicted_unfused_us"));
  if (us && unfused && *us > 0)
    out += "\n  predicted " + us_text(us) + " instead of " + us_text(unfused) + " unfused" +
           paint.good(" (" + format_number(*unfused / *us, 2) + " times as fast)");
  if (t.contains("measured_us")) out += "; measured " + us_text(number(t.at("measured_us")));
  out += "\n";
  for (const Json& layer : j.at("layers"))
    out += "  " + text_of(layer.at("id")) + ": " + std::to_string(layer.at("instances").at(0).size()) + " steps, " +
           paint.bold("x" + count_text(layer.at("times"))) + ", from " +
           clipped(text_of(layer.at("instances").at(0).at(0)), 40) + "\n";
  return out;
}

std::string steps_text(const View& v, const Paint& paint) {
  const auto classes = by_cost(v);
  if (classes.empty()) return "";
  double all = 0, rest = 0;
  for (const auto& c : classes) all += c.us;
  Table table({"time", "share", "", "step", "what", "bound", "peak"}, {0, 1, 6});
  for (size_t i = 0; i < classes.size() && i < kRows; ++i) {
    const Json& s = *classes[i].first;
    const Json& price = s.at("price");
    const auto share = number(price.at("roofline_share"));
    table.add({us_text(classes[i].us), percent(classes[i].us, all), times(classes[i].count),
               clipped(text_of(s.at("id")), 24), clipped(narrow(View::what(s)), 38), text_of(price.at("bound")),
               share ? format_number(100 * *share, 0) + " %" : "-"});
  }
  for (size_t i = kRows; i < classes.size(); ++i) rest += classes[i].us;
  if (classes.size() > kRows)
    table.add({us_text(rest), percent(rest, all), "", std::to_string(classes.size() - kRows) + " more kinds", "--full",
               "", ""});
  std::string title = "most expensive steps, of " + us_text(all);
  if (v.json.at("totals").contains("measured_us")) title += ", each measured by itself";
  return "\n" + paint.bold(title) + "\n" + table.str("  ", screen_width());
}

// "FUS-041 operand-of-library x73, FUS-042 ..." of the groups that no change fuses.
std::string unfixable_text(const std::vector<MissedFusions>& groups) {
  std::vector<std::pair<std::string, int>> codes;
  double us = 0;
  int edges = 0;
  for (const auto& m : groups) {
    if (m.fixable) continue;
    const std::string code = text_of(m.all[0]->at("code")) + " " + text_of(m.all[0]->at("reason"));
    auto it = std::find_if(codes.begin(), codes.end(), [&](const auto& c) { return c.first == code; });
    if (it == codes.end()) it = codes.emplace(codes.end(), code, 0);
    it->second += static_cast<int>(m.all.size());
    edges += static_cast<int>(m.all.size());
    us += m.us;
  }
  if (edges == 0) return "";
  std::stable_sort(codes.begin(), codes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out = "right so, no change would fuse them: " + std::to_string(edges) +
                    (edges == 1 ? " edge" : " edges") + ", " + us_text(us) + " (";
  for (size_t i = 0; i < codes.size() && i < kRows; ++i)
    out += (i > 0 ? ", " : "") + codes[i].first + (codes[i].second > 1 ? " " + times(codes[i].second) : "");
  return out + (codes.size() > kRows ? ", ..." : "") + "; --full)";
}

std::string missed_text(const View& v, const Paint& paint) {
  const auto groups = missed(v);
  double fixable = 0;
  size_t listed = 0, left = 0;
  for (const auto& m : groups) fixable += m.fixable ? m.us : 0;
  std::string out = "\n" + paint.bold("missed fusions that a change would save") + ": " +
                    (fixable > 0 ? us_text(fixable) : "none") + "\n";
  for (const auto& m : groups) {
    if (!m.fixable) continue;
    if (++listed > kRows) {
      ++left;
      continue;
    }
    const Json& e = *m.all[0];
    const bool edge = e.contains("producer");
    const std::string from = e.at(edge ? "producer" : "first"), to = e.at(edge ? "consumer" : "second");
    const std::string n = times(static_cast<int>(m.all.size()));
    out += "  " + paint.bold("saves " + us_text(m.us)) + (n.empty() ? "" : " " + n) + "  " + text_of(e.at("code")) +
           " " + text_of(e.at("reason")) + "\n";
    out += from == to ? wrapped("inside " + v.shown_operator(from), "      ")
                      : wrapped(v.shown_operator(from) + (edge ? " -> " : " and ") + v.shown_operator(to), "      ");
    const std::string why =
        e.contains("counterfactual") ? advice_text(e.at("counterfactual")) : text_of(e.at("detail"));
    if (!why.empty()) out += paint.dim(wrapped(clipped(why, 180), "      "));
  }
  if (left > 0) out += "  " + std::to_string(left) + " more kinds with --full\n";
  return out + paint.dim(wrapped(unfixable_text(groups), "  "));
}

std::string breaks_text(const Json& j, const Paint& paint) {
  const Json& breaks = j.at("breaks");
  std::string out = "\n" + paint.bold("breaks") + "\n";
  if (breaks.empty())
    return out +
           wrapped("none: every operator is compiled or a library call, every size follows from the inputs", "  ");
  std::vector<const Json*> order;
  for (const Json& b : breaks) order.push_back(&b);
  std::stable_sort(order.begin(), order.end(), [](const Json* a, const Json* b) {
    return number(a->at("price_us")).value_or(0) > number(b->at("price_us")).value_or(0);
  });
  for (size_t i = 0; i < order.size() && i < kRows; ++i) {
    const Json& b = *order[i];
    out += "  " + us_text(number(b.at("price_us"))) + "  " + text_of(b.at("code")) + " " +
           clipped(text_of(b.at("what")), 60);
    std::string parts;
    for (const char* part : {"copies", "launches", "waits"})
      if (b.at(part) != 0) parts += (parts.empty() ? "" : ", ") + count_text(b.at(part)) + " " + part;
    out += (parts.empty() ? "" : " (" + parts + ")") + "\n";
    if (!text_of(b.at("reason")).empty()) out += paint.dim("      " + clipped(text_of(b.at("reason")), 90)) + "\n";
  }
  if (order.size() > kRows) out += "  " + std::to_string(order.size() - kRows) + " more with --full\n";
  return out;
}

std::string guards_text(const Json& j, const Paint& paint) {
  int required = 0, assumed = 0;
  for (const Json& g : j.at("guards")) (g.at("class") == "required" ? required : assumed) += 1;
  std::string out = "\n" + paint.bold("guards and symbols") + "\n  " + std::to_string(required) + " required, " +
                    std::to_string(assumed) + " assumed (--guards)";
  size_t listed = 0;
  for (const Json& s : j.at("symbols")) {
    if (++listed > kRows) {
      out += "\n  " + std::to_string(j.at("symbols").size() - kRows) + " more with --guards";
      break;
    }
    const double us = s.at("price_us").get<double>();
    out += "\n  " + text_of(s.at("name"));
    if (!s.at("dimension_of").empty()) out += " of " + text_of(s.at("dimension_of")[0]);
    out += us > 0 ? ": unknown when compiling, which costs " + us_text(us) + " in " +
                        std::to_string(s.at("costs").size()) + " steps; --specialize fixes it"
                  : ": costs nothing";
  }
  return out + "\n";
}

// Lines that are wider than the screen, broken at spaces; colours take no column.
std::string narrowed(const std::string& text) {
  const size_t width = screen_width();
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    size_t visible = 0;
    bool escape = false;
    for (char c : line) {
      escape = escape || c == '\033';
      if (!escape && (static_cast<unsigned char>(c) & 0xc0) != 0x80) ++visible;
      if (escape && c == 'm') escape = false;
    }
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    out += visible > width ? wrapped(line.substr(indent), line.substr(0, indent), width) : line + "\n";
    begin = end + 1;
  }
  return out;
}

} // namespace

std::vector<StepsOfClass> by_cost(const View& v) {
  std::map<std::string, size_t> at;
  std::vector<StepsOfClass> out;
  for (const Json& s : v.json.at("steps")) {
    const auto us = v.us(s);
    if (!us || (*us == 0 && s.contains("inside"))) continue;
    auto [it, fresh] = at.try_emplace(s.at("class"), out.size());
    if (fresh) out.push_back({&s});
    ++out[it->second].count;
    out[it->second].us += *us;
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  return out;
}

std::vector<MissedFusions> missed(const View& v) {
  std::map<std::string, size_t> at;
  std::vector<MissedFusions> out;
  const auto step_of = [&](const Json& e, const char* end) -> const Json* {
    const Json& all = v.op(e.at(end)).at("steps");
    return all.empty() ? nullptr : &v.step(all[0]);
  };
  for (const char* list : {"edges", "pairs"})
    for (const Json& e : v.json.at(list)) {
      if (e.at("fused").get<bool>()) continue;
      const bool edge = e.contains("producer");
      const Json* from = step_of(e, edge ? "producer" : "first");
      const double runs = from && from->contains("runs") ? number(from->at("runs")).value_or(0) : 1;
      const double us = runs * number(e.at("price_us")).value_or(0);
      if (us <= 0) continue;
      std::string key = e.at("code").get<std::string>();
      for (const char* end : {edge ? "producer" : "first", edge ? "consumer" : "second"})
        key += "|" + v.op(e.at(end)).at("op").get<std::string>();
      if (edge) key += "|" + e.at("type").get<std::string>();
      auto [it, fresh] = at.try_emplace(key, out.size());
      if (fresh) out.push_back({});
      MissedFusions& m = out[it->second];
      m.all.push_back(&e);
      m.us += us;
      m.fixable = e.contains("counterfactual") && e.at("counterfactual").at("change") != "none";
    }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::pair(a.fixable, a.us) > std::pair(b.fixable, b.us);
  });
  return out;
}

std::string overview(const Json& j, bool color) {
  const Paint paint(color);
  const View v(j);
  std::string out = heading(j, paint) + totals(j, paint) + steps_text(v, paint) + missed_text(v, paint) +
                    breaks_text(j, paint) + guards_text(j, paint);
  if (const Json& warnings = j.at("compile").at("warnings"); !warnings.empty()) {
    out += "\n" + paint.bold("warnings") + "\n";
    for (const Json& w : warnings) out += "  " + text_of(w) + "\n";
  }
  if (auto failures = j.find("contained"); failures != j.end() && !failures->empty()) {
    out += "\n" + paint.bold("internal failures") + "\n";
    for (const Json& f : *failures)
      out += "  " + text_of(f.at("code")) + " " + text_of(f.at("where")) + ": " + text_of(f.at("message")) +
             "; instead, " + text_of(f.at("instead")) +
             (text_of(f.at("saved")).empty() ? "" : "; saved in " + text_of(f.at("saved"))) + "\n";
  }
  return narrowed(out) + "\n" +
         paint.dim(
             wrapped("next: --full for everything; --kernel N, --op NAME, --why-not A B, --memory, --guards, --ir tile "
                     "and --code FUS-nnn for one question; -o report.html for a page",
                     ""));
}

} // namespace tessera::command::report
