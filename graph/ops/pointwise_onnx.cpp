// ONNX operators that are a pointwise primitive in other clothes: variadic Min, Max, Sum, Mean; Clip and Pow of every
// version; Mod, BitShift and IsInf, whose attributes choose among primitives.
#include "graph/ops/build.h"
#include <algorithm>
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// Folds a binary primitive over one or more operands. f is called with two numbers of one kind (by_kind).
template <class F>
void add_variadic(OpTable& table, std::string_view name, std::string_view summary, std::string_view primitive,
                  bool mean, F f, TypeSet types) {
  std::string op(primitive);
  OpDef def = composite(name, summary, {{"first", types}, {"rest", TypeSet::SameAsFirst, false, true}},
                        [op, mean](Graph& g, const Node& n, int) {
                          B b(g, n);
                          ValueId y = b.in(0);
                          for (int i = 1; i < b.operands(); ++i) y = b.op2(op, y, b.in(i));
                          if (mean && b.operands() > 1) y = div(b, y, static_cast<double>(b.operands()));
                          return b.done(y);
                        });
  def.reference = [f, mean](ReferenceContext& c) -> Status {
    Tensor y = c.operands[0];
    for (size_t i = 1; i < c.operands.size(); ++i) {
      TESSERA_TRY(by_kind(y.dtype(), [&](auto kind) -> Status {
        TESSERA_ASSIGN(y, zip<decltype(kind)>(y.dtype(), f, y, c.operands[i]));
        return {};
      }));
    }
    double n = static_cast<double>(c.operands.size());
    if (mean) {
      TESSERA_ASSIGN(y, zip<double>(
                            y.dtype(), [n](double x) { return x / n; }, y));
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F64, DType::F16}) {
      out.push_back(sample({random(d, {3, 4}, 1)}, {}, 13));
      out.push_back(sample({random(d, {3, 1}, 1), random(d, {4}, 2)}, {}, 13));
      out.push_back(sample({random(d, {2, 3}, 1), random(d, {3}, 2), random(d, {}, 3), random(d, {2, 1}, 4)}, {}, 8));
    }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2}), random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "broadcast", 13)};
  };
  table.add(std::move(def));
}

struct Least { // NaN wins
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a != a ? a : b;
    return std::min(a, b);
  }
};
struct Greatest {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a != a ? a : b;
    return std::max(a, b);
  }
};

// ---- Pow: the result has the base's dtype, whatever the exponent's
Result<std::vector<ValueId>> decompose_pow(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), y = b.in(1);
  DType base = b.dtype(x), exponent = b.dtype(y);
  if (base == exponent) return b.done(pow(b, x, y));
  if (is_float(base)) return b.done(pow(b, x, cast(b, y, base)));
  DType wide =
      is_float(exponent) ? exponent == DType::F64 || info(base).bits > 16 ? DType::F64 : DType::F32 : DType::I64;
  return b.done(cast(b, pow(b, cast(b, x, wide), cast(b, y, wide)), base));
}

void add_pow(OpTable& table) {
  OpDef def = composite("Pow", "a to the power of b, in a's dtype", {{"x", TypeSet::Numeric}, {"y", TypeSet::Numeric}},
                        decompose_pow);
  def.samples = [] {
    std::vector<Sample> out = binary_samples({DType::F32, DType::F16, DType::I32}, {0.5, 3}, {0, 3}, {}, 15);
    for (auto [a, e] : {std::pair{DType::F32, DType::I64},
                        {DType::I32, DType::F32},
                        {DType::I64, DType::I32},
                        {DType::F64, DType::F32},
                        {DType::I64, DType::F64}})
      out.push_back(sample({random(a, {3, 4}, 1, 1, 4), random(e, {4}, 2, 0, 3)}, {}, 15));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::Bool, {2}), random(DType::F32, {2})}, {},
                                          ErrorCode::TypeMismatch, "an integer or floating-point type", 15)};
  };
  table.add(std::move(def));
}

// ---- Clip: bounds are attributes before opset 11, operands since
Result<std::vector<ValueId>> decompose_clip(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId lo = b.in(1), hi = b.in(2);
  if (b.opset() < 11) {
    DType d = b.dtype(b.in(0));
    if (b.attr().has("min")) lo = b.scalar(d, b.attr().f("min"));
    if (b.attr().has("max")) hi = b.scalar(d, b.attr().f("max"));
  }
  for (ValueId bound : {lo, hi})
    if (bound.valid() && b.type(bound).count() != SymExpr(1))
      b.fail(ErrorCode::ShapeMismatch, "a bound of Clip is a scalar, not " + b.type(bound).str());
  if (lo.valid() && b.rank(lo) > 0) lo = reshape(b, lo, {});
  if (hi.valid() && b.rank(hi) > 0) hi = reshape(b, hi, {});
  if (!lo.valid() && !hi.valid()) return b.done(b.in(0));
  return b.done(b.op("clip", {b.in(0), lo, hi}));
}

