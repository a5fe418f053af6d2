// Resampling to other sizes and at positions that are data; images taken apart into channels and blocks; distances.
#include "frontend/fx/aten/parts.h"
#include <cmath>
#include <limits>

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

// Along an axis of symbolic sizes: positions and shares are computed from the index.
ValueId resample_symbolic(Call& c, ValueId x, int64_t axis, const SymExpr& out, std::optional<double> scale,
                          bool corners, Mode mode) {
  const SymExpr in = c.b.dim(x, axis);
  const DType f = DType::F32, i64 = DType::I64;
  const int rank = c.b.rank(x);
  ValueId at = cast(c.b, iota(c.b, {out}, 0), f), step;
  if (corners)
    step = div(c.b, c.b.size(in - 1, f), max(c.b, c.b.size(out - 1, f), 1.0));
  else
    step = scale && *scale > 0 ? c.b.scalar(f, 1 / *scale) : div(c.b, c.b.size(in, f), c.b.size(out, f));
  ValueId last = c.b.size(in - 1, i64), zero = c.b.scalar_i(i64, 0);
  auto index = [&](ValueId position) { return max(c.b, min(c.b, cast(c.b, floor(c.b, position), i64), last), zero); };
  if (mode == Mode::Nearest) return gather(c.b, x, index(mul(c.b, at, step)), axis);
  if (mode == Mode::NearestExact) return gather(c.b, x, index(mul(c.b, add(c.b, at, 0.5), step)), axis);
  ValueId p = corners ? mul(c.b, at, step) : sub(c.b, mul(c.b, add(c.b, at, 0.5), step), 0.5);
  if (mode == Mode::Linear) p = max(c.b, p, 0.0);
  ValueId low = floor(c.b, p), sum;
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
    ValueId part = mul(c.b, gather(c.b, x, index(place), axis), along(c, cast(c.b, w, c.b.dtype(x)), axis, rank));
    sum = sum.valid() ? add(c.b, sum, part) : part;
  }
  return sum;
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
      y = resample_symbolic(c, y, axis, out, scales[i], corners, kMode);
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
    if (!in.is_const() || !out.is_const())
      return c.unsupported("the gradient of resampling from " + str(input) + " to " + str(shape) +
                           ", whose weights depend on symbolic sizes");
    const Axis a{in.const_value(), out.const_value(), scales[i], corners};
    if (!has_taps(c, a)) return;
    y = apply_taps(c, y, static_cast<int64_t>(i) + 2, turned(taps_of(a, kMode), a.in));
  }
  c.result(cast(c.b, y, d));
}

// ---- grid_sampler: the image at coordinates from -1 to 1; the grid names the last dimension first
class Sampler {
public:
  Sampler(Call& c, ValueId x, ValueId grid, int64_t padding, bool corners)
      : c_(c), padding_(padding), corners_(corners) {
    if (!c.b.ok()) return;
    shape_ = c.b.shape(x);
    const SymShape g = c.b.shape(grid);
    if (shape_.size() < 3 || g.size() != shape_.size()) {
      c.b.fail(ErrorCode::ShapeMismatch, "input " + str(shape_) + " and grid " + str(g) +
                                             " have no batch, channels and dimensions to sample in common");
      return;
    }
    n_ = shape_.size() - 2;
    places_ = product(std::span(g).subspan(1, n_));
    out_ = {shape_[0], shape_[1]};
    out_.insert(out_.end(), g.begin() + 1, g.end() - 1);
    flat_ = reshape(c.b, widen(c.b, x), {shape_[0], shape_[1], product(std::span(shape_).subspan(2))});
    wide_ = c.b.dtype(flat_);
    ValueId flat_grid = reshape(c.b, cast(c.b, grid, wide_), {g[0], places_, static_cast<int64_t>(n_)});
    for (size_t i = 0; i < n_; ++i) {
      ValueId v = squeeze(c.b, slice(c.b, flat_grid, 2, static_cast<int64_t>(n_ - 1 - i), 1), {2});
      ValueId size = c.b.size(shape_[i + 2], wide_);
      v = add(c.b, v, 1.0);
      at_.push_back(corners ? mul(c.b, v, mul(c.b, sub(c.b, size, 1.0), 0.5))
                            : mul(c.b, sub(c.b, mul(c.b, v, size), 1.0), 0.5)); // [N, places]
    }
  }

