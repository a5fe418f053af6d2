// Regions that are data: RoiAlign, MaxRoiPool.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
#include <cmath>
#include <limits>

namespace tessera {

namespace {
using namespace ops;

// The larger of two types that positions are computed in.
DType position_type(B& b, ValueId x, ValueId y) {
  return ops::position_type(b.dtype(x)) == DType::F64 ? DType::F64 : ops::position_type(b.dtype(y));
}

// Column `k` of regions [R, columns] along the first of `rank` dimensions.
ValueId column(B& b, ValueId rois, int64_t k, size_t rank) {
  return reshape(b, slice(b, rois, 1, k, 1), along(b.dim(rois, 0), rank, 0));
}

// The largest of a tensor's numbers as a size, at least 1: how far dimensions reach that are data.
SymExpr largest(B& b, ValueId x) {
  Ints axes;
  for (int i = 0; i < b.rank(x); ++i) axes.push_back(i);
  std::vector<SymExpr> read =
      b.read(max(b, reduce(b, "reduce_max", index(b, x), axes, false), b.scalar_i(DType::I64, 1)));
  if (!b.ok()) return 1;
  b.check_size(read[0] - 1, "the largest extent of a region");
  return read[0];
}

// Two neighbours of a position along a dimension, and the share of the second.
struct Neighbours {
  ValueId low, high, part;
};

// ---- RoiAlign
Neighbours neighbours(B& b, ValueId v, ValueId size) {
  v = max(b, v, 0.0);
  ValueId last = sub(b, size, 1.0), low = min(b, floor(b, v), last), high = min(b, add(b, low, 1.0), last);
  return {index(b, low), index(b, high), select(b, eq(b, high, low), 0.0, sub(b, v, low))};
}

// Samples are dimensions 4 and 5 behind [region, channel, row, column]; a sum or maximum over them is the result. Where
// their number depends on a region's size, regions with fewer of them leave the rest out.
Result<std::vector<ValueId>> decompose_roi_align(Graph& g, const Node& n, int) {
  B b(g, n);
  const Attributes& a = b.attr();
  ValueId x = b.in(0);
  const SymShape shape = b.shape(x);
  const DType type = position_type(b, x, b.in(1));
  ValueId rois = cast(b, b.in(1), type);
  const int64_t ratio = a.i("sampling_ratio");
  const bool half = opset_of(n) >= 16 && a.s("coordinate_transformation_mode", "half_pixel") == "half_pixel",
             mean = a.s("mode", "avg") == "avg";
  struct Side {
    ValueId first, cell, samples; // of a region, of a cell, samples in a cell
    SymExpr reach;                // samples of the largest cell
    Neighbours at;
    ValueId inside, used;
  };
  auto side = [&](int64_t k, int64_t cells, size_t axis) { // k: column of the first coordinate
    Side s;
    const double scale = a.f("spatial_scale", 1), shift = half ? 0.5 : 0;
    s.first = sub(b, mul(b, column(b, rois, k, 6), scale), shift);
    ValueId extent = sub(b, sub(b, mul(b, column(b, rois, k + 2, 6), scale), shift), s.first);
    if (!half) extent = max(b, extent, 1.0); // regions are at least a pixel
    s.cell = div(b, extent, static_cast<double>(cells));
    s.samples = ratio > 0 ? b.scalar(type, static_cast<double>(ratio)) : ceil(b, s.cell);
    s.reach = ratio > 0 ? SymExpr(ratio) : largest(b, s.samples);
    ValueId size = b.size(shape[axis], type), i = ramp(b, s.reach, 6, axis + 2, type);
    ValueId offset = div(b, mul(b, add(b, i, 0.5), s.cell), s.samples);
    ValueId at = add(b, add(b, s.first, mul(b, ramp(b, cells, 6, axis, type), s.cell)), offset);
    s.inside = logical_and(b, ge(b, at, -1.0), le(b, at, size));
    s.used = lt(b, i, s.samples);
    s.at = neighbours(b, at, size);
    return s;
  };
  Side y = side(1, a.i("output_height", 1), 2), z = side(0, a.i("output_width", 1), 3);
  if (!b.ok()) return b.failed();
  ValueId image = reshape(b, b.in(2), along(b.dim(rois, 0), 6, 0)), channel = ramp(b, shape[1], 6, 1);
  auto corner = [&](ValueId i, ValueId j, ValueId wi, ValueId wj) {
    return mul(b, mul(b, wi, wj), cast(b, gather_at(b, x, {image, channel, i, j}), type));
  };
  ValueId py = y.at.part, pz = z.at.part, qy = sub(b, 1.0, py), qz = sub(b, 1.0, pz);
  ValueId values[] = {corner(y.at.low, z.at.low, qy, qz), corner(y.at.low, z.at.high, qy, pz),
                      corner(y.at.high, z.at.low, py, qz), corner(y.at.high, z.at.high, py, pz)};
  ValueId sample = values[0];
  for (int k = 1; k < 4; ++k) sample = mean ? add(b, sample, values[k]) : max(b, sample, values[k]);
  sample = select(b, logical_and(b, y.inside, z.inside), sample, 0.0);
  ValueId used = logical_and(b, y.used, z.used);
  ValueId count = mul(b, max(b, y.samples, 0.0), max(b, z.samples, 0.0));
  if (b.rank(count) > 0) count = squeeze(b, count, {4, 5});
  ValueId result;
  if (mean) {
    result = div(b, sum(b, select(b, used, sample, 0.0), {4, 5}, false), max(b, count, 1.0));
  } else {
    ValueId lowest = b.scalar(type, -std::numeric_limits<double>::infinity());
    result = reduce(b, "reduce_max", select(b, used, sample, lowest), {4, 5}, false);
    result = select(b, gt(b, count, 0.0), result, 0.0);
  }
  return b.done(cast(b, result, b.dtype(x)));
}

// The four pixels around (y, x) and their weights; all 0 beyond a pixel outside of the image.
struct Corners {
  int64_t at[4] = {0, 0, 0, 0};
  double weight[4] = {0, 0, 0, 0};
};

Corners corners(double y, double x, int64_t height, int64_t width) {
  Corners c;
  if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 && x <= static_cast<double>(width))) return c;
  auto split = [](double v, int64_t n, int64_t& low, int64_t& high, double& part) {
    v = std::max(v, 0.0);
    low = std::min(static_cast<int64_t>(v), n - 1);
    high = std::min(low + 1, n - 1);
    part = high == low ? 0 : v - static_cast<double>(low);
  };
  int64_t y0, y1, x0, x1;
  double py, px;
  split(y, height, y0, y1, py);
  split(x, width, x0, x1, px);
  c.at[0] = y0 * width + x0, c.weight[0] = (1 - py) * (1 - px);
  c.at[1] = y0 * width + x1, c.weight[1] = (1 - py) * px;
  c.at[2] = y1 * width + x0, c.weight[2] = py * (1 - px);
  c.at[3] = y1 * width + x1, c.weight[3] = py * px;
  return c;
}

