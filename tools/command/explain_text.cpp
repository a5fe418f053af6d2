#include "explain.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace tessera::command {

namespace {

// Text of the report is the model's: one line of it, fit to be shown.
std::string text_of(const Json& j) { return j.is_null() ? "" : shown(j.get<std::string>()); }
double at_sizes(const Json& bytes) {
  return bytes.at("at_sizes").is_null() ? std::nan("") : bytes.at("at_sizes").get<double>();
}

std::string shown_bytes(const Json& bytes) {
  double v = at_sizes(bytes);
  return std::isnan(v) ? text_of(bytes.at("expression")) : format_bytes(v);
}

// "Add_12", "layers.0.act.relu (model.py:42)"
std::string shown_operator(const Json& o) {
  return text_of(o.at("name")) + (o.contains("source") ? " (" + text_of(o.at("source")) + ")" : "");
}

// "Add_12, ReduceMean_13 ... Add_21": a few of many.
std::string shown_operators(const Json& operators, size_t most = 4) {
  std::string out;
  for (size_t i = 0; i < operators.size(); ++i) {
    if (i + 1 < operators.size() && i + 1 >= most && operators.size() > most) {
      out += " ... " + shown_operator(operators.back());
      break;
    }
    out += (i > 0 ? ", " : "") + shown_operator(operators[i]);
  }
  return out;
}

// Which operators, by type, with counts: "Add 2, Gelu".
std::string shown_types(const Json& operators) {
  std::vector<std::pair<std::string, int>> counts;
  for (const auto& o : operators) {
    std::string op = text_of(o.at("op"));
    auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == op; });
    if (it == counts.end())
      counts.emplace_back(op, 1);
    else
      ++it->second;
  }
  std::string out;
  for (const auto& [op, n] : counts) out += (out.empty() ? "" : ", ") + op + (n > 1 ? " " + std::to_string(n) : "");
  return out;
}

// Each kernel's schedules in the order in which they are tried, with the predicted time and its terms.
std::string schedules_text(const Json& j) {
  Table table({"kernel", "when", "predicted", "bound by", "terms in us", "schedule"}, {2});
  for (const auto& k : j.at("kernels")) {
    if (!k.contains("schedule")) continue;
    auto add = [&](const Json& s, const std::string& when) {
      std::string terms;
      const Json all = s.value("terms_us", Json::object());
      for (const auto& [name, us] : all.items())
        if (us.get<double>() >= 0.05) terms += (terms.empty() ? "" : ", ") + name + " " + format_number(us, 1);
      const std::string why = s.at("why");
      table.add({text_of(k.at("name")), when,
                 s.contains("predicted_us") ? format_number(s["predicted_us"], 1) + " us" : "-", s.value("bound", "-"),
                 terms, text_of(s.at("kind")) + (why.empty() ? "" : ", " + shown(why))});
    };
    for (const auto& s : k.value("schedules_before", Json::array())) add(s, text_of(s.at("when")));
    add(k.at("schedule"), k.contains("schedules_before") ? "else" : "always");
  }
  return table.empty() ? "" : "\nschedules\n" + table.str("  ");
}

std::string totals_text(const Json& j) {
  const Json& t = j.at("totals");
  double after = at_sizes(t.at("bytes")), before = at_sizes(t.at("bytes_operator_by_operator"));
  std::string out = "totals\n  " + t.at("operators").dump() + " operators -> " + t.at("kernels").dump() + " kernels, " +
                    t.at("library_calls").dump() + " library calls, " + t.at("host_operators").dump() +
                    " CPU fallbacks\n  " + shown_bytes(t.at("bytes")) + " moved instead of " +
                    shown_bytes(t.at("bytes_operator_by_operator")) + " operator by operator";
  if (!std::isnan(after) && !std::isnan(before) && before > 0)
    out += " (" + format_number(100 * after / before, 0) + " %)";
  return out + "\n";
}

} // namespace

