#include "fusion/library_epilogue.h"
#include <algorithm>
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

namespace {

constexpr double kTanhScale = 0.79788456080286535588; // sqrt(2 / pi)
constexpr double kTanhCube = 0.044715 * kTanhScale;
constexpr double kErfScale = 0.70710678118654752440;
constexpr double kTolerance = 1e-3; // of constants: those of an f16 graph are rounded to 11 bits
constexpr int kMaxDegree = 3;

bool near(double a, double b) { return std::abs(a - b) <= kTolerance * std::abs(b); }

class Matcher {
public:
  Matcher(const LoopNest& nest, ValueId raw) : nest_(nest), dag_(nest.dag), raw_(raw) {}

  std::optional<EpilogueMatch> run(ScalarId root) {
    EpilogueMatch out;
    if (auto x = activation(root, out)) {
      if (linear(*x, out)) return out;
      out = {};
    }
    why.clear();
    if (linear(root, out)) return out;
    return std::nullopt;
  }
  std::string why; // of the last failure

private:
  // Coefficients of x^0 ... x^kMaxDegree.
  using Polynomial = std::array<double, kMaxDegree + 1>;

  [[nodiscard]] const ScalarNode& at(ScalarId id) const { return dag_[id]; }
  [[nodiscard]] std::optional<double> constant(ScalarId id) const {
    const ScalarNode& n = at(id);
    if (n.op != ScalarOp::Const || !is_float(n.dtype)) return std::nullopt;
    return n.f;
  }
  [[nodiscard]] bool is_raw(ScalarId id) const {
    return at(id).op == ScalarOp::Load && nest_.loads[static_cast<size_t>(at(id).operand)] == raw_;
  }

  // id as factor * the product of what is not constant.
  struct Product {
    double factor = 1;
    std::vector<ScalarId> others;
  };
  void product(ScalarId id, Product& out) const {
    const ScalarNode& n = at(id);
    if (auto c = constant(id)) {
      out.factor *= *c;
    } else if (n.op == ScalarOp::Mul) {
      product(n.args[0], out);
      product(n.args[1], out);
    } else if (auto d = n.op == ScalarOp::Div ? constant(n.args[1]) : std::nullopt; d && *d != 0) {
      out.factor /= *d;
      product(n.args[0], out);
    } else {
      out.others.push_back(id);
    }
  }

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
      Product inner;
      product(n.args[1 - k], inner);
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

  // What `root` is an activation of.
  std::optional<ScalarId> activation(ScalarId root, EpilogueMatch& out) const {
    const ScalarNode& n = at(root);
    if (n.op == ScalarOp::Tanh || n.op == ScalarOp::Sigmoid) {
      out.activation = n.op == ScalarOp::Tanh ? Activation::Tanh : Activation::Sigmoid;
      return n.args[0];
    }
    if (n.op == ScalarOp::Max || n.op == ScalarOp::Min) {
      auto [x, bound] = with_constant(n);
      if (x < 0) return std::nullopt;
      const ScalarNode& inner = at(x);
      if (inner.op == (n.op == ScalarOp::Max ? ScalarOp::Min : ScalarOp::Max)) {
        if (auto [y, other] = with_constant(inner); y >= 0) {
          out.activation = Activation::Clip;
          out.clip_low = n.op == ScalarOp::Max ? bound : other;
          out.clip_high = n.op == ScalarOp::Max ? other : bound;
          if (out.clip_low <= out.clip_high) return y;
        }
        return std::nullopt;
      }
      if (n.op == ScalarOp::Min || bound != 0) return std::nullopt;
      out.activation = Activation::Relu;
      return x;
    }
    Product p;
    product(root, p);
    if (p.others.size() != 2) return std::nullopt;
    for (size_t k : {size_t{0}, size_t{1}}) {
      auto g = gate(p.others[k], p.others[1 - k]);
      if (!g) continue;
      double scale = p.factor * g->second;
      if (!near(scale, g->first == Activation::Silu ? 1.0 : 0.5)) continue;
      out.activation = g->first;
      return p.others[1 - k];
    }
    return std::nullopt;
  }
  [[nodiscard]] std::pair<ScalarId, double> with_constant(const ScalarNode& n) const {
    for (size_t k : {size_t{0}, size_t{1}})
      if (auto c = constant(n.args[k])) return {n.args[1 - k], *c};
    return {-1, 0};
  }

  bool linear(ScalarId root, EpilogueMatch& out) {
    seen_raw_ = false;
    if (!terms(root, 1, out)) return false;
    if (!seen_raw_) why = "the result is not an addend of what follows";
    return seen_raw_;
  }
  // Adds `scale` * id to the sum.
  bool terms(ScalarId id, double scale, EpilogueMatch& out) {
    const ScalarNode& n = at(id);
    if (n.op == ScalarOp::Add) return terms(n.args[0], scale, out) && terms(n.args[1], scale, out);
    if (n.op == ScalarOp::Fma) {
      for (size_t k : {size_t{0}, size_t{1}})
        if (auto c = constant(n.args[k])) return terms(n.args[1 - k], scale * *c, out) && terms(n.args[2], scale, out);
    }
    if (is_raw(id)) {
      if (seen_raw_) return no("the result is used more than once");
      seen_raw_ = true;
      out.alpha = scale;
      return true;
    }
    if (n.op == ScalarOp::Load) {
      if (n.masked) return no("an addend that is read in part");
      if (scale != 1) return no("an addend that is scaled");
      out.addends.push_back(id);
      return true;
    }
    if (n.op == ScalarOp::Mul || n.op == ScalarOp::Div) {
      Product p;
      product(id, p);
      if (p.others.size() == 1 && p.others[0] != id) return terms(p.others[0], scale * p.factor, out);
      return no(p.others.size() > 1 ? "a product with another tensor" : "a constant is added");
    }
    if (n.op == ScalarOp::Const) return no("a constant is added");
    return no("it takes no " + std::string(info(n.op).name));
  }
  bool no(std::string reason) {
    if (why.empty()) why = std::move(reason);
    return false;
  }

  const LoopNest& nest_;
  const ScalarDag& dag_;
  ValueId raw_;
  bool seen_raw_ = false;
};

} // namespace

std::optional<EpilogueMatch> match_epilogue(const LoopNest& nest, ValueId raw, std::string* why_not) {
  TESSERA_CHECK(!nest.stores.empty(), "an epilogue stores something");
  Matcher matcher(nest, raw);
  auto out = matcher.run(nest.stores[0].scalar);
  if (!out && why_not) *why_not = matcher.why;
  return out;
}

} // namespace tessera::fusion