Status reference_roi_align(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &rois = c.operands[1], &batches = c.operands[2];
  const Attributes& a = c.node.attributes;
  int64_t channels = x.dims()[1], height = x.dims()[2], width = x.dims()[3], count = rois.dims()[0];
  int64_t oh = a.i("output_height", 1), ow = a.i("output_width", 1), ratio = a.i("sampling_ratio");
  bool half = opset_of(c.node) >= 16 && a.s("coordinate_transformation_mode", "half_pixel") == "half_pixel",
       mean = a.s("mode", "avg") == "avg";
  double scale = a.f("spatial_scale", 1), shift = half ? 0.5 : 0;
  if (height == 0 || width == 0) return c.error(ErrorCode::BadInput, "RoiAlign of an empty image");
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), {count, channels, oh, ow}));
  for (int64_t r = 0; r < count; ++r) {
    int64_t n = batches.get_i64(r);
    if (n < 0 || n >= x.dims()[0])
      return c.error(ErrorCode::BadInput, "a region of batch element " + std::to_string(n));
    double x0 = rois.get_f64(r * 4) * scale - shift, y0 = rois.get_f64(r * 4 + 1) * scale - shift;
    double rw = rois.get_f64(r * 4 + 2) * scale - shift - x0, rh = rois.get_f64(r * 4 + 3) * scale - shift - y0;
    if (!half) { // regions are at least a pixel
      rw = std::max(rw, 1.0);
      rh = std::max(rh, 1.0);
    }
    if (!std::isfinite(x0) || !std::isfinite(y0) || !(std::fabs(rw) < 1e6) || !(std::fabs(rh) < 1e6))
      return c.error(ErrorCode::BadInput, "a region of RoiAlign is not within reach");
    double bh = rh / static_cast<double>(oh), bw = rw / static_cast<double>(ow);
    int64_t gh = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bh)),
            gw = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bw));
    if (std::max<int64_t>(gh, 0) * std::max<int64_t>(gw, 0) > int64_t{1} << 24)
      return c.error(ErrorCode::BadInput, "a region of RoiAlign is not within reach");
    double samples = static_cast<double>(std::max<int64_t>(std::max<int64_t>(gh, 0) * std::max<int64_t>(gw, 0), 1));
    for (int64_t ch = 0; ch < channels; ++ch)
      for (int64_t ph = 0; ph < oh; ++ph)
        for (int64_t pw = 0; pw < ow; ++pw) {
          double value = 0;
          bool first = true;
          for (int64_t iy = 0; iy < gh; ++iy)
            for (int64_t ix = 0; ix < gw; ++ix) {
              double yy =
                  y0 + static_cast<double>(ph) * bh + (static_cast<double>(iy) + 0.5) * bh / static_cast<double>(gh);
              double xx =
                  x0 + static_cast<double>(pw) * bw + (static_cast<double>(ix) + 0.5) * bw / static_cast<double>(gw);
              Corners q = corners(yy, xx, height, width);
              for (int k = 0; k < 4; ++k) {
                double v = q.weight[k] * x.get_f64((n * channels + ch) * height * width + q.at[k]);
                if (mean)
                  value += v;
                else
                  value = first ? v : std::max(value, v);
                first = false;
              }
            }
          out.set_f64(((r * channels + ch) * oh + ph) * ow + pw, mean ? value / samples : value);
        }
  }
  c.results = {out};
  return {};
}

