#include "rules.h"
#include "base/file.h"
#include "reports.h"
#include <algorithm>
#include <set>

namespace tessera::command {

bool OperatorPattern::takes(const Json& operation) const {
  return by_type ? matches(text, operation.at("op").get_ref<const std::string&>()) : is_called(operation, text);
}
std::string OperatorPattern::str() const { return (by_type ? "op \"" : "\"") + text + "\""; }

namespace {

constexpr size_t kShown = 4; // reasons of one kind in a row

std::string quoted(const Json& text) { return "'" + shown(text.get<std::string>()) + "'"; }

class Checker {
public:
  explicit Checker(const Json& report) : report_(report) {
    for (const Json& o : report.at("operators")) operators_.emplace(o.at("id").get<std::string>(), &o);
    for (const Json& s : report.at("steps")) steps_.emplace(s.at("id").get<std::string>(), &s);
  }

  std::vector<std::string> broken(const Rule& rule) {
    reasons_.clear();
    switch (rule.kind) {
    case Rule::Kind::OneKernel: one_kernel(rule); break;
    case Rule::Kind::Fused: fused(rule); break;
    case Rule::Kind::Total: total(rule); break;
    case Rule::Kind::Break: breaks(rule); break;
    case Rule::Kind::Code: code(rule); break;
    }
    return reasons_;
  }

private:
  void say_first(const std::vector<std::string>& all) {
    for (size_t i = 0; i < std::min(all.size(), kShown); ++i) reasons_.push_back(all[i]);
    if (all.size() > kShown) reasons_.push_back("and " + std::to_string(all.size() - kShown) + " more");
  }
  [[nodiscard]] bool takes(const OperatorPattern& pattern, const Json& id) const {
    const auto it = operators_.find(id.get<std::string>());
    return it != operators_.end() && pattern.takes(*it->second);
  }
  [[nodiscard]] std::string nothing(const OperatorPattern& pattern) const {
    return pattern.by_type ? "no operator of the model is of type " + shown(pattern.str().substr(3))
                           : "no operator of the model is called " + shown(pattern.str());
  }
  [[nodiscard]] static std::string edge_text(const Json& e) {
    const bool pair = e.contains("first");
    std::string text = quoted(e.at(pair ? "first" : "producer")) + (pair ? " and " : " -> ") +
                       quoted(e.at(pair ? "second" : "consumer")) + ": " + e.at("code").get<std::string>() + " " +
                       e.at("reason").get<std::string>();
    if (const auto detail = e.value("detail", ""); !detail.empty()) text += " (" + shown(detail) + ")";
    return text;
  }

  void one_kernel(const Rule& rule) {
    std::map<std::string, std::vector<const Json*>> groups;
    for (const Json& o : report_.at("operators")) {
      if (!rule.first.takes(o) || o.at("steps").empty()) continue; // computed while compiling, or a view
      std::string group;
      if (!rule.per.empty()) {
        const auto& name = o.at("id").get_ref<const std::string&>();
        const size_t end = matching_prefix(rule.per, name);
        if (end == std::string::npos) continue;
        group = name.substr(0, end);
      }
      groups[group].push_back(&o);
    }
    if (groups.empty()) reasons_.push_back(nothing(rule.first) + (rule.per.empty() ? "" : ", with such a beginning"));
    std::vector<std::string> all;
    for (const auto& [group, operators] : groups) {
      std::map<std::string, size_t> counts; // of the group's operators, by step
      for (const Json* o : operators)
        for (const Json& s : o->at("steps")) ++counts[s.get<std::string>()];
      const bool one = std::any_of(counts.begin(), counts.end(), [&](const auto& c) {
        const auto step = steps_.find(c.first);
        return c.second == operators.size() && step != steps_.end() && step->second->at("launches") == 1;
      });
      if (one) continue;
      std::string text = group.empty() ? "" : "of '" + shown(group) + "' ";
      text += std::to_string(operators.size()) + " operators are in " + std::to_string(counts.size()) +
              (counts.size() == 1 ? " step" : " steps") + ":";
      size_t shown_steps = 0;
      for (const auto& [step, count] : counts) {
        if (shown_steps++ == kShown) {
          text += " ...";
          break;
        }
        const auto known = steps_.find(step);
        text += " '" + shown(step) + "'";
        if (known != steps_.end() && known->second->at("launches") != 1)
          text += " (" + known->second->at("kind").get<std::string>() + ")";
      }
      for (const Json& e : report_.at("edges")) {
        auto inside = [&](const char* key) {
          return std::any_of(operators.begin(), operators.end(),
                             [&](const Json* o) { return o->at("id") == e.at(key); });
        };
        if (e.at("fused").get<bool>() || !inside("producer") || !inside("consumer")) continue;
        text += "; " + edge_text(e);
        break;
      }
      all.push_back(std::move(text));
    }
    say_first(all);
  }