void add_clip(OpTable& table) {
  OpDef def =
      composite("Clip", "x kept within [min, max]",
                {{"x", TypeSet::Numeric}, {"min", TypeSet::SameAsFirst, true}, {"max", TypeSet::SameAsFirst, true}},
                decompose_clip);
  def.attributes = {{"min", AttrKind::Float}, {"max", AttrKind::Float}};
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::F64}) {
      out.push_back(sample({random(d, {3, 5}, 1, -3, 3)}, {{"min", -1.0}, {"max", 1.0}}, 10));
      out.push_back(sample({random(d, {3, 5}, 1, -3, 3)}, {{"max", 1.0}}, 7));
      out.push_back(sample({random(d, {7}, 2, -3, 3), scalar(d, -1), scalar(d, 2)}, {}, 13));
      out.push_back(sample({random(d, {7}, 2, -3, 3), Tensor(), scalar(d, 2)}, {}, 13));
      out.push_back(sample({random(d, {0, 3}, 2), scalar(d, 0)}, {}, 13));
      out.push_back(sample({random(d, {4}, 2)}, {}, 13));
    }
    out.push_back(sample({random(DType::I32, {7}, 2, -9, 9), scalar(DType::I32, -1), scalar(DType::I32, 2)}, {}, 13));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {2}), random(DType::F32, {2})}, {},
                                          ErrorCode::ShapeMismatch, "a bound of Clip is a scalar", 13)};
  };
  table.add(std::move(def));
}

void add_chosen(OpTable& table) {
  OpDef mod = composite("Mod", "remainder: the divisor's sign, or the dividend's with fmod",
                        {{"a", TypeSet::Numeric}, {"b", TypeSet::SameAsFirst}}, [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          return b.done(b.op2(b.attr().i("fmod", 0) != 0 ? "fmod" : "mod", b.in(0), b.in(1)));
                        });
  mod.attributes = {{"fmod", AttrKind::Int, false, int64_t{0}}};
  mod.samples = [] {
    auto out = binary_samples({DType::I32, DType::U8, DType::I64}, {-9, 9}, {1, 5}, {}, 13);
    auto more = binary_samples({DType::F32, DType::I32, DType::F16}, {-9, 9}, {1, 5}, {{"fmod", int64_t{1}}}, 13);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  table.add(std::move(mod));

  OpDef shift =
      composite("BitShift", "bits moved LEFT or RIGHT", {{"a", TypeSet::Integer}, {"b", TypeSet::SameAsFirst}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  std::string direction = b.attr().s("direction");
                  if (direction != "LEFT" && direction != "RIGHT")
                    b.fail(ErrorCode::BadAttribute, "direction '" + direction + "' is neither LEFT nor RIGHT");
                  return b.done(b.op2(direction == "LEFT" ? "shl" : "shr", b.in(0), b.in(1)));
                });
  shift.attributes = {{"direction", AttrKind::String, true}};
  shift.samples = [] {
    auto out = binary_samples({DType::U8, DType::U64}, {0, 200}, {0, 7}, {{"direction", std::string("LEFT")}}, 11);
    auto more = binary_samples({DType::U8, DType::U32}, {0, 200}, {0, 7}, {{"direction", std::string("RIGHT")}}, 11);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  shift.error_samples = [] {
    Tensor x = random(DType::U8, {2});
    return std::vector<ErrorSample>{
        wrong({x, x}, {{"direction", std::string("UP")}}, ErrorCode::BadAttribute, "neither LEFT nor RIGHT", 11),
        wrong({x, x}, {}, ErrorCode::BadAttribute, "direction", 11)};
  };
  table.add(std::move(shift));

  OpDef isinf = composite("IsInf", "whether x is infinite, of the requested signs", {{"x", TypeSet::Float}},
                          [](Graph& g, const Node& n, int) {
                            B b(g, n);
                            ValueId x = b.in(0);
                            bool negative = b.attr().i("detect_negative", 1) != 0,
                                 positive = b.attr().i("detect_positive", 1) != 0;
                            ValueId y = b.op1("isinf", x);
                            if (!negative) y = logical_and(b, y, gt(b, x, 0.0));
                            if (!positive) y = logical_and(b, y, lt(b, x, 0.0));
                            return b.done(y);
                          });
  isinf.attributes = {{"detect_negative", AttrKind::Int, false, int64_t{1}},
                      {"detect_positive", AttrKind::Int, false, int64_t{1}}};
  isinf.reference = [](ReferenceContext& c) -> Status {
    bool negative = c.node.attributes.i("detect_negative", 1) != 0;
    bool positive = c.node.attributes.i("detect_positive", 1) != 0;
    auto f = [=](double x) { return std::isinf(x) && (x > 0 ? positive : negative); };
    TESSERA_ASSIGN(Tensor y, zip<double>(DType::Bool, f, c.operands[0]));
    c.results = {y};
    return {};
  };
  isinf.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F64})
      for (int64_t k = 0; k < 4; ++k)
        out.push_back(sample({floats(d, {5}, {0.0, NAN, INFINITY, -INFINITY, 3.0})},
                             {{"detect_negative", k & 1}, {"detect_positive", k >> 1}}, 10));
    return out;
  };
  table.add(std::move(isinf));
}

} // namespace

void register_pointwise_composites(OpTable& table);
void register_pointwise_composites(OpTable& table) {
  add_variadic(table, "Min", "least of the operands", "min", false, Least{}, TypeSet::Numeric);
  add_variadic(table, "Max", "greatest of the operands", "max", false, Greatest{}, TypeSet::Numeric);
  add_variadic(
      table, "Sum", "sum of the operands", "add", false, [](double a, double b) { return a + b; }, TypeSet::Float);
  add_variadic(
      table, "Mean", "mean of the operands", "add", true, [](double a, double b) { return a + b; }, TypeSet::Float);
  add_pow(table);
  add_clip(table);
  add_chosen(table);
}

} // namespace tessera
