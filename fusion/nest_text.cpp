// Text form of nests.
//   nest "Sub_14" outer(i0: b, i1: s) row(i2: 768) {
//     %0 = load z[i0, i1, i2] : f32
//     %1 = load m[i0, i1, 0] if %7 : f32
//     %2 = sub %0, %1 : f32
//     %3 = reduce.sum %2 : f32
//     store d[i0, i1, i2] = %2
//   }
// Values are named as in the graph; unnamed ones by number, "#12". Names that are not plain words are quoted. Index
// expressions stand where they are used; an index that is data is a node. Axes are named by position, whatever symbols
// they are.
#include "base/text.h"
#include "fusion/loop_nest.h"
#include "fusion/rewrite.h"
#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera {

namespace {

using namespace fusion;

bool plain_word(std::string_view s) {
  if (s.empty() || (std::isdigit(static_cast<unsigned char>(s[0])) != 0)) return false;
  return std::all_of(s.begin(), s.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; });
}

std::string value_name(const Graph& graph, ValueId v) {
  const std::string& name = graph.value(v).name;
  if (name.empty()) return "#" + std::to_string(v.index);
  return plain_word(name) ? name : quote(name);
}

std::string number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr; // the shortest that reads back the same
  return {buffer, end};
}

class Printer {
public:
  Printer(const Graph& graph, const LoopNest& nest) : graph_(graph), nest_(nest) {
    for (size_t i = 0; i < nest.axes.size(); ++i)
      names_.emplace(nest.axes[i].var.symbol_id(), SymExpr::symbol("i" + std::to_string(i)));
  }

  std::string run() {
    std::string out = "nest " + (plain_word(nest_.name) ? nest_.name : quote(nest_.name)) + axes(AxisRole::Outer) +
                      axes(AxisRole::Row) + " {\n";
    auto need = reachable(nest_.dag, store_roots(nest_));
    std::vector<bool> shown(need.size());
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) // an index that something computes with is shown
      if (need[static_cast<size_t>(id)] && !inline_args(nest_.dag[id]))
        for (ScalarId a : nest_.dag[id].args) shown[static_cast<size_t>(a)] = true;
    for (const auto& store : nest_.stores) shown[static_cast<size_t>(store.scalar)] = true;
    for (ScalarId id = 0; id < nest_.dag.size(); ++id)
      if (need[static_cast<size_t>(id)] && nest_.dag[id].op == ScalarOp::Load && nest_.dag[id].masked)
        shown[static_cast<size_t>(nest_.dag[id].args.back())] = true;
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      if (!need[static_cast<size_t>(id)]) continue;
      bool pure = nest_.dag.as_sym(id).has_value();
      if (pure && !shown[static_cast<size_t>(id)]) continue;
      number_[id] = static_cast<int>(number_.size());
      out += "  %" + std::to_string(number_[id]) + " = " + node(nest_.dag[id]) + " : " +
             std::string(tessera::name(nest_.dag[id].dtype)) + "\n";
    }
    for (const auto& store : nest_.stores)
      out += std::string("  store") + (store.per_row ? ".row " : " ") + value_name(graph_, store.value) +
             index(store.index) + " = %" + std::to_string(number_[store.scalar]) + "\n";
    return out + "}\n";
  }

