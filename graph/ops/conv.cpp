// Convolutions: the primitives conv and conv_transpose (no bias, pads decided), and ONNX's operators in terms of them.
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

const std::vector<AttrDef>& primitive_attributes() {
  static const std::vector<AttrDef> attributes = {{"strides", AttrKind::Ints, true},
                                                  {"pads_begin", AttrKind::Ints, true},
                                                  {"pads_end", AttrKind::Ints, true},
                                                  {"dilations", AttrKind::Ints, true},
                                                  {"groups", AttrKind::Int, false, int64_t{1}}};
  return attributes;
}

Status check_conv_shapes(InferContext& c, const char* what) {
  const SymShape &x = c.shape(0), &w = c.shape(1);
  if (x.size() < 3 || w.size() != x.size())
    return c.error(ErrorCode::ShapeMismatch, std::string(what) + " takes an input [N, C, spatial...] and a weight of the same rank, not " +
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
  const SymShape x = c.shape(0), w = c.shape(1);
  int64_t groups = c.node.attributes.i("groups", 1);
  TESSERA_TRY(c.env().require_equal(x[1], w[1] * groups, "channels of input and weight", c.node.location));
  TESSERA_ASSIGN(SymShape spatial, slide(c, std::span(x).subspan(2), std::span(w).subspan(2), window_of(c.node.attributes)));
  SymShape out = {x[0], w[0]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  return set_result(c, c.type(0).dtype, std::move(out));
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
  Dims xs(x.dims().begin() + 2, x.dims().end()), ks(w.dims().begin() + 2, w.dims().end()), dims = {x.dims()[0], filters}, os;
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
  for (Walk o(dims); !o.done(); o.next()) {
    int64_t n = o[0], f = o[1], first = f / std::max<int64_t>(filters / groups, 1) * channels;
    V sum = 0;
    for (Walk k(ks); !k.done(); k.next()) {
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

OpDef conv_record() {
  OpDef def;
  def.name = "conv";
  def.summary = "convolution of x [N, C, spatial...] with w [O, C / groups, kernel...], without bias";
  def.operands = {{"x", TypeSet::Numeric}, {"w", TypeSet::SameAsFirst}};
  def.attributes = primitive_attributes();
  def.infer = infer_conv;
  def.meaning = StructuredOp{Structured::Conv};
  def.reference = [](ReferenceContext& c) -> Status {
    return is_float(c.operands[0].dtype()) ? convolve<double>(c) : convolve<uint64_t>(c);
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
    return out;
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 3, 5, 5}), r({2, 2, 3, 3})}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 3, 2, 5}), r({2, 3, 3, 3})}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, conv_attributes({1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::BadAttribute, "strides"),
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, conv_attributes({0, 1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::BadAttribute, "strides"),
    };
  };
  return def;
}

// ---- conv_transpose
Status infer_conv_transpose(InferContext& c) {
  TESSERA_TRY(check_conv_shapes(c, "a transposed convolution"));
  const SymShape x = c.shape(0), w = c.shape(1);
  TESSERA_TRY(c.env().require_equal(x[1], w[0], "channels of input and weight", c.node.location));
  Window win = window_of(c.node.attributes);
  Ints extra = c.node.attributes.ints("output_padding", Ints(x.size() - 2, 0));
  if (extra.size() != x.size() - 2) return c.error(ErrorCode::BadAttribute, "attribute 'output_padding' has a wrong number of elements");
  SymShape out = {x[0], w[1] * c.node.attributes.i("groups", 1)};
  for (size_t i = 0; i + 2 < x.size(); ++i) {
    SymExpr size = (x[i + 2] - 1) * win.strides[i] + reach(w[i + 2], win.dilations[i]) + extra[i] - win.pads_begin[i] - win.pads_end[i];
    TESSERA_TRY(c.env().require(sym_le(0, size), GuardClass::Required, "the result of a transposed convolution has a size",
                                c.node.location));
    out.push_back(size);
  }
  return set_result(c, c.type(0).dtype, std::move(out));
}

