// Losses and their gradients. The class of a target is compared with an iota, not used as an index: a target that is
// to be ignored may lie outside of the classes.
#include "frontend/fx/aten/parts.h"

namespace tessera::fx {
namespace {

// ---- classification: scores [C], [N, C] or [N, C, d...]; targets without C
struct Targets {
  ValueId hit;     // bool, as the scores: this is the target's class
  ValueId counted; // bool, 1 for C: the target is not to be ignored
  ValueId weight;  // 1 for C: the target's weight, 0 where it is ignored; in the computing dtype
  int64_t axis = 0;
};

// `checks`: a target that is neither a class nor to be ignored is an error. Gradients rely on their loss's check.
Targets targets_of(Call& c, ValueId scores, ValueId target, ValueId weight, DType wide, bool checks) {
  Targets t;
  if (!c.b.ok()) return t;
  const int rank = c.b.rank(scores);
  if (rank < 1 || c.b.rank(target) != rank - 1) {
    c.b.fail(ErrorCode::ShapeMismatch, "a loss takes scores [N, C, d...] and targets [N, d...], not " +
                                           str(c.b.shape(scores)) + " and " + str(c.b.shape(target)));
    return t;
  }
  t.axis = rank == 1 ? 0 : 1;
  const SymShape shape = c.b.shape(scores);
  SymShape ramp(shape.size(), SymExpr(1));
  ramp[static_cast<size_t>(t.axis)] = shape[static_cast<size_t>(t.axis)];
  ValueId wanted = unsqueeze(c.b, cast(c.b, target, DType::I64), {t.axis});
  t.counted = ne(c.b, wanted, c.b.scalar_i(DType::I64, c.in.integer("ignore_index")));
  if (checks) {
    const SymExpr classes = shape[static_cast<size_t>(t.axis)];
    ValueId is_class = logical_and(c.b, ge(c.b, wanted, 0.0), lt(c.b, wanted, c.b.size(classes, DType::I64)));
    wanted = c.b.op("require", {wanted, logical_or(c.b, is_class, logical_not(c.b, t.counted))},
                    {{"message", std::string("a target is out of bounds")}});
  }
  t.hit = eq(c.b, wanted, iota(c.b, ramp, t.axis));
  if (weight.valid()) {
    ValueId w = reshape(c.b, cast(c.b, weight, wide), ramp);
    t.weight = select(c.b, t.counted, sum(c.b, select(c.b, t.hit, w, 0.0), {t.axis}, true), 0.0);
  } else {
    t.weight = cast(c.b, t.counted, wide);
  }
  return t;
}

ValueId total(Call& c, ValueId v) {
  if (!c.b.ok()) return {};
  const Ints axes = axis_range(0, c.b.rank(v));
  return axes.empty() ? v : sum(c.b, v, axes, false);
}

struct Picked {
  ValueId loss, weight; // total weight of the targets
};
Picked negative_log_likelihood(Call& c, ValueId log_prob, ValueId target, ValueId weight, int64_t reduction) {
  Picked p;
  if (!c.b.ok()) return p;
  const DType wide = c.b.dtype(log_prob);
  Targets t = targets_of(c, log_prob, target, weight, wide, true);
  if (!c.b.ok()) return p;
  ValueId picked = neg(c.b, sum(c.b, select(c.b, t.hit, log_prob, 0.0), {t.axis}, true));
  ValueId each = squeeze(c.b, select(c.b, t.counted, mul(c.b, picked, t.weight), 0.0), {t.axis});
  p.weight = total(c, t.weight);
  p.loss = reduction == 0 ? each : total(c, each);
  if (reduction == 1) p.loss = div(c.b, p.loss, p.weight);
  return p;
}

void translate_nll(Call& c) {
  ValueId x = c.in.tensor("self"), target = c.in.tensor("target"), weight = c.in.maybe("weight");
  const int64_t reduction = c.in.integer("reduction");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  Picked p = negative_log_likelihood(c, widen(c.b, x), target, weight, reduction);
  c.result(cast(c.b, p.loss, d));
  if (c.schema().results.size() < 2) return;
  if (!c.is_used(1)) return c.unused_result();
  // Without a reduction PyTorch has no total.
  c.result(reduction == 0 ? c.b.scalar(c.result_dtype(1), 0) : cast(c.b, p.weight, c.result_dtype(1)));
}

void translate_nll_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), x = c.in.tensor("self"), target = c.in.tensor("target"),
          weight = c.in.maybe("weight"), sum = c.in.tensor("total_weight");
  const int64_t reduction = c.in.integer("reduction");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x), wide = compute_dtype(d);
  Targets t = targets_of(c, x, target, weight, wide, false);
  ValueId g = cast(c.b, grad, wide);
  if (!c.b.ok()) return;
  if (reduction == 0)
    g = unsqueeze(c.b, g, {t.axis});
  else
    g = reshape(c.b, g, SymShape(c.b.shape(x).size(), SymExpr(1)));
  if (reduction == 1) g = div(c.b, g, reshape(c.b, cast(c.b, sum, wide), SymShape(c.b.shape(x).size(), SymExpr(1))));
  ValueId part = neg(c.b, mul(c.b, t.weight, g));
  c.result(cast(c.b, select(c.b, logical_and(c.b, t.hit, t.counted), part, 0.0), d));
}