private:
  static bool inline_args(const ScalarNode& node) { return node.op == ScalarOp::Load; }
  std::string sym(const SymExpr& e) { return e.substitute(names_).str(); }
  std::string axes(AxisRole role) {
    std::string out;
    for (const auto& axis : nest_.axes)
      if (axis.role == role) out += (out.empty() ? "" : ", ") + sym(axis.var) + ": " + axis.extent.str();
    if (out.empty() && role == AxisRole::Row) return "";
    return (role == AxisRole::Row ? " row(" : " outer(") + out + ")";
  }
  std::string index(std::span<const ScalarId> ids) {
    std::string out;
    for (ScalarId id : ids) {
      auto e = nest_.dag.as_sym(id);
      out += (out.empty() ? "" : ", ") + (e ? sym(*e) : "%" + std::to_string(number_[id]));
    }
    return "[" + out + "]";
  }
  std::string node(const ScalarNode& n) {
    switch (n.op) {
    case ScalarOp::Const: return "const " + (is_float(n.dtype) ? number(n.f) : std::to_string(n.i));
    case ScalarOp::Index: return "index " + sym(n.sym);
    case ScalarOp::Load: {
      std::span<const ScalarId> at(n.args.data(), n.args.size() - (n.masked ? 1 : 0));
      return "load " + value_name(graph_, nest_.loads[static_cast<size_t>(n.operand)]) + index(at) +
             (n.masked ? " if %" + std::to_string(number_[n.args.back()]) : "");
    }
    default: break;
    }
    std::string out(info(n.op).name);
    if (n.op == ScalarOp::Reduce) out += "." + std::string(tessera::name(n.reduce)) + (n.select_last ? ".last" : "");
    for (size_t k = 0; k < n.args.size(); ++k) out += (k ? ", %" : " %") + std::to_string(number_[n.args[k]]);
    if (n.op == ScalarOp::CheckBounds && !n.sym.is_const(-1)) out += " at " + sym(n.sym);
    return out;
  }

  const Graph& graph_;
  const LoopNest& nest_;
  Substitution names_;
  std::map<ScalarId, int> number_;
};

// ---- parsing

class Parser {
public:
  Parser(Graph& graph, std::string_view text) : graph_(graph), text_(text) {
    for (int32_t v = 0; v < graph.value_count(); ++v)
      if (const auto& name = graph.value({v}).name; !name.empty()) by_name_.emplace(name, ValueId{v});
  }

