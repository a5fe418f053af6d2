// DeformConv: a convolution whose offsets are data.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// Each tap of the kernel reads at an offset of its own, bilinearly, zero outside
Status infer_deform_conv(InferContext& c) {
  const SymShape x = c.shape(0), w = c.shape(1), o = c.shape(2);
  if (x.size() != 4 || w.size() != 4 || o.size() != 4)
    return c.error(ErrorCode::UnsupportedFeature, "DeformConv is built for two spatial dimensions, not " + str(x));
  TESSERA_ASSIGN(Window win, onnx_window(c.node, 2));
  int64_t group = c.node.attributes.i("group", 1), offsets = c.node.attributes.i("offset_group", 1);
  if (group < 1 || offsets < 1) return c.error(ErrorCode::BadAttribute, "groups of DeformConv must be positive");
  auto same = [&](const SymExpr& a, const SymExpr& b, const char* what) {
    return c.env().require_equal(a, b, what, c.node.location);
  };
  auto divides = [&](const SymExpr& a, int64_t b) {
    return c.env().require(sym_eq(mod(a, b), 0), GuardClass::Required, "groups divide the channels", c.node.location);
  };
  TESSERA_TRY(same(x[1], w[1] * group, "channels of input and weight"));
  TESSERA_TRY(divides(w[0], group));
  TESSERA_TRY(divides(x[1], offsets));
  TESSERA_ASSIGN(SymShape spatial, slide(c, std::span(x).subspan(2), std::span(w).subspan(2), win));
  TESSERA_TRY(same(o[0], x[0], "batches of input and offsets"));
  TESSERA_TRY(same(o[1], w[2] * w[3] * (2 * offsets), "offsets and taps of the kernel"));
  for (size_t i = 0; i < 2; ++i) TESSERA_TRY(same(o[i + 2], spatial[i], "offsets and result"));
  if (c.has(3)) {
    if (c.type(3).rank() != 1)
      return c.error(ErrorCode::ShapeMismatch, "the bias of a convolution is a vector, not " + str(c.shape(3)));
    TESSERA_TRY(same(c.shape(3)[0], w[0], "bias and channels of the result"));
  }
  if (c.has(4)) {
    if (c.type(4).rank() != 4) return c.error(ErrorCode::ShapeMismatch, "the mask of DeformConv is " + str(c.shape(4)));
    TESSERA_TRY(same(c.shape(4)[1], w[2] * w[3] * offsets, "mask and taps of the kernel"));
    for (size_t i : {0, 2, 3}) TESSERA_TRY(same(c.shape(4)[i], o[i], "mask and offsets"));
  }
  return set_result(c, c.type(0).dtype, {x[0], w[0], spatial[0], spatial[1]});
}

Status reference_deform_conv(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &w = c.operands[1], &o = c.operands[2];
  TESSERA_ASSIGN(Window win, onnx_window(c.node, 2));
  int64_t group = c.node.attributes.i("group", 1), offset_group = c.node.attributes.i("offset_group", 1);
  int64_t batch = x.dims()[0], channels = x.dims()[1], height = x.dims()[2], width = x.dims()[3], filters = w.dims()[0],
          per = w.dims()[1];
  int64_t kh = w.dims()[2], kw = w.dims()[3], oh = o.dims()[2], ow = o.dims()[3], taps = kh * kw;
  auto pixel = [&](int64_t plane, int64_t i, int64_t j) {
    return i < 0 || j < 0 || i >= height || j >= width ? 0.0 : x.get_f64((plane * height + i) * width + j);
  };
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), {batch, filters, oh, ow}));
  MultiIndex at(out.dims());
  for (; !at.done(); at.next()) {
    int64_t n = at[0], f = at[1], g = f / std::max<int64_t>(filters / group, 1);
    double sum = given(c, 3) ? c.operands[3].get_f64(f) : 0;
    for (int64_t k = 0; k < per; ++k) {
      int64_t ch = g * per + k, og = ch / std::max<int64_t>(channels / offset_group, 1);
      for (int64_t t = 0; t < taps; ++t) {
        auto moved = [&](int64_t axis) {
          return o.get_f64((((n * offset_group + og) * taps + t) * 2 + axis) * oh * ow + at[2] * ow + at[3]);
        };
        double y =
            static_cast<double>(at[2] * win.strides[0] - win.pads_begin[0] + t / kw * win.dilations[0]) + moved(0);
        double z =
            static_cast<double>(at[3] * win.strides[1] - win.pads_begin[1] + t % kw * win.dilations[1]) + moved(1);
        if (!(y > -1 && y < static_cast<double>(height) && z > -1 && z < static_cast<double>(width))) continue;
        auto i = static_cast<int64_t>(std::floor(y)), j = static_cast<int64_t>(std::floor(z));
        double py = y - static_cast<double>(i), pz = z - static_cast<double>(j);
        int64_t plane = n * channels + ch;
        double v = (1 - py) * ((1 - pz) * pixel(plane, i, j) + pz * pixel(plane, i, j + 1)) +
                   py * ((1 - pz) * pixel(plane, i + 1, j) + pz * pixel(plane, i + 1, j + 1));
        if (given(c, 4))
          v *= c.operands[4].get_f64(((n * offset_group + og) * taps + t) * oh * ow + at[2] * ow + at[3]);
        sum += v * w.get_f64((f * per + k) * taps + t);
      }
    }
    out.set_f64(at.i(), sum);
  }
  c.results = {out};
  return {};
}

