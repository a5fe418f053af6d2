// Activations and their gradients. Where an operator of graph/ops is the same function, the call becomes that one, so
// that reports name it.
#include "frontend/fx/aten/pointwise.h"
#include <cmath>

namespace tessera::fx {
namespace {

using ops::B;

// The call's own dtype: composites widen by themselves.
ValueId self_of(Call& c) { return operand(c.b, c.in, "self", c.result_dtype()); }

void translate_relu(Call& c) { c.result(c.b.op1("Relu", self_of(c))); }
void translate_relu6(Call& c) { c.result(clamped(c.b, self_of(c), 0, 6)); }
void translate_hardtanh(Call& c) { c.result(at_most(c, at_least(c, self_of(c), "min_val"), "max_val")); }
void translate_leaky_relu(Call& c) {
  c.result(c.b.op("LeakyRelu", {self_of(c)}, {{"alpha", c.in.number("negative_slope")}}));
}

// x > 0 ? scale * x : scale * alpha * expm1(input_scale * x)
ValueId elu(B& b, ValueId x, double alpha, double scale, double input_scale) {
  if (scale == 1 && input_scale == 1) return b.op("Elu", {x}, {{"alpha", alpha}});
  if (input_scale == 1) return b.op("Selu", {x}, {{"alpha", alpha}, {"gamma", scale}});
  ValueId wide = widen(b, x);
  ValueId low = mul(b, b.op1("expm1", mul(b, wide, input_scale)), alpha * scale);
  return cast(b, select(b, gt(b, wide, 0.0), mul(b, wide, scale), low), b.dtype(x));
}
void translate_elu(Call& c) {
  ValueId x = self_of(c);
  const double alpha = c.in.number("alpha"), scale = c.in.number("scale"), input_scale = c.in.number("input_scale");
  if (c.b.ok()) c.result(elu(c.b, x, alpha, scale, input_scale));
}
void translate_celu(Call& c) {
  ValueId x = self_of(c);
  const double alpha = c.in.number("alpha");
  if (c.b.ok()) c.result(elu(c.b, x, alpha, 1, 1 / alpha));
}
void translate_gelu(Call& c) { c.result(c.b.op("Gelu", {self_of(c)}, {{"approximate", c.in.text("approximate")}})); }

void translate_softplus(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  const double beta = c.in.number("beta"), threshold = c.in.number("threshold");
  if (!c.b.ok()) return;
  ValueId scaled = beta == 1 ? x : mul(c.b, x, beta);
  ValueId y = c.b.op1("Softplus", scaled);
  if (beta != 1) y = div(c.b, y, beta);
  // Above the threshold x itself; in f32 that is what the function rounds to anyhow when exp(-threshold) is lost.
  const bool same = c.b.dtype(x) == DType::F32 && std::exp(-threshold) < threshold * 0x1p-26;
  give(c, same ? y : select(c.b, gt(c.b, scaled, threshold), x, y));
}

void translate_threshold(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = operand(c.b, c.in, "self", d), threshold = exact_operand(c.b, c.in, "threshold", d),
          value = exact_operand(c.b, c.in, "value", d);
  c.result(select(c.b, le(c.b, x, threshold), value, x));
}

void translate_prelu(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = operand(c.b, c.in, "self", d), slope = operand(c.b, c.in, "weight", d);
  if (!c.b.ok()) return;
  // One slope, or one of each channel (axis 1); _prelu_kernel's broadcasts already.
  const int rank = c.b.rank(x);
  if (c.schema().name == "aten.prelu.default" && rank >= 2 && c.b.rank(slope) == 1 && !c.b.dim(slope, 0).is_const(1)) {
    SymShape dims(static_cast<size_t>(rank), SymExpr(1));
    dims[1] = c.b.dim(slope, 0);
    slope = reshape(c.b, slope, dims);
  } else if (c.b.rank(slope) > rank) {
    slope = reshape(c.b, slope, {});
  }
  c.result(c.b.op("PRelu", {x, slope}));
}

// Halves of an axis: the first one times the sigmoid of the second.
std::pair<ValueId, ValueId> halves(Call& c, ValueId x) {
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const SymExpr half = c.b.env().simplify(floordiv(c.b.dim(x, axis), 2));
  return {slice(c.b, x, axis, 0, half), slice(c.b, x, axis, half, half)};
}
void translate_glu(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  auto [value, gate] = halves(c, x);
  give(c, mul(c.b, value, sigmoid(c.b, gate)));
}

ValueId log_sigmoid(B& b, ValueId x) { return sub(b, min(b, x, 0.0), b.op1("log1p", exp(b, neg(b, abs(b, x))))); }
// The second result is exp(-|x|), which the gradient may read.
void translate_log_sigmoid_forward(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = operand(c.b, c.in, "self", compute_dtype(d));
  c.result(cast(c.b, log_sigmoid(c.b, x), d));
  if (!c.is_used(1)) return c.unused_result();
  c.result(cast(c.b, exp(c.b, neg(c.b, abs(c.b, x))), d));
}

void translate_shrink(Call& c, bool soft) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  const double lambda = c.in.number("lambd");
  if (!c.b.ok()) return;
  B& b = c.b;
  if (!soft) return give(c, select(b, logical_and(b, ge(b, x, -lambda), le(b, x, lambda)), 0.0, x));
  // NaN stays one: the comparisons are false, and x * 0 is NaN.
  give(c,
       select(b, gt(b, x, lambda), sub(b, x, lambda), select(b, lt(b, x, -lambda), add(b, x, lambda), mul(b, x, 0.0))));
}

// ---- gradients: of the result's gradient `g` and the operand (or the result) `x`
Translate gradient(Formula2 formula, std::string_view x = "self") { return by_formula(formula, "grad_output", x); }

ValueId grad_sigmoid(B& b, ValueId g, ValueId y) { return mul(b, g, mul(b, sub(b, b.like(y, 1.0), y), y)); }
ValueId grad_tanh(B& b, ValueId g, ValueId y) { return mul(b, g, sub(b, b.like(y, 1.0), mul(b, y, y))); }
ValueId grad_silu(B& b, ValueId g, ValueId x) {
  ValueId s = sigmoid(b, x);
  return mul(b, mul(b, g, s), add(b, mul(b, x, sub(b, b.like(s, 1.0), s)), 1.0));
}
ValueId grad_mish(B& b, ValueId g, ValueId x) {
  ValueId t = tanh(b, b.op1("Softplus", x)), s = sigmoid(b, x);
  return mul(b, g, add(b, t, mul(b, mul(b, x, s), sub(b, b.like(t, 1.0), mul(b, t, t)))));
}
ValueId grad_hardswish(B& b, ValueId g, ValueId x) {
  ValueId inside = mul(b, g, add(b, div(b, x, 3.0), 0.5));
  return select(b, le(b, x, -3.0), 0.0, select(b, lt(b, x, 3.0), inside, g));
}
ValueId grad_hardsigmoid(B& b, ValueId g, ValueId x) {
  return select(b, logical_and(b, gt(b, x, -3.0), lt(b, x, 3.0)), mul(b, g, 1.0 / 6), 0.0);
}
ValueId grad_log_sigmoid(B& b, ValueId g, ValueId x) { return mul(b, g, sigmoid(b, neg(b, x))); }

void translate_grad_gelu(Call& c) {
  ValueId g = operand(c.b, c.in, "grad_output", computing_dtype(c)), x = operand(c.b, c.in, "self", computing_dtype(c));
  const std::string how = c.in.text("approximate");
  if (!c.b.ok()) return;
  B& b = c.b;
  ValueId one = b.like(x, 1.0), d;
  if (how == "tanh") {
    const double k = std::sqrt(2 / M_PI), cubic = 0.044715;
    ValueId square = mul(b, x, x), t = tanh(b, mul(b, mul(b, x, add(b, mul(b, square, cubic), 1.0)), k));
    ValueId inner = mul(b, add(b, mul(b, square, 3 * cubic), 1.0), k);
    ValueId left = mul(b, add(b, t, 1.0), 0.5),
            right = mul(b, mul(b, mul(b, x, 0.5), sub(b, one, mul(b, t, t))), inner);
    d = add(b, left, right);
  } else {
    ValueId cdf = mul(b, add(b, erf(b, mul(b, x, M_SQRT1_2)), 1.0), 0.5);
    ValueId pdf = mul(b, exp(b, mul(b, mul(b, x, x), -0.5)), 0.5 * M_2_SQRTPI * M_SQRT1_2);
    d = add(b, cdf, mul(b, x, pdf));
  }
  give(c, mul(b, g, d));
}

void translate_grad_threshold(Call& c) {
  const DType d = c.result_dtype();
  ValueId g = operand(c.b, c.in, "grad_output", d), x = operand(c.b, c.in, "self", d),
          threshold = operand(c.b, c.in, "threshold", d);
  c.result(select(c.b, le(c.b, x, threshold), 0.0, g));
}
void translate_grad_hardtanh(Call& c) {
  const DType d = c.result_dtype();
  ValueId g = operand(c.b, c.in, "grad_output", d), x = operand(c.b, c.in, "self", d);
  const double lo = c.in.number("min_val"), hi = c.in.number("max_val");
  if (c.b.ok()) c.result(select(c.b, logical_or(c.b, le(c.b, x, lo), ge(c.b, x, hi)), 0.0, g));
}
void translate_grad_leaky_relu(Call& c) {
  ValueId g = operand(c.b, c.in, "grad_output", computing_dtype(c)), x = operand(c.b, c.in, "self", computing_dtype(c));
  const double slope = c.in.number("negative_slope");
  if (c.b.ok()) give(c, select(c.b, gt(c.b, x, 0.0), g, mul(c.b, g, slope)));
}
void translate_grad_elu(Call& c) {
  ValueId g = operand(c.b, c.in, "grad_output", computing_dtype(c)),
          x = operand(c.b, c.in, "self_or_result", computing_dtype(c));
  const double alpha = c.in.number("alpha"), scale = c.in.number("scale"), input_scale = c.in.number("input_scale");
  const bool is_result = c.in.flag("is_result");
  if (!c.b.ok()) return;
  B& b = c.b;
  ValueId low = is_result ? mul(b, add(b, x, alpha * scale), input_scale)
                          : mul(b, exp(b, mul(b, x, input_scale)), input_scale * alpha * scale);
  give(c, mul(b, g, select(b, le(b, x, 0.0), low, scale)));
}
void translate_grad_softplus(Call& c) {
  ValueId g = operand(c.b, c.in, "grad_output", computing_dtype(c)), x = operand(c.b, c.in, "self", computing_dtype(c));
  const double beta = c.in.number("beta"), threshold = c.in.number("threshold");
  if (!c.b.ok()) return;
  ValueId scaled = mul(c.b, x, beta);
  give(c, select(c.b, gt(c.b, scaled, threshold), g, mul(c.b, g, sigmoid(c.b, scaled))));
}
void translate_grad_shrink(Call& c) {
  const bool hard = c.schema().name == "aten.hardshrink_backward.default";
  const DType d = c.result_dtype();
  ValueId g = operand(c.b, c.in, hard ? "grad_out" : "grad_output", d), x = operand(c.b, c.in, "self", d);
  const double lambda = c.in.number("lambd");
  if (c.b.ok()) c.result(select(c.b, logical_and(c.b, ge(c.b, x, -lambda), le(c.b, x, lambda)), 0.0, g));
}
void translate_grad_logit(Call& c) {
  ValueId g = operand(c.b, c.in, "grad_output", computing_dtype(c)), x = operand(c.b, c.in, "self", computing_dtype(c));
  auto eps = c.in.maybe_number("eps");
  if (!c.b.ok()) return;
  B& b = c.b;
  ValueId y = div(b, g, mul(b, x, sub(b, b.like(x, 1.0), x)));
  ValueId outside = logical_or(b, lt(b, x, eps.value_or(0)), gt(b, x, 1 - eps.value_or(0)));
  give(c, select(b, outside, eps ? 0.0 : NAN, y));
}
void translate_grad_glu(Call& c) {
  ValueId g = operand(c.b, c.in, "grad_output", computing_dtype(c)), x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  auto [value, gate] = halves(c, x);
  B& b = c.b;
  ValueId s = sigmoid(b, gate), first = mul(b, g, s);
  ValueId second = mul(b, mul(b, mul(b, g, value), s), sub(b, b.like(s, 1.0), s));
  give(c, concat(b, {first, second}, c.in.axis("dim", b.rank(x))));
}
// Gradients of the operand and of the slope, both of the operand's shape.
void translate_grad_prelu(Call& c) {
  const DType d = c.result_dtype(0), wide = compute_dtype(d);
  ValueId g = operand(c.b, c.in, "grad_output", wide), x = operand(c.b, c.in, "self", wide),
          slope = operand(c.b, c.in, "weight", wide);
  c.result(cast(c.b, select(c.b, gt(c.b, x, 0.0), g, mul(c.b, slope, g)), d));
  c.result(cast(c.b, select(c.b, gt(c.b, x, 0.0), 0.0, mul(c.b, x, g)), d));
}

// ---- dropout: the identity outside training; in training it is random and runs elsewhere
void translate_dropout(Call& c) {
  ValueId x = c.in.tensor("input");
  if (c.in.number("p") != 0 && c.in.flag("train")) c.unsupported("dropout in training draws random numbers");
  c.result(x);
}
void translate_native_dropout(Call& c) {
  ValueId x = c.in.tensor("input");
  if (c.in.number("p") != 0 && (!c.in.given("train") || c.in.flag("train")))
    c.unsupported("dropout in training draws random numbers");
  c.result(x);
  c.result(expand(c.b, c.b.scalar_i(DType::Bool, 1), c.b.shape(x)));
}

} // namespace

