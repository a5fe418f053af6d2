// The report as one page: no script or style from elsewhere, so that it can be mailed and kept. Everything in it comes
// from the JSON; names of a model are foreign text and are escaped.
#include "explain.h"
#include <algorithm>
#include <cmath>

namespace tessera::command {
namespace {

constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --bar: #4a8fd8; --was: #8886; --bad: #c0392b; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
.note { color: #888; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { cursor: pointer; user-select: none; white-space: nowrap; } th[data-order]::after { content: " \25B2"; }
th[data-order="-1"]::after { content: " \25BC"; }
tbody tr:hover { background: var(--soft); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 12px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.bars { width: 10rem; } .bar { height: .45rem; background: var(--bar); margin: .15rem 0; min-width: 1px; }
.bar.was { background: var(--was); }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { border: 1px solid var(--line); border-radius: .4rem; padding: .5rem .9rem; }
.card b { display: block; font-size: 1.3rem; } .bad { color: var(--bad); }
summary { cursor: pointer; margin: .6rem 0; } pre { overflow-x: auto; background: var(--soft); padding: .6rem; }
)css";

// A click on a column's head sorts the rows: by data-v where a cell has one, else by its text.
constexpr const char* kScript = R"js(
for (const head of document.querySelectorAll("th")) head.addEventListener("click", () => {
  const table = head.closest("table"), body = table.tBodies[0], at = head.cellIndex;
  const order = head.dataset.order === "1" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) delete other.dataset.order;
  head.dataset.order = order;
  const key = row => row.cells[at].dataset.v ?? row.cells[at].textContent;
  const rows = [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b), n = Number(x) - Number(y);
    return order * (x !== "" && y !== "" && !Number.isNaN(n) ? n : x.localeCompare(y));
  });
  body.append(...rows);
});
)js";

std::string html_escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
    case '&': out += "&amp;"; break;
    case '<': out += "&lt;"; break;
    case '>': out += "&gt;"; break;
    case '"': out += "&quot;"; break;
    default: out += c;
    }
  }
  return out;
}
std::string escaped(std::string_view text) { return html_escaped(shown(text)); }
std::string text(const Json& j, const char* key) {
  auto it = j.find(key);
  if (it == j.end() || it->is_null()) return "";
  return escaped(it->is_string() ? it->get<std::string>() : it->dump());
}

// A number of bytes; NaN where the sizes do not say it.
double number_of(const Json& bytes) {
  const auto& v = bytes.at("at_sizes");
  return v.is_null() ? std::nan("") : v.get<double>();
}
std::string amount(const Json& bytes) {
  double v = number_of(bytes);
  return std::isnan(v) ? "<code>" + text(bytes, "expression") + "</code>" : escaped(format_bytes(v));
}

