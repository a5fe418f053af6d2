// Functions of single elements: arithmetic, functions of one number, comparisons, logic, choices. Activations are in
// activations.cpp.
#include "frontend/fx/aten/pointwise.h"
#include <cmath>

namespace tessera::fx {

// ---- forms
DType computing_dtype(Call& c) { return compute_dtype(c.result_dtype()); }

void give(Call& c, ValueId y) { c.result(c.b.cast(y, c.result_dtype())); }

Translate by_operator(std::string_view record) {
  return [record](Call& c) { c.result(c.b.op1(record, c.operand("self", c.result_dtype()))); };
}

Translate by_rounding(std::string_view record) {
  return [record](Call& c) {
    const DType d = c.result_dtype();
    ValueId x = c.operand("self", d);
    c.result(is_float(d) ? c.b.op1(record, x) : x);
  };
}

Translate by_formula(Formula1 formula) {
  return [formula](Call& c) {
    ValueId x = c.operand("self", computing_dtype(c));
    if (c.b.ok()) give(c, formula(c.b, x));
  };
}

Translate by_formula(Formula2 formula, std::string_view x, std::string_view y) {
  return [=](Call& c) {
    const DType d = computing_dtype(c);
    ValueId u = c.operand(x, d), v = c.operand(y, d);
    if (c.b.ok()) give(c, formula(c.b, u, v));
  };
}

// ---- formulas
ValueId is_negative(ops::B& b, ValueId x) {
  // The reciprocal distinguishes the zeros.
  return b.logical_or(b.lt(x, 0.0), b.logical_and(b.eq(x, 0.0), b.lt(b.op1("reciprocal", x), 0.0)));
}

ValueId with_sign(ops::B& b, ValueId x, ValueId negative) {
  ValueId magnitude = b.abs(x);
  return b.select(negative, b.neg(magnitude), magnitude);
}

ValueId clamped(ops::B& b, ValueId x, double lo, double hi) { return b.min(b.max(x, lo), hi); }

ValueId constant_power(ops::B& b, ValueId base, double exponent) {
  if (!b.ok()) return {};
  const bool real = is_float(b.dtype(base));
  if (exponent == 1) return base;
  if (exponent == 2) return b.mul(base, base);
  if (exponent == 3) return b.mul(b.mul(base, base), base);
  if (real && exponent == 0.5) return b.sqrt(base);
  if (real && exponent == -0.5) return b.rsqrt(base);
  if (real && exponent == -1) return b.op1("reciprocal", base);
  if (real && exponent == -2) return b.op1("reciprocal", b.mul(base, base));
  return b.pow(base, exponent);
}

namespace {

// ---- arithmetic
// Booleans add as "or" and multiply as "and".
ValueId sum(ops::B& b, ValueId x, ValueId y) { return b.dtype(x) == DType::Bool ? b.logical_or(x, y) : b.add(x, y); }
ValueId product(ops::B& b, ValueId x, ValueId y) {
  return b.dtype(x) == DType::Bool ? b.logical_and(x, y) : b.mul(x, y);
}
ValueId least(ops::B& b, ValueId x, ValueId y) { return b.dtype(x) == DType::Bool ? b.logical_and(x, y) : b.min(x, y); }
ValueId greatest(ops::B& b, ValueId x, ValueId y) {
  return b.dtype(x) == DType::Bool ? b.logical_or(x, y) : b.max(x, y);
}

// Two tensors are computed as they are stored; a number is not rounded to f16 or bf16 first.
Translate arithmetic(Formula2 formula) {
  return [formula](Call& c) {
    const bool number = !c.is_tensor("self") || !c.is_tensor("other");
    const DType d = number ? computing_dtype(c) : c.result_dtype();
    ValueId x = c.operand("self", d), y = c.operand("other", d);
    if (c.b.ok()) give(c, formula(c.b, x, y));
  };
}
// Two operands in the dtype of the result, numbers included.
Translate in_result_dtype(Formula2 formula, std::string_view x = "self", std::string_view y = "other") {
  return [=](Call& c) {
    const DType d = c.result_dtype();
    ValueId u = c.operand(x, d), v = c.operand(y, d);
    if (c.b.ok()) c.result(formula(c.b, u, v));
  };
}

// self + alpha * other, self - alpha * other, other - alpha * self.
void linear(Call& c, std::string_view first, std::string_view scaled, bool subtract) {
  const bool one = [&] {
    if (!c.given("alpha")) return true;
    Scalar s = c.scalar("alpha");
    return s.is_constant() && s.number == 1;
  }();
  const bool wide = !one || !c.is_tensor(first) || !c.is_tensor(scaled);
  const DType d = wide ? computing_dtype(c) : c.result_dtype();
  ValueId x = c.operand(first, d), y = c.operand(scaled, d);
  if (!one) y = d == DType::Bool ? c.b.logical_and(y, c.literal(c.scalar("alpha"), d)) : c.scaled(y, "alpha");
  if (c.b.ok()) give(c, subtract ? c.b.sub(x, y) : sum(c.b, x, y));
}
void translate_add(Call& c) { linear(c, "self", "other", false); }
void translate_sub(Call& c) { linear(c, "self", "other", true); }
void translate_rsub(Call& c) { linear(c, "other", "self", true); }

// Floor of a quotient, of integers and of floats: the remainder is taken off first, so that the quotient is exact.
ValueId floor_quotient(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok()) return {};
  if (!is_float(b.dtype(x))) return b.div(b.sub(x, b.op2("mod", x, y)), y);
  ValueId r = b.op2("fmod", x, y), q = b.div(b.sub(x, r), y);
  ValueId crosses = b.logical_and(b.ne(r, 0.0), b.ne(b.lt(r, 0.0), b.lt(y, 0.0)));
  q = b.op1("round", b.select(crosses, b.sub(q, 1.0), q));
  return b.select(b.eq(y, 0.0), b.div(x, y), q);
}

void translate_div(Call& c) {
  const std::string mode = c.given("rounding_mode") ? c.text("rounding_mode") : "";
  if (mode.empty()) return arithmetic([](ops::B& b, ValueId x, ValueId y) { return b.div(x, y); })(c);
  if (mode == "floor") return by_formula(floor_quotient)(c);
  if (mode == "trunc")
    return by_formula([](ops::B& b, ValueId x, ValueId y) {
      ValueId q = b.div(x, y);
      return b.ok() && is_float(b.dtype(q)) ? b.op1("trunc", q) : q;
    })(c);
  c.unsupported("rounding_mode '" + mode + "' is neither 'floor' nor 'trunc'");
}

void translate_pow(Call& c) {
  const DType d = c.result_dtype();
  if (d == DType::Bool) { // only false to the power of true is false
    ValueId x = c.operand("self", d), y = c.operand("exponent", d);
    return c.result(c.b.logical_or(x, c.b.logical_not(y)));
  }
  if (!c.is_tensor("exponent")) {
    Scalar e = c.scalar("exponent");
    if (e.is_constant()) {
      ValueId x = c.operand("self", compute_dtype(d));
      if (!is_float(d) && e.number < 0) c.unsupported("integers have no negative powers");
      return give(c, constant_power(c.b, x, e.number));
    }
  }
  by_formula([](ops::B& b, ValueId x, ValueId y) { return b.pow(x, y); }, "self", "exponent")(c);
}

// ---- functions of two numbers
ValueId angle_of(ops::B& b, ValueId y, ValueId x) { // atan2
  ValueId ax = b.abs(x), ay = b.abs(y), hi = b.max(ax, ay), lo = b.min(ax, ay);
  // The smaller over the greater one; 0 / 0 is 0 and infinity / infinity is 1.
  ValueId ratio = b.select(b.eq(hi, 0.0), 0.0, b.select(b.eq(lo, INFINITY), 1.0, b.div(lo, hi)));
  ValueId a = b.op1("atan", ratio);
  a = b.select(b.gt(ay, ax), b.sub(b.like(a, M_PI_2), a), a);
  a = b.select(is_negative(b, x), b.sub(b.like(a, M_PI), a), a);
  return with_sign(b, a, is_negative(b, y));
}
ValueId hypotenuse(ops::B& b, ValueId x, ValueId y) {
  ValueId ax = b.abs(x), ay = b.abs(y), hi = b.max(ax, ay), lo = b.min(ax, ay);
  ValueId ratio = b.div(lo, hi), length = b.mul(hi, b.sqrt(b.add(b.mul(ratio, ratio), 1.0)));
  length = b.select(b.eq(hi, 0.0), hi, length);
  ValueId infinite = b.logical_or(b.op1("isinf", x), b.op1("isinf", y)); // even with a NaN
  return b.select(infinite, INFINITY, length);
}
ValueId fmin_of(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok() || !is_float(b.dtype(x))) return least(b, x, y);
  return b.select(b.op1("isnan", x), y, b.select(b.op1("isnan", y), x, b.min(x, y)));
}
ValueId fmax_of(ops::B& b, ValueId x, ValueId y) {
  if (!b.ok() || !is_float(b.dtype(x))) return greatest(b, x, y);
  return b.select(b.op1("isnan", x), y, b.select(b.op1("isnan", y), x, b.max(x, y)));
}
// log(base^x + base^y): the greater one and what the smaller one adds to it.
ValueId log_sum(ops::B& b, ValueId x, ValueId y, double log_base) {
  ValueId gap = b.neg(b.abs(b.sub(x, y)));
  if (log_base != 1) gap = b.mul(gap, log_base);
  ValueId more = b.op1("log1p", b.exp(gap));
  if (log_base != 1) more = b.mul(more, 1 / log_base);
  ValueId top = b.max(x, y);
  return b.select(b.logical_and(b.op1("isinf", x), b.eq(x, y)), x, b.add(top, more));
}
ValueId logaddexp(ops::B& b, ValueId x, ValueId y) { return log_sum(b, x, y, 1); }
ValueId logaddexp2(ops::B& b, ValueId x, ValueId y) { return log_sum(b, x, y, M_LN2); }
// x * f(y), 0 where x is 0, NaN where y is.
ValueId x_times_log(ops::B& b, ValueId x, ValueId y, std::string_view log) {
  ValueId z = b.select(b.eq(x, 0.0), 0.0, b.mul(x, b.op1(log, y)));
  return b.select(b.op1("isnan", y), y, z);
}
ValueId xlogy(ops::B& b, ValueId x, ValueId y) { return x_times_log(b, x, y, "log"); }
ValueId xlog1py(ops::B& b, ValueId x, ValueId y) { return x_times_log(b, x, y, "log1p"); }
// 0 of what is positive, pi of what is negative.
ValueId angle(ops::B& b, ValueId x) { return b.select(b.lt(x, 0.0), M_PI, b.select(b.op1("isnan", x), x, 0.0)); }
ValueId heaviside(ops::B& b, ValueId x, ValueId at_zero) {
  if (b.ok() && b.dtype(x) == DType::Bool) return b.logical_or(x, at_zero);
  return b.select(b.eq(x, 0.0), at_zero, b.cast(b.gt(x, 0.0), b.dtype(x)));
}
ValueId copysign(ops::B& b, ValueId x, ValueId y) { return with_sign(b, x, is_negative(b, y)); }
ValueId times_power_of_two(ops::B& b, ValueId x, ValueId e) { return b.mul(x, b.op1("exp2", e)); }