OpDef roi_align_record() {
  OpDef def;
  def.name = "RoiAlign";
  def.summary = "regions of an image pooled to one size by bilinear samples";
  def.onnx = {{"RoiAlign", "", 10}};
  def.operands = {{"X", TypeSet::Float}, {"rois", TypeSet::SameAsFirst}, {"batch_indices", TypeSet::Index}};
  def.attributes = {{"coordinate_transformation_mode", AttrKind::String, false, std::string("half_pixel")},
                    {"mode", AttrKind::String, false, std::string("avg")},
                    {"output_height", AttrKind::Int, false, int64_t{1}},
                    {"output_width", AttrKind::Int, false, int64_t{1}},
                    {"sampling_ratio", AttrKind::Int, false, int64_t{0}},
                    {"spatial_scale", AttrKind::Float, false, 1.0}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape x = c.shape(0), r = c.shape(1), b = c.shape(2);
    if (x.size() != 4 || r.size() != 2 || b.size() != 1)
      return c.error(ErrorCode::ShapeMismatch,
                     "RoiAlign takes [N, C, H, W], [R, 4] and [R], not " + str(x) + ", " + str(r) + " and " + str(b));
    TESSERA_TRY(c.env().require_equal(r[1], 4, "coordinates of a region", c.node.location));
    TESSERA_TRY(c.env().require_equal(r[0], b[0], "regions and batch indices", c.node.location));
    const Attributes& a = c.node.attributes;
    std::string mode = a.s("mode", "avg"), coordinates = a.s("coordinate_transformation_mode", "half_pixel");
    if (mode != "avg" && mode != "max")
      return c.error(ErrorCode::BadAttribute, "attribute 'mode' has the unknown value '" + mode + "'");
    if (coordinates != "half_pixel" && coordinates != "output_half_pixel")
      return c.error(ErrorCode::BadAttribute,
                     "attribute 'coordinate_transformation_mode' has the unknown value '" + coordinates + "'");
    int64_t h = a.i("output_height", 1), w = a.i("output_width", 1), ratio = a.i("sampling_ratio");
    if (h < 1 || w < 1 || ratio < 0 || ratio > 4096)
      return c.error(ErrorCode::BadAttribute, "sizes of RoiAlign must be positive");
    return set_result(c, c.type(0).dtype, {r[0], x[1], h, w});
  };
  def.meaning = Decomposition{decompose_roi_align};
  def.reference = reference_roi_align;
  def.samples = [] {
    Tensor x = random(DType::F32, {2, 2, 6, 7}, 1), rois = floats({2, 4}, {0, 0, 4, 5, 1.5, 2, 6, 5.5}),
           batch = vec({1, 0});
    Attributes a = {{"output_height", int64_t{2}}, {"output_width", int64_t{3}}};
    std::vector<Sample> out = {sample({x, rois, batch}, a), sample({x, rois, batch}, a, 10)};
    a.set("mode", std::string("max"));
    a.set("sampling_ratio", int64_t{2});
    a.set("spatial_scale", 0.5);
    out.push_back(sample({x, rois, batch}, a));
    for (DType d : {DType::F64, DType::F16}) {
      Tensor wide = floats(d, {3, 4}, {-3, 0, 4, 5, 1.5, 2, 6, 5.5, 8, 9, 7, 8});
      out.push_back(sample({random(d, {2, 3, 6, 5}, 4), wide, vec({1, 0, 1})}, {{"output_width", int64_t{2}}}));
      out.back().tolerance = tolerance(d);
    }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 2, 6, 7});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {2, 5}), vec({0, 1})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({x, random(DType::F32, {2, 4}), vec({0, 1})}, {{"output_height", int64_t{0}}}, ErrorCode::BadAttribute,
              "positive")};
  };
  return def;
}

