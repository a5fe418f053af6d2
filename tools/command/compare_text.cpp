#include "compare.h"
#include <algorithm>
#include <cmath>
#include <map>

namespace tessera::command {

namespace {

constexpr size_t kShown = 5; // of each list

std::string us_text(double us) { return format_ms(us / 1e3); }
std::string signed_us(double us) { return (us < 0 ? "-" : "+") + us_text(std::fabs(us)); }
double number(const Json& j) { return j.is_number() ? j.get<double>() : 0; }

// A long name without its middle.
std::string brief(const std::string& name) {
  constexpr size_t kFirst = 18, kLast = 7;
  const std::string text = shown(name);
  return text.size() <= kFirst + kLast + 3 ? text : text.substr(0, kFirst) + "..." + text.substr(text.size() - kLast);
}

std::string listed(const Json& ids, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(ids.size(), most); ++i) text += (i ? ", " : "") + brief(ids[i].get<std::string>());
  return ids.size() > most ? text + " and " + std::to_string(ids.size() - most) + " more" : text;
}

std::string side_text(const Json& side) {
  std::string text = shown(side.value("model", "")) + "  " + shown(side.value("target", ""));
  if (side.contains("figures")) text += "  (" + shown(side["figures"].get<std::string>()) + ")";
  text += "  tessera " + shown(side.value("tessera", ""));
  if (side.contains("sizes"))
    for (const auto& [name, size] : side["sizes"].items()) text += "  " + shown(name) + "=" + size.dump();
  return text;
}

std::string total_text(const std::string& key, const Json& v) {
  if (v.is_null()) return "not known";
  if (key.starts_with("bytes")) return format_bytes(number(v));
  if (key.ends_with("_us")) return us_text(number(v));
  return format_number(number(v), 0);
}

std::string totals_text(const Json& totals) {
  Table table({"", "A", "B", "B - A"}, {1, 2, 3});
  for (const Json& t : totals) {
    const std::string key = t.at("name");
    if (number(t.at("a")) == 0 && number(t.at("b")) == 0) continue;
    std::string name = key.ends_with("_us") ? key.substr(0, key.size() - 3) + " time" : key;
    std::replace(name.begin(), name.end(), '_', ' ');
    const double less = number(t.at("b")) - number(t.at("a"));
    std::string change;
    if (!t.at("a").is_null() && !t.at("b").is_null() && less != 0) {
      change = (less > 0 ? "+" : "-") + total_text(key, std::fabs(less));
      if (number(t.at("a")) > 0) {
        const double percent = 100 * less / number(t.at("a"));
        change += " (" + std::string(percent > 0 ? "+" : "") + format_number(percent, 1) + " %)";
      }
    }
    table.add({name, total_text(key, t.at("a")), total_text(key, t.at("b")), change});
  }
  return table.str("  ");
}

// Edges of the same types and codes are one line.
std::string edges_text(const Json& edges) {
  struct Kind {
    size_t count = 0;
    double price = 0;
    const Json* example = nullptr;
  };
  std::map<std::vector<std::string>, Kind> kinds;
  for (const Json& e : edges) {
    Kind& kind = kinds[{e.at("change"), e.at("ops")[0], e.at("ops")[1], e.at("a").at("code"), e.at("b").at("code")}];
    ++kind.count;
    kind.price += number(e.at("b").at("price_us")) - number(e.at("a").at("price_us"));
    if (!kind.example) kind.example = &e;
  }
  // Fusions that only one of the two has come first, the most frequent first.
  std::vector<std::pair<std::vector<std::string>, Kind>> ordered(kinds.begin(), kinds.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& x, const auto& y) {
    const bool only_x = x.first[0].starts_with("only"), only_y = y.first[0].starts_with("only");
    return only_x != only_y ? only_x : x.second.count > y.second.count;
  });
  std::string out;
  for (size_t i = 0; i < std::min(ordered.size(), kShown); ++i) {
    const auto& [key, kind] = ordered[i];
    const Json& e = *kind.example;
    out += "  " + key[0] + ": " + shown(key[1]) + " -> " + shown(key[2]) +
           (kind.count > 1 ? "  x" + std::to_string(kind.count) : "") + "\n";
    for (const char* side : {"a", "b"}) {
      const Json& s = e.at(side);
      out += std::string("    ") + (side[0] == 'a' ? "A" : "B") + ": " + s.at("code").get<std::string>() + " " +
             s.at("reason").get<std::string>();
      if (const auto detail = s.value("detail", ""); !detail.empty()) out += ": " + shown(detail);
      out += "\n";
    }
    out += "    at " + shown(e.at("producer").get<std::string>()) + " -> " + shown(e.at("consumer").get<std::string>());
    if (e.contains("in_b"))
      out += ", in B " + shown(e["in_b"][0].get<std::string>()) + " -> " + shown(e["in_b"][1].get<std::string>());
    out += "\n";
  }
  if (ordered.size() > kShown) out += "  and " + std::to_string(ordered.size() - kShown) + " other kinds\n";
  return out;
}

