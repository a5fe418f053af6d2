// Resampling to other sizes (upsample_*), and its gradients.
#include "frontend/fx/aten/parts.h"
#include <cmath>

namespace tessera::fx {
namespace {

// ---- weighted sums of a few elements along an axis, of constant positions and weights
struct Tap {
  int64_t index;
  double weight;
};
using Taps = std::vector<std::vector<Tap>>; // of each element of the result

// Elements of an axis of `in` that each element of `out` is made of. `scale` is the factor that PyTorch was given;
// without one, it follows from the sizes.
struct Axis {
  int64_t in = 1, out = 1;
  std::optional<double> scale;
  bool corners = false;
  [[nodiscard]] double step() const { // from one result to the next, in elements of the input
    if (corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    return scale && *scale > 0 ? 1 / *scale : static_cast<double>(in) / static_cast<double>(out);
  }
};

enum class Mode { Nearest, NearestExact, Linear, Cubic, LinearWide, CubicWide };

double cubic(double x, double a) { // Keys, 1981
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// Fails for sizes that nothing is resampled to, or whose taps are too many to be written out.
bool has_taps(Call& c, const Axis& a) {
  constexpr int64_t kMax = int64_t{1} << 24; // elements of an axis
  const bool sound = a.in > 0 && a.out > 0 && a.in <= kMax && a.out <= kMax && a.step() <= static_cast<double>(kMax);
  if (!sound)
    c.b.fail(ErrorCode::UnsupportedFeature, "resampling from " + std::to_string(a.in) + " to " + std::to_string(a.out) +
                                                " elements; from 1 to " + std::to_string(kMax) + " are supported");
  return sound;
}

Taps taps_of(const Axis& a, Mode mode) {
  Taps all;
  auto inside = [&](int64_t i) { return std::clamp<int64_t>(i, 0, a.in - 1); };
  for (int64_t y = 0; y < a.out; ++y) {
    std::vector<Tap> t;
    const auto at = static_cast<double>(y);
    const double x = a.corners ? at * a.step() : (at + 0.5) * a.step() - 0.5;
    switch (mode) {
    case Mode::Nearest: // PyTorch multiplies in f32
      t = {{inside(static_cast<int64_t>(std::floor(static_cast<float>(y) * static_cast<float>(a.step())))), 1}};
      break;
    case Mode::NearestExact:
      t = {
          {inside(static_cast<int64_t>(std::floor((static_cast<float>(y) + 0.5F) * static_cast<float>(a.step())))), 1}};
      break;
    case Mode::Linear: {
      const double p = std::max(x, 0.0);
      const auto low = static_cast<int64_t>(p);
      const double share = p - static_cast<double>(low);
      t = {{inside(low), 1 - share}, {inside(low + 1), share}};
      break;
    }
    case Mode::Cubic: {
      const auto low = static_cast<int64_t>(std::floor(x));
      for (int64_t k = -1; k <= 2; ++k) t.push_back({inside(low + k), cubic(x - static_cast<double>(low + k), -0.75)});
      break;
    }
    case Mode::LinearWide:
    case Mode::CubicWide: { // kernels as wide as the reduction, cut at the edges and normalized
      const double wide = std::max(a.step(), 1.0), reach = (mode == Mode::LinearWide ? 1 : 2) * wide;
      const double centre = a.step() * (at + 0.5);
      const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - reach + 0.5), 0),
                    last = std::min<int64_t>(static_cast<int64_t>(centre + reach + 0.5), a.in);
      double sum = 0;
      for (int64_t k = first; k < last; ++k) {
        const double d = (static_cast<double>(k) - centre + 0.5) / wide;
        const double w = mode == Mode::LinearWide ? std::max(0.0, 1 - std::fabs(d)) : cubic(d, -0.5);
        t.push_back({k, w});
        sum += w;
      }
      for (Tap& k : t) k.weight /= sum;
      break;
    }
    }
    all.push_back(std::move(t));
  }
  return all;
}

// The taps of the gradient: element p of the input has the taps of all results that read it.
Taps turned(const Taps& taps, int64_t in) {
  Taps back(static_cast<size_t>(in));
  for (size_t y = 0; y < taps.size(); ++y)
    for (const Tap& t : taps[y])
      if (t.weight != 0) back[static_cast<size_t>(t.index)].push_back({static_cast<int64_t>(y), t.weight});
  return back;
}

ValueId apply_taps(Call& c, ValueId x, int64_t axis, const Taps& taps) {
  if (!c.b.ok()) return {};
  size_t most = 1;
  for (const auto& t : taps) most = std::max(most, t.size());
  const auto n = static_cast<int64_t>(taps.size());
  const int rank = c.b.rank(x);
  ValueId sum;
  for (size_t k = 0; k < most && c.b.ok(); ++k) {
    Ints index;
    std::vector<double> weight;
    std::vector<int64_t> has;
    for (const auto& t : taps) {
      has.push_back(k < t.size());
      index.push_back(k < t.size() ? t[k].index : 0);
      weight.push_back(k < t.size() ? t[k].weight : 1); // where there is none, the part is not taken
    }
    auto vector = [&](Tensor t) { return along(c, c.b.constant(std::move(t)), axis, rank); };
    ValueId part = gather(c.b, x, c.b.ints(index), axis);
    auto is_one = [](double w) { return w == 1; };
    if (!std::all_of(weight.begin(), weight.end(), is_one))
      part = mul(c.b, part, vector(Tensor::of<double>(c.b.dtype(x), {n}, weight)));
    if (std::find(has.begin(), has.end(), 0) != has.end())
      part = select(c.b, vector(Tensor::of<int64_t>(DType::Bool, {n}, has)), part, 0.0);
    sum = sum.valid() ? add(c.b, sum, part) : part;
  }
  return sum;
}

// ---- upsample_*
size_t dimensions_of(Call& c) {
  const std::string_view name = c.schema().name;
  const size_t d = name.find("d", name.find_first_of("123"));
  return d == std::string_view::npos ? 1 : static_cast<size_t>(name[d - 1] - '0');
}

std::vector<std::optional<double>> factors(Call& c, size_t n) {
  std::vector<std::optional<double>> out(n);
  if (c.schema().argument("scale_factors")) {
    std::vector<double> given = c.in.numbers("scale_factors");
    for (size_t i = 0; i < n && i < given.size(); ++i) out[i] = given[i];
    return out;
  }
  const std::vector<std::string_view> names = n == 1 ? std::vector<std::string_view>{"scales"}
                                              : n == 2
                                                  ? std::vector<std::string_view>{"scales_h", "scales_w"}
                                                  : std::vector<std::string_view>{"scales_d", "scales_h", "scales_w"};
  for (size_t i = 0; i < n; ++i)
    if (c.schema().argument(names[i])) out[i] = c.in.maybe_number(names[i]);
  return out;
}

// cubic() of distances d from 0 on.
ValueId cubic(Call& c, ValueId d, double a) {
  auto polynomial = [&](double a3, double a2, double a1, double a0) {
    return add(c.b, mul(c.b, add(c.b, mul(c.b, add(c.b, mul(c.b, d, a3), a2), d), a1), d), a0);
  };
  return select(c.b, le(c.b, d, 1.0), polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a));
}

// Along an axis of symbolic sizes: positions and shares are computed from the index, in the type that PyTorch computes
// them in. `weight` is invalid where it is 1.
struct SymbolicTap {
  ValueId index, weight; // of each element of the result
};
std::vector<SymbolicTap> symbolic_taps(Call& c, const SymExpr& in, const SymExpr& out, std::optional<double> scale,
                                       bool corners, Mode mode, DType dtype) {
  const bool nearest = mode == Mode::Nearest || mode == Mode::NearestExact;
  const DType f = !nearest && dtype == DType::F64 ? DType::F64 : DType::F32, i64 = DType::I64;
  ValueId at = cast(c.b, iota(c.b, {out}, 0), f), step;
  if (corners)
    step = div(c.b, c.b.size(in - 1, f), max(c.b, c.b.size(out - 1, f), 1.0));
  else
    step = scale && *scale > 0 ? c.b.scalar(f, 1 / *scale) : div(c.b, c.b.size(in, f), c.b.size(out, f));
  ValueId last = c.b.size(in - 1, i64), zero = c.b.scalar_i(i64, 0);
  auto index = [&](ValueId position) { return max(c.b, min(c.b, cast(c.b, floor(c.b, position), i64), last), zero); };
  if (mode == Mode::Nearest) return {{index(mul(c.b, at, step)), {}}};
  if (mode == Mode::NearestExact) return {{index(mul(c.b, add(c.b, at, 0.5), step)), {}}};
  ValueId p = corners ? mul(c.b, at, step) : sub(c.b, mul(c.b, add(c.b, at, 0.5), step), 0.5);
  if (mode == Mode::Linear) p = max(c.b, p, 0.0);
  // An axis whose size stays the same is copied, whatever factor was given.
  if (!corners && scale && *scale > 0) p = select(c.b, eq(c.b, c.b.size(in, i64), c.b.size(out, i64)), at, p);
  ValueId low = floor(c.b, p);
  std::vector<SymbolicTap> taps;
  for (int k = mode == Mode::Linear ? 0 : -1; k <= (mode == Mode::Linear ? 1 : 2) && c.b.ok(); ++k) {
    ValueId place = add(c.b, low, static_cast<double>(k)), d = abs(c.b, sub(c.b, p, place)), w;
    w = mode == Mode::Linear ? sub(c.b, c.b.like(d, 1), d) : cubic(c, d, -0.75);
    taps.push_back({index(place), w});
  }
  return taps;
}

ValueId weighted(Call& c, ValueId part, const SymbolicTap& tap, int64_t axis) {
  if (!tap.weight.valid() || !c.b.ok()) return part;
  return mul(c.b, part, along(c, cast(c.b, tap.weight, c.b.dtype(part)), axis, c.b.rank(part)));
}

ValueId apply_taps(Call& c, ValueId x, int64_t axis, const std::vector<SymbolicTap>& taps) {
  ValueId sum;
  for (const SymbolicTap& tap : taps) {
    if (!c.b.ok()) return {};
    ValueId part = weighted(c, gather(c.b, x, tap.index, axis), tap, axis);
    sum = sum.valid() ? add(c.b, sum, part) : part;
  }
  return sum;
}

// The gradient of the input: each element of `grad` is added, with its weights, to the elements that it was computed
// from.
ValueId apply_turned(Call& c, ValueId grad, int64_t axis, const SymExpr& in, const std::vector<SymbolicTap>& taps) {
  if (!c.b.ok()) return {};
  Ints first = axis_range(0, c.b.rank(grad)); // the axis in front, and back: a swap is its own inverse
  std::swap(first[0], first[static_cast<size_t>(axis)]);
  SymShape shape = c.b.shape(grad);
  shape[static_cast<size_t>(axis)] = in;
  std::swap(shape[0], shape[static_cast<size_t>(axis)]);
  ValueId sum = zeros(c, c.b.dtype(grad), shape);
  for (const SymbolicTap& tap : taps) {
    if (!c.b.ok()) return {};
    ValueId part = transpose(c.b, weighted(c, grad, tap, axis), first);
    sum = c.b.op("scatter_nd", {sum, unsqueeze(c.b, tap.index, {1}), part}, {{"reduction", std::string("add")}});
  }
  return transpose(c.b, sum, first);
}

// Along an axis of symbolic sizes, kernels as wide as the reduction: those of taps_of(), in y's dtype.
class WideTaps {
public:
  WideTaps(Call& c, SymExpr in, SymExpr out, std::optional<double> scale, bool corners, bool linear, DType dtype)
      : c_(c), b_(c.b), in_(std::move(in)), out_(std::move(out)), linear_(linear), f_(dtype), support_(linear ? 1 : 2) {
    if (!corners && scale && *scale > 0) {
      factor_ = 1 / *scale;
      step_ = b_.scalar(f_, factor_);
    } else {
      above_ = corners ? sym_select(sym_lt(1, out_), in_ - 1, 0) : in_;
      below_ = corners ? sym_max(out_ - 1, 1) : out_;
      step_ = div(b_, b_.size(above_, f_), b_.size(below_, f_));
    }
    wide_ = max(b_, step_, 1.0);
    reach_ = mul(b_, wide_, static_cast<double>(support_));
    ValueId y = cast(b_, iota(b_, {out_}, 0), f_);
    centre_ = mul(b_, add(b_, y, 0.5), step_);
    auto whole = [&](ValueId x) { return cast(b_, add(b_, x, 0.5), DType::I64); };
    first_ = max(b_, whole(sub(b_, centre_, reach_)), number(0));
    last_ = min(b_, whole(add(b_, centre_, reach_)), number(in_));
    // [out, most]: the elements of a kernel, and their weights, which add up to 1.
    const SymExpr most = at_most(2 * support_, above_, below_, factor_) + 1;
    at_ = add(b_, unsqueeze(b_, first_, {1}), iota(b_, {1, b_.env().simplify(most)}, 1));
    has_ = lt(b_, at_, unsqueeze(b_, last_, {1}));
    ValueId w = weight(at_, unsqueeze(b_, centre_, {1}));
    w = select(b_, has_, w, 0.0);
    total_ = sum(b_, w, {1}, false);
    weight_ = div(b_, w, unsqueeze(b_, total_, {1}));
  }

