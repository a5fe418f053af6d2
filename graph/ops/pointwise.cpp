// Pointwise primitives: one scalar operator each. Casts, selection and clamping are in cast.cpp and at the end of this
// file.
#include "graph/ops/build.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

PointwiseFn body1(ScalarOp op) {
  return [op](ScalarDag& d, std::span<const ScalarId> a, const Node&, const Graph&) -> Result<ScalarId> {
    return d.op(op, a[0]);
  };
}
PointwiseFn body2(ScalarOp op) {
  return [op](ScalarDag& d, std::span<const ScalarId> a, const Node&, const Graph&) -> Result<ScalarId> {
    return d.op(op, a[0], a[1]);
  };
}

OpDef primitive(std::string_view name, std::string_view summary, std::vector<OnnxName> onnx,
                std::vector<std::string_view> aten) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.onnx = std::move(onnx);
  def.aten = std::move(aten);
  return def;
}

// ---- functions of one float
struct FloatFunction {
  std::string_view name, summary;
  ScalarOp op;
  const char* onnx; // nullptr: no operator of ONNX is exactly this
  std::vector<std::string_view> aten;
  double (*f)(double);
  Domain domain = {};
};

double logistic(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

std::vector<FloatFunction> float_functions() {
  using S = ScalarOp;
  return {
      {"floor", "greatest integer not above x", S::Floor, "Floor", {"floor"}, std::floor, {-5, 5}},
      {"ceil", "smallest integer not below x", S::Ceil, "Ceil", {"ceil"}, std::ceil, {-5, 5}},
      {"round", "nearest integer, halves to even", S::Round, "Round", {"round"}, std::nearbyint, {-5, 5}},
      {"trunc", "integer part of x", S::Trunc, nullptr, {"trunc"}, std::trunc, {-5, 5}},
      {"sqrt", "square root", S::Sqrt, "Sqrt", {"sqrt"}, std::sqrt, {0, 9}},
      {"rsqrt", "1 / sqrt(x)", S::Rsqrt, nullptr, {"rsqrt"}, [](double x) { return 1 / std::sqrt(x); }, {0.1, 9}},
      {"reciprocal", "1 / x", S::Reciprocal, "Reciprocal", {"reciprocal"}, [](double x) { return 1 / x; }, {0.1, 9}},
      {"exp", "e to the power of x", S::Exp, "Exp", {"exp"}, std::exp},
      {"exp2", "2 to the power of x", S::Exp2, nullptr, {"exp2"}, std::exp2},
      {"expm1", "exp(x) - 1, exact near 0", S::Expm1, nullptr, {"expm1"}, std::expm1},
      {"log", "natural logarithm", S::Log, "Log", {"log"}, std::log, {0.1, 9}},
      {"log2", "logarithm to base 2", S::Log2, nullptr, {"log2"}, std::log2, {0.1, 9}},
      {"log1p", "log(1 + x), exact near 0", S::Log1p, nullptr, {"log1p"}, std::log1p, {-0.9, 9}},
      {"sin", "sine of radians", S::Sin, "Sin", {"sin"}, std::sin, {-6, 6}},
      {"cos", "cosine of radians", S::Cos, "Cos", {"cos"}, std::cos, {-6, 6}},
      {"tan", "tangent of radians", S::Tan, "Tan", {"tan"}, std::tan, {-1, 1}},
      {"asin", "inverse sine", S::Asin, "Asin", {"asin"}, std::asin, {-1, 1}},
      {"acos", "inverse cosine", S::Acos, "Acos", {"acos"}, std::acos, {-1, 1}},
      {"atan", "inverse tangent", S::Atan, "Atan", {"atan"}, std::atan, {-6, 6}},
      {"sinh", "hyperbolic sine", S::Sinh, "Sinh", {"sinh"}, std::sinh},
      {"cosh", "hyperbolic cosine", S::Cosh, "Cosh", {"cosh"}, std::cosh},
      {"tanh", "hyperbolic tangent", S::Tanh, "Tanh", {"tanh"}, std::tanh, {-4, 4}},
      {"asinh", "inverse hyperbolic sine", S::Asinh, "Asinh", {"asinh"}, std::asinh, {-6, 6}},
      {"acosh", "inverse hyperbolic cosine", S::Acosh, "Acosh", {"acosh"}, std::acosh, {1.1, 9}},
      {"atanh", "inverse hyperbolic tangent", S::Atanh, "Atanh", {"atanh"}, std::atanh, {-0.9, 0.9}},
      {"erf", "error function", S::Erf, "Erf", {"erf"}, std::erf, {-3, 3}},
      {"sigmoid", "1 / (1 + exp(-x))", S::Sigmoid, "Sigmoid", {"sigmoid"}, logistic, {-9, 9}},
  };
}

OpDef float_function(const FloatFunction& row) {
  OpDef def = primitive(row.name, row.summary, {}, row.aten);
  if (row.onnx) def.onnx = {{row.onnx}};
  // Rounding is defined for integers in ONNX's Erf and Floor of no version; floats only.
  def.operands = {{"x", TypeSet::Float}};
  def.meaning = Pointwise{body1(row.op)};
  auto f = row.f;
  def.reference = [f](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Tensor y, zip<double>(c.operands[0].dtype(), f, c.operands[0]));
    c.results = {y};
    return {};
  };
  Domain domain = row.domain;
  def.samples = [domain] { return unary_samples(kFloats, domain); };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({1, 2})}, {}, ErrorCode::TypeMismatch, "a floating-point type")};
  };
  return def;
}

