// Parts that convolution and pooling share: windows that slide over spatial dimensions, and how ONNX spells them.
#include "graph/ops/parts.h"

namespace tessera::ops {

Result<DType> dtype_attribute(const Node& node, std::string_view name, DType fallback) {
  int64_t number = node.attributes.i(name, 0);
  if (number == 0) return fallback;
  auto dtype = number > 0 && number < 1000 ? dtype_from_onnx(static_cast<int>(number)) : std::nullopt;
  if (!dtype)
    return Diagnostic(ErrorCode::BadAttribute, node.location,
                      "attribute '" + std::string(name) + "' names no element type: " + std::to_string(number));
  return *dtype;
}

Result<SymShape> known_or_fresh(InferContext& c, int operand, size_t count, std::string_view name) {
  auto contents = c.known(operand);
  if (contents.ok()) {
    if (contents->size() != count)
      return c.error(ErrorCode::BadAttribute, std::string(name) + " has " + std::to_string(contents->size()) +
                                                  " elements, not " + std::to_string(count));
    for (const SymExpr& e : *contents)
      if (c.env().prove(sym_le(0, e)) != true)
        TESSERA_TRY(c.env().require(sym_le(0, e), GuardClass::Required, std::string(name) + " is not negative",
                                    c.node.location));
    return SymShape(contents->begin(), contents->end());
  }
  SymShape fresh;
  for (size_t i = 0; i < count; ++i) fresh.push_back(c.env().create_symbol(name));
  return fresh;
}

namespace {
constexpr int64_t kLargest = int64_t{1} << 40; // a pad, stride or kernel above this exceeds every tensor

Status check_values(const Node& node, const Ints& values, size_t count, int64_t least, const char* what) {
  if (values.size() != count)
    return Diagnostic(ErrorCode::BadAttribute, node.location,
                      std::string("attribute '") + what + "' has " + std::to_string(values.size()) + " elements, not " +
                          std::to_string(count));
  for (int64_t v : values)
    if (v < least || v > kLargest)
      return Diagnostic(ErrorCode::BadAttribute, node.location,
                        std::string("attribute '") + what + "' has the value " + std::to_string(v) + ", outside of " +
                            std::to_string(least) + " to 2^40");
  return {};
}
} // namespace

Status check_window(const Node& node, const Window& w, size_t spatial) {
  TESSERA_TRY(check_values(node, w.strides, spatial, 1, "strides"));
  TESSERA_TRY(check_values(node, w.dilations, spatial, 1, "dilations"));
  TESSERA_TRY(check_values(node, w.pads_begin, spatial, 0, "pads_begin"));
  return check_values(node, w.pads_end, spatial, 0, "pads_end");
}

Result<Window> onnx_window(const Node& node, int spatial) {
  auto n = static_cast<size_t>(std::max(spatial, 0));
  const Attributes& a = node.attributes;
  Window w;
  w.strides = a.ints("strides", Ints(n, 1));
  w.dilations = a.ints("dilations", Ints(n, 1));
  std::string mode = a.s("auto_pad", "NOTSET");
  Ints pads = mode == "NOTSET" || mode.empty() ? a.ints("pads", Ints(2 * n, 0)) : Ints(2 * n, 0);
  TESSERA_TRY(check_values(node, pads, 2 * n, 0, "pads"));
  w.pads_begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
  w.pads_end.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  TESSERA_TRY(check_window(node, w, n));
  return w;
}

Window window_of(const Attributes& a) {
  return {a.ints("strides"), a.ints("pads_begin"), a.ints("pads_end"), a.ints("dilations")};
}

Attributes window_attributes(const Window& w) {
  return {{"strides", w.strides}, {"pads_begin", w.pads_begin}, {"pads_end", w.pads_end}, {"dilations", w.dilations}};
}

Result<SymShape> slide(InferContext& c, std::span<const SymExpr> sizes, std::span<const SymExpr> kernel,
                       const Window& w) {
  SymShape out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    SymExpr padded = sizes[i] + w.pads_begin[i] + w.pads_end[i], extent = reach(kernel[i], w.dilations[i]);
    TESSERA_TRY(c.env().require(sym_le(extent, padded), GuardClass::Required,
                                "the kernel of '" + std::string(c.node.op->name) + "' fits dimension " +
                                    std::to_string(i + 2) + " with its padding",
                                c.node.location));
    out.push_back(floordiv(padded - extent, w.strides[i]) + 1);
  }
  return out;
}