  // x resampled along the axis.
  [[nodiscard]] ValueId apply(ValueId x, int64_t axis) {
    return folded(x, axis, min(b_, at_, number(in_ - 1)), has_, weight_);
  }

  // The gradient of the input: an element adds up the results whose kernels may have it.
  [[nodiscard]] ValueId turned(ValueId grad, int64_t axis) {
    ValueId p = iota(b_, {in_, 1}, 0), middle = add(b_, cast(b_, p, f_), 0.5);
    ValueId first = div(b_, sub(b_, middle, add(b_, reach_, 1.0)), step_);
    first = max(b_, cast(b_, floor(b_, sub(b_, first, 0.5)), DType::I64), number(0));
    const SymExpr most = at_most(2 * support_ + 2, below_, above_, factor_ > 0 ? 1 / factor_ : 0) + 3;
    ValueId y = add(b_, first, iota(b_, {1, b_.env().simplify(most)}, 1)), inside = lt(b_, y, number(out_));
    y = min(b_, y, number(out_ - 1));
    auto of_kernel = [&](ValueId v) { return gather(b_, v, y, 0); };
    ValueId has = logical_and(b_, le(b_, of_kernel(first_), p), lt(b_, p, of_kernel(last_)));
    ValueId w = div(b_, weight(p, of_kernel(centre_)), of_kernel(total_));
    return folded(grad, axis, y, logical_and(b_, inside, has), w);
  }

private:
  ValueId number(const SymExpr& e) { return b_.size(e, DType::I64); }
  // At least n * max(above / below, 1), which is n * max(factor, 1) where a factor was given.
  static SymExpr at_most(int64_t n, const SymExpr& above, const SymExpr& below, double factor) {
    if (factor > 0) return static_cast<int64_t>(std::ceil(static_cast<double>(n) * std::max(factor, 1.0)));
    return sym_max(ceildiv(above * n, below), n);
  }
  ValueId weight(ValueId at, ValueId centre) {
    ValueId d = div(b_, add(b_, sub(b_, cast(b_, at, f_), centre), 0.5), wide_);
    d = abs(b_, d);
    return linear_ ? max(b_, sub(b_, b_.like(d, 1), d), 0.0) : select(b_, lt(b_, d, 2.0), cubic(c_, d, -0.5), 0.0);
  }
  ValueId folded(ValueId x, int64_t axis, ValueId at, ValueId has, ValueId weights) {
    if (!b_.ok()) return {};
    SymShape shape(static_cast<size_t>(b_.rank(x)) + 1, SymExpr(1));
    shape[static_cast<size_t>(axis)] = b_.dim(at, 0);
    shape[static_cast<size_t>(axis) + 1] = b_.dim(at, 1);
    ValueId part = select(b_, reshape(b_, has, shape), gather(b_, x, at, axis), 0.0);
    return sum(b_, mul(b_, part, reshape(b_, weights, shape)), {axis + 1}, false);
  }

