#include "frontend/fx/symbols.h"
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace tessera::fx {

SymbolTable::SymbolTable(ShapeEnv& env, const Program& program, const ImportOptions& options, std::string file)
    : env_(env), program_(program), options_(options), file_(std::move(file)) {}

Diagnostic SymbolTable::malformed(std::string_view text, const std::string& what) const {
  Location where;
  where.file = file_;
  constexpr size_t kMax = 120; // characters of it in a message
  return {ErrorCode::MalformedModel, where, "the size '" + std::string(text.substr(0, kMax)) + "' " + what};
}

Result<SymExpr> SymbolTable::symbol(const std::string& name) {
  if (auto it = named_.find(name); it != named_.end()) return it->second;
  if (auto given = options_.dim_values.find(name); given != options_.dim_values.end() && given->second >= 0)
    return named_.emplace(name, SymExpr(given->second)).first->second;
  SymRange range;
  if (auto it = program_.ranges.find(name); it != program_.ranges.end()) {
    // A symbol without a lower bound is an integer that the program reads from a tensor: sizes are never negative.
    range.lo = std::max(it->second.min.value_or(-kSymMax), -kSymMax);
    range.hi = std::min(it->second.max.value_or(kSymMax), kSymMax);
    if (range.lo > range.hi)
      return malformed(name, "is constrained to the empty range [" + std::to_string(range.lo) + ", " +
                                 std::to_string(range.hi) + "]");
  }
  if (auto it = options_.dim_ranges.find(name); it != options_.dim_ranges.end()) {
    const SymRange declared = range;
    range = {std::max(range.lo, it->second.first), std::min(range.hi, it->second.second)};
    if (range.lo > range.hi)
      return Diagnostic(ErrorCode::Usage, "'" + name + "' is from " + std::to_string(declared.lo) + " to " +
                                              std::to_string(declared.hi) + " in the program, and the range given is " +
                                              std::to_string(it->second.first) + ".." +
                                              std::to_string(it->second.second));
  }
  SymExpr s = env_.create_symbol(name, range);
  if (auto hint = options_.dim_hints.find(name); hint != options_.dim_hints.end()) env_.set_hint(s, hint->second);
  return named_.emplace(name, s).first->second;
}

namespace {
constexpr std::string_view kSymbol = "Symbol('";
}

std::vector<std::string> symbols_in(std::string_view text) {
  std::vector<std::string> names;
  for (size_t at = text.find(kSymbol); at != std::string_view::npos; at = text.find(kSymbol, at)) {
    at += kSymbol.size();
    names.emplace_back(text.substr(at, text.find('\'', at) - at));
  }
  return names;
}

std::optional<std::string> plain_symbol(std::string_view text) {
  if (!text.starts_with(kSymbol)) return {};
  size_t end = text.find('\'', kSymbol.size());
  if (end == std::string_view::npos || text.find('(', end) != std::string_view::npos) return {};
  return std::string(text.substr(kSymbol.size(), end - kSymbol.size()));
}

bool SymbolTable::is_new_symbol(const Size& size) const {
  auto name = plain_symbol(size.expression);
  return name && !named_.contains(*name) && !options_.dim_values.contains(*name);
}

void SymbolTable::bind(const Size& size, const SymExpr& value) {
  if (auto name = plain_symbol(size.expression)) named_.emplace(*name, value);
}

Result<SymExpr> SymbolTable::read(const Size& size) {
  if (size.expression.empty()) return SymExpr(size.constant);
  return read_expression(size.expression);
}

Result<SymShape> SymbolTable::read(const std::vector<Size>& sizes) {
  SymShape out;
  for (const Size& s : sizes) {
    TESSERA_ASSIGN(SymExpr e, read(s));
    out.push_back(std::move(e));
  }
  return out;
}

// Recursive descent over calls of constructors.
class SympyReader {
public:
  SympyReader(SymbolTable& table, std::string_view text) : table_(table), text_(text) {}

  Result<SymExpr> whole() {
    TESSERA_ASSIGN(SymExpr e, expression());
    skip();
    if (at_ != text_.size()) return error("has more after its end");
    return e;
  }

private:
  static constexpr int kMaxDepth = 200;

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view word() {
    skip();
    size_t start = at_;
    auto of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
    while (at_ < text_.size() && of_word(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }
  Diagnostic error(const std::string& what) const { return table_.malformed(text_, what); }

  Result<SymExpr> integer(std::string_view digits) const {
    int64_t value = 0;
    auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (ec != std::errc() || end != digits.data() + digits.size() || digits.empty())
      return error("holds '" + std::string(digits) + "' where a 64-bit integer is expected");
    return SymExpr(value);
  }
  // "Integer(2)", "Integer(-1)"
  Result<SymExpr> number() {
    skip();
    size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return integer(text_.substr(start, at_ - start));
  }

  Result<SymExpr> symbol() {
    if (!take('\'')) return error("has a symbol without a name");
    size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) return error("has a symbol whose name does not end");
    std::string name(text_.substr(at_, end - at_));
    at_ = end + 1;
    while (take(',')) { // assumptions: "positive=True"
      word();
      if (!take('=')) return error("has an assumption of a symbol without a value");
      word();
    }
    if (!take(')')) return error("has a symbol that does not end");
    return table_.symbol(name);
  }

  // A quotient of sizes, or a size times a number of f64, which only a rounding function makes a size again.
  struct Quotient {
    SymExpr above, below = 1;
    std::optional<double> factor; // the product with it is rounded once, so `below` is 1
  };

  // "Float('0.5', precision=53)": a fraction whose denominator is a small power of two, or a factor.
  Result<Quotient> fraction() {
    if (!take('\'')) return error("has a number without its digits");
    size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) return error("has a number that does not end");
    const std::string digits(text_.substr(at_, end - at_));
    at_ = end + 1;
    while (take(',')) { // "precision=53"
      word();
      if (!take('=')) return error("has a precision without a value");
      word();
    }
    if (!take(')')) return error("has a number that does not end");
    const double given = std::strtod(digits.c_str(), nullptr);
    double value = given;
    int64_t below = 1;
    while (value != std::floor(value) && below < (1 << 20)) {
      value *= 2;
      below *= 2;
    }
    if (value == std::floor(value) && std::fabs(value) <= 0x1p31)
      return Quotient{SymExpr(static_cast<int64_t>(value)), SymExpr(below), {}};
    if (!std::isfinite(given)) return error("has the number " + digits);
    return Quotient{1, 1, given};
  }

  // f64's result of `name` for two operands, where it is rounded no more than once.
  Result<Quotient> folded(std::string_view name, const Quotient& q, const Quotient& r) const {
    if (!q.factor && !r.factor) {
      if (name == "Add") return Quotient{q.above * r.below + r.above * q.below, q.below * r.below, {}};
      if (name == "Mul") return Quotient{q.above * r.above, q.below * r.below, {}};
      return Quotient{q.above * r.below, q.below * r.above, {}};
    }
    if (name == "Mul" && !(q.factor && r.factor) && q.below.is_const(1) && r.below.is_const(1))
      return Quotient{q.above * r.above, 1, q.factor ? q.factor : r.factor};
    Diagnostic d = error("computes with a number that is no fraction, and not by one product with a size");
    d.code = ErrorCode::UnsupportedFeature;
    return d;
  }

  Result<Quotient> quotient() {
    if (++depth_ > kMaxDepth) return error("is nested more than " + std::to_string(kMaxDepth) + " deep");
    const size_t start = at_;
    std::string_view name = word();
    if (auto dot = name.rfind('.'); dot != std::string_view::npos) name = name.substr(dot + 1);
    Result<Quotient> out = Quotient{};
    const bool folds = name == "Add" || name == "Mul" || name == "FloatTrueDiv" || name == "IntTrueDiv" ||
                       name == "Rational" || name == "ToFloat";
    if (name == "Float" && take('(')) {
      out = fraction();
    } else if (folds && take('(')) {
      TESSERA_ASSIGN(Quotient q, quotient());
      while (take(',')) {
        TESSERA_ASSIGN(Quotient r, quotient());
        TESSERA_ASSIGN(q, folded(name, q, r));
      }
      if (!take(')')) return error("misses a closing parenthesis");
      out = q;
    } else {
      at_ = start;
      TESSERA_ASSIGN(SymExpr e, expression());
      out = Quotient{e, 1, {}};
    }
    --depth_;
    return out;
  }

  // "CeilToInt(...)": of products with a factor, and of quotients that are not negative.
  Result<SymExpr> rounded(std::string_view name) {
    TESSERA_ASSIGN(Quotient q, quotient());
    if (!take(')')) return error("misses a closing parenthesis");
    if (q.factor && (name != "TruncToInt" || (*q.factor > 0 && table_.env_.prove(sym_le(0, q.above)) == true)))
      return name == "CeilToInt" ? -sym_scaled(q.above, -*q.factor) : sym_scaled(q.above, *q.factor);
    const bool positive = !q.factor && table_.env_.prove(sym_lt(0, q.below)) == true;
    if (!positive || table_.env_.prove(sym_le(0, q.above)) != true) {
      Diagnostic d = error("rounds a quotient that may be negative");
      d.code = ErrorCode::UnsupportedFeature;
      return d;
    }
    return name == "CeilToInt" ? ceildiv(q.above, q.below) : floordiv(q.above, q.below);
  }

  Result<SymExpr> expression() {
    if (++depth_ > kMaxDepth) return error("is nested more than " + std::to_string(kMaxDepth) + " deep");
    skip();
    if (at_ < text_.size() && (text_[at_] == '-' || std::isdigit(static_cast<unsigned char>(text_[at_])) != 0)) {
      --depth_;
      return number();
    }
    std::string_view name = word();
    if (auto dot = name.rfind('.'); dot != std::string_view::npos) name = name.substr(dot + 1);
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      --depth_;
      return SymExpr(name[0] == 't' || name[0] == 'T' ? 1 : 0);
    }
    if (!take('(')) return error("is no expression of sympy");
    Result<SymExpr> out = SymExpr();
    if (name == "Symbol" || name == "Dummy") {
      out = symbol();
    } else if (name == "Integer") {
      out = number();
      if (out.ok() && !take(')')) return error("has an integer that does not end");
    } else if (name == "CeilToInt" || name == "FloorToInt" || name == "TruncToInt") {
      out = rounded(name);
    } else if (name == "Piecewise") {
      out = piecewise();
    } else {
      std::vector<SymExpr> args;
      if (!take(')')) {
        do {
          TESSERA_ASSIGN(SymExpr e, expression());
          args.push_back(std::move(e));
        } while (take(','));
        if (!take(')')) return error("misses a closing parenthesis");
      }
      out = apply(name, args);
    }
    --depth_;
    return out;
  }

  // "Piecewise(ExprCondPair(value, condition), ...)": the value of the first condition that holds; the last one is
  // true.
  Result<SymExpr> piecewise() {
    std::vector<std::pair<SymExpr, SymExpr>> cases; // value, condition
    do {
      if (word() != "ExprCondPair" || !take('(')) return error("has a case that is no pair of value and condition");
      TESSERA_ASSIGN(SymExpr value, expression());
      if (!take(',')) return error("has a case without a condition");
      TESSERA_ASSIGN(SymExpr condition, expression());
      if (!take(')')) return error("misses a closing parenthesis");
      cases.emplace_back(std::move(value), std::move(condition));
    } while (take(','));
    if (!take(')')) return error("misses a closing parenthesis");
    if (!cases.back().second.is_const(1)) return error("has cases that leave some sizes out");
    SymExpr out = cases.back().first;
    for (size_t i = cases.size() - 1; i-- > 0;) out = sym_select(cases[i].second, cases[i].first, out);
    return out;
  }

  Result<SymExpr> apply(std::string_view name, const std::vector<SymExpr>& a) const {
    auto fold = [&](auto f) {
      SymExpr out = a[0];
      for (size_t i = 1; i < a.size(); ++i) out = f(out, a[i]);
      return out;
    };
    if (!a.empty()) {
      if (name == "Add") return fold([](const SymExpr& x, const SymExpr& y) { return x + y; });
      if (name == "Mul") return fold([](const SymExpr& x, const SymExpr& y) { return x * y; });
      if (name == "Max") return fold(sym_max);
      if (name == "Min") return fold(sym_min);
      if (name == "And") return fold(sym_and);
      if (name == "Or") return fold(sym_or);
      if (name == "Identity" && a.size() == 1) return a[0];
      if (name == "Not" && a.size() == 1) return sym_not(a[0]);
    }
    if (a.size() == 2) {
      if ((name == "FloorDiv" || name == "CleanDiv" || name == "CeilDiv" || name == "Mod" || name == "PythonMod") &&
          a[1].is_const(0))
        return error("divides by 0");
      if (name == "FloorDiv" || name == "CleanDiv") return floordiv(a[0], a[1]);
      if (name == "CeilDiv") return ceildiv(a[0], a[1]);
      if (name == "Mod" || name == "PythonMod") return mod(a[0], a[1]);
      if (name == "Equality" || name == "Eq") return sym_eq(a[0], a[1]);
      if (name == "Unequality" || name == "Ne") return sym_ne(a[0], a[1]);
      if (name == "StrictLessThan" || name == "Lt") return sym_lt(a[0], a[1]);
      if (name == "LessThan" || name == "Le") return sym_le(a[0], a[1]);
      if (name == "StrictGreaterThan" || name == "Gt") return sym_lt(a[1], a[0]);
      if (name == "GreaterThan" || name == "Ge") return sym_le(a[1], a[0]);
      if (name == "Pow" || name == "PowByNatural") {
        constexpr int64_t kMaxFactors = 16;
        auto exponent = a[1].as_const();
        if (!exponent || *exponent < 0 || *exponent > kMaxFactors)
          return error("has a power that is no constant from 0 to " + std::to_string(kMaxFactors));
        SymExpr out = 1;
        for (int64_t i = 0; i < *exponent; ++i) out = out * a[0];
        return out;
      }
    }
    Diagnostic d = error("calls '" + std::string(name) + "' of " + std::to_string(a.size()) + " arguments");
    d.code = ErrorCode::UnsupportedFeature;
    return d;
  }

  SymbolTable& table_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

void SymbolTable::share(const SymbolTable& around) {
  named_ = around.named_;
  read_ = around.read_;
}

Result<SymExpr> SymbolTable::read_expression(std::string_view text) {
  if (auto it = read_.find(text); it != read_.end()) return it->second;
  TESSERA_ASSIGN(SymExpr e, SympyReader(*this, text).whole());
  read_.emplace(std::string(text), e);
  return e;
}

} // namespace tessera::fx