std::string explain_text(const Json& j, bool summary) {
  std::string out = text_of(j.at("model"));
  if (!j.at("format").get<std::string>().empty())
    out += ", " + text_of(j.at("format")) +
           (text_of(j.at("producer")).empty() ? "" : " (" + text_of(j.at("producer")) + ")");
  for (const auto& [domain, version] : j.at("opsets").items()) out += ", " + shown(domain) + " opset " + version.dump();
  out += "; " + text_of(j.at("target")) + " (figures of " + text_of(j.value("figures", Json(""))) + "); " +
         text_of(j.at("variant")) + " variant\n";
  for (const char* which : {"inputs", "outputs"}) {
    out += std::string(which) + ":";
    for (const auto& io : j.at(which)) out += " " + text_of(io.at("name")) + " " + text_of(io.at("type"));
    out += "\n";
  }
  if (!j.at("sizes").empty()) {
    out += "numbers below are for";
    for (const auto& [name, size] : j.at("sizes").items()) out += " " + shown(name) + "=" + size.dump();
    out += "\n";
  }

  if (!summary && !j.at("kernels").empty()) {
    out += "\nkernels\n";
    Table table({"name", "operators", "bytes", "unfused", "which", "from"}, {1, 2, 3});
    for (const auto& k : j.at("kernels"))
      table.add({text_of(k.at("name")), std::to_string(k.at("operators").size()), shown_bytes(k.at("bytes")),
                 shown_bytes(k.at("bytes_operator_by_operator")), shown_types(k.at("operators")),
                 shown_operators(k.at("operators"))});
    out += table.str("  ");
  }
  if (!summary) out += schedules_text(j);
  Table tuned({"name", "measured"});
  for (const auto& k : j.at("kernels"))
    if (k.contains("tuned"))
      for (const auto& t : k.at("tuned")) tuned.add({text_of(k.at("name")), text_of(t)});
  if (!summary && !tuned.empty()) out += "\nkernels with measured schedules\n" + tuned.str("  ");
  if (!summary && !j.at("library_calls").empty()) {
    out += "\nlibrary calls\n";
    // The operator itself is named where the model gives its line.
    const bool with_source = std::any_of(j.at("library_calls").begin(), j.at("library_calls").end(), [](const Json& k) {
      return !k.at("operators").empty() && k.at("operators")[0].contains("source");
    });
    std::vector<std::string> header = {"name", "call", "operands", "bytes", "epilogue"};
    if (with_source) header.emplace_back("from");
    Table table(header, {3});
    for (const auto& k : j.at("library_calls")) {
      std::string operands;
      for (const auto& o : k.at("operands")) operands += (operands.empty() ? "" : " x ") + text_of(o.at("shape"));
      std::string epilogue =
          k.at("epilogue").empty() ? "-" : shown_types(k.at("epilogue")) + ": " + shown_operators(k.at("epilogue"));
      std::vector<std::string> row = {text_of(k.at("name")),
                                      text_of(k.at("library_call")) + (k.contains("tf32") ? " in TF32" : ""), operands,
                                      shown_bytes(k.at("bytes")), epilogue};
      if (with_source) {
        const Json &all = k.at("operators"), &epilogue_of = k.at("epilogue");
        auto own = std::find_if(all.begin(), all.end(), [&](const Json& o) {
          return std::find(epilogue_of.begin(), epilogue_of.end(), o) == epilogue_of.end();
        });
        row.push_back(own == all.end() ? "-" : shown_operator(*own));
      }
      table.add(std::move(row));
    }
    out += table.str("  ");
  }
  if (!summary && !j.at("not_fused").empty()) {
    out += "\nedges not fused\n";
    Table table({"code", "reason", "from", "to", "bytes", "detail"}, {4});
    for (const auto& e : j.at("not_fused"))
      table.add({text_of(e.at("code")), text_of(e.at("reason")), text_of(e.at("producer")), text_of(e.at("consumer")),
                 e.contains("bytes") ? shown_bytes(e.at("bytes")) : "",
                 e.contains("detail") ? text_of(e.at("detail")) : ""});
    out += table.str("  ");
  }

  // What was weighed: one line a value, whose edges say the same.
  Table recomputed({"code", "value", "detail"});
  std::set<std::string> weighed;
  for (const auto& e : j.at("fused"))
    if (const std::string detail = e.contains("detail") ? text_of(e.at("detail")) : "";
        detail.find("computed ") != std::string::npos && weighed.insert(text_of(e.at("value"))).second)
      recomputed.add({text_of(e.at("code")), text_of(e.at("value")), detail});
  if (!summary && !recomputed.empty()) out += "\nrecomputed by consumers\n" + recomputed.str("  ");
  Table pairs({"code", "reason", "one", "other", "detail"});
  for (const auto& p : j.at("pairs"))
    pairs.add({text_of(p.at("code")), text_of(p.at("reason")), text_of(p.at("first")), text_of(p.at("second")),
               text_of(p.at("detail"))});
  if (!summary && !pairs.empty()) out += "\npairs of kernels\n" + pairs.str("  ");

  Table codes({"code", "reason", "edges", ""}, {2});
  for (const auto& c : j.at("edges_by_code"))
    codes.add({text_of(c.at("code")), text_of(c.at("reason")), c.at("count").dump(), text_of(c.at("summary"))});
  if (!codes.empty()) out += "\nedges by reason\n" + codes.str("  ");

  out += "\nbreaks\n";
  const Json control = j.value("control_flow", Json::array());
  if (j.at("host_operators").empty() && control.empty() && j.at("breaks").at("data_dependent_sizes").empty())
    out += "  none: every operator is compiled or a library call, every size follows from the inputs\n";
  for (const auto& h : j.at("host_operators"))
    out += "  " + text_of(h.at("name")) + " runs by its reference on the host" +
           (h.contains("reason") ? ": " + text_of(h.at("reason")) : "") + ", " + shown_bytes(h.at("bytes")) + "\n";
  for (const auto& c : control)
    out += "  " + text_of(c.at("name")) + " runs bodies of its own: " + text_of(c.at("reason")) + "\n";
  for (const auto& d : j.at("breaks").at("data_dependent_sizes"))
    out += "  size " + text_of(d.at("symbol")) + " is known only when " + text_of(d.at("defined_by")) + " (" +
           text_of(d.at("op")) + ") has run\n";

  const Json& constants = j.at("constants");
  if (constants.at("computed") != 0 || !constants.at("left").empty()) {
    out += "\nconstants\n  " + constants.at("computed").dump() + " computed when compiling, " +
           format_bytes(constants.at("bytes").get<double>()) + "\n";
    for (const auto& l : constants.at("left"))
      out += "  " + text_of(l.at("name")) + " (" + text_of(l.at("op")) + ", " +
             format_bytes(l.at("bytes").get<double>()) +
             ") depends on no input and is computed at every call: " + text_of(l.at("reason")) + "\n";
  }

  if (!summary && !j.at("guards").empty()) {
    out += "\nguards\n";
    for (const auto& g : j.at("guards"))
      out += "  " + text_of(g.at("class")) + ": " + text_of(g.at("condition")) + "; " + text_of(g.at("reason")) +
             (text_of(g.at("where")).empty() ? "" : ", " + text_of(g.at("where"))) + "\n";
  }
  if (const Json warnings = j.at("compile").value("warnings", Json::array()); !warnings.empty()) {
    out += "\nwarnings\n";
    for (const auto& w : warnings) out += "  " + text_of(w) + "\n";
  }
  return out + "\n" + totals_text(j);
}

} // namespace tessera::command
