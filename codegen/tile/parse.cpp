// Recursive-descent reader of the text form (docs/tile-ir.md). Every operation is type-checked as it is read, so that
// an error names its line; the nesting of regions is bounded, so that no text can exhaust the stack.
#include "codegen/tile/rules.h"
#include <charconv>
#include <cmath>
#include <limits>

namespace tessera::tile {
namespace {

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
  Token next() {
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

private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  bool is_exponent_sign() const { // the sign in 1e-05
    return (text_[at_] == '-' || text_[at_] == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
  }
  void take_word() {
    while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '.')) ++at_;
  }
  void skip() {
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
  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
};

// An operand as written: a value, or a literal whose dtype the operation gives.
struct Operand {
  ValueId value = -1;
  std::string_view literal;
  Token token;
};

class Parser {
public:
  Parser(std::string_view text, const std::string& file) : lexer_(text), file_(file) { advance(); }

  Result<Kernel> run() {
    TESSERA_TRY(keyword("tile.kernel"));
    if (token_.kind != Token::Kind::Symbol || token_.text.empty()) return error("expected '@name'");
    k_.name = token_.text;
    advance();
    TESSERA_TRY(params());
    if (is_ident("config")) TESSERA_TRY(config());
    TESSERA_TRY(block(k_.body, nullptr, 0));
    if (token_.kind != Token::Kind::End) return error("expected the end of the text");
    if (Status ok = verify(k_); !ok.ok())
      return Diagnostic(ErrorCode::ParseError, Location{.file = file_}, ok.error().message);
    return std::move(k_);
  }

private:
  void advance() { token_ = lexer_.next(); }
  Diagnostic error(std::string message) const { return error_at(token_, std::move(message)); }
  Diagnostic error_at(const Token& t, std::string message) const {
    Location where;
    where.file = file_;
    where.line = t.line;
    where.column = t.column;
    return {ErrorCode::ParseError, where, std::move(message)};
  }
  bool is_punct(char c) const { return token_.kind == Token::Kind::Punct && token_.text[0] == c; }
  bool is_ident(std::string_view word) const { return token_.kind == Token::Kind::Ident && token_.text == word; }
  bool accept(char c) {
    if (!is_punct(c)) return false;
    advance();
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!is_ident(word)) return false;
    advance();
    return true;
  }
  Status punct(char c) {
    if (!accept(c)) return error(std::string("expected '") + c + "'" + found());
    return {};
  }
  Status keyword(std::string_view word) {
    if (!accept_word(word)) return error("expected '" + std::string(word) + "'" + found());
    return {};
  }
  std::string found() const {
    if (token_.kind == Token::Kind::End) return ", found the end of the text";
    const char* sigil = token_.kind == Token::Kind::Value ? "%" : token_.kind == Token::Kind::Symbol ? "@" : "";
    return std::string(", found '") + sigil + std::string(token_.text) + "'";
  }
  Result<int64_t> integer() {
    int64_t v = 0;
    auto [end, ec] = std::from_chars(token_.text.data(), token_.text.data() + token_.text.size(), v);
    if (token_.kind != Token::Kind::Number || ec != std::errc() || end != token_.text.data() + token_.text.size())
      return error("expected an integer" + found());
    advance();
    return v;
  }
  Result<int64_t> integer_in(int64_t lo, int64_t hi) {
    Token t = token_;
    TESSERA_ASSIGN(int64_t v, integer());
    if (v < lo || v > hi)
      return error_at(t, "expected an integer from " + std::to_string(lo) + " to " + std::to_string(hi));
    return v;
  }
  Result<int64_t> attribute(std::string_view word, int64_t lo, int64_t hi) {
    TESSERA_TRY(keyword(word));
    TESSERA_TRY(punct('='));
    return integer_in(lo, hi);
  }

