// The text form: infix arithmetic and functions. A name that is no identifier, or is that of a function, stands in
// quotes.
#include "base/text.h"
#include "symbols/node.h"
#include <array>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {
struct Function {
  SymOp op;
  std::string_view name;
  size_t arity;
};
constexpr std::array kFunctions = {
    Function{SymOp::FloorDiv, "floordiv", 2},
    Function{SymOp::Mod, "mod", 2},
    Function{SymOp::Min, "min", 2},
    Function{SymOp::Max, "max", 2},
    Function{SymOp::Eq, "eq", 2},
    Function{SymOp::Ne, "ne", 2},
    Function{SymOp::Lt, "lt", 2},
    Function{SymOp::Le, "le", 2},
    Function{SymOp::And, "and", 2},
    Function{SymOp::Or, "or", 2},
    Function{SymOp::Not, "not", 1},
    Function{SymOp::Select, "select", 3},
    Function{SymOp::Scaled, "scaled", 2},
};

bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return starts_name(c) || (c >= '0' && c <= '9') || c == '.'; }

void print_name(const std::string& name, std::string& out) {
  bool plain = !name.empty() && starts_name(name[0]);
  for (char c : name) plain = plain && continues_name(c);
  for (const Function& f : kFunctions) plain = plain && f.name != name;
  if (plain) {
    out += name;
    return;
  }
  out += quote(name);
}

// The shortest text that reads as the same number.
void print_real(double v, std::string& out) {
  std::array<char, 32> text{};
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), v).ptr);
}

void print(const SymExpr& e, std::string& out, bool inside_product) {
  const SymNode* n = e.node();
  switch (n->op) {
  case SymOp::Const: out += std::to_string(n->value); return;
  case SymOp::Symbol: print_name(n->name, out); return;
  case SymOp::Add:
    if (inside_product) out += '(';
    for (size_t i = 0; i < n->args.size(); ++i) {
      std::string one;
      print(n->args[i], one, n->opaque && n->args[i].op() == SymOp::Add);
      if (i == 0)
        out += one;
      else if (one[0] == '-')
        out += " - " + one.substr(1);
      else
        out += " + " + one;
    }
    if (inside_product) out += ')';
    return;
  case SymOp::Mul:
    for (size_t i = 0; i < n->args.size(); ++i) {
      if (i == 0 && !n->opaque && n->args[0].is_const(-1)) {
        out += '-';
        continue;
      }
      if (!out.empty() && i > 0 && out.back() != '-') out += '*';
      print(n->args[i], out, true);
    }
    return;
  default: break;
  }
  for (const Function& f : kFunctions)
    if (f.op == n->op) out += f.name;
  out += '(';
  for (size_t i = 0; i < n->args.size(); ++i) {
    if (i) out += ", ";
    if (i == 1 && n->op == SymOp::Scaled)
      print_real(e.factor(), out);
    else
      print(n->args[i], out, false);
  }
  out += ')';
}

class Parser {
public:
  Parser(std::string_view text, const std::function<Result<SymExpr>(std::string_view)>& lookup)
      : s_(text), lookup_(lookup) {}

