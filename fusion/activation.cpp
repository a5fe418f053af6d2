#include "fusion/activation.h"
#include <array>
#include <cmath>

namespace tessera::fusion {

using Activation = FixedEpilogue::Activation;

std::string_view name(Activation activation) {
  switch (activation) {
  case Activation::None: return "none";
  case Activation::Relu: return "relu";
  case Activation::Clip: return "clip";
  case Activation::GeluTanh: return "gelu_tanh";
  case Activation::GeluErf: return "gelu_erf";
  case Activation::Sigmoid: return "sigmoid";
  case Activation::Silu: return "silu";
  case Activation::Tanh: return "tanh";
  }
  return "";
}

std::optional<double> float_constant(const ScalarDag& dag, ScalarId id) {
  const ScalarNode& n = dag[id];
  if (n.op != ScalarOp::Const || !is_float(n.dtype)) return std::nullopt;
  return n.f;
}

namespace {

constexpr double kTanhScale = 0.79788456080286535588; // sqrt(2 / pi)
constexpr double kTanhCube = 0.044715 * kTanhScale;
constexpr double kErfScale = 0.70710678118654752440;
constexpr double kTolerance = 1e-3; // of constants: those of an f16 graph are rounded to 11 bits
constexpr int kMaxDegree = 3;

bool near(double a, double b) { return std::abs(a - b) <= kTolerance * std::abs(b); }

void multiply(const ScalarDag& dag, ScalarId id, ScalarProduct& out) {
  const ScalarNode& n = dag[id];
  if (auto c = float_constant(dag, id)) {
    out.factor *= *c;
  } else if (n.op == ScalarOp::Mul) {
    multiply(dag, n.args[0], out);
    multiply(dag, n.args[1], out);
  } else if (auto d = n.op == ScalarOp::Div ? float_constant(dag, n.args[1]) : std::nullopt; d && *d != 0) {
    out.factor /= *d;
    multiply(dag, n.args[0], out);
  } else {
    out.others.push_back(id);
  }
}

class Activations {
public:
  explicit Activations(const ScalarDag& dag) : dag_(dag) {}

  // The argument that `root` is an activation of.
  [[nodiscard]] std::optional<ActivationMatch> run(ScalarId root) const {
    const ScalarNode& n = at(root);
    if (n.op == ScalarOp::Tanh) return ActivationMatch{Activation::Tanh, n.args[0]};
    if (n.op == ScalarOp::Sigmoid) return ActivationMatch{Activation::Sigmoid, n.args[0]};
    if (n.op == ScalarOp::Max || n.op == ScalarOp::Min) {
      auto [x, bound] = with_constant(n);
      if (x < 0) return std::nullopt;
      const ScalarNode& inner = at(x);
      if (inner.op == (n.op == ScalarOp::Max ? ScalarOp::Min : ScalarOp::Max)) {
        const auto [y, other] = with_constant(inner);
        const double low = n.op == ScalarOp::Max ? bound : other, high = n.op == ScalarOp::Max ? other : bound;
        if (y < 0 || low > high) return std::nullopt;
        return ActivationMatch{Activation::Clip, y, low, high};
      }
      if (n.op == ScalarOp::Min || bound != 0) return std::nullopt;
      return ActivationMatch{Activation::Relu, x};
    }
    const ScalarProduct p = match_product(dag_, root);
    if (p.others.size() != 2) return std::nullopt;
    for (size_t k : {size_t{0}, size_t{1}}) {
      auto g = gate(p.others[k], p.others[1 - k]);
      if (!g) continue;
      double scale = p.factor * g->second;
      if (!near(scale, g->first == Activation::Silu ? 1.0 : 0.5)) continue;
      return ActivationMatch{g->first, p.others[1 - k]};
    }
    return std::nullopt;
  }
  [[nodiscard]] std::pair<ScalarId, double> with_constant(const ScalarNode& n) const {
    for (size_t k : {size_t{0}, size_t{1}})
      if (auto c = constant(n.args[k])) return {n.args[1 - k], *c};
    return {-1, 0};
  }

private:
  // Coefficients of x^0 ... x^kMaxDegree.
  using Polynomial = std::array<double, kMaxDegree + 1>;