  ValueId nearest() {
    std::vector<ValueId> whole;
    for (size_t i = 0; i < n_; ++i) whole.push_back(c_.b.op1("round", padded(at_[i], i)));
    return finish(read(whole));
  }
  ValueId linear() {
    std::vector<ValueId> low, share;
    for (size_t i = 0; i < n_; ++i) {
      ValueId p = padded(at_[i], i);
      low.push_back(floor(c_.b, p));
      share.push_back(sub(c_.b, p, low.back()));
    }
    ValueId sum;
    for (size_t corner = 0; corner < (size_t{1} << n_) && c_.b.ok(); ++corner) {
      std::vector<ValueId> whole;
      ValueId weight;
      for (size_t i = 0; i < n_; ++i) {
        const bool high = (corner >> i & 1) != 0;
        whole.push_back(high ? add(c_.b, low[i], 1.0) : low[i]);
        ValueId w = high ? share[i] : sub(c_.b, c_.b.like(share[i], 1), share[i]);
        weight = weight.valid() ? mul(c_.b, weight, w) : w;
      }
      ValueId part = mul(c_.b, read(whole), unsqueeze(c_.b, weight, {1}));
      sum = sum.valid() ? add(c_.b, sum, part) : part;
    }
    return finish(sum);
  }
  ValueId cubic_taps() { // each tap's own position is padded
    std::vector<ValueId> low, share;
    for (size_t i = 0; i < n_; ++i) {
      low.push_back(floor(c_.b, at_[i]));
      share.push_back(sub(c_.b, at_[i], low.back()));
    }
    auto weight = [&](ValueId t, int k) {
      ValueId d = abs(c_.b, sub(c_.b, t, static_cast<double>(k)));
      auto poly = [&](double a3, double a2, double a1, double a0) {
        return add(c_.b, mul(c_.b, add(c_.b, mul(c_.b, add(c_.b, mul(c_.b, d, a3), a2), d), a1), d), a0);
      };
      return k == 0 || k == 1 ? poly(1.25, -2.25, 0, 1) : poly(-0.75, 3.75, -6, 3);
    };
    ValueId sum;
    for (int i = -1; i <= 2; ++i)
      for (int j = -1; j <= 2 && c_.b.ok(); ++j) {
        ValueId y = padded(add(c_.b, low[0], static_cast<double>(i)), 0),
                x = padded(add(c_.b, low[1], static_cast<double>(j)), 1);
        ValueId part =
            mul(c_.b, read({y, x}), unsqueeze(c_.b, mul(c_.b, weight(share[0], i), weight(share[1], j)), {1}));
        sum = sum.valid() ? add(c_.b, sum, part) : part;
      }
    return finish(sum);
  }

private:
  // 0 zeros, 1 border, 2 reflection.
  ValueId padded(ValueId p, size_t i) {
    if (padding_ == 0 || !c_.b.ok()) return p;
    ValueId size = c_.b.size(shape_[i + 2], wide_), last = sub(c_.b, size, 1.0);
    if (padding_ == 2) {
      const double low = corners_ ? 0 : -0.5;
      ValueId span = corners_ ? max(c_.b, last, 1.0) : size;
      ValueId d = abs(c_.b, sub(c_.b, p, low)), turns = floor(c_.b, div(c_.b, d, span));
      ValueId rest = sub(c_.b, d, mul(c_.b, turns, span));
      ValueId odd = sub(c_.b, turns, mul(c_.b, floor(c_.b, mul(c_.b, turns, 0.5)), 2.0));
      p = add(c_.b, select(c_.b, eq(c_.b, odd, 0.0), rest, sub(c_.b, span, rest)), low);
    }
    return min(c_.b, max(c_.b, p, 0.0), last);
  }
  // The image at whole positions [N, places], zero outside of it: [N, C, places].
  ValueId read(const std::vector<ValueId>& whole) {
    ValueId position, inside;
    for (size_t i = 0; i < n_ && c_.b.ok(); ++i) {
      ValueId last = c_.b.size(shape_[i + 2] - 1, wide_);
      ValueId here = logical_and(c_.b, ge(c_.b, whole[i], 0.0), le(c_.b, whole[i], last));
      inside = inside.valid() ? logical_and(c_.b, inside, here) : here;
      ValueId k = cast(c_.b, select(c_.b, here, whole[i], 0.0), DType::I64);
      position = position.valid() ? add(c_.b, mul(c_.b, position, c_.b.size(shape_[i + 2], DType::I64)), k) : k;
    }
    if (!c_.b.ok()) return {};
    ValueId index = expand(c_.b, unsqueeze(c_.b, position, {1}), {shape_[0], shape_[1], places_});
    ValueId v = c_.b.op("gather_elements", {flat_, index}, {{"axis", int64_t{2}}});
    return select(c_.b, unsqueeze(c_.b, inside, {1}), v, 0.0);
  }
  ValueId finish(ValueId v) { return c_.b.ok() ? reshape(c_.b, v, out_) : v; }

