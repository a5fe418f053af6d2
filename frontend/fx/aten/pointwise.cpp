// Functions of single elements: arithmetic, functions of one number, comparisons, logic, choices. Activations are in
// activations.cpp.
#include "frontend/fx/aten/pointwise.h"
#include <cmath>

namespace tessera::fx {

// ---- forms
DType computing_dtype(Call& c) { return compute_dtype(c.result_dtype()); }

void give(Call& c, ValueId y) { c.result(cast(c.b, y, c.result_dtype())); }

Translate by_operator(std::string_view record) {
  return [record](Call& c) { c.result(c.b.op1(record, operand(c.b, c.in, "self", c.result_dtype()))); };
}

Translate by_rounding(std::string_view record) {
  return [record](Call& c) {
    const DType d = c.result_dtype();
    ValueId x = operand(c.b, c.in, "self", d);
    c.result(is_float(d) ? c.b.op1(record, x) : x);
  };
}

Translate by_formula(Formula1 formula) {
  return [formula](Call& c) {
    ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
    if (c.b.ok()) give(c, formula(c.b, x));
  };
}

Translate by_formula(Formula2 formula, std::string_view x, std::string_view y) {
  return [=](Call& c) {
    const DType d = computing_dtype(c);
    ValueId u = operand(c.b, c.in, x, d), v = operand(c.b, c.in, y, d);
    if (c.b.ok()) give(c, formula(c.b, u, v));
  };
}

// ---- formulas
ValueId is_negative(ops::B& b, ValueId x) {
  if (!b.ok()) return {};
  ValueId wide = widen(b, x);
  return lt(b, b.op("bitcast", {wide}, {{"to", b.dtype(wide) == DType::F64 ? DType::I64 : DType::I32}}), 0.0);
}

ValueId with_sign(ops::B& b, ValueId x, ValueId negative) {
  ValueId magnitude = abs(b, x);
  return select(b, negative, neg(b, magnitude), magnitude);
}

ValueId clamped(ops::B& b, ValueId x, double lo, double hi) { return min(b, max(b, x, lo), hi); }

ValueId floor_quotient(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok()) return {};
  const bool real = is_float(b.dtype(x));
  ValueId r, q;
  if (real) {
    r = b.op2("fmod", x, y);
    q = div(b, sub(b, x, r), y);
  } else {
    q = div(b, x, y);
    r = sub(b, x, mul(b, q, y));
  }
  ValueId crosses = logical_and(b, ne(b, r, 0.0), ne(b, lt(b, r, 0.0), lt(b, y, 0.0)));
  q = select(b, crosses, sub(b, q, 1.0), q);
  if (!real) return q;
  ValueId exact = div(b, x, y);
  q = b.op1("round", q);
  q = select(b, eq(b, q, 0.0), with_sign(b, q, is_negative(b, exact)), q);
  return select(b, eq(b, y, 0.0), exact, q);
}

ValueId constant_power(ops::B& b, ValueId base, double exponent) {
  if (!b.ok()) return {};
  const bool real = is_float(b.dtype(base));
  if (exponent == 1) return base;
  if (exponent == 2) return mul(b, base, base);
  if (exponent == 3) return mul(b, mul(b, base, base), base);
  if (real && exponent == 0.5) return sqrt(b, base);
  if (real && exponent == -0.5) return rsqrt(b, base);
  if (real && exponent == -1) return b.op1("reciprocal", base);
  if (real && exponent == -2) return b.op1("reciprocal", mul(b, base, base));
  return pow(b, base, exponent);
}

