#include "graph/reference/evaluator.h"

namespace tessera {

namespace {

std::string dimension_of(const std::string& input, size_t d) {
  return "dimension " + std::to_string(d) + " of input '" + input + "'";
}

struct Dimension {
  SymExpr expr;
  int64_t value;
  const std::string* input;
  size_t index;
};

// Binds the one unbound symbol of a linear expression, when there is just one. False when it must wait.
Result<bool> solve(const Dimension& d, SymValues& values) {
  std::vector<SymExpr> unbound;
  for (const SymExpr& s : d.expr.symbols())
    if (!values.count(s.symbol_id())) unbound.push_back(s);
  if (unbound.size() != 1) return false;
  auto linear = d.expr.linear_in(unbound[0]);
  if (!linear) return false;
  TESSERA_ASSIGN(int64_t a, linear->first.eval(values));
  TESSERA_ASSIGN(int64_t b, linear->second.eval(values));
  int64_t rest = 0;
  if (__builtin_sub_overflow(d.value, b, &rest)) return Diagnostic(ErrorCode::SizeOverflow, "a size is out of range");
  if (a == 0) return false;
  if (rest % a != 0)
    return Diagnostic(ErrorCode::BadInput, dimension_of(*d.input, d.index) + " is " + std::to_string(d.value) +
                                               ", which cannot be " + d.expr.str());
  values.emplace(unbound[0].symbol_id(), rest / a);
  return true;
}

// Sizes that were taken for equal stand for each other in the graph: it says nothing about inputs where they differ.
Status check_assumed_equal(const Graph& graph, const SymValues& values) {
  for (ValueId id : graph.inputs()) {
    const Value& v = graph.value(id);
    if (!v.declared) continue;
    for (size_t d = 0; d < v.declared->size(); ++d) {
      auto stated = (*v.declared)[d].eval(values), meant = v.type.shape[d].eval(values);
      if (!meant.ok() || (stated.ok() && *stated == *meant)) continue; // a size that a node defines is checked there
      Diagnostic error(ErrorCode::GuardFailed, dimension_of(v.name, d) + " (" + (*v.declared)[d].str() + ") is " +
                                                   (stated.ok() ? std::to_string(*stated) : "unknown") +
                                                   ", but this graph was made for " + v.type.shape[d].str() +
                                                   (meant.ok() ? " = " + std::to_string(*meant) : ""));
      for (const Guard& g : graph.env().guards()) {
        auto holds = g.condition.eval(values);
        if (!holds.ok() || *holds != 0) continue;
        error.location = g.where;
        error.note("it assumes " + g.condition.str() + (g.reason.empty() ? "" : ": " + g.reason));
        break;
      }
      return error;
    }
  }
  return {};
}

} // namespace

Result<SymValues> bind_symbols(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                               const SymValues& known) {
  const ShapeEnv& env = graph.env();
  SymValues values = known;
  std::vector<Dimension> waiting;
  std::vector<std::pair<SymExpr, Dimension>> bound; // for the ranges
  for (ValueId id : graph.inputs()) {
    const Value& v = graph.value(id);
    auto it = inputs.find(v.name);
    if (it == inputs.end())
      return Diagnostic(ErrorCode::MissingInput, "input '" + v.name + "' (" + v.type.str() + ") was not given");
    const Tensor& t = it->second;
    if (t.dtype() != v.type.dtype)
      return Diagnostic(ErrorCode::BadInput, "input '" + v.name + "' must be " + std::string(name(v.type.dtype)) +
                                                 ", not " + std::string(name(t.dtype())));
    if (t.dims().size() != v.type.shape.size())
      return Diagnostic(ErrorCode::BadInput, "input '" + v.name + "' must have rank " + std::to_string(v.type.rank()) +
                                                 " (" + v.type.str() + "), not " + std::to_string(t.dims().size()));
    for (size_t d = 0; d < t.dims().size(); ++d) {
      Dimension dim{graph.declared_shape(id)[d], t.dims()[d], &v.name, d};
      if (!dim.expr.is_symbol()) {
        waiting.push_back(dim);
        continue;
      }
      auto [bound_at, fresh] = values.emplace(dim.expr.symbol_id(), dim.value);
      if (fresh)
        bound.emplace_back(dim.expr, dim);
      else if (bound_at->second != dim.value)
        return Diagnostic(ErrorCode::BadInput, dimension_of(v.name, d) + " is " + std::to_string(dim.value) + ", but " +
                                                   dim.expr.str() + " is " + std::to_string(bound_at->second) +
                                                   " elsewhere");
    }
  }
  // Expressions: each round binds what has become solvable; usually there is one round.
  for (bool progress = true; progress;) {
    progress = false;
    for (const Dimension& d : waiting) {
      TESSERA_ASSIGN(bool solved, solve(d, values));
      progress |= solved;
    }
  }
  for (const Dimension& d : waiting) {
    auto expected = d.expr.eval(values);
    if (!expected.ok())
      return Diagnostic(ErrorCode::BadInput, dimension_of(*d.input, d.index) + ", " + d.expr.str() +
                                                 ", is not determined by the inputs: " + expected.error().message);
    if (*expected != d.value)
      return Diagnostic(ErrorCode::BadInput, dimension_of(*d.input, d.index) + " must be " + std::to_string(*expected) +
                                                 (d.expr.is_const() ? "" : " (" + d.expr.str() + ")") + ", not " +
                                                 std::to_string(d.value));
  }
  for (const auto& [symbol, d] : bound) {
    if (env.fact_class(symbol) == GuardClass::Assumed) continue; // of compiled code, not of the model
    SymRange range = env.range(symbol);
    if (d.value < range.lo || (range.hi < kSymMax && d.value > range.hi))
      return Diagnostic(ErrorCode::BadInput, dimension_of(*d.input, d.index) + " (" + symbol.str() + ") is " +
                                                 std::to_string(d.value) + ", which is not in [" +
                                                 std::to_string(range.lo) + ", " +
                                                 (range.hi < kSymMax ? std::to_string(range.hi) : "?") + "]");
    if (int64_t divisor = env.divisor(symbol); divisor > 1 && d.value % divisor != 0)
      return Diagnostic(ErrorCode::BadInput, dimension_of(*d.input, d.index) + " (" + symbol.str() + ") is " +
                                                 std::to_string(d.value) + ", which is not a multiple of " +
                                                 std::to_string(divisor));
  }
  // Symbols that were found equal to an expression and are not an input's dimension themselves.
  for (const SymExpr& symbol : env.symbols()) {
    if (values.count(symbol.symbol_id())) continue;
    SymExpr replaced = env.simplify(symbol);
    if (replaced == symbol) continue;
    if (auto value = replaced.eval(values); value.ok()) values.emplace(symbol.symbol_id(), *value);
  }
  for (const Guard& g : env.guards()) {
    if (g.cls != GuardClass::Required) continue;
    auto holds = g.condition.eval(values);
    if (holds.ok() && *holds == 0)
      return Diagnostic(ErrorCode::GuardFailed, g.where,
                        "the inputs' sizes contradict " + g.condition.str() +
                            (g.reason.empty() ? "" : ": " + g.reason));
  }
  TESSERA_TRY(check_assumed_equal(graph, values));
  return values;
}

} // namespace tessera