// ---- functions of one number
ValueId sinc(ops::B& b, ValueId x) {
  ValueId turn = b.mul(x, M_PI);
  return b.select(b.eq(x, 0.0), 1.0, b.div(b.op1("sin", turn), turn));
}

void translate_round_decimals(Call& c) {
  const int64_t decimals = c.integer("decimals");
  ValueId x = c.operand("self", computing_dtype(c));
  if (!c.b.ok()) return;
  if (!is_float(c.b.dtype(x))) return c.result(x);
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  ValueId y = decimals == 0  ? c.b.op1("round", x)
              : decimals > 0 ? c.b.div(c.b.op1("round", c.b.mul(x, scale)), scale)
                             : c.b.mul(c.b.op1("round", c.b.div(x, scale)), scale);
  give(c, y);
}

void translate_logit(Call& c) {
  ValueId x = c.operand("self", computing_dtype(c));
  if (auto eps = c.maybe_number("eps")) x = clamped(c.b, x, *eps, 1 - *eps);
  if (c.b.ok()) give(c, c.b.log(c.b.div(x, c.b.sub(c.b.like(x, 1.0), x))));
}

void translate_nan_to_num(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = c.operand("self", d);
  if (!c.b.ok() || !is_float(d)) return c.result(x);
  const double top = d == DType::F64    ? 0x1.fffffffffffffp1023
                     : d == DType::F16  ? 65504.0
                     : d == DType::BF16 ? 0x1.fep127
                                        : 0x1.fffffep127;
  const double nan = c.maybe_number("nan").value_or(0), high = c.maybe_number("posinf").value_or(top),
               low = c.maybe_number("neginf").value_or(-top);
  ValueId y = c.b.select(c.b.eq(x, INFINITY), high, c.b.select(c.b.eq(x, -INFINITY), low, x));
  c.result(c.b.select(c.b.op1("isnan", x), nan, y));
}