  void fused(const Rule& rule) {
    std::vector<std::string> wrong;
    bool any = false;
    for (const Json& e : report_.at("edges")) {
      const Json &from = e.at("producer"), &to = e.at("consumer");
      if (!(takes(rule.first, from) && takes(rule.second, to)) && !(takes(rule.second, from) && takes(rule.first, to)))
        continue;
      any = true;
      if (e.at("fused").get<bool>() == rule.forbids) wrong.push_back(edge_text(e));
    }
    if (!any && !rule.forbids)
      reasons_.push_back("no value goes from an operator " + shown(rule.first.str()) + " to one " +
                         shown(rule.second.str()) + ", nor back");
    say_first(wrong);
  }

  void total(const Rule& rule) {
    std::optional<double> value;
    std::string key = rule.name;
    std::replace(key.begin(), key.end(), '-', '_');
    if (rule.name == "guards") {
      value = static_cast<double>(report_.at("guards").size());
    } else {
      const Json& from = report_.at(rule.name == "arena-bytes" ? "memory" : "totals");
      Json found = from.contains(key) ? from.at(key) : Json();
      if (found.is_object()) found = found.at("at_sizes");
      if (found.is_number()) value = found.get<double>();
    }
    if (!value) {
      reasons_.push_back("the report does not know " + rule.name +
                         (rule.name == "measured-us" ? ": --measure or --profile FILE adds it" : " at these sizes"));
      return;
    }
    const auto& c = rule.comparison;
    const bool holds = c == "<="   ? *value <= rule.limit
                       : c == "<"  ? *value < rule.limit
                       : c == ">=" ? *value >= rule.limit
                       : c == ">"  ? *value > rule.limit
                       : c == "==" ? *value == rule.limit
                                   : *value != rule.limit;
    if (holds) return;
    const int digits = *value == static_cast<double>(static_cast<int64_t>(*value)) ? 0 : 1;
    reasons_.push_back(rule.name + " is " + format_number(*value, digits));
  }

  void breaks(const Rule& rule) {
    std::vector<std::string> all;
    for (const Json& b : report_.at("breaks")) {
      if (b.at("kind") != rule.name) continue;
      std::string text = shown(b.at("what").get<std::string>());
      if (const auto reason = b.value("reason", ""); !reason.empty()) text += ": " + shown(reason);
      all.push_back(std::move(text));
    }
    say_first(all);
  }

  void code(const Rule& rule) {
    std::vector<std::string> all;
    const bool everywhere = rule.first.text.empty() && rule.second.text.empty();
    for (const char* list : {"edges", "pairs"})
      for (const Json& e : report_.at(list)) {
        if (e.at("code") != rule.name) continue;
        const bool pair = e.contains("first");
        const Json &a = e.at(pair ? "first" : "producer"), &b = e.at(pair ? "second" : "consumer");
        if (everywhere || (takes(rule.first, a) && takes(rule.second, b)) ||
            (takes(rule.first, b) && takes(rule.second, a)))
          all.push_back(edge_text(e));
      }
    say_first(all);
  }

  const Json& report_;
  std::map<std::string, const Json*> operators_, steps_;
  std::vector<std::string> reasons_;
};

} // namespace

std::vector<Violation> broken_rules(const std::vector<Rule>& rules, const Json& report) {
  Checker checker(report);
  std::vector<Violation> out;
  for (const Rule& rule : rules)
    if (auto reasons = checker.broken(rule); !reasons.empty())
      out.push_back({rule.line, rule.text, std::move(reasons)});
  return out;
}

Result<int> check_rule_file(const std::string& path, const Json& report, Json* to) {
  TESSERA_ASSIGN(const std::string text, read_file(path));
  TESSERA_ASSIGN(const auto rules, parse_rules(text, path));
  std::vector<Violation> broken;
  try {
    broken = broken_rules(rules, report);
  } catch (const Json::exception& e) {
    return Diagnostic(ErrorCode::CorruptFile, std::string("the report is not complete: ") + e.what());
  }
  Json violations = Json::array();
  for (const Violation& v : broken) {
    say_warning(path + ":" + std::to_string(v.line) + ": broken: " + v.rule + ": " + v.reasons.front());
    for (size_t i = 1; i < v.reasons.size(); ++i) say_note("  " + v.reasons[i]);
    violations.push_back({{"line", v.line}, {"rule", v.rule}, {"reasons", v.reasons}});
  }
  say_note(std::to_string(rules.size() - broken.size()) + " of " + std::to_string(rules.size()) + " rules of '" +
           shown(path) + "' hold");
  if (to) (*to)["rules"] = {{"file", path}, {"count", rules.size()}, {"violations", std::move(violations)}};
  return broken.empty() ? kDone : kDiffers;
}

} // namespace tessera::command