Status reference_conv_transpose(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &w = c.operands[1];
  Window win = window_of(c.node.attributes);
  int64_t groups = c.node.attributes.i("groups", 1), filters = w.dims()[1];
  Dims xs(x.dims().begin() + 2, x.dims().end()), ks(w.dims().begin() + 2, w.dims().end()), dims = {x.dims()[0], filters * groups}, os;
  Ints extra = c.node.attributes.ints("output_padding", Ints(xs.size(), 0));
  for (size_t i = 0; i < xs.size(); ++i) {
    os.push_back((xs[i] - 1) * win.strides[i] + (ks[i] - 1) * win.dilations[i] + 1 + extra[i] - win.pads_begin[i] - win.pads_end[i]);
    dims.push_back(os.back());
  }
  TESSERA_ASSIGN(int64_t count, element_count(dims));
  std::vector<double> sums(static_cast<size_t>(count)), vx = all<double>(x), vw = all<double>(w);
  Dims stride = strides_of(os);
  int64_t image = 1, taps = 1;
  for (int64_t d : os) image *= d;
  for (int64_t d : ks) taps *= d;
  // Every input element adds its multiple of the kernel to the output.
  for (Walk i(x.dims()); !i.done(); i.next()) {
    int64_t channel = i[1], group = channel / std::max<int64_t>(x.dims()[1] / groups, 1);
    for (Walk k(ks); !k.done(); k.next()) {
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
  TESSERA_ASSIGN(Tensor out, from_f64(x.dtype(), dims, sums));
  c.results = {out};
  return {};
}

OpDef conv_transpose_record() {
  OpDef def;
  def.name = "conv_transpose";
  def.summary = "transposed convolution of x [N, C, spatial...] with w [C, O / groups, kernel...], without bias";
  def.operands = {{"x", TypeSet::Float}, {"w", TypeSet::SameAsFirst}};
  def.attributes = primitive_attributes();
  def.attributes.push_back({"output_padding", AttrKind::Ints});
  def.infer = infer_conv_transpose;
  def.meaning = StructuredOp{Structured::Conv};
  def.reference = reference_conv_transpose;
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    auto add = [&](DType d, Dims x, Dims w, Attributes a, Ints extra = {}) {
      if (!extra.empty()) a.set("output_padding", extra);
      out.push_back(sample({random(d, std::move(x), seed), random(d, std::move(w), seed + 1)}, std::move(a)));
      seed += 2;
    };
    for (DType d : {DType::F32, DType::F64, DType::F16}) {
      add(d, {1, 2, 4}, {2, 3, 3}, conv_attributes({2}, {1}, {1}, {1}));
      add(d, {2, 2, 3, 4}, {2, 2, 3, 2}, conv_attributes({2, 3}, {1, 0}, {0, 0}, {1, 2}), {1, 2});
    }
    add(DType::F32, {1, 4, 3, 3}, {4, 1, 2, 2}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2));
    add(DType::F32, {1, 2, 2, 3, 2}, {2, 1, 2, 2, 2}, conv_attributes({1, 2, 1}, {0, 1, 0}, {0, 0, 0}, {1, 1, 1}));
    return out;
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 3, 5, 5}), r({2, 3, 3, 3})}, conv_attributes({1, 1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 3, 1, 5}), r({3, 3, 1, 3})}, conv_attributes({1, 1}, {2, 0}, {2, 0}, {1, 1}), ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

// ---- composites
const std::vector<AttrDef>& onnx_attributes() {
  static const std::vector<AttrDef> attributes = {{"auto_pad", AttrKind::String, false, std::string("NOTSET")},
                                                  {"dilations", AttrKind::Ints},
                                                  {"group", AttrKind::Int, false, int64_t{1}},
                                                  {"kernel_shape", AttrKind::Ints},
                                                  {"pads", AttrKind::Ints},
                                                  {"strides", AttrKind::Ints}};
  return attributes;
}