namespace {

// ---- arithmetic
// Booleans add as "or" and multiply as "and".
ValueId sum(ops::B& b, ValueId x, ValueId y) { return b.dtype(x) == DType::Bool ? logical_or(b, x, y) : add(b, x, y); }
ValueId product(ops::B& b, ValueId x, ValueId y) {
  return b.dtype(x) == DType::Bool ? logical_and(b, x, y) : mul(b, x, y);
}
ValueId least(ops::B& b, ValueId x, ValueId y) {
  return b.dtype(x) == DType::Bool ? logical_and(b, x, y) : min(b, x, y);
}
ValueId greatest(ops::B& b, ValueId x, ValueId y) {
  return b.dtype(x) == DType::Bool ? logical_or(b, x, y) : max(b, x, y);
}

// Two tensors are computed as they are stored; a number is not rounded to f16 or bf16 first.
Translate arithmetic(Formula2 formula) {
  return [formula](Call& c) {
    const bool number = !c.in.is_tensor("self") || !c.in.is_tensor("other");
    const DType d = number ? computing_dtype(c) : c.result_dtype();
    ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "other", d);
    if (c.b.ok()) give(c, formula(c.b, x, y));
  };
}
// Two operands in the dtype of the result, numbers included.
Translate in_result_dtype(Formula2 formula, std::string_view x = "self", std::string_view y = "other") {
  return [=](Call& c) {
    const DType d = c.result_dtype();
    ValueId u = operand(c.b, c.in, x, d), v = operand(c.b, c.in, y, d);
    if (c.b.ok()) c.result(formula(c.b, u, v));
  };
}

// self + alpha * other, self - alpha * other, other - alpha * self.
void linear(Call& c, std::string_view first, std::string_view scaled, bool subtract) {
  const bool one = [&] {
    if (!c.in.given("alpha")) return true;
    Scalar s = c.in.scalar("alpha");
    return s.is_constant() && s.number == 1;
  }();
  const bool wide = !one || !c.in.is_tensor(first) || !c.in.is_tensor(scaled);
  const DType d = wide ? computing_dtype(c) : c.result_dtype();
  ValueId x = operand(c.b, c.in, first, d), y = operand(c.b, c.in, scaled, d);
  if (!one)
    y = d == DType::Bool ? logical_and(c.b, y, literal(c.b, c.in.scalar("alpha"), d))
                         : fx::scaled(c.b, c.in, y, "alpha");
  if (c.b.ok()) give(c, subtract ? sub(c.b, x, y) : sum(c.b, x, y));
}
void translate_add(Call& c) { linear(c, "self", "other", false); }
void translate_sub(Call& c) { linear(c, "self", "other", true); }
void translate_rsub(Call& c) { linear(c, "other", "self", true); }

// Two operands, the second of which divides.
Translate division(Formula2 formula) {
  return [formula](Call& c) {
    const DType d = computing_dtype(c);
    ValueId x = operand(c.b, c.in, "self", d), y = divisor(c, "other", d);
    if (c.b.ok()) give(c, formula(c.b, x, y));
  };
}

Translate remainder(std::string_view record) {
  return [record](Call& c) {
    const DType d = c.result_dtype();
    ValueId x = operand(c.b, c.in, "self", d), y = divisor(c, "other", d);
    if (c.b.ok()) c.result(c.b.op2(record, x, y));
  };
}

void translate_div(Call& c) {
  const std::string mode = c.in.given("rounding_mode") ? c.in.text("rounding_mode") : "";
  if (mode.empty()) return arithmetic([](ops::B& b, ValueId x, ValueId y) { return div(b, x, y); })(c);
  if (mode == "floor") return division(floor_quotient)(c);
  if (mode == "trunc")
    return division([](ops::B& b, ValueId x, ValueId y) {
      ValueId q = div(b, x, y);
      return b.ok() && is_float(b.dtype(q)) ? b.op1("trunc", q) : q;
    })(c);
  c.unsupported("rounding_mode '" + mode + "' is neither 'floor' nor 'trunc'");
}

void translate_pow(Call& c) {
  const DType d = c.result_dtype();
  if (d == DType::Bool) { // only false to the power of true is false
    ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "exponent", d);
    return c.result(logical_or(c.b, x, logical_not(c.b, y)));
  }
  if (!c.in.is_tensor("exponent")) {
    Scalar e = c.in.scalar("exponent");
    if (e.is_constant()) {
      ValueId x = operand(c.b, c.in, "self", compute_dtype(d));
      if (!is_float(d) && e.number < 0) c.unsupported("integers have no negative powers");
      if (!is_float(d) && side_of(e, d) != 0) c.unsupported("an exponent that its dtype does not hold");
      return give(c, constant_power(c.b, x, e.number));
    }
  }
  by_formula([](ops::B& b, ValueId x, ValueId y) { return pow(b, x, y); }, "self", "exponent")(c);
}

