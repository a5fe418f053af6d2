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

Targets targets_of(Call& c, ValueId scores, ValueId target, ValueId weight, DType wide) {
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
  ValueId wanted = c.b.unsqueeze(c.b.cast(target, DType::I64), {t.axis});
  t.hit = c.b.eq(wanted, c.b.iota(ramp, t.axis));
  t.counted = c.b.ne(wanted, c.b.scalar_i(DType::I64, c.integer("ignore_index")));
  if (weight.valid()) {
    ValueId w = c.b.reshape(c.b.cast(weight, wide), ramp);
    t.weight = c.b.select(t.counted, c.b.sum(c.b.select(t.hit, w, 0.0), {t.axis}, true), 0.0);
  } else {
    t.weight = c.b.cast(t.counted, wide);
  }
  return t;
}

ValueId total(Call& c, ValueId v) {
  if (!c.b.ok()) return {};
  const Ints axes = axis_range(0, c.b.rank(v));
  return axes.empty() ? v : c.b.sum(v, axes, false);
}

struct Picked {
  ValueId loss, weight; // total weight of the targets
};
Picked negative_log_likelihood(Call& c, ValueId log_prob, ValueId target, ValueId weight, int64_t reduction) {
  Picked p;
  if (!c.b.ok()) return p;
  const DType wide = c.b.dtype(log_prob);
  Targets t = targets_of(c, log_prob, target, weight, wide);
  if (!c.b.ok()) return p;
  ValueId picked = c.b.neg(c.b.sum(c.b.select(t.hit, log_prob, 0.0), {t.axis}, true));
  ValueId each = c.b.squeeze(c.b.select(t.counted, c.b.mul(picked, t.weight), 0.0), {t.axis});
  p.weight = total(c, t.weight);
  p.loss = reduction == 0 ? each : total(c, each);
  if (reduction == 1) p.loss = c.b.div(p.loss, p.weight);
  return p;
}

void translate_nll(Call& c) {
  ValueId x = c.tensor("self"), target = c.tensor("target"), weight = c.maybe("weight");
  const int64_t reduction = c.integer("reduction");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  Picked p = negative_log_likelihood(c, c.b.widen(x), target, weight, reduction);
  c.result(c.b.cast(p.loss, d));
  if (c.schema().results.size() < 2) return;
  if (!c.is_used(1)) return c.unused_result();
  // Without a reduction PyTorch has no total.
  c.result(reduction == 0 ? c.b.scalar(c.result_dtype(1), 0) : c.b.cast(p.weight, c.result_dtype(1)));
}

void translate_nll_backward(Call& c) {
  ValueId grad = c.tensor("grad_output"), x = c.tensor("self"), target = c.tensor("target"), weight = c.maybe("weight"),
          sum = c.tensor("total_weight");
  const int64_t reduction = c.integer("reduction");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x), wide = compute_dtype(d);
  Targets t = targets_of(c, x, target, weight, wide);
  ValueId g = c.b.cast(grad, wide);
  if (!c.b.ok()) return;
  if (reduction == 0)
    g = c.b.unsqueeze(g, {t.axis});
  else
    g = c.b.reshape(g, SymShape(c.b.shape(x).size(), SymExpr(1)));
  if (reduction == 1) g = c.b.div(g, c.b.reshape(c.b.cast(sum, wide), SymShape(c.b.shape(x).size(), SymExpr(1))));
  ValueId part = c.b.neg(c.b.mul(t.weight, g));
  c.result(c.b.cast(c.b.select(c.b.logical_and(t.hit, t.counted), part, 0.0), d));
}