// ---- functions of one number of any kind: F is called with double, int64_t, uint64_t or bool
template <class F>
OpDef unary(OpDef def, TypeSet types, PointwiseFn body, F f, std::vector<DType> sample_types) {
  def.operands = {{"x", types}};
  def.meaning = Pointwise{std::move(body)};
  def.reference = [f](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    return by_kind(x.dtype(), [&](auto kind) -> Status {
      TESSERA_ASSIGN(Tensor y, zip<decltype(kind)>(c.result_types[0].dtype, f, x));
      c.results = {y};
      return {};
    });
  };
  def.samples = [sample_types] { return unary_samples(sample_types); };
  return def;
}

// ---- functions of two numbers
template <class F>
ReferenceFn reference2(F f) {
  return [f](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &y = c.operands[1];
    return by_kind(x.dtype(), [&](auto kind) -> Status {
      TESSERA_ASSIGN(Tensor z, zip<decltype(kind)>(c.result_types[0].dtype, f, x, y));
      c.results = {z};
      return {};
    });
  };
}
template <class F>
OpDef binary(OpDef def, ScalarOp op, TypeSet types, F f, std::vector<DType> sample_types, Domain a = {},
             Domain b = {}) {
  def.operands = {{"a", types}, {"b", TypeSet::SameAsFirst}};
  def.meaning = Pointwise{body2(op)};
  def.reference = reference2(f);
  def.samples = [=] { return binary_samples(sample_types, a, b); };
  def.error_samples = [t = sample_types[0]] {
    DType other = t == DType::I64 ? DType::F32 : DType::I64;
    return std::vector<ErrorSample>{
        wrong({random(t, {2, 3}), random(t, {4, 3})}, {}, ErrorCode::ShapeMismatch, "broadcast"),
        wrong({random(t, {2}), random(other, {2})}, {}, ErrorCode::TypeMismatch, name(other)),
    };
  };
  return def;
}

// Integer arithmetic wraps: done on the unsigned bits.
struct Plus {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
struct Minus {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    else
      return a - b;
  }
};
struct Times {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
struct Quotient { // truncates; x / 0 is 0 and the one quotient that overflows wraps
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, double>)
      return a / b;
    else if (b == T(0))
      return T(0);
    else if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return Minus{}(T(0), a);
    else
      return static_cast<T>(a / b);
  }
};
struct FloorMod { // the divisor's sign
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, double>) {
      if (std::isinf(b) && std::isfinite(a)) return a == 0 ? std::copysign(0.0, b) : (a < 0) == (b < 0) ? a : b;
      double r = std::fmod(a, b);
      if (r == 0) return std::copysign(r, b);
      return (r < 0) != (b < 0) ? r + b : r;
    } else {
      if (b == T(0) || (std::is_signed_v<T> && b == static_cast<T>(-1))) return T(0);
      T r = static_cast<T>(a % b);
      return r != T(0) && (r < T(0)) != (b < T(0)) ? static_cast<T>(r + b) : r;
    }
  }
};
struct TruncMod { // the dividend's sign
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, double>)
      return std::fmod(a, b);
    else if (b == T(0) || (std::is_signed_v<T> && b == static_cast<T>(-1)))
      return T(0);
    else
      return static_cast<T>(a % b);
  }
};
struct Power {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, double>) {
      return std::pow(a, b);
    } else {
      if (std::is_signed_v<T> && b < T(0)) { // 1 / a^-b, truncated
        if (a == T(1)) return T(1);
        if (a == static_cast<T>(-1)) return (b & 1) != 0 ? a : T(1);
        return T(0);
      }
      T r = T(1);
      for (auto n = static_cast<uint64_t>(b); n != 0; n >>= 1) {
        if (n & 1) r = Times{}(r, a);
        a = Times{}(a, a);
      }
      return r;
    }
  }
};
struct Least { // NaN wins
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a != a ? a : b;
    return b < a ? b : a;
  }
};
struct Greatest {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a != a ? a : b;
    return a < b ? b : a;
  }
};