// ---- functions of two numbers
ValueId angle_of(ops::B& b, ValueId y, ValueId x) { // atan2
  ValueId ax = abs(b, x), ay = abs(b, y), hi = max(b, ax, ay), lo = min(b, ax, ay);
  // The smaller over the greater one; 0 / 0 is 0 and infinity / infinity is 1.
  ValueId ratio = select(b, eq(b, hi, 0.0), 0.0, select(b, eq(b, lo, INFINITY), 1.0, div(b, lo, hi)));
  ValueId a = b.op1("atan", ratio);
  a = select(b, gt(b, ay, ax), sub(b, b.like(a, M_PI_2), a), a);
  a = select(b, is_negative(b, x), sub(b, b.like(a, M_PI), a), a);
  return with_sign(b, a, is_negative(b, y));
}
ValueId hypotenuse(ops::B& b, ValueId x, ValueId y) {
  ValueId ax = abs(b, x), ay = abs(b, y), hi = max(b, ax, ay), lo = min(b, ax, ay);
  ValueId ratio = div(b, lo, hi), length = mul(b, hi, sqrt(b, add(b, mul(b, ratio, ratio), 1.0)));
  length = select(b, eq(b, hi, 0.0), hi, length);
  ValueId infinite = logical_or(b, b.op1("isinf", x), b.op1("isinf", y)); // even with a NaN
  return select(b, infinite, INFINITY, length);
}
ValueId fmin_of(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok() || !is_float(b.dtype(x))) return least(b, x, y);
  return select(b, b.op1("isnan", x), y, select(b, b.op1("isnan", y), x, min(b, x, y)));
}
ValueId fmax_of(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok() || !is_float(b.dtype(x))) return greatest(b, x, y);
  return select(b, b.op1("isnan", x), y, select(b, b.op1("isnan", y), x, max(b, x, y)));
}
// log(base^x + base^y): the greater one and what the smaller one adds to it.
ValueId log_sum(ops::B& b, ValueId x, ValueId y, double log_base) {
  ValueId gap = neg(b, abs(b, sub(b, x, y)));
  if (log_base != 1) gap = mul(b, gap, log_base);
  ValueId more = b.op1("log1p", exp(b, gap));
  if (log_base != 1) more = mul(b, more, 1 / log_base);
  ValueId top = max(b, x, y);
  return select(b, logical_and(b, b.op1("isinf", x), eq(b, x, y)), x, add(b, top, more));
}
ValueId logaddexp(ops::B& b, ValueId x, ValueId y) { return log_sum(b, x, y, 1); }
ValueId logaddexp2(ops::B& b, ValueId x, ValueId y) { return log_sum(b, x, y, M_LN2); }
// x * f(y), 0 where x is 0, NaN where y is.
ValueId x_times_log(ops::B& b, ValueId x, ValueId y, std::string_view log) {
  ValueId z = select(b, eq(b, x, 0.0), 0.0, mul(b, x, b.op1(log, y)));
  return select(b, b.op1("isnan", y), y, z);
}
ValueId xlogy(ops::B& b, ValueId x, ValueId y) { return x_times_log(b, x, y, "log"); }
ValueId xlog1py(ops::B& b, ValueId x, ValueId y) { return x_times_log(b, x, y, "log1p"); }
// 0 of what is positive, pi of what is negative.
ValueId angle(ops::B& b, ValueId x) { return select(b, lt(b, x, 0.0), M_PI, select(b, b.op1("isnan", x), x, 0.0)); }
ValueId heaviside(ops::B& b, ValueId x, ValueId at_zero) {
  if (b.ok() && b.dtype(x) == DType::Bool) return logical_or(b, x, at_zero);
  return select(b, eq(b, x, 0.0), at_zero, cast(b, gt(b, x, 0.0), b.dtype(x)));
}
ValueId copysign(ops::B& b, ValueId x, ValueId y) { return with_sign(b, x, is_negative(b, y)); }
ValueId times_power_of_two(ops::B& b, ValueId x, ValueId e) { return mul(b, x, b.op1("exp2", e)); }

