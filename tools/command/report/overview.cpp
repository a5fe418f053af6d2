// The first screen of the report.
#include "report/report.h"
#include <algorithm>
#include <cmath>

namespace tessera::command::report {

namespace {

constexpr size_t kRows = 5;   // of each list
constexpr size_t kWidth = 25; // of a name of an operator, of which a line has two

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
  if (bytes && before && *before > 0) out += paint.good(" (" + percent(*before - *bytes, *before) + " saved)");
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
  double all = 0;
  for (const auto& c : classes) all += c.us;
  Table table({"time", "share", "", "step", "what", "bound", "peak"}, {0, 1, 6});
  for (size_t i = 0; i < classes.size() && i < kRows; ++i) {
    const Json& s = *classes[i].first;
    const Json& price = s.at("price");
    const auto share = number(price.at("roofline_share"));
    table.add({us_text(classes[i].us), percent(classes[i].us, all), times(classes[i].count),
               clipped(text_of(s.at("id")), 20), clipped(narrow(View::what(s)), 38), text_of(price.at("bound")),
               share ? format_number(100 * *share, 0) + " %" : "-"});
  }
  std::string title = "most expensive steps";
  if (classes.size() > kRows) title += " (" + std::to_string(classes.size() - kRows) + " more kinds with --full)";
  return "\n" + paint.bold(title) + "\n" + table.str("  ");
}

std::string missed_text(const View& v, const Paint& paint) {
  const auto groups = missed(v);
  double all = 0, fixable = 0;
  for (const auto& m : groups) {
    all += m.us;
    if (m.first->contains("counterfactual") && m.first->at("counterfactual").at("change") != "none") fixable += m.us;
  }
  if (groups.empty()) return "\n" + paint.bold("missed fusions") + "\n  none\n";
  std::string out = "\n" + paint.bold("most expensive missed fusions") + ", of " + us_text(all) + " in all, " +
                    us_text(fixable) + " that a change could save\n";
  for (size_t i = 0; i < groups.size() && i < kRows; ++i) {
    const Json& e = *groups[i].first;
    const std::string n = times(groups[i].count);
    out += "  " + us_text(groups[i].us) + (n.empty() ? "" : " " + n) + "  " + text_of(e.at("code")) + " " +
           text_of(e.at("reason")) + ": " + clipped(v.shown_operator(e.at("producer")), kWidth) + " -> " +
           clipped(v.shown_operator(e.at("consumer")), kWidth) + "\n";
    const std::string why =
        e.contains("counterfactual") ? advice_text(e.at("counterfactual")) : text_of(e.at("detail"));
    if (!why.empty()) out += paint.dim(wrapped(clipped(why, 180), "      "));
  }
  return out;
}

std::string breaks_text(const Json& j, const Paint& paint) {
  const Json& breaks = j.at("breaks");
  std::string out = "\n" + paint.bold("breaks") + "\n";
  if (breaks.empty())
    return out + "  none: every operator is compiled or a library call, every size follows from the inputs\n";
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

} // namespace

std::vector<StepsOfClass> by_cost(const View& v) {
  std::map<std::string, size_t> at;
  std::vector<StepsOfClass> out;
  for (const Json& s : v.json.at("steps")) {
    const auto us = View::us(s);
    if (!us) continue;
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
  auto class_of = [&](const Json& steps) {
    return steps.empty() ? std::string() : v.step(steps[0]).at("class").get<std::string>();
  };
  for (const Json& e : v.json.at("edges")) {
    if (e.at("fused").get<bool>()) continue;
    const double us = number(e.at("price_us")).value_or(0);
    if (us <= 0) continue;
    const std::string key = e.at("code").get<std::string>() + "|" + class_of(e.at("producer_steps")) + "|" +
                            class_of(e.at("consumer_steps")) + "|" + e.at("type").get<std::string>();
    auto [it, fresh] = at.try_emplace(key, out.size());
    if (fresh) out.push_back({&e});
    ++out[it->second].count;
    out[it->second].us += us;
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
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
  return out + "\n" +
         paint.dim(
             wrapped("next: --full for everything; --kernel N, --op NAME, --why-not A B, --memory, --guards, --ir tile "
                     "and --code FUS-nnn for one question; -o report.html for a page",
                     ""));
}

} // namespace tessera::command::report
