#include "base/check.h"
#include "base/hash.h"
#include "graph/scalar/scalar.h"
#include <bit>
#include <charconv>

namespace tessera {

namespace {

uint64_t hash_of(const ScalarNode& n) {
  uint64_t h = hash_combine(static_cast<uint64_t>(n.op), static_cast<uint64_t>(n.dtype));
  for (ScalarId a : n.args) h = hash_combine(h, static_cast<uint64_t>(a));
  if (n.op == ScalarOp::CheckBounds) return h;
  h = hash_combine(h, static_cast<uint64_t>(static_cast<uint32_t>(n.operand)));
  h = hash_combine(h, (n.masked ? 1u : 0u) | (n.select_last ? 2u : 0u) | static_cast<uint64_t>(n.reduce) << 2);
  h = hash_combine(h, std::bit_cast<uint64_t>(n.f));
  h = hash_combine(h, static_cast<uint64_t>(n.i));
  return n.op == ScalarOp::Index ? hash_combine(h, n.sym.hash()) : h;
}

// Literals by their bits: 0.0 is not -0.0, and NaN is itself. Checks by what they check: where an index comes from is for
// errors only.
bool same(const ScalarNode& a, const ScalarNode& b) {
  if (a.op == ScalarOp::CheckBounds) return b.op == a.op && a.args == b.args;
  return a.op == b.op && a.dtype == b.dtype && a.args == b.args && a.operand == b.operand && a.masked == b.masked &&
         a.select_last == b.select_last && a.reduce == b.reduce &&
         std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) && a.i == b.i &&
         (a.op != ScalarOp::Index || a.sym == b.sym);
}

bool is_leaf(ScalarOp op) { return op == ScalarOp::Const || op == ScalarOp::Index || op == ScalarOp::Load; }

// Index arithmetic that SymExpr can express exactly; nullopt where it cannot (truncating division of unknown sign).
std::optional<SymExpr> fold_symbolic(ScalarOp op, DType argument, std::span<const SymExpr> a) {
  bool boolean = argument == DType::Bool;
  switch (op) {
  case ScalarOp::Eq: return sym_eq(a[0], a[1]);
  case ScalarOp::Ne: return sym_ne(a[0], a[1]);
  case ScalarOp::Lt: return sym_lt(a[0], a[1]);
  case ScalarOp::Le: return sym_le(a[0], a[1]);
  case ScalarOp::Gt: return sym_lt(a[1], a[0]);
  case ScalarOp::Ge: return sym_le(a[1], a[0]);
  default: break;
  }
  if (boolean) {
    switch (op) {
    case ScalarOp::Not: return sym_not(a[0]);
    case ScalarOp::And:
    case ScalarOp::Min: return sym_and(a[0], a[1]);
    case ScalarOp::Or:
    case ScalarOp::Max: return sym_or(a[0], a[1]);
    case ScalarOp::Xor: return sym_ne(a[0], a[1]);
    default: return std::nullopt;
    }
  }
  switch (op) {
  case ScalarOp::Neg: return -a[0];
  case ScalarOp::Abs: return sym_max(a[0], -a[0]);
  case ScalarOp::Floor:
  case ScalarOp::Ceil:
  case ScalarOp::Round:
  case ScalarOp::Trunc: return a[0];
  case ScalarOp::Add: return a[0] + a[1];
  case ScalarOp::Sub: return a[0] - a[1];
  case ScalarOp::Mul: return a[0] * a[1];
  case ScalarOp::Fma: return a[0] * a[1] + a[2];
  case ScalarOp::Mod:
    if (a[1].is_const(0)) return SymExpr(0);
    return mod(a[0], a[1]);
  case ScalarOp::Min: return sym_min(a[0], a[1]);
  case ScalarOp::Max: return sym_max(a[0], a[1]);
  default: return std::nullopt;
  }
}

} // namespace