// The float that is next to x on y's side. Bits of floats of one sign are integers in the order of their magnitudes.
ValueId next_after(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok()) return {};
  const DType d = b.dtype(x), bits = info(d).bits == 64 ? DType::I64 : info(d).bits == 32 ? DType::I32 : DType::I16;
  ValueId away = eq(b, lt(b, x, y), gt(b, x, 0.0)), one = b.scalar_i(bits, 1);
  ValueId near = b.op("BitCast", {x}, {{"to", bits}});
  near = select(b, away, add(b, near, one), sub(b, near, one));
  // From 0 the least float with y's sign.
  ValueId sign = b.scalar_i(bits, static_cast<int64_t>(uint64_t{1} << (info(bits).bits - 1)));
  ValueId least = select(b, lt(b, y, 0.0), logical_or(b, sign, one), one);
  ValueId next = b.op("BitCast", {select(b, eq(b, x, 0.0), least, near)}, {{"to", d}});
  next = select(b, logical_or(b, b.op1("isnan", x), b.op1("isnan", y)), NAN, next);
  return select(b, eq(b, x, y), y, next);
}

// The greatest common divisor, by remainders: of n bits, Fibonacci's numbers need 1.45 n of them.
ValueId gcd(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok()) return {};
  const DType d = b.dtype(x), wide = info(d).bits == 64 ? DType::U64 : DType::U32;
  const bool is_signed = info(d).kind == DTypeKind::Signed;
  auto magnitude = [&](ValueId v) { // of the least integer, too
    return cast(b, is_signed ? abs(b, cast(b, v, info(d).bits == 64 ? DType::I64 : DType::I32)) : v, wide);
  };
  x = magnitude(x);
  y = magnitude(y);
  for (double steps = 1.45 * info(d).bits; steps > 0 && b.ok(); --steps) {
    ValueId rest = b.op2("fmod", x, y); // 0 of a division by 0
    x = select(b, eq(b, y, 0.0), x, y);
    y = rest;
  }
  return cast(b, x, d);
}
ValueId lcm(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok()) return {};
  const DType d = b.dtype(x), wide = info(d).bits < 32 ? DType::I32 : d; // what overflows wraps at the end
  ValueId by = gcd(b, x, y), product = mul(b, div(b, cast(b, x, wide), cast(b, by, wide)), cast(b, y, wide));
  return cast(b, info(wide).kind == DTypeKind::Signed ? abs(b, product) : product, d); // 0 / 0 is 0
}

// ---- functions of one number
ValueId sinc(ops::B& b, ValueId x) {
  ValueId turn = mul(b, x, M_PI);
  return select(b, eq(b, x, 0.0), 1.0, div(b, b.op1("sin", turn), turn));
}

void translate_round_decimals(Call& c) {
  const int64_t decimals = c.in.integer("decimals");
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  if (!is_float(c.b.dtype(x))) return c.result(x);
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  ValueId y = decimals == 0  ? c.b.op1("round", x)
              : decimals > 0 ? div(c.b, c.b.op1("round", mul(c.b, x, scale)), scale)
                             : mul(c.b, c.b.op1("round", div(c.b, x, scale)), scale);
  give(c, y);
}

void translate_logit(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (auto eps = c.in.maybe_number("eps")) x = clamped(c.b, x, *eps, 1 - *eps);
  if (c.b.ok()) give(c, log(c.b, div(c.b, x, sub(c.b, c.b.like(x, 1.0), x))));
}