// ---- predicates: bool of a tensor of any type; integers are finite
Translate predicate(Formula1 of_float, bool of_integer) {
  return [=](Call& c) {
    ValueId x = c.tensor("self");
    if (!c.b.ok()) return;
    if (is_float(c.b.dtype(x))) return c.result(of_float(c.b, x));
    c.result(of_integer ? c.b.eq(x, x) : c.b.ne(x, x));
  };
}
void translate_signbit(Call& c) {
  ValueId x = c.tensor("self");
  if (!c.b.ok()) return;
  if (is_float(c.b.dtype(x))) return c.result(is_negative(c.b, x));
  c.result(c.b.dtype(x) == DType::Bool ? c.b.ne(x, x) : c.b.lt(x, 0.0));
}

// ---- comparisons: in the common dtype of both
Translate comparison(std::string_view record) {
  return [record](Call& c) {
    DType d = c.promoted({"self", "other"});
    if (d == DType::Bool) d = DType::U8; // false is less than true
    ValueId x = c.operand("self", d), y = c.operand("other", d);
    c.result(c.b.op2(record, x, y));
  };
}

// ---- logic
Translate logic(std::string_view record) {
  return [record](Call& c) {
    ValueId x = c.operand("self", DType::Bool), y = c.operand("other", DType::Bool);
    c.result(c.b.op2(record, x, y));
  };
}
void translate_logical_not(Call& c) { c.result(c.b.logical_not(c.operand("self", DType::Bool))); }
void translate_bitwise_not(Call& c) {
  const DType d = c.result_dtype();
  c.result(c.b.op1(d == DType::Bool ? "not" : "bit_not", c.operand("self", d)));
}
Translate bitwise(std::string_view record) {
  return [record](Call& c) {
    const DType d = c.result_dtype();
    ValueId x = c.operand("self", d), y = c.operand("other", d);
    c.result(c.b.op2(record, x, y));
  };
}

