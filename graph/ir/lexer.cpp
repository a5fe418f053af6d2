#include "graph/ir/lexer.h"
#include "graph/ir/text.h"
#include <charconv>
#include <cmath>
#include <limits>

namespace tessera::text {

namespace {
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
// Longer ones are no shapes of a model; the limit bounds what expression arithmetic can cost.
constexpr size_t kMaxExpression = 4096;
} // namespace

void Lexer::advance() {
  if (text_[at_.offset] == '\n') {
    ++at_.line;
    at_.column = 1;
  } else {
    ++at_.column;
  }
  ++at_.offset;
}

void Lexer::skip() {
  while (!at_end()) {
    if (space(now()))
      advance();
    else if (text_.substr(at_.offset, 2) == "//")
      while (!at_end() && now() != '\n') advance();
    else
      return;
  }
}

Diagnostic Lexer::error(std::string message, Position at) const {
  Location where;
  where.file = file_;
  where.line = at.line;
  where.column = at.column;
  return {ErrorCode::ParseError, where, std::move(message)};
}

std::string Lexer::found() {
  skip();
  if (at_end()) return "the end of the text";
  size_t end = at_.offset;
  while (end < text_.size() && end < at_.offset + 20 && (letter(text_[end]) || digit(text_[end]))) ++end;
  std::string_view token = text_.substr(at_.offset, std::max<size_t>(1, end - at_.offset));
  std::string quoted = quote(token); // control characters made visible
  return "'" + quoted.substr(1, quoted.size() - 2) + "'";
}

bool Lexer::peek(char c) {
  skip();
  return !at_end() && now() == c;
}

bool Lexer::peek_digit() {
  skip();
  return digit(now());
}

bool Lexer::peek_word(std::string_view word) {
  skip();
  if (text_.substr(at_.offset, word.size()) != word) return false;
  size_t next = at_.offset + word.size();
  return next >= text_.size() || !(letter(text_[next]) || digit(text_[next]) || text_[next] == '.');
}

bool Lexer::eat(char c) {
  if (!peek(c)) return false;
  advance();
  return true;
}

bool Lexer::eat_word(std::string_view word) {
  if (!peek_word(word)) return false;
  for (size_t i = 0; i < word.size(); ++i) advance();
  return true;
}

Status Lexer::expect(char c) {
  if (eat(c)) return {};
  return error("expected '" + std::string(1, c) + "', found " + found());
}

Status Lexer::expect(std::string_view punctuation) {
  skip();
  if (text_.substr(at_.offset, punctuation.size()) != punctuation)
    return error("expected '" + std::string(punctuation) + "', found " + found());
  for (size_t i = 0; i < punctuation.size(); ++i) advance();
  return {};
}

Result<std::string> Lexer::identifier(std::string_view what) {
  skip();
  if (!letter(now())) return error("expected " + std::string(what) + ", found " + found());
  size_t start = at_.offset;
  while (letter(now()) || digit(now()) || now() == '.') advance();
  return std::string(text_.substr(start, at_.offset - start));
}

Result<std::string> Lexer::name(std::string_view what) { return peek('"') ? string() : identifier(what); }

Result<std::string> Lexer::string() {
  skip();
  Position start = at_;
  if (now() != '"') return error("expected a string, found " + found());
  advance();
  std::string out;
  for (;;) {
    if (at_end() || now() == '\n') return error("the string is not closed", start);
    char c = now();
    advance();
    if (c == '"') return out;
    if (c != '\\') {
      out += c;
      continue;
    }
    if (at_end()) return error("the string is not closed", start);
    char escape = now();
    advance();
    if (escape == 'n')
      out += '\n';
    else if (escape == 't')
      out += '\t';
    else if (escape == '"' || escape == '\\')
      out += escape;
    else if (escape == 'x') {
      int value = 0;
      for (int i = 0; i < 2; ++i) {
        int d = hex_value(now());
        if (at_end() || d < 0) return error("\\x takes two hexadecimal digits");
        value = value * 16 + d;
        advance();
      }
      out += static_cast<char>(value);
    } else {
      return error("unknown escape in a string");
    }
  }
}

Result<std::string> Lexer::digits() {
  skip();
  size_t start = at_.offset;
  while (digit(now())) advance();
  return std::string(text_.substr(start, at_.offset - start));
}

Result<std::string> Lexer::hex_digits() {
  skip();
  size_t start = at_.offset;
  while (hex_value(now()) >= 0) advance();
  if (at_.offset == start) return error("expected hexadecimal digits, found " + found());
  return std::string(text_.substr(start, at_.offset - start));
}

Result<int64_t> Lexer::integer() {
  skip();
  Position start = at_;
  if (now() == '-') advance();
  while (digit(now())) advance();
  std::string_view written = text_.substr(start.offset, at_.offset - start.offset);
  int64_t value = 0;
  auto [end, code] = std::from_chars(written.data(), written.data() + written.size(), value);
  if (code == std::errc::result_out_of_range)
    return error("'" + std::string(written) + "' does not fit 64 bits", start);
  if (code != std::errc() || end != written.data() + written.size()) {
    at_ = start;
    return error("expected an integer, found " + found(), start);
  }
  return value;
}

Result<std::string_view> Lexer::number() {
  skip();
  size_t start = at_.offset;
  if (now() == '-' || now() == '+') advance();
  while (letter(now()) || digit(now()) || now() == '.' ||
         ((now() == '-' || now() == '+') && at_.offset > start &&
          (text_[at_.offset - 1] == 'e' || text_[at_.offset - 1] == 'E')))
    advance();
  if (at_.offset == start) return error("expected a number, found " + found());
  return text_.substr(start, at_.offset - start);
}

Result<std::string_view> Lexer::expression() {
  skip();
  Position start = at_;
  int depth = 0;
  char last = '('; // before `at_`, but for spaces; at the beginning an operand is due
  while (!at_end()) {
    char c = now();
    // Quotation marks begin a symbol whose name is no identifier where an operand is due; elsewhere they end the
    // expression, as the reason of a guard does.
    std::string name;
    const size_t quoted = c == '"' && std::string_view("(,+-*").find(last) != std::string_view::npos
                              ? unquote(text_.substr(at_.offset), name)
                              : 0;
    if (quoted > 0) {
      for (size_t i = 0; i < quoted; ++i) advance();
      last = '"';
      continue;
    }
    if (c == '\n' || c == '"' || c == '{' || c == '}' || c == ']' || (depth == 0 && (c == ',' || c == ')'))) break;
    if (c == '(' && ++depth > kMaxDepth) return error("the expression is nested too deeply", start);
    if (c == ')') --depth;
    if (!space(c)) last = c;
    advance();
    if (at_.offset - start.offset > kMaxExpression) return error("the expression is too long", start);
  }
  std::string_view out = text_.substr(start.offset, at_.offset - start.offset);
  while (!out.empty() && space(out.back())) out.remove_suffix(1);
  if (out.empty()) return error("expected an expression, found " + found(), start);
  return out;
}

Result<std::string> Lexer::trailing_comment() {
  while (!at_end() && (now() == ' ' || now() == '\t')) advance();
  if (text_.substr(at_.offset, 2) != "//") return std::string();
  advance();
  advance();
  while (!at_end() && (now() == ' ' || now() == '\t')) advance();
  if (now() == '"') return string();
  size_t start = at_.offset;
  while (!at_end() && now() != '\n') advance();
  std::string_view out = text_.substr(start, at_.offset - start);
  while (!out.empty() && space(out.back())) out.remove_suffix(1);
  return std::string(out);
}

int hex_value(char c) {
  if (digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<double> parse_real(std::string_view text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.empty() || letter(text.back())) return std::nullopt; // from_chars knows other spellings
  double value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(std::string_view text, DType dtype) {
  const DTypeInfo& d = info(dtype);
  if (text == "true" || text == "false")
    return d.kind == DTypeKind::Bool ? std::optional<int64_t>(text == "true") : std::nullopt;
  const char *begin = text.data(), *stop = text.data() + text.size();
  if (dtype == DType::U64) {
    uint64_t value = 0;
    auto [end, code] = std::from_chars(begin, stop, value);
    return code == std::errc() && end == stop ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
  }
  int64_t value = 0;
  auto [end, code] = std::from_chars(begin, stop, value);
  if (code != std::errc() || end != stop) return std::nullopt;
  bool is_signed = d.kind == DTypeKind::Signed;
  int bits = d.kind == DTypeKind::Bool ? 1 : d.bits;
  if (bits < 64) {
    int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
    int64_t high = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    if (value < low || value > high) return std::nullopt;
  }
  return value;
}

} // namespace tessera::text
