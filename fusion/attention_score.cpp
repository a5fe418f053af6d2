#include "fusion/attention_score.h"
#include "fusion/rewrite.h"
#include <algorithm>
#include <cmath>

namespace tessera::fusion {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The value that masks choose instead of -inf: exp of it less any score is 0 where a score of the row is above half of
// it.
constexpr double kMasked = -1e4;
constexpr double kLargest = 1e38; // of what is finite in f32

std::nullopt_t refuse(std::string* why_not, std::string why) {
  if (why_not) *why_not = std::move(why);
  return std::nullopt;
}

// Without casts between floating-point types.
ScalarId plain(const ScalarDag& dag, ScalarId id) {
  while (dag[id].op == ScalarOp::Cast && is_float(dag[id].dtype) && is_float(dag[dag[id].args[0]].dtype))
    id = dag[id].args[0];
  return id;
}
std::optional<double> constant(const ScalarDag& dag, ScalarId id) {
  const ScalarNode& n = dag[plain(dag, id)];
  return n.op == ScalarOp::Const && is_float(n.dtype) ? std::optional(n.f) : std::nullopt;
}
bool is(const ScalarDag& dag, ScalarId id, double value) {
  auto c = constant(dag, id);
  return c && *c == value;
}

class SoftmaxMatcher {
public:
  explicit SoftmaxMatcher(const ScalarDag& dag) : dag_(dag) {}

  std::optional<SoftmaxMatch> run(ScalarId root, std::string* why_not) {
    SoftmaxMatch out;
    ScalarId y = without_nan(of(root), out.zero_where_undefined);
    auto quotient = divided(y);
    if (!quotient) return refuse(why_not, "what is stored is no quotient");
    bool sum_guarded = false, max_guarded = false;
    ScalarId e = of(quotient->first), sum = replaced(of(quotient->second), 0, 1, sum_guarded);
    if (!reduces(sum, ReduceKind::Sum, e)) return refuse(why_not, "the divisor is no sum of the dividend");
    if (dag_[e].op != ScalarOp::Exp) return refuse(why_not, "what is summed is no exponential");
    ScalarId difference = of(dag_[e].args[0]);
    if (dag_[difference].op != ScalarOp::Sub)
      return refuse(why_not, "the exponential is not of a difference to the maximum");
    out.score = of(dag_[difference].args[0]);
    ScalarId max = replaced(of(dag_[difference].args[1]), -kInfinity, 0, max_guarded);
    if (!reduces(max, ReduceKind::Max, out.score))
      return refuse(why_not, "the exponential is not of a difference to the maximum");
    out.zero_where_undefined = out.zero_where_undefined || (sum_guarded && max_guarded);
    return out;
  }

private:
  [[nodiscard]] ScalarId of(ScalarId id) const { return plain(dag_, id); }
  [[nodiscard]] bool reduces(ScalarId id, ReduceKind kind, ScalarId value) const {
    return dag_[id].op == ScalarOp::Reduce && dag_[id].reduce == kind && of(dag_[id].args[0]) == value;
  }
  // The value y that select(isnan(y), 0, y) guards.
  ScalarId without_nan(ScalarId id, bool& guarded) const {
    const ScalarNode& n = dag_[id];
    if (n.op != ScalarOp::Select) return id;
    const ScalarNode* condition = &dag_[n.args[0]];
    bool negated = condition->op == ScalarOp::Not;
    if (negated) condition = &dag_[condition->args[0]];
    bool nan = condition->op == ScalarOp::IsNan ||
               (condition->op == ScalarOp::Ne && of(condition->args[0]) == of(condition->args[1]));
    if (!nan) return id;
    ScalarId y = of(condition->args[0]), instead = n.args[negated ? 2 : 1], otherwise = n.args[negated ? 1 : 2];
    if (of(otherwise) != y || !is(dag_, instead, 0)) return id;
    guarded = true;
    return y;
  }
  // The value x that select(x == from, to, x) guards.
  ScalarId replaced(ScalarId id, double from, double to, bool& guarded) const {
    const ScalarNode& n = dag_[id];
    if (n.op != ScalarOp::Select || dag_[n.args[0]].op != ScalarOp::Eq || !is(dag_, n.args[1], to)) return id;
    const ScalarNode& test = dag_[n.args[0]];
    ScalarId x = of(n.args[2]);
    for (size_t k : {size_t{0}, size_t{1}})
      if (of(test.args[k]) == x && is(dag_, test.args[1 - k], from)) {
        guarded = true;
        return x;
      }
    return id;
  }
  [[nodiscard]] std::optional<std::pair<ScalarId, ScalarId>> divided(ScalarId id) const {
    const ScalarNode& n = dag_[id];
    if (n.op == ScalarOp::Div) return std::pair{n.args[0], n.args[1]};
    if (n.op != ScalarOp::Mul) return std::nullopt;
    for (size_t k : {size_t{0}, size_t{1}}) {
      const ScalarNode& factor = dag_[of(n.args[k])];
      if (factor.op == ScalarOp::Reciprocal) return std::pair{n.args[1 - k], factor.args[0]};
      if (factor.op == ScalarOp::Div && is(dag_, factor.args[0], 1)) return std::pair{n.args[1 - k], factor.args[1]};
    }
    return std::nullopt;
  }