  [[nodiscard]] const ScalarNode& at(ScalarId id) const { return dag_[id]; }
  [[nodiscard]] std::optional<double> constant(ScalarId id) const { return float_constant(dag_, id); }

  [[nodiscard]] std::optional<Polynomial> times(const std::optional<Polynomial>& a,
                                                const std::optional<Polynomial>& b) const {
    if (!a || !b) return std::nullopt;
    Polynomial out{};
    for (size_t i = 0; i < a->size(); ++i)
      for (size_t j = 0; j < b->size(); ++j) {
        double c = (*a)[i] * (*b)[j];
        if (c == 0) continue;
        if (i + j > kMaxDegree) return std::nullopt;
        out[i + j] += c;
      }
    return out;
  }
  static std::optional<Polynomial> plus(std::optional<Polynomial> a, const std::optional<Polynomial>& b, double sign) {
    if (!a || !b) return std::nullopt;
    for (size_t i = 0; i < a->size(); ++i) (*a)[i] += sign * (*b)[i];
    return a;
  }
  // id as a polynomial in x.
  [[nodiscard]] std::optional<Polynomial> polynomial(ScalarId id, ScalarId x, int depth = 0) const {
    constexpr int kMaxDepth = 16;
    if (id == x) return Polynomial{0, 1};
    if (auto c = constant(id)) return Polynomial{*c};
    if (depth > kMaxDepth) return std::nullopt;
    const ScalarNode& n = at(id);
    auto arg = [&](size_t k) { return polynomial(n.args[k], x, depth + 1); };
    switch (n.op) {
    case ScalarOp::Neg: return times(arg(0), Polynomial{-1});
    case ScalarOp::Add: return plus(arg(0), arg(1), 1);
    case ScalarOp::Sub: return plus(arg(0), arg(1), -1);
    case ScalarOp::Mul: return times(arg(0), arg(1));
    case ScalarOp::Fma: return plus(times(arg(0), arg(1)), arg(2), 1);
    case ScalarOp::Div: {
      auto d = constant(n.args[1]);
      if (!d || *d == 0) return std::nullopt;
      return times(arg(0), Polynomial{1 / *d});
    }
    case ScalarOp::Pow: {
      auto e = constant(n.args[1]);
      if (!e || *e != std::floor(*e) || *e < 0 || *e > kMaxDegree) return std::nullopt;
      std::optional<Polynomial> out = Polynomial{1}, base = arg(0);
      for (int i = 0; i < static_cast<int>(*e); ++i) out = times(out, base);
      return out;
    }
    default: return std::nullopt;
    }
  }

  // The gate of a gated unit, x * gate: scale * (1 + f(p(x))), or scale * sigmoid(x).
  [[nodiscard]] std::optional<std::pair<Activation, double>> gate(ScalarId id, ScalarId x) const {
    const ScalarNode& n = at(id);
    if (n.op == ScalarOp::Sigmoid && n.args[0] == x) return std::pair{Activation::Silu, 1.0};
    if (n.op != ScalarOp::Add) return std::nullopt;
    for (size_t k : {size_t{0}, size_t{1}}) {
      auto one = constant(n.args[k]);
      const ScalarProduct inner = match_product(dag_, n.args[1 - k]);
      if (!one || inner.others.size() != 1 || !near(inner.factor, *one)) continue;
      const ScalarNode& f = at(inner.others[0]);
      if (f.op != ScalarOp::Tanh && f.op != ScalarOp::Erf) continue;
      auto p = polynomial(f.args[0], x);
      if (!p || (*p)[0] != 0 || (*p)[2] != 0) continue;
      if (f.op == ScalarOp::Tanh && near((*p)[1], kTanhScale) && near((*p)[3], kTanhCube))
        return std::pair{Activation::GeluTanh, *one};
      if (f.op == ScalarOp::Erf && near((*p)[1], kErfScale) && (*p)[3] == 0)
        return std::pair{Activation::GeluErf, *one};
    }
    return std::nullopt;
  }

  const ScalarDag& dag_;
};

} // namespace

ScalarProduct match_product(const ScalarDag& dag, ScalarId root) {
  ScalarProduct out;
  multiply(dag, root, out);
  return out;
}

std::optional<ActivationMatch> match_activation(const ScalarDag& dag, ScalarId root) {
  return Activations(dag).run(root);
}

} // namespace tessera::fusion