// ---- MaxRoiPool
Result<std::vector<ValueId>> decompose_max_roi_pool(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  const SymShape shape = b.shape(x);
  const Ints pooled = b.attr().ints("pooled_shape");
  const DType type = position_type(b, x, b.in(1));
  ValueId rois = cast(b, b.in(1), type);
  auto rounded = [&](ValueId v) { // halves away from 0
    ValueId size = floor(b, add(b, abs(b, v), 0.5));
    return select(b, lt(b, v, 0.0), neg(b, size), size);
  };
  auto corner = [&](int64_t k) { return rounded(mul(b, column(b, rois, k, 6), b.attr().f("spatial_scale", 1))); };
  struct Side {
    ValueId at, used;
  };
  auto side = [&](int64_t k, int64_t cells, size_t axis) {
    ValueId first = corner(k), last = corner(k + 2), limit = b.size(shape[axis], type);
    ValueId size = div(b, max(b, add(b, sub(b, last, first), 1.0), 1.0), static_cast<double>(cells));
    ValueId i = ramp(b, cells, 6, axis, type);
    ValueId begin = clamp(b, add(b, first, floor(b, mul(b, i, size))), 0.0, limit);
    ValueId end = clamp(b, add(b, first, ceil(b, mul(b, add(b, i, 1.0), size))), 0.0, limit);
    ValueId at = add(b, begin, ramp(b, largest(b, sub(b, end, begin)), 6, axis + 2, type));
    return Side{index(b, at), lt(b, at, end)};
  };
  Side y = side(2, pooled[0], 2), z = side(1, pooled[1], 3);
  if (!b.ok()) return b.failed();
  ValueId image = index(b, column(b, rois, 0, 6));
  ValueId v = cast(b, gather_at(b, x, {image, ramp(b, shape[1], 6, 1), y.at, z.at}, {2, 3}), type);
  ValueId lowest = b.scalar(type, -std::numeric_limits<double>::infinity());
  ValueId used = logical_and(b, y.used, z.used);
  ValueId best = reduce(b, "reduce_max", select(b, used, v, lowest), {4, 5}, false);
  ValueId some = reduce(b, "reduce_max", cast(b, used, type), {4, 5}, false);
  return b.done(cast(b, select(b, gt(b, some, 0.0), best, 0.0), b.dtype(x))); // an empty cell is 0
}

