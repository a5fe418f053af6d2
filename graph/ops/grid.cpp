// Sampling at coordinates that are data: GridSample and the grids of AffineGrid.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
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
          if (image.padding == Padding::Border && mode != "cubic") // the taps of cubic are clamped each
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

// ---- decomposition: positions and weights of the taps along each dimension, then a weighted sum of elements. Few taps
// are written out; more are dimensions of their own, over which a sum runs.
class Sampler {
public:
  Sampler(B& b, ValueId image, ValueId grid)
      : b_(b), image_(image), rank_(b.shape(image).size() - 2),
        type_(std::max(position_type(b.dtype(image)), position_type(b.dtype(grid)))) {
    const Attributes& a = b.attr();
    std::string mode = a.s("mode", "linear"), padding = a.s("padding_mode", "zeros");
    taps_ = mode == "nearest" ? 1 : mode == "cubic" || mode == "bicubic" ? 4 : 2;
    padding_ = padding == "border" ? Padding::Border : padding == "zeros" ? Padding::Zeros : Padding::Reflection;
    corners_ = a.i("align_corners") != 0;
    constexpr int64_t kWrittenOut = 16;
    int64_t all = 1;
    for (size_t d = 0; d < rank_; ++d) all *= taps_;
    summed_ = all > kWrittenOut;
    grid_ = grid;
  }

  ValueId run() {
    for (size_t d = 0; d < rank_ && b_.ok(); ++d) along_dimension(d);
    if (!b_.ok()) return {};
    const SymShape shape = b_.shape(image_);
    const size_t total = total_rank();
    at_ = {ramp(b_, shape[0], total, 0), ramp(b_, shape[1], total, 1)};
    for (size_t d = 0; d < rank_; ++d) zero_.push_back(static_cast<int64_t>(d) + 2);
    ValueId sum = weighted(0, {});
    if (summed_) {
      Ints axes;
      for (size_t d = 0; d < rank_; ++d) axes.push_back(static_cast<int64_t>(rank_ + 2 + d));
      sum = ops::sum(b_, sum, axes, false);
    }
    return select(b_, all_of(b_, numbers_), sum, 0.0);
  }

private:
  struct Tap {
    ValueId position, weight;
  };
  [[nodiscard]] size_t total_rank() const { return summed_ ? 2 * rank_ + 2 : rank_ + 2; }
  ValueId size(size_t d) { return b_.size(b_.dim(image_, static_cast<int64_t>(d) + 2), type_); }
  ValueId low() { return b_.scalar(type_, corners_ ? 0 : -0.5); }
  ValueId high(size_t d) { return sub(b_, size(d), corners_ ? 1.0 : 0.5); }

  ValueId reflected(ValueId x, size_t d) {
    ValueId first = low(), last = high(d), range = sub(b_, last, first);
    ValueId below = lt(b_, x, first);
    ValueId beyond = max(b_, max(b_, sub(b_, first, x), sub(b_, x, last)), 0.0);
    ValueId turns = floor(b_, div(b_, beyond, range)), rest = sub(b_, beyond, mul(b_, turns, range));
    ValueId even = eq(b_, sub(b_, turns, mul(b_, floor(b_, mul(b_, turns, 0.5)), 2.0)), 0.0);
    ValueId from_low = select(b_, below, even, logical_not(b_, even));
    ValueId moved = select(b_, from_low, add(b_, first, rest), sub(b_, last, rest));
    moved = select(b_, eq(b_, beyond, 0.0), x, moved);
    return select(b_, gt(b_, range, 0.0), moved, expand_to(first, moved));
  }
  ValueId expand_to(ValueId v, ValueId like) { return expand(b_, v, b_.shape(like)); }

  // Keys' kernel with a = -0.75 at a distance below 2.
  ValueId cubic_weight(ValueId distance) {
    constexpr double a = -0.75;
    ValueId x = abs(b_, distance);
    ValueId near = add(b_, mul(b_, mul(b_, sub(b_, mul(b_, x, a + 2), a + 3), x), x), 1.0);
    ValueId far = sub(b_, mul(b_, add(b_, mul(b_, sub(b_, mul(b_, x, a), 5 * a), x), 8 * a), x), 4 * a);
    return select(b_, le(b_, x, 1.0), near, select(b_, lt(b_, x, 2.0), far, 0.0));
  }