bool check_ranks(B& b, ValueId x, ValueId w) {
  if (b.ok() && (b.rank(x) < 3 || b.rank(w) != b.rank(x)))
    b.fail(ErrorCode::ShapeMismatch, "a convolution takes an input [N, C, spatial...] and a weight of the same rank, not " +
                                         str(b.shape(x)) + " and " + str(b.shape(w)));
  return b.ok();
}

// The product part of a convolution as the node's attributes ask; x and w are already what is to be multiplied.
ValueId convolution(B& b, ValueId x, ValueId w) {
  if (!check_ranks(b, x, w)) return {};
  SymShape xs = b.shape(x), ws = b.shape(w);
  b.check(check_kernel_shape(b, ws));
  auto window = onnx_window(b.node(), b.rank(x) - 2);
  if (!window.ok()) return b.fail(std::move(window).take_error()), ValueId{};
  SymShape begin, end;
  b.check(apply_auto_pad(b.node(), std::span(xs).subspan(2), std::span(ws).subspan(2), *window, begin, end));
  if (!b.ok()) return {};
  begin.insert(begin.begin(), 2, SymExpr(0));
  end.insert(end.begin(), 2, SymExpr(0));
  Attributes a = window_attributes(*window);
  a.set("groups", b.attr().i("group", 1));
  return b.op("conv", {b.pad(x, begin, end), w}, std::move(a));
}

// A per-channel vector along dimension 1 of a value of this rank.
ValueId along_channels(B& b, ValueId v, int rank) {
  if (!b.ok() || b.rank(v) != 1) return v;
  SymShape dims(static_cast<size_t>(rank), SymExpr(1));
  dims[1] = b.dim(v, 0);
  return b.reshape(v, dims);
}

ValueId add_bias(B& b, ValueId y, ValueId bias) {
  if (!b.ok()) return {};
  if (b.rank(bias) != 1) return b.fail(ErrorCode::ShapeMismatch, "the bias of a convolution is a vector, not " + str(b.shape(bias))), ValueId{};
  b.check(b.env().require_equal(b.dim(bias, 0), b.dim(y, 1), "bias and channels of the result", b.node().location));
  return b.add(y, along_channels(b, bias, b.rank(y)));
}

OpDef conv_onnx_record() {
  OpDef def;
  def.name = "Conv";
  def.summary = "convolution with bias and padding as ONNX says it";
  def.onnx = {{"Conv"}};
  def.operands = {{"X", TypeSet::Float}, {"W", TypeSet::SameAsFirst}, {"B", TypeSet::SameAsFirst, true}};
  def.attributes = onnx_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId y = convolution(b, b.in(0), b.in(1));
    return b.done(b.has(2) ? add_bias(b, y, b.in(2)) : y);
  }};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({1, 2, 5, 5}, 1), r({3, 2, 3, 3}, 2), r({3}, 3)}, {{"pads", Ints{1, 1, 1, 1}}}),
        sample({r({1, 2, 5, 6}, 1), r({3, 2, 3, 3}, 2)}, {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{2, 2}}}),
        sample({r({1, 2, 5, 6}, 1), r({3, 2, 2, 2}, 2)}, {{"auto_pad", std::string("SAME_LOWER")}}),
        sample({r({1, 2, 5, 6}, 1), r({3, 2, 3, 3}, 2)}, {{"auto_pad", std::string("VALID")}, {"kernel_shape", Ints{3, 3}}}),
        sample({r({2, 2, 9}, 1), r({4, 1, 3}, 2), r({4}, 3)}, {{"group", int64_t{2}}, {"dilations", Ints{2}}}),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3}), r({2})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {{"kernel_shape", Ints{2, 3}}}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {{"pads", Ints{1, 1}}}, ErrorCode::BadAttribute, "pads"),
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {{"auto_pad", std::string("SAME")}}, ErrorCode::BadAttribute, "auto_pad"),
        wrong({r({1, 2}), r({3, 2})}, {}, ErrorCode::ShapeMismatch, "spatial"),
    };
  };
  return def;
}

