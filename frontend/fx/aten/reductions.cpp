// Folds over dimensions: sums, extremes, moments, norms. Small floats are folded in f32 and rounded once.
#include "frontend/fx/aten/parts.h"
#include "frontend/fx/aten/pointwise.h"
#include <cmath>
#include <limits>

namespace tessera::fx {
namespace {

using ops::B;

// Dimensions that a call folds: those of `dim`, all where it is left out or empty. A scalar has none.
struct Fold {
  Ints axes;
  bool keep = false;
};
Fold fold_of(Call& c, int rank) {
  Fold f;
  f.axes = c.in.axes("dim", rank);
  f.keep = c.schema().argument("keepdim") != nullptr && c.in.flag("keepdim");
  return f;
}
SymExpr count_of(B& b, ValueId x, const Ints& axes) {
  SymExpr n = 1;
  for (int64_t a : axes) n *= b.dim(x, a);
  return n;
}
ValueId fold(B& b, std::string_view record, ValueId x, const Fold& f) {
  if (!b.ok() || f.axes.empty()) return x;
  if (b.dtype(x) == DType::Bool)
    record = record == "reduce_sum" ? "reduce_any" : record == "reduce_prod" ? "reduce_all" : record;
  return reduce(b, record, x, f.axes, f.keep);
}

// A fold of `self`, converted first by `before`, to the dtype of the result.
using Before = ValueId (*)(B&, ValueId);
Translate folded(std::string_view record, Before before = nullptr) {
  return [=](Call& c) {
    ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
    if (!c.b.ok()) return;
    const Fold f = fold_of(c, c.b.rank(x));
    if (before != nullptr) x = before(c.b, x);
    give(c, fold(c.b, record, x, f));
  };
}
ValueId without_nan(B& b, ValueId x) {
  return b.ok() && is_float(b.dtype(x)) ? select(b, b.op1("isnan", x), 0.0, x) : x;
}

// sum, divided by the number of elements
ValueId mean(B& b, ValueId x, const Fold& f) {
  if (!b.ok()) return {};
  return div(b, fold(b, "reduce_sum", x, f), b.size(count_of(b, x, f.axes), b.dtype(x)));
}
void translate_mean(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  if (!is_float(c.b.dtype(x))) return c.unsupported("the mean of integers: PyTorch takes it of floats alone");
  give(c, mean(c.b, x, fold_of(c, c.b.rank(x))));
}
void translate_nanmean(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  const Fold f = fold_of(c, c.b.rank(x));
  ValueId counted = cast(c.b, logical_not(c.b, c.b.op1("isnan", x)), c.b.dtype(x));
  give(c, div(c.b, fold(c.b, "reduce_sum", without_nan(c.b, x), f), fold(c.b, "reduce_sum", counted, f)));
}

// ---- whether one, or every, element is not zero
Translate truth(std::string_view record) {
  return [record](Call& c) {
    ValueId x = operand(c.b, c.in, "self", DType::Bool);
    if (!c.b.ok()) return;
    give(c, fold(c.b, record, x, fold_of(c, c.b.rank(x)))); // of u8 the result is u8
  };
}
void translate_count_nonzero(Call& c) {
  ValueId x = operand(c.b, c.in, "self", DType::Bool);
  if (!c.b.ok()) return;
  c.result(fold(c.b, "reduce_sum", cast(c.b, x, DType::I64), fold_of(c, c.b.rank(x))));
}

// ---- extremes
ValueId extreme(B& b, ValueId x, const Fold& f, bool greatest) {
  if (!b.ok()) return {};
  if (b.dtype(x) == DType::Bool) return fold(b, greatest ? "reduce_any" : "reduce_all", x, f);
  return fold(b, greatest ? "reduce_max" : "reduce_min", x, f);
}
// Position along the axes of the first extreme; a NaN is one.
ValueId position(B& b, ValueId x, const Fold& f, bool greatest) {
  if (!b.ok()) return {};
  if (f.axes.empty()) return expand(b, b.scalar_i(DType::I64, 0), b.shape(x)); // of a scalar
  if (b.dtype(x) == DType::Bool) x = cast(b, x, DType::U8);
  return b.op(greatest ? "argmax" : "argmin", {x}, {{"axes", f.axes}, {"keepdims", int64_t{f.keep}}});
}
Translate extremes(bool greatest) { // amax, max.default
  return [greatest](Call& c) {
    ValueId x = c.in.tensor("self");
    if (c.b.ok()) c.result(extreme(c.b, x, fold_of(c, c.b.rank(x)), greatest));
  };
}
Translate extremes_along(bool greatest) { // max.dim: the values, and where they were
  return [greatest](Call& c) {
    ValueId x = c.in.tensor("self");
    if (!c.b.ok()) return;
    const Fold f = fold_of(c, c.b.rank(x));
    c.result(extreme(c.b, x, f, greatest));
    c.result(position(c.b, x, f, greatest));
  };
}
Translate positions(bool greatest) { // argmax: over all elements in row-major order where no axis is given
  return [greatest](Call& c) {
    ValueId x = c.in.tensor("self");
    if (c.b.ok()) c.result(position(c.b, x, fold_of(c, c.b.rank(x)), greatest));
  };
}
void translate_aminmax(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  const Fold f = fold_of(c, c.b.rank(x));
  c.result(extreme(c.b, x, f, false));
  c.result(extreme(c.b, x, f, true));
}

// ---- variance: squares of distances to the mean, summed and divided by the number less the correction
struct Moments {
  ValueId mean, variance;
};
Moments moments(Call& c, ValueId x, const Fold& f) {
  B& b = c.b;
  Scalar correction;
  correction.number = 1;
  correction.integer = 1;
  if (c.schema().argument("unbiased")) {
    correction.number = c.in.flag("unbiased") ? 1 : 0;
    correction.integer = c.in.flag("unbiased") ? 1 : 0;
  } else if (c.in.given("correction")) {
    correction = c.in.scalar("correction");
  }
  if (!b.ok()) return {};
  const DType d = b.dtype(x);
  const SymExpr n = count_of(b, x, f.axes);
  ValueId centre = mean(b, x, {f.axes, true}), distance = sub(b, x, centre);
  ValueId sum = fold(b, "reduce_sum", mul(b, distance, distance), f);
  ValueId freedom = max(b, sub(b, b.size(n, d), literal(c.b, correction, d)), 0.0);
  return {f.keep ? centre : squeeze(b, centre, f.axes), div(b, sum, freedom)};
}
Translate variance(bool root, bool with_mean) {
  return [=](Call& c) {
    const DType d = c.result_dtype();
    ValueId x = operand(c.b, c.in, "self", compute_dtype(d));
    if (!c.b.ok()) return;
    if (!is_float(d)) return c.unsupported("the variance of " + std::string(name(d)));
    Moments m = moments(c, x, fold_of(c, c.b.rank(x)));
    c.result(cast(c.b, root ? sqrt(c.b, m.variance) : m.variance, d));
    if (with_mean) c.result(cast(c.b, m.mean, d));
  };
}

// ---- logarithm of the sum of exponentials: the greatest one is taken out, unless it is infinite
void translate_logsumexp(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok()) return;
  B& b = c.b;
  const Fold f = fold_of(c, b.rank(x));
  ValueId top = fold(b, "reduce_max", x, {f.axes, true});
  top = select(b, b.op1("isinf", top), 0.0, top);
  ValueId y = add(b, log(b, fold(b, "reduce_sum", exp(b, sub(b, x, top)), {f.axes, true})), top);
  give(c, f.keep ? y : squeeze(b, y, f.axes));
}

// ---- norms: of order 0 the number of elements that are not zero, of order infinity the greatest magnitude
ValueId norm(B& b, ValueId x, const Fold& f, double order) {
  if (!b.ok()) return {};
  const DType d = b.dtype(x);
  ValueId magnitude = abs(b, x);
  if (order == INFINITY) return fold(b, "reduce_max", magnitude, f);
  if (order == -INFINITY) return fold(b, "reduce_min", magnitude, f);
  if (order == 0) return fold(b, "reduce_sum", cast(b, ne(b, x, 0.0), d), f);
  if (order == 1) return fold(b, "reduce_sum", magnitude, f);
  if (order == 2) return sqrt(b, fold(b, "reduce_sum", mul(b, x, x), f));
  ValueId power = constant_power(b, magnitude, order);
  return constant_power(b, fold(b, "reduce_sum", power, f), 1 / order);
}
Translate norm_of(std::string_view order) {
  return [order](Call& c) {
    ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
    const double p = order.empty() ? 2 : c.in.maybe_number(order).value_or(2);
    if (!c.b.ok()) return;
    Fold f = fold_of(c, c.b.rank(x));
    const SymExpr n = count_of(c.b, x, f.axes);
    // The greatest of nothing is -infinity as a fold; as a norm it is refused, as PyTorch does.
    if (std::isinf(p) && n.is_const(0)) return c.unsupported("a norm of infinite order of no elements");
    give(c, norm(c.b, x, f, p));
  };
}

// Norm of the difference.
void translate_dist(Call& c) {
  const DType d = computing_dtype(c);
  ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "other", d);
  const double p = c.in.number("p");
  if (!c.b.ok()) return;
  ValueId gap = sub(c.b, x, y);
  if (!c.b.ok()) return;
  Fold all;
  for (int k = 0; k < c.b.rank(gap); ++k) all.axes.push_back(k);
  give(c, norm(c.b, gap, all, p));
}

