// Resize and Upsample. Resampling is separable: along each axis every output element is a weighted sum of a few input
// elements, the taps; nearest has one, linear two, cubic four, and antialiasing widens the kernel by the factor of the
// reduction.
#include "graph/ops/resize.h"
#include <cmath>

namespace tessera {

namespace ops::resizing {

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
// floor(size * scale).
SymExpr scaled(const SymExpr& size, double scale) {
  if (auto n = size.as_const()) return SymExpr(static_cast<int64_t>(std::floor(static_cast<double>(*n) * scale)));
  for (int64_t q = 1; q <= 64; ++q) {
    double p = scale * static_cast<double>(q);
    if (p == std::floor(p) && p < 1e6) return floordiv(size * static_cast<int64_t>(p), q);
  }
  return sym_scaled(size, scale);
}

} // namespace ops::resizing

namespace {
using namespace ops;
using namespace ops::resizing;

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
    dim = scales.empty() ? c.env().create_symbol("resize") : scaled(dim, scales[i]);
  }
  return set_result(c, c.type(0).dtype, std::move(shape));
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
    for (MultiIndex w(next); !w.done() && count > 0; w.next()) {
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
  for (MultiIndex w(dims); !w.done(); w.next()) {
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
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) { return resizing::decompose(g, n); }};
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
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) { return resizing::decompose(g, n); }};
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