// Both operands in i32 less their zero points (the weight's may be one per filter).
ValueId integer_convolution(B& b, int x, int xz, int w, int wz) {
  ValueId vx = b.cast(b.in(x), DType::I32), vw = b.cast(b.in(w), DType::I32);
  if (!check_ranks(b, vx, vw)) return {};
  if (b.has(xz)) vx = b.sub(vx, b.cast(b.in(xz), DType::I32));
  if (b.has(wz)) {
    ValueId zero = b.cast(b.in(wz), DType::I32);
    if (b.ok() && b.rank(zero) == 1) {
      SymShape dims(static_cast<size_t>(b.rank(vw)), SymExpr(1));
      dims[0] = b.dim(zero, 0);
      zero = b.reshape(zero, dims);
    }
    vw = b.sub(vw, zero);
  }
  return convolution(b, vx, vw);
}

OpDef conv_integer_record() {
  OpDef def;
  def.name = "ConvInteger";
  def.summary = "convolution of 8-bit integers in i32, zero points taken off";
  def.onnx = {{"ConvInteger", "", 10}};
  def.operands = {{"x", TypeSet::Integer}, {"w", TypeSet::Integer}, {"x_zero_point", TypeSet::SameAsFirst, true},
                  {"w_zero_point", TypeSet::Integer, true}};
  def.attributes = onnx_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(integer_convolution(b, 0, 2, 1, 3));
  }};
  def.samples = [] {
    Tensor x = random(DType::U8, {1, 2, 4, 4}, 1, 0, 255), w = random(DType::U8, {2, 2, 2, 2}, 2, 0, 255);
    return std::vector<Sample>{sample({x, w}), sample({x, w, scalar(DType::U8, 7)}, {{"pads", Ints{1, 1, 1, 1}}}),
                               sample({x, w, scalar(DType::U8, 7), integers(DType::U8, {2}, {3, 9})})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::U8, {1, 2, 4, 4}), random(DType::U8, {2, 1, 2, 2})}, {}, ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

