// simplify: identities of arithmetic that hold for every value, under IEEE rules. What is not here is left out on
// purpose:
//   x + 0.0      is not x for x = -0; only where x cannot be -0. x - 0.0 and x + -0.0 are
//   x - x, x * 0 are not 0 for NaN and infinity
//   x / c        is x * (1/c) only for c a power of two
//   pow(x, 0.5)  is not sqrt(x) for -0 and -infinity; only where x cannot be negative
// "Is x" leaves open which NaN a NaN becomes.
#include "graph/passes/passes.h"
#include <cmath>

namespace tessera::passes {
namespace {

// A constant whose elements are all one number.
struct Splat {
  bool known = false;
  double f = 0;
  int64_t i = 0;
};
Splat splat(const Graph& graph, ValueId v) {
  const Tensor* t = graph.constant(v);
  if (!t || t->count() == 0 || t->count() > 64) return {};
  const DTypeKind kind = info(t->dtype()).kind;
  if (kind == DTypeKind::Complex || kind == DTypeKind::Held) return {};
  Splat s{true, t->get_f64(0), t->get_i64(0)};
  for (int64_t i = 1; i < t->count(); ++i) {
    if (kind == DTypeKind::Float ? t->get_f64(i) != s.f || std::signbit(t->get_f64(i)) != std::signbit(s.f)
                                 : t->get_i64(i) != s.i)
      return {};
  }
  return s;
}

constexpr int kLook = 5; // how many producers are followed

// x is neither below zero nor -0 (NaN is possible).
bool never_negative(const Graph& graph, ValueId v, int look = kLook) {
  if (const Splat s = splat(graph, v); s.known) return !std::signbit(s.f);
  const Node* n = graph.producer(v);
  if (!n || look == 0) return false;
  auto arg = [&](size_t i) { return never_negative(graph, n->operands[i], look - 1); };
  const std::string_view op = n->op->name;
  if (op == "exp" || op == "abs" || op == "sigmoid" || op == "cosh") return true;
  if (op == "mul" || op == "div") return (op == "mul" && n->operands[0] == n->operands[1]) || (arg(0) && arg(1));
  if (op == "add" || op == "min") return arg(0) && arg(1);
  if (op == "sqrt" || op == "reduce_sum" || op == "reduce_max" || op == "reduce_min" || op == "reshape" ||
      op == "transpose" || op == "expand" || op == "slice")
    return arg(0);
  if (op == "cast") {
    const DType from = graph.type(n->operands[0]).dtype;
    return is_float(from) ? arg(0) : info(from).kind != DTypeKind::Signed;
  }
  return false;
}

// x is not -0.
bool never_negative_zero(const Graph& graph, ValueId v, int look = kLook) {
  if (!is_float(graph.type(v).dtype) || never_negative(graph, v, look)) return true;
  const Node* n = graph.producer(v);
  if (!n || look == 0) return false;
  if (is_op(n, "add"))
    return never_negative_zero(graph, n->operands[0], look - 1) || never_negative_zero(graph, n->operands[1], look - 1);
  if (is_op(n, "cast")) return !is_float(graph.type(n->operands[0]).dtype);
  if (is_op(n, "reshape") || is_op(n, "transpose") || is_op(n, "expand"))
    return never_negative_zero(graph, n->operands[0], look - 1);
  return false;
}

// Every value of `from` is a value of `to`.
bool holds_exactly(DType from, DType to) {
  if (from == to) return true;
  const DTypeInfo &a = info(from), &b = info(to);
  using K = DTypeKind;
  if (a.kind == K::Held || b.kind == K::Held || a.kind == K::Complex || b.kind == K::Complex || b.kind == K::Bool)
    return false;
  auto digits = [](DType d) { // of the significand
    switch (d) {
    case DType::F64: return 53;
    case DType::F32: return 24;
    case DType::F16: return 11;
    case DType::BF16: return 8;
    default: return 0;
    }
  };
  if (b.kind == K::Float) {
    if (a.kind == K::Float) // the exponent's range grows along f16 and bf16 -> f32 -> f64
      return (to == DType::F64 || to == DType::F32) && digits(from) > 0 && digits(from) < digits(to);
    const int bits = a.kind == K::Bool ? 1 : a.kind == K::Signed ? a.bits - 1 : a.bits;
    return bits <= digits(to) && bits < 16; // f16 ends at 65504
  }
  if (a.kind == K::Float) return false;
  if (a.kind == K::Bool) return b.bits > 1 && !(to == DType::I2);
  if (a.kind == b.kind) return a.bits <= b.bits;
  return a.kind == K::Unsigned && a.bits < b.bits;
}

struct Context {
  Graph& graph;
  const Node node; // a copy: rules append nodes
  ValueId result;