void translate_cross_entropy(Call& c) {
  ValueId x = c.in.tensor("self"), target = c.in.tensor("target"), weight = c.in.maybe("weight");
  const int64_t reduction = c.in.integer("reduction");
  const double smoothing = c.in.number("label_smoothing");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  const int rank = c.b.rank(x);
  const int64_t axis = rank == 1 ? 0 : 1;
  ValueId wide = widen(c.b, x), log_prob = softmax(c, wide, axis, true);
  if (!c.b.ok()) return;
  const DType w = c.b.dtype(wide);
  const SymExpr classes = c.b.dim(x, axis);
  SymShape ramp(static_cast<size_t>(rank), SymExpr(1));
  ramp[static_cast<size_t>(axis)] = classes;
  ValueId weights = weight.valid() ? reshape(c.b, cast(c.b, weight, w), ramp) : ValueId();
  ValueId each_class = weights.valid() ? mul(c.b, log_prob, weights) : log_prob;
  if (is_float(c.b.dtype(target))) { // probabilities
    ValueId p = cast(c.b, target, w);
    if (smoothing != 0) {
      ValueId rest = div(c.b, c.b.scalar(w, smoothing), c.b.size(classes, w));
      p = add(c.b, mul(c.b, p, 1 - smoothing), rest);
    }
    ValueId loss = neg(c.b, sum(c.b, mul(c.b, each_class, p), {axis}, false));
    return c.result(cast(c.b, reduced_loss(c, loss, reduction), d));
  }
  if (smoothing == 0) {
    Picked p = negative_log_likelihood(c, log_prob, target, weight, reduction);
    return c.result(cast(c.b, p.loss, d));
  }
  Picked p = negative_log_likelihood(c, log_prob, target, weight, reduction);
  Targets t = targets_of(c, x, target, weight, w, false);
  if (!c.b.ok()) return;
  ValueId smooth = neg(c.b, sum(c.b, each_class, {axis}, true));
  smooth = squeeze(c.b, select(c.b, t.counted, smooth, 0.0), {axis});
  if (reduction != 0) smooth = total(c, smooth);
  if (reduction == 1) smooth = div(c.b, smooth, p.weight);
  ValueId share = div(c.b, c.b.scalar(w, smoothing), c.b.size(classes, w));
  c.result(cast(c.b, add(c.b, mul(c.b, p.loss, 1 - smoothing), mul(c.b, smooth, share)), d));
}