class Table {
public:
  struct Column {
    const char* name;
    bool number = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Cells are HTML; `keys` sort where they are not empty.
  void add(const std::vector<std::string>& cells, const std::vector<std::string>& keys = {}) {
    rows_ += "<tr>";
    for (size_t c = 0; c < cells.size(); ++c) {
      rows_ += columns_[c].number ? "<td class=\"number\"" : "<td";
      if (c < keys.size() && !keys[c].empty()) rows_ += " data-v=\"" + keys[c] + "\"";
      rows_ += ">" + cells[c] + "</td>";
    }
    rows_ += "</tr>\n";
  }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  [[nodiscard]] std::string html() const {
    std::string out = "<table><thead><tr>";
    for (const auto& c : columns_) out += std::string(c.number ? "<th class=\"number\">" : "<th>") + c.name + "</th>";
    return out + "</tr></thead><tbody>\n" + rows_ + "</tbody></table>\n";
  }

private:
  std::vector<Column> columns_;
  std::string rows_;
};

std::string key(double v) { return std::isnan(v) ? "" : format_number(v, 0); }
std::string key(const Json& bytes) { return key(number_of(bytes)); }

// What a group moves and, in grey, what its operators would move unfused, on one scale for the page.
std::string bars(const Json& group, double most) {
  auto bar = [&](const char* which, const char* cls) {
    double v = number_of(group.at(which));
    if (std::isnan(v) || most <= 0) return std::string();
    return std::string("<div class=\"bar") + cls + "\" style=\"width:" + format_number(100 * v / most, 2) +
           "%\" title=\"" + escaped(format_bytes(v)) + "\"></div>";
  };
  return "<div class=\"bars\">" + bar("bytes", "") + bar("bytes_operator_by_operator", " was") + "</div>";
}

std::string operators(const Json& list) {
  std::string out;
  for (const auto& o : list)
    out += (out.empty() ? "" : ", ") + text(o, "name") + " <span class=\"note\">" + text(o, "op") +
           (o.contains("source") ? ", " + text(o, "source") : "") + "</span>";
  return out.empty() ? "-" : out;
}

std::string with_tile(const Json& group, const std::string& name) {
  if (!group.contains("tile")) return "<code>" + name + "</code>";
  return "<details><summary><code>" + name + "</code></summary><pre>" +
         html_escaped(shown_lines(group.at("tile").get<std::string>())) + "</pre></details>";
}

// "block-rows: tile [1, 1024] on 4 warps; predicted 25.6 us, bound by memory"
std::string described(const Json& s) {
  std::string out = text(s, "kind") + ": " + text(s, "why");
  if (s.contains("predicted_us"))
    out += "; predicted " + format_number(s.at("predicted_us"), 1) + " us, bound by " + text(s, "bound");
  return out;
}

std::string kernels(const Json& j, double most) {
  Table table({{"name"}, {"moves", true}, {"unfused", true}, {""}, {"operators"}, {"over"}, {"schedule"}});
  for (const auto& k : j.at("kernels")) {
    std::string schedule;
    for (const auto& s : k.value("schedules_before", Json::array()))
      schedule += text(s, "when") + " " + described(s) + "; else ";
    if (k.contains("schedule")) schedule += described(k.at("schedule"));
    table.add({with_tile(k, text(k, "name")), amount(k.at("bytes")), amount(k.at("bytes_operator_by_operator")),
               bars(k, most), operators(k.at("operators")), text(k, "iteration"), schedule},
              {text(k, "name"), key(k.at("bytes")), key(k.at("bytes_operator_by_operator")), key(k.at("bytes")),
               std::to_string(k.at("operators").size())});
  }
  return table.empty() ? "" : "<h2>Kernels</h2>\n" + table.html();
}

std::string library_calls(const Json& j, double most) {
  Table table({{"name"}, {"call"}, {"moves", true}, {"unfused", true}, {""}, {"operands"}, {"done on the result"}});
  for (const auto& k : j.at("library_calls")) {
    std::string operands;
    for (const auto& o : k.at("operands"))
      operands += (operands.empty() ? "" : " x ") + text(o, "name") + " <code>" + text(o, "shape") + "</code>";
    table.add({with_tile(k, text(k, "name")), text(k, "library_call") + (k.contains("tf32") ? " in TF32" : ""),
               amount(k.at("bytes")), amount(k.at("bytes_operator_by_operator")), bars(k, most), operands,
               operators(k.at("epilogue"))},
              {text(k, "name"), "", key(k.at("bytes")), key(k.at("bytes_operator_by_operator")), key(k.at("bytes"))});
  }
  return table.empty() ? "" : "<h2>Library calls</h2>\n" + table.html();
}

std::string edges(const Json& list, const char* title, bool saved) {
  Table table({{"code"}, {"reason"}, {"from"}, {"to"}, {saved ? "saves" : "bytes", true}, {"detail"}});
  for (const auto& e : list) {
    const char* which = saved ? "bytes_saved" : "bytes";
    bool has = e.contains(which);
    auto end = [&](const char* name, const char* op) {
      return text(e, name) + " <span class=\"note\">" + text(e, op) + "</span>";
    };
    table.add({text(e, "code"), text(e, "reason"), end("producer", "producer_op"), end("consumer", "consumer_op"),
               has ? amount(e.at(which)) : "", text(e, "detail")},
              {"", "", "", "", has ? key(e.at(which)) : ""});
  }
  if (table.empty()) return "";
  std::string head = std::string(title) + " (" + std::to_string(list.size()) + ")";
  return saved ? "<details><summary>" + head + "</summary>\n" + table.html() + "</details>\n"
               : "<h2>" + head + "</h2>\n" + table.html();
}

std::string reasons(const Json& j) {
  Table table({{"code"}, {"reason"}, {"edges", true}, {"means"}});
  for (const auto& c : j.at("edges_by_code"))
    table.add({text(c, "code"), text(c, "reason"), text(c, "count"), text(c, "summary")});
  return table.empty() ? "" : "<h2>Edges by reason</h2>\n" + table.html();
}

std::string breaks(const Json& j) {
  std::string out = "<h2>Breaks</h2>\n";
  const Json control = j.value("control_flow", Json::array());
  if (j.at("host_operators").empty() && control.empty() && j.at("breaks").at("data_dependent_sizes").empty())
    return out + "<p>None: every operator is compiled or a library call, every size follows from the inputs.</p>\n";
  Table table({{"what"}, {"why"}, {"bytes", true}});
  for (const auto& h : j.at("host_operators"))
    table.add({text(h, "name") + " is a CPU fallback", text(h, "reason"), amount(h.at("bytes"))},
              {"", "", key(h.at("bytes"))});
  for (const auto& c : control) table.add({text(c, "name") + " runs bodies of its own", text(c, "reason"), ""});
  for (const auto& d : j.at("breaks").at("data_dependent_sizes"))
    table.add({"size <code>" + text(d, "symbol") + "</code>",
               "known only when " + text(d, "defined_by") + " (" + text(d, "op") + ") has run", ""});
  return out + table.html();
}

std::string constants(const Json& j) {
  Table table({{"value"}, {"operator"}, {"bytes", true}, {"why it is computed at every call"}});
  for (const auto& l : j.at("constants").at("left"))
    table.add({text(l, "name"), text(l, "op"), text(l, "bytes"), text(l, "reason")});
  return table.empty() ? "" : "<h2>Constants that were not computed when compiling</h2>\n" + table.html();
}

std::string guards(const Json& j) {
  Table table({{"class"}, {"condition"}, {"reason"}, {"where"}});
  for (const auto& g : j.at("guards"))
    table.add({text(g, "class"), "<code>" + text(g, "condition") + "</code>", text(g, "reason"), text(g, "where")});
  return table.empty() ? "" : "<h2>Guards</h2>\n" + table.html();
}

std::string compile_times(const Json& j) {
  Table table({{"pass"}, {"changed"}, {"ms", true}, {"nodes before", true}, {"after", true}});
  for (const auto& p : j.at("passes"))
    table.add({text(p, "name"), p.at("changed").get<bool>() ? "yes" : "", format_number(p.at("ms").get<double>(), 2),
               text(p, "nodes_before"), text(p, "nodes_after")});
  const auto& c = j.at("compile");
  std::string out = "<details><summary>Time of compiling: ";
  for (const char* step : {"import", "passes", "fusion", "constants", "codegen", "link"})
    out += std::string(step) + " " + escaped(format_ms(c.at(std::string(step) + "_ms").get<double>())) + ", ";
  return out + text(c, "cache_hits") + " kernels from the cache, " + text(c, "cache_misses") + " compiled</summary>\n" +
         table.html() + "</details>\n";
}

std::string totals(const Json& j) {
  const auto& t = j.at("totals");
  auto card = [](const std::string& number, const std::string& what, bool bad = false) {
    return std::string("<div class=\"card") + (bad ? " bad" : "") + "\"><b>" + number + "</b>" + what + "</div>\n";
  };
  double after = number_of(t.at("bytes")), before = number_of(t.at("bytes_operator_by_operator"));
  std::string out = "<div class=\"cards\">\n" + card(text(t, "operators"), "operators") +
                    card(text(t, "kernels"), "kernels") + card(text(t, "library_calls"), "library calls") +
                    card(text(t, "host_operators"), "CPU fallbacks", t.at("host_operators") != 0) +
                    card(amount(t.at("bytes")), "moved") +
                    card(amount(t.at("bytes_operator_by_operator")), "operator by operator");
  if (!std::isnan(after) && !std::isnan(before) && before > 0)
    out += card(format_number(100 * after / before, 0) + " %", "of the bytes are left");
  return out + "</div>\n";
}

std::string heading(const Json& j) {
  std::string out = "<h1>" + text(j, "model") + "</h1>\n<p>";
  if (j.contains("format") && !text(j, "format").empty())
    out += text(j, "format") + (text(j, "producer").empty() ? "" : " (" + text(j, "producer") + ")") + "; ";
  if (j.contains("opsets"))
    for (const auto& [domain, version] : j.at("opsets").items())
      out += escaped(domain) + " opset " + escaped(version.dump()) + "; ";
  out += text(j, "target") + " (figures of " + text(j, "figures") + "); " + text(j, "variant") + " variant</p>\n";
  for (const char* which : {"inputs", "outputs"}) {
    out += std::string("<p>") + which + ":";
    for (const auto& io : j.at(which)) out += " " + text(io, "name") + " <code>" + text(io, "type") + "</code>";
    out += "</p>\n";
  }
  if (!j.at("sizes").empty()) {
    out += "<p class=\"note\">Numbers are for";
    for (const auto& [name, size] : j.at("sizes").items()) out += " " + escaped(name) + "=" + escaped(size.dump());
    out += ".</p>\n";
  }
  return out;
}

} // namespace

std::string explain_html(const Json& j) {
  double most = 0;
  for (const char* which : {"kernels", "library_calls"})
    for (const auto& g : j.at(which))
      for (const char* bytes : {"bytes", "bytes_operator_by_operator"})
        if (double v = number_of(g.at(bytes)); !std::isnan(v)) most = std::max(most, v);
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + text(j, "model") +
         "</title>\n<meta name=\"viewport\" content=\"width=device-width\"><style>" + kStyle +
         "</style></head><body>\n" + heading(j) + totals(j) +
         "<p class=\"note\">Bars: what a step moves and, in grey, what its operators would move unfused. Click a "
         "column's head to sort.</p>\n" +
         kernels(j, most) + library_calls(j, most) + edges(j.at("not_fused"), "Edges not fused", false) +
         edges(j.at("fused"), "Edges fused", true) + reasons(j) + breaks(j) + constants(j) + guards(j) +
         compile_times(j) + "<script>" + kScript + "</script></body></html>\n";
}

} // namespace tessera::command