  Tap tap(ValueId position, ValueId coordinate, size_t d) {
    Tap t;
    if (taps_ == 2) t.weight = sub(b_, 1.0, abs(b_, sub(b_, coordinate, position)));
    if (taps_ == 4) t.weight = cubic_weight(sub(b_, coordinate, position));
    if (padding_ == Padding::Reflection) position = b_.op1("trunc", reflected(position, d));
    if (padding_ != Padding::Zeros) position = clamp(b_, position, 0.0, sub(b_, size(d), 1.0));
    t.position = index(b_, position);
    return t;
  }

  void along_dimension(size_t d) {
    const SymShape grid = b_.shape(grid_);
    SymShape shape = {grid[0], 1};
    shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
    shape.resize(total_rank(), SymExpr(1));
    // The grid names the last dimension first.
    ValueId g = slice(b_, grid_, static_cast<int64_t>(rank_) + 1, static_cast<int64_t>(rank_ - 1 - d), 1);
    g = cast(b_, reshape(b_, g, shape), type_);
    ValueId is_number = eq(b_, g, g), c = add(b_, select(b_, is_number, g, 0.0), 1.0);
    SymShape plain = shape;
    plain.resize(rank_ + 2);
    numbers_.push_back(reshape(b_, is_number, plain));
    c = corners_ ? mul(b_, mul(b_, c, 0.5), sub(b_, size(d), 1.0)) : mul(b_, sub(b_, mul(b_, c, size(d)), 1.0), 0.5);
    c = clamp(b_, c, -1e15, 1e15);
    if (taps_ == 1) c = b_.op1("round", c);
    if (padding_ == Padding::Border && taps_ != 4) { // four taps are clamped each
      ValueId outside = logical_or(b_, lt(b_, c, low()), gt(b_, c, high(d)));
      c = select(b_, outside, clamp(b_, c, 0.0, max(b_, sub(b_, size(d), 1.0), 0.0)), c);
    }
    if (padding_ == Padding::Reflection) c = reflected(c, d);
    ValueId first = taps_ == 1 ? c : taps_ == 2 ? floor(b_, c) : sub(b_, floor(b_, c), 1.0);
    dimensions_.emplace_back();
    if (summed_)
      dimensions_.back().push_back(tap(add(b_, first, ramp(b_, taps_, total_rank(), rank_ + 2 + d, type_)), c, d));
    else
      for (int64_t k = 0; k < taps_; ++k)
        dimensions_.back().push_back(tap(k == 0 ? first : add(b_, first, static_cast<double>(k)), c, d));
  }

  // The sum over the taps of dimensions d and on.
  ValueId weighted(size_t d, ValueId weight) {
    if (d == rank_) {
      ValueId v = cast(b_, gather_at(b_, image_, at_, zero_), type_);
      return weight.valid() ? mul(b_, v, weight) : v;
    }
    ValueId sum;
    for (const Tap& t : dimensions_[d]) {
      at_.push_back(t.position);
      ValueId part = weighted(d + 1, !t.weight.valid() ? weight
                                     : weight.valid()  ? mul(b_, weight, t.weight)
                                                       : t.weight);
      at_.pop_back();
      sum = sum.valid() ? add(b_, sum, part) : part;
    }
    return sum;
  }

  B& b_;
  ValueId image_, grid_;
  size_t rank_;
  DType type_;
  int64_t taps_ = 1;
  Padding padding_ = Padding::Zeros;
  bool corners_ = false, summed_ = false;
  std::vector<std::vector<Tap>> dimensions_;
  std::vector<ValueId> numbers_, at_; // conditions: the grid holds a number; positions of the element that is read
  Ints zero_;
};

Result<std::vector<ValueId>> decompose_grid_sample(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId y = Sampler(b, b.in(0), b.in(1)).run();
  return b.done(cast(b, y, b.dtype(b.in(0))));
}

