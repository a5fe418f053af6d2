#include "compare.h"
#include "match_operators.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace tessera::command {

namespace {

using Ids = std::vector<std::string>;

std::optional<double> number(const Json& j) {
  const Json& value = j.is_object() && j.contains("at_sizes") ? j.at("at_sizes") : j;
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}
Json or_null(const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); }
bool differ(const std::optional<double>& a, const std::optional<double>& b) {
  if (a.has_value() != b.has_value()) return true;
  return a && std::fabs(*a - *b) > 1e-6 * std::max(std::fabs(*a), std::fabs(*b));
}

struct Total {
  const char* key;
  bool decides; // a difference of it is one of the plans
};
constexpr Total kTotals[] = {
    {"operators", false},       {"kernels", true}, {"library_calls", true},  {"host_operators", true},
    {"control_flow", true},     {"copies", true},  {"launches", true},       {"edges_fused", false},
    {"edges_not_fused", false}, {"bytes", true},   {"bytes_unfused", false}, {"predicted_us", true},
    {"measured_us", false},
};

class Comparison {
public:
  Comparison(const Json& a, const Json& b)
      : a_(a), b_(b), match_(match_operators(a.at("operators"), b.at("operators"))) {
    const Json &ours = a.at("operators"), &theirs = b.at("operators");
    for (size_t i = 0; i < ours.size(); ++i) {
      types_.emplace(ours[i].at("id"), ours[i].at("op"));
      if (match_.b_of_a[i] < 0)
        (ours[i].at("steps").empty() ? left_out_a_ : only_a_).push_back(ours[i].at("id"));
      else
        b_of_.emplace(ours[i].at("id"), theirs[static_cast<size_t>(match_.b_of_a[i])].at("id"));
    }
    for (const auto& [from, to] : b_of_) a_of_.emplace(to, from);
    for (const Json& o : theirs)
      if (!a_of_.contains(o.at("id"))) (o.at("steps").empty() ? left_out_b_ : only_b_).push_back(o.at("id"));
  }