  Call& c_;
  ops::B& b_;
  SymExpr in_, out_, above_, below_; // step: above_ / below_, or the factor
  double factor_ = 0;
  bool linear_;
  DType f_;
  int64_t support_;
  ValueId step_, wide_, reach_, centre_, first_, last_, at_, has_, total_, weight_;
};

template <Mode kMode>
void translate_upsample(Call& c) {
  ValueId x = c.in.tensor(c.schema().argument("self") ? "self" : "input");
  const size_t n = dimensions_of(c);
  const bool corners = c.schema().argument("align_corners") && c.in.flag("align_corners");
  const auto scales = factors(c, n);
  if (!c.b.ok()) return;
  const SymShape shape = c.b.shape(x), wanted = c.result_shape(0);
  if (!c.b.ok()) return;
  if (shape.size() != n + 2 || wanted.size() != n + 2)
    return c.b.fail(ErrorCode::ShapeMismatch, "resampling takes [N, C, spatial...], not " + str(shape));
  const DType d = c.b.dtype(x);
  bool constant = true;
  for (size_t i = 2; i < shape.size(); ++i) constant = constant && shape[i].is_const() && wanted[i].is_const();
  const bool nearest = kMode == Mode::Nearest || kMode == Mode::NearestExact;
  const bool scaled = std::any_of(scales.begin(), scales.end(), [](const auto& s) { return s.has_value(); });
  if (constant && (kMode == Mode::Linear || kMode == Mode::Cubic) && (corners || !scaled) && is_float(d)) {
    return c.result(
        c.b.op("Resize", {x, ValueId(), ValueId(), c.b.dims(wanted)},
               {{"mode", std::string(kMode == Mode::Linear ? "linear" : "cubic")},
                {"coordinate_transformation_mode", std::string(corners ? "align_corners" : "half_pixel")}}));
  }
  ValueId y = nearest ? x : is_float(d) ? widen(c.b, x) : cast(c.b, x, DType::F32);
  // The last axis comes first. Bytes are rounded after each, halves upwards, as PyTorch's integer arithmetic does.
  for (size_t i = n; i-- > 0 && c.b.ok();) {
    const auto axis = static_cast<int64_t>(i) + 2;
    const SymExpr in = shape[i + 2], out = wanted[i + 2];
    if (c.b.env().known_equal(in, out) && (nearest || d == DType::U8)) continue;
    if (in.is_const() && out.is_const()) {
      const Axis a{in.const_value(), out.const_value(), scales[i], corners};
      if (!has_taps(c, a)) return;
      y = apply_taps(c, y, axis, taps_of(a, kMode));
    } else if (kMode == Mode::LinearWide || kMode == Mode::CubicWide) {
      y = WideTaps(c, in, out, scales[i], corners, kMode == Mode::LinearWide, c.b.dtype(y)).apply(y, axis);
    } else {
      y = apply_taps(c, y, axis, symbolic_taps(c, in, out, scales[i], corners, kMode, c.b.dtype(y)));
    }
    if (d == DType::U8 && !nearest) y = min(c.b, max(c.b, floor(c.b, add(c.b, y, 0.5)), 0.0), 255.0);
  }
  if (!is_float(d) && !nearest) y = c.b.op1("round", y);
  c.result(cast(c.b, y, d));
}

template <Mode kMode>
void translate_upsample_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output");
  const size_t n = dimensions_of(c);
  const bool corners = c.schema().argument("align_corners") && c.in.flag("align_corners");
  const auto scales = factors(c, n);
  const SymShape input = c.in.sizes("input_size");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(grad);
  const SymShape shape = c.b.shape(grad);
  ValueId y = widen(c.b, grad);
  for (size_t i = 0; i < n && c.b.ok(); ++i) {
    const SymExpr in = c.b.env().simplify(input.at(i + 2)), out = shape.at(i + 2);
    const auto axis = static_cast<int64_t>(i) + 2;
    if (!in.is_const() || !out.is_const()) {
      constexpr bool kWide = kMode == Mode::LinearWide || kMode == Mode::CubicWide;
      if (kWide && corners)
        return c.unsupported("the gradient of resampling without aliases from corner to corner, from " + str(input) +
                             " to " + str(shape) + ", whose kernel depends on symbolic sizes");
      if (kWide)
        y = WideTaps(c, in, out, scales[i], corners, kMode == Mode::LinearWide, c.b.dtype(y)).turned(y, axis);
      else
        y = apply_turned(c, y, axis, in, symbolic_taps(c, in, out, scales[i], corners, kMode, c.b.dtype(y)));
      continue;
    }
    const Axis a{in.const_value(), out.const_value(), scales[i], corners};
    if (!has_taps(c, a)) return;
    y = apply_taps(c, y, axis, turned(taps_of(a, kMode), a.in));
  }
  c.result(cast(c.b, y, d));
}

} // namespace