  Call& c_;
  int64_t padding_;
  bool corners_;
  size_t n_ = 0;
  SymShape shape_, out_;
  SymExpr places_;
  ValueId flat_;
  DType wide_ = DType::F32;
  std::vector<ValueId> at_; // coordinates in elements, one for each dimension
};

void translate_grid_sampler(Call& c) {
  ValueId x = c.in.tensor("input"), grid = c.in.tensor("grid");
  const int64_t mode = c.in.integer("interpolation_mode"), padding = c.in.integer("padding_mode");
  const bool corners = c.in.flag("align_corners");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  Sampler s(c, x, grid, padding, corners);
  if (!c.b.ok()) return;
  if (mode == 2 && c.b.rank(x) != 4) return c.unsupported("cubic sampling of a volume");
  c.result(cast(c.b, mode == 0 ? s.linear() : mode == 1 ? s.nearest() : s.cubic_taps(), d));
}

// ---- channels and pixels
SymShape lead_of(const SymShape& s, size_t last) { return {s.begin(), s.end() - static_cast<int64_t>(last)}; }

// A factor between pixels and channels of `self`, which has them and perhaps dimensions before.
int64_t pixel_factor(Call& c, std::string_view name) {
  constexpr int64_t kMost = 1 << 15;
  const int64_t r = c.in.integer(name);
  if (c.b.ok() && (r < 1 || r > kMost))
    c.b.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' is " + std::to_string(r) +
                                          ", expected a number from 1 to " + std::to_string(kMost));
  const ValueId x = c.in.tensor("self");
  if (c.b.ok() && c.b.rank(x) < 3)
    c.b.fail(ErrorCode::ShapeMismatch,
             "argument 'self' has rank " + std::to_string(c.b.rank(x)) + ", expected 3 or more");
  return r;
}

void translate_pixel_shuffle(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t r = pixel_factor(c, "upscale_factor");
  if (!c.b.ok()) return;
  const SymShape s = c.b.shape(x);
  const auto k = static_cast<int64_t>(s.size()) - 3;
  SymShape apart = lead_of(s, 3), out = apart;
  const SymExpr channels = c.b.env().simplify(floordiv(s[s.size() - 3], r * r)), h = s[s.size() - 2], w = s.back();
  for (const SymExpr& e : {channels, SymExpr(r), SymExpr(r), h, w}) apart.push_back(e);
  for (const SymExpr& e : {channels, h * r, w * r}) out.push_back(e);
  Ints perm = axis_range(0, k);
  for (int64_t a : {0, 3, 1, 4, 2}) perm.push_back(k + a);
  c.result(reshape(c.b, transpose(c.b, reshape(c.b, x, apart), perm), out));
}
void translate_pixel_unshuffle(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t r = pixel_factor(c, "downscale_factor");
  if (!c.b.ok()) return;
  const SymShape s = c.b.shape(x);
  const auto k = static_cast<int64_t>(s.size()) - 3;
  SymShape apart = lead_of(s, 3), out = apart;
  const SymExpr h = c.b.env().simplify(floordiv(s[s.size() - 2], r)), w = c.b.env().simplify(floordiv(s.back(), r));
  for (const SymExpr& e : {s[s.size() - 3], h, SymExpr(r), w, SymExpr(r)}) apart.push_back(e);
  for (const SymExpr& e : {s[s.size() - 3] * (r * r), h, w}) out.push_back(e);
  Ints perm = axis_range(0, k);
  for (int64_t a : {0, 2, 4, 1, 3}) perm.push_back(k + a);
  c.result(reshape(c.b, transpose(c.b, reshape(c.b, x, apart), perm), out));
}
void translate_channel_shuffle(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t groups = c.in.integer("groups");
  if (!c.b.ok()) return;
  const SymShape s = c.b.shape(x);
  SymShape apart = {s[0], groups, c.b.env().simplify(floordiv(s[1], groups))};
  apart.insert(apart.end(), s.begin() + 2, s.end());
  Ints perm = axis_range(0, static_cast<int64_t>(apart.size()));
  std::swap(perm[1], perm[2]);
  c.result(reshape(c.b, transpose(c.b, reshape(c.b, x, apart), perm), s));
}

