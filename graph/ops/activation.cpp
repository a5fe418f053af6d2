// Activations: functions of one element written as formulas of primitives, and the softmax family.
#include "graph/ops/build.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// ---- elementwise. `build` works on an operand of at least f32 (constants such as 0.044715 are wrong in f16); the
// result is cast back. `f` is the same in plain numbers.
struct Activation {
  std::string_view name, summary;
  std::vector<std::string_view> aten;
  std::vector<AttrDef> attributes;
  ValueId (*build)(B&, ValueId x);
  double (*f)(double x, const Attributes& a);
  std::vector<Attributes> variants = {{}};
  int since = 1;
};

ValueId expm1(B& b, ValueId x) { return b.op1("expm1", x); }
// log(1 + exp(x)), which neither overflows nor loses small values: max(x, 0) + log1p(exp(-|x|)).
ValueId softplus(B& b, ValueId x) { return add(b, max(b, x, 0.0), b.op1("log1p", exp(b, neg(b, abs(b, x))))); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

ValueId gelu(B& b, ValueId x) {
  if (b.attr().s("approximate", "none") == "tanh") {
    ValueId inner = mul(b, add(b, x, mul(b, mul(b, mul(b, x, x), x), 0.044715)), 0.79788456080286535588);
    return mul(b, mul(b, x, 0.5), add(b, tanh(b, inner), 1.0));
  }
  return mul(b, mul(b, x, 0.5), add(b, erf(b, mul(b, x, 0.70710678118654752440)), 1.0));
}
double gelu(double x, const Attributes& a) {
  if (a.s("approximate", "none") == "tanh")
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}

std::vector<Activation> activations() {
  constexpr double selu_alpha = 1.67326319217681884765625, selu_gamma = 1.05070102214813232421875;
  return {
      {"LeakyRelu",
       "x, or alpha * x below 0",
       {"leaky_relu"},
       {number("alpha", 0.01)},
       [](B& b, ValueId x) { return select(b, lt(b, x, 0.0), mul(b, x, b.attr().f("alpha", 0.01)), x); },
       [](double x, const Attributes& a) { return x < 0 ? a.f("alpha", 0.01) * x : x; },
       {{}, {{"alpha", 0.3}}}},
      {"Elu",
       "x, or alpha * (exp(x) - 1) below 0",
       {"elu"},
       {number("alpha", 1)},
       [](B& b, ValueId x) { return select(b, lt(b, x, 0.0), mul(b, expm1(b, x), b.attr().f("alpha", 1)), x); },
       [](double x, const Attributes& a) { return x < 0 ? a.f("alpha", 1) * std::expm1(x) : x; },
       {{}, {{"alpha", 2.0}}}},
      {"Selu",
       "gamma * x, or gamma * alpha * (exp(x) - 1) at and below 0",
       {"selu"},
       {number("alpha", selu_alpha), number("gamma", selu_gamma)},
       [](B& b, ValueId x) {
         double alpha = b.attr().f("alpha", selu_alpha), gamma = b.attr().f("gamma", selu_gamma);
         return select(b, le(b, x, 0.0), mul(b, expm1(b, x), alpha * gamma), mul(b, x, gamma));
       },
       [](double x, const Attributes& a) {
         return a.f("gamma", selu_gamma) * (x <= 0 ? a.f("alpha", selu_alpha) * std::expm1(x) : x);
       },
       {{}, {{"alpha", 2.0}, {"gamma", 3.0}}}},
      {"Celu",
       "x, or alpha * (exp(x / alpha) - 1) below 0",
       {"celu"},
       {number("alpha", 1)},
       [](B& b, ValueId x) {
         double alpha = b.attr().f("alpha", 1);
         if (alpha == 0) b.fail(ErrorCode::BadAttribute, "alpha of Celu is 0");
         ValueId low = mul(b, expm1(b, div(b, x, alpha)), alpha);
         return add(b, max(b, x, 0.0), min(b, low, 0.0));
       },
       [](double x, const Attributes& a) {
         double k = a.f("alpha", 1);
         return std::max(0.0, x) + std::min(0.0, k * (std::exp(x / k) - 1));
       },
       {{}, {{"alpha", 2.0}}},
       12},
      {"Gelu",
       "x times the normal distribution's share below x, exact or by tanh",
       {"gelu"},
       {{"approximate", AttrKind::String, false, std::string("none")}},
       [](B& b, ValueId x) {
         std::string how = b.attr().s("approximate", "none");
         if (how != "none" && how != "tanh")
           b.fail(ErrorCode::BadAttribute, "approximate '" + how + "' is neither none nor tanh");
         return gelu(b, x);
       },
       gelu,
       {{}, {{"approximate", std::string("tanh")}}},
       20},
      {"HardSigmoid",
       "alpha * x + beta kept within [0, 1]",
       {},
       {number("alpha", 0.2), number("beta", 0.5)},
       [](B& b, ValueId x) {
         ValueId y = add(b, mul(b, x, b.attr().f("alpha", 0.2)), b.attr().f("beta", 0.5));
         return min(b, max(b, y, 0.0), 1.0);
       },
       [](double x, const Attributes& a) { return std::clamp(a.f("alpha", 0.2) * x + a.f("beta", 0.5), 0.0, 1.0); },
       {{}, {{"alpha", 0.5}, {"beta", 0.6}}}},
      {"HardSwish",
       "x * (x / 6 + 0.5 kept within [0, 1])",
       {"hardswish"},
       {},
       [](B& b, ValueId x) { return mul(b, x, min(b, max(b, add(b, mul(b, x, 1.0 / 6), 0.5), 0.0), 1.0)); },
       [](double x, const Attributes&) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); },
       {{}},
       14},
      {"Swish",
       "x * sigmoid(alpha * x)",
       {"silu"},
       {number("alpha", 1)},
       [](B& b, ValueId x) {
         double alpha = b.attr().f("alpha", 1);
         return mul(b, x, sigmoid(b, alpha == 1 ? x : mul(b, x, alpha)));
       },
       [](double x, const Attributes& a) { return x * logistic(a.f("alpha", 1) * x); },
       {{}, {{"alpha", 1.702}}},
       24},
      {"Mish",
       "x * tanh(log(1 + exp(x)))",
       {"mish"},
       {},
       [](B& b, ValueId x) { return mul(b, x, tanh(b, softplus(b, x))); },
       [](double x, const Attributes&) { return x * std::tanh(softplus(x)); },
       {{}},
       18},
      {"Softplus",
       "log(1 + exp(x))",
       {"softplus"},
       {},
       [](B& b, ValueId x) { return softplus(b, x); },
       [](double x, const Attributes&) { return softplus(x); }},
      {"Softsign",
       "x / (1 + |x|)",
       {},
       {},
       [](B& b, ValueId x) { return div(b, x, add(b, abs(b, x), 1.0)); },
       [](double x, const Attributes&) { return x / (1 + std::fabs(x)); }},
      {"ThresholdedRelu",
       "x above alpha, 0 elsewhere",
       {},
       {number("alpha", 1)},
       [](B& b, ValueId x) { return select(b, gt(b, x, b.attr().f("alpha", 1)), x, 0.0); },
       [](double x, const Attributes& a) { return x > a.f("alpha", 1) ? x : 0; },
       {{}, {{"alpha", 0.5}}},
       10},
  };
}

