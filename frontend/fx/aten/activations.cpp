// Activations and their gradients. Where an operator of graph/ops is the same function, the call becomes that one, so
// that reports name it.
#include "frontend/fx/aten/pointwise.h"
#include <cmath>

namespace tessera::fx {
namespace {

using ops::B;

// The call's own dtype: composites widen by themselves.
ValueId self_of(Call& c) { return c.operand("self", c.result_dtype()); }

void translate_relu(Call& c) { c.result(c.b.op1("Relu", self_of(c))); }
void translate_relu6(Call& c) { c.result(clamped(c.b, self_of(c), 0, 6)); }
void translate_hardtanh(Call& c) {
  ValueId x = self_of(c);
  const double lo = c.number("min_val"), hi = c.number("max_val");
  c.result(clamped(c.b, x, lo, hi));
}
void translate_leaky_relu(Call& c) {
  c.result(c.b.op("LeakyRelu", {self_of(c)}, {{"alpha", c.number("negative_slope")}}));
}

// x > 0 ? scale * x : scale * alpha * expm1(input_scale * x)
ValueId elu(B& b, ValueId x, double alpha, double scale, double input_scale) {
  if (scale == 1 && input_scale == 1) return b.op("Elu", {x}, {{"alpha", alpha}});
  if (input_scale == 1) return b.op("Selu", {x}, {{"alpha", alpha}, {"gamma", scale}});
  ValueId wide = b.widen(x);
  ValueId low = b.mul(b.op1("expm1", b.mul(wide, input_scale)), alpha * scale);
  return b.cast(b.select(b.gt(wide, 0.0), b.mul(wide, scale), low), b.dtype(x));
}
void translate_elu(Call& c) {
  ValueId x = self_of(c);
  const double alpha = c.number("alpha"), scale = c.number("scale"), input_scale = c.number("input_scale");
  if (c.b.ok()) c.result(elu(c.b, x, alpha, scale, input_scale));
}
void translate_celu(Call& c) {
  ValueId x = self_of(c);
  const double alpha = c.number("alpha");
  if (c.b.ok()) c.result(elu(c.b, x, alpha, 1, 1 / alpha));
}
void translate_gelu(Call& c) { c.result(c.b.op("Gelu", {self_of(c)}, {{"approximate", c.text("approximate")}})); }

void translate_softplus(Call& c) {
  ValueId x = c.operand("self", computing_dtype(c));
  const double beta = c.number("beta"), threshold = c.number("threshold");
  if (!c.b.ok()) return;
  ValueId scaled = beta == 1 ? x : c.b.mul(x, beta);
  ValueId y = c.b.op1("Softplus", scaled);
  if (beta != 1) y = c.b.div(y, beta);
  // Above the threshold x itself; in f32 that is what the function rounds to anyhow when exp(-threshold) is lost.
  const bool same = c.b.dtype(x) == DType::F32 && std::exp(-threshold) < threshold * 0x1p-26;
  give(c, same ? y : c.b.select(c.b.gt(scaled, threshold), x, y));
}

void translate_threshold(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = c.operand("self", d), threshold = c.operand("threshold", d), value = c.operand("value", d);
  c.result(c.b.select(c.b.le(x, threshold), value, x));
}

void translate_prelu(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = c.operand("self", d), slope = c.operand("weight", d);
  if (!c.b.ok()) return;
  // One slope, or one of each channel (axis 1); _prelu_kernel's broadcasts already.
  const int rank = c.b.rank(x);
  if (c.schema().name == "aten.prelu.default" && rank >= 2 && c.b.rank(slope) == 1 && !c.b.dim(slope, 0).is_const(1)) {
    SymShape dims(static_cast<size_t>(rank), SymExpr(1));
    dims[1] = c.b.dim(slope, 0);
    slope = c.b.reshape(slope, dims);
  } else if (c.b.rank(slope) > rank) {
    slope = c.b.reshape(slope, {});
  }
  c.result(c.b.op("PRelu", {x, slope}));
}

// Halves of an axis: the first one times the sigmoid of the second.
std::pair<ValueId, ValueId> halves(Call& c, ValueId x) {
  const int64_t axis = c.axis("dim", c.b.rank(x));
  const SymExpr half = c.b.env().simplify(floordiv(c.b.dim(x, axis), 2));
  return {c.b.slice(x, axis, 0, half), c.b.slice(x, axis, half, half)};
}
void translate_glu(Call& c) {
  ValueId x = c.operand("self", computing_dtype(c));
  if (!c.b.ok()) return;
  auto [value, gate] = halves(c, x);
  give(c, c.b.mul(value, c.b.sigmoid(gate)));
}

ValueId log_sigmoid(B& b, ValueId x) { return b.sub(b.min(x, 0.0), b.op1("log1p", b.exp(b.neg(b.abs(x))))); }
// The second result is exp(-|x|), which the gradient may read.
void translate_log_sigmoid_forward(Call& c) {
  const DType d = c.result_dtype();
  ValueId x = c.operand("self", compute_dtype(d));
  c.result(c.b.cast(log_sigmoid(c.b, x), d));
  if (!c.is_used(1)) return c.unused_result();
  c.result(c.b.cast(c.b.exp(c.b.neg(c.b.abs(x))), d));
}

void translate_shrink(Call& c, bool soft) {
  ValueId x = c.operand("self", computing_dtype(c));
  const double lambda = c.number("lambd");
  if (!c.b.ok()) return;
  B& b = c.b;
  if (!soft) return give(c, b.select(b.logical_and(b.ge(x, -lambda), b.le(x, lambda)), 0.0, x));
  // NaN stays one: the comparisons are false, and x * 0 is NaN.
  give(c, b.select(b.gt(x, lambda), b.sub(x, lambda), b.select(b.lt(x, -lambda), b.add(x, lambda), b.mul(x, 0.0))));
}

// ---- gradients: of the result's gradient `g` and the operand (or the result) `x`
Translate gradient(Formula2 formula, std::string_view x = "self") { return by_formula(formula, "grad_output", x); }

ValueId grad_sigmoid(B& b, ValueId g, ValueId y) { return b.mul(g, b.mul(b.sub(b.like(y, 1.0), y), y)); }
ValueId grad_tanh(B& b, ValueId g, ValueId y) { return b.mul(g, b.sub(b.like(y, 1.0), b.mul(y, y))); }
ValueId grad_silu(B& b, ValueId g, ValueId x) {
  ValueId s = b.sigmoid(x);
  return b.mul(b.mul(g, s), b.add(b.mul(x, b.sub(b.like(s, 1.0), s)), 1.0));
}
ValueId grad_mish(B& b, ValueId g, ValueId x) {
  ValueId t = b.tanh(b.op1("Softplus", x)), s = b.sigmoid(x);
  return b.mul(g, b.add(t, b.mul(b.mul(x, s), b.sub(b.like(t, 1.0), b.mul(t, t)))));
}
ValueId grad_hardswish(B& b, ValueId g, ValueId x) {
  ValueId inside = b.mul(g, b.add(b.div(x, 3.0), 0.5));
  return b.select(b.le(x, -3.0), 0.0, b.select(b.lt(x, 3.0), inside, g));
}
ValueId grad_hardsigmoid(B& b, ValueId g, ValueId x) {
  return b.select(b.logical_and(b.gt(x, -3.0), b.lt(x, 3.0)), b.mul(g, 1.0 / 6), 0.0);
}
ValueId grad_log_sigmoid(B& b, ValueId g, ValueId x) { return b.mul(g, b.sigmoid(b.neg(x))); }

void translate_grad_gelu(Call& c) {
  ValueId g = c.operand("grad_output", computing_dtype(c)), x = c.operand("self", computing_dtype(c));
  const std::string how = c.text("approximate");
  if (!c.b.ok()) return;
  B& b = c.b;
  ValueId one = b.like(x, 1.0), d;
  if (how == "tanh") {
    const double k = std::sqrt(2 / M_PI), cubic = 0.044715;
    ValueId square = b.mul(x, x), t = b.tanh(b.mul(b.mul(x, b.add(b.mul(square, cubic), 1.0)), k));
    ValueId inner = b.mul(b.add(b.mul(square, 3 * cubic), 1.0), k);
    ValueId left = b.mul(b.add(t, 1.0), 0.5), right = b.mul(b.mul(b.mul(x, 0.5), b.sub(one, b.mul(t, t))), inner);
    d = b.add(left, right);
  } else {
    ValueId cdf = b.mul(b.add(b.erf(b.mul(x, M_SQRT1_2)), 1.0), 0.5);
    ValueId pdf = b.mul(b.exp(b.mul(b.mul(x, x), -0.5)), 0.5 * M_2_SQRTPI * M_SQRT1_2);
    d = b.add(cdf, b.mul(x, pdf));
  }
  give(c, b.mul(g, d));
}

void translate_grad_threshold(Call& c) {
  const DType d = c.result_dtype();
  ValueId g = c.operand("grad_output", d), x = c.operand("self", d), threshold = c.operand("threshold", d);
  c.result(c.b.select(c.b.le(x, threshold), 0.0, g));
}
void translate_grad_hardtanh(Call& c) {
  const DType d = c.result_dtype();
  ValueId g = c.operand("grad_output", d), x = c.operand("self", d);
  const double lo = c.number("min_val"), hi = c.number("max_val");
  if (c.b.ok()) c.result(c.b.select(c.b.logical_or(c.b.le(x, lo), c.b.ge(x, hi)), 0.0, g));
}
void translate_grad_leaky_relu(Call& c) {
  ValueId g = c.operand("grad_output", computing_dtype(c)), x = c.operand("self", computing_dtype(c));
  const double slope = c.number("negative_slope");
  if (c.b.ok()) give(c, c.b.select(c.b.gt(x, 0.0), g, c.b.mul(g, slope)));
}
void translate_grad_elu(Call& c) {
  ValueId g = c.operand("grad_output", computing_dtype(c)), x = c.operand("self_or_result", computing_dtype(c));
  const double alpha = c.number("alpha"), scale = c.number("scale"), input_scale = c.number("input_scale");
  const bool is_result = c.flag("is_result");
  if (!c.b.ok()) return;
  B& b = c.b;
  ValueId low = is_result ? b.mul(b.add(x, alpha * scale), input_scale)
                          : b.mul(b.exp(b.mul(x, input_scale)), input_scale * alpha * scale);
  give(c, b.mul(g, b.select(b.le(x, 0.0), low, scale)));
}
void translate_grad_softplus(Call& c) {
  ValueId g = c.operand("grad_output", computing_dtype(c)), x = c.operand("self", computing_dtype(c));
  const double beta = c.number("beta"), threshold = c.number("threshold");
  if (!c.b.ok()) return;
  ValueId scaled = c.b.mul(x, beta);
  give(c, c.b.select(c.b.gt(scaled, threshold), g, c.b.mul(g, c.b.sigmoid(scaled))));
}
void translate_grad_shrink(Call& c) {
  const bool hard = c.schema().name == "aten.hardshrink_backward.default";
  const DType d = c.result_dtype();
  ValueId g = c.operand(hard ? "grad_out" : "grad_output", d), x = c.operand("self", d);
  const double lambda = c.number("lambd");
  if (c.b.ok()) c.result(c.b.select(c.b.logical_and(c.b.ge(x, -lambda), c.b.le(x, lambda)), 0.0, g));
}
void translate_grad_logit(Call& c) {
  ValueId g = c.operand("grad_output", computing_dtype(c)), x = c.operand("self", computing_dtype(c));
  auto eps = c.maybe_number("eps");
  if (!c.b.ok()) return;
  B& b = c.b;
  ValueId y = b.div(g, b.mul(x, b.sub(b.like(x, 1.0), x)));
  ValueId outside = b.logical_or(b.lt(x, eps.value_or(0)), b.gt(x, 1 - eps.value_or(0)));
  give(c, b.select(outside, eps ? 0.0 : NAN, y));
}
void translate_grad_glu(Call& c) {
  ValueId g = c.operand("grad_output", computing_dtype(c)), x = c.operand("self", computing_dtype(c));
  if (!c.b.ok()) return;
  auto [value, gate] = halves(c, x);
  B& b = c.b;
  ValueId s = b.sigmoid(gate), first = b.mul(g, s);
  ValueId second = b.mul(b.mul(b.mul(g, value), s), b.sub(b.like(s, 1.0), s));
  give(c, b.concat({first, second}, c.axis("dim", b.rank(x))));
}
// Gradients of the operand and of the slope, both of the operand's shape.
void translate_grad_prelu(Call& c) {
  const DType d = c.result_dtype(0), wide = compute_dtype(d);
  ValueId g = c.operand("grad_output", wide), x = c.operand("self", wide), slope = c.operand("weight", wide);
  c.result(c.b.cast(c.b.select(c.b.gt(x, 0.0), g, c.b.mul(slope, g)), d));
  c.result(c.b.cast(c.b.select(c.b.gt(x, 0.0), 0.0, c.b.mul(x, g)), d));
}

// ---- dropout: the identity outside training; in training it is random and runs elsewhere
void translate_dropout(Call& c) {
  ValueId x = c.tensor("input");
  if (c.number("p") != 0 && c.flag("train")) c.unsupported("dropout in training draws random numbers");
  c.result(x);
}
void translate_native_dropout(Call& c) {
  ValueId x = c.tensor("input");
  if (c.number("p") != 0 && (!c.given("train") || c.flag("train")))
    c.unsupported("dropout in training draws random numbers");
  c.result(x);
  c.result(c.b.expand(c.b.scalar_i(DType::Bool, 1), c.b.shape(x)));
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