OpDef qlinear_conv_record() {
  OpDef def;
  def.name = "QLinearConv";
  def.summary = "convolution of quantised tensors, quantised again";
  def.onnx = {{"QLinearConv", "", 10}};
  def.operands = {{"x", TypeSet::Integer},       {"x_scale", TypeSet::Float},   {"x_zero_point", TypeSet::SameAsFirst},
                  {"w", TypeSet::Integer},       {"w_scale", TypeSet::Float},   {"w_zero_point", TypeSet::Integer},
                  {"y_scale", TypeSet::Float},   {"y_zero_point", TypeSet::Integer}, {"B", TypeSet::Integer, true}};
  def.attributes = onnx_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId sum = integer_convolution(b, 0, 2, 3, 5);
    if (b.has(8)) sum = add_bias(b, sum, b.cast(b.in(8), DType::I32));
    ValueId factor = b.div(b.mul(b.in(1), b.in(4)), b.in(6));
    int rank = b.rank(sum);
    ValueId real = b.op1("round", b.mul(b.cast(sum, DType::F32), along_channels(b, b.cast(factor, DType::F32), rank)));
    ValueId zero = b.cast(b.in(7), DType::F32);
    return b.done(b.cast(b.add(real, along_channels(b, zero, rank)), b.dtype(b.in(7))));
  }};
  def.samples = [] {
    Tensor x = random(DType::U8, {1, 2, 4, 4}, 1, 0, 255), w = random(DType::I8, {2, 2, 2, 2}, 2, -128, 127);
    auto f = [](double v) { return scalar(DType::F32, v); };
    return std::vector<Sample>{
        sample({x, f(0.02), scalar(DType::U8, 100), w, f(0.05), scalar(DType::I8, 0), f(0.2), scalar(DType::U8, 128)}),
        sample({x, f(0.02), scalar(DType::U8, 100), w, floats({2}, {0.05, 0.02}), integers(DType::I8, {2}, {0, 0}), f(0.2),
                scalar(DType::U8, 128), integers(DType::I32, {2}, {100, -700})}),
    };
  };
  def.error_samples = [] {
    auto f = [](double v) { return scalar(DType::F32, v); };
    return std::vector<ErrorSample>{wrong({random(DType::U8, {1, 3, 4, 4}), f(1), scalar(DType::U8, 0), random(DType::U8, {2, 2, 2, 2}),
                                           f(1), scalar(DType::U8, 0), f(1), scalar(DType::U8, 0)},
                                          {}, ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

// Pads of ONNX's ConvTranspose: given, or from the output's size.
Status transpose_pads(B& b, const SymShape& x, const SymShape& w, Window& window, Ints& extra) {
  std::string mode = b.attr().s("auto_pad", "NOTSET");
  Ints wanted = b.attr().ints("output_shape");
  size_t n = x.size() - 2;
  bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "NOTSET" && mode != "VALID" && !mode.empty())
    return Diagnostic(ErrorCode::BadAttribute, "attribute 'auto_pad' has the unknown value '" + mode + "'");
  if (wanted.size() == n + 2) wanted.erase(wanted.begin(), wanted.begin() + 2); // some exporters give N and C as well
  if (!wanted.empty() && wanted.size() != n)
    return Diagnostic(ErrorCode::BadAttribute, "attribute 'output_shape' has a wrong number of elements");
  if (wanted.empty() && !same) return {};
  for (size_t i = 0; i < n; ++i) {
    SymExpr out = wanted.empty() ? x[i + 2] * window.strides[i] : SymExpr(wanted[i]);
    SymExpr total = (x[i + 2] - 1) * window.strides[i] + extra[i] + reach(w[i + 2], window.dilations[i]) - out;
    auto known = b.env().simplify(total).as_const();
    if (!known) return Diagnostic(ErrorCode::UnsupportedFeature, "pads of this ConvTranspose depend on a symbolic size: " + total.str());
    int64_t pads = std::max<int64_t>(*known, 0);
    if (*known < 0) extra[i] -= *known; // a larger output than the kernels reach: the rest is zero
    window.pads_begin[i] = mode == "SAME_UPPER" ? pads / 2 : pads - pads / 2;
    window.pads_end[i] = pads - window.pads_begin[i];
  }
  return {};
}

Result<std::vector<ValueId>> decompose_conv_transpose(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), w = b.in(1);
  if (!check_ranks(b, x, w)) return b.done(ValueId{});
  SymShape xs = b.shape(x), ws = b.shape(w);
  b.check(check_kernel_shape(b, ws));
  TESSERA_ASSIGN(Window window, onnx_window(b.node(), b.rank(x) - 2));
  Ints extra = b.attr().ints("output_padding", Ints(xs.size() - 2, 0));
  if (extra.size() != xs.size() - 2) b.fail(ErrorCode::BadAttribute, "attribute 'output_padding' has a wrong number of elements");
  for (int64_t e : extra)
    if (e < 0 || e > (int64_t{1} << 40)) b.fail(ErrorCode::BadAttribute, "attribute 'output_padding' has the value " + std::to_string(e));
  if (!b.ok()) return b.done(ValueId{});
  b.check(transpose_pads(b, xs, ws, window, extra));
  Attributes a = window_attributes(window);
  a.set("groups", b.attr().i("group", 1));
  a.set("output_padding", extra);
  ValueId y = b.op("conv_transpose", {x, w}, std::move(a));
  return b.done(b.has(2) ? add_bias(b, y, b.in(2)) : y);
}

OpDef conv_transpose_onnx_record() {
  OpDef def;
  def.name = "ConvTranspose";
  def.summary = "transposed convolution with bias and padding as ONNX says it";
  def.onnx = {{"ConvTranspose"}};
  def.operands = {{"X", TypeSet::Float}, {"W", TypeSet::SameAsFirst}, {"B", TypeSet::SameAsFirst, true}};
  def.attributes = onnx_attributes();
  def.attributes.push_back({"output_padding", AttrKind::Ints});
  def.attributes.push_back({"output_shape", AttrKind::Ints});
  def.meaning = Decomposition{decompose_conv_transpose};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({1, 2, 3, 3}, 1), r({2, 3, 3, 3}, 2), r({3}, 3)}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}),
        sample({r({1, 1, 3, 3}, 1), r({1, 2, 3, 3}, 2)}, {{"output_shape", Ints{10, 8}}, {"strides", Ints{3, 2}}}),
        sample({r({1, 1, 3, 3}, 1), r({1, 2, 3, 3}, 2)}, {{"auto_pad", std::string("SAME_LOWER")}, {"strides", Ints{2, 2}}}),
        sample({r({1, 2, 4}, 1), r({2, 1, 3}, 2)}, {{"output_padding", Ints{1}}, {"strides", Ints{2}}}),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 5, 5}), r({2, 2, 3, 3})}, {{"output_padding", Ints{1}}}, ErrorCode::BadAttribute, "output_padding"),
        wrong({r({1, 2, 5, 5}), r({2, 2, 3, 3})}, {{"output_shape", Ints{9}}}, ErrorCode::BadAttribute, "output_shape"),
    };
  };
  return def;
}