void register_arithmetic(OpTable& table) {
  table.add(binary(primitive("add", "a + b; integers wrap", {{"Add"}}, {"add.Tensor"}), ScalarOp::Add, TypeSet::Numeric,
                   Plus{}, kNumbers));
  table.add(binary(primitive("sub", "a - b; integers wrap", {{"Sub"}}, {"sub.Tensor"}), ScalarOp::Sub, TypeSet::Numeric,
                   Minus{}, kNumbers));
  table.add(binary(primitive("mul", "a * b; integers wrap", {{"Mul"}}, {"mul.Tensor"}), ScalarOp::Mul, TypeSet::Numeric,
                   Times{}, kNumbers));
  table.add(binary(primitive("div", "a / b; integers truncate, by zero is 0", {{"Div"}}, {"div.Tensor"}), ScalarOp::Div,
                   TypeSet::Numeric, Quotient{}, kNumbers, {-9, 9}, {1, 4}));
  table.add(binary(primitive("mod", "remainder with the divisor's sign", {}, {"remainder.Tensor"}), ScalarOp::Mod,
                   TypeSet::Numeric, FloorMod{}, kNumbers, {-9, 9}, {1, 4}));
  table.add(binary(primitive("fmod", "remainder with the dividend's sign", {}, {"fmod.Tensor"}), ScalarOp::Fmod,
                   TypeSet::Numeric, TruncMod{}, kNumbers, {-9, 9}, {1, 4}));
  table.add(binary(primitive("pow", "a to the power of b", {}, {"pow.Tensor_Tensor"}), ScalarOp::Pow, TypeSet::Numeric,
                   Power{}, kNumbers, {0.5, 3}, {0, 3}));
  table.add(binary(primitive("min", "the smaller one, NaN if one is", {}, {"minimum"}), ScalarOp::Min, TypeSet::Numeric,
                   Least{}, kNumbers));
  table.add(binary(primitive("max", "the greater one, NaN if one is", {}, {"maximum"}), ScalarOp::Max, TypeSet::Numeric,
                   Greatest{}, kNumbers));

  table.add(unary(primitive("neg", "-x; integers wrap", {{"Neg"}}, {"neg"}), TypeSet::Numeric, body1(ScalarOp::Neg),
                  [](auto x) {
                    if constexpr (std::is_same_v<decltype(x), double>)
                      return -x;
                    else
                      return Minus{}(decltype(x)(0), x);
                  },
                  {DType::F32, DType::F16, DType::F64, DType::I32, DType::I8}));
  table.add(unary(
      primitive("abs", "absolute value", {{"Abs"}}, {"abs"}), TypeSet::Numeric, body1(ScalarOp::Abs),
      [](auto x) {
        if constexpr (std::is_same_v<decltype(x), double>)
          return std::fabs(x);
        else
          return x < decltype(x)(0) ? Minus{}(decltype(x)(0), x) : x;
      },
      kNumbers));
  table.add(unary(
      primitive("sign", "-1, 0 or 1", {{"Sign"}}, {"sign"}), TypeSet::Numeric, body1(ScalarOp::Sign),
      [](auto x) {
        using T = decltype(x);
        if (x != x) return x;
        return x > T(0) ? T(1) : x < T(0) ? static_cast<T>(-1) : T(0);
      },
      kNumbers));
}

