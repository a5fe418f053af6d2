// Recursive-descent reader of the text form (docs/tile-ir.md). Every operation is type-checked as it is read, so that
// an error names its line. The nesting depth of regions is bounded, so that no text can exhaust the stack. Private to
// codegen/tile.
#pragma once
#include "codegen/tile/lexer.h"
#include "codegen/tile/tile.h"
#include <map>

namespace tessera::tile {

// An operand as written: a value, or a literal whose dtype the operation gives.
struct Operand {
  ValueId value = -1;
  std::string_view literal;
  Token token;
};

class Parser {
public:
  Parser(std::string_view text, const std::string& file) : lexer_(text), file_(file) { advance(); }
  Result<Kernel> run();

private:
  // parse.cpp: tokens
  void advance() { token_ = lexer_.next(); }
  Diagnostic error(std::string message) const { return error_at(token_, std::move(message)); }
  Diagnostic error_at(const Token& t, std::string message) const;
  bool is_punct(char c) const { return token_.kind == Token::Kind::Punct && token_.text[0] == c; }
  bool is_ident(std::string_view word) const { return token_.kind == Token::Kind::Ident && token_.text == word; }
  bool accept(char c);
  bool accept_word(std::string_view word);
  Status punct(char c);
  Status keyword(std::string_view word);
  std::string found() const;
  Result<int64_t> integer();
  Result<int64_t> integer_in(int64_t lo, int64_t hi);
  Result<int64_t> attribute(std::string_view word, int64_t lo, int64_t hi);

  // parse.cpp: structure
  Result<DType> dtype();
  Result<Type> type();
  Status define(const Token& t, ValueId v);
  Status params();
  Status config();
  // "{ operations }". Closes the region with an empty yield when none is written.
  Status block(std::vector<OpId>& ops, const std::vector<std::pair<Token, ValueId>>* arguments, int depth);
  Status statement(std::vector<OpId>& ops, int depth);
  Status for_loop(Op& op, std::vector<OpId>& ops, int depth);
  Status if_else(Op& op, int depth);

  // parse_operation.cpp
  Result<Operand> operand();
  Result<ValueId> value();
  // Makes a literal a constant of that dtype before the operation that uses it.
  Result<ValueId> materialize(const Operand& o, DType dtype, std::vector<OpId>& ops);
  Result<ValueId> value_or(DType dtype, std::vector<OpId>& ops);
  Status literal(const Token& t, DType dtype, Op& op);
  Status value_list(Op& op, std::vector<OpId>& ops);
  Status check_written(const Token& at, ValueId pointer) const;
  // "[offset]" behind the pointer: the first two operands.
  Status element(Op& op, ValueId pointer, std::vector<OpId>& ops);
  Status access(Op& op, std::vector<OpId>& ops, bool store);
  // "%counters[offset] rank=%m of=%n"
  Status cooperation(Op& op, std::vector<OpId>& ops);
  Status report_index(Op& op, std::vector<OpId>& ops);
  Status exchange(Op& op, std::vector<OpId>& ops);
  Status yield(Op& op);
  Status axis(Op& op);
  Status operation(Op& op, std::vector<OpId>& ops, int depth);

  Lexer lexer_;
  std::string file_;
  Token token_;
  Kernel k_;
  std::map<std::string, ValueId, std::less<>> names_;
  std::vector<std::string> scope_;  // names in order of definition, for leaving a region
  std::map<OpId, Token> op_tokens_; // where operations begin that the text has
  std::map<int, Token> param_tokens_;
  Token literal_; // of the const being read: its dtype comes last
  int range_ = 0;
};

} // namespace tessera::tile
