#include "codegen/tile/lexer.h"

namespace tessera::tile {
namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
} // namespace

Token Lexer::next() {
  skip();
  Token t;
  t.line = line_;
  t.column = static_cast<int>(at_ - line_start_) + 1;
  if (at_ >= text_.size()) return t;
  char c = text_[at_];
  size_t start = at_;
  if (c == '%' || c == '@') {
    t.kind = c == '%' ? Token::Kind::Value : Token::Kind::Symbol;
    ++at_;
    take_word();
    t.text = text_.substr(start + 1, at_ - start - 1);
  } else if (is_digit(c) || (c == '-' && at_ + 1 < text_.size() && is_word(text_[at_ + 1]))) {
    t.kind = Token::Kind::Number;
    ++at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.' || is_exponent_sign())) ++at_;
    t.text = text_.substr(start, at_ - start);
  } else if (is_word(c)) {
    t.kind = Token::Kind::Ident;
    take_word();
    t.text = text_.substr(start, at_ - start);
  } else {
    t.kind = Token::Kind::Punct;
    ++at_;
    t.text = text_.substr(start, 1);
  }
  return t;
}

bool Lexer::is_exponent_sign() const {
  return (text_[at_] == '-' || text_[at_] == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
}

void Lexer::take_word() {
  while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.')) ++at_;
}

void Lexer::skip() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (c == '\n') {
      ++line_;
      line_start_ = ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else {
      return;
    }
  }
}

} // namespace tessera::tile