  Json run() {
    Json j;
    j["schema"] = {{"name", "tessera.diff"}, {"version", 1}};
    j["same"] = true;
    j["a"] = label(a_);
    j["b"] = label(b_);
    j["operators"] = {{"by_name", match_.by_name},
                      {"by_structure", match_.by_structure},
                      {"only_a", only_a_},
                      {"only_b", only_b_},
                      {"without_steps_only_a", left_out_a_}, // computed while compiling, or a view
                      {"without_steps_only_b", left_out_b_}};
    j["same_sizes"] = inputs(a_) == inputs(b_);
    bool same = only_a_.empty() && only_b_.empty();
    j["totals"] = totals(same);
    j["edges"] = edges();
    j["steps"] = steps(same);
    j["breaks"] = only(a_, b_, "breaks", {"kind", "what"});
    j["guards"] = only(a_, b_, "guards", {"condition"});
    same = same && j["edges"].empty();
    for (const char* list : {"breaks", "guards"}) same = same && j[list]["only_a"].empty() && j[list]["only_b"].empty();
    j["same"] = same;
    return j;
  }

private:
  // Names, and the characters between them, each by itself.
  static std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> out;
    bool in_word = false;
    for (char c : text) {
      const bool letter = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
      if (!letter || !in_word) out.emplace_back();
      out.back() += c;
      in_word = letter;
    }
    return out;
  }
  // Symbols of sizes in the order in which the inputs' types have them: exporters name them as they like.
  static Ids symbols(const Json& report) {
    Ids out;
    for (const Json& input : report.value("inputs", Json::array()))
      for (const std::string& word : words(input.value("type", "")))
        if (report.at("sizes").contains(word) && std::find(out.begin(), out.end(), word) == out.end())
          out.push_back(word);
    return out;
  }
  // Types of the inputs with sizes in the place of symbols, sorted.
  static std::vector<std::string> inputs(const Json& report) {
    std::vector<std::string> out;
    for (const Json& input : report.value("inputs", Json::array())) {
      std::string& type = out.emplace_back();
      for (const std::string& word : words(input.value("type", "")))
        type += report.at("sizes").contains(word) ? report.at("sizes").at(word).dump() : word;
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  // The text with the places of symbols in the place of their names.
  static std::string renamed(const std::string& text, const Ids& symbols) {
    std::string out;
    for (const std::string& word : words(text)) {
      const auto at = std::find(symbols.begin(), symbols.end(), word);
      out += at == symbols.end() ? word : "$" + std::to_string(at - symbols.begin());
    }
    return out;
  }

  static Json label(const Json& report) {
    Json j;
    for (const char* key : {"model", "producer", "target", "figures", "tessera", "variant", "sizes"})
      if (report.contains(key)) j[key] = report[key];
    return j;
  }

  Json totals(bool& same) const {
    Json out = Json::array();
    for (const Total& t : kTotals) {
      const Json &in_a = a_.at("totals"), &in_b = b_.at("totals");
      const auto x = in_a.contains(t.key) ? number(in_a[t.key]) : std::nullopt;
      const auto y = in_b.contains(t.key) ? number(in_b[t.key]) : std::nullopt;
      if (!x && !y) continue;
      out.push_back({{"name", t.key}, {"a", or_null(x)}, {"b", or_null(y)}});
      same = same && !(t.decides && differ(x, y));
    }
    return out;
  }

  // Edges between operators that both have, whose verdicts or reasons differ.
  Json edges() const {
    std::map<std::pair<std::string, std::string>, std::vector<const Json*>> theirs;
    for (const Json& e : b_.at("edges")) theirs[{e.at("producer"), e.at("consumer")}].push_back(&e);
    std::map<std::pair<std::string, std::string>, size_t> seen;
    Json out = Json::array();
    for (const Json& e : a_.at("edges")) {
      const auto from = b_of_.find(e.at("producer")), to = b_of_.find(e.at("consumer"));
      if (from == b_of_.end() || to == b_of_.end()) continue;
      const std::pair key(from->second, to->second);
      const auto found = theirs.find(key);
      const size_t nth = seen[key]++;
      if (found == theirs.end() || nth >= found->second.size()) continue;
      const Json& other = *found->second[nth];
      if (e.at("code") == other.at("code")) continue;
      const bool in_a = e.at("fused"), in_b = other.at("fused");
      Json j{{"change", in_a == in_b ? (in_a ? "fused in both" : "fused in neither")
                        : in_a       ? "only fused in A"
                                     : "only fused in B"},
             {"producer", e.at("producer")},
             {"consumer", e.at("consumer")},
             {"ops", {types_.at(e.at("producer")), types_.at(e.at("consumer"))}}};
      if (key.first != e.at("producer") || key.second != e.at("consumer")) j["in_b"] = {key.first, key.second};
      for (const auto& [side, edge] : {std::pair("a", &e), std::pair("b", &other)})
        j[side] = {{"code", edge->at("code")},
                   {"reason", edge->at("reason")},
                   {"detail", edge->value("detail", "")},
                   {"price_us", edge->value("price_us", Json(nullptr))}};
      out.push_back(std::move(j));
    }
    return out;
  }

  // ---- steps, in groups that compute the same operators on both sides
  struct Side {
    std::vector<const Json*> steps;
    std::map<std::string, std::vector<size_t>> of_operator; // by the operator's name in A
  };
  Side side(const Json& report, bool is_b) const {
    Side out;
    for (const Json& s : report.at("steps")) {
      if (s.contains("inside")) continue; // in its control step's time
      for (const Json& o : s.at("operators")) {
        std::string id = o;
        if (is_b) {
          const auto it = a_of_.find(id);
          if (it == a_of_.end()) continue;
          id = it->second;
        } else if (!b_of_.contains(id)) {
          continue;
        }
        out.of_operator[id].push_back(out.steps.size());
      }
      out.steps.push_back(&s);
    }
    return out;
  }

  static std::optional<double> time(const Json& step, bool measured) {
    if (measured) return step.contains("measured_us") ? number(step.at("measured_us")) : std::nullopt;
    return number(step.at("price").at("us"));
  }

  Json steps(bool& same) const {
    const Side a = side(a_, false), b = side(b_, true);
    auto has_times = [](const Side& s) {
      return std::any_of(s.steps.begin(), s.steps.end(), [](const Json* j) { return j->contains("measured_us"); });
    };
    const bool measured = has_times(a) && has_times(b);
    const size_t offset = a.steps.size();
    std::vector<size_t> parent(offset + b.steps.size());
    std::iota(parent.begin(), parent.end(), size_t{0});
    auto root = [&](size_t i) {
      while (parent[i] != i) i = parent[i] = parent[parent[i]];
      return i;
    };
    auto join = [&](size_t x, size_t y) { parent[root(x)] = root(y); };
    std::vector<Ids> operators(parent.size()); // of each step that both models have, by their names in A
    for (const auto& [side, base] : {std::pair(&a, size_t{0}), std::pair(&b, offset)})
      for (const auto& [id, in] : side->of_operator)
        for (size_t s : in) operators[base + s].push_back(id);
    for (const auto& [id, in] : a.of_operator)
      if (const auto other = b.of_operator.find(id); other != b.of_operator.end())
        for (size_t s : in)
          for (size_t t : other->second) join(s, offset + t);
    for (size_t s = 0; s < a.steps.size(); ++s) // copies have no operators
      for (size_t t = 0; operators[s].empty() && t < b.steps.size(); ++t)
        if (operators[offset + t].empty() && a.steps[s]->at("id") == b.steps[t]->at("id")) join(s, offset + t);

    std::map<size_t, std::vector<size_t>> groups;
    for (size_t i = 0; i < parent.size(); ++i) groups[root(i)].push_back(i);
    std::map<size_t, const std::vector<size_t>*> ordered; // by the first step, in the order of execution
    for (const auto& [r, members] : groups) ordered.emplace(members.front(), &members);
    Json out = Json::array();
    for (const auto& [first, members] : ordered) {
      struct Sum {
        Ids ids;
        std::multiset<std::pair<std::string, std::set<std::string>>> parts; // kind and operators of each step
        std::optional<double> us = 0, bytes = 0;
      } sums[2];
      std::set<std::string> all;
      for (size_t i : *members) {
        const bool is_b = i >= offset;
        const Json& step = *(is_b ? b.steps[i - offset] : a.steps[i]);
        Sum& sum = sums[is_b ? 1 : 0];
        sum.ids.push_back(step.at("id"));
        const std::set<std::string> own(operators[i].begin(), operators[i].end());
        all.insert(own.begin(), own.end());
        sum.parts.emplace(step.at("kind"), own);
        const auto us = time(step, measured), bytes = number(step.at("bytes"));
        sum.us = sum.us && us ? std::optional(*sum.us + *us) : std::nullopt;
        sum.bytes = sum.bytes && bytes ? std::optional(*sum.bytes + *bytes) : std::nullopt;
      }
      const bool alike = sums[0].parts == sums[1].parts;
      const bool changed = !alike || differ(sums[0].bytes, sums[1].bytes);
      same = same && !changed && (measured || !differ(sums[0].us, sums[1].us));
      if (!changed && !differ(sums[0].us, sums[1].us)) continue;
      Json j{{"a", sums[0].ids}, {"b", sums[1].ids}, {"operators", all}, {"divided_alike", alike}};
      for (const auto& [key, sum] : {std::pair("_a", &sums[0]), std::pair("_b", &sums[1])}) {
        j[std::string("us") + key] = or_null(sum->us);
        j[std::string("bytes") + key] = or_null(sum->bytes);
      }
      j["measured"] = measured;
      out.push_back(std::move(j));
    }
    return out;
  }

  // Entries that only one of two lists has, counted by these keys.
  static Json only(const Json& a, const Json& b, const char* list, const std::vector<const char*>& keys) {
    std::map<std::vector<std::string>, std::pair<int, const Json*>> count; // in A less in B
    auto add = [&](const Json& report, int sign) {
      const Ids names = symbols(report);
      for (const Json& j : report.at(list)) {
        std::vector<std::string> key;
        for (const char* k : keys) key.push_back(renamed(j.at(k), names));
        auto& entry = count[key];
        entry.first += sign;
        if (!entry.second) entry.second = &j;
      }
    };
    add(a, 1);
    add(b, -1);
    Json out{{"only_a", Json::array()}, {"only_b", Json::array()}};
    for (const auto& [key, entry] : count)
      for (int n = 0; n < std::abs(entry.first); ++n)
        out[entry.first > 0 ? "only_a" : "only_b"].push_back(*entry.second);
    return out;
  }

  const Json &a_, &b_;
  OperatorMatch match_;
  std::map<std::string, std::string> b_of_, a_of_, types_; // ids; types of A's operators
  Ids only_a_, only_b_, left_out_a_, left_out_b_;
};

} // namespace

Json compare_reports(const Json& a, const Json& b) { return Comparison(a, b).run(); }

} // namespace tessera::command