// ---- choices
void translate_where(Call& c) {
  const DType d = c.result_dtype();
  ValueId condition = c.operand("condition", DType::Bool), x = c.operand("self", d), y = c.operand("other", d);
  c.result(c.b.select(condition, x, y));
}
void translate_masked_fill(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = c.operand("self", d), value = c.operand("value", d), mask = c.operand("mask", DType::Bool);
  c.result(c.b.select(mask, value, x));
}
void translate_clamp(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = c.operand("self", d);
  const bool low = c.schema().argument("min") && c.given("min"), high = c.schema().argument("max") && c.given("max");
  if (low) x = greatest(c.b, x, c.operand("min", d));
  if (high) x = least(c.b, x, c.operand("max", d));
  c.result(x);
}

// ---- three operands
ValueId lerp(ops::B& b, ValueId from, ValueId to, ValueId weight) {
  // From whichever end is nearer, so that a weight of 1 yields `to` exactly.
  ValueId gap = b.sub(to, from);
  ValueId near = b.add(from, b.mul(weight, gap));
  ValueId far = b.sub(to, b.mul(gap, b.sub(b.like(weight, 1.0), weight)));
  return b.select(b.lt(b.abs(weight), 0.5), near, far);
}
void translate_lerp(Call& c) {
  const DType d = computing_dtype(c);
  ValueId from = c.operand("self", d), to = c.operand("end", d), weight = c.operand("weight", d);
  if (c.b.ok()) give(c, lerp(c.b, from, to, weight));
}
// self + value * tensor1 * tensor2, self + value * tensor1 / tensor2.
void add_scaled(Call& c, bool divide) {
  const DType d = computing_dtype(c);
  ValueId x = c.operand("self", d), y = c.operand("tensor1", d), z = c.operand("tensor2", d);
  if (divide)
    y = c.b.div(c.scaled(y, "value"), z);
  else
    y = c.b.mul(c.scaled(y, "value"), z);
  give(c, c.b.add(x, y));
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
    ValueId x = c.tensor("self");
    c.result(c.b.dtype(x) == DType::Bool ? x : c.b.op1("sign", x));
  });
  t.add({"round.decimals"}, translate_round_decimals);
  t.add({"logit.default", "special_logit.default"}, translate_logit);
  t.add({"nan_to_num.default"}, translate_nan_to_num);
  t.add({"signbit.default"}, translate_signbit);
  t.add({"log10.default"}, by_formula([](ops::B& b, ValueId x) { return b.mul(b.op1("log2", x), M_LN2 / M_LN10); }));
  t.add({"deg2rad.default"}, by_formula([](ops::B& b, ValueId x) { return b.mul(x, M_PI / 180); }));
  t.add({"rad2deg.default"}, by_formula([](ops::B& b, ValueId x) { return b.mul(x, 180 / M_PI); }));
  t.add({"square.default"}, by_formula([](ops::B& b, ValueId x) { return b.mul(x, x); }));
  t.add({"frac.default"}, by_formula([](ops::B& b, ValueId x) { return b.sub(x, b.op1("trunc", x)); }));
  t.add({"sinc.default", "special_sinc.default"}, by_formula(sinc));
  t.add({"angle.default"}, by_formula(angle));
  t.add({"isnan.default"}, predicate([](ops::B& b, ValueId x) { return b.op1("isnan", x); }, false));
  t.add({"isinf.default"}, predicate([](ops::B& b, ValueId x) { return b.op1("isinf", x); }, false));
  t.add({"isfinite.default"}, predicate([](ops::B& b, ValueId x) { return b.lt(b.abs(x), INFINITY); }, true));
  t.add({"isposinf.default"}, predicate([](ops::B& b, ValueId x) { return b.eq(x, INFINITY); }, false));
  t.add({"isneginf.default"}, predicate([](ops::B& b, ValueId x) { return b.eq(x, -INFINITY); }, false));
  t.add({"isreal.default"}, predicate([](ops::B& b, ValueId x) { return b.logical_or(b.eq(x, x), b.ne(x, x)); }, true));
}

void register_binary(AtenTable& t) {
  t.add({"add.Tensor", "add.Scalar"}, translate_add);
  t.add({"sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar"}, translate_sub);
  t.add({"rsub.Tensor", "rsub.Scalar"}, translate_rsub);
  t.add({"mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar"}, arithmetic(product));
  t.add({"div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "divide.Tensor", "divide.Scalar",
         "divide.Tensor_mode", "divide.Scalar_mode", "true_divide.Tensor", "true_divide.Scalar"},
        translate_div);
  t.add({"floor_divide.default", "floor_divide.Scalar"}, by_formula(floor_quotient));
  auto mod = [](ops::B& b, ValueId x, ValueId y) { return b.op2("mod", x, y); };
  t.add({"remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"}, in_result_dtype(mod));
  auto fmod = [](ops::B& b, ValueId x, ValueId y) { return b.op2("fmod", x, y); };
  t.add({"fmod.Tensor", "fmod.Scalar"}, in_result_dtype(fmod));
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
}

} // namespace

void register_pointwise(AtenTable& t) {
  register_unary(t);
  register_binary(t);
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