  const ScalarDag& dag_;
};

class ScoreReader {
public:
  ScoreReader(const Graph& graph, AxisPool& pool, const AttentionCall& call)
      : graph_(graph), env_(pool.env()), call_(call), dag_(call.score.dag), query_(call.score.axes.rbegin()[1].var),
        key_(call.score.axes.back().var) {}

  std::optional<FixedScore> run(std::string* why_not) {
    FixedScore out;
    if (!terms(call_.root, 1)) return refuse(why_not, why_);
    if (uses_ != 1) return refuse(why_not, "the product of q and k is not one addend of the score");
    out.scale = scale_;
    bool defined =
        std::all_of(addends_.begin(), addends_.end(), [&](ScalarId a) { return bound(a, true).has_value(); });
    std::erase_if(addends_, [&](ScalarId a) { return bound(a, false) && !depends(a, key_); });
    for (auto it = addends_.begin(); it != addends_.end() && !out.causal; ++it)
      if (is_causal(*it)) {
        out.causal = true;
        addends_.erase(it);
        break;
      }
    if (addends_.empty()) return out;
    bool may_be_nan = !defined && !call_.zero_where_undefined;
    if (!may_be_nan) out.bias = in_memory();
    if (out.bias) return out;
    return computed(out, may_be_nan) ? std::optional(std::move(out)) : refuse(why_not, why_);
  }

private:
  bool no(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }
  [[nodiscard]] bool has_sum(ScalarId id) const {
    ScalarId roots[] = {id};
    auto need = reachable(dag_, roots);
    for (ScalarId i = 0; i <= id; ++i)
      if (need[static_cast<size_t>(i)] && dag_[i].op == ScalarOp::Load && dag_[i].operand == 0) return true;
    return false;
  }
  [[nodiscard]] bool depends(ScalarId id, const SymExpr& axis) const {
    ScalarId roots[] = {id};
    auto need = reachable(dag_, roots);
    for (ScalarId i = 0; i <= id; ++i)
      if (need[static_cast<size_t>(i)] && dag_[i].op == ScalarOp::Index && dag_[i].sym.contains(axis)) return true;
    return false;
  }
  ScalarId number(double value) { return dag_.constant_f(DType::F32, value); }
  ScalarId as_f32(ScalarId id) { return dag_[id].dtype == DType::F32 ? id : dag_.cast(id, DType::F32); }