// ---- comparisons and predicates: results are bool
void register_comparisons(OpTable& table) {
  auto add = [&](std::string_view name, std::string_view summary, std::string_view onnx, std::string_view aten,
                 ScalarOp op, TypeSet types,
                 auto f) { table.add(binary(primitive(name, summary, {{onnx}}, {aten}), op, types, f, kNumbers)); };
  table.add(binary(
      primitive("eq", "a == b", {}, {"eq.Tensor"}), ScalarOp::Eq, TypeSet::NumericOrBool,
      [](auto a, auto b) { return a == b; }, kNumbers)); // ONNX's also compares strings: strings.cpp
  add("lt", "a < b", "Less", "lt.Tensor", ScalarOp::Lt, TypeSet::Numeric, [](auto a, auto b) { return a < b; });
  add("le", "a <= b", "LessOrEqual", "le.Tensor", ScalarOp::Le, TypeSet::Numeric,
      [](auto a, auto b) { return a <= b; });
  add("gt", "a > b", "Greater", "gt.Tensor", ScalarOp::Gt, TypeSet::Numeric, [](auto a, auto b) { return a > b; });
  add("ge", "a >= b", "GreaterOrEqual", "ge.Tensor", ScalarOp::Ge, TypeSet::Numeric,
      [](auto a, auto b) { return a >= b; });
  table.add(binary(
      primitive("ne", "a != b", {}, {"ne.Tensor"}), ScalarOp::Ne, TypeSet::NumericOrBool,
      [](auto a, auto b) { return a != b; }, kNumbers));

  auto special = [](DType d) { return floats(d, {6}, {0.0, NAN, INFINITY, -INFINITY, -1.5, 3.0}); };
  auto predicate = [&](OpDef def, ScalarOp op, auto f) {
    def.operands = {{"x", TypeSet::Float}};
    def.meaning = Pointwise{body1(op)};
    def.reference = [f](ReferenceContext& c) -> Status {
      TESSERA_ASSIGN(Tensor y, zip<double>(DType::Bool, f, c.operands[0]));
      c.results = {y};
      return {};
    };
    def.samples = [special] {
      std::vector<Sample> out = unary_samples(kFloats);
      for (DType d : kFloats) out.push_back(sample({special(d)}));
      return out;
    };
    def.error_samples = [] {
      return std::vector<ErrorSample>{wrong({vec({1})}, {}, ErrorCode::TypeMismatch, "a floating-point type")};
    };
    table.add(std::move(def));
  };
  predicate(primitive("isnan", "whether x is not a number", {{"IsNaN"}}, {"isnan"}), ScalarOp::IsNan,
            [](double x) { return std::isnan(x); });
  predicate(primitive("isinf", "whether x is infinite", {}, {"isinf"}), ScalarOp::IsInf,
            [](double x) { return std::isinf(x); });
}

// ---- logic: on bool, and bit by bit on integers
Status infer_logic(InferContext& c) {
  DType d = c.type(0).dtype;
  if (d != DType::Bool && !is_integer(d))
    return c.error(ErrorCode::TypeMismatch, "operand '" + std::string(c.node.op->operands[0].name) + "' is " +
                                                std::string(name(d)) + ", not bool or an integer type");
  return infer_broadcast(0)(c);
}

