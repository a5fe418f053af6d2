#include "base/similar.h"
#include "fusion/plan.h"
#include "rules.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>

namespace tessera::command {

namespace {

struct Token {
  enum class Kind : uint8_t { Word, Text, Number, Comparison, End };
  Kind kind = Kind::End;
  std::string text;
  double number = 0;
  int column = 1;
};

struct Total {
  const char* name;
  char unit; // n: a count; b: bytes; u: microseconds
};
constexpr Total kTotals[] = {
    {"operators", 'n'},       {"steps", 'n'},          {"kernels", 'n'},
    {"library-calls", 'n'},   {"host-operators", 'n'}, {"control-flow", 'n'},
    {"copies", 'n'},          {"launches", 'n'},       {"edges-fused", 'n'},
    {"edges-not-fused", 'n'}, {"bytes", 'b'},          {"bytes-unfused", 'b'},
    {"library-flops", 'n'},   {"predicted-us", 'u'},   {"predicted-unfused-us", 'u'},
    {"measured-us", 'u'},     {"guards", 'n'},         {"arena-bytes", 'b'},
};
struct Unit {
  const char* name;
  char of;
  int thousands; // a power of 1000
};
constexpr Unit kUnits[] = {{"B", 'b', 0},  {"kB", 'b', 1}, {"MB", 'b', 2}, {"GB", 'b', 3}, {"us", 'u', 0},
                           {"ms", 'u', 1}, {"s", 'u', 2},  {"k", 'n', 1},  {"M", 'n', 2},  {"G", 'n', 3}};
// The names of a rule for the kinds of the report's breaks.
constexpr std::pair<const char*, const char*> kBreaks[] = {{"host-operators", "host-operator"},
                                                           {"computed-sizes", "computed-size"},
                                                           {"control-flow", "control-flow"},
                                                           {"copies", "copy"},
                                                           {"graph-breaks", "graph-break"}};

class Line {
public:
  Line(std::string_view text, const std::string& file, int line) : text_(text), file_(file), line_(line) {}

  [[nodiscard]] Diagnostic error(int column, std::string what) const {
    Location where;
    where.file = file_;
    where.line = line_;
    where.column = column;
    return Diagnostic(ErrorCode::ParseError, std::move(what)).at(std::move(where));
  }
  [[nodiscard]] Diagnostic expected(const Token& seen, const std::string& what,
                                    const std::vector<std::string>& known = {}) const {
    Diagnostic d = error(seen.column, (seen.kind == Token::Kind::End ? std::string("the line ends")
                                                                     : "'" + shown(seen.text) + "' stands") +
                                          " where " + what + " is expected");
    if (const auto close = similar(seen.text, known); !close.empty()) d.note("did you mean '" + close + "'?");
    return d;
  }

  Status read() {
    size_t at = 0;
    while (true) {
      while (at < text_.size() && std::isspace(static_cast<unsigned char>(text_[at]))) ++at;
      if (at >= text_.size() || text_[at] == '#') break;
      Token t;
      t.column = static_cast<int>(at) + 1;
      const auto c = static_cast<unsigned char>(text_[at]);
      if (c == '"') {
        t.kind = Token::Kind::Text;
        for (++at; at < text_.size() && text_[at] != '"'; ++at) {
          if (text_[at] == '\\' && at + 1 < text_.size()) ++at;
          t.text += text_[at];
        }
        if (at >= text_.size()) return error(t.column, "a pattern that begins here has no closing quote");
        ++at;
      } else if (std::string_view("<>=!").find(text_[at]) != std::string_view::npos) {
        t.kind = Token::Kind::Comparison;
        while (at < text_.size() && std::string_view("<>=!").find(text_[at]) != std::string_view::npos)
          t.text += text_[at++];
      } else if (std::isdigit(c)) {
        t.kind = Token::Kind::Number;
        const char *begin = text_.data() + at, *end = text_.data() + text_.size();
        auto [after, bad] = std::from_chars(begin, end, t.number);
        if (bad != std::errc()) return error(t.column, "this number is too large");
        t.text.assign(begin, after);
        at += t.text.size();
      } else if (std::isalpha(c)) {
        t.kind = Token::Kind::Word;
        while (at < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[at])) || text_[at] == '-' || text_[at] == '_'))
          t.text += text_[at++];
      } else {
        return error(t.column, "'" + shown(text_.substr(at, 1)) + "' begins no word, pattern or number")
            .note("names of operators stand in quotes: \"layer.0/*\"");
      }
      tokens_.push_back(std::move(t));
      end_of_rule_ = at; // without what follows: white space, a comment
    }
    end_.column = static_cast<int>(text_.size()) + 1;
    return {};
  }
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

  Result<Rule> rule() {
    Rule r;
    r.line = line_;
    const auto begin = static_cast<size_t>(tokens_.front().column - 1);
    r.text = std::string(text_.substr(begin, end_of_rule_ - begin));
    const Token verb = next();
    if (verb.kind != Token::Kind::Word || (verb.text != "require" && verb.text != "forbid"))
      return expected(verb, "'require' or 'forbid'", {"require", "forbid"});
    r.forbids = verb.text == "forbid";
    if (peek().text == "fused" && peek().kind == Token::Kind::Word) {
      next();
      r.kind = Rule::Kind::Fused;
      TESSERA_ASSIGN(r.first, operators());
      TESSERA_TRY(word("with"));
      TESSERA_ASSIGN(r.second, operators());
    } else if (peek().text == "code" && peek().kind == Token::Kind::Word) {
      TESSERA_TRY(code(r));
    } else if (peek().kind == Token::Kind::Text || peek().text == "op") {
      TESSERA_TRY(one_kernel(r));
    } else {
      TESSERA_TRY(r.forbids ? breaks(r) : total(r));
    }
    if (peek().kind != Token::Kind::End) return expected(peek(), "the end of the rule");
    return r;
  }