  // Adds `scale` * id to the score.
  bool terms(ScalarId id, double scale) {
    id = plain(dag_, id);
    const ScalarNode n = dag_[id];
    if (!has_sum(id)) {
      addends_.push_back(scale == 1 ? as_f32(id) : dag_.op(ScalarOp::Mul, as_f32(id), number(scale)));
      return true;
    }
    switch (n.op) {
    case ScalarOp::Load: ++uses_, scale_ = scale; return true;
    case ScalarOp::Neg: return terms(n.args[0], -scale);
    case ScalarOp::Add: return terms(n.args[0], scale) && terms(n.args[1], scale);
    case ScalarOp::Sub: return terms(n.args[0], scale) && terms(n.args[1], -scale);
    case ScalarOp::Div:
      if (auto d = constant(dag_, n.args[1]); d && *d != 0) return terms(n.args[0], scale / *d);
      break;
    case ScalarOp::Mul:
      for (size_t k : {size_t{0}, size_t{1}})
        if (auto c = constant(dag_, n.args[k])) return terms(n.args[1 - k], scale * *c);
      break;
    case ScalarOp::Fma:
      for (size_t k : {size_t{0}, size_t{1}})
        if (auto c = constant(dag_, n.args[k])) return terms(n.args[1 - k], scale * *c) && terms(n.args[2], scale);
      break;
    case ScalarOp::Select: return masked(n, scale);
    default: break;
    }
    return no("the score is not linear in the product: " + std::string(info(n.op).name));
  }
  // select(condition, score, -inf) is score + select(condition, 0, -inf).
  bool masked(const ScalarNode& n, double scale) {
    if (has_sum(n.args[0])) return no("the mask depends on the score");
    size_t kept = has_sum(n.args[1]) ? 1 : 2;
    auto hidden = constant(dag_, n.args[3 - kept]);
    if (!hidden || *hidden * scale > kMasked)
      return no("a score is replaced by something else than a large negative number");
    ScalarId zero = number(0), low = number(*hidden * scale);
    ScalarId a = dag_.op(ScalarOp::Select, n.args[0], kept == 1 ? zero : low, kept == 1 ? low : zero);
    if (*hidden != -kInfinity) {
      const ScalarNode& condition = dag_[n.args[0]];
      auto first = condition.op == ScalarOp::Index ? at_first_key(condition.sym) : std::nullopt;
      if (!first || *first != (kept == 1))
        return no("a row of which every key is masked by a finite number would be uniform");
    }
    addends_.push_back(a);
    return terms(n.args[kept], scale);
  }
  // Whether a condition is known to hold, or not to, at key 0 of every row.
  [[nodiscard]] std::optional<bool> at_first_key(const SymExpr& condition) const {
    return env_.prove(env_.simplify(condition.substitute({{key_.symbol_id(), SymExpr(0)}})));
  }

  // The largest magnitude of id where that is known to be finite; at key 0 only, where `first`.
  [[nodiscard]] std::optional<double> bound(ScalarId id, bool first) const {
    const ScalarNode& n = dag_[id];
    auto arg = [&](size_t k) { return bound(n.args[k], first); };
    auto finite = [](double x) { return std::abs(x) <= kLargest ? std::optional(std::abs(x)) : std::nullopt; };
    switch (n.op) {
    case ScalarOp::Const: return is_float(n.dtype) ? finite(n.f) : std::optional(std::abs(static_cast<double>(n.i)));
    case ScalarOp::Index: return kLargest / 1e19; // i64
    case ScalarOp::Load:
      return is_float(dag_[id].dtype) ? std::nullopt : std::optional(n.dtype == DType::Bool ? 1 : 1e19);
    case ScalarOp::Neg: return arg(0);
    case ScalarOp::Cast:
      return is_float(dag_[n.args[0]].dtype) ? arg(0) : std::optional(dag_[n.args[0]].dtype == DType::Bool ? 1 : 1e19);
    case ScalarOp::Add:
    case ScalarOp::Sub:
    case ScalarOp::Mul: {
      auto a = arg(0), b = arg(1);
      return a && b ? finite(n.op == ScalarOp::Mul ? *a * *b : *a + *b) : std::nullopt;
    }
    case ScalarOp::Select: {
      const ScalarNode& condition = dag_[n.args[0]];
      if (first && condition.op == ScalarOp::Index)
        if (auto known = at_first_key(condition.sym)) return arg(*known ? 1 : 2);
      auto a = arg(1), b = arg(2);
      return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
    }
    default: return std::nullopt;
    }
  }

  // -inf exactly where the key comes after the query.
  [[nodiscard]] bool is_causal(ScalarId id) const {
    const ScalarNode& n = dag_[id];
    if (n.op != ScalarOp::Select || dag_[n.args[0]].op != ScalarOp::Index) return false;
    SymExpr seen = dag_[n.args[0]].sym;
    if (is(dag_, n.args[1], -kInfinity) && is(dag_, n.args[2], 0))
      seen = sym_not(seen);
    else if (!is(dag_, n.args[1], 0) || !is(dag_, n.args[2], -kInfinity))
      return false;
    return env_.simplify(seen) == env_.simplify(sym_le(key_, query_));
  }

