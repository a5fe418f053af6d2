// Everything that the report holds, as tables.
#include "report/report.h"
#include <algorithm>

namespace tessera::command::report {

namespace {

std::string schedule_text(const Json& s) {
  std::string out = text_of(s.at("kind")) + (text_of(s.at("why")).empty() ? "" : ", " + text_of(s.at("why")));
  for (const char* field : {"registers", "spill_bytes", "shared_bytes"})
    if (s.contains(field) && s.at(field) != 0) out += ", " + std::string(field) + " " + s.at(field).dump();
  if (s.contains("occupancy")) out += ", occupancy " + format_number(100 * s.at("occupancy").get<double>(), 0) + " %";
  return out;
}

std::string terms_text(const Json& price) {
  std::string out;
  for (const auto& [name, us] : price.at("terms_us").items())
    if (us.get<double>() >= 0.05) out += (out.empty() ? "" : ", ") + name + " " + format_number(us, 1);
  return out;
}

std::string steps(const View& v) {
  std::vector<std::string> header = {"step", "kind", "predicted"};
  const bool measured = v.json.at("totals").contains("measured_us");
  if (measured) header.emplace_back("measured");
  for (const char* h : {"bound", "bytes", "unfused", "what", "operators"}) header.emplace_back(h);
  Table table(header, measured ? std::vector<size_t>{2, 3, 5, 6} : std::vector<size_t>{2, 4, 5});
  for (const Json& s : v.json.at("steps")) {
    std::vector<std::string> row = {text_of(s.at("id")), text_of(s.at("kind")),
                                    us_text(number(s.at("price").at("us")))};
    if (measured) row.push_back(s.contains("measured_us") ? us_text(number(s.at("measured_us"))) : "");
    for (auto& cell : {text_of(s.at("price").at("bound")), bytes_text(s.at("bytes")), bytes_text(s.at("bytes_unfused")),
                       View::what(s), v.types(s.at("operators"))})
      row.push_back(cell);
    table.add(std::move(row));
  }
  return table.empty() ? "" : "\nsteps\n" + table.str("  ");
}

std::string schedules(const Json& j) {
  Table table({"kernel", "for", "planned", "terms of the price in us", "schedule"}, {2});
  Table tuned({"kernel", "measured"});
  for (const Json& s : j.at("steps")) {
    if (!s.contains("schedule")) continue;
    auto add = [&](const Json& schedule, const std::string& terms) {
      table.add({text_of(s.at("id")), schedule.contains("when") ? text_of(schedule.at("when")) : "every size",
                 schedule.contains("planned_us") ? us_text(number(schedule.at("planned_us"))) : "-", terms,
                 schedule_text(schedule)});
    };
    add(s.at("schedule"), terms_text(s.at("price")));
    if (s.contains("other_schedules"))
      for (const Json& other : s.at("other_schedules")) add(other, "");
    if (s.contains("tuned"))
      for (const Json& t : s.at("tuned")) tuned.add({text_of(s.at("id")), text_of(t)});
  }
  return (table.empty() ? "" : "\nschedules, the one of these sizes first\n" + table.str("  ")) +
         (tuned.empty() ? "" : "\nkernels with measured schedules\n" + tuned.str("  "));
}

std::string routes(const Json& j) {
  Table table({"step", "by", "", "why not"});
  for (const Json& s : j.at("steps"))
    if (s.contains("routes"))
      for (const Json& r : s.at("routes"))
        table.add({text_of(s.at("id")), text_of(r.at("by")), r.at("taken").get<bool>() ? "taken" : "",
                   r.contains("why_not") ? text_of(r.at("why_not")) : ""});
  return table.empty()
             ? ""
             : "\nroutes of products, convolutions and other structured operators, best first\n" + table.str("  ");
}

std::string edges(const View& v) {
  Table table({"code", "reason", "price", "bytes", "from", "to", "detail"}, {2, 3});
  std::vector<const Json*> list;
  for (const Json& e : v.json.at("edges"))
    if (!e.at("fused").get<bool>()) list.push_back(&e);
  std::stable_sort(list.begin(), list.end(), [](const Json* a, const Json* b) {
    return number(a->at("price_us")).value_or(0) > number(b->at("price_us")).value_or(0);
  });
  for (const Json* e : list)
    table.add({text_of(e->at("code")), text_of(e->at("reason")), us_text(number(e->at("price_us"))),
               bytes_text(e->at("bytes")), v.shown_operator(e->at("producer")), v.shown_operator(e->at("consumer")),
               text_of(e->at("detail"))});
  return table.empty() ? "" : "\nedges not fused\n" + table.str("  ");
}

std::string pairs(const View& v) {
  Table table({"code", "reason", "price", "one", "other", "detail"}, {2});
  for (const Json& p : v.json.at("pairs"))
    table.add({text_of(p.at("code")), text_of(p.at("reason")), us_text(number(p.at("price_us"))),
               v.shown_operator(p.at("first")), v.shown_operator(p.at("second")), text_of(p.at("detail"))});
  return table.empty() ? "" : "\npairs of kernels\n" + table.str("  ");
}

std::string codes(const Json& j) {
  Table table({"code", "reason", "edges", "price or saving", ""}, {2, 3});
  for (const Json& c : j.at("codes"))
    table.add({text_of(c.at("code")), text_of(c.at("reason")), c.at("count").dump(), us_text(number(c.at("price_us"))),
               text_of(c.at("summary"))});
  return table.empty() ? "" : "\nedges by reason\n" + table.str("  ");
}

std::string breaks(const Json& j) {
  Table table({"code", "price", "what", "why", "what to do"}, {1});
  for (const Json& b : j.at("breaks"))
    table.add({text_of(b.at("code")), us_text(number(b.at("price_us"))), text_of(b.at("what")), text_of(b.at("reason")),
               text_of(b.at("advice"))});
  return "\nbreaks\n" + (table.empty() ? std::string("  none\n") : table.str("  "));
}

std::string constants(const Json& j) {
  const Json& constants = j.at("constants");
  if (constants.at("computed") == 0 && constants.at("left").empty()) return "";
  std::string out = "\nconstants\n  " + constants.at("computed").dump() + " computed when compiling, " +
                    format_bytes(constants.at("bytes").get<double>()) + "\n";
  for (const auto& l : constants.at("left"))
    out += "  " + text_of(l.at("name")) + " (" + text_of(l.at("op")) + ", " +
           format_bytes(l.at("bytes").get<double>()) +
           ") depends on no input and is computed at every call: " + text_of(l.at("reason")) + "\n";
  return out;
}

} // namespace

std::string guards(const Json& j) {
  std::string out = "\nguards\n";
  for (const auto& g : j.at("guards"))
    out += "  " + text_of(g.at("class")) + ": " + text_of(g.at("condition")) + "; " + text_of(g.at("reason")) +
           (text_of(g.at("where")).empty() ? "" : ", " + text_of(g.at("where"))) + "\n";
  if (j.at("guards").empty()) out += "  none\n";
  Table table({"size", "of", "costs", "step", "with a known size"}, {2});
  for (const Json& s : j.at("symbols")) {
    std::string inputs;
    for (const Json& i : s.at("dimension_of")) inputs += (inputs.empty() ? "" : ", ") + text_of(i);
    if (s.at("costs").empty()) table.add({text_of(s.at("name")), inputs, us_text(0.0), "", ""});
    for (const Json& c : s.at("costs"))
      table.add({text_of(s.at("name")), inputs, us_text(number(c.at("price_us"))), text_of(c.at("step")),
                 text_of(c.at("lost"))});
  }
  return out + (table.empty() ? "" : "\nsizes that are not known when compiling\n" + table.str("  "));
}

std::string full(const Json& j) {
  const View v(j);
  return overview(j, false) + steps(v) + schedules(j) + routes(j) + edges(v) + pairs(v) + codes(j) + breaks(j) +
         constants(j) + guards(j);
}

} // namespace tessera::command::report