Status apply_auto_pad(const Node& node, std::span<const SymExpr> sizes, std::span<const SymExpr> kernel, Window& w,
                      SymShape& begin, SymShape& end) {
  std::string mode = node.attributes.s("auto_pad", "NOTSET");
  begin.assign(sizes.size(), SymExpr(0));
  end.assign(sizes.size(), SymExpr(0));
  if (mode.empty() || mode == "NOTSET" || mode == "VALID") return {};
  if (mode != "SAME_UPPER" && mode != "SAME_LOWER")
    return Diagnostic(ErrorCode::BadAttribute, node.location,
                      "attribute 'auto_pad' has the unknown value '" + mode + "'");
  for (size_t i = 0; i < sizes.size(); ++i) {
    // As many windows as strides fit the input, rounded up; what they reach beyond it is padding.
    SymExpr windows = ceildiv(sizes[i], w.strides[i]);
    SymExpr extent = reach(kernel[i], w.dilations[i]);
    SymExpr total = w.strides[i] == 1 ? extent - 1 : sym_max((windows - 1) * w.strides[i] + extent - sizes[i], 0);
    SymExpr half = floordiv(total, 2);
    SymExpr first = mode == "SAME_UPPER" ? half : total - half;
    auto known = total.as_const();
    if (known && first.as_const()) {
      w.pads_begin[i] = *first.as_const();
      w.pads_end[i] = *known - *first.as_const();
    } else {
      begin[i] = first;
      end[i] = total - first;
    }
  }
  return {};
}

bool channels_last(const Node& node) { return node.attributes.i("channels_last", 0) != 0; }

SymShape channels_first(const Node& node, const SymShape& shape) {
  SymShape out = shape;
  if (channels_last(node) && out.size() > 2) std::rotate(out.begin() + 1, out.end() - 1, out.end());
  return out;
}

SymShape in_own_order(const Node& node, const SymShape& channels_first) {
  SymShape out = channels_first;
  if (channels_last(node) && out.size() > 2) std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  return out;
}

namespace {
// Dimension k of the result is dimension order[k] of x.
Result<Tensor> reordered(const Tensor& x, const std::vector<size_t>& order) {
  Dims dims, own = strides_of(x.dims()), stride;
  for (size_t d : order) {
    dims.push_back(x.dims()[d]);
    stride.push_back(own[d]);
  }
  return take_at(x, dims, [&](const Dims& at) { return offset(at, stride); });
}
} // namespace

Status on_channels_first(ReferenceContext& c, const std::function<Status(ReferenceContext&)>& reference) {
  const size_t rank = c.operands[0].dims().size();
  if (!channels_last(c.node) || rank < 3) return reference(c);
  std::vector<size_t> first, last;
  for (size_t d = 0; d < rank; ++d) {
    first.push_back(d == 0 ? 0 : d == 1 ? rank - 1 : d - 1);
    last.push_back(d == 0 ? 0 : d == rank - 1 ? 1 : d + 1);
  }
  TESSERA_ASSIGN(c.operands[0], reordered(c.operands[0], first));
  TESSERA_TRY(reference(c));
  TESSERA_ASSIGN(c.results[0], reordered(c.results[0], last));
  return {};
}

Status check_kernel_shape(B& b, const SymShape& weight) {
  Ints shape = b.attr().ints("kernel_shape");
  if (shape.empty()) return {};
  if (shape.size() + 2 != weight.size())
    return Diagnostic(ErrorCode::BadAttribute, b.node().location,
                      "attribute 'kernel_shape' has " + std::to_string(shape.size()) + " elements, but the weight is " +
                          str(weight));
  for (size_t i = 0; i < shape.size(); ++i)
    TESSERA_TRY(b.env().require_equal(weight[i + 2], shape[i], "kernel_shape and weight", b.node().location));
  return {};
}

} // namespace tessera::ops