  // The one addend, where it is an element of a tensor at linear indices.
  [[nodiscard]] std::optional<OperandView> in_memory() const {
    if (addends_.size() != 1) return std::nullopt;
    const ScalarNode& load = dag_[plain(dag_, addends_[0])];
    if (load.op != ScalarOp::Load || load.masked) return std::nullopt;
    ValueId value = call_.score.loads[static_cast<size_t>(load.operand)];
    DType dtype = graph_.type(value).dtype;
    if (dtype != DType::F32 && dtype != graph_.type(call_.q.value).dtype) return std::nullopt;
    auto strides = contiguous_strides(graph_.type(value).shape);
    SymExpr flat;
    for (size_t d = 0; d < load.args.size(); ++d) {
      auto e = dag_.as_sym(load.args[d]);
      if (!e) return std::nullopt;
      flat += *e * strides[d];
    }
    flat = env_.simplify(flat);
    OperandView out{value, {}, {}, {}};
    for (const auto& axis : call_.score.axes) {
      auto linear = flat.linear_in(axis.var);
      if (!linear || env_.prove(sym_le(0, linear->first)) != true) return std::nullopt;
      out.shape.push_back(axis.extent);
      out.strides.push_back(linear->first);
      flat = linear->second;
    }
    for (const auto& axis : call_.score.axes) {
      bool left = flat.contains(axis.var);
      for (const auto& stride : out.strides) left = left || stride.contains(axis.var);
      if (left) return std::nullopt;
    }
    out.offset = env_.simplify(flat);
    return out;
  }

  // A nest over the axes that the addends depend on.
  bool computed(FixedScore& out, bool may_be_nan) {
    ScalarId total = addends_[0];
    for (size_t i = 1; i < addends_.size(); ++i) total = dag_.op(ScalarOp::Add, total, addends_[i]);
    LoopNest nest;
    nest.name = call_.score.name;
    nest.loads = call_.score.loads;
    nest.sources = call_.score.sources;
    OperandView view;
    SymExpr stride = 1;
    bool all = true;
    std::vector<ScalarId> index;
    for (size_t a = call_.score.axes.size(); a-- > 0;) {
      Axis axis = call_.score.axes[a];
      bool along = !env_.known_equal(axis.extent, 1) && depends(total, axis.var);
      all = all && (along || env_.known_equal(axis.extent, 1));
      view.shape.insert(view.shape.begin(), axis.extent);
      view.strides.insert(view.strides.begin(), along ? stride : SymExpr(0));
      if (!along) continue;
      stride = stride * axis.extent;
      axis.role = may_be_nan && axis.var == key_ ? AxisRole::Row : AxisRole::Outer;
      nest.axes.insert(nest.axes.begin(), axis);
      index.insert(index.begin(), dag_.index(axis.var));
    }
    if (all) return no("a bias as large as the scores would have to be computed first");
    if (may_be_nan) {
      ScalarId most = nest.has_reduction() ? dag_.reduce(ReduceKind::Max, total) : total;
      ScalarId nothing = dag_.op(ScalarOp::Eq, most, number(-kInfinity));
      total = dag_.op(ScalarOp::Select, nothing, number(std::numeric_limits<double>::quiet_NaN()), total);
    }
    nest.dag = dag_;
    nest.stores.push_back({ValueId{}, std::move(index), total, false});
    normalize(nest, env_);
    out.bias = std::move(view);
    out.bias_nest = std::move(nest);
    return true;
  }

  const Graph& graph_;
  const ShapeEnv& env_;
  const AttentionCall& call_;
  ScalarDag dag_;
  SymExpr query_, key_;
  std::vector<ScalarId> addends_;
  int uses_ = 0; // of the sum
  double scale_ = 1;
  std::string why_;
};

} // namespace

std::optional<SoftmaxMatch> match_softmax(const ScalarDag& dag, ScalarId root, std::string* why_not) {
  return SoftmaxMatcher(dag).run(root, why_not);
}

std::optional<FixedScore> fix_score(const Graph& graph, AxisPool& pool, const AttentionCall& call,
                                    std::string* why_not) {
  return ScoreReader(graph, pool, call).run(why_not);
}

} // namespace tessera::fusion