ScalarId ScalarDag::constant_f(DType dtype, double value) {
  ScalarNode n;
  n.dtype = dtype;
  ScalarValue v{value, 0};
  n.f = eval_scalar(ScalarOp::Cast, dtype, DType::F64, std::span(&v, 1)).f;
  return add(std::move(n));
}

ScalarId ScalarDag::constant_i(DType dtype, int64_t value) {
  ScalarNode n;
  n.dtype = dtype;
  ScalarValue v{0, value};
  v = eval_scalar(ScalarOp::Cast, dtype, DType::I64, std::span(&v, 1));
  n.f = v.f;
  n.i = v.i;
  return add(std::move(n));
}

ScalarId ScalarDag::index(const SymExpr& expr) {
  if (expr.is_const()) return constant_i(DType::I64, expr.const_value());
  ScalarNode n;
  n.op = ScalarOp::Index;
  n.dtype = DType::I64;
  n.sym = expr;
  return add(std::move(n));
}

ScalarId ScalarDag::condition(const SymExpr& expr) {
  if (expr.is_const()) return constant_i(DType::Bool, expr.const_value());
  ScalarNode n;
  n.op = ScalarOp::Index;
  n.dtype = DType::Bool;
  n.sym = expr;
  return add(std::move(n));
}

ScalarId ScalarDag::load(int operand, DType dtype, std::vector<ScalarId> index, ScalarId predicate) {
  ScalarNode n;
  n.op = ScalarOp::Load;
  n.dtype = dtype;
  n.operand = operand;
  n.args = std::move(index);
  n.masked = predicate >= 0;
  if (n.masked) n.args.push_back(predicate);
  return add(std::move(n));
}

ScalarId ScalarDag::check_bounds(ScalarId i, ScalarId extent) {
  ScalarNode n;
  n.op = ScalarOp::CheckBounds;
  n.dtype = DType::I64;
  n.sym = -1;
  n.args = {i, extent};
  return add(std::move(n));
}

ScalarId ScalarDag::reduce(ReduceKind kind, ScalarId value, bool select_last) {
  ScalarNode n;
  n.op = ScalarOp::Reduce;
  n.reduce = kind;
  n.select_last = select_last;
  bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
  n.dtype = arg ? DType::I64 : (*this)[value].dtype;
  n.args = {value};
  return add(std::move(n));
}

ScalarId ScalarDag::cast(ScalarId value, DType dtype) {
  if ((*this)[value].dtype == dtype) return value;
  ScalarNode n;
  n.op = ScalarOp::Cast;
  n.dtype = dtype;
  n.args = {value};
  return add(std::move(n));
}

ScalarId ScalarDag::bitcast(ScalarId value, DType dtype) {
  if ((*this)[value].dtype == dtype) return value;
  ScalarNode n;
  n.op = ScalarOp::Bitcast;
  n.dtype = dtype;
  n.args = {value};
  return add(std::move(n));
}

ScalarId ScalarDag::op(ScalarOp op, ScalarId a) {
  ScalarNode n;
  n.op = op;
  n.dtype = info(op).yields_bool ? DType::Bool : (*this)[a].dtype;
  n.args = {a};
  return add(std::move(n));
}

ScalarId ScalarDag::op(ScalarOp op, ScalarId a, ScalarId b) {
  ScalarNode n;
  n.op = op;
  n.dtype = info(op).yields_bool ? DType::Bool : (*this)[a].dtype;
  n.args = {a, b};
  return add(std::move(n));
}

ScalarId ScalarDag::op(ScalarOp op, ScalarId a, ScalarId b, ScalarId c) {
  ScalarNode n;
  n.op = op;
  n.dtype = (*this)[op == ScalarOp::Select ? b : a].dtype;
  n.args = {a, b, c};
  return add(std::move(n));
}

