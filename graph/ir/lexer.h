// Reads the tokens of the Graph text form and keeps the position for diagnostics. White space and comments (// to the
// end of the line) may stand between tokens.
#pragma once
#include "base/dtype.h"
#include "base/result.h"
#include <optional>
#include <string>
#include <string_view>

namespace tessera::text {

struct Position {
  size_t offset = 0;
  int line = 1, column = 1;
};

class Lexer {
public:
  Lexer(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  void skip();
  [[nodiscard]] bool at_end() const { return at_.offset >= text_.size(); }
  [[nodiscard]] Position position() const { return at_; }
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] Diagnostic error(std::string message) const { return error(std::move(message), at_); }
  [[nodiscard]] Diagnostic error(std::string message, Position at) const;
  [[nodiscard]] std::string found(); // "'x'" or "the end of the text"

  // Each skips white space first.
  [[nodiscard]] bool peek(char c);
  [[nodiscard]] bool peek_digit();
  [[nodiscard]] bool peek_word(std::string_view word); // a whole word
  bool eat(char c);
  bool eat_word(std::string_view word);
  [[nodiscard]] Status expect(char c);
  [[nodiscard]] Status expect(std::string_view punctuation);
  [[nodiscard]] Result<std::string> identifier(std::string_view what);
  [[nodiscard]] Result<std::string> name(std::string_view what); // an identifier or a string
  [[nodiscard]] Result<std::string> string();                    // quoted, escapes resolved
  [[nodiscard]] Result<std::string> digits();
  [[nodiscard]] Result<std::string> hex_digits();
  [[nodiscard]] Result<int64_t> integer();
  [[nodiscard]] Result<std::string_view> number();     // integer, real, true, false, inf, -inf, nan: as written
  [[nodiscard]] Result<std::string_view> expression(); // up to , ] } { " or the end of the line, outside of parentheses
  // The comment on the rest of this line, which names a node; "" when there is none.
  [[nodiscard]] Result<std::string> trailing_comment();

private:
  [[nodiscard]] char now() const { return at_end() ? '\0' : text_[at_.offset]; }
  void advance();

  std::string_view text_;
  std::string file_;
  Position at_;
};

[[nodiscard]] int hex_value(char c); // -1 for what is no digit
[[nodiscard]] std::optional<double> parse_real(std::string_view text);
// An integer or bool within the range of the dtype; u64 as its bits.
[[nodiscard]] std::optional<int64_t> parse_integer(std::string_view text, DType dtype);

} // namespace tessera::text
