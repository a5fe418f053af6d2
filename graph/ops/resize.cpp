// Resize and Upsample. Resampling is separable: along each axis every output element is a weighted sum of a few input
// elements, the taps; nearest has one, linear two, cubic four, and antialiasing widens the kernel by the factor of the
// reduction.
#include "graph/ops/parts.h"
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

// The primitive, in the spelling of the newest version.
OpDef resize_record() {
  OpDef def;
  def.name = "resize";
  def.summary = "resampling where sizes or coordinates are data, or a tap's kernel is wide";
  def.operands = {{"X", TypeSet::NumericOrBool},
                  {"roi", TypeSet::Float, true},
                  {"scales", TypeSet::Float, true},
                  {"sizes", TypeSet::Index, true}};
  def.attributes = resize_attributes();
  def.infer = infer_resize;
  def.meaning = StructuredOp{};
  def.reference = reference_resize;
  def.data_dependent_shape = true;
  def.samples = [] {
    std::vector<Sample> out = resize_samples();
    std::erase_if(out, [](const Sample& s) { return s.opset != 0; });
    return out;
  };
  def.error_samples = resize_errors;
  return def;
}

// ---- decomposition: where sizes are known, taps are constants; each is a gather, weighted and added
// Along each axis, its size, result and factor; nothing where one of them is not known when compiling.
std::optional<std::vector<Axis>> known_axes(B& b, const Spec& s) {
  SymShape shape = b.shape(b.in(0));
  std::vector<Axis> out(shape.size());
  auto sizes_given = [&](int i) { return i >= 0 && b.has(i) && !b.dim(b.in(i), 0).is_const(0); };
  std::vector<double> scales = s.fixed_scales;
  bool by_size = sizes_given(s.sizes);
  Ints sizes;
  if (by_size) {
    if (s.policy != "stretch") return std::nullopt;
    InferContext c{b.graph(), b.node(), 1, {}, {}};
    auto known = c.known_ints(s.sizes);
    if (!known.ok() || known->size() != s.axes.size()) return std::nullopt;
    sizes = *known;
  } else if (scales.empty()) {
    const Tensor* t = sizes_given(s.scales) ? b.graph().constant(b.in(s.scales)) : nullptr;
    if (!t || !t->data()) return std::nullopt;
    scales = to_f64(*t);
  }
  for (size_t i = 0; i < s.axes.size(); ++i) {
    auto axis = static_cast<size_t>(s.axes[i]);
    Axis& a = out[axis];
    if (!by_size && scales[i] == 1) continue; // whatever its size
    auto in = shape[axis].as_const();
    if (!in || *in < 1) return std::nullopt;
    a.in = *in;
    a.out = by_size ? sizes[i] : scaled(*in, scales[i])->const_value();
    a.scale = by_size ? static_cast<double>(a.out) / static_cast<double>(a.in) : scales[i];
    if (a.out < 1 || a.out > (1 << 24)) return std::nullopt;
  }
  return out;
}

ValueId resample(B& b, ValueId x, const Spec& s, const Axis& a, int64_t axis) {
  std::vector<std::vector<Tap>> all;
  for (int64_t y = 0; y < a.out; ++y) all.push_back(taps(s, a, source(s, a, y)));
  SymShape along(static_cast<size_t>(b.rank(x)), SymExpr(1));
  along[static_cast<size_t>(axis)] = a.out;
  ValueId sum;
  for (size_t k = 0; k < all[0].size(); ++k) {
    Ints index;
    std::vector<double> weight;
    for (const auto& t : all) {
      index.push_back(t[k].index);
      weight.push_back(t[k].weight);
    }
    ValueId part = gather(b, x, b.ints(index), axis);
    if (s.mode == "nearest") return part;
    ValueId w = b.constant(Tensor::of<double>(b.dtype(x), {a.out}, weight));
    part = mul(b, part, reshape(b, w, along));
    sum = sum.valid() ? add(b, sum, part) : part;
  }
  return sum;
}

Result<std::vector<ValueId>> decompose_resize(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  TESSERA_ASSIGN(Spec s, spec_of(n, b.rank(x)));
  auto axes = s.antialias || s.coordinates == "tf_crop_and_resize" ? std::nullopt : known_axes(b, s);
  DType d = b.dtype(x);
  if (axes && (s.mode == "nearest" || is_float(d))) {
    ValueId y = s.mode == "nearest" ? x : widen(b, x);
    for (size_t i = 0; i < axes->size() && b.ok(); ++i) {
      const Axis& a = (*axes)[i];
      if (a.in != a.out || a.scale != 1) y = resample(b, y, s, a, static_cast<int64_t>(i));
    }
    return b.done(cast(b, y, d));
  }
  Attributes attributes;
  for (const AttrDef& def : resize_attributes())
    if (const Attribute* v = b.attr().find(def.name)) attributes.set(def.name, *v);
  attributes.set("mode", s.mode);
  attributes.set("coordinate_transformation_mode", s.coordinates);
  attributes.set("nearest_mode", s.nearest);
  auto operand = [&](int i) { return i >= 0 ? b.in(i) : ValueId{}; };
  ValueId scales = operand(s.scales);
  if (!s.fixed_scales.empty())
    scales = b.constant(Tensor::of<double>(DType::F32, {static_cast<int64_t>(s.fixed_scales.size())}, s.fixed_scales));
  ValueId y = b.op("resize", {x, operand(s.roi), scales, operand(s.sizes)}, std::move(attributes));
  // Sizes known only at run time have names already: those of the node that this one replaces.
  if (b.ok() && !n.results.empty() && n.results[0].valid()) g.value(y).type = g.type(n.results[0]);
  return b.done(y);
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
  table.add(resize_record());
  table.add(resize_onnx_record());
  table.add(upsample_record());
}

} // namespace tessera