ScalarId ScalarDag::add(ScalarNode n) {
  for (ScalarId a : n.args) TESSERA_CHECK(a >= 0 && a < size(), "scalar node with an argument that is not in the DAG");
  const ScalarOpInfo& facts = info(n.op);
  TESSERA_CHECK(facts.arity < 0 || facts.arity == static_cast<int>(n.args.size()),
                std::string(facts.name) + " with " + std::to_string(n.args.size()) + " arguments");
  if (n.op == ScalarOp::Load && n.masked) {
    const ScalarNode& predicate = (*this)[n.args.back()];
    if (predicate.op == ScalarOp::Const) {
      if (predicate.i == 0) return is_float(n.dtype) ? constant_f(n.dtype, 0) : constant_i(n.dtype, 0);
      n.args.pop_back();
      n.masked = false;
    }
  } else if (n.op == ScalarOp::CheckBounds) {
    const ScalarNode &i = (*this)[n.args[0]], &extent = (*this)[n.args[1]];
    if (i.op == ScalarOp::Const && extent.op == ScalarOp::Const && i.i >= 0 && i.i < extent.i) return n.args[0];
  } else if (n.op == ScalarOp::Select) {
    const ScalarNode& c = (*this)[n.args[0]];
    if (c.op == ScalarOp::Const) return c.i != 0 ? n.args[1] : n.args[2];
    if (n.args[1] == n.args[2]) return n.args[1];
    auto a = as_sym(n.args[1]), b = as_sym(n.args[2]);
    if (c.op == ScalarOp::Index && a && b && (n.dtype == DType::I64 || n.dtype == DType::Bool)) {
      SymExpr chosen = sym_select(c.sym, *a, *b);
      return n.dtype == DType::I64 ? index(chosen) : condition(chosen);
    }
  } else if (!is_leaf(n.op) && n.op != ScalarOp::Reduce) {
    bool constant = true, symbolic = true;
    DType argument = (*this)[n.args[0]].dtype;
    for (ScalarId a : n.args) {
      const ScalarNode& arg = (*this)[a];
      constant &= arg.op == ScalarOp::Const && arg.dtype == argument;
      symbolic &= (arg.op == ScalarOp::Const || arg.op == ScalarOp::Index) && arg.dtype == argument;
    }
    symbolic &=
        (argument == DType::I64 || argument == DType::Bool) && (n.dtype == DType::I64 || n.dtype == DType::Bool);
    if (constant) {
      std::vector<ScalarValue> values;
      for (ScalarId a : n.args) values.push_back({(*this)[a].f, (*this)[a].i});
      ScalarValue v = eval_scalar(n.op, n.dtype, argument, values);
      ScalarNode folded;
      folded.dtype = n.dtype;
      folded.f = v.f;
      folded.i = v.i;
      n = std::move(folded);
    } else if (symbolic) {
      std::vector<SymExpr> values;
      for (ScalarId a : n.args) values.push_back(*as_sym(a));
      std::optional<SymExpr> folded;
      if (n.op == ScalarOp::Cast)
        folded = n.dtype == DType::Bool ? sym_ne(values[0], 0) : values[0];
      else
        folded = fold_symbolic(n.op, argument, values);
      if (folded) return n.dtype == DType::I64 ? index(*folded) : condition(*folded);
    }
  }
  uint64_t h = hash_of(n);
  for (auto [it, end] = by_hash_.equal_range(h); it != end; ++it)
    if (same((*this)[it->second], n)) {
      ScalarNode& there = nodes_[static_cast<size_t>(it->second)];
      // An error names the first operator that checks the index.
      if (n.op == ScalarOp::CheckBounds && n.i > 0 && (there.i == 0 || n.i < there.i)) there = std::move(n);
      return it->second;
    }
  nodes_.push_back(std::move(n));
  by_hash_.emplace(h, size() - 1);
  return size() - 1;
}

std::optional<SymExpr> ScalarDag::as_sym(ScalarId id) const {
  const ScalarNode& n = (*this)[id];
  if (n.op == ScalarOp::Index) return n.sym;
  if (n.op == ScalarOp::Const && (n.dtype == DType::I64 || n.dtype == DType::Bool)) return SymExpr(n.i);
  return std::nullopt;
}

