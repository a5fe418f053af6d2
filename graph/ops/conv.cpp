// Convolutions: the primitives conv and conv_transpose, without bias and with pads decided.
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

const std::vector<AttrDef>& primitive_attributes() {
  static const std::vector<AttrDef> attributes = {{"strides", AttrKind::Ints, true},
                                                  {"pads_begin", AttrKind::Ints, true},
                                                  {"pads_end", AttrKind::Ints, true},
                                                  {"dilations", AttrKind::Ints, true},
                                                  {"groups", AttrKind::Int, false, int64_t{1}},
                                                  {"channels_last", AttrKind::Int},
                                                  {"tf32", AttrKind::Int}}; // 1: f32 may be rounded to TF32
  return attributes;
}

Status check_conv_shapes(InferContext& c, const char* what) {
  const SymShape x = channels_first(c.node, c.shape(0)), &w = c.shape(1);
  if (x.size() < 3 || w.size() != x.size())
    return c.error(ErrorCode::ShapeMismatch,
                   std::string(what) + " takes an input [N, C, spatial...] and a weight of the same rank, not " +
                       str(x) + " and " + str(w));
  TESSERA_TRY(check_window(c.node, window_of(c.node.attributes), x.size() - 2));
  int64_t groups = c.node.attributes.i("groups", 1);
  if (groups < 1) return c.error(ErrorCode::BadAttribute, "attribute 'groups' is " + std::to_string(groups));
  auto channels = w[0].as_const();
  if (channels && *channels % groups != 0)
    return c.error(ErrorCode::ShapeMismatch, "channels of the weight, " + std::to_string(*channels) +
                                                 ", do not divide into " + std::to_string(groups) + " groups");
  return {};
}