private:
  Status code(Rule& r) {
    const Token at = next();
    r.kind = Rule::Kind::Code;
    if (!r.forbids) return error(at.column, "a code can only be forbidden").note("forbid code FUS-034");
    const Token code = next();
    std::vector<std::string> known;
    for (int i = 0; i < static_cast<int>(FusionReason::Count_); ++i)
      known.emplace_back(info(static_cast<FusionReason>(i)).code);
    if (std::find(known.begin(), known.end(), code.text) == known.end())
      return expected(code, "a code such as FUS-034", known);
    r.name = code.text;
    if (peek().kind == Token::Kind::End) return {};
    TESSERA_TRY(word("between"));
    TESSERA_ASSIGN(r.first, operators());
    TESSERA_TRY(word("and"));
    TESSERA_ASSIGN(r.second, operators());
    return {};
  }
  Status one_kernel(Rule& r) {
    r.kind = Rule::Kind::OneKernel;
    const int column = peek().column;
    TESSERA_ASSIGN(r.first, operators());
    for (const char* w : {"is", "one", "kernel"}) TESSERA_TRY(word(w));
    if (r.forbids) return error(column, "operators can only be required to be one kernel");
    if (peek().kind == Token::Kind::End) return {};
    TESSERA_TRY(word("per"));
    const Token per = next();
    if (per.kind != Token::Kind::Text) return expected(per, "a pattern in quotes");
    r.per = per.text;
    return {};
  }
  Status breaks(Rule& r) {
    r.kind = Rule::Kind::Break;
    const Token kind = next();
    std::vector<std::string> known;
    for (const auto& [name, in_report] : kBreaks) {
      if (kind.text == name || kind.text == in_report) r.name = in_report;
      known.emplace_back(name);
    }
    if (!r.name.empty()) return {};
    std::string all = "'fused', 'code'";
    for (const auto& k : known) all += ", '" + k + "'";
    return expected(kind, "one of " + all, known);
  }
  Status total(Rule& r) {
    const Token key = next();
    std::vector<std::string> known;
    const Total* found = nullptr;
    for (const Total& t : kTotals) {
      if (key.text == t.name) found = &t;
      known.emplace_back(t.name);
    }
    if (!found || key.kind != Token::Kind::Word) {
      std::string all = "'fused', a pattern in quotes";
      for (const auto& k : known) all += ", '" + k + "'";
      return expected(key, "one of " + all, known);
    }
    r.name = key.text;
    const Token comparison = next();
    static const std::vector<std::string> kComparisons{"<=", "<", ">=", ">", "==", "!="};
    if (std::find(kComparisons.begin(), kComparisons.end(), comparison.text) == kComparisons.end())
      return expected(comparison, "one of <=, <, >=, >, == and !=");
    r.comparison = comparison.text;
    const Token number = next();
    if (number.kind != Token::Kind::Number) return expected(number, "a number");
    r.limit = number.number;
    if (peek().kind == Token::Kind::End) return {};
    const Token unit = next();
    std::string units;
    for (const Unit& u : kUnits) {
      if (u.of != found->unit) continue;
      if (unit.text == u.name) {
        r.limit *= std::pow(1000, u.thousands);
        return {};
      }
      units += (units.empty() ? "" : ", ") + std::string(u.name);
    }
    return expected(unit, "the end of the rule, or a unit (" + units + ")");
  }

  Result<OperatorPattern> operators() {
    OperatorPattern p;
    if (peek().kind == Token::Kind::Word && peek().text == "op") {
      next();
      p.by_type = true;
    }
    const Token t = next();
    if (t.kind != Token::Kind::Text)
      return expected(t, "a pattern in quotes")
          .note("\"*attention*\" is for names, op \"Softmax\" for types of operators");
    p.text = t.text;
    return p;
  }
  Status word(const std::string& wanted) {
    const Token t = next();
    if (t.kind == Token::Kind::Word && t.text == wanted) return {};
    return expected(t, "'" + wanted + "'", {wanted});
  }
  [[nodiscard]] const Token& peek() const { return at_ < tokens_.size() ? tokens_[at_] : end_; }
  const Token& next() { return at_ < tokens_.size() ? tokens_[at_++] : end_; }

  std::string_view text_;
  const std::string& file_;
  int line_;
  std::vector<Token> tokens_;
  Token end_;
  size_t at_ = 0, end_of_rule_ = 0;
};

} // namespace

Result<std::vector<Rule>> parse_rules(std::string_view text, const std::string& file) {
  std::vector<Rule> rules;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    Line line(text.substr(0, end), file, number);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    TESSERA_TRY(line.read());
    if (line.empty()) continue;
    TESSERA_ASSIGN(Rule rule, line.rule());
    rules.push_back(std::move(rule));
  }
  return rules;
}

} // namespace tessera::command