namespace {

// Marks, by id, the nodes that `root` needs; args precede users, so one sweep down suffices.
std::vector<bool> needed(const ScalarDag& dag, ScalarId root) {
  std::vector<bool> marks(static_cast<size_t>(root) + 1, false);
  marks[static_cast<size_t>(root)] = true;
  for (ScalarId id = root; id >= 0; --id)
    if (marks[static_cast<size_t>(id)])
      for (ScalarId a : dag[id].args) marks[static_cast<size_t>(a)] = true;
  return marks;
}

std::string literal(const ScalarNode& n) {
  if (!is_float(n.dtype)) return n.dtype == DType::Bool ? (n.i ? "true" : "false") : std::to_string(n.i);
  char buffer[40];
  auto end = n.dtype == DType::F64 ? std::to_chars(buffer, buffer + sizeof buffer, n.f).ptr
                                   : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(n.f)).ptr;
  return {buffer, end};
}

} // namespace

ScalarId
ScalarDag::import(const ScalarDag& other, ScalarId root,
                  const std::function<ScalarId(ScalarDag&, const ScalarNode&, std::span<const ScalarId>)>& leaf,
                  std::unordered_map<ScalarId, ScalarId>& done) {
  // Marks stop at nodes that are done already.
  std::vector<bool> marks(static_cast<size_t>(root) + 1, false);
  marks[static_cast<size_t>(root)] = true;
  ScalarId lowest = root;
  for (ScalarId id = root; id >= lowest; --id) {
    if (!marks[static_cast<size_t>(id)] || done.count(id)) continue;
    for (ScalarId a : other[id].args) {
      marks[static_cast<size_t>(a)] = true;
      lowest = std::min(lowest, a);
    }
  }
  std::vector<ScalarId> args;
  for (ScalarId id = lowest; id <= root; ++id) {
    if (!marks[static_cast<size_t>(id)] || done.count(id)) continue;
    args.clear();
    for (ScalarId a : other[id].args) args.push_back(done.at(a));
    ScalarId made = leaf ? leaf(*this, other[id], args) : -1;
    if (made < 0) {
      ScalarNode copy = other[id];
      copy.args = args;
      made = add(std::move(copy));
    }
    done.emplace(id, made);
  }
  return done.at(root);
}

std::string ScalarDag::str(ScalarId root) const {
  auto marks = needed(*this, root);
  std::vector<int> number(marks.size(), -1);
  std::string out;
  int next = 0;
  auto ref = [&](ScalarId id) {
    const ScalarNode& n = (*this)[id];
    if (n.op == ScalarOp::Const) return literal(n);
    if (n.op == ScalarOp::Index) return n.sym.str();
    return "%" + std::to_string(number[static_cast<size_t>(id)]);
  };
  for (ScalarId id = 0; id <= root; ++id) {
    const ScalarNode& n = (*this)[id];
    bool inlined = n.op == ScalarOp::Const || n.op == ScalarOp::Index;
    if (!marks[static_cast<size_t>(id)] || (inlined && id != root)) continue;
    number[static_cast<size_t>(id)] = next;
    out += "%" + std::to_string(next++) + " = ";
    if (inlined) {
      out += ref(id);
    } else if (n.op == ScalarOp::Load) {
      out += "load " + std::to_string(n.operand) + "[";
      size_t dims = n.args.size() - (n.masked ? 1 : 0);
      for (size_t i = 0; i < dims; ++i) out += (i ? ", " : "") + ref(n.args[i]);
      out += "]";
      if (n.masked) out += " if " + ref(n.args.back());
    } else {
      out += info(n.op).name;
      if (n.op == ScalarOp::Reduce) out += "." + std::string(name(n.reduce)) + (n.select_last ? ".last" : "");
      out += "(";
      for (size_t i = 0; i < n.args.size(); ++i) out += (i ? ", " : "") + ref(n.args[i]);
      out += ")";
    }
    out += " : " + std::string(name(n.dtype)) + "\n";
  }
  return out;
}

} // namespace tessera