// ---- conv
Status infer_conv(InferContext& c) {
  TESSERA_TRY(check_conv_shapes(c, "a convolution"));
  const SymShape x = channels_first(c.node, c.shape(0)), w = c.shape(1);
  int64_t groups = c.node.attributes.i("groups", 1);
  TESSERA_TRY(c.env().require_equal(x[1], w[1] * groups, "channels of input and weight", c.node.location));
  TESSERA_ASSIGN(SymShape spatial,
                 slide(c, std::span(x).subspan(2), std::span(w).subspan(2), window_of(c.node.attributes)));
  SymShape out = {x[0], w[0]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  return set_result(c, c.type(0).dtype, in_own_order(c.node, out));
}

Result<int64_t> spatial_size(const ReferenceContext& c, int64_t in, int64_t kernel, const Window& w, size_t i) {
  int64_t room = in + w.pads_begin[i] + w.pads_end[i] - ((kernel - 1) * w.dilations[i] + 1);
  if (room < 0) return c.error(ErrorCode::ShapeMismatch, "the kernel does not fit the padded input");
  return room / w.strides[i] + 1;
}

template <class V>
std::vector<V> all(const Tensor& t) {
  std::vector<V> out(static_cast<size_t>(t.count()));
  for (int64_t i = 0; i < t.count(); ++i) out[static_cast<size_t>(i)] = get<V>(t, i);
  return out;
}

template <class V>
Status convolve(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &w = c.operands[1];
  Window win = window_of(c.node.attributes);
  int64_t groups = c.node.attributes.i("groups", 1), channels = w.dims()[1], filters = w.dims()[0];
  Dims xs(x.dims().begin() + 2, x.dims().end()), ks(w.dims().begin() + 2, w.dims().end()),
      dims = {x.dims()[0], filters}, os;
  for (size_t i = 0; i < xs.size(); ++i) {
    TESSERA_ASSIGN(int64_t size, spatial_size(c, xs[i], ks[i], win, i));
    os.push_back(size);
    dims.push_back(size);
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
  std::vector<V> vx = all<V>(x), vw = all<V>(w);
  Dims stride = strides_of(xs);
  int64_t image = 1, taps = 1;
  for (int64_t d : xs) image *= d;
  for (int64_t d : ks) taps *= d;
  for (MultiIndex o(dims); !o.done(); o.next()) {
    int64_t n = o[0], f = o[1], first = f / std::max<int64_t>(filters / groups, 1) * channels;
    V sum = 0;
    for (MultiIndex k(ks); !k.done(); k.next()) {
      int64_t at = 0;
      bool inside = true;
      for (size_t i = 0; i < ks.size() && inside; ++i) {
        int64_t p = o[i + 2] * win.strides[i] - win.pads_begin[i] + k[i] * win.dilations[i];
        inside = p >= 0 && p < xs[i];
        at += p * stride[i];
      }
      if (!inside) continue;
      for (int64_t ch = 0; ch < channels; ++ch)
        sum += vx[static_cast<size_t>((n * x.dims()[1] + first + ch) * image + at)] *
               vw[static_cast<size_t>((f * channels + ch) * taps + k.i())];
    }
    set(out, o.i(), sum);
  }
  c.results = {out};
  return {};
}

Attributes conv_attributes(Ints strides, Ints begin, Ints end, Ints dilations, int64_t groups = 1) {
  return {{"strides", std::move(strides)},
          {"pads_begin", std::move(begin)},
          {"pads_end", std::move(end)},
          {"dilations", std::move(dilations)},
          {"groups", groups}};
}

Attributes last(Attributes a) {
  a.set("channels_last", int64_t{1});
  return a;
}

OpDef conv_record() {
  OpDef def;
  def.name = "conv";
  def.summary = "convolution of x [N, C, spatial...] (channels_last 1: [N, spatial..., C]) with w [O, C / groups, "
                "kernel...], without bias";
  def.operands = {{"x", TypeSet::Numeric}, {"w", TypeSet::SameAsFirst}};
  def.attributes = primitive_attributes();
  def.infer = infer_conv;
  def.meaning = StructuredOp{Structured::Conv};
  def.reference = [](ReferenceContext& c) -> Status {
    return on_channels_first(c, is_float(c.operands[0].dtype()) ? convolve<double> : convolve<uint64_t>);
  };
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    auto add = [&](DType d, Dims x, Dims w, Attributes a) {
      out.push_back(sample({random(d, std::move(x), seed), random(d, std::move(w), seed + 1)}, std::move(a)));
      seed += 2;
    };
    for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32}) {
      add(d, {1, 1, 5}, {2, 1, 3}, conv_attributes({1}, {1}, {1}, {1}));
      add(d, {2, 3, 7, 6}, {4, 3, 3, 2}, conv_attributes({2, 1}, {1, 0}, {0, 1}, {1, 2}));
    }
    add(DType::F32, {1, 4, 5, 5}, {4, 1, 3, 3}, conv_attributes({1, 1}, {1, 1}, {1, 1}, {1, 1}, 4));
    add(DType::F32, {1, 4, 5, 5}, {6, 2, 1, 1}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2));
    add(DType::F32, {1, 2, 4, 3, 5}, {3, 2, 2, 2, 2}, conv_attributes({1, 2, 1}, {0, 1, 0}, {0, 0, 1}, {1, 1, 2}));
    add(DType::F32, {0, 2, 4, 4}, {3, 2, 2, 2}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}));
    add(DType::F16, {1, 5, 1}, {2, 1, 3}, last(conv_attributes({1}, {1}, {1}, {1})));
    add(DType::F32, {2, 7, 6, 3}, {4, 3, 3, 2}, last(conv_attributes({2, 1}, {1, 0}, {0, 1}, {1, 2})));
    add(DType::F32, {1, 5, 4, 4}, {4, 1, 3, 3}, last(conv_attributes({1, 1}, {1, 1}, {1, 1}, {1, 1}, 4)));
    add(DType::F32, {1, 3, 4, 5, 2}, {3, 2, 2, 2, 2},
        last(conv_attributes({1, 2, 1}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1})));
    return out;
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 3, 5, 5}), r({2, 2, 3, 3})}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}),
              ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 3, 2, 5}), r({2, 3, 3, 3})}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}),
              ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, conv_attributes({1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::BadAttribute,
              "strides"),
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, conv_attributes({0, 1}, {0, 0}, {0, 0}, {1, 1}),
              ErrorCode::BadAttribute, "strides"),
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, last(conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1})),
              ErrorCode::ShapeMismatch, "channels"),
    };
  };
  return def;
}

// ---- conv_transpose
Status infer_conv_transpose(InferContext& c) {
  TESSERA_TRY(check_conv_shapes(c, "a transposed convolution"));
  const SymShape x = channels_first(c.node, c.shape(0)), w = c.shape(1);
  TESSERA_TRY(c.env().require_equal(x[1], w[0], "channels of input and weight", c.node.location));
  Window win = window_of(c.node.attributes);
  Ints extra = c.node.attributes.ints("output_padding", Ints(x.size() - 2, 0));
  if (extra.size() != x.size() - 2)
    return c.error(ErrorCode::BadAttribute, "attribute 'output_padding' has a wrong number of elements");
  SymShape out = {x[0], w[1] * c.node.attributes.i("groups", 1)};
  for (size_t i = 0; i + 2 < x.size(); ++i) {
    SymExpr size = (x[i + 2] - 1) * win.strides[i] + reach(w[i + 2], win.dilations[i]) + extra[i] - win.pads_begin[i] -
                   win.pads_end[i];
    TESSERA_TRY(c.env().require(sym_le(0, size), GuardClass::Required,
                                "the result of a transposed convolution has a size", c.node.location));
    out.push_back(size);
  }
  return set_result(c, c.type(0).dtype, in_own_order(c.node, out));
}