// ---- losses of each element: a formula, then the reduction
struct Pair {
  ValueId x, y; // in the computing dtype, broadcast by the formula
  DType stored;
};
Pair pair_of(Call& c) {
  Pair p;
  p.stored = promoted(c.b, c.in, {"self", "target"});
  p.x = operand(c.b, c.in, "self", p.stored);
  p.y = operand(c.b, c.in, "target", p.stored);
  if (!c.b.ok()) return p;
  p.x = widen(c.b, p.x);
  p.y = widen(c.b, p.y);
  return p;
}
void finish(Call& c, ValueId loss, DType stored) {
  c.result(cast(c.b, reduced_loss(c, loss, c.in.integer("reduction")), stored));
}

void translate_mse(Call& c) {
  Pair p = pair_of(c);
  ValueId e = sub(c.b, p.x, p.y);
  finish(c, mul(c.b, e, e), p.stored);
}
void translate_l1(Call& c) {
  Pair p = pair_of(c);
  finish(c, abs(c.b, sub(c.b, p.x, p.y)), p.stored);
}
void translate_smooth_l1(Call& c) {
  Pair p = pair_of(c);
  const double beta = c.in.number("beta");
  ValueId e = abs(c.b, sub(c.b, p.x, p.y));
  if (beta == 0) return finish(c, e, p.stored);
  finish(c, select(c.b, lt(c.b, e, beta), mul(c.b, mul(c.b, e, e), 0.5 / beta), sub(c.b, e, 0.5 * beta)), p.stored);
}
void translate_huber(Call& c) {
  Pair p = pair_of(c);
  const double delta = c.in.number("delta");
  ValueId e = abs(c.b, sub(c.b, p.x, p.y));
  finish(c, select(c.b, le(c.b, e, delta), mul(c.b, mul(c.b, e, e), 0.5), mul(c.b, sub(c.b, e, 0.5 * delta), delta)),
         p.stored);
}
void translate_soft_margin(Call& c) {
  Pair p = pair_of(c);
  finish(c, c.b.op1("Softplus", neg(c.b, mul(c.b, p.x, p.y))), p.stored);
}

ValueId weighted(Call& c, ValueId loss) {
  ValueId w = c.in.maybe("weight");
  return w.valid() && c.b.ok() ? mul(c.b, loss, cast(c.b, w, c.b.dtype(loss))) : loss;
}
// Logarithms are bounded from below by -100.
void translate_bce(Call& c) {
  Pair p = pair_of(c);
  if (!c.b.ok()) return;
  auto share = [&](ValueId v, const char* message) {
    ValueId holds = logical_and(c.b, ge(c.b, v, 0.0), le(c.b, v, 1.0));
    return c.b.op("require", {v, holds}, {{"message", std::string(message)}, {"host", int64_t{1}}});
  };
  p.x = share(p.x, "an input of a binary cross entropy is not between 0 and 1");
  p.y = share(p.y, "a target of a binary cross entropy is not between 0 and 1");
  ValueId one = c.b.like(p.x, 1);
  ValueId yes = max(c.b, log(c.b, p.x), -100.0), no = max(c.b, log(c.b, sub(c.b, one, p.x)), -100.0);
  ValueId loss = sub(c.b, mul(c.b, sub(c.b, p.y, 1.0), no), mul(c.b, p.y, yes));
  finish(c, weighted(c, loss), p.stored);
}
void translate_bce_with_logits(Call& c) {
  Pair p = pair_of(c);
  ValueId positive = c.in.maybe("pos_weight"), one = c.b.like(p.x, 1);
  // softplus(-x) is -log(sigmoid(x)).
  ValueId low = c.b.op1("Softplus", neg(c.b, p.x));
  ValueId loss = mul(c.b, sub(c.b, one, p.y), p.x);
  if (positive.valid() && c.b.ok()) {
    ValueId factor = add(c.b, mul(c.b, sub(c.b, cast(c.b, positive, c.b.dtype(p.x)), 1.0), p.y), 1.0);
    loss = add(c.b, loss, mul(c.b, factor, low));
  } else {
    loss = add(c.b, loss, low);
  }
  finish(c, weighted(c, loss), p.stored);
}
void translate_kl_div(Call& c) {
  Pair p = pair_of(c);
  const bool log_target = c.in.flag("log_target");
  ValueId loss;
  if (log_target) {
    loss = mul(c.b, exp(c.b, p.y), sub(c.b, p.y, p.x));
  } else { // 0 log 0 is 0
    ValueId entropy = select(c.b, eq(c.b, p.y, 0.0), 0.0, mul(c.b, p.y, log(c.b, p.y)));
    loss = sub(c.b, entropy, mul(c.b, p.y, p.x));
  }
  finish(c, loss, p.stored);
}

