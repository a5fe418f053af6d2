// Convolutions and their gradients.
//
// With stride s, dilation d and padding p, element q of the result reads element q * s + k * d - p of the input through
// tap k. So the gradient of the input is the transposed convolution of the result's gradient, and the gradient of tap k
// is the product of the result's gradient with the elements that the tap reads.
#include "frontend/fx/aten/parts.h"

namespace tessera::fx {
namespace {

struct Form {
  Ints strides, pads_begin, pads_end, dilations, extra; // extra: output padding of a transposed convolution
  int64_t groups = 1;
  bool transposed = false;

  [[nodiscard]] size_t spatial() const { return strides.size(); }
  [[nodiscard]] Attributes attributes() const {
    Ints pads = pads_begin;
    pads.insert(pads.end(), pads_end.begin(), pads_end.end());
    return {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"group", groups}};
  }
};

Form form_of(Call& c, size_t n) {
  Form f;
  f.strides = spatial(c, "stride", n, {1});
  f.dilations = spatial(c, "dilation", n, {1});
  f.groups = c.in.integer("groups");
  f.transposed = c.schema().argument("transposed") ? c.in.flag("transposed")
                                                   : c.schema().name.find("conv_transpose") != std::string_view::npos;
  f.extra = c.schema().argument("output_padding") ? spatial(c, "output_padding", n, {0}) : Ints(n, 0);
  f.pads_begin = f.pads_end = Ints(n, 0);
  return f;
}

ValueId convolution(Call& c, ValueId x, ValueId weight, ValueId bias, const Form& f) {
  if (!c.b.ok()) return {};
  const Batched batched = with_batch(c, x, static_cast<int>(f.spatial()));
  std::vector<ValueId> operands = {batched.value, weight};
  if (bias.valid()) operands.push_back(bias);
  Attributes a = f.attributes();
  if (f.transposed) a.set("output_padding", f.extra);
  ValueId y;
  if (is_float(c.b.dtype(x))) {
    y = c.b.op(f.transposed ? "ConvTranspose" : "Conv", operands, std::move(a));
  } else { // ONNX's are of real numbers
    Attributes p = {{"strides", f.strides},
                    {"pads_begin", f.pads_begin},
                    {"pads_end", f.pads_end},
                    {"dilations", f.dilations},
                    {"groups", f.groups}};
    if (f.transposed) p.set("output_padding", f.extra);
    y = c.b.op(f.transposed ? "conv_transpose" : "conv", {batched.value, weight}, std::move(p));
    if (bias.valid()) y = add(c.b, y, along(c, bias, 1, c.b.rank(y)));
  }
  return without_batch(c, y, batched);
}

int spatial_dimensions(Call& c, ValueId weight) {
  if (!c.b.ok()) return 1;
  const int n = c.b.rank(weight) - 2;
  if (n < 1)
    c.b.fail(ErrorCode::ShapeMismatch,
             "the weight of a convolution is [O, I, kernel...], not " + str(c.b.shape(weight)));
  return std::max(n, 1);
}

void translate_convolution(Call& c) {
  ValueId x = c.in.tensor(c.schema().argument("input") ? "input" : "self"), weight = c.in.tensor("weight"),
          bias = c.in.maybe("bias");
  const auto n = static_cast<size_t>(spatial_dimensions(c, weight));
  Form f;
  if (c.schema().argument("groups")) {
    f = form_of(c, n);
  } else { // thnn_conv2d, conv_depthwise3d: their groups are those that the channels make
    f.strides = spatial(c, "stride", n, {1});
    f.dilations = c.schema().argument("dilation") ? spatial(c, "dilation", n, {1}) : Ints(n, 1);
    f.pads_begin = f.pads_end = f.extra = Ints(n, 0);
    if (!c.b.ok()) return;
    auto channels = c.b.dim(x, c.b.rank(x) - static_cast<int64_t>(n) - 1).as_const(),
         each = c.b.dim(weight, 1).as_const();
    if (!channels || !each || *each < 1) return c.unsupported("a convolution whose channels are symbolic");
    f.groups = *channels / *each;
  }
  f.pads_begin = f.pads_end = spatial(c, "padding", n, {0});
  c.result(convolution(c, x, weight, bias, f));
}

// Padding by a word: 'valid' is none; 'same' keeps sizes, the odd element at the end.
void translate_convolution_padding(Call& c) {
  ValueId x = c.in.tensor("input"), weight = c.in.tensor("weight"), bias = c.in.maybe("bias");
  const auto n = static_cast<size_t>(spatial_dimensions(c, weight));
  Form f = form_of(c, n);
  const std::string padding = c.in.text("padding");
  if (!c.b.ok()) return;
  if (padding == "same") {
    for (size_t i = 0; i < n; ++i) {
      auto kernel = c.b.dim(weight, static_cast<int64_t>(i) + 2).as_const();
      if (!kernel) return c.unsupported("padding 'same' with a kernel of a symbolic size");
      const int64_t total = f.dilations[i] * (*kernel - 1);
      f.pads_begin[i] = total / 2;
      f.pads_end[i] = total - total / 2;
    }
  } else if (padding != "valid") {
    return c.b.fail(ErrorCode::BadAttribute, "argument 'padding' is '" + padding + "', expected 'same' or 'valid'");
  }
  c.result(convolution(c, x, weight, bias, f));
}

// [T, B, I] with weight [kernel, I, O].
void translate_conv_tbc(Call& c) {
  ValueId x = c.in.tensor("self"), weight = c.in.tensor("weight"), bias = c.in.tensor("bias");
  const int64_t pad = c.in.integer("pad");
  if (!c.b.ok()) return;
  Form f{{1}, {pad}, {pad}, {1}, {0}, 1, false};
  ValueId y = convolution(c, transpose(c.b, x, {1, 2, 0}), transpose(c.b, weight, {2, 1, 0}), bias, f);
  c.result(transpose(c.b, y, {2, 0, 1}));
}

// ---- gradients
// x cut to `size` along the spatial dimensions.
ValueId cut(Call& c, ValueId x, std::span<const SymExpr> size) {
  for (size_t i = 0; i < size.size() && c.b.ok(); ++i) {
    const auto axis = static_cast<int64_t>(i) + 2;
    if (!c.b.env().known_equal(c.b.dim(x, axis), size[i])) x = slice(c.b, x, axis, 0, size[i]);
  }
  return x;
}

ValueId input_gradient(Call& c, ValueId grad, ValueId x, ValueId weight, const Form& f) {
  const SymShape in = c.b.shape(x), out = c.b.shape(grad), kernel = c.b.shape(weight);
  const auto sizes = std::span(in).subspan(2);
  Form g = f;
  g.transposed = !f.transposed;
  if (!f.transposed) {
    // Elements at the end that strides pass over: output padding where it is known; else all there may be, cut off.
    for (size_t i = 0; i < f.spatial(); ++i) {
      SymExpr reached =
          (out[i + 2] - 1) * f.strides[i] + f.dilations[i] * (kernel[i + 2] - 1) + 1 - f.pads_begin[i] - f.pads_end[i];
      auto missing = c.b.env().simplify(in[i + 2] - reached).as_const();
      g.extra[i] = missing && *missing >= 0 ? *missing : f.strides[i] - 1;
    }
  }
  return cut(c, convolution(c, grad, weight, {}, g), sizes);
}

// Gradient of a weight [O, I / groups, kernel...] from the gradient [N, O, ...] and the input [N, I, ...]: products of
// [O / groups, N * elements] with the windows of x, [N * elements, taps * I / groups], for each group.
ValueId weight_gradient(Call& c, ValueId grad, ValueId x, const SymShape& weight, const Form& f) {
  if (!c.b.ok()) return {};
  const DType d = c.b.dtype(x);
  const SymShape in = c.b.shape(x), out = c.b.shape(grad);
  const auto sizes = std::span(out).subspan(2), kernel = std::span(weight).subspan(2);
  const SymExpr batch = in[0], groups = f.groups, each = c.b.env().simplify(floordiv(in[1], f.groups)),
                filters = c.b.env().simplify(floordiv(out[1], f.groups));
  // Enough zeros that each tap's elements are there.
  SymShape begin(2, SymExpr(0)), end(2, SymExpr(0));
  for (size_t i = 0; i < f.spatial(); ++i) {
    begin.emplace_back(f.pads_begin[i]);
    SymExpr need = f.dilations[i] * (kernel[i] - 1) + (sizes[i] - 1) * f.strides[i] + 1;
    SymExpr more = c.b.env().simplify(need - in[i + 2] - f.pads_begin[i]);
    auto known = more.as_const();
    end.push_back(known ? SymExpr(std::max<int64_t>(*known, 0)) : sym_max(more, 0));
  }
  ValueId reads = windows(c, pad(c.b, x, begin, end), {kernel, sizes, f.strides, f.dilations});
  if (!c.b.ok()) return {};
  SymShape right = {batch, groups, each}, left = {batch, groups, filters}; // then taps and elements
  Ints taps, elements, inner;
  for (size_t i = 0; i < f.spatial(); ++i) {
    const auto at = static_cast<int64_t>(i);
    right.insert(right.end(), {kernel[i], sizes[i]});
    left.push_back(sizes[i]);
    taps.push_back(3 + 2 * at);
    elements.push_back(4 + 2 * at);
    inner.push_back(3 + at);
  }
  auto joined = [](Ints first, std::initializer_list<Ints> rest) {
    for (const Ints& more : rest) first.insert(first.end(), more.begin(), more.end());
    return first;
  };
  // [groups, I / groups, taps..., N, elements...] and [groups, O / groups, N, elements...]
  reads = transpose(c.b, reshape(c.b, reads, right), joined({1, 2}, {taps, {0}, elements}));
  ValueId g = transpose(c.b, reshape(c.b, grad, left), joined({1, 2, 0}, {inner}));
  if (each.is_const(1)) { // one channel a group: sums of products, no matrices
    g = unsqueeze(c.b, g, axis_range(2, 2 + static_cast<int64_t>(f.spatial())));
    const int64_t rank = 3 + 2 * static_cast<int64_t>(f.spatial());
    ValueId y = sum(c.b, mul(c.b, widen(c.b, g), widen(c.b, reads)),
                    axis_range(2 + static_cast<int64_t>(f.spatial()), rank), false);
    return cast(c.b, reshape(c.b, y, weight), d);
  }
  // The larger factor stands first, as it lies in memory: a transposed one would be written in the other order.
  const SymExpr count = batch * product(sizes);
  ValueId y = matmul(c.b, reshape(c.b, reads, {groups, each * product(kernel), count}),
                     transpose(c.b, reshape(c.b, g, {groups, filters, count}), {0, 2, 1}));
  return reshape(c.b, transpose(c.b, y, {0, 2, 1}), weight);
}

void translate_convolution_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), x = c.in.tensor("input"), weight = c.in.tensor("weight");
  const auto n = static_cast<size_t>(spatial_dimensions(c, weight));
  Form f = form_of(c, n);
  f.pads_begin = f.pads_end = spatial(c, "padding", n, {0});
  const Ints mask = c.in.ints("output_mask");
  if (!c.b.ok()) return;
  const Batched grads = with_batch(c, grad, static_cast<int>(n)), inputs = with_batch(c, x, static_cast<int>(n));
  if (mask.at(0))
    c.result(without_batch(c, input_gradient(c, grads.value, inputs.value, weight, f), inputs));
  else
    c.unused_result();
  if (mask.at(1)) {
    // A transposed convolution is the other way round: its input stands where the gradient does.
    const SymShape shape = c.b.shape(weight);
    c.result(f.transposed ? weight_gradient(c, inputs.value, grads.value, shape, f)
                          : weight_gradient(c, grads.value, inputs.value, shape, f));
  } else {
    c.unused_result();
  }
  if (mask.at(2)) {
    Ints axes = axis_range(2, static_cast<int64_t>(n) + 2);
    axes.insert(axes.begin(), 0);
    if (!c.b.ok()) return;
    const DType d = c.b.dtype(grad);
    c.result(cast(c.b, sum(c.b, widen(c.b, grads.value), axes, false), d));
  } else {
    c.unused_result();
  }
}

} // namespace

void register_convolution(AtenTable& t) {
  t.add({"convolution.default", "_convolution.default", "_convolution.deprecated", "convolution_overrideable.default",
         "conv1d.default", "conv2d.default", "conv3d.default", "conv_transpose1d.default", "conv_transpose2d.input",
         "conv_transpose3d.input", "thnn_conv2d.default", "conv_depthwise3d.default"},
        translate_convolution);
  t.add({"conv1d.padding", "conv2d.padding", "conv3d.padding"}, translate_convolution_padding);
  t.add({"conv_tbc.default"}, translate_conv_tbc);
  t.add({"convolution_backward.default", "convolution_backward_overrideable.default"}, translate_convolution_backward);
}

} // namespace tessera::fx