template <class V>
Status convolve_transposed(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &w = c.operands[1];
  Window win = window_of(c.node.attributes);
  int64_t groups = c.node.attributes.i("groups", 1), filters = w.dims()[1];
  Dims xs(x.dims().begin() + 2, x.dims().end()), ks(w.dims().begin() + 2, w.dims().end()),
      dims = {x.dims()[0], filters * groups}, os;
  Ints extra = c.node.attributes.ints("output_padding", Ints(xs.size(), 0));
  for (size_t i = 0; i < xs.size(); ++i) {
    os.push_back((xs[i] - 1) * win.strides[i] + (ks[i] - 1) * win.dilations[i] + 1 + extra[i] - win.pads_begin[i] -
                 win.pads_end[i]);
    dims.push_back(os.back());
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
  std::vector<V> sums(static_cast<size_t>(out.count())), vx = all<V>(x), vw = all<V>(w);
  Dims stride = strides_of(os);
  int64_t image = 1, taps = 1;
  for (int64_t d : os) image *= d;
  for (int64_t d : ks) taps *= d;
  // Every input element adds its multiple of the kernel to the output.
  for (MultiIndex i(x.dims()); !i.done(); i.next()) {
    int64_t channel = i[1], group = channel / std::max<int64_t>(x.dims()[1] / groups, 1);
    for (MultiIndex k(ks); !k.done(); k.next()) {
      int64_t at = 0;
      bool inside = true;
      for (size_t d = 0; d < ks.size() && inside; ++d) {
        int64_t p = i[d + 2] * win.strides[d] + k[d] * win.dilations[d] - win.pads_begin[d];
        inside = p >= 0 && p < os[d];
        at += p * stride[d];
      }
      if (!inside) continue;
      for (int64_t f = 0; f < filters; ++f)
        sums[static_cast<size_t>((i[0] * dims[1] + group * filters + f) * image + at)] +=
            vx[static_cast<size_t>(i.i())] * vw[static_cast<size_t>((channel * filters + f) * taps + k.i())];
    }
  }
  for (int64_t i = 0; i < out.count(); ++i) set(out, i, sums[static_cast<size_t>(i)]);
  c.results = {out};
  return {};
}

OpDef conv_transpose_record() {
  OpDef def;
  def.name = "conv_transpose";
  def.summary = "transposed convolution of x [N, C, spatial...] (channels_last 1: [N, spatial..., C]) with w [C, O / "
                "groups, kernel...], without bias";
  def.operands = {{"x", TypeSet::Numeric}, {"w", TypeSet::SameAsFirst}};
  def.attributes = primitive_attributes();
  def.attributes.push_back({"output_padding", AttrKind::Ints});
  def.infer = infer_conv_transpose;
  def.meaning = StructuredOp{Structured::Conv};
  def.reference = [](ReferenceContext& c) -> Status {
    const bool real = is_float(c.operands[0].dtype());
    return on_channels_first(c, real ? convolve_transposed<double> : convolve_transposed<uint64_t>);
  };
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    auto add = [&](DType d, Dims x, Dims w, Attributes a, Ints extra = {}) {
      if (!extra.empty()) a.set("output_padding", extra);
      out.push_back(sample({random(d, std::move(x), seed), random(d, std::move(w), seed + 1)}, std::move(a)));
      seed += 2;
    };
    for (DType d : {DType::F32, DType::F64, DType::F16, DType::I32}) {
      add(d, {1, 2, 4}, {2, 3, 3}, conv_attributes({2}, {1}, {1}, {1}));
      add(d, {2, 2, 3, 4}, {2, 2, 3, 2}, conv_attributes({2, 3}, {1, 0}, {0, 0}, {1, 2}), {1, 2});
    }
    add(DType::F32, {1, 4, 3, 3}, {4, 1, 2, 2}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2));
    add(DType::F32, {1, 2, 2, 3, 2}, {2, 1, 2, 2, 2}, conv_attributes({1, 2, 1}, {0, 1, 0}, {0, 0, 0}, {1, 1, 1}));
    add(DType::F32, {2, 3, 4, 2}, {2, 2, 3, 2}, last(conv_attributes({2, 3}, {1, 0}, {0, 0}, {1, 2})), {1, 2});
    return out;
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}),
              ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 3, 1, 5}), r({3, 3, 1, 3})}, conv_attributes({1, 1}, {2, 0}, {2, 0}, {1, 1}),
              ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

} // namespace

void register_conv_ops(OpTable& table) {
  table.add(conv_record());
  table.add(conv_transpose_record());
  register_conv_onnx_ops(table);
  register_pool_ops(table);
  register_unpool_ops(table);
  register_roi_ops(table);
  register_resize_ops(table);
  register_grid_ops(table);
}

} // namespace tessera