OpDef grid_sample_record() {
  OpDef def;
  def.name = "GridSample";
  def.summary = "an image sampled at the coordinates of a grid, -1 to 1 along each dimension";
  def.onnx = {{"GridSample", "", 16}};
  def.operands = {{"X", TypeSet::Float}, {"grid", TypeSet::Float}};
  def.attributes = {{"align_corners", AttrKind::Int, false, int64_t{0}},
                    {"mode", AttrKind::String, false, std::string("linear")},
                    {"padding_mode", AttrKind::String, false, std::string("zeros")}};
  def.infer = infer_grid_sample;
  def.meaning = Decomposition{decompose_grid_sample};
  def.reference = reference_grid_sample;
  def.samples = [] {
    std::vector<Sample> out;
    for (const char* mode : {"linear", "nearest", "cubic"})
      for (const char* padding : {"zeros", "border", "reflection"})
        for (int64_t corners : {0, 1})
          out.push_back(sample(
              {random(DType::F32, {1, 2, 4, 5}, 1), random(DType::F32, {1, 3, 2, 2}, 2, -1.4, 1.4)},
              {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}, {"align_corners", corners}}));
    for (const char* mode : {"linear", "nearest", "cubic"})
      for (const char* padding : {"zeros", "reflection"})
        out.push_back(
            sample({random(DType::F32, {1, 1, 2, 3, 4}, 1), random(DType::F32, {1, 2, 2, 2, 3}, 2, -1.2, 1.2)},
                   {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}}));
    for (DType d : {DType::F64, DType::F16, DType::BF16})
      out.push_back(sample({random(d, {2, 3, 5, 4}, 1), random(DType::F32, {2, 2, 3, 2}, 2, -1.2, 1.2)}));
    out.push_back(sample({random(DType::F32, {2, 1, 7}, 1), floats({2, 2, 1}, {NAN, 0.3, -1.5, 0.9})}));
    out.push_back(sample({random(DType::F32, {1, 1, 1, 1}, 1), random(DType::F32, {1, 2, 2, 2}, 2, -3, 3)},
                         {{"padding_mode", std::string("reflection")}, {"align_corners", int64_t{1}}}));
    for (Sample& s : out) s.tolerance = tolerance(s.operands[0].dtype());
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
Result<std::vector<ValueId>> decompose_affine_grid(Graph& g, const Node& n, int) {
  B b(g, n);
  const std::vector<SymExpr> size = b.sizes(1);
  if (!b.ok()) return b.failed();
  ValueId theta = widen(b, b.in(0));
  const DType type = b.dtype(theta);
  const bool corners = b.attr().i("align_corners") != 0;
  const size_t rank = size.size() - 2;
  SymShape column(rank + 2, SymExpr(1));
  column.front() = b.dim(theta, 0);
  column.back() = static_cast<int64_t>(rank);
  auto part = [&](size_t k) { return reshape(b, slice(b, theta, 2, static_cast<int64_t>(k), 1), column); };
  ValueId sum;
  for (size_t k = 0; k < rank && b.ok(); ++k) { // x belongs to the last dimension
    const size_t d = rank - 1 - k;
    ValueId i = ramp(b, size[d + 2], rank + 2, d + 1, type), m = b.size(size[d + 2], type);
    ValueId position = corners ? sub(b, div(b, mul(b, i, 2.0), max(b, sub(b, m, 1.0), 1.0)), 1.0)
                               : sub(b, div(b, add(b, mul(b, i, 2.0), 1.0), m), 1.0);
    ValueId term = mul(b, part(k), position);
    sum = sum.valid() ? add(b, sum, term) : term;
  }
  return b.done(cast(b, add(b, sum, part(rank)), b.dtype(b.in(0))));
}

OpDef affine_grid_record() {
  OpDef def;
  def.name = "AffineGrid";
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
  def.meaning = Decomposition{decompose_affine_grid};
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
      for (MultiIndex w(places); !w.done(); w.next())
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
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F16, {2, 2, 3}, 1), vec({2, 1, 1, 3})}, {{"align_corners", int64_t{1}}}),
        sample({random(DType::F64, {1, 2, 3}, 1), vec({1, 3, 4, 5})}),
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