void translate_nan_to_num(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = operand(c.b, c.in, "self", d);
  if (!c.b.ok() || !is_float(d)) return c.result(x);
  const double top = d == DType::F64    ? 0x1.fffffffffffffp1023
                     : d == DType::F16  ? 65504.0
                     : d == DType::BF16 ? 0x1.fep127
                                        : 0x1.fffffep127;
  const double nan = c.in.maybe_number("nan").value_or(0), high = c.in.maybe_number("posinf").value_or(top),
               low = c.in.maybe_number("neginf").value_or(-top);
  ValueId y = select(c.b, eq(c.b, x, INFINITY), high, select(c.b, eq(c.b, x, -INFINITY), low, x));
  c.result(select(c.b, c.b.op1("isnan", x), nan, y));
}

// ---- predicates: bool of a tensor of any type; integers are finite
Translate predicate(Formula1 of_float, bool of_integer) {
  return [=](Call& c) {
    ValueId x = c.in.tensor("self");
    if (!c.b.ok()) return;
    if (is_float(c.b.dtype(x))) return c.result(of_float(c.b, x));
    c.result(of_integer ? eq(c.b, x, x) : ne(c.b, x, x));
  };
}
void translate_signbit(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  if (is_float(c.b.dtype(x))) return c.result(is_negative(c.b, x));
  c.result(c.b.dtype(x) == DType::Bool ? ne(c.b, x, x) : lt(c.b, x, 0.0));
}

// ---- comparisons: in the common dtype of both
Translate comparison(std::string_view record) {
  return [record](Call& c) {
    DType d = promoted(c.b, c.in, {"self", "other"});
    if (d == DType::Bool) d = DType::U8; // false is less than true
    ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "other", d);
    c.result(c.b.op2(record, x, y));
  };
}

// ---- logic
Translate logic(std::string_view record) {
  return [record](Call& c) {
    ValueId x = operand(c.b, c.in, "self", DType::Bool), y = operand(c.b, c.in, "other", DType::Bool);
    c.result(c.b.op2(record, x, y));
  };
}
void translate_logical_not(Call& c) { c.result(logical_not(c.b, operand(c.b, c.in, "self", DType::Bool))); }
void translate_bitwise_not(Call& c) {
  const DType d = c.result_dtype();
  c.result(c.b.op1(d == DType::Bool ? "not" : "bit_not", operand(c.b, c.in, "self", d)));
}
Translate bitwise(std::string_view record) {
  return [record](Call& c) {
    const DType d = c.result_dtype();
    ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "other", d);
    c.result(c.b.op2(record, x, y));
  };
}

// ---- choices
void translate_where(Call& c) {
  const DType d = c.result_dtype();
  ValueId condition = operand(c.b, c.in, "condition", DType::Bool), x = operand(c.b, c.in, "self", d),
          y = operand(c.b, c.in, "other", d);
  c.result(select(c.b, condition, x, y));
}
void translate_masked_fill(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = operand(c.b, c.in, "self", d), value = exact_operand(c.b, c.in, "value", d),
          mask = operand(c.b, c.in, "mask", DType::Bool);
  c.result(select(c.b, mask, value, x));
}
void translate_clamp(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = operand(c.b, c.in, "self", d);
  const bool low = c.schema().argument("min") && c.in.given("min"),
             high = c.schema().argument("max") && c.in.given("max");
  if (low) x = at_least(c, x, "min");
  if (high) x = at_most(c, x, "max");
  c.result(x);
}

// ---- three operands
ValueId lerp(ops::B& b, ValueId from, ValueId to, ValueId weight) {
  // From whichever end is nearer, so that a weight of 1 yields `to` exactly.
  ValueId gap = sub(b, to, from);
  ValueId near = add(b, from, mul(b, weight, gap));
  ValueId far = sub(b, to, mul(b, gap, sub(b, b.like(weight, 1.0), weight)));
  return select(b, lt(b, abs(b, weight), 0.5), near, far);
}
void translate_lerp(Call& c) {
  const DType d = computing_dtype(c);
  ValueId from = operand(c.b, c.in, "self", d), to = operand(c.b, c.in, "end", d),
          weight = operand(c.b, c.in, "weight", d);
  if (c.b.ok()) give(c, lerp(c.b, from, to, weight));
}
// self + value * tensor1 * tensor2, self + value * tensor1 / tensor2.
void add_scaled(Call& c, bool divide) {
  const DType d = computing_dtype(c);
  ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "tensor1", d), z = operand(c.b, c.in, "tensor2", d);
  if (divide)
    y = div(c.b, scaled(c.b, c.in, y, "value"), z);
  else
    y = mul(c.b, scaled(c.b, c.in, y, "value"), z);
  give(c, add(c.b, x, y));
}
void translate_addcmul(Call& c) { add_scaled(c, false); }
void translate_addcdiv(Call& c) { add_scaled(c, true); }