// ---- their gradients: f(x, y) times the gradient, shared out where the loss is a mean
void element_gradient(Call& c, const std::function<ValueId(const Pair&)>& f) {
  Pair p = pair_of(c);
  ValueId grad = c.in.tensor("grad_output");
  const int64_t reduction = c.in.integer("reduction");
  if (!c.b.ok()) return;
  ValueId g = mul(c.b, cast(c.b, grad, c.b.dtype(p.x)), f(p));
  if (!c.b.ok()) return;
  if (reduction == 1) g = div(c.b, g, c.b.size(c.b.type(g).count(), c.b.dtype(g)));
  c.result(cast(c.b, g, c.result_dtype(0)));
}
void translate_mse_backward(Call& c) {
  element_gradient(c, [&](const Pair& p) { return mul(c.b, sub(c.b, p.x, p.y), 2.0); });
}
void translate_smooth_l1_backward(Call& c) {
  const double beta = c.in.number("beta");
  element_gradient(c, [&](const Pair& p) {
    ValueId e = sub(c.b, p.x, p.y), sign = c.b.op1("sign", e);
    return beta == 0 ? sign : select(c.b, ge(c.b, abs(c.b, e), beta), sign, mul(c.b, e, 1 / beta)); // NaN of NaN
  });
}
void translate_huber_backward(Call& c) {
  const double delta = c.in.number("delta");
  element_gradient(c, [&](const Pair& p) {
    ValueId e = sub(c.b, p.x, p.y);
    return max(c.b, min(c.b, e, delta), -delta);
  });
}
void translate_bce_backward(Call& c) {
  element_gradient(c, [&](const Pair& p) {
    ValueId q = mul(c.b, sub(c.b, c.b.like(p.x, 1), p.x), p.x);
    return weighted(c, div(c.b, sub(c.b, p.x, p.y), max(c.b, q, 1e-12)));
  });
}
void translate_soft_margin_backward(Call& c) {
  element_gradient(c,
                   [&](const Pair& p) { return neg(c.b, mul(c.b, p.y, sigmoid(c.b, neg(c.b, mul(c.b, p.x, p.y))))); });
}

} // namespace

void register_losses(AtenTable& t) {
  t.add({"nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default", "nll_loss_forward.default",
         "nll_loss2d_forward.default"},
        translate_nll);
  t.add({"nll_loss_backward.default", "nll_loss2d_backward.default"}, translate_nll_backward);
  t.add({"cross_entropy_loss.default"}, translate_cross_entropy);
  t.add({"mse_loss.default"}, translate_mse);
  t.add({"l1_loss.default"}, translate_l1);
  t.add({"smooth_l1_loss.default"}, translate_smooth_l1);
  t.add({"huber_loss.default"}, translate_huber);
  t.add({"soft_margin_loss.default"}, translate_soft_margin);
  t.add({"binary_cross_entropy.default"}, translate_bce);
  t.add({"binary_cross_entropy_with_logits.default"}, translate_bce_with_logits);
  t.add({"kl_div.default"}, translate_kl_div);
  t.add({"mse_loss_backward.default"}, translate_mse_backward);
  t.add({"smooth_l1_loss_backward.default"}, translate_smooth_l1_backward);
  t.add({"huber_loss_backward.default"}, translate_huber_backward);
  t.add({"binary_cross_entropy_backward.default"}, translate_bce_backward);
  t.add({"soft_margin_loss_backward.default"}, translate_soft_margin_backward);
}

} // namespace tessera::fx