OpDef max_roi_pool_record() {
  OpDef def;
  def.name = "MaxRoiPool";
  def.summary = "maximum of each cell of regions of an image";
  def.onnx = {{"MaxRoiPool"}};
  def.operands = {{"X", TypeSet::Float}, {"rois", TypeSet::SameAsFirst}};
  def.attributes = {{"pooled_shape", AttrKind::Ints, true}, {"spatial_scale", AttrKind::Float, false, 1.0}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape x = c.shape(0), r = c.shape(1);
    Ints pooled = c.node.attributes.ints("pooled_shape");
    if (x.size() != 4 || r.size() != 2)
      return c.error(ErrorCode::ShapeMismatch,
                     "MaxRoiPool takes [N, C, H, W] and [R, 5], not " + str(x) + " and " + str(r));
    TESSERA_TRY(c.env().require_equal(r[1], 5, "batch element and coordinates of a region", c.node.location));
    if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1)
      return c.error(ErrorCode::BadAttribute, "attribute 'pooled_shape' must be two positive sizes");
    return set_result(c, c.type(0).dtype, {r[0], x[1], pooled[0], pooled[1]});
  };
  def.meaning = Decomposition{decompose_max_roi_pool};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &rois = c.operands[1];
    Ints pooled = c.node.attributes.ints("pooled_shape");
    double scale = c.node.attributes.f("spatial_scale", 1);
    int64_t channels = x.dims()[1], height = x.dims()[2], width = x.dims()[3], count = rois.dims()[0];
    TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), {count, channels, pooled[0], pooled[1]}));
    int64_t to = 0;
    for (int64_t r = 0; r < count; ++r) {
      int64_t at[5];
      for (int k = 0; k < 5; ++k) {
        double v = rois.get_f64(r * 5 + k) * (k == 0 ? 1 : scale);
        if (!(std::fabs(v) < 1e9)) return c.error(ErrorCode::BadInput, "a region of MaxRoiPool is not within reach");
        at[k] = static_cast<int64_t>(k == 0 ? v : std::round(v));
      }
      if (at[0] < 0 || at[0] >= x.dims()[0])
        return c.error(ErrorCode::BadInput, "a region of batch element " + std::to_string(at[0]));
      auto cell = [](int64_t first, int64_t last, int64_t i, int64_t cells, int64_t limit) {
        double size = static_cast<double>(std::max<int64_t>(last - first + 1, 1)) / static_cast<double>(cells);
        auto begin = first + static_cast<int64_t>(std::floor(static_cast<double>(i) * size)),
             end = first + static_cast<int64_t>(std::ceil(static_cast<double>(i + 1) * size));
        return std::pair(std::clamp<int64_t>(begin, 0, limit), std::clamp<int64_t>(end, 0, limit));
      };
      for (int64_t ch = 0; ch < channels; ++ch)
        for (int64_t i = 0; i < pooled[0]; ++i)
          for (int64_t j = 0; j < pooled[1]; ++j) {
            auto [y0, y1] = cell(at[2], at[4], i, pooled[0], height);
            auto [x0, x1] = cell(at[1], at[3], j, pooled[1], width);
            double best = 0; // of an empty cell
            bool first = true;
            for (int64_t y = y0; y < y1; ++y)
              for (int64_t p = x0; p < x1; ++p) {
                double v = x.get_f64(((at[0] * channels + ch) * height + y) * width + p);
                best = first ? v : std::max(best, v);
                first = false;
              }
            out.set_f64(to++, best);
          }
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 2, 6, 7}, 1), floats({2, 5}, {0, 0, 0, 4, 5, 1, 2, 2, 6, 5})},
               {{"pooled_shape", Ints{2, 3}}}),
        sample({random(DType::F64, {1, 2, 5, 5}, 1), floats(DType::F64, {2, 5}, {0, -4, -3, -1, 2, 0, 1, 1, 9, 9})},
               {{"pooled_shape", Ints{3, 2}}, {"spatial_scale", 0.5}})};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 2, 6, 7});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {2, 4})}, {{"pooled_shape", Ints{2, 3}}}, ErrorCode::ShapeMismatch, ""),
        wrong({x, random(DType::F32, {2, 5})}, {{"pooled_shape", Ints{2}}}, ErrorCode::BadAttribute, "pooled_shape")};
  };
  return def;
}

} // namespace

void register_roi_ops(OpTable& table) {
  table.add(roi_align_record());
  table.add(max_roi_pool_record());
  register_deform_ops(table);
}

} // namespace tessera