// Blocks of an image as columns: [N, C * kh * kw, blocks].
void translate_im2col(Call& c) {
  ValueId x = c.in.tensor("self");
  const Ints kernel = spatial(c, "kernel_size", 2, {1}), dilation = spatial(c, "dilation", 2, {1}),
             padding = spatial(c, "padding", 2, {0}), stride = spatial(c, "stride", 2, {1});
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, 2);
  const SymShape s = c.b.shape(in.value);
  ValueId padded = pad(c.b, in.value, {0, 0, padding[0], padding[1]}, {0, 0, padding[0], padding[1]});
  SymShape out;
  for (size_t i = 0; i < 2; ++i)
    out.push_back(
        c.b.env().simplify(floordiv(s[i + 2] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1, stride[i]) + 1));
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < kernel[0] && c.b.ok(); ++i)
    for (int64_t j = 0; j < kernel[1]; ++j) {
      ValueId v = slice(c.b, padded, 2, i * dilation[0], out[0], stride[0]);
      v = slice(c.b, v, 3, j * dilation[1], out[1], stride[1]);
      parts.push_back(reshape(c.b, v, {s[0], s[1], 1, out[0] * out[1]}));
    }
  ValueId y = reshape(c.b, concat(c.b, parts, 2), {s[0], s[1] * (kernel[0] * kernel[1]), out[0] * out[1]});
  c.result(without_batch(c, y, in));
}

// ---- distances: the p-norm of each row's difference
ValueId norm_of(Call& c, ValueId difference, double p, int64_t axis) {
  ValueId a = abs(c.b, difference);
  if (p == 0) return sum(c.b, cast(c.b, ne(c.b, a, 0.0), c.b.dtype(a)), {axis}, false);
  if (p == 1) return sum(c.b, a, {axis}, false);
  if (p == 2) return sqrt(c.b, sum(c.b, mul(c.b, a, a), {axis}, false));
  if (std::isinf(p)) return reduce(c.b, "reduce_max", a, {axis}, false);
  return pow(c.b, sum(c.b, pow(c.b, a, p), {axis}, false), 1 / p);
}
void translate_cdist(Call& c) {
  ValueId x = c.in.tensor("x1"), y = c.in.tensor("x2");
  const double p = c.in.number("p");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  const int rx = c.b.rank(x), ry = c.b.rank(y);
  if (c.b.dim(x, rx - 1).is_const(0)) return c.result(zeros(c, d, c.result_shape(0)));
  ValueId difference = sub(c.b, unsqueeze(c.b, widen(c.b, x), {rx - 1}), unsqueeze(c.b, widen(c.b, y), {ry - 2}));
  if (!c.b.ok()) return;
  c.result(cast(c.b, norm_of(c, difference, p, c.b.rank(difference) - 1), d));
}
// Distances of all pairs of rows, the upper triangle row by row.
void translate_pdist(Call& c) {
  ValueId x = c.in.tensor("self");
  const double p = c.in.number("p");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  auto n = c.b.dim(x, 0).as_const();
  if (!n) return c.unsupported("distances of the pairs of a symbolic number of rows");
  Ints first, second;
  for (int64_t i = 0; i < *n; ++i)
    for (int64_t j = i + 1; j < *n; ++j) {
      first.push_back(i);
      second.push_back(j);
    }
  if (first.empty() || c.b.dim(x, 1).is_const(0)) return c.result(zeros(c, d, c.result_shape(0)));
  ValueId wide = widen(c.b, x);
  ValueId difference = sub(c.b, gather(c.b, wide, c.b.ints(first), 0), gather(c.b, wide, c.b.ints(second), 0));
  c.result(cast(c.b, norm_of(c, difference, p, 1), d));
}

void translate_cosine_similarity(Call& c) {
  const DType d = promoted(c.b, c.in, {"x1", "x2"});
  ValueId x = operand(c.b, c.in, "x1", d), y = operand(c.b, c.in, "x2", d);
  const double epsilon = c.in.number("eps");
  if (!c.b.ok()) return;
  x = widen(c.b, x);
  y = widen(c.b, y);
  auto shape = c.b.env().broadcast(c.b.shape(x), c.b.shape(y), c.b.node().location);
  if (!shape.ok()) return c.b.fail(shape.error());
  const int64_t axis = c.in.axis("dim", static_cast<int>(shape->size()));
  if (!c.b.ok()) return;
  x = expand(c.b, x, *shape);
  y = expand(c.b, y, *shape);
  auto unit = [&](ValueId v) {
    return div(c.b, v, max(c.b, sqrt(c.b, sum(c.b, mul(c.b, v, v), {axis}, true)), epsilon));
  };
  c.result(cast(c.b, sum(c.b, mul(c.b, unit(x), unit(y)), {axis}, false), d));
}