  Result<DType> dtype() {
    std::optional<DType> d;
    if (token_.kind == Token::Kind::Ident) d = dtype_from_name(token_.text);
    if (!d) return error("expected an element type" + found());
    advance();
    return *d;
  }
  Result<Type> type() {
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

  Status define(const Token& t, ValueId v) {
    if (t.kind != Token::Kind::Value || t.text.empty()) return error_at(t, "expected '%name'");
    if (!names_.emplace(std::string(t.text), v).second)
      return error_at(t, "'%" + std::string(t.text) + "' is defined twice");
    scope_.emplace_back(t.text);
    return {};
  }
  Status params() {
    TESSERA_TRY(punct('('));
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
      if (accept_word("passing")) p.caching = Caching::Passing;
      if (accept_word("lasting")) p.caching = Caching::Lasting;
      if (is_ident("align")) {
        TESSERA_ASSIGN(p.alignment, attribute("align", 1, 4096));
      }
      if (is_ident("multiple")) {
        TESSERA_ASSIGN(p.multiple_of, attribute("multiple", 1, int64_t{1} << 40));
      }
      k_.params.push_back(std::move(p));
      if (!accept(',')) break;
    }
    return punct(')');
  }
  Status config() {
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

  // "{ operations }". Closes the region with an empty yield when none is written.
  Status block(std::vector<OpId>& ops, const std::vector<std::pair<Token, ValueId>>* arguments, int depth) {
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

  Result<Operand> operand() {
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
  Result<ValueId> value() {
    TESSERA_ASSIGN(Operand o, operand());
    if (o.value < 0) return error_at(o.token, "expected '%name'");
    return o.value;
  }
  // Makes a literal a constant of that dtype before the operation that uses it.
  Result<ValueId> materialize(const Operand& o, DType dtype, std::vector<OpId>& ops) {
    if (o.value >= 0) return o.value;
    Op c;
    c.kind = OpKind::Const;
    TESSERA_TRY(literal(o.token, dtype, c));
    c.results = {k_.new_value({Type::Kind::Data, dtype, {}})};
    ValueId v = c.results[0];
    ops.push_back(k_.new_op(std::move(c)));
    return v;
  }
  Result<ValueId> value_or(DType dtype, std::vector<OpId>& ops) {
    TESSERA_ASSIGN(Operand o, operand());
    return materialize(o, dtype, ops);
  }

  Status literal(const Token& t, DType dtype, Op& op) {
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
      if (dtype != DType::F64) { // what the type can hold
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

  Status statement(std::vector<OpId>& ops, int depth) {
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
    return {};
  }

  Status value_list(Op& op, std::vector<OpId>& ops) {
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

  Status check_written(const Token& at, ValueId pointer) const {
    for (const Param& param : k_.params)
      if (param.value == pointer && !param.written && param.type.kind == Type::Kind::Pointer)
        return error_at(at, "parameter '" + param.name + "' is stored to but not marked written");
    return {};
  }
  Status access(Op& op, std::vector<OpId>& ops, bool store) {
    Token at = token_;
    TESSERA_ASSIGN(ValueId ptr, value());
    if (store) TESSERA_TRY(check_written(at, ptr));
    TESSERA_TRY(punct('['));
    TESSERA_ASSIGN(ValueId offset, value_or(DType::I64, ops));
    TESSERA_TRY(punct(']'));
    op.operands = {ptr, offset};
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
    return {};
  }

  // "%counters[offset] member=%m of=%n"
  Status team(Op& op, std::vector<OpId>& ops) {
    Token at = token_;
    TESSERA_ASSIGN(ValueId ptr, value());
    TESSERA_TRY(check_written(at, ptr));
    TESSERA_TRY(punct('['));
    TESSERA_ASSIGN(ValueId offset, value_or(DType::I64, ops));
    TESSERA_TRY(punct(']'));
    op.operands = {ptr, offset};
    for (const char* key : {"member", "of"}) {
      TESSERA_TRY(keyword(key));
      TESSERA_TRY(punct('='));
      TESSERA_ASSIGN(ValueId v, value_or(DType::I64, ops));
      op.operands.push_back(v);
    }
    return {};
  }

  Status operation(Op& op, std::vector<OpId>& ops, int depth) {
    if (token_.kind != Token::Kind::Ident) return error("expected an operation" + found());
    Token at = token_;
    std::string_view word = token_.text;
    advance();
    if (word == "const") {
      op.kind = OpKind::Const;
      literal_ = token_;
      if (token_.kind != Token::Kind::Number && token_.kind != Token::Kind::Ident)
        return error("expected a number" + found());
      advance();
      return {};
    }
    if (word == "program_id") {
      op.kind = OpKind::ProgramId;
      TESSERA_ASSIGN(int64_t axis, integer_in(0, 2));
      op.axis = static_cast<int>(axis);
      return {};
    }
    if (word == "range") {
      op.kind = OpKind::Range;
      TESSERA_ASSIGN(int64_t n, integer_in(1, kMaxTileElements));
      range_ = static_cast<int>(n);
      return {};
    }
    if (word == "load" || word == "store" || word == "atomic_add") {
      op.kind = word == "load" ? OpKind::Load : word == "store" ? OpKind::Store : OpKind::AtomicAdd;
      return access(op, ops, word != "load");
    }
    if (word == "scratch") {
      op.kind = OpKind::Scratch;
      TESSERA_ASSIGN(ValueId n, value_or(DType::I64, ops));
      op.operands = {n};
      return {};
    }
    if (word == "report_index") {
      op.kind = OpKind::ReportIndex;
      TESSERA_ASSIGN(ValueId v, value());
      op.operands = {v};
      TESSERA_ASSIGN(int64_t site, attribute("site", 0, 1 << 20));
      op.site = static_cast<int>(site);
      return {};
    }
    if (word == "arrive" || word == "meet") {
      op.kind = word == "arrive" ? OpKind::Arrive : OpKind::Meet;
      return team(op, ops);
    }
    if (word == "prefetch") {
      op.kind = OpKind::Prefetch;
      TESSERA_ASSIGN(ValueId ptr, value());
      TESSERA_TRY(punct('['));
      TESSERA_ASSIGN(ValueId offset, value_or(DType::I64, ops));
      TESSERA_TRY(punct(']'));
      op.operands = {ptr, offset};
      return {};
    }
    if (word == "yield") {
      op.kind = OpKind::Yield;
      while (token_.kind == Token::Kind::Value) {
        // "%a = ..." on the next line is not part of a bare yield, but nothing may follow yield anyway
        TESSERA_ASSIGN(ValueId v, value());
        op.operands.push_back(v);
        if (!accept(',')) break;
      }
      return {};
    }
    if (word == "for") return for_loop(op, ops, depth);
    if (word == "if") return if_else(op, depth);
    if (word == "expand_dims" || word == "broadcast" || word == "dot") {
      op.kind = word == "dot" ? OpKind::Dot : word == "broadcast" ? OpKind::Broadcast : OpKind::ExpandDims;
      TESSERA_TRY(value_list(op, ops));
      if (op.kind != OpKind::ExpandDims) return {};
      TESSERA_ASSIGN(int64_t axis, attribute("axis", 0, kMaxRank));
      op.axis = static_cast<int>(axis);
      return {};
    }
    if (word.starts_with("reduce.") || word.starts_with("scan.")) {
      op.kind = word[0] == 'r' ? OpKind::Reduce : OpKind::Scan;
      auto kind = reduce_kind_from_name(word.substr(word.find('.') + 1));
      if (!kind) return error_at(at, "'" + std::string(word) + "' is not an operation");
      op.reduce = *kind;
      TESSERA_TRY(value_list(op, ops));
      TESSERA_ASSIGN(int64_t axis, attribute("axis", 0, kMaxRank));
      op.axis = static_cast<int>(axis);
      op.select_last = accept_word("last");
      return {};
    }
    auto scalar = scalar_op_from_name(word);
    if (!scalar || info(*scalar).arity <= 0) return error_at(at, "'" + std::string(word) + "' is not an operation");
    op.kind = OpKind::Scalar;
    op.scalar = *scalar;
    return value_list(op, ops);
  }

  Status for_loop(Op& op, std::vector<OpId>& ops, int depth) {
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

  Status if_else(Op& op, int depth) {
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

  Lexer lexer_;
  std::string file_;
  Token token_;
  Kernel k_;
  std::map<std::string, ValueId, std::less<>> names_;
  std::vector<std::string> scope_; // names in order of definition, for leaving a region
  Token literal_;                  // of the const being read: its dtype comes last
  int range_ = 0;
};

} // namespace

Result<Kernel> parse(std::string_view text, const std::string& file) { return Parser(text, file).run(); }

} // namespace tessera::tile