void register_logic(OpTable& table) {
  static constexpr std::initializer_list<DType> types = {DType::Bool, DType::I32, DType::U8, DType::I64, DType::U64};
  auto add = [&](std::string_view name, std::string_view summary, std::vector<OnnxName> onnx, std::string_view aten,
                 ScalarOp op, auto f) {
    OpDef def = binary(primitive(name, summary, std::move(onnx), {aten}), op, TypeSet::NumericOrBool, f, types);
    def.infer = infer_logic;
    table.add(std::move(def));
  };
  // by_kind instantiates every kind; floats never arrive (infer_logic).
  auto bits = [](auto f) {
    return [f](auto a, auto b) {
      using T = decltype(a);
      if constexpr (std::is_same_v<T, double>)
        return a;
      else
        return static_cast<T>(f(a, b));
    };
  };
  add("and", "a and b; bitwise on integers", {{"And"}, {"BitwiseAnd"}}, "bitwise_and.Tensor", ScalarOp::And,
      bits([](auto a, auto b) { return a & b; }));
  add("or", "a or b; bitwise on integers", {{"Or"}, {"BitwiseOr"}}, "bitwise_or.Tensor", ScalarOp::Or,
      bits([](auto a, auto b) { return a | b; }));
  add("xor", "exactly one of a and b; bitwise on integers", {{"Xor"}, {"BitwiseXor"}}, "bitwise_xor.Tensor",
      ScalarOp::Xor, bits([](auto a, auto b) { return a ^ b; }));

  OpDef logical_not = primitive("not", "logical negation", {{"Not"}}, {"logical_not"});
  logical_not.operands = {{"x", TypeSet::Bool}};
  logical_not.meaning = Pointwise{body1(ScalarOp::Not)};
  logical_not.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Tensor y, zip<bool>(
                                 DType::Bool, [](bool x) { return !x; }, c.operands[0]));
    c.results = {y};
    return {};
  };
  logical_not.samples = [] { return unary_samples({DType::Bool}); };
  logical_not.error_samples = [] {
    return std::vector<ErrorSample>{wrong({vec({1})}, {}, ErrorCode::TypeMismatch, "bool")};
  };
  table.add(std::move(logical_not));

  table.add(unary(
      primitive("bit_not", "every bit flipped", {{"BitwiseNot"}}, {"bitwise_not"}), TypeSet::Integer,
      [](ScalarDag& d, std::span<const ScalarId> a, const Node&, const Graph&) -> Result<ScalarId> {
        DType t = d[a[0]].dtype;
        int width = info(t).bits;
        bool narrow = info(t).kind == DTypeKind::Unsigned && width < 64;
        return d.op(ScalarOp::Xor, a[0], d.constant_i(t, narrow ? (int64_t{1} << width) - 1 : -1));
      },
      [](auto x) {
        if constexpr (std::is_same_v<decltype(x), double>)
          return x;
        else if constexpr (std::is_same_v<decltype(x), bool>)
          return !x;
        else
          return static_cast<decltype(x)>(~x);
      },
      {DType::I32, DType::U8, DType::I64, DType::U64, DType::I16}));

  auto shift = [&](std::string_view name, std::string_view summary, std::string_view aten, ScalarOp op, bool left) {
    OpDef def = primitive(name, summary, {}, {aten});
    def.operands = {{"a", TypeSet::Integer}, {"b", TypeSet::SameAsFirst}};
    def.meaning = Pointwise{body2(op)};
    def.reference = [left](ReferenceContext& c) -> Status {
      DType d = c.operands[0].dtype();
      int width = info(d).bits;
      bool is_signed = info(d).kind == DTypeKind::Signed;
      auto f = [=](int64_t a, int64_t n) -> int64_t {
        bool all = n < 0 || n >= width;
        if (left) return all ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << n);
        if (is_signed) return all ? (a < 0 ? -1 : 0) : a >> n;
        return all ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> n);
      };
      TESSERA_ASSIGN(Tensor y, zip<int64_t>(d, f, c.operands[0], c.operands[1]));
      c.results = {y};
      return {};
    };
    def.samples = [] { return binary_samples({DType::U8, DType::I32, DType::U64, DType::I64}, {-100, 100}, {0, 9}); };
    def.error_samples = [] {
      return std::vector<ErrorSample>{wrong({floats({1}, {1}), vec({1})}, {}, ErrorCode::TypeMismatch, "integer")};
    };
    table.add(std::move(def));
  };
  shift("shl", "bits of a moved b places up", "bitwise_left_shift.Tensor", ScalarOp::Shl, true);
  shift("shr", "bits of a moved b places down, signed ones keeping the sign", "bitwise_right_shift.Tensor",
        ScalarOp::Shr, false);
}