void translate_trace(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  if (!c.b.ok() || c.b.rank(x) != 2) return c.unsupported("the trace of what is no matrix");
  ValueId diagonal = eq(c.b, iota(c.b, {c.b.dim(x, 0), 1}, 0), iota(c.b, {1, c.b.dim(x, 1)}, 1));
  give(c, sum(c.b, select(c.b, diagonal, x, 0.0), {0, 1}, false));
}

// Folds what broadcasting has repeated, back to the sizes given.
void translate_sum_to_size(Call& c) {
  ValueId x = operand(c.b, c.in, "self", computing_dtype(c));
  SymShape to = c.in.sizes("size");
  if (!c.b.ok()) return;
  const SymShape from = c.b.shape(x);
  Ints axes;
  for (size_t k = 0; k < from.size(); ++k) {
    const size_t lead = from.size() - to.size();
    if (k < lead || (to[k - lead].is_const(1) && !from[k].is_const(1))) axes.push_back(static_cast<int64_t>(k));
  }
  ValueId y = axes.empty() ? x : sum(c.b, x, axes, true);
  give(c, reshape(c.b, y, to));
}

// Counts of elements in `bins` intervals of equal length; those outside of [min, max], and NaN, are in none.
void translate_histc(Call& c) {
  ops::B& b = c.b;
  ValueId x = c.in.tensor("self");
  const int64_t bins = c.in.integer("bins");
  const double least = c.in.number("min"), most = c.in.number("max");
  if (!b.ok()) return;
  if (least >= most || bins < 1) return c.unsupported("a histogram without intervals that the call gives");
  const DType stored = b.dtype(x), wide = is_float(stored) ? compute_dtype(stored) : DType::I64;
  x = cast(b, reshape(b, x, {b.type(x).count()}), wide);
  ValueId place = cast(b, div(b, mul(b, sub(b, x, least), static_cast<double>(bins)), most - least), DType::I64);
  const ValueId inside = logical_and(b, ge(b, x, least), le(b, x, most));
  place = select(b, inside, min(b, place, static_cast<double>(bins - 1)), b.scalar_i(DType::I64, -1));
  const ValueId hit = eq(b, unsqueeze(b, place, {0}), iota(b, {bins, 1}, 0));
  c.result(cast(b, sum(b, cast(b, hit, DType::I64), {1}, false), stored));
}

} // namespace