std::string steps_text(const Json& steps, bool slower) {
  constexpr double kLeast = 0.05; // what rounding to one digit shows
  std::vector<const Json*> chosen;
  auto more = [](const Json& s) { return number(s.at("us_b")) - number(s.at("us_a")); };
  for (const Json& s : steps)
    if (!s.at("us_a").is_null() && !s.at("us_b").is_null() && (slower ? more(s) >= kLeast : more(s) <= -kLeast))
      chosen.push_back(&s);
  if (chosen.empty()) return "";
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](const Json* x, const Json* y) { return std::fabs(more(*x)) > std::fabs(more(*y)); });
  Table table({"", "A", "B", "steps of A", "steps of B"}, {0, 1, 2});
  double all = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Json& s = *chosen[i];
    all += more(s);
    if (i >= kShown) continue;
    const bool same_ids = s.at("a") == s.at("b");
    table.add({signed_us(more(s)), us_text(number(s.at("us_a"))), us_text(number(s.at("us_b"))), listed(s.at("a"), 2),
               same_ids ? "the same" : listed(s.at("b"), 2)});
  }
  std::string out = std::string(slower ? "slower in B" : "faster in B") + ", " +
                    (chosen.front()->at("measured").get<bool>() ? "measured" : "predicted") + ": " +
                    std::to_string(chosen.size()) + (chosen.size() == 1 ? " place" : " places") + ", " +
                    signed_us(all) + " together\n" + table.str("  ");
  if (chosen.size() > kShown) out += "  and " + std::to_string(chosen.size() - kShown) + " more\n";
  return out;
}

std::string lists_text(const Json& diff, const char* list, const char* key, const char* what) {
  std::string out;
  for (const char* side : {"only_a", "only_b"}) {
    const Json& items = diff.at(list).at(side);
    if (items.empty()) continue;
    out += std::string(what) + " only in " + (side[5] == 'a' ? "A" : "B") + ": " + std::to_string(items.size()) + "\n";
    for (size_t i = 0; i < std::min(items.size(), kShown); ++i) {
      out += "  " + shown(items[i].at(key).get<std::string>());
      if (const auto reason = items[i].value("reason", ""); !reason.empty()) out += " (" + shown(reason) + ")";
      out += "\n";
    }
    if (items.size() > kShown) out += "  and " + std::to_string(items.size() - kShown) + " more\n";
  }
  return out;
}

} // namespace

std::string comparison_text(const Json& diff) {
  std::string out = "A  " + side_text(diff.at("a")) + "\nB  " + side_text(diff.at("b")) + "\n";
  const Json& operators = diff.at("operators");
  const Json &only_a = operators.at("only_a"), &only_b = operators.at("only_b");
  out += "operators: " + operators.at("by_name").dump() + " matched by name, " + operators.at("by_structure").dump() +
         " by structure, " + std::to_string(only_a.size()) + " only in A, " + std::to_string(only_b.size()) +
         " only in B";
  const size_t left_out = operators.at("without_steps_only_a").size() + operators.at("without_steps_only_b").size();
  if (left_out > 0) out += " (and " + std::to_string(left_out) + " that no step computes)";
  out += "\n";
  if (!only_a.empty()) out += "  only in A: " + listed(only_a, 4) + "\n";
  if (!only_b.empty()) out += "  only in B: " + listed(only_b, 4) + "\n";
  if (!diff.at("same_sizes").get<bool>())
    out += "the reports are of different sizes: bytes and times differ for this alone\n";
  out += totals_text(diff.at("totals"));
  if (diff.at("same").get<bool>())
    return out +
           "the same plan: every edge has the same verdict, every step the same operators, bytes and predicted time\n";
  const Json &edges = diff.at("edges"), &steps = diff.at("steps");
  out += edges.empty() ? std::string("every edge that both have has the same verdict and code\n")
                       : std::to_string(edges.size()) + (edges.size() == 1 ? " edge" : " edges") +
                             " with another verdict or reason:\n" + edges_text(edges);
  const auto divided =
      std::count_if(steps.begin(), steps.end(), [](const Json& s) { return !s.at("divided_alike").get<bool>(); });
  if (divided > 0)
    out += std::to_string(divided) + (divided == 1 ? " place" : " places") +
           " where the same operators are divided into other steps\n";
  out += steps_text(steps, true) + steps_text(steps, false);
  out += lists_text(diff, "breaks", "what", "breaks") + lists_text(diff, "guards", "condition", "guards");
  return out;
}

} // namespace tessera::command