// Columns [N, offset group, channel in it, kernel y, kernel x, y, x], sampled bilinearly and masked, times the weights.
Result<std::vector<ValueId>> decompose_deform_conv(Graph& g, const Node& n, int) {
  B b(g, n);
  TESSERA_ASSIGN(Window win, onnx_window(n, 2));
  ValueId x = b.in(0), w = b.in(1);
  const DType type = ops::position_type(b.dtype(x));
  const SymShape shape = b.shape(x), kernel = b.shape(w), offsets = b.shape(b.in(2));
  const int64_t group = b.attr().i("group", 1), offset_group = b.attr().i("offset_group", 1);
  const SymExpr each = floordiv(shape[1], offset_group), &kh = kernel[2], &kw = kernel[3], &oh = offsets[2],
                &ow = offsets[3];
  const SymShape one_channel = {shape[0], offset_group, 1, kh, kw, oh, ow};
  ValueId moves = reshape(b, cast(b, b.in(2), type), {shape[0], offset_group, kh, kw, 2, oh, ow});
  struct Side {
    ValueId low, part, inside;
  };
  auto side = [&](int64_t axis) {
    const auto k = static_cast<size_t>(axis);
    ValueId move = reshape(b, slice(b, moves, 4, axis, 1), one_channel);
    ValueId start = sub(b, mul(b, ramp(b, offsets[k + 2], 7, k + 5, type), static_cast<double>(win.strides[k])),
                        static_cast<double>(win.pads_begin[k]));
    ValueId tap = mul(b, ramp(b, kernel[k + 2], 7, k + 3, type), static_cast<double>(win.dilations[k]));
    ValueId at = add(b, add(b, start, tap), move), low = floor(b, at);
    ValueId inside = logical_and(b, gt(b, at, -1.0), lt(b, at, b.size(shape[k + 2], type)));
    return Side{index(b, select(b, inside, low, 0.0)), select(b, inside, sub(b, at, low), 0.0), inside};
  };
  Side y = side(0), z = side(1);
  ValueId batch = ramp(b, shape[0], 7, 0);
  ValueId channel = add(b, mul(b, ramp(b, offset_group, 7, 1), b.size(each, DType::I64)), ramp(b, each, 7, 2));
  ValueId one = b.scalar_i(DType::I64, 1);
  auto pixel = [&](ValueId i, ValueId j) { return cast(b, gather_at(b, x, {batch, channel, i, j}, {2, 3}), type); };
  ValueId y1 = add(b, y.low, one), z1 = add(b, z.low, one), qy = sub(b, 1.0, y.part), qz = sub(b, 1.0, z.part);
  ValueId above = add(b, mul(b, qz, pixel(y.low, z.low)), mul(b, z.part, pixel(y.low, z1)));
  ValueId below = add(b, mul(b, qz, pixel(y1, z.low)), mul(b, z.part, pixel(y1, z1)));
  ValueId columns = add(b, mul(b, qy, above), mul(b, y.part, below));
  columns = select(b, logical_and(b, y.inside, z.inside), columns, 0.0);
  if (b.has(4)) columns = mul(b, columns, reshape(b, cast(b, b.in(4), type), one_channel));
  const SymExpr depth = kernel[1] * kh * kw;
  columns = reshape(b, cast(b, columns, b.dtype(x)), {shape[0], group, depth, oh * ow});
  ValueId weights = reshape(b, w, {1, group, floordiv(kernel[0], group), depth});
  ValueId result = reshape(b, matmul(b, weights, columns), {shape[0], kernel[0], oh, ow});
  if (b.has(3)) result = add(b, result, reshape(b, b.in(3), {kernel[0], 1, 1}));
  return b.done(result);
}

OpDef deform_conv_record() {
  OpDef def;
  def.name = "DeformConv";
  def.summary = "convolution whose taps read at offsets";
  def.onnx = {{"DeformConv", "", 19}};
  def.operands = {{"X", TypeSet::Float},
                  {"W", TypeSet::SameAsFirst},
                  {"offset", TypeSet::SameAsFirst},
                  {"B", TypeSet::SameAsFirst, true},
                  {"mask", TypeSet::SameAsFirst, true}};
  def.attributes = {{"dilations", AttrKind::Ints},    {"group", AttrKind::Int, false, int64_t{1}},
                    {"kernel_shape", AttrKind::Ints}, {"offset_group", AttrKind::Int, false, int64_t{1}},
                    {"pads", AttrKind::Ints},         {"strides", AttrKind::Ints}};
  def.infer = infer_deform_conv;
  def.meaning = Decomposition{decompose_deform_conv};
  def.reference = reference_deform_conv;
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
    auto wide = [](Dims d, uint64_t seed) { return random(DType::F64, std::move(d), seed, -3, 3); };
    return std::vector<Sample>{
        sample({wide({2, 2, 5, 4}, 1), wide({3, 2, 2, 3}, 2), wide({2, 12, 3, 2}, 3)},
               {{"strides", Ints{2, 1}}, {"dilations", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 0}}}),
        sample({r({1, 2, 4, 4}, 1), r({3, 2, 2, 2}, 2), r({1, 8, 3, 3}, 3)}),
        sample({r({1, 2, 4, 4}, 1), r({2, 1, 2, 2}, 2), r({1, 16, 5, 5}, 3), r({2}, 4), r({1, 8, 5, 5}, 5)},
               {{"group", int64_t{2}}, {"offset_group", int64_t{2}}, {"pads", Ints{1, 1, 1, 1}}}),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 2, 4, 4}), r({3, 2, 2, 2}), r({1, 6, 3, 3})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 4}), r({3, 2, 2}), r({1, 6, 3})}, {}, ErrorCode::UnsupportedFeature, "two spatial")};
  };
  return def;
}

} // namespace

void register_deform_ops(OpTable& table) { table.add(deform_conv_record()); }

} // namespace tessera
