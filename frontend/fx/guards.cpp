#include "frontend/fx/guards.h"
#include <algorithm>
#include <cctype>
#include <charconv>

namespace tessera::fx {
namespace {

// Recursive descent by Python's precedences. What is not understood leaves `known_` false; its value has no meaning.
class GuardReader {
public:
  GuardReader(std::string_view text, const InputSize& size) : rest_(text), size_(size) {}

  std::optional<SymExpr> whole() {
    SymExpr e = disjunction();
    skip();
    return known_ && rest_.empty() ? std::optional(e) : std::nullopt;
  }

private:
  static constexpr int kMaxDepth = 100;

  void skip() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) rest_.remove_prefix(1);
  }
  bool take(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    const bool word = std::isalpha(static_cast<unsigned char>(token.back())) != 0;
    if (word && rest_.size() > token.size() && is_of_name(rest_[token.size()])) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  static bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }
  SymExpr unknown() {
    known_ = false;
    rest_ = {};
    return {};
  }
  void expect(std::string_view token) {
    if (!take(token)) unknown();
  }

  SymExpr disjunction() {
    SymExpr e = conjunction();
    while (take("or")) e = sym_or(e, conjunction());
    return e;
  }
  SymExpr conjunction() {
    SymExpr e = negation();
    while (take("and")) e = sym_and(e, negation());
    return e;
  }
  SymExpr negation() {
    bool negated = false;
    while (take("not")) negated = !negated;
    SymExpr e = comparison();
    return negated ? sym_not(e) : e;
  }

  // a < b <= c is a < b and b <= c.
  SymExpr comparison() {
    SymExpr left = sum();
    std::optional<SymExpr> all;
    auto add = [&](const SymExpr& condition, const SymExpr& right) {
      all = all ? sym_and(*all, condition) : condition;
      left = right;
    };
    for (;;) {
      if (take("==")) {
        SymExpr right = sum();
        add(sym_eq(left, right), right);
      } else if (take("!=")) {
        SymExpr right = sum();
        add(sym_ne(left, right), right);
      } else if (take("<=")) {
        SymExpr right = sum();
        add(sym_le(left, right), right);
      } else if (take(">=")) {
        SymExpr right = sum();
        add(sym_le(right, left), right);
      } else if (take("<")) {
        SymExpr right = sum();
        add(sym_lt(left, right), right);
      } else if (take(">")) {
        SymExpr right = sum();
        add(sym_lt(right, left), right);
      } else {
        return all.value_or(left);
      }
    }
  }
  SymExpr sum() {
    SymExpr e = product();
    for (;;) {
      if (take("+"))
        e = e + product();
      else if (take("-"))
        e = e - product();
      else
        return e;
    }
  }
  SymExpr product() {
    SymExpr e = factor();
    for (;;) {
      skip();
      const bool quotient = take("//");
      if (quotient || take("%")) {
        SymExpr by = factor();
        if (by.is_const(0)) return unknown();
        e = quotient ? floordiv(e, by) : mod(e, by);
      } else if (!rest_.starts_with("**") && take("*")) {
        e = e * factor();
      } else {
        return e;
      }
    }
  }
  SymExpr factor() {
    if (++depth_ > kMaxDepth) return unknown();
    SymExpr e = take("-") ? -factor() : atom();
    if (take("**")) {
      constexpr int64_t kMax = 16;
      const auto exponent = factor().as_const();
      if (!exponent || *exponent < 0 || *exponent > kMax) return unknown();
      SymExpr base = e;
      e = 1;
      for (int64_t i = 0; i < *exponent; ++i) e = e * base;
    }
    --depth_;
    return e;
  }
  SymExpr atom() {
    skip();
    if (take("(")) {
      SymExpr e = disjunction();
      expect(")");
      return e;
    }
    if (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_.front())) != 0) return number();
    if (take("True")) return 1;
    if (take("False")) return 0;
    if (rest_.starts_with("L[")) {
      rest_.remove_prefix(1);
      return input();
    }
    for (const std::string_view name : {"max", "torch.sym_max", "min", "torch.sym_min"})
      if (take(name)) return extreme(name.ends_with("max"));
    return unknown();
  }
  SymExpr number() {
    int64_t value = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return unknown();
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return rest_.empty() || !is_of_name(rest_.front()) ? SymExpr(value) : unknown(); // a number with a fraction
  }
  SymExpr extreme(bool greatest) {
    expect("(");
    SymExpr e = disjunction();
    while (take(",")) e = greatest ? sym_max(e, disjunction()) : sym_min(e, disjunction());
    expect(")");
    return e;
  }

  // "['d'][0].size()[1]": the exporter names inputs by their keys in lower case, with '_' for what no name has.
  SymExpr input() {
    std::string name;
    while (take("[")) {
      if (!name.empty()) name += '_';
      const bool text = take("'");
      while (!rest_.empty() && rest_.front() != (text ? '\'' : ']')) {
        const auto c = static_cast<unsigned char>(rest_.front());
        name += std::isalnum(c) != 0 ? static_cast<char>(std::tolower(c)) : '_';
        rest_.remove_prefix(1);
      }
      if (text) expect("'");
      expect("]");
    }
    std::optional<int64_t> dim;
    if (take(".size()[")) {
      dim = number().as_const();
      expect("]");
    }
    const auto e = known_ && (rest_.empty() || rest_.front() != '.') ? size_(name, dim) : std::nullopt;
    return e ? *e : unknown();
  }

  std::string_view rest_;
  const InputSize& size_;
  bool known_ = true;
  int depth_ = 0;
};

} // namespace

std::optional<SymExpr> read_guard(std::string_view text, const InputSize& size) {
  return GuardReader(text, size).whole();
}

Status require_guards(const Program& program, SymbolTable& symbols, ShapeEnv& env, const Location& where) {
  const InputSize size_of = [&](const std::string& name, std::optional<int64_t> dim) -> std::optional<SymExpr> {
    const bool given = std::any_of(program.inputs.begin(), program.inputs.end(), [&](const InputSpec& spec) {
      return spec.kind == InputSpec::Kind::User && spec.argument.name == name;
    });
    const Size* size = nullptr;
    auto tensor = program.graph.tensors.find(name);
    if (dim && tensor != program.graph.tensors.end() && *dim < static_cast<int64_t>(tensor->second.sizes.size()))
      size = &tensor->second.sizes[static_cast<size_t>(*dim)];
    if (auto integer = program.graph.sym_ints.find(name); !dim && integer != program.graph.sym_ints.end())
      size = &integer->second.value;
    if (!given || size == nullptr) return {};
    auto e = symbols.read(*size);
    return e.ok() ? std::optional(*e) : std::nullopt;
  };
  for (const std::string& text : program.guards)
    if (const auto condition = read_guard(text, size_of))
      TESSERA_TRY(env.require(*condition, GuardClass::Required, "the exported module requires " + text, where));
  return {};
}

} // namespace tessera::fx