// ---- bags: sums, means or maxima of rows that consecutive indices name; offsets[b] is where bag b begins
void translate_embedding_bag(Call& c) {
  ValueId weight = c.in.tensor("weight"), indices = c.in.tensor("indices"), offsets = c.in.tensor("offsets"),
          factor = c.in.maybe("per_sample_weights");
  const int64_t mode = c.in.integer("mode");
  const bool last = c.in.flag("include_last_offset");
  const auto padding = c.schema().argument("padding_idx") ? c.in.maybe_integer("padding_idx") : std::nullopt;
  if (!c.b.ok()) return;
  if (c.is_used(1) || c.is_used(2) || c.is_used(3))
    return c.unsupported("bag sizes and positions of an embedding bag as results");
  const DType d = c.b.dtype(weight), i64 = DType::I64;
  const SymExpr count = c.b.dim(indices, 0), rows = c.b.dim(weight, 0);
  const SymExpr bags = last ? c.b.dim(offsets, 0) - 1 : c.b.dim(offsets, 0);
  ValueId read = widen(c.b, gather(c.b, weight, indices, 0)); // [n, D]
  if (factor.valid()) read = mul(c.b, read, unsqueeze(c.b, cast(c.b, factor, c.b.dtype(read)), {1}));
  ValueId begin = cast(c.b, offsets, i64), end;
  if (last) {
    end = slice(c.b, begin, 0, 1, bags);
    begin = slice(c.b, begin, 0, 0, bags);
  } else {
    end = concat(c.b, {slice(c.b, begin, 0, 1, bags - 1), reshape(c.b, c.b.size(count, i64), {1})}, 0);
  }
  ValueId place = iota(c.b, {1, count}, 1);
  ValueId member =
      logical_and(c.b, ge(c.b, place, unsqueeze(c.b, begin, {1})), lt(c.b, place, unsqueeze(c.b, end, {1})));
  // Of the inner operator -1 stands for no index; the outer one counts from the end.
  const bool inner = c.schema().name.find("._embedding_bag") != std::string_view::npos;
  if (padding && !(inner && *padding < 0)) {
    ValueId skip = *padding < 0 ? c.b.size(rows + *padding, i64) : c.b.scalar_i(i64, *padding);
    member = logical_and(c.b, member, unsqueeze(c.b, ne(c.b, cast(c.b, indices, i64), skip), {0}));
  }
  const double none = mode == 2 ? -std::numeric_limits<double>::infinity() : 0.0;
  ValueId chosen = select(c.b, unsqueeze(c.b, member, {2}), unsqueeze(c.b, read, {0}), none); // [bags, n, D]
  ValueId size = sum(c.b, cast(c.b, member, c.b.dtype(read)), {1}, true), y;
  if (mode == 2) {
    y = select(c.b, gt(c.b, size, 0.0), reduce(c.b, "reduce_max", chosen, {1}, false), 0.0);
  } else {
    y = sum(c.b, chosen, {1}, false);
    if (mode == 1) y = div(c.b, y, max(c.b, size, 1.0));
  }
  c.result(cast(c.b, y, d));
  for (int i = 1; i < 4; ++i) c.unused_result();
}

} // namespace

void register_resample(AtenTable& t) {
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
  t.add({"grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default",
         "_grid_sampler_2d_cpu_fallback.default"},
        translate_grid_sampler);
  t.add({"pixel_shuffle.default"}, translate_pixel_shuffle);
  t.add({"pixel_unshuffle.default"}, translate_pixel_unshuffle);
  t.add({"channel_shuffle.default", "native_channel_shuffle.default"}, translate_channel_shuffle);
  t.add({"im2col.default"}, translate_im2col);
  t.add({"cdist.default", "_cdist_forward.default"}, translate_cdist);
  t.add({"pdist.default", "_pdist_forward.default"}, translate_pdist);
  t.add({"cosine_similarity.default"}, translate_cosine_similarity);
  t.add({"embedding_bag.default", "embedding_bag.padding_idx", "_embedding_bag.default",
         "_embedding_bag_forward_only.default"},
        translate_embedding_bag);
}

} // namespace tessera::fx
