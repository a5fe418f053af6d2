#include "fusion/idioms.h"
#include "fusion/activation.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

using Op = ScalarOp;

class Finder {
public:
  explicit Finder(const LoopNest& nest) : nest_(nest), dag_(nest.dag) {
    readers_.resize(static_cast<size_t>(dag_.size()));
    covered_.resize(readers_.size());
    for (ScalarId id = 0; id < dag_.size(); ++id)
      for (ScalarId arg : at(id).args) readers_[static_cast<size_t>(arg)].push_back(id);
  }

  // The whole before its parts: the tanh inside a gelu has no name of its own.
  std::vector<std::string_view> run() {
    std::vector<std::string_view> out;
    for (ScalarId id = dag_.size() - 1; id >= 0; --id)
      if (const auto found = covered_[static_cast<size_t>(id)] ? std::string_view() : idiom(id);
          !found.empty() && std::find(out.begin(), out.end(), found) == out.end())
        out.push_back(found);
    std::reverse(out.begin(), out.end());
    return out;
  }

private:
  [[nodiscard]] const ScalarNode& at(ScalarId id) const { return dag_[id]; }
  // Behind conversions between float types.
  [[nodiscard]] ScalarId bare(ScalarId id) const {
    while (at(id).op == Op::Cast && is_float(at(id).dtype) && is_float(at(at(id).args[0]).dtype)) id = at(id).args[0];
    return id;
  }
  [[nodiscard]] bool same(ScalarId a, ScalarId b) const { return bare(a) == bare(b); }
  [[nodiscard]] bool is(ScalarId id, Op op) const { return at(id).op == op; }
  [[nodiscard]] bool is_exponential(ScalarId id) const { return is(id, Op::Exp) || is(id, Op::Exp2); }
  // The value that is summed over the rows, where `id` is such a sum.
  [[nodiscard]] std::optional<ScalarId> summed(ScalarId id) const {
    id = bare(id);
    if (is(id, Op::Reduce) && at(id).reduce == ReduceKind::Sum) return bare(at(id).args[0]);
    return std::nullopt;
  }
  // The same of a sum times or plus constants and sizes: a mean, or a mean and epsilon.
  struct Sum {
    ScalarId of = -1;
    bool scaled = false;
  };
  [[nodiscard]] std::optional<Sum> sum_within(ScalarId id, int depth = 0) const {
    constexpr int kMaxDepth = 6;
    id = bare(id);
    if (const auto s = summed(id)) return Sum{*s};
    const ScalarNode& n = at(id);
    const bool scales = n.op == Op::Mul || n.op == Op::Div || n.op == Op::Fma;
    if ((!scales && n.op != Op::Add && n.op != Op::Max) || depth > kMaxDepth) return std::nullopt;
    std::optional<Sum> out;
    for (ScalarId arg : n.args) {
      if (is_fixed(arg)) continue;
      if (out) return std::nullopt;
      out = sum_within(arg, depth + 1);
      if (!out) return std::nullopt;
    }
    if (out) out->scaled = out->scaled || scales;
    return out;
  }
  [[nodiscard]] bool is_fixed(ScalarId id) const { // a constant, or a number of the call's sizes
    id = bare(id);
    if (is(id, Op::Const)) return true;
    if (is(id, Op::Cast)) return is_fixed(at(id).args[0]);
    return is(id, Op::Index);
  }
  // x, where `id` is x * x.
  [[nodiscard]] std::optional<ScalarId> squared(ScalarId id) const {
    id = bare(id);
    const ScalarNode& n = at(id);
    if (n.op == Op::Mul && same(n.args[0], n.args[1])) return bare(n.args[0]);
    if (n.op == Op::Pow && float_constant(dag_, n.args[1]) == 2.0) return bare(n.args[0]);
    return std::nullopt;
  }
  // Both sides of a quotient: a / b, or a * (1 / b).
  [[nodiscard]] std::optional<std::pair<ScalarId, ScalarId>> quotient(const ScalarNode& n) const {
    if (n.op == Op::Div) return std::pair{bare(n.args[0]), bare(n.args[1])};
    if (n.op != Op::Mul) return std::nullopt;
    for (size_t k : {size_t{0}, size_t{1}})
      if (const ScalarId r = bare(n.args[k]); is(r, Op::Reciprocal))
        return std::pair{bare(n.args[1 - k]), bare(at(r).args[0])};
    return std::nullopt;
  }
  // x and v of x / sqrt(v).
  [[nodiscard]] std::optional<std::pair<ScalarId, ScalarId>> over_root(const ScalarNode& n) const {
    if (const auto q = quotient(n); q && is(q->second, Op::Sqrt))
      return std::pair{q->first, bare(at(q->second).args[0])};
    if (n.op != Op::Mul) return std::nullopt;
    for (size_t k : {size_t{0}, size_t{1}})
      if (const ScalarId r = bare(n.args[k]); is(r, Op::Rsqrt))
        return std::pair{bare(n.args[1 - k]), bare(at(r).args[0])};
    return std::nullopt;
  }

