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
  constexpr int64_t kMost = int64_t{1} << 24; // elements of an axis
  const bool sound = a.in > 0 && a.out > 0 && a.in <= kMost && a.out <= kMost && a.step() <= static_cast<double>(kMost);
  if (!sound)
    c.b.fail(ErrorCode::UnsupportedFeature, "resampling from " + std::to_string(a.in) + " to " + std::to_string(a.out) +
                                                " elements; from 1 to " + std::to_string(kMost) + " are supported");
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

// What hands a result's gradient back: element p of the input has the taps of all results that read it.
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
  // Where as many elements come out as go in, each is its own, whatever factor was given.
  if (!corners && scale && *scale > 0) p = select(c.b, eq(c.b, c.b.size(in, i64), c.b.size(out, i64)), at, p);
  ValueId low = floor(c.b, p);
  std::vector<SymbolicTap> taps;
  for (int k = mode == Mode::Linear ? 0 : -1; k <= (mode == Mode::Linear ? 1 : 2) && c.b.ok(); ++k) {
    ValueId place = add(c.b, low, static_cast<double>(k)), d = abs(c.b, sub(c.b, p, place)), w;
    if (mode == Mode::Linear) {
      w = sub(c.b, c.b.like(d, 1), d);
    } else { // the two halves of cubic() for a = -0.75
      auto poly = [&](double a3, double a2, double a1, double a0) {
        return add(c.b, mul(c.b, add(c.b, mul(c.b, add(c.b, mul(c.b, d, a3), a2), d), a1), d), a0);
      };
      w = select(c.b, le(c.b, d, 1.0), poly(1.25, -2.25, 0, 1), poly(-0.75, 3.75, -6, 3));
    }
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

// What hands a result's gradient back: each of its elements is added, with its weights, where it was read.
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
      return c.unsupported("resampling without aliases from " + str(shape) +
                           ", whose kernel depends on symbolic sizes");
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
      if (kMode == Mode::LinearWide || kMode == Mode::CubicWide)
        return c.unsupported("the gradient of resampling without aliases from " + str(input) + " to " + str(shape) +
                             ", whose kernel depends on symbolic sizes");
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