void translate_cross_entropy(Call& c) {
  ValueId x = c.tensor("self"), target = c.tensor("target"), weight = c.maybe("weight");
  const int64_t reduction = c.integer("reduction");
  const double smoothing = c.number("label_smoothing");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  const int rank = c.b.rank(x);
  const int64_t axis = rank == 1 ? 0 : 1;
  ValueId wide = c.b.widen(x), log_prob = softmax(c, wide, axis, true);
  if (!c.b.ok()) return;
  const DType w = c.b.dtype(wide);
  const SymExpr classes = c.b.dim(x, axis);
  SymShape ramp(static_cast<size_t>(rank), SymExpr(1));
  ramp[static_cast<size_t>(axis)] = classes;
  ValueId weights = weight.valid() ? c.b.reshape(c.b.cast(weight, w), ramp) : ValueId();
  ValueId each_class = weights.valid() ? c.b.mul(log_prob, weights) : log_prob;
  if (is_float(c.b.dtype(target))) { // probabilities
    ValueId p = c.b.cast(target, w);
    if (smoothing != 0) {
      ValueId rest = c.b.div(c.b.scalar(w, smoothing), c.b.size(classes, w));
      p = c.b.add(c.b.mul(p, 1 - smoothing), rest);
    }
    ValueId loss = c.b.neg(c.b.sum(c.b.mul(each_class, p), {axis}, false));
    return c.result(c.b.cast(reduced_loss(c, loss, reduction), d));
  }
  if (smoothing == 0) {
    Picked p = negative_log_likelihood(c, log_prob, target, weight, reduction);
    return c.result(c.b.cast(p.loss, d));
  }
  Picked p = negative_log_likelihood(c, log_prob, target, weight, reduction);
  Targets t = targets_of(c, x, target, weight, w);
  if (!c.b.ok()) return;
  ValueId smooth = c.b.neg(c.b.sum(each_class, {axis}, true));
  smooth = c.b.squeeze(c.b.select(t.counted, smooth, 0.0), {axis});
  if (reduction != 0) smooth = total(c, smooth);
  if (reduction == 1) smooth = c.b.div(smooth, p.weight);
  ValueId share = c.b.div(c.b.scalar(w, smoothing), c.b.size(classes, w));
  c.result(c.b.cast(c.b.add(c.b.mul(p.loss, 1 - smoothing), c.b.mul(smooth, share)), d));
}

// ---- losses of each element: a formula, then the reduction
struct Pair {
  ValueId x, y; // in the computing dtype, broadcast by the formula
  DType stored;
};
Pair pair_of(Call& c) {
  Pair p;
  p.stored = c.promoted({"self", "target"});
  p.x = c.operand("self", p.stored);
  p.y = c.operand("target", p.stored);
  if (!c.b.ok()) return p;
  p.x = c.b.widen(p.x);
  p.y = c.b.widen(p.y);
  return p;
}
void finish(Call& c, ValueId loss, DType stored) {
  c.result(c.b.cast(reduced_loss(c, loss, c.integer("reduction")), stored));
}

void translate_mse(Call& c) {
  Pair p = pair_of(c);
  ValueId e = c.b.sub(p.x, p.y);
  finish(c, c.b.mul(e, e), p.stored);
}
void translate_l1(Call& c) {
  Pair p = pair_of(c);
  finish(c, c.b.abs(c.b.sub(p.x, p.y)), p.stored);
}
void translate_smooth_l1(Call& c) {
  Pair p = pair_of(c);
  const double beta = c.number("beta");
  ValueId e = c.b.abs(c.b.sub(p.x, p.y));
  if (beta == 0) return finish(c, e, p.stored);
  finish(c, c.b.select(c.b.lt(e, beta), c.b.mul(c.b.mul(e, e), 0.5 / beta), c.b.sub(e, 0.5 * beta)), p.stored);
}
void translate_huber(Call& c) {
  Pair p = pair_of(c);
  const double delta = c.number("delta");
  ValueId e = c.b.abs(c.b.sub(p.x, p.y));
  finish(c, c.b.select(c.b.le(e, delta), c.b.mul(c.b.mul(e, e), 0.5), c.b.mul(c.b.sub(e, 0.5 * delta), delta)),
         p.stored);
}
void translate_soft_margin(Call& c) {
  Pair p = pair_of(c);
  finish(c, c.b.op1("Softplus", c.b.neg(c.b.mul(p.x, p.y))), p.stored);
}