  [[nodiscard]] ValueId in(size_t i) const { return node.operands[i]; }
  [[nodiscard]] const TensorType& type() const { return graph.type(result); }
  [[nodiscard]] bool floats() const { return is_float(type().dtype); }
  // The operand, where it has the result's type: the other one must not have widened it.
  [[nodiscard]] ValueId itself(size_t i) const { return graph.type(in(i)) == type() ? in(i) : ValueId{}; }
  [[nodiscard]] Result<ValueId> emit(std::string_view op, std::vector<ValueId> operands, Attributes a = {}) const {
    return passes::emit(graph, node.location, op, std::move(operands), std::move(a));
  }
};

Result<ValueId> sum(const Context& c) {
  for (size_t k = 0; k < 2; ++k) {
    Splat s = splat(c.graph, c.in(1 - k));
    if (!s.known || s.f != 0 || (!c.floats() && s.i != 0)) continue;
    if (!c.floats() || std::signbit(s.f) || never_negative_zero(c.graph, c.in(k))) return c.itself(k);
  }
  return ValueId{};
}

Result<ValueId> difference(const Context& c) {
  Splat s = splat(c.graph, c.in(1));
  if (s.known && (c.floats() ? s.f == 0 && !std::signbit(s.f) : s.i == 0)) return c.itself(0);
  return ValueId{};
}

Result<ValueId> product(const Context& c) {
  for (size_t k = 0; k < 2; ++k) {
    Splat s = splat(c.graph, c.in(1 - k));
    if (s.known && (c.floats() ? s.f == 1 : s.i == 1)) return c.itself(k);
  }
  return ValueId{};
}

Result<ValueId> quotient(const Context& c) {
  Splat s = splat(c.graph, c.in(1));
  if (!s.known) return ValueId{};
  if (c.floats() ? s.f == 1 : s.i == 1) return c.itself(0);
  const DType d = c.type().dtype;
  if (!c.floats() || !std::isfinite(s.f) || s.f == 0) return ValueId{};
  int exponent = 0;
  if (std::fabs(std::frexp(s.f, &exponent)) != 0.5) return ValueId{};
  // Far from the ends of the exponent's range the inverse is a normal number of every format.
  const int room = d == DType::F64 ? 1000 : d == DType::F32 || d == DType::BF16 ? 120 : d == DType::F16 ? 12 : 0;
  if (std::abs(exponent) > room) return ValueId{};
  TESSERA_ASSIGN(Tensor inverse, Tensor::create(d, c.graph.constant(c.in(1))->dims()));
  for (int64_t i = 0; i < inverse.count(); ++i) inverse.set_f64(i, 1 / s.f);
  const ValueId factor = c.graph.add_constant(std::move(inverse));
  return c.emit("mul", {c.in(0), factor});
}

Result<ValueId> power(const Context& c) {
  Splat s = splat(c.graph, c.in(1));
  const ValueId x = c.in(0);
  // The exponent's shape must not widen the result; the exponent 2 of an integer is the same product.
  if (!s.known || !c.itself(0).valid()) return ValueId{};
  if (s.f == 1) return x;
  if (s.f == 2) return c.emit("mul", {x, x});
  if (!c.floats()) return ValueId{};
  if (s.f == 3) {
    TESSERA_ASSIGN(ValueId square, c.emit("mul", {x, x}));
    return c.emit("mul", {square, x});
  }
  if (s.f == 0.5 && never_negative(c.graph, x)) return c.emit("sqrt", {x});
  if (s.f == -0.5 && never_negative(c.graph, x)) return c.emit("rsqrt", {x});
  if (s.f == -1) return c.emit("reciprocal", {x});
  return ValueId{};
}

Result<ValueId> extremum(const Context& c) { return c.in(0) == c.in(1) ? c.in(0) : ValueId{}; }

Result<ValueId> logic(const Context& c, int64_t neutral) {
  if (c.in(0) == c.in(1)) return c.in(0);
  if (c.type().dtype != DType::Bool) return ValueId{};
  for (size_t k = 0; k < 2; ++k)
    if (Splat s = splat(c.graph, c.in(1 - k)); s.known && s.i == neutral) return c.itself(k);
  return ValueId{};
}

// f(f(x)) is x.
Result<ValueId> involution(const Context& c) {
  const Node* inner = c.graph.producer(c.in(0));
  return inner && inner->op == c.node.op ? inner->operands[0] : ValueId{};
}

Result<ValueId> choice(const Context& c) {
  Splat s = splat(c.graph, c.in(0));
  if (s.known) return c.itself(s.i != 0 ? 1 : 2);
  return c.in(1) == c.in(2) ? c.itself(1) : ValueId{};
}

Result<ValueId> conversion(const Context& c) {
  const DType to = c.type().dtype, from = c.graph.type(c.in(0)).dtype;
  if (from == to) return c.in(0);
  const Node* inner = c.graph.producer(c.in(0));
  if (!is_op(inner, "cast")) return ValueId{};
  const ValueId x = inner->operands[0];
  const DType first = c.graph.type(x).dtype;
  // An integer that was a float in between saturates, and one that was not wraps.
  const bool integers = is_integer(first) && is_integer(to) && is_float(from);
  if (!holds_exactly(first, from) || (integers && !holds_exactly(first, to))) return ValueId{};
  // The integer that NaN becomes depends on the float's width.
  if (c.node.attributes.i("wraps", 0) != 0 && is_float(first) && is_integer(to) && from == DType::F64) return ValueId{};
  return first == to ? Result<ValueId>(x) : c.emit("cast", {x}, c.node.attributes);
}
} // namespace

Result<ValueId> simplify_arithmetic(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (!node.op->pointwise() || node.results.size() != 1 || node.operands.empty()) return ValueId{};
  for (ValueId v : node.operands)
    if (!v.valid()) return ValueId{};
  const std::string_view op = node.op->name;
  const Context c{graph, node, node.results[0]};
  if (op == "add") return sum(c);
  if (op == "sub") return difference(c);
  if (op == "mul") return product(c);
  if (op == "div") return quotient(c);
  if (op == "pow") return power(c);
  if (op == "min" || op == "max") return extremum(c);
  if (op == "and") return logic(c, 1);
  if (op == "or") return logic(c, 0);
  if (op == "neg" || op == "not") return involution(c);
  if (op == "select") return choice(c);
  if (op == "cast") return conversion(c);
  return ValueId{};
}

Result<bool> simplify(Graph& graph, const PassOptions&) {
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    if (graph.node(id).results.size() != 1) return std::vector<ValueId>{};
    TESSERA_ASSIGN(ValueId v, simplify_arithmetic(graph, id));
    if (!v.valid()) {
      TESSERA_ASSIGN(v, simplify_view(graph, id));
    }
    return v.valid() ? std::vector<ValueId>{v} : std::vector<ValueId>{};
  });
}

} // namespace tessera::passes