// ---- CausalConvWithState: a depthwise convolution over time that carries the last steps of its input
Result<std::vector<ValueId>> decompose_causal_conv(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), w = b.in(1);
  if (b.rank(x) != 3 || b.rank(w) != 3) b.fail(ErrorCode::ShapeMismatch, "CausalConvWithState takes [N, C, L] and [C, 1, K]");
  std::string activation = b.attr().s("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    b.fail(ErrorCode::BadAttribute, "attribute 'activation' has the unknown value '" + activation + "'");
  if (!b.ok()) return b.done(ValueId{});
  auto channels = b.env().simplify(b.dim(w, 0)).as_const();
  SymExpr kernel = b.dim(w, 2);
  if (!channels || !kernel.is_const())
    return Diagnostic(ErrorCode::UnsupportedFeature, n.location, "CausalConvWithState needs a weight of known shape");
  ValueId padded = b.has(3) ? b.concat({b.in(3), x}, 2) : b.pad(x, {0, 0, kernel - 1}, {0, 0, 0});
  ValueId y = b.op("conv", {padded, w}, conv_attributes({1}, {0}, {0}, {1}, *channels));
  if (b.has(2)) y = add_bias(b, y, b.in(2));
  if (activation != "none") y = b.mul(y, b.sigmoid(y));
  ValueId state = b.slice(padded, 2, b.dim(padded, 2) - (kernel - 1), kernel - 1);
  return b.done({y, state});
}

OpDef causal_conv_record() {
  OpDef def;
  def.name = "CausalConvWithState";
  def.summary = "depthwise convolution over the past, with the state that the next call continues from";
  def.onnx = {{"CausalConvWithState", "", 27}};
  def.operands = {{"input", TypeSet::Float}, {"weight", TypeSet::SameAsFirst}, {"bias", TypeSet::SameAsFirst, true},
                  {"past_state", TypeSet::SameAsFirst, true}};
  def.attributes = {{"activation", AttrKind::String, false, std::string("none")}};
  def.max_results = 2;
  def.meaning = Decomposition{decompose_causal_conv};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    std::vector<Sample> out = {sample({r({2, 3, 5}, 1), r({3, 1, 4}, 2)}),
                               sample({r({2, 3, 5}, 1), r({3, 1, 4}, 2), r({3}, 3), r({2, 3, 3}, 4)}, {{"activation", std::string("silu")}})};
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({2, 3, 5}), r({3, 4})}, {}, ErrorCode::ShapeMismatch, "[N, C, L]"),
        wrong({r({2, 3, 5}), r({3, 1, 4})}, {{"activation", std::string("relu")}}, ErrorCode::BadAttribute, "activation"),
    };
  };
  return def;
}

} // namespace

void register_conv_ops(OpTable& table) {
  table.add(conv_record());
  table.add(conv_transpose_record());
  table.add(conv_onnx_record());
  table.add(conv_integer_record());
  table.add(qlinear_conv_record());
  table.add(conv_transpose_onnx_record());
  table.add(causal_conv_record());
  register_pool_ops(table);
  register_unpool_ops(table);
  register_roi_ops(table);
  register_resize_ops(table);
  register_grid_ops(table);
}

} // namespace tessera