// ---- tables
struct Named {
  std::string_view names[5]; // as many as there are; the others are empty
  std::string_view record;
};
template <size_t N>
void add_rows(AtenTable& t, const Named (&rows)[N], Translate (*form)(std::string_view record)) {
  for (const Named& row : rows)
    for (std::string_view name : row.names)
      if (!name.empty()) t.add({name}, form(row.record));
}

// ATen operators that are one operator here, of a result's dtype (integers become f32 where the result is).
constexpr Named kOperators[] = {
    {{"abs.default", "absolute.default"}, "abs"},
    {{"neg.default", "negative.default"}, "neg"},
    {{"sqrt.default"}, "sqrt"},
    {{"rsqrt.default"}, "rsqrt"},
    {{"reciprocal.default"}, "reciprocal"},
    {{"exp.default"}, "exp"},
    {{"exp2.default", "special_exp2.default"}, "exp2"},
    {{"expm1.default", "special_expm1.default"}, "expm1"},
    {{"log.default"}, "log"},
    {{"log2.default"}, "log2"},
    {{"log1p.default", "special_log1p.default"}, "log1p"},
    {{"sin.default"}, "sin"},
    {{"cos.default"}, "cos"},
    {{"tan.default"}, "tan"},
    {{"asin.default", "arcsin.default"}, "asin"},
    {{"acos.default", "arccos.default"}, "acos"},
    {{"atan.default", "arctan.default"}, "atan"},
    {{"sinh.default"}, "sinh"},
    {{"cosh.default"}, "cosh"},
    {{"tanh.default"}, "tanh"},
    {{"asinh.default", "arcsinh.default"}, "asinh"},
    {{"acosh.default", "arccosh.default"}, "acosh"},
    {{"atanh.default", "arctanh.default"}, "atanh"},
    {{"erf.default", "special_erf.default"}, "erf"},
    {{"sigmoid.default", "special_expit.default"}, "sigmoid"},
};
constexpr Named kRounding[] = {
    {{"floor.default"}, "floor"},
    {{"ceil.default"}, "ceil"},
    {{"round.default", "special_round.default"}, "round"},
    {{"trunc.default", "fix.default"}, "trunc"},
};
constexpr Named kComparisons[] = {
    {{"eq.Tensor", "eq.Scalar"}, "eq"},
    {{"ne.Tensor", "ne.Scalar", "not_equal.Tensor", "not_equal.Scalar"}, "ne"},
    {{"lt.Tensor", "lt.Scalar", "less.Tensor", "less.Scalar"}, "lt"},
    {{"le.Tensor", "le.Scalar", "less_equal.Tensor", "less_equal.Scalar"}, "le"},
    {{"gt.Tensor", "gt.Scalar", "greater.Tensor", "greater.Scalar"}, "gt"},
    {{"ge.Tensor", "ge.Scalar", "greater_equal.Tensor", "greater_equal.Scalar"}, "ge"},
};
constexpr Named kBits[] = {
    {{"bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_and.Scalar_Tensor", "__and__.Tensor", "__and__.Scalar"},
     "and"},
    {{"bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_or.Scalar_Tensor", "__or__.Tensor", "__or__.Scalar"}, "or"},
    {{"bitwise_xor.Tensor", "bitwise_xor.Scalar", "bitwise_xor.Scalar_Tensor", "__xor__.Tensor", "__xor__.Scalar"},
     "xor"},
    {{"bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "bitwise_left_shift.Scalar_Tensor",
      "__lshift__.Tensor", "__lshift__.Scalar"},
     "shl"},
    {{"bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "bitwise_right_shift.Scalar_Tensor",
      "__rshift__.Tensor", "__rshift__.Scalar"},
     "shr"},
};

