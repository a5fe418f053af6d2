#include "codegen/tile/parser.h"
#include "codegen/tile/rules.h"
#include <charconv>
#include <cmath>
#include <limits>

namespace tessera::tile {

Result<Operand> Parser::operand() {
  Operand o;
  o.token = token_;
  if (token_.kind == Token::Kind::Value) {
    auto it = names_.find(token_.text);
    if (it == names_.end()) return error("'%" + std::string(token_.text) + "' is not defined here");
    o.value = it->second;
  } else if (token_.kind == Token::Kind::Number || is_ident("inf") || is_ident("nan") || is_ident("true") ||
             is_ident("false")) {
    o.literal = token_.text;
  } else {
    return error("expected a value" + found());
  }
  advance();
  return o;
}

Result<ValueId> Parser::value() {
  TESSERA_ASSIGN(Operand o, operand());
  if (o.value < 0) return error_at(o.token, "expected '%name'");
  return o.value;
}

Result<ValueId> Parser::materialize(const Operand& o, DType dtype, std::vector<OpId>& ops) {
  if (o.value >= 0) return o.value;
  Op c;
  c.kind = OpKind::Const;
  TESSERA_TRY(literal(o.token, dtype, c));
  c.results = {k_.new_value({Type::Kind::Data, dtype, {}})};
  ValueId v = c.results[0];
  ops.push_back(k_.new_op(std::move(c)));
  return v;
}

Result<ValueId> Parser::value_or(DType dtype, std::vector<OpId>& ops) {
  TESSERA_ASSIGN(Operand o, operand());
  return materialize(o, dtype, ops);
}

Status Parser::literal(const Token& t, DType dtype, Op& op) {
  std::string_view s = t.text;
  const char* last = s.data() + s.size();
  if (is_float(dtype)) {
    if (s == "nan" || s == "-nan") {
      op.f = std::numeric_limits<double>::quiet_NaN();
      return {};
    }
    if (s == "inf" || s == "-inf") {
      op.f = s[0] == '-' ? -HUGE_VAL : HUGE_VAL;
      return {};
    }
    auto [end, ec] = std::from_chars(s.data(), last, op.f);
    if (ec != std::errc() || end != last) return error_at(t, "expected a number, found '" + std::string(s) + "'");
    if (dtype != DType::F64) { // rounded to the type
      ScalarValue v{op.f, 0};
      op.f = eval_scalar(ScalarOp::Cast, dtype, DType::F64, {&v, 1}).f;
    }
    return {};
  }
  if (s == "true" || s == "false") {
    if (dtype != DType::Bool) return error_at(t, "expected an integer, found '" + std::string(s) + "'");
    op.i = s == "true";
    return {};
  }
  bool unsigned64 = dtype == DType::U64;
  uint64_t u = 0;
  auto [end, ec] = unsigned64 ? std::from_chars(s.data(), last, u) : std::from_chars(s.data(), last, op.i);
  if (unsigned64) op.i = static_cast<int64_t>(u);
  if (ec != std::errc() || end != last) return error_at(t, "expected an integer, found '" + std::string(s) + "'");
  const DTypeInfo& d = info(dtype);
  bool fits = d.bits >= 64;
  if (!fits && d.kind == DTypeKind::Signed)
    fits = op.i >= -(int64_t{1} << (d.bits - 1)) && op.i < (int64_t{1} << (d.bits - 1));
  if (!fits && d.kind == DTypeKind::Unsigned) fits = op.i >= 0 && op.i < (int64_t{1} << d.bits);
  if (d.kind == DTypeKind::Bool) fits = op.i == 0 || op.i == 1;
  if (!fits) return error_at(t, "'" + std::string(s) + "' does not fit " + std::string(d.name));
  return {};
}

Status Parser::value_list(Op& op, std::vector<OpId>& ops) {
  TESSERA_TRY(punct('('));
  std::vector<Operand> list;
  std::optional<DType> dtype; // literals take that of their last typed neighbour: select's condition is first
  while (!is_punct(')')) {
    TESSERA_ASSIGN(Operand o, operand());
    if (o.value >= 0) dtype = k_.type(o.value).dtype;
    list.push_back(std::move(o));
    if (!accept(',')) break;
  }
  TESSERA_TRY(punct(')'));
  for (const Operand& o : list) {
    if (!dtype) return error_at(o.token, "at least one operand must be a value");
    TESSERA_ASSIGN(ValueId v, materialize(o, *dtype, ops));
    op.operands.push_back(v);
  }
  return {};
}

Status Parser::check_written(const Token& at, ValueId pointer) const {
  for (const Param& param : k_.params)
    if (param.value == pointer && !param.written && param.type.kind == Type::Kind::Pointer)
      return error_at(at, "parameter '" + param.name + "' is stored to but not marked written");
  return {};
}

Status Parser::element(Op& op, ValueId pointer, std::vector<OpId>& ops) {
  TESSERA_TRY(punct('['));
  TESSERA_ASSIGN(ValueId offset, value_or(DType::I64, ops));
  TESSERA_TRY(punct(']'));
  op.operands = {pointer, offset};
  return {};
}

Status Parser::access(Op& op, std::vector<OpId>& ops, bool store) {
  Token at = token_;
  TESSERA_ASSIGN(ValueId ptr, value());
  if (store) TESSERA_TRY(check_written(at, ptr));
  TESSERA_TRY(element(op, ptr, ops));
  if (store) {
    TESSERA_TRY(punct('='));
    TESSERA_ASSIGN(ValueId v, value_or(k_.type(ptr).dtype, ops));
    op.operands.push_back(v);
  }
  if (accept_word("mask")) {
    TESSERA_TRY(punct('='));
    TESSERA_ASSIGN(ValueId m, value_or(DType::Bool, ops));
    op.operands.push_back(m);
    if (!store && accept_word("other")) {
      TESSERA_TRY(punct('='));
      TESSERA_ASSIGN(ValueId o, value_or(k_.type(ptr).dtype, ops));
      op.operands.push_back(o);
    }
  }
  op.contiguous_hint = accept_word("contiguous");
  for (Caching c : {Caching::NoAllocate, Caching::EvictLast, Caching::EvictFirst})
    if (!store && op.caching == Caching::Normal && accept_word(name(c))) op.caching = c;
  return {};
}

Status Parser::cooperation(Op& op, std::vector<OpId>& ops) {
  Token at = token_;
  TESSERA_ASSIGN(ValueId ptr, value());
  TESSERA_TRY(check_written(at, ptr));
  TESSERA_TRY(element(op, ptr, ops));
  for (const char* key : {"rank", "of"}) {
    TESSERA_TRY(keyword(key));
    TESSERA_TRY(punct('='));
    TESSERA_ASSIGN(ValueId v, value_or(DType::I64, ops));
    op.operands.push_back(v);
  }
  return {};
}

Status Parser::report_index(Op& op, std::vector<OpId>& ops) {
  TESSERA_ASSIGN(ValueId bad, value());
  op.operands = {bad};
  for (int i = 0; i < 2; ++i) {
    TESSERA_TRY(punct(','));
    TESSERA_ASSIGN(ValueId v, value_or(DType::I64, ops));
    op.operands.push_back(v);
  }
  TESSERA_ASSIGN(int64_t site, attribute("site", 0, IndexReport::kSites - 1));
  op.site = static_cast<int>(site);
  return {};
}

Status Parser::exchange(Op& op, std::vector<OpId>& ops) {
  Op partials;
  TESSERA_TRY(value_list(partials, ops));
  TESSERA_TRY(cooperation(op, ops));
  op.operands.insert(op.operands.end(), partials.operands.begin(), partials.operands.end());
  return {};
}

Status Parser::yield(Op& op) {
  while (token_.kind == Token::Kind::Value) {
    // "%a = ..." on the next line is not part of a bare yield, but nothing may follow yield anyway
    TESSERA_ASSIGN(ValueId v, value());
    op.operands.push_back(v);
    if (!accept(',')) break;
  }
  return {};
}

Status Parser::axis(Op& op) {
  TESSERA_ASSIGN(int64_t axis, attribute("axis", 0, kMaxRank));
  op.axis = static_cast<int>(axis);
  return {};
}

Status Parser::operation(Op& op, std::vector<OpId>& ops, int depth) {
  if (token_.kind != Token::Kind::Ident) return error("expected an operation" + found());
  const OpWord* word = op_from_word(token_.text);
  if (!word) return error("'" + std::string(token_.text) + "' is not an operation");
  advance();
  op.kind = word->kind;
  op.scalar = word->scalar;
  op.reduce = word->reduce;
  switch (op.kind) {
  case OpKind::Const:
    literal_ = token_;
    if (token_.kind != Token::Kind::Number && token_.kind != Token::Kind::Ident)
      return error("expected a number" + found());
    advance();
    return {};
  case OpKind::ProgramId:
  case OpKind::NumPrograms: {
    TESSERA_ASSIGN(int64_t axis, integer_in(0, kGridAxes - 1));
    op.axis = static_cast<int>(axis);
    return {};
  }
  case OpKind::Range: {
    TESSERA_ASSIGN(int64_t n, integer_in(1, kMaxTileElements));
    range_ = static_cast<int>(n);
    return {};
  }
  case OpKind::Load: return access(op, ops, false);
  case OpKind::Store:
  case OpKind::Atomic: return access(op, ops, true);
  case OpKind::Scratch: {
    TESSERA_ASSIGN(ValueId n, value_or(DType::I64, ops));
    op.operands = {n};
    return {};
  }
  case OpKind::ReportIndex: return report_index(op, ops);
  case OpKind::Arrive:
  case OpKind::GridBarrier: return cooperation(op, ops);
  case OpKind::Exchange: return exchange(op, ops);
  case OpKind::Prefetch: {
    TESSERA_ASSIGN(ValueId ptr, value());
    return element(op, ptr, ops);
  }
  case OpKind::Yield: return yield(op);
  case OpKind::For: return for_loop(op, ops, depth);
  case OpKind::If: return if_else(op, depth);
  case OpKind::Broadcast:
  case OpKind::Dot:
  case OpKind::Scalar: return value_list(op, ops);
  case OpKind::ExpandDims: TESSERA_TRY(value_list(op, ops)); return axis(op);
  case OpKind::Reduce:
  case OpKind::Scan:
    TESSERA_TRY(value_list(op, ops));
    TESSERA_TRY(axis(op));
    op.select_last = accept_word("last");
    return {};
  case OpKind::Count_: break;
  }
  TESSERA_UNREACHABLE("tile op kind");
}

} // namespace tessera::tile