  std::string_view idiom(ScalarId id) {
    const ScalarNode& n = at(id);
    if (n.op == Op::Reduce && is_product(id)) return "matmul";
    if (n.op == Op::Cast && is_quantization(n)) return "quantize";
    if (const auto q = quotient(n)) {
      if (const auto s = summed(q->second); s && is_exponential(q->first) && *s == q->first) return "softmax";
    }
    if (n.op == Op::Log)
      if (const auto s = summed(n.args[0]); s && is_exponential(*s)) return "log_sum_exp";
    if (n.op == Op::Sub && is(bare(n.args[1]), Op::Log))
      if (const auto s = summed(at(bare(n.args[1])).args[0]);
          s && is_exponential(*s) && same(at(*s).args[0], n.args[0])) {
        covered_[static_cast<size_t>(bare(n.args[1]))] = true;
        return "log_softmax";
      }
    if (const auto r = over_root(n)) {
      if (const auto norm = normalized(id, r->first, r->second); !norm.empty()) return norm;
    }
    if (const auto a = match_activation(dag_, id); a && !is(a->input, Op::Const)) {
      using Activation = FixedEpilogue::Activation;
      cover(id, a->input);
      if (a->activation == Activation::Clip && is_rounded(a->input)) return "quantize";
      const bool gelu = a->activation == Activation::GeluErf || a->activation == Activation::GeluTanh;
      return gelu ? "gelu" : name(a->activation);
    }
    return {};
  }
  // x / sqrt(v), v of the squares that are summed.
  [[nodiscard]] std::string_view normalized(ScalarId id, ScalarId x, ScalarId v) const {
    const auto sum = sum_within(v);
    const auto y = sum ? squared(sum->of) : std::nullopt;
    if (!y) return {};
    if (is(*y, Op::Sub) && sum_within(at(*y).args[1]) && (x == *y || is(x, Op::Sub)))
      return scaled_by_row(id) ? "group_norm" : "layer_norm";
    if (x != *y) return {};
    return sum->scaled ? "rms_norm" : "l2_norm";
  }
  // A factor behind it is read at a place that the outer axes determine: a channel's, not an element's of the row.
  [[nodiscard]] bool scaled_by_row(ScalarId id) const {
    for (ScalarId reader : readers_[static_cast<size_t>(id)]) {
      if (is(reader, Op::Cast)) return scaled_by_row(reader);
      if (!is(reader, Op::Mul)) continue;
      for (ScalarId arg : at(reader).args) {
        const ScalarNode& load = at(bare(arg));
        if (load.op != Op::Load) continue;
        bool outer = false, row = false;
        for (ScalarId i : load.args) {
          const auto index = dag_.as_sym(i);
          for (const Axis& axis : nest_.axes)
            if (index && index->contains(axis.var)) (axis.role == AxisRole::Row ? row : outer) = true;
        }
        if (outer && !row) return true;
      }
    }
    return false;
  }
  // The sum of products of two values, each of which stays the same along an outer axis of the other.
  [[nodiscard]] bool is_product(ScalarId id) const {
    ScalarId of = at(id).args[0];
    while (is(of, Op::Cast)) of = at(of).args[0];
    if (at(id).reduce != ReduceKind::Sum || !is(of, Op::Mul)) return false;
    std::vector<bool> a = outer_axes(at(of).args[0]), b = outer_axes(at(of).args[1]);
    bool only_a = false, only_b = false;
    for (size_t i = 0; i < a.size(); ++i) only_a = only_a || (a[i] && !b[i]), only_b = only_b || (b[i] && !a[i]);
    return only_a && only_b;
  }
  // On which outer axes the loads of a value depend.
  [[nodiscard]] std::vector<bool> outer_axes(ScalarId root) const {
    std::vector<bool> out(nest_.axes.size()), seen(readers_.size());
    std::vector<ScalarId> next{root};
    while (!next.empty()) {
      const ScalarId id = next.back();
      next.pop_back();
      if (seen[static_cast<size_t>(id)]) continue;
      seen[static_cast<size_t>(id)] = true;
      if (const auto index = dag_.as_sym(id); index && is(id, Op::Index))
        for (size_t i = 0; i < out.size(); ++i)
          out[i] = out[i] || (nest_.axes[i].role == AxisRole::Outer && index->contains(nest_.axes[i].var));
      for (ScalarId arg : at(id).args) next.push_back(arg);
    }
    return out;
  }
  // To 8 bits or fewer, of what was rounded and perhaps kept in a range.
  [[nodiscard]] bool is_quantization(const ScalarNode& n) const {
    return !is_float(n.dtype) && n.dtype != DType::Bool && info(n.dtype).bits <= 8 && is_rounded(n.args[0]);
  }
  [[nodiscard]] bool is_rounded(ScalarId of) const {
    for (int depth = 0; depth < 8; ++depth) {
      const ScalarNode& m = at(of);
      if (m.op == Op::Round) return true;
      const bool bounds = m.op == Op::Min || m.op == Op::Max || m.op == Op::Add;
      if (m.op != Op::Cast && !bounds) return false;
      of = bounds && is_fixed(m.args[0]) ? m.args[1] : m.args[0];
    }
    return false;
  }
  // Marks the nodes between `id` and its input as part of what has been found.
  void cover(ScalarId id, ScalarId input) {
    for (ScalarId arg : at(id).args) {
      if (arg == input || covered_[static_cast<size_t>(arg)]) continue;
      covered_[static_cast<size_t>(arg)] = true;
      cover(arg, input);
    }
  }

