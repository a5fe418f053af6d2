// Tokens of the tile IR's text form (docs/tile-ir.md), with line and column. Private to codegen/tile.
#pragma once
#include <cstdint>
#include <string_view>

namespace tessera::tile {

struct Token {
  enum class Kind : uint8_t { End, Ident, Value /* %name */, Symbol /* @name */, Number, Punct };
  Kind kind = Kind::End;
  std::string_view text; // without % and @
  int line = 1, column = 1;
};

class Lexer {
public:
  explicit Lexer(std::string_view text) : text_(text) {}
  // The next token; an unknown character is a Punct of itself, which no rule accepts.
  Token next();

private:
  [[nodiscard]] bool is_exponent_sign() const; // the sign in 1e-05
  void take_word();
  void skip(); // blanks, lines, comments

  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

} // namespace tessera::tile