OpDef record(const Activation& row) {
  OpDef def;
  def.name = row.name;
  def.summary = row.summary;
  def.onnx = {{row.name, "", row.since}};
  def.aten = row.aten;
  def.operands = {{"x", TypeSet::Float}};
  def.attributes = row.attributes;
  def.meaning = Decomposition{[build = row.build](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = b.in(0);
    return b.done(cast(b, build(b, widen(b, x)), b.dtype(x)));
  }};
  def.reference = [f = row.f](ReferenceContext& c) -> Status {
    const Attributes& a = c.node.attributes;
    TESSERA_ASSIGN(Tensor y, zip<double>(
                                 c.operands[0].dtype(), [&](double x) { return f(x, a); }, c.operands[0]));
    c.results = {y};
    return {};
  };
  def.samples = [variants = row.variants] {
    std::vector<Sample> out;
    for (const Attributes& a : variants) {
      auto more = unary_samples(kFloats, {-5, 5}, a, 28);
      out.insert(out.end(), more.begin(), more.end());
    }
    out.push_back(sample({floats({6}, {0, -0.0, 80, -80, 1e-6, -1e-6})}, {}, 28));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({vec({1})}, {}, ErrorCode::TypeMismatch, "a floating-point type", 28),
        wrong({floats({1}, {1})}, {{"no_such", int64_t{1}}}, ErrorCode::BadAttribute, "no_such", 28)};
  };
  return def;
}