// ---- select and clip
void register_choice(OpTable& table) {
  OpDef select = primitive("select", "a where the condition holds, b elsewhere", {}, {"where.self"});
  select.operands = {{"condition", TypeSet::Bool}, {"a", TypeSet::NumericOrBool}, {"b", TypeSet::NumericOrBool}};
  select.infer = [](InferContext& c) -> Status {
    if (c.type(1).dtype != c.type(2).dtype)
      return c.error(ErrorCode::TypeMismatch, "operands 'a' and 'b' are " + std::string(name(c.type(1).dtype)) +
                                                  " and " + std::string(name(c.type(2).dtype)));
    return infer_broadcast(1)(c);
  };
  select.meaning = Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node&, const Graph&) {
    return Result<ScalarId>(d.op(ScalarOp::Select, a[0], a[1], a[2]));
  }};
  select.reference = [](ReferenceContext& c) -> Status {
    const Tensor &p = c.operands[0], &a = c.operands[1], &b = c.operands[2];
    const Tensor* all[] = {&p, &a, &b};
    TESSERA_ASSIGN(Dims dims, broadcast_dims(all));
    Dims sp = broadcast_strides(p.dims(), dims), sa = broadcast_strides(a.dims(), dims),
         sb = broadcast_strides(b.dims(), dims);
    TESSERA_ASSIGN(Tensor y, Tensor::create(a.dtype(), dims));
    for (MultiIndex w(dims); !w.done(); w.next()) {
      bool first = p.get_i64(offset(w.at(), sp)) != 0;
      const Tensor& from = first ? a : b;
      int64_t i = first ? offset(w.at(), sa) : offset(w.at(), sb);
      if (is_float(y.dtype()))
        y.set_f64(w.i(), from.get_f64(i));
      else
        y.set_i64(w.i(), from.get_i64(i));
    }
    c.results = {y};
    return {};
  };
  select.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::I64, DType::Bool, DType::U8, DType::F64}) {
      out.push_back(sample({random(DType::Bool, {3, 1}, 1), random(d, {3, 5}, 2), random(d, {5}, 3)}));
      out.push_back(sample({random(DType::Bool, {}, 4), random(d, {}, 5), random(d, {2, 2}, 6)}));
      out.push_back(sample({random(DType::Bool, {0, 1}, 4), random(d, {1}, 5), random(d, {0, 7}, 6)}));
    }
    return out;
  };
  select.error_samples = [] {
    Tensor p = random(DType::Bool, {2});
    return std::vector<ErrorSample>{
        wrong({p, random(DType::F32, {2}), random(DType::I32, {2})}, {}, ErrorCode::TypeMismatch, "f32 and i32"),
        wrong({p, random(DType::F32, {3}), random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "broadcast"),
        wrong({random(DType::F32, {2}), random(DType::F32, {2}), random(DType::F32, {2})}, {}, ErrorCode::TypeMismatch,
              "bool"),
    };
  };
  table.add(std::move(select));

  OpDef clip = primitive("clip", "x kept within [lo, hi]; hi wins where they cross", {}, {"clamp.Tensor"});
  clip.operands = {{"x", TypeSet::Numeric}, {"lo", TypeSet::SameAsFirst, true}, {"hi", TypeSet::SameAsFirst, true}};
  clip.meaning = Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node&, const Graph&) {
    ScalarId x = a[0];
    if (a.size() > 1 && a[1] >= 0) x = d.op(ScalarOp::Max, x, a[1]);
    if (a.size() > 2 && a[2] >= 0) x = d.op(ScalarOp::Min, x, a[2]);
    return Result<ScalarId>(x);
  }};
  clip.reference = [](ReferenceContext& c) -> Status {
    Tensor x = c.operands[0];
    return by_kind(x.dtype(), [&](auto kind) -> Status {
      using V = decltype(kind);
      if (c.operands.size() > 1 && c.operands[1].defined()) {
        TESSERA_ASSIGN(x, zip<V>(x.dtype(), Greatest{}, x, c.operands[1]));
      }
      if (c.operands.size() > 2 && c.operands[2].defined()) {
        TESSERA_ASSIGN(x, zip<V>(x.dtype(), Least{}, x, c.operands[2]));
      }
      c.results = {x};
      return {};
    });
  };
  clip.samples = [] {
    std::vector<Sample> out;
    for (DType d : kNumbers) {
      out.push_back(sample({random(d, {3, 5}, 2, -9, 9), scalar(d, 1), scalar(d, 3)}));
      out.push_back(sample({random(d, {7}, 3, -9, 9), scalar(d, 1)}));
      out.push_back(sample({random(d, {7}, 3, -9, 9), Tensor(), scalar(d, 1)}));
      out.push_back(sample({random(d, {}, 3, -9, 9)}));
      out.push_back(sample({random(d, {4}, 3, -9, 9), scalar(d, 5), scalar(d, 2)}));
    }
    return out;
  };
  clip.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2}), scalar(DType::I32, 0)}, {}, ErrorCode::TypeMismatch, "i32")};
  };
  table.add(std::move(clip));
}

} // namespace

void register_cast_ops(OpTable& table);             // cast.cpp
void register_pointwise_composites(OpTable& table); // pointwise_onnx.cpp

void register_pointwise_ops(OpTable& table) {
  for (const FloatFunction& row : float_functions()) table.add(float_function(row));
  register_arithmetic(table);
  register_comparisons(table);
  register_logic(table);
  register_choice(table);
  register_cast_ops(table);
  register_pointwise_composites(table);
}

} // namespace tessera