void register_unary(AtenTable& t) {
  add_rows(t, kOperators, by_operator);
  add_rows(t, kRounding, by_rounding);
  t.add({"sign.default", "sgn.default"}, [](Call& c) {
    ValueId x = c.in.tensor("self");
    if (!c.b.ok() || c.b.dtype(x) == DType::Bool) return c.result(x);
    ValueId s = c.b.op1("sign", x);
    c.result(is_float(c.b.dtype(x)) ? select(c.b, c.b.op1("isnan", x), 0.0, s) : s); // no number has no sign
  });
  t.add({"round.decimals"}, translate_round_decimals);
  t.add({"logit.default", "special_logit.default"}, translate_logit);
  t.add({"nan_to_num.default"}, translate_nan_to_num);
  t.add({"signbit.default"}, translate_signbit);
  t.add({"log10.default"}, by_formula([](ops::B& b, ValueId x) { return mul(b, b.op1("log2", x), M_LN2 / M_LN10); }));
  t.add({"deg2rad.default"}, by_formula([](ops::B& b, ValueId x) { return mul(b, x, M_PI / 180); }));
  t.add({"rad2deg.default"}, by_formula([](ops::B& b, ValueId x) { return mul(b, x, 180 / M_PI); }));
  t.add({"square.default"}, by_formula([](ops::B& b, ValueId x) { return mul(b, x, x); }));
  t.add({"frac.default"}, by_formula([](ops::B& b, ValueId x) { return sub(b, x, b.op1("trunc", x)); }));
  t.add({"sinc.default", "special_sinc.default"}, by_formula(sinc));
  t.add({"angle.default"}, by_formula(angle));
  t.add({"isnan.default"}, predicate([](ops::B& b, ValueId x) { return b.op1("isnan", x); }, false));
  t.add({"isinf.default"}, predicate([](ops::B& b, ValueId x) { return b.op1("isinf", x); }, false));
  t.add({"isfinite.default"}, predicate([](ops::B& b, ValueId x) { return lt(b, abs(b, x), INFINITY); }, true));
  t.add({"isposinf.default"}, predicate([](ops::B& b, ValueId x) { return eq(b, x, INFINITY); }, false));
  t.add({"isneginf.default"}, predicate([](ops::B& b, ValueId x) { return eq(b, x, -INFINITY); }, false));
  t.add({"isreal.default"},
        predicate([](ops::B& b, ValueId x) { return logical_or(b, eq(b, x, x), ne(b, x, x)); }, true));
}