// ---- those that take integers or a second tensor
void add_special(OpTable& table) {
  OpDef relu = composite("Relu", "x, or 0 below 0", {{"x", TypeSet::Numeric}}, [](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(max(b, b.in(0), 0.0));
  });
  relu.aten = {"relu"};
  relu.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    return by_kind(x.dtype(), [&](auto kind) -> Status {
      using T = decltype(kind);
      TESSERA_ASSIGN(Tensor y, zip<T>(
                                   x.dtype(), [](T v) { return v < T(0) ? T(0) : v; }, x));
      c.results = {y};
      return {};
    });
  };
  relu.samples = [] {
    auto out = unary_samples({DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I8}, {}, {}, 14);
    out.push_back(sample({floats({4}, {NAN, -INFINITY, INFINITY, -0.5})}, {}, 14));
    return out;
  };
  table.add(std::move(relu));

  OpDef prelu = composite("PRelu", "x, or slope * x below 0; the slope broadcasts to x",
                          {{"x", TypeSet::Numeric}, {"slope", TypeSet::SameAsFirst}}, [](Graph& g, const Node& n, int) {
                            B b(g, n);
                            ValueId x = b.in(0), slope = b.in(1);
                            auto shape = b.env().broadcast(b.shape(x), b.shape(slope), n.location);
                            if (!shape.ok())
                              b.fail(shape.error());
                            else if (shape->size() != b.shape(x).size())
                              b.fail(ErrorCode::ShapeMismatch,
                                     "slope " + b.type(slope).str() + " does not broadcast to " + b.type(x).str());
                            return b.done(select(b, lt(b, x, 0.0), mul(b, x, slope), x));
                          });
  prelu.aten = {"prelu"};
  prelu.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    return by_kind(x.dtype(), [&](auto kind) -> Status {
      using T = decltype(kind);
      auto f = [](T v, T slope) {
        if (!(v < T(0))) return v;
        if constexpr (std::is_same_v<T, int64_t>) // wraps
          return static_cast<T>(static_cast<uint64_t>(v) * static_cast<uint64_t>(slope));
        else
          return static_cast<T>(v * slope);
      };
      TESSERA_ASSIGN(Tensor y, zip<T>(x.dtype(), f, x, c.operands[1]));
      c.results = {y};
      return {};
    });
  };
  prelu.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::I32})
      for (const Dims& slope : {Dims{3, 4}, Dims{4}, Dims{}, Dims{3, 1}})
        out.push_back(sample({random(d, {3, 4}, 1, -3, 3), random(d, slope, 2)}, {}, 16));
    return out;
  };
  prelu.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {4}), random(DType::F32, {3, 4})}, {},
                                          ErrorCode::ShapeMismatch, "does not broadcast to", 16)};
  };
  table.add(std::move(prelu));

  OpDef shrink = composite("Shrink", "x + bias below -lambd, x - bias above lambd, 0 between",
                           {{"x", TypeSet::Numeric}}, [](Graph& g, const Node& n, int) {
                             B b(g, n);
                             ValueId x = b.in(0), wide = is_float(b.dtype(x)) ? widen(b, x) : cast(b, x, DType::F64);
                             double bias = b.attr().f("bias"), lambd = b.attr().f("lambd", 0.5);
                             ValueId y = select(b, lt(b, wide, -lambd), add(b, wide, bias),
                                                select(b, gt(b, wide, lambd), sub(b, wide, bias), 0.0));
                             return b.done(cast(b, y, b.dtype(x)));
                           });
  shrink.attributes = {number("bias", 0), number("lambd", 0.5)};
  shrink.reference = [](ReferenceContext& c) -> Status {
    double bias = c.node.attributes.f("bias"), lambd = c.node.attributes.f("lambd", 0.5);
    auto f = [=](double x) { return x < -lambd ? x + bias : x > lambd ? x - bias : 0.0; };
    TESSERA_ASSIGN(Tensor y, zip<double>(c.operands[0].dtype(), f, c.operands[0]));
    c.results = {y};
    return {};
  };
  shrink.samples = [] {
    auto out = unary_samples({DType::F32, DType::F16}, {}, {{"lambd", 1.5}, {"bias", 1.5}}, 9);
    out.push_back(sample({random(DType::I32, {9}, 3, -4, 4)}, {{"lambd", 1.5}, {"bias", 1.0}}, 9));
    return out;
  };
  table.add(std::move(shrink));

  OpDef swiglu =
      composite("SwiGLU", "a * sigmoid(alpha * a) * b", {{"a", TypeSet::Float}, {"b", TypeSet::SameAsFirst}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  SymShape s = b.shape(b.in(0)), t = b.shape(b.in(1));
                  if (s.size() != t.size())
                    b.fail(ErrorCode::ShapeMismatch, "gate " + b.type(b.in(0)).str() + " and value " +
                                                         b.type(b.in(1)).str() + " differ in shape");
                  for (size_t k = 0; b.ok() && k < s.size(); ++k)
                    b.check(b.env().require_equal(s[k], t[k], "gate and value of SwiGLU have one shape", n.location));
                  double alpha = b.attr().f("alpha", 1);
                  ValueId a = widen(b, b.in(0)), v = widen(b, b.in(1));
                  ValueId gate = mul(b, a, sigmoid(b, alpha == 1 ? a : mul(b, a, alpha)));
                  return b.done(cast(b, mul(b, gate, v), b.dtype(b.in(0))));
                });
  swiglu.attributes = {number("alpha", 1)};
  swiglu.reference = [](ReferenceContext& c) -> Status {
    double alpha = c.node.attributes.f("alpha", 1);
    TESSERA_ASSIGN(Tensor y, zip<double>(
                                 c.operands[0].dtype(), [=](double a, double b) { return a * logistic(alpha * a) * b; },
                                 c.operands[0], c.operands[1]));
    c.results = {y};
    return {};
  };
  swiglu.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 5}, 1), random(DType::F32, {3, 5}, 2)}, {}, 28),
                               sample({random(DType::F16, {7}, 1), random(DType::F16, {7}, 2)}, {{"alpha", 1.5}}, 28)};
  };
  swiglu.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3}), random(DType::F32, {3, 1})}, {},
                                          ErrorCode::ShapeMismatch, "differ in shape", 28)};
  };
  table.add(std::move(swiglu));
}

