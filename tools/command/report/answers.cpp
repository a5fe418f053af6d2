// One step, one operator, memory, and texts of kernels.
#include "report/report.h"
#include <algorithm>

namespace tessera::command::report {

namespace {

constexpr size_t kListed = 12; // rows of a list

std::string share_text(const std::optional<double>& share) {
  return share ? format_number(100 * *share, *share < 0.1 ? 1 : 0) + " %" : "?";
}

std::string values_text(const std::string& title, const Json& values) {
  std::string out;
  for (size_t i = 0; i < values.size() && i < kListed; ++i)
    out += (i > 0 ? ", " : "") + text_of(values.at(i).at("name")) + " " + text_of(values.at(i).at("type"));
  if (values.size() > kListed) out += ", and " + std::to_string(values.size() - kListed) + " more";
  return values.empty() ? "" : "  " + title + "\n" + wrapped(out, "    ");
}

std::string price_lines(const Json& s) {
  const Json& price = s.at("price");
  std::string out =
      "  predicted " + us_text(number(price.at("us"))) + ", unfused " + us_text(number(price.at("unfused_us")));
  if (s.contains("measured_us")) out += ", measured " + us_text(number(s.at("measured_us")));
  if (!text_of(price.at("bound")).empty())
    out += "; bound by " + text_of(price.at("bound")) + ", " + share_text(number(price.at("roofline_share"))) +
           " of the roofline";
  std::string terms;
  for (const auto& [name, us] : price.at("terms_us").items())
    terms += (terms.empty() ? "" : ", ") + shown(name) + " " + us_text(number(us));
  if (!terms.empty()) out += "\n" + wrapped("terms: " + terms, "    ");
  if (out.back() != '\n') out += "\n";
  return out + "  " + bytes_text(s.at("bytes")) + " moved (" + bytes_text(s.at("bytes_read")) + " read, " +
         bytes_text(s.at("bytes_written")) + " written), " + bytes_text(s.at("bytes_unfused")) + " unfused; " +
         (number(s.at("flops").at("at_sizes"))
              ? format_number(*number(s.at("flops").at("at_sizes")) / 1e6, 2) + " MFLOP"
              : text_of(s.at("flops").at("expression")) + " FLOP") +
         "; " + count_text(s.at("launches")) + (s.at("launches") == 1 ? " launch\n" : " launches\n");
}

std::string schedule_lines(const Json& s) {
  std::string out;
  const auto line = [&](const Json& schedule) {
    std::string text =
        text_of(schedule.at("kind")) + (text_of(schedule.at("why")).empty() ? "" : ": ") + text_of(schedule.at("why"));
    for (const auto& [field, what] :
         {std::pair("warps", "warps"), std::pair("registers", "registers a thread"),
          std::pair("spill_bytes", "bytes spilled"), std::pair("shared_bytes", "bytes of shared memory")})
      if (schedule.contains(field) && schedule.at(field) != 0)
        text += ", " + count_text(schedule.at(field)) + " " + what;
    if (schedule.contains("occupancy")) text += ", occupancy " + share_text(number(schedule.at("occupancy")));
    if (schedule.contains("when")) text += " (" + text_of(schedule.at("when")) + ")";
    out += wrapped(text, "    ");
  };
  if (!s.contains("schedule")) return out;
  out += "  schedule\n";
  line(s.at("schedule"));
  if (s.contains("other_schedules") && !s.at("other_schedules").empty()) {
    out += "  for other sizes\n";
    for (const Json& other : s.at("other_schedules")) line(other);
  }
  return out;
}

// By how much the fastest of the measured routes is faster than the next.
std::string won_by(const Json& routes) {
  std::vector<std::pair<double, std::string>> all;
  for (const Json& r : routes)
    if (r.contains("measured_us")) all.emplace_back(r.at("measured_us").get<double>(), text_of(r.at("by")));
  if (all.size() < 2) return "";
  std::sort(all.begin(), all.end());
  if (all[0].first <= 0) return "";
  return wrapped("measured: " + all[0].second + " is " + format_number(all[1].first / all[0].first, 2) +
                     " times as fast as " + all[1].second,
                 "    ");
}

std::string routes_text(const Json& s) {
  if (!s.contains("routes") || s.at("routes").empty()) return "";
  Table table({"route", "", "predicted", "measured", ""}, {2, 3});
  for (const Json& r : s.at("routes")) {
    std::string remark = r.contains("why_not") ? text_of(r.at("why_not")) : "";
    if (r.contains("with") && r.at("with") != 0) remark = "with " + count_text(r.at("with")) + " operators more";
    table.add({text_of(r.at("by")), r.at("taken").get<bool>() ? "taken" : "",
               r.contains("us") ? us_text(number(r.at("us"))) : "",
               r.contains("measured_us") ? us_text(number(r.at("measured_us"))) : "", remark});
  }
  return "  routes\n" + table.str("    ") + won_by(s.at("routes"));
}

// The edges that do not end in the step, the most expensive first.
std::string boundary(const View& v, const Json& s) {
  const auto has = [&](const Json& steps) { return std::find(steps.begin(), steps.end(), s.at("id")) != steps.end(); };
  std::vector<const Json*> out_of, into;
  for (const Json& e : v.json.at("edges")) {
    if (e.at("fused").get<bool>()) continue;
    if (has(e.at("producer_steps")))
      out_of.push_back(&e);
    else if (has(e.at("consumer_steps")))
      into.push_back(&e);
  }
  std::string text;
  for (const auto& [title, list] :
       {std::pair("not fused with what it reads", &into), std::pair("not fused with what reads it", &out_of)}) {
    if (list->empty()) continue;
    std::stable_sort(list->begin(), list->end(), [](const Json* a, const Json* b) {
      return number(a->at("price_us")).value_or(0) > number(b->at("price_us")).value_or(0);
    });
    text += "  " + std::string(title) + "\n";
    for (size_t i = 0; i < list->size() && i < 3; ++i) text += v.verdict(*(*list)[i], "    ");
    if (list->size() > 3) text += "    and " + std::to_string(list->size() - 3) + " more\n";
  }
  return text;
}

std::string operator_text(const View& v, const Json& o) {
  std::string out = text_of(o.at("id")) + ": " + text_of(o.at("op"));
  if (o.contains("module")) out += ", module " + text_of(o.at("module"));
  if (o.contains("source")) out += ", " + text_of(o.at("source"));
  out = wrapped(out, "");
  if (o.at("steps").empty()) out += "  no step is left of it: it was folded when compiling\n";
  const Json& steps = o.at("steps");
  if (steps.size() > kListed) out += "  in " + std::to_string(steps.size()) + " steps, of which the first are\n";
  for (size_t i = 0; i < steps.size() && i < kListed; ++i) {
    const Json& id = steps.at(i);
    const Json& s = v.step(id);
    out += wrapped("in " + text_of(id) + ", step " + count_text(s.at("index")) + ": " + View::what(s) + ", " +
                       us_text(v.us(s)) + ", of " + std::to_string(s.at("operators").size()) + " operators",
                   "  ");
  }
  size_t listed = 0, edges = 0, within = 0;
  for (const char* side : {"consumer", "producer"})
    for (const Json& e : v.json.at("edges")) {
      if (e.at(side) != o.at("id")) continue;
      if (e.at("producer") == e.at("consumer")) {
        within += side == std::string_view("producer") ? 1 : 0;
        continue;
      }
      if (edges++, listed < kListed) ++listed, out += v.verdict(e, "  ");
    }
  if (edges == 0) out += "  no edge: neither what it reads nor what reads it is a computed value\n";
  if (within > 0) out += "  " + std::to_string(within) + " edges between its own parts\n";
  if (edges > listed) out += "  and " + std::to_string(edges - listed) + " more edges\n";
  return out;
}

} // namespace

Result<std::string> kernel(const Json& report, const std::string& name) {
  TESSERA_ASSIGN(const Json* found, find_step(report, name));
  const View v(report);
  const Json& s = *found;
  std::string out = text_of(s.at("id")) + ", step " + count_text(s.at("index")) + ", " + text_of(s.at("kind")) +
                    (s.contains("inside") ? " inside " + text_of(s.at("inside")) : "") + "\n" +
                    wrapped(View::what(s) + (s.contains("tf32") ? " in TF32" : ""), "  ");
  if (s.contains("reason")) out += wrapped(text_of(s.at("reason")), "  ");
  if (s.contains("class")) {
    const auto alike = std::count_if(report.at("steps").begin(), report.at("steps").end(), [&](const Json& other) {
      return other.contains("class") && other.at("class") == s.at("class");
    });
    if (alike > 1) out += "  one of " + std::to_string(alike) + " that do the same on the same shapes\n";
  }
  out += price_lines(s);
  std::string names;
  const Json& operators = s.at("operators");
  for (size_t i = 0; i < operators.size() && i < kListed; ++i)
    names += (i > 0 ? ", " : "") + v.shown_operator(operators.at(i)) + " " + text_of(v.op(operators.at(i)).at("op"));
  if (operators.size() > kListed) names += ", and " + std::to_string(operators.size() - kListed) + " more";
  out += "  operators (" + std::to_string(operators.size()) + ")\n" + wrapped(names, "    ");
  if (s.contains("epilogue") && !s.at("epilogue").empty())
    out += wrapped("epilogue: " + v.types(s.at("epilogue"), kListed), "    ");
  out +=
      values_text("reads", s.at("reads")) + values_text("writes", s.at("writes")) + schedule_lines(s) + routes_text(s);
  if (s.contains("tuned"))
    for (const Json& t : s.at("tuned")) out += wrapped("measured: " + text_of(t), "  ");
  return out + boundary(v, s);
}

Result<std::string> operators(const Json& report, const std::string& name) {
  TESSERA_ASSIGN(const auto found, find_operators(report, name));
  const View v(report);
  if (found.size() == 1) return operator_text(v, *found[0]);
  std::string out = "'" + shown(name) + "' is " + std::to_string(found.size()) + " operators\n";
  Table table({"operator", "type", "module or line", "steps"});
  constexpr size_t kMax = 40;
  for (size_t i = 0; i < found.size() && i < kMax; ++i) {
    const Json& o = *found[i];
    std::string steps;
    for (const Json& s : o.at("steps")) steps += (steps.empty() ? "" : ", ") + text_of(s);
    table.add({clipped(text_of(o.at("id")), 36), text_of(o.at("op")),
               o.contains("source")   ? text_of(o.at("source"))
               : o.contains("module") ? text_of(o.at("module"))
                                      : "",
               steps.empty() ? "folded" : clipped(steps, 36)});
  }
  return out + table.str("  ") +
         (found.size() > kMax ? "  and " + std::to_string(found.size() - kMax) + " more\n" : "");
}

std::string memory(const Json& report) {
  const Json& m = report.at("memory");
  const auto bytes = [](const Json& j) {
    return number(j) ? format_bytes(*number(j)) : std::string("known only when it runs");
  };
  std::string out = "arena " + bytes(m.at("arena_bytes")) + ", constants " + bytes(m.at("constant_bytes")) +
                    ", inputs " + bytes(m.at("input_bytes")) + ", outputs " + bytes(m.at("output_bytes")) + "\n";
  std::vector<const Json*> temporary;
  int64_t last = 0;
  for (const Json& s : report.at("steps"))
    if (!s.contains("inside")) last = std::max(last, s.at("index").get<int64_t>());
  for (const Json& b : m.at("buffers"))
    if (text_of(b.at("kind")) == "temporary" && number(b.at("bytes"))) temporary.push_back(&b);
  if (temporary.empty()) return out + "no temporary buffers\n";

  // Bytes in use only grow where a buffer begins. One that takes over another's memory counts once.
  double all = 0, peak = 0;
  int64_t peak_at = 0;
  for (const Json* first : temporary) {
    const int64_t step = first->at("first_step").get<int64_t>();
    all += *number(first->at("bytes"));
    std::vector<std::pair<double, double>> placed; // begin and end in the arena
    double in_use = 0;
    for (const Json* b : temporary) {
      if (b->at("first_step").get<int64_t>() > step || b->at("last_step").get<int64_t>() < step) continue;
      const double n = *number(b->at("bytes"));
      if (b->contains("offset"))
        placed.emplace_back(b->at("offset").get<double>(), b->at("offset").get<double>() + n);
      else
        in_use += n;
    }
    std::sort(placed.begin(), placed.end());
    double behind = 0; // end of what is counted
    for (const auto& [begin, end] : placed) {
      in_use += std::max(0.0, end - std::max(begin, behind));
      behind = std::max(behind, end);
    }
    if (in_use > peak) peak = in_use, peak_at = step;
  }
  out += "peak " + format_bytes(peak) + " of " + std::to_string(temporary.size()) + " temporary buffers at step " +
         std::to_string(peak_at) + "; without reuse of memory they would take " + format_bytes(all) + "\n\n";

  std::stable_sort(temporary.begin(), temporary.end(),
                   [](const Json* a, const Json* b) { return *number(a->at("bytes")) > *number(b->at("bytes")); });
  constexpr int64_t kColumns = 40;
  constexpr size_t kMax = 20;
  const auto column = [&](int64_t step) { return std::clamp<int64_t>(step * kColumns / (last + 1), 0, kColumns - 1); };
  Table table({"buffer", "bytes", "offset", "steps", "lifetime, of steps 0 to " + std::to_string(last)}, {1, 2, 3});
  for (size_t i = 0; i < temporary.size() && i < kMax; ++i) {
    const Json& b = *temporary[i];
    const int64_t begin = b.at("first_step").get<int64_t>(), end = std::max(begin, b.at("last_step").get<int64_t>());
    std::string bar(static_cast<size_t>(kColumns), '.');
    for (int64_t c = column(begin); c <= column(end); ++c) bar[static_cast<size_t>(c)] = '#';
    table.add({clipped(text_of(b.at("name")), 28), bytes(b.at("bytes")),
               b.contains("offset") ? count_text(b.at("offset")) : "",
               std::to_string(begin) + "-" + std::to_string(end), bar});
  }
  return out + table.str("  ") +
         (temporary.size() > kMax ? "  and " + std::to_string(temporary.size() - kMax) + " smaller ones\n" : "");
}

Result<std::string> ir(const Json& report, const std::string& form, const std::string& name) {
  if (form == "graph" && report.contains("graph")) return report.at("graph").get<std::string>();
  const Json* only = nullptr;
  if (!name.empty()) {
    TESSERA_ASSIGN(only, find_step(report, name));
  }
  std::string out;
  for (const Json& s : report.at("steps")) {
    if ((only != nullptr && only != &s) || !s.contains(form)) continue;
    if (only == nullptr) out += (out.empty() ? "" : "\n") + std::string("# ") + text_of(s.at("id")) + "\n";
    const std::string text = s.at(form).get<std::string>();
    out += text + (text.ends_with('\n') ? "" : "\n");
  }
  if (!out.empty()) return out;
  if (only != nullptr)
    return Diagnostic(ErrorCode::Usage, "step '" + only->at("id").get<std::string>() + "', " +
                                            only->at("kind").get<std::string>() + ", has no " + form + " text here")
        .note("kernels have nest and tile texts, those for a GPU ptx as well; a stored report has those that --ir or "
              "--tiles requested");
  return Diagnostic(ErrorCode::Usage, "the report has no " + form + " texts")
      .note("ask a model for them; ptx is made for a GPU (--device cuda --arch sm_90a)");
}

} // namespace tessera::command::report