void register_binary(AtenTable& t) {
  t.add({"add.Tensor", "add.Scalar"}, translate_add);
  t.add({"sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar"}, translate_sub);
  t.add({"rsub.Tensor", "rsub.Scalar"}, translate_rsub);
  t.add({"mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar"}, arithmetic(product));
  t.add({"div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "divide.Tensor", "divide.Scalar",
         "divide.Tensor_mode", "divide.Scalar_mode", "true_divide.Tensor", "true_divide.Scalar"},
        translate_div);
  t.add({"floor_divide.default", "floor_divide.Scalar"}, division(floor_quotient));
  t.add({"remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"}, remainder("mod"));
  t.add({"fmod.Tensor", "fmod.Scalar"}, remainder("fmod"));
  t.add({"pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar", "float_power.Tensor_Tensor",
         "float_power.Tensor_Scalar", "float_power.Scalar"},
        translate_pow);
  t.add({"minimum.default", "min.other"}, in_result_dtype(least));
  t.add({"maximum.default", "max.other"}, in_result_dtype(greatest));
  t.add({"fmin.default"}, in_result_dtype(fmin_of));
  t.add({"fmax.default"}, in_result_dtype(fmax_of));
  t.add({"atan2.default", "arctan2.default"}, by_formula(angle_of));
  t.add({"hypot.default"}, by_formula(hypotenuse));
  t.add({"logaddexp.default"}, by_formula(logaddexp));
  t.add({"logaddexp2.default"}, by_formula(logaddexp2));
  t.add({"xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other", "special_xlogy.default"}, by_formula(xlogy));
  t.add({"special_xlog1py.default", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar"},
        by_formula(xlog1py));
  t.add({"heaviside.default"}, in_result_dtype(heaviside, "self", "values"));
  t.add({"copysign.Tensor", "copysign.Scalar"}, by_formula(copysign));
  t.add({"ldexp.Tensor"}, by_formula(times_power_of_two));
  t.add({"nextafter.default"}, in_result_dtype(next_after));
  t.add({"gcd.default"}, in_result_dtype(gcd));
  t.add({"lcm.default"}, in_result_dtype(lcm));
}

// The number as a bound of x, on one side: invalid if it bounds nothing.
ValueId bound_of(Call& c, ValueId x, std::string_view name, int free_side) {
  if (!c.b.ok()) return {};
  const DType d = c.b.dtype(x);
  if (c.in.is_tensor(name)) return operand(c.b, c.in, name, d);
  const Scalar s = c.in.scalar(name);
  if (const int side = side_of(s, d); side != 0) {
    if (is_integer(d) && side == free_side) return {};
    c.unsupported("a bound that " + std::string(tessera::name(d)) + " does not hold");
  }
  return literal(c.b, s, d);
}

} // namespace

ValueId at_least(Call& c, ValueId x, std::string_view bound) {
  ValueId least_value = bound_of(c, x, bound, -1);
  return least_value.valid() ? greatest(c.b, x, least_value) : x;
}
ValueId at_most(Call& c, ValueId x, std::string_view bound) {
  ValueId greatest_value = bound_of(c, x, bound, 1);
  return greatest_value.valid() ? least(c.b, x, greatest_value) : x;
}

ValueId divisor(Call& c, std::string_view name, DType d) {
  ValueId y = operand(c.b, c.in, name, d);
  if (!c.b.ok() || !is_integer(d)) return y;
  if (!c.in.is_tensor(name)) {
    const Scalar s = c.in.scalar(name);
    if (s.is_constant()) {
      const bool zero = info(d).bits >= 64 ? s.integer == 0 : (s.integer & ((int64_t{1} << info(d).bits) - 1)) == 0;
      if (zero) c.unsupported("an integer division by zero");
      return y;
    }
    if (s.kind == Scalar::Kind::Size && c.b.env().prove(sym_ne(s.size, 0)) == true) return y;
  }
  return c.b.op("require", {y, ne(c.b, y, 0.0)},
                {{"message", std::string("integer division by zero")}, {"host", int64_t{1}}});
}

void register_pointwise(AtenTable& t) {
  register_unary(t);
  register_binary(t);
  register_gamma(t);
  add_rows(t, kComparisons, comparison);
  add_rows(t, kBits, bitwise);
  t.add({"logical_and.default"}, logic("and"));
  t.add({"logical_or.default"}, logic("or"));
  t.add({"logical_xor.default"}, logic("xor"));
  t.add({"logical_not.default"}, translate_logical_not);
  t.add({"bitwise_not.default"}, translate_bitwise_not);
  t.add({"where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"}, translate_where);
  t.add({"masked_fill.Scalar", "masked_fill.Tensor"}, translate_masked_fill);
  t.add({"clamp.default", "clamp.Tensor", "clamp_min.default", "clamp_min.Tensor", "clamp_max.default",
         "clamp_max.Tensor", "clip.default", "clip.Tensor"},
        translate_clamp);
  t.add({"lerp.Tensor", "lerp.Scalar"}, translate_lerp);
  t.add({"addcmul.default"}, translate_addcmul);
  t.add({"addcdiv.default"}, translate_addcdiv);
}

} // namespace tessera::fx