  const LoopNest& nest_;
  const ScalarDag& dag_;
  std::vector<std::vector<ScalarId>> readers_;
  std::vector<bool> covered_;
};

} // namespace

std::vector<std::string_view> idioms(const LoopNest& nest) { return Finder(nest).run(); }

bool is_activation(std::string_view idiom) {
  return idiom == "relu" || idiom == "clip" || idiom == "sigmoid" || idiom == "tanh";
}

std::string title(const LoopNest& nest) {
  std::vector<std::string_view> words = idioms(nest);
  const auto add = [&](std::string_view word) {
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  };
  const ScalarDag& dag = nest.dag;
  bool computes = false, gathers = false;
  if (words.empty())
    for (ScalarId id = 0; id < dag.size(); ++id) {
      const ScalarNode& n = dag[id];
      if (n.op == Op::Reduce) add(name(n.reduce));
      computes = computes || (info(n.op).arity > 0 && n.op != Op::Cast);
      gathers = gathers || (n.op == Op::Load && std::any_of(n.args.begin(), n.args.end(),
                                                            [&](ScalarId i) { return !dag.as_sym(i).has_value(); }));
    }
  if (words.empty()) add(gathers ? "gather" : computes ? "map" : "copy");
  std::string out;
  for (std::string_view word : words) out += (out.empty() ? "" : "_") + std::string(word);
  return out;
}

} // namespace tessera::fusion