void register_upsample(AtenTable& t) {
  t.add({"upsample_nearest1d.default", "upsample_nearest2d.default", "upsample_nearest3d.default",
         "upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec"},
        translate_upsample<Mode::Nearest>);
  t.add({"_upsample_nearest_exact1d.default", "_upsample_nearest_exact2d.default", "_upsample_nearest_exact3d.default",
         "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec"},
        translate_upsample<Mode::NearestExact>);
  t.add({"upsample_linear1d.default", "upsample_bilinear2d.default", "upsample_trilinear3d.default",
         "upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec"},
        translate_upsample<Mode::Linear>);
  t.add({"upsample_bicubic2d.default", "upsample_bicubic2d.vec"}, translate_upsample<Mode::Cubic>);
  t.add({"_upsample_bilinear2d_aa.default", "_upsample_bilinear2d_aa.vec"}, translate_upsample<Mode::LinearWide>);
  t.add({"_upsample_bicubic2d_aa.default", "_upsample_bicubic2d_aa.vec"}, translate_upsample<Mode::CubicWide>);
  t.add({"upsample_nearest1d_backward.default", "upsample_nearest2d_backward.default",
         "upsample_nearest3d_backward.default"},
        translate_upsample_backward<Mode::Nearest>);
  t.add({"_upsample_nearest_exact1d_backward.default", "_upsample_nearest_exact2d_backward.default",
         "_upsample_nearest_exact3d_backward.default"},
        translate_upsample_backward<Mode::NearestExact>);
  t.add({"upsample_linear1d_backward.default", "upsample_bilinear2d_backward.default",
         "upsample_trilinear3d_backward.default"},
        translate_upsample_backward<Mode::Linear>);
  t.add({"upsample_bicubic2d_backward.default"}, translate_upsample_backward<Mode::Cubic>);
  t.add({"_upsample_bilinear2d_aa_backward.default"}, translate_upsample_backward<Mode::LinearWide>);
  t.add({"_upsample_bicubic2d_aa_backward.default"}, translate_upsample_backward<Mode::CubicWide>);
}

} // namespace tessera::fx