ValueId weighted(Call& c, ValueId loss) {
  ValueId w = c.maybe("weight");
  return w.valid() && c.b.ok() ? c.b.mul(loss, c.b.cast(w, c.b.dtype(loss))) : loss;
}
// Logarithms are bounded from below by -100.
void translate_bce(Call& c) {
  Pair p = pair_of(c);
  ValueId one = c.b.like(p.x, 1);
  ValueId yes = c.b.max(c.b.log(p.x), -100.0), no = c.b.max(c.b.log(c.b.sub(one, p.x)), -100.0);
  ValueId loss = c.b.sub(c.b.mul(c.b.sub(p.y, 1.0), no), c.b.mul(p.y, yes));
  finish(c, weighted(c, loss), p.stored);
}
void translate_bce_with_logits(Call& c) {
  Pair p = pair_of(c);
  ValueId positive = c.maybe("pos_weight"), one = c.b.like(p.x, 1);
  // softplus(-x) is -log(sigmoid(x)).
  ValueId low = c.b.op1("Softplus", c.b.neg(p.x));
  ValueId loss = c.b.mul(c.b.sub(one, p.y), p.x);
  if (positive.valid() && c.b.ok()) {
    ValueId factor = c.b.add(c.b.mul(c.b.sub(c.b.cast(positive, c.b.dtype(p.x)), 1.0), p.y), 1.0);
    loss = c.b.add(loss, c.b.mul(factor, low));
  } else {
    loss = c.b.add(loss, low);
  }
  finish(c, weighted(c, loss), p.stored);
}
void translate_kl_div(Call& c) {
  Pair p = pair_of(c);
  const bool log_target = c.flag("log_target");
  ValueId loss;
  if (log_target) {
    loss = c.b.mul(c.b.exp(p.y), c.b.sub(p.y, p.x));
  } else { // 0 log 0 is 0
    ValueId entropy = c.b.select(c.b.eq(p.y, 0.0), 0.0, c.b.mul(p.y, c.b.log(p.y)));
    loss = c.b.sub(entropy, c.b.mul(p.y, p.x));
  }
  finish(c, loss, p.stored);
}

// ---- their gradients: f(x, y) times the gradient, shared out where the loss is a mean
void element_gradient(Call& c, const std::function<ValueId(const Pair&)>& f) {
  Pair p = pair_of(c);
  ValueId grad = c.tensor("grad_output");
  const int64_t reduction = c.integer("reduction");
  if (!c.b.ok()) return;
  ValueId g = c.b.mul(c.b.cast(grad, c.b.dtype(p.x)), f(p));
  if (!c.b.ok()) return;
  if (reduction == 1) g = c.b.div(g, c.b.size(c.b.type(g).count(), c.b.dtype(g)));
  c.result(c.b.cast(g, c.result_dtype(0)));
}
void translate_mse_backward(Call& c) {
  element_gradient(c, [&](const Pair& p) { return c.b.mul(c.b.sub(p.x, p.y), 2.0); });
}
void translate_smooth_l1_backward(Call& c) {
  const double beta = c.number("beta");
  element_gradient(c, [&](const Pair& p) {
    ValueId e = c.b.sub(p.x, p.y), sign = c.b.op1("sign", e);
    return beta == 0 ? sign : c.b.select(c.b.lt(c.b.abs(e), beta), c.b.mul(e, 1 / beta), sign);
  });
}
void translate_huber_backward(Call& c) {
  const double delta = c.number("delta");
  element_gradient(c, [&](const Pair& p) {
    ValueId e = c.b.sub(p.x, p.y);
    return c.b.max(c.b.min(e, delta), -delta);
  });
}
void translate_bce_backward(Call& c) {
  element_gradient(c, [&](const Pair& p) {
    ValueId q = c.b.mul(c.b.sub(c.b.like(p.x, 1), p.x), p.x);
    return weighted(c, c.b.div(c.b.sub(p.x, p.y), c.b.max(q, 1e-12)));
  });
}
void translate_soft_margin_backward(Call& c) {
  element_gradient(c, [&](const Pair& p) { return c.b.neg(c.b.mul(p.y, c.b.sigmoid(c.b.neg(c.b.mul(p.x, p.y))))); });
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