// ---- softmax family: over one axis since opset 13; before, over all dimensions from `axis` (default 1) on together
enum class SoftmaxKind { Softmax, LogSoftmax, Hardmax };

Result<std::vector<ValueId>> decompose_softmax(Graph& g, const Node& n, SoftmaxKind kind) {
  B b(g, n);
  ValueId x = b.in(0);
  int rank = b.rank(x);
  bool flattens = b.opset() != 0 && b.opset() < 13;
  if (rank == 0) b.fail(ErrorCode::ShapeMismatch, "a scalar has no axis");
  int64_t axis = b.axis(b.attr().i("axis", flattens ? 1 : -1), rank);
  if (!b.ok()) return b.failed();
  Ints axes;
  for (int64_t a = axis; a < (flattens ? rank : axis + 1); ++a) axes.push_back(a);
  ValueId wide = widen(b, x), y;
  SymExpr along = 1;
  for (int64_t a : axes) along *= b.dim(x, a);
  if (kind == SoftmaxKind::Hardmax && !b.decide(sym_lt(0, along), true, "rows of Hardmax have elements")) {
    y = wide;                                // without elements
  } else if (kind == SoftmaxKind::Hardmax) { // one at the first greatest element
    ValueId best = b.op("argmax", {wide}, {{"axes", axes}, {"keepdims", int64_t{1}}});
    SymShape shape = b.shape(x), rows(shape.size(), SymExpr(1));
    ValueId position = b.scalar_i(DType::I64, 0); // along the axes, row-major
    for (int64_t a : axes) {
      SymShape ramp = rows;
      ramp[static_cast<size_t>(a)] = shape[static_cast<size_t>(a)];
      position = add(b, mul(b, position, b.size(shape[static_cast<size_t>(a)], DType::I64)), iota(b, ramp, a));
    }
    y = cast(b, eq(b, position, best), b.dtype(wide));
  } else {
    ValueId centred = sub(b, wide, reduce(b, "reduce_max", wide, axes, true));
    ValueId e = exp(b, centred), sum = ops::sum(b, e, axes, true);
    y = kind == SoftmaxKind::Softmax ? div(b, e, sum) : sub(b, centred, log(b, sum));
  }
  return b.done(cast(b, y, b.dtype(x)));
}

