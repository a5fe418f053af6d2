// Taps of Resize as numbers, for the reference and where they are known, and computed by a graph where they are not.
#include "graph/ops/resize.h"
#include "graph/ops/sampling.h"
#include <cmath>

namespace tessera::ops::resizing {

// The input coordinate of output element y.
double source(const Spec& s, const Axis& a, int64_t y) {
  double t = static_cast<double>(y), n = static_cast<double>(a.in), out = a.scale * n;
  if (s.coordinates == "align_corners") return out == 1 ? 0 : t * (n - 1) / (out - 1);
  if (s.coordinates == "asymmetric") return t / a.scale;
  if (s.coordinates == "tf_half_pixel_for_nn") return (t + 0.5) / a.scale;
  if (s.coordinates == "tf_crop_and_resize") {
    double width = (a.roi_end - a.roi_begin) * (n - 1);
    return a.roi_begin * (n - 1) + (out == 1 ? width / 2 : t * width / (out - 1));
  }
  if (s.coordinates == "pytorch_half_pixel" && out == 1) return -0.5;
  double x = (t + 0.5) / a.scale - 0.5;
  if (s.coordinates == "half_pixel_symmetric") x += n / 2 * (1 - static_cast<double>(a.out) / out);
  return x;
}

static double cubic(double x, double a) { // Keys, 1981
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

std::vector<Tap> taps(const Spec& s, const Axis& a, double x) {
  auto clamped = [&](double i) { return static_cast<int64_t>(std::clamp(i, 0.0, static_cast<double>(a.in - 1))); };
  if (s.mode == "nearest") {
    double i = s.nearest == "floor"               ? std::floor(x)
               : s.nearest == "ceil"              ? std::ceil(x)
               : s.nearest == "round_prefer_ceil" ? std::floor(x + 0.5)
                                                  : std::ceil(x - 0.5);
    return {{clamped(i), 1}};
  }
  // base < x <= base + 1: of two neighbours at equal distance the left one counts as the nearer.
  double base = std::ceil(x) - 1, ratio = x - base, shrink = s.antialias ? std::min(a.scale, 1.0) : 1.0;
  double support = s.mode == "linear" ? 1 : 2;
  double first = std::floor(-support / shrink) + 1, last = 1 - first;
  if (last - first > 1e6) last = first + 1e6;
  std::vector<Tap> out;
  double sum = 0;
  for (double k = first; k <= last; ++k) {
    double d = (k - ratio) * shrink, w = s.mode == "linear" ? std::max(0.0, 1 - std::fabs(d)) : cubic(d, s.cubic_a),
           i = base + k;
    if (s.exclude_outside && (i < 0 || i >= static_cast<double>(a.in))) w = 0;
    out.push_back({clamped(i), w});
    sum += w;
  }
  if ((s.antialias || s.exclude_outside) && sum != 0)
    for (Tap& t : out) t.weight /= sum;
  return out;
}

namespace {

// Whether a node gives sizes, not factors.
bool by_sizes(const B& b, const Spec& s) {
  return s.sizes >= 0 && b.has(s.sizes) && !b.dim(b.in(s.sizes), 0).is_const(0);
}

// ---- decomposition. Where sizes and factors are known, taps are constants; else they are computed, vectors along one
// axis. A few taps are gathered, weighted and added singly; those of a kernel that antialiasing widens are a
// dimension, over which a sum runs.

// The taps of one axis: indices and weights [out], or one of each [out, taps] where they are summed over.
struct Taps {
  std::vector<ValueId> index, weight; // no weights: nearest
  bool summed = false;
  ValueId outside; // bool [out]: where the result is the extrapolation value; invalid: nowhere
};

// Along each axis, its size, result and factor; nothing where one of them is not known when compiling.
std::optional<std::vector<Axis>> known_axes(B& b, const Spec& s) {
  SymShape shape = b.shape(b.in(0));
  std::vector<Axis> out(shape.size());
  const Tensor *sizes = nullptr, *roi = nullptr;
  auto constant = [&](int i) -> const Tensor* {
    if (i < 0 || !b.has(i) || b.dim(b.in(i), 0).is_const(0)) return nullptr;
    const Tensor* t = b.graph().constant(b.in(i));
    return t && t->data() ? t : nullptr;
  };
  std::vector<double> scales = s.fixed_scales;
  if (by_sizes(b, s)) {
    sizes = constant(s.sizes);
    if (!sizes || sizes->count() != static_cast<int64_t>(s.axes.size())) return std::nullopt;
  } else if (scales.empty()) {
    const Tensor* t = constant(s.scales);
    if (!t) return std::nullopt;
    scales = to_f64(*t);
  }
  if (s.coordinates == "tf_crop_and_resize") {
    roi = constant(s.roi);
    if (!roi || roi->count() != static_cast<int64_t>(2 * s.axes.size())) return std::nullopt;
  }
  double factor = 0;
  for (size_t i = 0; i < s.axes.size(); ++i) {
    auto axis = static_cast<size_t>(s.axes[i]);
    Axis& a = out[axis];
    const auto k = static_cast<int64_t>(i);
    if (roi) {
      a.roi_begin = roi->get_f64(k);
      a.roi_end = roi->get_f64(k + static_cast<int64_t>(s.axes.size()));
    }
    if (!sizes && scales[i] == 1 && !roi) continue; // whatever its size
    auto in = shape[axis].as_const();
    if (!in || *in < 1) return std::nullopt;
    a.in = *in;
    a.out = sizes ? sizes->get_i64(k) : scaled(*in, scales[i]).const_value();
    a.scale = sizes ? static_cast<double>(a.out) / static_cast<double>(a.in) : scales[i];
    factor = i == 0 ? a.scale : s.policy == "not_larger" ? std::min(factor, a.scale) : std::max(factor, a.scale);
  }
  for (int64_t axis : s.axes) {
    Axis& a = out[static_cast<size_t>(axis)];
    if (sizes && s.policy != "stretch") {
      a.scale = factor;
      a.out = static_cast<int64_t>(std::floor(factor * static_cast<double>(a.in) + 0.5));
    }
    if (a.out < 1 || a.out > (1 << 24)) return std::nullopt;
  }
  return out;
}

Taps known_taps(B& b, const Spec& s, const Axis& a, DType type) {
  std::vector<std::vector<Tap>> all;
  std::vector<int64_t> outside;
  for (int64_t y = 0; y < a.out; ++y) {
    const double at = source(s, a, y);
    all.push_back(taps(s, a, at));
    outside.push_back(at < 0 || at > static_cast<double>(a.in - 1) ? 1 : 0);
  }
  Taps out;
  out.summed = s.antialias;
  const size_t count = all[0].size(), each = out.summed ? count : 1;
  for (size_t first = 0; first < count; first += each) {
    Ints index;
    std::vector<double> weight;
    for (const auto& t : all)
      for (size_t k = first; k < first + each; ++k) {
        index.push_back(t[k].index);
        weight.push_back(t[k].weight);
      }
    Dims dims = out.summed ? Dims{a.out, static_cast<int64_t>(each)} : Dims{a.out};
    out.index.push_back(b.constant(Tensor::of<int64_t>(DType::I64, dims, index)));
    if (s.mode != "nearest") out.weight.push_back(b.constant(Tensor::of<double>(type, dims, weight)));
  }
  if (s.coordinates == "tf_crop_and_resize" && std::count(outside.begin(), outside.end(), 1) > 0)
    out.outside = b.constant(Tensor::of<int64_t>(DType::Bool, {a.out}, outside));
  return out;
}

// An axis whose sizes, factor or region are data. Positions are computed in f64, as where they are known.
struct ComputedAxis {
  SymExpr in, out;
  ValueId scale, roi_begin, roi_end; // f64 scalars
  std::optional<double> known_scale;
};

ValueId source(B& b, const Spec& s, const ComputedAxis& a) {
  ValueId t = ramp(b, a.out, 1, 0, DType::F64), n = b.size(a.in, DType::F64), out = mul(b, a.scale, n);
  ValueId one = eq(b, out, 1.0);
  ValueId last = sub(b, n, 1.0), steps = select(b, one, 1.0, sub(b, out, 1.0)); // 0 is no divisor
  if (s.coordinates == "align_corners") return select(b, one, 0.0, div(b, mul(b, t, last), steps));
  if (s.coordinates == "asymmetric") return div(b, t, a.scale);
  if (s.coordinates == "tf_half_pixel_for_nn") return div(b, add(b, t, 0.5), a.scale);
  if (s.coordinates == "tf_crop_and_resize") {
    ValueId width = mul(b, sub(b, a.roi_end, a.roi_begin), last);
    ValueId moved = select(b, one, mul(b, width, 0.5), div(b, mul(b, t, width), steps));
    return add(b, mul(b, a.roi_begin, last), moved);
  }
  ValueId x = sub(b, div(b, add(b, t, 0.5), a.scale), 0.5);
  if (s.coordinates == "pytorch_half_pixel") return select(b, one, -0.5, x);
  if (s.coordinates == "half_pixel_symmetric") {
    ValueId share = div(b, b.size(a.out, DType::F64), out);
    x = add(b, x, mul(b, mul(b, n, 0.5), sub(b, 1.0, share)));
  }
  return x;
}

// The weight of a tap at a distance.
ValueId tap_weight(B& b, const Spec& s, ValueId distance) {
  ValueId x = abs(b, distance);
  if (s.mode == "linear") return max(b, sub(b, 1.0, x), 0.0);
  const double a = s.cubic_a;
  ValueId near = add(b, mul(b, mul(b, sub(b, mul(b, x, a + 2), a + 3), x), x), 1.0);
  ValueId far = sub(b, mul(b, add(b, mul(b, sub(b, mul(b, x, a), 5 * a), x), 8 * a), x), 4 * a);
  return select(b, le(b, x, 1.0), near, select(b, lt(b, x, 2.0), far, 0.0));
}

Taps computed_taps(B& b, const Spec& s, const ComputedAxis& a, DType type) {
  ValueId x = source(b, s, a), last = sub(b, b.size(a.in, DType::F64), 1.0);
  Taps out;
  auto clamped = [&](ValueId i) { return index(b, clamp(b, i, 0.0, last)); };
  if (s.coordinates == "tf_crop_and_resize") out.outside = logical_or(b, lt(b, x, 0.0), gt(b, x, last));
  if (s.mode == "nearest") {
    out.index = {clamped(s.nearest == "floor"               ? floor(b, x)
                         : s.nearest == "ceil"              ? ceil(b, x)
                         : s.nearest == "round_prefer_ceil" ? floor(b, add(b, x, 0.5))
                                                            : ceil(b, sub(b, x, 0.5)))};
    return out;
  }
  ValueId base = sub(b, ceil(b, x), 1.0), ratio = sub(b, x, base);
  const double support = s.mode == "linear" ? 1 : 2;
  std::vector<ValueId> distances; // of taps, from the first one's neighbour on the left
  ValueId shrink;
  if (s.antialias) {
    shrink = min(b, a.scale, 1.0);
    ValueId first = add(b, floor(b, neg(b, div(b, b.scalar(DType::F64, support), shrink))), 1.0);
    std::vector<SymExpr> count = b.read(index(b, sub(b, 2.0, mul(b, first, 2.0))));
    if (!b.ok()) return out;
    b.check_size(count[0] - 1, "the taps of Resize");
    distances.push_back(add(b, ramp(b, count[0], 2, 1, DType::F64), first));
    base = reshape(b, base, {a.out, 1});
    ratio = reshape(b, ratio, {a.out, 1});
    out.summed = true;
  } else {
    for (double k = 1 - support; k <= support; ++k) distances.push_back(b.scalar(DType::F64, k));
  }
  ValueId sum;
  for (ValueId k : distances) {
    ValueId d = sub(b, k, ratio), i = add(b, base, k);
    ValueId w = tap_weight(b, s, shrink.valid() ? mul(b, d, shrink) : d);
    if (s.exclude_outside) w = select(b, logical_and(b, ge(b, i, 0.0), le(b, i, last)), w, 0.0);
    out.index.push_back(clamped(i));
    out.weight.push_back(w);
    ValueId part = out.summed ? ops::sum(b, w, {1}, true) : w;
    sum = sum.valid() ? add(b, sum, part) : part;
  }
  for (ValueId& w : out.weight) {
    if (s.antialias || s.exclude_outside) w = select(b, eq(b, sum, 0.0), w, div(b, w, sum));
    w = cast(b, w, type);
  }
  return out;
}

ValueId resample(B& b, ValueId x, const Taps& taps, int64_t axis) {
  const auto rank = static_cast<size_t>(b.rank(x)), at = static_cast<size_t>(axis);
  ValueId sum;
  for (size_t k = 0; k < taps.index.size(); ++k) {
    ValueId part = gather(b, x, taps.index[k], axis);
    if (taps.weight.empty()) return part;
    SymShape dims = along(b.dim(taps.index[k], 0), rank, at);
    if (taps.summed) dims.insert(dims.begin() + axis + 1, b.dim(taps.index[k], 1));
    part = mul(b, part, reshape(b, taps.weight[k], dims));
    if (taps.summed) part = ops::sum(b, part, {axis + 1}, false);
    sum = sum.valid() ? add(b, sum, part) : part;
  }
  return sum;
}

// Sizes and factors of every axis in spec order, as sizes or scales give them.
std::vector<ComputedAxis> computed_axes(B& b, const Spec& s) {
  const auto n = static_cast<int64_t>(s.axes.size());
  std::vector<ComputedAxis> out(s.axes.size());
  SymShape in;
  for (int64_t axis : s.axes) in.push_back(b.dim(b.in(0), axis));
  ValueId sizes_in = cast(b, b.dims(in), DType::F64), scales;
  std::vector<SymExpr> sizes;
  std::vector<double> known;
  auto vector_of = [&](int operand) {
    ValueId v = b.in(operand);
    if (b.ok() && b.rank(v) != 1) b.fail(ErrorCode::ShapeMismatch, "sizes and scales of Resize are vectors");
    b.check(b.env().require_equal(b.dim(v, 0), n, "sizes or scales and axes of Resize", b.node().location));
    return cast(b, v, DType::F64);
  };
  if (by_sizes(b, s)) {
    sizes = b.sizes(s.sizes);
    scales = div(b, vector_of(s.sizes), sizes_in);
    if (s.policy != "stretch") {
      ValueId factor = reduce(b, s.policy == "not_larger" ? "reduce_min" : "reduce_max", scales, {0}, false);
      scales = expand(b, factor, {n});
      sizes = b.read(index(b, floor(b, add(b, mul(b, sizes_in, factor), 0.5))));
    }
  } else {
    const Tensor* constant = nullptr;
    if (s.fixed_scales.empty()) {
      scales = vector_of(s.scales);
      constant = b.graph().constant(b.in(s.scales));
    } else {
      scales = b.constant(Tensor::of<double>(DType::F64, {n}, s.fixed_scales));
    }
    known = constant && constant->data() ? to_f64(*constant) : s.fixed_scales;
    for (size_t i = 0; i < known.size() && i < in.size(); ++i) sizes.push_back(scaled(in[i], known[i]));
    if (sizes.size() != in.size()) sizes = b.read(index(b, floor(b, mul(b, sizes_in, scales))));
  }
  ValueId roi;
  if (s.coordinates == "tf_crop_and_resize") {
    if (!b.has(s.roi) || b.rank(b.in(s.roi)) != 1)
      b.fail(ErrorCode::MalformedModel, "tf_crop_and_resize needs the region of interest, a vector");
    b.check(b.env().require_equal(b.dim(b.in(s.roi), 0), 2 * n, "region of interest and axes of Resize",
                                  b.node().location));
    roi = cast(b, b.in(s.roi), DType::F64);
  }
  for (size_t i = 0; i < out.size() && b.ok(); ++i) {
    auto element = [&](ValueId v, int64_t k) { return reshape(b, slice(b, v, 0, k, 1), {}); };
    const auto k = static_cast<int64_t>(i);
    b.check_size(sizes[i], "a size of Resize");
    out[i] = {in[i], sizes[i], element(scales, k), {}, {}, {}};
    if (i < known.size()) out[i].known_scale = known[i];
    if (roi.valid()) {
      out[i].roi_begin = element(roi, k);
      out[i].roi_end = element(roi, k + n);
    }
  }
  return out;
}

// Whether an axis stays as it is: known, or assumed of a size that a call gives. Of [N, C, spatial...], N and C do.
bool unchanged(B& b, const Spec& s, const ComputedAxis& a, int64_t axis) {
  if (s.coordinates == "tf_crop_and_resize") return false;
  const bool batch = axis < 2 && b.rank(b.in(0)) > 2;
  if (by_sizes(b, s)) {
    if (s.policy != "stretch") return false;
    return b.decide(sym_eq(a.out, a.in), batch, "Resize leaves dimension " + std::to_string(axis) + " as it is");
  }
  if (a.known_scale) return *a.known_scale == 1;
  std::vector<SymExpr> one = b.read(cast(b, eq(b, a.scale, 1.0), DType::I64));
  return b.ok() && b.decide(sym_eq(one[0], 1), batch, "a scale of 1 along dimension " + std::to_string(axis));
}

} // namespace

Result<std::vector<ValueId>> decompose(Graph& g, const Node& n) {
  B b(g, n);
  const DType d = b.dtype(b.in(0));
  TESSERA_ASSIGN(Spec s, spec_of(n, b.rank(b.in(0))));
  const bool nearest = s.mode == "nearest";
  ValueId y = nearest ? b.in(0) : is_float(d) ? widen(b, b.in(0)) : cast(b, b.in(0), DType::F64);
  const auto rank = static_cast<size_t>(b.rank(y));
  std::vector<ValueId> outside;
  auto apply = [&](const Taps& taps, int64_t axis) {
    if (!b.ok()) return;
    y = resample(b, y, taps, axis);
    if (taps.outside.valid())
      outside.push_back(reshape(b, taps.outside, along(b.dim(taps.outside, 0), rank, static_cast<size_t>(axis))));
  };
  if (auto axes = known_axes(b, s)) {
    for (size_t i = 0; i < axes->size() && b.ok(); ++i) {
      const Axis& a = (*axes)[i];
      if (a.in != a.out || a.scale != 1 || a.roi_begin != 0 || a.roi_end != 1)
        apply(known_taps(b, s, a, b.dtype(y)), static_cast<int64_t>(i));
    }
  } else {
    const std::vector<ComputedAxis> computed = computed_axes(b, s);
    for (size_t i = 0; i < computed.size() && b.ok(); ++i)
      if (!unchanged(b, s, computed[i], s.axes[i])) apply(computed_taps(b, s, computed[i], b.dtype(y)), s.axes[i]);
  }
  for (ValueId o : outside) y = select(b, o, b.scalar(b.dtype(y), s.extrapolation), y);
  return b.done(is_float(d) || nearest ? cast(b, y, d) : cast(b, index(b, y), d));
}

} // namespace tessera::ops::resizing