ValueId norm_along(Call& c, ValueId x, int64_t axis, double order) { return norm(c.b, x, {{axis}, true}, order); }

void register_reductions(AtenTable& t) {
  t.add({"histc.default"}, translate_histc);
  t.add({"sum.default", "sum.dim_IntList"}, folded("reduce_sum"));
  t.add({"nansum.default"}, folded("reduce_sum", without_nan));
  t.add({"prod.default", "prod.dim_int"}, folded("reduce_prod"));
  t.add({"mean.default", "mean.dim"}, translate_mean);
  t.add({"nanmean.default"}, translate_nanmean);
  t.add({"any.default", "any.dim", "any.dims"}, truth("reduce_any"));
  t.add({"all.default", "all.dim", "all.dims"}, truth("reduce_all"));
  t.add({"count_nonzero.default", "count_nonzero.dim_IntList"}, translate_count_nonzero);
  t.add({"amax.default", "max.default"}, extremes(true));
  t.add({"amin.default", "min.default"}, extremes(false));
  t.add({"max.dim"}, extremes_along(true));
  t.add({"min.dim"}, extremes_along(false));
  t.add({"argmax.default"}, positions(true));
  t.add({"argmin.default"}, positions(false));
  t.add({"aminmax.default"}, translate_aminmax);
  t.add({"var.default", "var.dim", "var.correction"}, variance(false, false));
  t.add({"std.default", "std.dim", "std.correction"}, variance(true, false));
  t.add({"var_mean.default", "var_mean.dim", "var_mean.correction"}, variance(false, true));
  t.add({"std_mean.default", "std_mean.dim", "std_mean.correction"}, variance(true, true));
  t.add({"logsumexp.default", "special_logsumexp.default"}, translate_logsumexp);
  t.add({"linalg_vector_norm.default"}, norm_of("ord"));
  t.add({"norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype"}, norm_of("p"));
  t.add({"frobenius_norm.dim"}, norm_of(""));
  t.add({"dist.default"}, translate_dist);
  t.add({"trace.default"}, translate_trace);
  t.add({"sum_to_size.default"}, translate_sum_to_size);
}

} // namespace tessera::fx