OpDef softmax_record(std::string_view name, std::string_view summary, std::vector<std::string_view> aten,
                     SoftmaxKind kind) {
  OpDef def = composite(name, summary, {{"x", TypeSet::Float}},
                        [kind](Graph& g, const Node& n, int) { return decompose_softmax(g, n, kind); });
  def.aten = std::move(aten);
  def.attributes = {{"axis", AttrKind::Int}}; // its default changed with the opset
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).rank() == 0) return c.error(ErrorCode::ShapeMismatch, "a scalar has no axis");
    TESSERA_TRY(c.axis(c.node.attributes.i("axis", 0), c.type(0).rank()));
    if (c.node.opset != 0 && c.node.opset < 13 && !c.node.attributes.has("axis"))
      TESSERA_TRY(c.axis(1, c.type(0).rank()));
    return infer_same(c);
  };
  def.reference = [kind](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    bool flattens = c.node.opset != 0 && c.node.opset < 13;
    auto rank = static_cast<int64_t>(x.dims().size());
    int64_t axis = c.node.attributes.i("axis", flattens ? 1 : -1);
    if (axis < 0) axis += rank;
    int64_t n = 1, inner = 1;
    for (int64_t a = axis; a < rank; ++a) (a == axis || flattens ? n : inner) *= x.dims()[static_cast<size_t>(a)];
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims(), true));
    int64_t rows = x.count() == 0 ? 0 : x.count() / n;
    for (int64_t r = 0; r < rows; ++r) {
      int64_t base = r / inner * n * inner + r % inner, best = 0;
      auto at = [&](int64_t i) { return x.get_f64(base + i * inner); };
      for (int64_t i = 1; i < n; ++i)
        if (at(i) > at(best)) best = i;
      double sum = 0, top = at(best);
      for (int64_t i = 0; i < n; ++i) sum += std::exp(at(i) - top);
      for (int64_t i = 0; i < n; ++i) {
        double v = kind == SoftmaxKind::Hardmax      ? (i == best ? 1 : 0)
                   : kind == SoftmaxKind::LogSoftmax ? at(i) - top - std::log(sum)
                                                     : std::exp(at(i) - top) / sum;
        y.set_f64(base + i * inner, v);
      }
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::F64}) {
      Tensor x = random(d, {2, 3, 5}, 3, -6, 6);
      out.push_back(sample({x}, {}, 13));
      out.push_back(sample({x}, {}, 11));
      out.push_back(sample({x}, {{"axis", int64_t{0}}}, 13));
      out.push_back(sample({x}, {{"axis", int64_t{-2}}}, 13));
      out.push_back(sample({x}, {{"axis", int64_t{2}}}, 9));
      out.push_back(sample({random(d, {0, 3}, 3)}, {}, 13));
      out.push_back(sample({random(d, {1, 1}, 3)}, {}, 13));
    }
    out.push_back(sample({floats({2, 3}, {1e4, 1e4, -1e4, 0, 0, 0})}, {}, 13));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis", 13),
        wrong({random(DType::F32, {})}, {}, ErrorCode::ShapeMismatch, "a scalar has no axis", 13)};
  };
  return def;
}

} // namespace

void register_activation_ops(OpTable& table) {
  for (const Activation& row : activations()) table.add(record(row));
  add_special(table);
  table.add(
      softmax_record("Softmax", "exponentials divided by their sum along an axis", {"_softmax"}, SoftmaxKind::Softmax));
  table.add(softmax_record("LogSoftmax", "logarithm of the softmax along an axis", {"_log_softmax"},
                           SoftmaxKind::LogSoftmax));
  table.add(softmax_record("Hardmax", "1 at the first greatest element along an axis, 0 elsewhere", {},
                           SoftmaxKind::Hardmax));
}

} // namespace tessera
