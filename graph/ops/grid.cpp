// Sampling at coordinates that are data: GridSample and the grids of AffineGrid.
#include "graph/ops/parts.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

enum class Padding { Zeros, Border, Reflection };

double reflect(double x, double low, double high) {
  double range = high - low;
  if (range <= 0) return low;
  double d = x < low ? low - x : x > high ? x - high : 0;
  if (d == 0) return x;
  double turns = std::floor(d / range), rest = d - turns * range;
  bool even = std::fmod(turns, 2) == 0;
  return (x < low) == even ? low + rest : high - rest;
}

double cubic(double x) {
  constexpr double a = -0.75;
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

struct Image {
  const Tensor& x;
  int64_t base;       // of this channel
  Dims dims, strides; // spatial
  Padding padding;
  bool corners;

  [[nodiscard]] double low(size_t) const { return corners ? 0 : -0.5; }
  [[nodiscard]] double high(size_t d) const { return static_cast<double>(dims[d]) - (corners ? 1 : 0.5); }

  // Sum over the taps of dimensions d and on; `at` is the flat position so far.
  [[nodiscard]] double sample(const std::vector<double>& coordinates, size_t d, int64_t at,
                              const std::string& mode) const {
    if (d == dims.size()) return x.get_f64(base + at);
    double c = coordinates[d];
    bool nearest = mode == "nearest", linear = mode == "linear";
    double first = nearest ? c : linear ? std::floor(c) : std::floor(c) - 1;
    int taps = nearest ? 1 : linear ? 2 : 4;
    double sum = 0;
    for (int k = 0; k < taps; ++k) {
      double i = first + k,
             weight = nearest  ? 1
                      : linear ? 1 - std::fabs(c - i)
                               : cubic(c - i),
             n = static_cast<double>(dims[d]);
      if (i < 0 || i >= n) {
        if (padding == Padding::Zeros) continue;
        if (padding == Padding::Reflection) i = std::trunc(reflect(i, low(d), high(d)));
        i = std::clamp(i, 0.0, n - 1);
      }
      sum += weight * sample(coordinates, d + 1, at + static_cast<int64_t>(i) * strides[d], mode);
    }
    return sum;
  }
};

Status infer_grid_sample(InferContext& c) {
  const SymShape x = c.shape(0), g = c.shape(1);
  if (x.size() < 3 || g.size() != x.size())
    return c.error(ErrorCode::ShapeMismatch,
                   "GridSample takes [N, C, spatial...] and a grid of the same rank, not " + str(x) + " and " + str(g));
  if (x.size() > 8)
    return c.error(ErrorCode::UnsupportedFeature, "GridSample over " + std::to_string(x.size() - 2) + " dimensions");
  std::string mode = c.node.attributes.s("mode", "linear"), padding = c.node.attributes.s("padding_mode", "zeros");
  if (mode != "linear" && mode != "bilinear" && mode != "nearest" && mode != "cubic" && mode != "bicubic")
    return c.error(ErrorCode::BadAttribute, "attribute 'mode' has the unknown value '" + mode + "'");
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return c.error(ErrorCode::BadAttribute, "attribute 'padding_mode' has the unknown value '" + padding + "'");
  TESSERA_TRY(c.env().require_equal(g[0], x[0], "batches of image and grid", c.node.location));
  TESSERA_TRY(
      c.env().require_equal(g.back(), static_cast<int64_t>(x.size() - 2), "coordinates of a grid", c.node.location));
  SymShape out = {x[0], x[1]};
  out.insert(out.end(), g.begin() + 1, g.end() - 1);
  return set_result(c, c.type(0).dtype, std::move(out));
}

Status reference_grid_sample(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &grid = c.operands[1];
  std::string mode = c.node.attributes.s("mode", "linear"), padding = c.node.attributes.s("padding_mode", "zeros");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  Image image{x,
              0,
              Dims(x.dims().begin() + 2, x.dims().end()),
              {},
              padding == "border"  ? Padding::Border
              : padding == "zeros" ? Padding::Zeros
                                   : Padding::Reflection,
              c.node.attributes.i("align_corners") != 0};
  image.strides = strides_of(image.dims);
  auto rank = static_cast<int64_t>(image.dims.size());
  Dims dims = {x.dims()[0], x.dims()[1]}, places(grid.dims().begin() + 1, grid.dims().end() - 1);
  dims.insert(dims.end(), places.begin(), places.end());
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
  int64_t pixels = 1, count = 1;
  for (int64_t d : image.dims) pixels *= d;
  for (int64_t d : places) count *= d;
  for (int64_t plane = 0; plane < dims[0] * dims[1]; ++plane) {
    image.base = plane * pixels;
    int64_t n = plane / dims[1];
    for (int64_t p = 0; p < count; ++p) {
      std::vector<double> at(image.dims.size());
      bool nothing = pixels == 0;
      for (int64_t d = 0; d < rank; ++d) {
        auto k = static_cast<size_t>(d);
        // The grid names the last dimension first.
        double g = grid.get_f64((n * count + p) * rank + rank - 1 - d), size = static_cast<double>(image.dims[k]);
        double v = image.corners ? (g + 1) / 2 * (size - 1) : ((g + 1) * size - 1) / 2;
        nothing = nothing || std::isnan(v);
        v = std::clamp(v, -1e15, 1e15);
        if (mode == "nearest") v = std::nearbyint(v);
        if (v < image.low(k) || v > image.high(k)) {
          if (image.padding == Padding::Border)
            v = std::clamp(v, 0.0, std::max(size - 1, 0.0));
          else if (image.padding == Padding::Reflection)
            v = reflect(v, image.low(k), image.high(k));
        }
        at[k] = v;
      }
      out.set_f64(plane * count + p, nothing ? 0 : image.sample(at, 0, 0, mode));
    }
  }
  c.results = {out};
  return {};
}

OpDef grid_sample_record() {
  OpDef def;
  def.name = "grid_sample";
  def.summary = "an image sampled at the coordinates of a grid, -1 to 1 along each dimension";
  def.onnx = {{"GridSample", "", 16}};
  def.operands = {{"X", TypeSet::Float}, {"grid", TypeSet::Float}};
  def.attributes = {{"align_corners", AttrKind::Int, false, int64_t{0}},
                    {"mode", AttrKind::String, false, std::string("linear")},
                    {"padding_mode", AttrKind::String, false, std::string("zeros")}};
  def.infer = infer_grid_sample;
  def.meaning = StructuredOp{};
  def.reference = reference_grid_sample;
  def.samples = [] {
    std::vector<Sample> out;
    for (const char* mode : {"linear", "nearest", "cubic"})
      for (const char* padding : {"zeros", "border", "reflection"})
        for (int64_t corners : {0, 1})
          out.push_back(sample(
              {random(DType::F32, {1, 2, 4, 5}, 1), random(DType::F32, {1, 3, 2, 2}, 2, -1.4, 1.4)},
              {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", corners}}));
    out.push_back(sample({random(DType::F32, {1, 1, 2, 3, 4}, 1), random(DType::F32, {1, 2, 2, 2, 3}, 2, -1.2, 1.2)}));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {1, 2, 4, 5});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {1, 3, 2})}, {}, ErrorCode::ShapeMismatch, "rank"),
        wrong({x, random(DType::F32, {1, 3, 2, 3})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({x, random(DType::F32, {1, 3, 2, 2})}, {{"mode", std::string("area")}}, ErrorCode::BadAttribute, "mode")};
  };
  return def;
}

// ---- AffineGrid
OpDef affine_grid_record() {
  OpDef def;
  def.name = "affine_grid";
  def.summary = "the grid that an affine transform makes of an image's pixels";
  def.onnx = {{"AffineGrid", "", 20}};
  def.operands = {{"theta", TypeSet::Float}, {"size", TypeSet::Index}};
  def.attributes = {{"align_corners", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape t = c.shape(0), s = c.shape(1);
    if (t.size() != 3 || s.size() != 1 || !s[0].is_const() || (!s[0].is_const(4) && !s[0].is_const(5)))
      return c.error(ErrorCode::ShapeMismatch,
                     "AffineGrid takes theta [N, 2, 3] or [N, 3, 4] and a size of 4 or 5 elements, not " + str(t) +
                         " and " + str(s));
    int64_t rank = s[0].const_value() - 2;
    TESSERA_TRY(c.env().require_equal(t[1], rank, "rows of theta", c.node.location));
    TESSERA_TRY(c.env().require_equal(t[2], rank + 1, "columns of theta", c.node.location));
    TESSERA_ASSIGN(SymShape size, known_or_fresh(c, 1, static_cast<size_t>(rank + 2), "grid"));
    SymShape out = {t[0]};
    out.insert(out.end(), size.begin() + 2, size.end());
    out.emplace_back(rank);
    return set_result(c, c.type(0).dtype, std::move(out));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& theta = c.operands[0];
    Dims size = to_i64(c.operands[1]), places(size.begin() + 2, size.end());
    bool corners = c.node.attributes.i("align_corners") != 0;
    auto rank = static_cast<int64_t>(places.size());
    Dims dims = {theta.dims()[0]};
    dims.insert(dims.end(), places.begin(), places.end());
    dims.push_back(rank);
    TESSERA_ASSIGN(Tensor out, Tensor::create(theta.dtype(), dims));
    int64_t at = 0;
    for (int64_t n = 0; n < dims[0]; ++n)
      for (Walk w(places); !w.done(); w.next())
        for (int64_t row = 0; row < rank; ++row) {
          double sum = theta.get_f64((n * rank + row) * (rank + 1) + rank);
          for (int64_t k = 0; k < rank; ++k) { // x belongs to the last dimension
            auto d = static_cast<size_t>(rank - 1 - k);
            double i = static_cast<double>(w[d]), m = static_cast<double>(places[d]);
            double position = corners ? (places[d] > 1 ? 2 * i / (m - 1) - 1 : -1) : (2 * i + 1) / m - 1;
            sum += theta.get_f64((n * rank + row) * (rank + 1) + k) * position;
          }
          out.set_f64(at++, sum);
        }
    c.results = {out};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 2, 3}, 1), vec({2, 3, 4, 5})}),
        sample({random(DType::F32, {1, 3, 4}, 1), vec({1, 1, 2, 3, 4})}, {{"align_corners", int64_t{1}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 2, 3}), vec({2, 3, 4})}, {}, ErrorCode::ShapeMismatch, "theta"),
        wrong({random(DType::F32, {2, 3, 3}), vec({2, 3, 4, 5})}, {}, ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

} // namespace

void register_grid_ops(OpTable& table) {
  table.add(grid_sample_record());
  table.add(affine_grid_record());
}

} // namespace tessera