void register_activations(AtenTable& t) {
  t.add({"relu.default"}, translate_relu);
  t.add({"relu6.default"}, translate_relu6);
  t.add({"hardtanh.default"}, translate_hardtanh);
  t.add({"leaky_relu.default"}, translate_leaky_relu);
  t.add({"elu.default"}, translate_elu);
  t.add({"selu.default"}, [](Call& c) { c.result(c.b.op1("Selu", self_of(c))); });
  t.add({"celu.default"}, translate_celu);
  t.add({"gelu.default"}, translate_gelu);
  t.add({"silu.default"}, [](Call& c) { c.result(c.b.op1("Swish", self_of(c))); });
  t.add({"mish.default"}, [](Call& c) { c.result(c.b.op1("Mish", self_of(c))); });
  t.add({"hardswish.default"}, [](Call& c) { c.result(c.b.op1("HardSwish", self_of(c))); });
  t.add({"hardsigmoid.default"}, [](Call& c) {
    c.result(c.b.op("HardSigmoid", {self_of(c)}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
  });
  t.add({"softplus.default"}, translate_softplus);
  t.add({"threshold.default"}, translate_threshold);
  t.add({"prelu.default", "_prelu_kernel.default"}, translate_prelu);
  t.add({"glu.default"}, translate_glu);
  t.add({"log_sigmoid.default"}, by_formula(log_sigmoid));
  t.add({"log_sigmoid_forward.default"}, translate_log_sigmoid_forward);
  t.add({"hardshrink.default"}, [](Call& c) { translate_shrink(c, false); });
  t.add({"softshrink.default"}, [](Call& c) { translate_shrink(c, true); });

  t.add({"sigmoid_backward.default"}, gradient(grad_sigmoid, "output"));
  t.add({"tanh_backward.default"}, gradient(grad_tanh, "output"));
  t.add({"silu_backward.default"}, gradient(grad_silu));
  t.add({"mish_backward.default"}, gradient(grad_mish));
  t.add({"hardswish_backward.default"}, gradient(grad_hardswish));
  t.add({"hardsigmoid_backward.default"}, gradient(grad_hardsigmoid));
  t.add({"log_sigmoid_backward.default"}, gradient(grad_log_sigmoid));
  t.add({"gelu_backward.default"}, translate_grad_gelu);
  t.add({"threshold_backward.default"}, translate_grad_threshold);
  t.add({"hardtanh_backward.default"}, translate_grad_hardtanh);
  t.add({"leaky_relu_backward.default"}, translate_grad_leaky_relu);
  t.add({"elu_backward.default"}, translate_grad_elu);
  t.add({"softplus_backward.default"}, translate_grad_softplus);
  t.add({"hardshrink_backward.default", "softshrink_backward.default"}, translate_grad_shrink);
  t.add({"logit_backward.default"}, translate_grad_logit);
  t.add({"glu_backward.default"}, translate_grad_glu);
  t.add({"_prelu_kernel_backward.default"}, translate_grad_prelu);

  t.add({"dropout.default", "feature_dropout.default", "alpha_dropout.default", "feature_alpha_dropout.default"},
        translate_dropout);
  t.add({"native_dropout.default"}, translate_native_dropout);
}

} // namespace tessera::fx
