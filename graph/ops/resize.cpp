// Resize and Upsample. Resampling is separable: along each axis every output element is a weighted sum of a few input
// elements, the taps; nearest has one, linear two, cubic four, and antialiasing widens the kernel by the factor of the
// reduction.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// What a node requests, in the terms of any opset.
struct Spec {
  std::string mode, coordinates, nearest, policy;
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  int roi = -1, scales = -1, sizes = -1; // operands
  Ints axes;
  std::vector<double> fixed_scales; // Upsample 7: an attribute
};

Result<Spec> spec_of(const Node& n, int rank) {
  const Attributes& a = n.attributes;
  Spec s;
  s.mode = a.s("mode", "nearest");
  bool upsample = n.op->name == "Upsample";
  if (upsample || opset_of(n) < 11) {
    s.coordinates = "asymmetric";
    s.nearest = "floor";
    s.scales = 1;
    if (upsample && opset_of(n) < 9) {
      s.scales = -1;
      if (auto* v = a.get<std::vector<double>>("scales")) s.fixed_scales = *v;
      if (s.fixed_scales.empty())
        return Diagnostic(ErrorCode::BadAttribute, n.location, "attribute 'scales' of Upsample is missing");
    }
  } else {
    s.coordinates = a.s("coordinate_transformation_mode", "half_pixel");
    s.nearest = a.s("nearest_mode", "round_prefer_floor");
    s.roi = 1, s.scales = 2, s.sizes = 3;
  }
  s.policy = a.s("keep_aspect_ratio_policy", "stretch");
  s.cubic_a = a.f("cubic_coeff_a", -0.75);
  s.extrapolation = a.f("extrapolation_value");
  s.exclude_outside = a.i("exclude_outside") != 0;
  s.antialias = a.i("antialias") != 0;
  if (s.mode == "bilinear") s.mode = "linear";
  auto among = [](const std::string& v, std::initializer_list<const char*> all) {
    return std::any_of(all.begin(), all.end(), [&](const char* x) { return v == x; });
  };
  auto bad = [&](const char* name, const std::string& v) {
    return Diagnostic(ErrorCode::BadAttribute, n.location,
                      std::string("attribute '") + name + "' has the unknown value '" + v + "'");
  };
  if (!among(s.mode, {"nearest", "linear", "cubic"})) return bad("mode", s.mode);
  if (!among(s.coordinates, {"asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                             "tf_crop_and_resize", "tf_half_pixel_for_nn"}))
    return bad("coordinate_transformation_mode", s.coordinates);
  if (!among(s.nearest, {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}))
    return bad("nearest_mode", s.nearest);
  if (!among(s.policy, {"stretch", "not_larger", "not_smaller"})) return bad("keep_aspect_ratio_policy", s.policy);
  s.axes = a.ints("axes");
  if (s.axes.empty())
    for (int i = 0; i < rank; ++i) s.axes.push_back(i);
  for (int64_t& axis : s.axes) {
    if (axis < -rank || axis >= rank)
      return Diagnostic(ErrorCode::BadAttribute, n.location,
                        "axis " + std::to_string(axis) + " is outside of rank " + std::to_string(rank));
    if (axis < 0) axis += rank;
  }
  return s;
}

// ---- sizes
// floor(size * scale) for a scale that is a fraction of small terms; nothing when it is not.
std::optional<SymExpr> scaled(const SymExpr& size, double scale) {
  if (auto n = size.as_const()) return SymExpr(static_cast<int64_t>(std::floor(static_cast<double>(*n) * scale)));
  for (int64_t q = 1; q <= 64; ++q) {
    double p = scale * static_cast<double>(q);
    if (p == std::floor(p) && p < 1e6) return floordiv(size * static_cast<int64_t>(p), q);
  }
  return std::nullopt;
}

bool usable(const InferContext& c, int operand) {
  return operand >= 0 && c.has(operand) && !(c.type(operand).rank() == 1 && c.shape(operand)[0].is_const(0));
}

// Factors above this overflow every tensor; below 0 they mean nothing.
bool valid_scale(double s) { return s > 0 && s <= 1e9; }

Status infer_resize(InferContext& c) {
  SymShape shape = c.shape(0);
  TESSERA_ASSIGN(Spec s, spec_of(c.node, c.type(0).rank()));
  std::vector<double> scales = s.fixed_scales;
  bool by_size = usable(c, s.sizes);
  if (by_size && usable(c, s.scales))
    return c.error(ErrorCode::MalformedModel, "Resize takes scales or sizes, not both");
  if (!by_size && scales.empty() && !usable(c, s.scales))
    return c.error(ErrorCode::MalformedModel, "Resize takes scales or sizes");
  if (by_size) {
    TESSERA_ASSIGN(SymShape sizes, known_or_fresh(c, s.sizes, s.axes.size(), "resize"));
    bool constant = std::all_of(s.axes.begin(), s.axes.end(),
                                [&](int64_t a) { return shape[static_cast<size_t>(a)].is_const(); }) &&
                    std::all_of(sizes.begin(), sizes.end(), [](const SymExpr& e) { return e.is_const(); });
    double factor = 0;
    for (size_t i = 0; i < sizes.size() && s.policy != "stretch" && constant; ++i) {
      double f = static_cast<double>(sizes[i].const_value()) /
                 static_cast<double>(shape[static_cast<size_t>(s.axes[i])].const_value());
      factor = i == 0 ? f : s.policy == "not_larger" ? std::min(factor, f) : std::max(factor, f);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      SymExpr& dim = shape[static_cast<size_t>(s.axes[i])];
      if (s.policy == "stretch")
        dim = sizes[i];
      else if (!constant)
        dim = c.env().create_symbol("resize");
      else if (valid_scale(factor))
        dim = static_cast<int64_t>(std::floor(factor * static_cast<double>(dim.const_value()) + 0.5));
      else
        return c.error(ErrorCode::ShapeMismatch, "Resize to " + str(sizes) + " cannot keep the aspect ratio");
    }
    return set_result(c, c.type(0).dtype, std::move(shape));
  }
  const Tensor* constant = scales.empty() ? c.graph.constant(c.node.operands[static_cast<size_t>(s.scales)]) : nullptr;
  if (constant && constant->data()) scales = to_f64(*constant);
  if (!scales.empty() && scales.size() != s.axes.size())
    return c.error(ErrorCode::ShapeMismatch,
                   std::to_string(scales.size()) + " scales for " + std::to_string(s.axes.size()) + " dimensions");
  for (size_t i = 0; i < s.axes.size(); ++i) {
    SymExpr& dim = shape[static_cast<size_t>(s.axes[i])];
    if (!scales.empty() && !valid_scale(scales[i]))
      return c.error(ErrorCode::BadAttribute, "a scale of Resize is " + std::to_string(scales[i]));
    std::optional<SymExpr> known = scales.empty() ? std::nullopt : scaled(dim, scales[i]);
    dim = known ? *known : c.env().create_symbol("resize");
  }
  return set_result(c, c.type(0).dtype, std::move(shape));
}

// Whether a node gives sizes, not factors.
bool by_sizes(const B& b, const Spec& s) {
  return s.sizes >= 0 && b.has(s.sizes) && !b.dim(b.in(s.sizes), 0).is_const(0);
}

// ---- taps
struct Tap {
  int64_t index;
  double weight;
};
struct Axis {
  int64_t in = 1, out = 1;
  double scale = 1;
  double roi_begin = 0, roi_end = 1;
};

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

double cubic(double x, double a) { // Keys, 1981
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

// ---- reference
Result<std::vector<Axis>> axes_of(const ReferenceContext& c, const Spec& s) {
  auto given = [&](int i) {
    return i >= 0 && ops::given(c, static_cast<size_t>(i)) && c.operands[static_cast<size_t>(i)].count() > 0;
  };
  const Dims& in = c.operands[0].dims();
  size_t n = s.axes.size();
  std::vector<Axis> out;
  for (int64_t d : in) out.push_back({d, d, 1});
  if (given(s.sizes)) {
    const Tensor& sizes = c.operands[static_cast<size_t>(s.sizes)];
    if (sizes.count() != static_cast<int64_t>(n))
      return c.error(ErrorCode::BadInput, "sizes of Resize have a wrong number of elements");
    double factor = 0;
    for (size_t i = 0; i < n; ++i) {
      Axis& a = out[static_cast<size_t>(s.axes[i])];
      a.out = sizes.get_i64(static_cast<int64_t>(i));
      if (a.out < 0 || a.out > (int64_t{1} << 40))
        return c.error(ErrorCode::BadInput, "a size of Resize is " + std::to_string(a.out));
      a.scale = static_cast<double>(a.out) / static_cast<double>(a.in);
      factor = i == 0 ? a.scale : s.policy == "not_larger" ? std::min(factor, a.scale) : std::max(factor, a.scale);
    }
    if (s.policy != "stretch") {
      if (!valid_scale(factor)) return c.error(ErrorCode::BadInput, "Resize cannot keep the aspect ratio");
      for (int64_t axis : s.axes) {
        Axis& a = out[static_cast<size_t>(axis)];
        a.scale = factor;
        a.out = static_cast<int64_t>(std::floor(factor * static_cast<double>(a.in) + 0.5));
      }
    }
  } else {
    std::vector<double> scales = given(s.scales) ? to_f64(c.operands[static_cast<size_t>(s.scales)]) : s.fixed_scales;
    if (scales.size() != n) return c.error(ErrorCode::BadInput, "scales of Resize have a wrong number of elements");
    for (size_t i = 0; i < n; ++i) {
      Axis& a = out[static_cast<size_t>(s.axes[i])];
      if (!valid_scale(scales[i]))
        return c.error(ErrorCode::BadInput, "a scale of Resize is " + std::to_string(scales[i]));
      a.scale = scales[i];
      a.out = static_cast<int64_t>(std::floor(static_cast<double>(a.in) * scales[i]));
    }
  }
  if (s.coordinates == "tf_crop_and_resize") {
    if (!given(s.roi) || c.operands[static_cast<size_t>(s.roi)].count() != static_cast<int64_t>(2 * n))
      return c.error(ErrorCode::BadInput, "tf_crop_and_resize needs the region of interest");
    const Tensor& roi = c.operands[static_cast<size_t>(s.roi)];
    for (size_t i = 0; i < n; ++i) {
      Axis& a = out[static_cast<size_t>(s.axes[i])];
      a.roi_begin = roi.get_f64(static_cast<int64_t>(i));
      a.roi_end = roi.get_f64(static_cast<int64_t>(i + n));
    }
  }
  return out;
}

Status reference_resize(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  TESSERA_ASSIGN(Spec s, spec_of(c.node, static_cast<int>(x.dims().size())));
  TESSERA_ASSIGN(std::vector<Axis> axes, axes_of(c, s));
  Dims dims;
  bool empty = false;
  for (const Axis& a : axes) {
    dims.push_back(a.out);
    empty |= a.in == 0 && a.out != 0;
  }
  TESSERA_ASSIGN(int64_t count, element_count(dims));
  if (empty && count > 0) return c.error(ErrorCode::BadInput, "Resize has nothing to sample in an empty dimension");
  if (s.mode == "nearest" && s.coordinates != "tf_crop_and_resize") { // elements move; any dtype
    std::vector<Dims> from(axes.size());
    for (size_t d = 0; d < axes.size(); ++d)
      for (int64_t y = 0; y < axes[d].out && count > 0; ++y)
        from[d].push_back(taps(s, axes[d], source(s, axes[d], y))[0].index);
    Dims strides = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor out, take_at(x, dims, [&](const Dims& at) {
                     int64_t p = 0;
                     for (size_t d = 0; d < at.size(); ++d) p += from[d][static_cast<size_t>(at[d])] * strides[d];
                     return p;
                   }));
    c.results = {out};
    return {};
  }
  bool real = is_float(x.dtype());
  std::vector<double> values(static_cast<size_t>(x.count()));
  for (int64_t i = 0; i < x.count(); ++i)
    values[static_cast<size_t>(i)] = real ? x.get_f64(i) : static_cast<double>(x.get_i64(i));
  Dims shape = x.dims();
  std::vector<std::vector<bool>> outside(axes.size());
  for (size_t d = 0; d < axes.size(); ++d) {
    const Axis& a = axes[d];
    outside[d].resize(static_cast<size_t>(a.out));
    if (a.in == a.out && a.scale == 1 && a.roi_begin == 0 && a.roi_end == 1) continue;
    Dims next = shape, from = strides_of(shape);
    next[d] = a.out;
    TESSERA_ASSIGN(int64_t n, element_count(next));
    std::vector<std::vector<Tap>> all;
    for (int64_t y = 0; y < a.out && count > 0; ++y) {
      double at = source(s, a, y);
      outside[d][static_cast<size_t>(y)] =
          s.coordinates == "tf_crop_and_resize" && (at < 0 || at > static_cast<double>(a.in - 1));
      all.push_back(taps(s, a, at));
    }
    std::vector<double> sampled(static_cast<size_t>(n));
    for (Walk w(next); !w.done() && count > 0; w.next()) {
      Dims at = w.at();
      at[d] = 0;
      int64_t base = offset(at, from);
      double sum = 0;
      for (const Tap& t : all[static_cast<size_t>(w[d])])
        sum += t.weight * values[static_cast<size_t>(base + t.index * from[d])];
      sampled[static_cast<size_t>(w.i())] = sum;
    }
    values = std::move(sampled);
    shape = next;
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
  for (Walk w(dims); !w.done(); w.next()) {
    double v = values[static_cast<size_t>(w.i())];
    for (size_t d = 0; d < dims.size(); ++d)
      if (outside[d][static_cast<size_t>(w[d])]) v = s.extrapolation;
    if (real)
      out.set_f64(w.i(), v);
    else
      out.set_i64(w.i(), static_cast<int64_t>(std::clamp(v, -9.2e18, 9.2e18)));
  }
  c.results = {out};
  return {};
}

Tensor scales4(double h, double w) { return floats({4}, {1, 1, h, w}); }

std::vector<Sample> resize_samples() {
  Tensor x = random(DType::F32, {1, 2, 4, 5}, 1), none;
  std::vector<Sample> out;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* coordinates :
         {"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"}) {
      Attributes a = {{"mode", std::string(mode)}, {"coordinate_transformation_mode", std::string(coordinates)}};
      out.push_back(sample({x, none, scales4(2, 1.5)}, a));
      out.push_back(sample({x, none, none, vec({1, 2, 3, 3})}, a));
    }
    out.push_back(sample({x, floats({8}, {0, 0, 0.2, 0.1, 1, 1, 0.9, 1.2}), none, vec({1, 2, 3, 4})},
                         {{"mode", std::string(mode)},
                          {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
                          {"extrapolation_value", 5.0}}));
  }
  out.push_back(sample({x, none, scales4(0.6, 0.6)}, {{"mode", std::string("cubic")}, {"antialias", int64_t{1}}}));
  out.push_back(sample({x, none, scales4(0.6, 0.6)}, {{"mode", std::string("linear")}, {"antialias", int64_t{1}}}));
  out.push_back(
      sample({x, none, scales4(0.8, 0.8)}, {{"mode", std::string("cubic")}, {"exclude_outside", int64_t{1}}}));
  out.push_back(sample({x, none, none, vec({7, 8})},
                       {{"axes", Ints{2, 3}}, {"keep_aspect_ratio_policy", std::string("not_larger")}}));
  out.push_back(sample({random(DType::U8, {1, 1, 2, 2}, 1, 0, 255), none, scales4(2, 3)}));
  out.push_back(sample({x, scales4(2, 2)}, {}, 10));
  for (DType d : {DType::F64, DType::F16, DType::I32}) {
    out.push_back(
        sample({random(d, {2, 3, 5}, 1, -50, 50), none, floats({3}, {1, 1, 1.7})}, {{"mode", std::string("cubic")}}));
    out.push_back(sample({random(d, {2, 3, 7}, 1, -50, 50), none, none, vec({3})},
                         {{"mode", std::string("linear")}, {"antialias", int64_t{1}}, {"axes", Ints{-1}}}));
    for (Sample& s : std::span(out).last(2)) s.tolerance = tolerance(d);
  }
  return out;
}

std::vector<AttrDef> resize_attributes() {
  return {{"antialias", AttrKind::Int, false, int64_t{0}},
          {"axes", AttrKind::Ints},
          {"coordinate_transformation_mode", AttrKind::String, false, std::string("half_pixel")},
          {"cubic_coeff_a", AttrKind::Float, false, -0.75},
          {"exclude_outside", AttrKind::Int, false, int64_t{0}},
          {"extrapolation_value", AttrKind::Float, false, 0.0},
          {"keep_aspect_ratio_policy", AttrKind::String, false, std::string("stretch")},
          {"mode", AttrKind::String, false, std::string("nearest")},
          {"nearest_mode", AttrKind::String, false, std::string("round_prefer_floor")}};
}

std::vector<ErrorSample> resize_errors() {
  Tensor x = random(DType::F32, {1, 2, 4, 5}, 1), none;
  return {wrong({x}, {}, ErrorCode::MalformedModel, "scales or sizes"),
          wrong({x, none, scales4(2, 2), vec({1, 2, 3, 3})}, {}, ErrorCode::MalformedModel, "not both"),
          wrong({x, none, floats({2}, {2, 2})}, {}, ErrorCode::ShapeMismatch, "scales"),
          wrong({x, none, scales4(-1, 2)}, {}, ErrorCode::BadAttribute, "scale"),
          wrong({x, none, scales4(2, 2)}, {{"mode", std::string("area")}}, ErrorCode::BadAttribute, "mode")};
}

// ---- decomposition. Where sizes and factors are known, taps are constants; else they are computed, vectors along one
// axis. A few taps are gathered, weighted and added one by one; those of a kernel that antialiasing widens are a
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
    a.out = sizes ? sizes->get_i64(k) : scaled(*in, scales[i])->const_value();
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
    const std::vector<double> known = constant && constant->data() ? to_f64(*constant) : s.fixed_scales;
    for (size_t i = 0; i < known.size() && i < in.size(); ++i)
      if (auto size = scaled(in[i], known[i])) sizes.push_back(*size);
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
    out[i] = {in[i], sizes[i], element(scales, k), {}, {}};
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
  std::vector<SymExpr> one = b.read(cast(b, eq(b, a.scale, 1.0), DType::I64));
  return b.ok() && b.decide(sym_eq(one[0], 1), batch, "a scale of 1 along dimension " + std::to_string(axis));
}

Result<std::vector<ValueId>> decompose_resize(Graph& g, const Node& n, int) {
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

OpDef resize_onnx_record() {
  OpDef def;
  def.name = "Resize";
  def.summary = "resampling to other sizes: nearest, linear, cubic";
  def.onnx = {{"Resize", "", 10}};
  def.operands = {{"X", TypeSet::NumericOrBool},
                  {"roi", TypeSet::Float, true},
                  {"scales", TypeSet::Float, true},
                  {"sizes", TypeSet::Index, true}};
  def.attributes = resize_attributes();
  def.infer = infer_resize;
  def.meaning = Decomposition{decompose_resize};
  def.reference = reference_resize;
  def.data_dependent_shape = true;
  def.samples = resize_samples;
  def.error_samples = resize_errors;
  return def;
}

OpDef upsample_record() {
  OpDef def;
  def.name = "Upsample";
  def.summary = "repetition or linear interpolation by scales";
  def.onnx = {{"Upsample", "", 7, 9}};
  def.operands = {{"X", TypeSet::NumericOrBool}, {"scales", TypeSet::Float, true}};
  def.attributes = {{"mode", AttrKind::String, false, std::string("nearest")}, {"scales", AttrKind::Floats}};
  def.infer = infer_resize;
  def.meaning = Decomposition{decompose_resize};
  def.reference = reference_resize;
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor x = random(DType::F32, {1, 2, 3, 2}, 1);
    return std::vector<Sample>{sample({x, scales4(2, 3)}, {}, 9),
                               sample({x, scales4(2, 1.5)}, {{"mode", std::string("linear")}}, 9),
                               sample({x}, {{"scales", std::vector<double>{1, 1, 2, 2}}}, 7)};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {1, 2, 3, 2}, 1);
    return std::vector<ErrorSample>{wrong({x}, {}, ErrorCode::BadAttribute, "scales", 7)};
  };
  return def;
}

} // namespace

void register_resize_ops(OpTable& table) {
  table.add(resize_onnx_record());
  table.add(upsample_record());
}

} // namespace tessera