  Result<SymExpr> whole() {
    TESSERA_ASSIGN(SymExpr e, sum());
    space();
    if (at_ != s_.size()) return error("unexpected '" + std::string(1, s_[at_]) + "'");
    return e;
  }

private:
  Diagnostic error(std::string what) const {
    Location where;
    where.line = 1;
    where.column = static_cast<int>(at_) + 1;
    return Diagnostic(ErrorCode::ParseError, where,
                      std::move(what) + " in the size expression '" + std::string(s_.substr(0, 200)) + "'");
  }
  void space() {
    while (at_ < s_.size() && s_[at_] == ' ') ++at_;
  }
  bool eat(char c) {
    space();
    if (at_ >= s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }

  Result<SymExpr> sum() {
    TESSERA_ASSIGN(SymExpr r, product());
    for (;;) {
      if (eat('+')) {
        TESSERA_ASSIGN(SymExpr b, product());
        r = r + b;
      } else if (eat('-')) {
        TESSERA_ASSIGN(SymExpr b, product());
        r = r - b;
      } else
        return r;
    }
  }
  Result<SymExpr> product() {
    TESSERA_ASSIGN(SymExpr r, factor());
    while (eat('*')) {
      TESSERA_ASSIGN(SymExpr b, factor());
      r = r * b;
    }
    return r;
  }
  Result<SymExpr> factor() {
    space();
    if (at_ >= s_.size()) return error("unexpected end");
    if (depth_ > 200) return error("too deep nesting");
    ++depth_;
    Result<SymExpr> r = factor_();
    --depth_;
    return r;
  }
  Result<SymExpr> factor_() {
    if (s_[at_] >= '0' && s_[at_] <= '9') return number(false);
    if (eat('-')) {
      space();
      if (at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9') return number(true);
      TESSERA_ASSIGN(SymExpr a, factor());
      return -a;
    }
    if (eat('(')) {
      TESSERA_ASSIGN(SymExpr a, sum());
      if (!eat(')')) return error("expected ')'");
      return a;
    }
    if (s_[at_] == '"') return quoted();
    if (!starts_name(s_[at_])) return error("unexpected '" + std::string(1, s_[at_]) + "'");
    size_t start = at_;
    while (at_ < s_.size() && continues_name(s_[at_])) ++at_;
    std::string_view name = s_.substr(start, at_ - start);
    for (const Function& f : kFunctions)
      if (f.name == name) return call(f);
    return lookup_(name);
  }
  Result<SymExpr> number(bool negative) {
    __int128 v = 0;
    while (at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9') {
      v = v * 10 + (s_[at_] - '0');
      if (v > static_cast<__int128>(INT64_MAX) + 1) return error("a number exceeds 64 bits");
      ++at_;
    }
    if (negative) v = -v;
    if (v > INT64_MAX) return error("a number exceeds 64 bits");
    return SymExpr(static_cast<int64_t>(v));
  }
  Result<SymExpr> quoted() {
    std::string name;
    const size_t bytes = unquote(s_.substr(at_), name);
    if (bytes == 0) return error("a name in quotes does not end, or has an unknown escape");
    at_ += bytes;
    return lookup_(name);
  }
  Result<SymExpr> call(const Function& f) {
    if (!eat('(')) return error("expected '(' behind " + std::string(f.name));
    std::vector<SymExpr> x;
    std::optional<double> factor;
    do {
      if (f.op == SymOp::Scaled && x.size() == 1) {
        TESSERA_ASSIGN(factor, real());
        x.emplace_back();
        continue;
      }
      TESSERA_ASSIGN(SymExpr a, sum());
      x.push_back(a);
    } while (eat(','));
    if (!eat(')')) return error("expected ')'");
    if (x.size() != f.arity) return error(std::string(f.name) + " takes " + std::to_string(f.arity) + " operands");
    return factor ? sym_scaled(x[0], *factor) : sym::make(f.op, x);
  }
  Result<double> real() {
    space();
    double v = 0;
    auto [end, ec] = std::from_chars(s_.data() + at_, s_.data() + s_.size(), v);
    if (ec != std::errc() || !std::isfinite(v)) return error("expected a number");
    at_ = static_cast<size_t>(end - s_.data());
    return v;
  }

  std::string_view s_;
  const std::function<Result<SymExpr>(std::string_view)>& lookup_;
  size_t at_ = 0;
  int depth_ = 0;
};
} // namespace

std::string SymExpr::str() const {
  std::string out;
  print(*this, out, false);
  return out;
}

std::string str(const SymShape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + shape[i].str();
  return out + "]";
}

Result<SymExpr> parse_sym(std::string_view text, const std::function<Result<SymExpr>(std::string_view)>& lookup) {
  return Parser(text, lookup).whole();
}

} // namespace tessera