  Result<LoopNest> run() {
    TESSERA_TRY(expect("nest"));
    TESSERA_ASSIGN(nest_.name, word());
    TESSERA_TRY(expect("outer"));
    TESSERA_TRY(axes(AxisRole::Outer));
    if (accept("row")) TESSERA_TRY(axes(AxisRole::Row));
    TESSERA_TRY(expect("{"));
    while (!accept("}")) {
      if (peek() == '%')
        TESSERA_TRY(line());
      else
        TESSERA_TRY(store());
    }
    TESSERA_TRY(verify(graph_, nest_));
    return std::move(nest_);
  }

private:
  Diagnostic error(const std::string& what) const {
    Location where;
    where.line =
        1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(pos_), '\n'));
    auto line = text_.substr(0, pos_).rfind('\n');
    where.column = static_cast<int>(pos_ - (line == std::string_view::npos ? 0 : line + 1)) + 1;
    return {ErrorCode::ParseError, where, what};
  }
  void skip() {
    while (pos_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[pos_])) != 0)
        ++pos_;
      else if (text_.substr(pos_, 2) == "//")
        pos_ = std::min(text_.find('\n', pos_), text_.size());
      else
        break;
    }
  }
  char peek() {
    skip();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(std::string_view token) {
    skip();
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  Status expect(std::string_view token) {
    if (accept(token)) return {};
    return error("expected '" + std::string(token) + "'");
  }
  Result<std::string> word() {
    skip();
    std::string out;
    if (accept("\"")) {
      while (pos_ < text_.size() && text_[pos_] != '"') {
        if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
        out += text_[pos_++];
      }
      TESSERA_TRY(expect("\""));
      return out;
    }
    while (pos_ < text_.size() && plain_word("a" + std::string(1, text_[pos_]))) out += text_[pos_++];
    if (out.empty()) return error("expected a name");
    return out;
  }
  Result<int64_t> integer() {
    skip();
    int64_t v = 0;
    auto [end, code] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), v);
    if (code != std::errc()) return error("expected an integer");
    pos_ = static_cast<size_t>(end - text_.data());
    return v;
  }
  Result<ValueId> value() {
    if (accept("#")) {
      TESSERA_ASSIGN(int64_t v, integer());
      if (v < 0 || v >= graph_.value_count()) return error("no value of that number");
      return ValueId{static_cast<int32_t>(v)};
    }
    TESSERA_ASSIGN(std::string name, word());
    auto it = by_name_.find(name);
    if (it == by_name_.end()) return error("no value named '" + name + "' in the graph");
    return it->second;
  }
  // An expression up to a comma or closing bracket that is not inside of it.
  Result<SymExpr> sym(std::string_view stops) {
    skip();
    size_t begin = pos_;
    int depth = 0;
    for (; pos_ < text_.size(); ++pos_) {
      char c = text_[pos_];
      if (depth == 0 && stops.find(c) != std::string_view::npos) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
    }
    auto found = parse_sym(text_.substr(begin, pos_ - begin), [&](std::string_view name) -> Result<SymExpr> {
      if (auto it = axes_.find(std::string(name)); it != axes_.end()) return it->second;
      if (auto s = graph_.env().find(name)) return *s;
      return Diagnostic(ErrorCode::ParseError, "no symbol named '" + std::string(name) + "'");
    });
    if (!found) {
      pos_ = begin;
      return error(found.error().message);
    }
    return found;
  }
  Status axes(AxisRole role) {
    TESSERA_TRY(expect("("));
    while (!accept(")")) {
      TESSERA_ASSIGN(std::string name, word());
      TESSERA_TRY(expect(":"));
      TESSERA_ASSIGN(SymExpr extent, sym(",)"));
      Axis axis{SymExpr::symbol(name), extent, role};
      if (!axes_.emplace(name, axis.var).second) return error("axis '" + name + "' is there twice");
      graph_.env().set_axis(axis.var, extent);
      nest_.axes.push_back(axis);
      if (!accept(",") && peek() != ')') return error("expected ',' or ')'");
    }
    return {};
  }
  Result<ScalarId> ref() {
    TESSERA_TRY(expect("%"));
    TESSERA_ASSIGN(int64_t n, integer());
    auto it = nodes_.find(n);
    if (it == nodes_.end()) return error("%" + std::to_string(n) + " is not defined yet");
    return it->second;
  }
  Result<std::vector<ScalarId>> index() {
    std::vector<ScalarId> out;
    TESSERA_TRY(expect("["));
    while (!accept("]")) {
      if (peek() == '%') {
        TESSERA_ASSIGN(ScalarId id, ref());
        out.push_back(id);
      } else {
        TESSERA_ASSIGN(SymExpr e, sym(",]"));
        out.push_back(nest_.dag.index(e));
      }
      if (!accept(",") && peek() != ']') return error("expected ',' or ']'");
    }
    return out;
  }
  // The error in the dtypes of a node, "" when there is none: folding and evaluation rely on them.
  [[nodiscard]] std::string type_error(const ScalarNode& node) const {
    auto kind = info(node.dtype).kind;
    if (kind == DTypeKind::Held || kind == DTypeKind::Complex)
      return "no arithmetic on " + std::string(name(node.dtype));
    auto arg = [&](size_t k) { return nest_.dag[node.args[k]].dtype; };
    std::string op(info(node.op).name);
    std::string differ = "operands and result of '" + op + "' differ in dtype";
    switch (node.op) {
    case ScalarOp::Const:
    case ScalarOp::Cast: return "";
    case ScalarOp::Bitcast:
      return info(arg(0)).bits == info(node.dtype).bits && info(node.dtype).bits >= 32
                 ? ""
                 : "'bitcast' takes and yields 32 or 64 bits";
    case ScalarOp::Index: return node.dtype == DType::I64 || node.dtype == DType::Bool ? "" : "an index is i64 or bool";
    case ScalarOp::Load:
      for (size_t k = 0; k < node.args.size(); ++k) {
        bool predicate = node.masked && k + 1 == node.args.size();
        if (arg(k) != (predicate ? DType::Bool : DType::I64)) return "indices are i64, predicates bool";
      }
      return "";
    case ScalarOp::Reduce: {
      bool position = node.reduce == ReduceKind::ArgMax || node.reduce == ReduceKind::ArgMin;
      bool logical = node.reduce == ReduceKind::Any || node.reduce == ReduceKind::All;
      if (logical && arg(0) != DType::Bool) return differ;
      return node.dtype == (position ? DType::I64 : arg(0)) ? "" : differ;
    }
    case ScalarOp::Select:
      if (arg(0) != DType::Bool) return "the condition of 'select' is not bool";
      return arg(1) == node.dtype && arg(2) == node.dtype ? "" : differ;
    default: break;
    }
    if (node.op == ScalarOp::CheckBounds && node.dtype != DType::I64) return "an index must be i64";
    for (size_t k = 0; k < node.args.size(); ++k)
      if (arg(k) != (info(node.op).yields_bool ? arg(0) : node.dtype)) return differ;
    return info(node.op).yields_bool && node.dtype != DType::Bool ? "'" + op + "' yields bool" : "";
  }

  Status line() {
    TESSERA_TRY(expect("%"));
    TESSERA_ASSIGN(int64_t n, integer());
    TESSERA_TRY(expect("="));
    TESSERA_ASSIGN(std::string op, word());
    ScalarNode node;
    SymExpr index_expr;
    std::vector<ScalarId> at;
    std::string literal;
    if (op == "const") {
      skip();
      while (pos_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[pos_]))) literal += text_[pos_++];
      node.op = ScalarOp::Const;
    } else if (op == "index") {
      node.op = ScalarOp::Index;
      TESSERA_ASSIGN(index_expr, sym(":"));
    } else if (op == "load") {
      node.op = ScalarOp::Load;
      TESSERA_ASSIGN(ValueId v, value());
      TESSERA_ASSIGN(node.args, index());
      node.operand = load_slot(nest_, v);
      if (accept("if")) {
        TESSERA_ASSIGN(ScalarId p, ref());
        node.args.push_back(p);
        node.masked = true;
      }
    } else {
      std::string base = op.substr(0, op.find('.'));
      auto known = scalar_op_from_name(base);
      if (!known) return error("no scalar operator '" + op + "'");
      node.op = *known;
      if (node.op == ScalarOp::Reduce) {
        std::string kind = op.size() > base.size() ? op.substr(base.size() + 1) : "";
        if (kind.ends_with(".last")) {
          node.select_last = true;
          kind.resize(kind.size() - 5);
        }
        auto reduce = reduce_kind_from_name(kind);
        if (!reduce) return error("no reduction '" + kind + "'");
        node.reduce = *reduce;
      }
      do {
        TESSERA_ASSIGN(ScalarId a, ref());
        node.args.push_back(a);
      } while (accept(","));
      if (static_cast<int>(node.args.size()) != info(node.op).arity)
        return error("'" + base + "' takes " + std::to_string(info(node.op).arity) + " operands");
      if (node.op == ScalarOp::CheckBounds) node.sym = -1;
      if (node.op == ScalarOp::CheckBounds && accept("at")) {
        TESSERA_ASSIGN(node.sym, sym(":"));
      }
    }
    TESSERA_TRY(expect(":"));
    TESSERA_ASSIGN(std::string type, word());
    auto dtype = dtype_from_name(type);
    if (!dtype) return error("no element type '" + type + "'");
    node.dtype = *dtype;
    if (node.op == ScalarOp::Const) {
      bool fine = true;
      if (is_float(*dtype)) {
        char* end = nullptr;
        node.f = std::strtod(literal.c_str(), &end);
        fine = !literal.empty() && *end == '\0';
      } else {
        auto [end, code] = std::from_chars(literal.data(), literal.data() + literal.size(), node.i);
        fine = code == std::errc() && end == literal.data() + literal.size();
      }
      if (!fine) return error("'" + literal + "' is no literal of " + type);
    }
    if (auto wrong = type_error(node); !wrong.empty()) return error(wrong);
    ScalarId id = node.op != ScalarOp::Index ? nest_.dag.add(std::move(node))
                  : *dtype == DType::Bool    ? nest_.dag.condition(index_expr)
                                             : nest_.dag.index(index_expr);
    if (!nodes_.emplace(n, id).second) return error("%" + std::to_string(n) + " is defined twice");
    return {};
  }
  Status store() {
    TESSERA_TRY(expect("store"));
    Store s;
    s.per_row = accept(".row");
    TESSERA_ASSIGN(s.value, value());
    TESSERA_ASSIGN(s.index, index());
    TESSERA_TRY(expect("="));
    TESSERA_ASSIGN(s.scalar, ref());
    nest_.stores.push_back(std::move(s));
    return {};
  }

  Graph& graph_;
  std::string_view text_;
  size_t pos_ = 0;
  LoopNest nest_;
  std::map<std::string, ValueId> by_name_;
  std::map<std::string, SymExpr> axes_;
  std::map<int64_t, ScalarId> nodes_;
};

} // namespace

std::string print(const Graph& graph, const LoopNest& nest) { return Printer(graph, nest).run(); }
Result<LoopNest> parse_nest(Graph& graph, std::string_view text) { return Parser(graph, text).run(); }

} // namespace tessera
