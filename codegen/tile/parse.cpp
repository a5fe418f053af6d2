#include "codegen/tile/parser.h"
#include "codegen/tile/rules.h"
#include <charconv>

namespace tessera::tile {

Result<Kernel> Parser::run() {
  const Token first = token_;
  TESSERA_TRY(keyword("tile.kernel"));
  if (token_.kind != Token::Kind::Symbol || token_.text.empty()) return error("expected '@name'");
  k_.name = token_.text;
  advance();
  TESSERA_TRY(params());
  if (is_ident("config")) TESSERA_TRY(config());
  TESSERA_TRY(block(k_.body, nullptr, 0));
  if (token_.kind != Token::Kind::End) return error("expected the end of the text");
  FaultyPart part;
  if (Status ok = verify(k_, part); !ok.ok()) {
    auto at = param_tokens_.find(part.param), of_op = op_tokens_.find(part.op);
    return error_at(at != param_tokens_.end()   ? at->second
                    : of_op != op_tokens_.end() ? of_op->second
                                                : first,
                    ok.error().message);
  }
  return std::move(k_);
}

// ---- tokens

Diagnostic Parser::error_at(const Token& t, std::string message) const {
  Location where;
  where.file = file_;
  where.line = t.line;
  where.column = t.column;
  return {ErrorCode::ParseError, where, std::move(message)};
}

bool Parser::accept(char c) {
  if (!is_punct(c)) return false;
  advance();
  return true;
}

bool Parser::accept_word(std::string_view word) {
  if (!is_ident(word)) return false;
  advance();
  return true;
}

Status Parser::punct(char c) {
  if (!accept(c)) return error(std::string("expected '") + c + "'" + found());
  return {};
}

Status Parser::keyword(std::string_view word) {
  if (!accept_word(word)) return error("expected '" + std::string(word) + "'" + found());
  return {};
}

std::string Parser::found() const {
  if (token_.kind == Token::Kind::End) return ", found the end of the text";
  const char* sigil = token_.kind == Token::Kind::Value ? "%" : token_.kind == Token::Kind::Symbol ? "@" : "";
  return std::string(", found '") + sigil + std::string(token_.text) + "'";
}

Result<int64_t> Parser::integer() {
  int64_t v = 0;
  auto [end, ec] = std::from_chars(token_.text.data(), token_.text.data() + token_.text.size(), v);
  if (token_.kind != Token::Kind::Number || ec != std::errc() || end != token_.text.data() + token_.text.size())
    return error("expected an integer" + found());
  advance();
  return v;
}

Result<int64_t> Parser::integer_in(int64_t lo, int64_t hi) {
  Token t = token_;
  TESSERA_ASSIGN(int64_t v, integer());
  if (v < lo || v > hi)
    return error_at(t, "expected an integer from " + std::to_string(lo) + " to " + std::to_string(hi));
  return v;
}

Result<int64_t> Parser::attribute(std::string_view word, int64_t lo, int64_t hi) {
  TESSERA_TRY(keyword(word));
  TESSERA_TRY(punct('='));
  return integer_in(lo, hi);
}

// ---- structure

Result<DType> Parser::dtype() {
  std::optional<DType> d;
  if (token_.kind == Token::Kind::Ident) d = dtype_from_name(token_.text);
  if (!d) return error("expected an element type" + found());
  advance();
  return *d;
}

Result<Type> Parser::type() {
  Token at = token_;
  Type t;
  if (accept_word("ptr")) {
    t.kind = Type::Kind::Pointer;
    TESSERA_TRY(punct('<'));
    TESSERA_ASSIGN(t.dtype, dtype());
    TESSERA_TRY(punct('>'));
  } else if (accept_word("tile")) {
    TESSERA_TRY(punct('<'));
    TESSERA_TRY(punct('['));
    do {
      if (t.shape.size() == static_cast<size_t>(kMaxRank)) return error("a tile has at most 8 dimensions");
      TESSERA_ASSIGN(int64_t n, integer_in(1, kMaxTileElements));
      t.shape.push_back(static_cast<int>(n));
    } while (accept(','));
    TESSERA_TRY(punct(']'));
    TESSERA_TRY(punct(','));
    TESSERA_ASSIGN(t.dtype, dtype());
    TESSERA_TRY(punct('>'));
  } else {
    TESSERA_ASSIGN(t.dtype, dtype());
  }
  if (Status ok = check_type(t); !ok.ok()) return error_at(at, ok.error().message);
  return t;
}

Status Parser::define(const Token& t, ValueId v) {
  if (t.kind != Token::Kind::Value || t.text.empty()) return error_at(t, "expected '%name'");
  if (!names_.emplace(std::string(t.text), v).second)
    return error_at(t, "'%" + std::string(t.text) + "' is defined twice");
  scope_.emplace_back(t.text);
  return {};
}

Status Parser::params() {
  TESSERA_TRY(punct('('));
  std::vector<std::pair<size_t, Token>> counts; // parameters, and the names of those that say how long they are
  while (!is_punct(')')) {
    Token t = token_;
    advance();
    TESSERA_TRY(punct(':'));
    Token type_at = token_;
    Param p;
    TESSERA_ASSIGN(p.type, type());
    if (p.type.is_tile()) return error_at(type_at, "a parameter is a pointer or a scalar");
    p.name = t.text;
    p.value = k_.new_value(p.type);
    TESSERA_TRY(define(t, p.value));
    p.written = accept_word("written");
    p.once = p.written && accept_word("once");
    p.invariant = accept_word("invariant");
    p.in_place = accept_word("in_place");
    if (is_ident("align")) {
      TESSERA_ASSIGN(p.alignment, attribute("align", 1, 4096));
    }
    if (is_ident("multiple")) {
      TESSERA_ASSIGN(p.multiple_of, attribute("multiple", 1, int64_t{1} << 40));
    }
    if (accept_word("elements")) {
      TESSERA_TRY(punct('='));
      if (token_.kind == Token::Kind::Value) {
        counts.emplace_back(k_.params.size(), token_);
        advance();
      } else {
        TESSERA_ASSIGN(p.elements, integer_in(1, int64_t{1} << 62));
      }
    }
    param_tokens_.emplace(static_cast<int>(k_.params.size()), t);
    k_.params.push_back(std::move(p));
    if (!accept(',')) break;
  }
  for (const auto& [param, name] : counts) { // a parameter may count the elements of an earlier one
    auto it = names_.find(std::string(name.text));
    if (it == names_.end()) return error_at(name, "'%" + std::string(name.text) + "' is not defined");
    k_.params[param].elements_value = it->second;
  }
  return punct(')');
}

Status Parser::config() {
  advance();
  TESSERA_TRY(punct('('));
  do {
    if (token_.kind != Token::Kind::Ident) return error("expected a name" + found());
    std::string key(token_.text);
    advance();
    TESSERA_TRY(punct(':'));
    TESSERA_ASSIGN(int64_t v, integer());
    k_.config[key] = v;
  } while (accept(','));
  return punct(')');
}

Status Parser::block(std::vector<OpId>& ops, const std::vector<std::pair<Token, ValueId>>* arguments, int depth) {
  if (depth > kMaxDepth) return error("regions are nested too deeply");
  TESSERA_TRY(punct('{'));
  size_t outer = scope_.size();
  if (arguments)
    for (const auto& [t, v] : *arguments) TESSERA_TRY(define(t, v));
  bool closed = false;
  while (!is_punct('}')) {
    if (closed) return error("nothing may follow yield");
    if (is_ident("yield") && depth == 0) return error("yield outside of a region");
    closed = is_ident("yield");
    TESSERA_TRY(statement(ops, depth));
  }
  advance();
  if (depth > 0 && !closed) {
    Op y;
    y.kind = OpKind::Yield;
    ops.push_back(k_.new_op(std::move(y)));
  }
  for (; scope_.size() > outer; scope_.pop_back()) names_.erase(scope_.back());
  return {};
}

Status Parser::statement(std::vector<OpId>& ops, int depth) {
  std::vector<Token> results;
  while (token_.kind == Token::Kind::Value) {
    results.push_back(token_);
    advance();
    if (!accept(',')) break;
  }
  if (!results.empty()) TESSERA_TRY(punct('='));
  Token at = token_;
  Op op;
  TESSERA_TRY(operation(op, ops, depth));
  bool has_region = op.kind == OpKind::For || op.kind == OpKind::If;
  if (!has_region && !results.empty()) {
    TESSERA_TRY(punct(':'));
    for (size_t i = 0; i < results.size(); ++i) {
      if (i) TESSERA_TRY(punct(','));
      TESSERA_ASSIGN(Type t, type());
      op.results.push_back(k_.new_value(std::move(t)));
    }
  }
  if (op.kind == OpKind::Const && op.results.size() == 1) {
    const Type& t = k_.type(op.results[0]);
    if (t.kind == Type::Kind::Data) TESSERA_TRY(literal(literal_, t.dtype, op));
  }
  if (op.kind == OpKind::Range && op.results.size() == 1 && k_.type(op.results[0]).shape != std::vector<int>{range_})
    return error_at(at, "range " + std::to_string(range_) + " yields 'tile<[" + std::to_string(range_) + "], i64>'");
  if (Status ok = check_op(k_, op); !ok.ok()) return error_at(at, ok.error().message);
  if (results.size() != op.results.size())
    return error_at(at, "this operation has " + std::to_string(op.results.size()) + " results, " +
                            std::to_string(results.size()) + " are named");
  for (size_t i = 0; i < results.size(); ++i) TESSERA_TRY(define(results[i], op.results[i]));
  ops.push_back(k_.new_op(std::move(op)));
  op_tokens_.emplace(ops.back(), at);
  return {};
}

Status Parser::for_loop(Op& op, std::vector<OpId>& ops, int depth) {
  op.kind = OpKind::For;
  std::vector<std::pair<Token, ValueId>> arguments{{token_, k_.new_value({Type::Kind::Data, DType::I64, {}})}};
  if (token_.kind != Token::Kind::Value) return error("expected '%name'" + found());
  advance();
  TESSERA_TRY(punct('='));
  TESSERA_ASSIGN(ValueId from, value_or(DType::I64, ops));
  TESSERA_TRY(keyword("to"));
  TESSERA_ASSIGN(ValueId to, value_or(DType::I64, ops));
  TESSERA_TRY(keyword("step"));
  TESSERA_ASSIGN(ValueId step, value_or(DType::I64, ops));
  op.operands = {from, to, step};
  if (is_ident("num_stages")) {
    TESSERA_ASSIGN(int64_t stages, attribute("num_stages", 1, kMaxStages));
    op.num_stages = static_cast<int>(stages);
  }
  if (accept_word("carry")) {
    TESSERA_TRY(punct('('));
    do {
      Token t = token_;
      advance();
      TESSERA_TRY(punct('='));
      TESSERA_ASSIGN(ValueId init, value());
      Type carried = k_.type(init);
      op.operands.push_back(init);
      arguments.emplace_back(t, k_.new_value(carried));
      op.results.push_back(k_.new_value(std::move(carried)));
    } while (accept(','));
    TESSERA_TRY(punct(')'));
  }
  op.region_args.emplace_back();
  for (const auto& [t, v] : arguments) op.region_args[0].push_back(v);
  op.regions.emplace_back();
  return block(op.regions[0], &arguments, depth + 1);
}

Status Parser::if_else(Op& op, int depth) {
  op.kind = OpKind::If;
  TESSERA_ASSIGN(ValueId condition, value());
  op.operands = {condition};
  op.regions.resize(2);
  op.region_args.resize(2);
  TESSERA_TRY(block(op.regions[0], nullptr, depth + 1));
  if (accept_word("else")) {
    TESSERA_TRY(block(op.regions[1], nullptr, depth + 1));
  } else {
    Op y;
    y.kind = OpKind::Yield;
    op.regions[1].push_back(k_.new_op(std::move(y)));
  }
  const Op& y = k_.op(op.regions[0].back());
  std::vector<Type> types;
  for (ValueId v : y.operands) types.push_back(k_.type(v));
  for (Type& t : types) op.results.push_back(k_.new_value(std::move(t)));
  return {};
}

Result<Kernel> parse(std::string_view text, const std::string& file) { return Parser(text, file).run(); }

} // namespace tessera::tile
