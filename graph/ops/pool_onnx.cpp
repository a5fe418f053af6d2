// ONNX's pooling operators in terms of the primitive pool, and LRN, which is a pooling over channels.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
#include <cmath>
#include <limits>

namespace tessera {

namespace {
using namespace ops;

const std::vector<AttrDef>& onnx_attributes() {
  static const std::vector<AttrDef> attributes = {{"auto_pad", AttrKind::String, false, std::string("NOTSET")},
                                                  {"ceil_mode", AttrKind::Int, false, int64_t{0}},
                                                  {"dilations", AttrKind::Ints},
                                                  {"kernel_shape", AttrKind::Ints, true},
                                                  {"pads", AttrKind::Ints},
                                                  {"strides", AttrKind::Ints}};
  return attributes;
}

// A pooling as a node specifies it: where the window is, and what must be padded explicitly because it depends on
// symbolic sizes. `begin`, `end` are pads of all dimensions.
struct Pooling {
  Ints kernel;
  Window window;
  SymShape begin, end;
  Ints ceil_pads;    // of the window's pads_end, what only ceil_mode added
  SymShape ceil_end; // of `end`, likewise
  [[nodiscard]] bool explicit_pads() const {
    auto some = [](const SymExpr& e) { return !e.is_const(0); };
    return std::any_of(begin.begin(), begin.end(), some) || std::any_of(end.begin(), end.end(), some);
  }
  [[nodiscard]] Attributes attributes(std::string mode) const {
    Attributes a = window_attributes(window);
    a.set("kernel", kernel);
    a.set("mode", std::move(mode));
    return a;
  }
};

Result<Pooling> plan_pool(B& b) {
  SymShape x = b.shape(b.in(0));
  if (x.size() < 3)
    return Diagnostic(ErrorCode::ShapeMismatch, b.node().location, "pooling takes [N, C, spatial...], not " + str(x));
  Pooling p;
  p.kernel = b.attr().ints("kernel_shape");
  if (p.kernel.size() != x.size() - 2)
    return Diagnostic(ErrorCode::BadAttribute, b.node().location,
                      "attribute 'kernel_shape' has " + std::to_string(p.kernel.size()) + " elements on " + str(x));
  TESSERA_ASSIGN(p.window, onnx_window(b.node(), static_cast<int>(x.size()) - 2));
  SymShape kernel(p.kernel.begin(), p.kernel.end());
  auto sizes = std::span(x).subspan(2);
  TESSERA_TRY(apply_auto_pad(b.node(), sizes, kernel, p.window, p.begin, p.end));
  p.ceil_pads.assign(sizes.size(), 0);
  p.ceil_end.assign(sizes.size(), SymExpr(0));
  for (size_t i = 0; i < sizes.size() && b.attr().i("ceil_mode") != 0; ++i) {
    const Window& w = p.window;
    // One more window where strides do not divide, unless it would start beyond the input and its first padding.
    SymExpr padded = sizes[i] + p.begin[i] + p.end[i] + w.pads_begin[i] + w.pads_end[i];
    SymExpr extent = reach(kernel[i], w.dilations[i]);
    SymExpr count = ceildiv(padded - extent, w.strides[i]) + 1;
    count = sym_select(sym_lt((count - 1) * w.strides[i], padded - w.pads_end[i] - p.end[i]), count, count - 1);
    SymExpr extra = sym_max((count - 1) * w.strides[i] + extent - padded, 0);
    if (auto known = b.env().simplify(extra).as_const()) {
      p.ceil_pads[i] = *known;
      p.window.pads_end[i] += *known;
    } else {
      p.end[i] += extra;
      p.ceil_end[i] = extra;
    }
  }
  p.ceil_end.insert(p.ceil_end.begin(), 2, SymExpr(0));
  p.begin.insert(p.begin.begin(), 2, SymExpr(0));
  p.end.insert(p.end.begin(), 2, SymExpr(0));
  return p;
}

ValueId lowest(B& b, DType d) {
  return is_float(d) ? b.scalar(d, -std::numeric_limits<double>::infinity())
                     : b.scalar_i(d, reduce_identity_i64(ReduceKind::Max, d));
}

// The position in x of each window's maximum: row-major, or spatial dimensions column-major. Windows are the last
// dimensions of a tensor of elements, over which the first maximum is searched.
ValueId positions(B& b, ValueId x, const Pooling& p, const SymShape& out) {
  const SymShape shape = b.shape(x);
  const size_t rank = p.kernel.size(), total = 2 * rank + 2;
  auto literal = [&](const SymExpr& e) { return b.size(e, DType::I64); };
  // Positions along a dimension, of windows with element `k`.
  auto place = [&](size_t i, ValueId window, ValueId k) {
    ValueId start =
        sub(b, mul(b, window, literal(p.window.strides[i])), literal(p.window.pads_begin[i] + p.begin[i + 2]));
    return add(b, start, mul(b, k, literal(p.window.dilations[i])));
  };
  std::vector<ValueId> at = {ramp(b, shape[0], total, 0), ramp(b, shape[1], total, 1)}, inside;
  Ints spatial, last;
  for (size_t i = 0; i < rank; ++i) {
    at.push_back(place(i, ramp(b, out[i + 2], total, i + 2), ramp(b, p.kernel[i], total, rank + 2 + i)));
    inside.push_back(ge(b, at.back(), literal(0)));
    inside.push_back(lt(b, at.back(), literal(shape[i + 2])));
    spatial.push_back(static_cast<int64_t>(i) + 2);
    last.push_back(static_cast<int64_t>(rank + 2 + i));
  }
  ValueId v = gather_at(b, x, std::move(at), std::move(spatial));
  if (b.ok() && is_integer(b.dtype(v)) && info(b.dtype(v)).bits < 64)
    v = cast(b, v, DType::I64); // padding is below all
  v = select(b, all_of(b, std::move(inside)), v, lowest(b, b.dtype(v)));
  ValueId rest = b.op("argmax", {v}, {{"axes", std::move(last)}, {"keepdims", int64_t{0}}}), position;
  auto stride = [&](size_t i) { // of the result's elements
    const bool columns = b.attr().i("storage_order") == 1 && i >= 2;
    return columns ? product(std::span(shape).subspan(2, i - 2)) : product(std::span(shape).subspan(i + 1));
  };
  auto count = [&](ValueId i, size_t axis) {
    ValueId term = mul(b, i, literal(stride(axis)));
    position = position.valid() ? add(b, position, term) : term;
  };
  for (size_t i : {0, 1}) count(ramp(b, shape[i], rank + 2, i), i);
  for (size_t i = rank; i-- > 0;) {
    ValueId above = div(b, rest, literal(p.kernel[i])), k = sub(b, rest, mul(b, above, literal(p.kernel[i])));
    rest = above;
    count(place(i, ramp(b, out[i + 2], rank + 2, i + 2), k), i + 2);
  }
  return position;
}

Result<std::vector<ValueId>> decompose_max_pool(Graph& g, const Node& n, int result_count) {
  B b(g, n);
  TESSERA_ASSIGN(Pooling p, plan_pool(b));
  ValueId x = b.in(0);
  ValueId y =
      b.op("pool", {p.explicit_pads() ? pad(b, x, p.begin, p.end, lowest(b, b.dtype(x))) : x}, p.attributes("max"));
  if (result_count < 2 || !b.ok()) return b.done(y);
  return b.done({y, positions(b, x, p, b.shape(y))});
}

// Mean over each window. A mean that leaves padding out is, where padding must be explicit, the mean with it divided by
// the share of elements that are not padding.
ValueId average(B& b, ValueId x, Pooling p, bool include_pad) {
  if (!p.explicit_pads()) {
    bool ceil = std::any_of(p.ceil_pads.begin(), p.ceil_pads.end(), [](int64_t v) { return v > 0; });
    if (!include_pad) return b.op("pool", {x}, p.attributes("average"));
    if (!ceil) return b.op("pool", {x}, p.attributes("average_include_pad"));
    // The zeros of pads count; those that ceil_mode adds do not.
    SymShape begin(2, SymExpr(0)), end(2, SymExpr(0));
    for (size_t i = 0; i < p.kernel.size(); ++i) {
      begin.emplace_back(p.window.pads_begin[i]);
      end.emplace_back(p.window.pads_end[i] - p.ceil_pads[i]);
    }
    p.window.pads_begin.assign(p.kernel.size(), 0);
    p.window.pads_end = p.ceil_pads;
    return b.op("pool", {pad(b, x, begin, end)}, p.attributes("average"));
  }
  SymShape ones_shape = b.shape(x);
  ones_shape[0] = ones_shape[1] = 1;
  ValueId ones = expand(b, b.like(x, 1), ones_shape);
  if (include_pad) { // zeros of auto_pad and pads count, what ceil_mode adds does not
    SymShape begin = p.begin, end(2, SymExpr(0));
    for (size_t i = 0; i < p.kernel.size(); ++i) {
      begin[i + 2] += p.window.pads_begin[i];
      end.push_back(p.end[i + 2] - p.ceil_end[i + 2] + (p.window.pads_end[i] - p.ceil_pads[i]));
    }
    x = pad(b, x, begin, end);
    ones = pad(b, ones, begin, end, b.like(ones, 1));
    p.window.pads_begin.assign(p.kernel.size(), 0);
    p.window.pads_end = p.ceil_pads;
    p.begin.assign(p.begin.size(), SymExpr(0));
    p.end = p.ceil_end;
  }
  ValueId sum = b.op("pool", {pad(b, x, p.begin, p.end)}, p.attributes("average_include_pad"));
  ValueId share = b.op("pool", {pad(b, ones, p.begin, p.end)}, p.attributes("average_include_pad"));
  return div(b, sum, share);
}

std::vector<Sample> pool_onnx_samples(const Attributes& more = {}) {
  std::vector<Sample> out;
  auto add = [&](Dims x, Attributes a) {
    for (const auto& [name, value] : more.items()) a.set(name, value);
    out.push_back(sample({random(DType::F32, std::move(x), out.size() + 1)}, std::move(a)));
  };
  std::string upper = "SAME_UPPER", lower = "SAME_LOWER";
  add({1, 2, 8}, {{"kernel_shape", Ints{2}}});
  add({1, 2, 7, 6}, {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 0, 1, 1}}});
  add({1, 2, 7, 6}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"auto_pad", upper}});
  add({1, 2, 7, 6}, {{"kernel_shape", Ints{3, 2}}, {"auto_pad", lower}});
  add({1, 1, 4, 4}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", int64_t{1}}});
  add({1, 1, 5, 5},
      {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{3, 3}}, {"ceil_mode", int64_t{1}}, {"pads", Ints{1, 1, 1, 1}}});
  return out;
}

std::vector<ErrorSample> pool_onnx_errors() {
  Tensor x = random(DType::F32, {1, 2, 3, 3});
  return {wrong({x}, {{"kernel_shape", Ints{2}}}, ErrorCode::BadAttribute, "kernel_shape"),
          wrong({x}, {{"kernel_shape", Ints{4, 4}}}, ErrorCode::ShapeMismatch, ""),
          wrong({x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{0, 1}}}, ErrorCode::BadAttribute, "strides"),
          wrong({random(DType::F32, {3, 3})}, {{"kernel_shape", Ints{2}}}, ErrorCode::ShapeMismatch, "spatial")};
}

Status reference_max_pool(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  const Ints kernel = c.node.attributes.ints("kernel_shape");
  TESSERA_ASSIGN(Window w, onnx_window(c.node, static_cast<int>(kernel.size())));
  const std::string auto_pad = c.node.attributes.s("auto_pad", "NOTSET");
  Dims dims, stride = strides_of(x.dims()), order = stride;
  for (const SymExpr& e : c.result_types[0].shape) {
    TESSERA_ASSIGN(int64_t n, c.eval(e));
    dims.push_back(n);
  }
  int64_t columns = 1;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t extent = (kernel[i] - 1) * w.dilations[i] + 1, size = x.dims()[i + 2];
    const int64_t total = std::max<int64_t>((dims[i + 2] - 1) * w.strides[i] + extent - size, 0);
    if (auto_pad == "SAME_UPPER") w.pads_begin[i] = total / 2;
    if (auto_pad == "SAME_LOWER") w.pads_begin[i] = total - total / 2;
    if (c.node.attributes.i("storage_order") == 1) order[i + 2] = columns;
    columns *= size;
  }
  TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), dims));
  TESSERA_ASSIGN(Tensor where, Tensor::create(DType::I64, dims, true));
  by_kind(x.dtype(), [&](auto zero) {
    using V = decltype(zero);
    for (MultiIndex o(dims); !o.done(); o.next()) {
      int64_t best = -1;
      for (MultiIndex k(kernel); !k.done(); k.next()) {
        int64_t at = o[0] * stride[0] + o[1] * stride[1], position = at;
        bool inside = true;
        for (size_t i = 0; i < kernel.size(); ++i) {
          int64_t p = o[i + 2] * w.strides[i] - w.pads_begin[i] + k[i] * w.dilations[i];
          inside = inside && p >= 0 && p < x.dims()[i + 2];
          at += p * stride[i + 2];
          position += p * order[i + 2];
        }
        if (!inside || (best >= 0 && !(get<V>(x, at) > get<V>(x, best)))) continue;
        best = at;
        where.set_i64(o.i(), position);
      }
      if (best >= 0) set(y, o.i(), get<V>(x, best));
    }
  });
  c.results = {y, where};
  return {};
}

OpDef max_pool_record() {
  OpDef def;
  def.name = "MaxPool";
  def.summary = "maximum of each window, and where it is";
  def.onnx = {{"MaxPool"}};
  def.operands = {{"X", TypeSet::Numeric}};
  def.attributes = onnx_attributes();
  def.attributes.push_back({"storage_order", AttrKind::Int, false, int64_t{0}});
  def.max_results = 2;
  def.meaning = Decomposition{decompose_max_pool};
  def.reference = reference_max_pool;
  def.samples = [] {
    auto out = pool_onnx_samples();
    for (Sample& s : pool_onnx_samples({{"storage_order", int64_t{1}}})) out.push_back(s);
    out.push_back(sample({random(DType::I8, {2, 1, 5, 6}, 9, -128, 127)},
                         {{"kernel_shape", Ints{2, 3}}, {"dilations", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 2}}}));
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = pool_onnx_errors;
  return def;
}

OpDef average_pool_record() {
  OpDef def;
  def.name = "AveragePool";
  def.summary = "mean of each window, padding counted or not";
  def.onnx = {{"AveragePool"}};
  def.operands = {{"X", TypeSet::Float}};
  def.attributes = onnx_attributes();
  def.attributes.push_back({"count_include_pad", AttrKind::Int, false, int64_t{0}});
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) -> Result<std::vector<ValueId>> {
    B b(g, n);
    TESSERA_ASSIGN(Pooling p, plan_pool(b));
    return b.done(average(b, b.in(0), std::move(p), b.attr().i("count_include_pad") != 0));
  }};
  def.samples = [] {
    auto out = pool_onnx_samples();
    for (Sample& s : pool_onnx_samples({{"count_include_pad", int64_t{1}}})) out.push_back(s);
    return out;
  };
  def.error_samples = pool_onnx_errors;
  return def;
}

// (sum |x|^p)^(1/p)
ValueId power(B& b, ValueId x, int64_t p) {
  ValueId a = abs(b, x);
  return p == 1 ? a : p == 2 ? mul(b, x, x) : pow(b, a, static_cast<double>(p));
}
ValueId root(B& b, ValueId x, int64_t p) {
  return p == 1 ? x : p == 2 ? sqrt(b, x) : pow(b, x, 1.0 / static_cast<double>(p));
}

bool check_p(B& b) {
  if (b.attr().i("p", 2) < 1) b.fail(ErrorCode::BadAttribute, "attribute 'p' is " + std::to_string(b.attr().i("p", 2)));
  return b.ok();
}

OpDef lp_pool_record() {
  OpDef def;
  def.name = "LpPool";
  def.summary = "p-norm of each window";
  def.onnx = {{"LpPool", "", 2}};
  def.operands = {{"X", TypeSet::Float}};
  def.attributes = onnx_attributes();
  def.attributes.push_back({"p", AttrKind::Int, false, int64_t{2}});
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) -> Result<std::vector<ValueId>> {
    B b(g, n);
    int64_t p = b.attr().i("p", 2);
    if (!check_p(b)) return b.done(ValueId{});
    TESSERA_ASSIGN(Pooling plan, plan_pool(b));
    double taps = 1;
    for (int64_t k : plan.kernel) taps *= static_cast<double>(k);
    ValueId x = widen(b, b.in(0));
    ValueId mean = b.op("pool", {pad(b, power(b, x, p), plan.begin, plan.end)}, plan.attributes("average_include_pad"));
    return b.done(cast(b, root(b, mul(b, mean, taps), p), b.dtype(b.in(0))));
  }};
  def.samples = [] {
    auto out = pool_onnx_samples();
    for (Sample& s : pool_onnx_samples({{"p", int64_t{3}}})) out.push_back(s);
    return out;
  };
  def.error_samples = [] {
    auto out = pool_onnx_errors();
    out.push_back(wrong({random(DType::F32, {1, 2, 3})}, {{"kernel_shape", Ints{2}}, {"p", int64_t{0}}},
                        ErrorCode::BadAttribute, "'p'"));
    return out;
  };
  return def;
}

Ints spatial_axes(B& b, ValueId x) {
  if (b.ok() && b.rank(x) < 3)
    b.fail(ErrorCode::ShapeMismatch, "pooling takes [N, C, spatial...], not " + str(b.shape(x)));
  Ints axes;
  for (int i = 2; i < b.rank(x); ++i) axes.push_back(i);
  return axes;
}

OpDef global_record(std::string_view name, std::string_view summary, DecomposeFn rewrite) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.onnx = {{name}};
  def.operands = {{"X", TypeSet::Float}};
  def.meaning = Decomposition{std::move(rewrite)};
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::F64}) {
      out.push_back(sample({random(d, {2, 3, 5}, 1)}));
      out.push_back(sample({random(d, {1, 2, 4, 7}, 2)}));
    }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {2, 3})}, {}, ErrorCode::ShapeMismatch, "spatial")};
  };
  return def;
}

OpDef lrn_record() {
  OpDef def;
  def.name = "LRN";
  def.summary = "x / (bias + alpha * mean of squares over neighbouring channels) ^ beta";
  def.onnx = {{"LRN"}};
  def.operands = {{"X", TypeSet::Float}};
  def.attributes = {{"alpha", AttrKind::Float, false, 1e-4},
                    {"beta", AttrKind::Float, false, 0.75},
                    {"bias", AttrKind::Float, false, 1.0},
                    {"size", AttrKind::Int, true}};
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = widen(b, b.in(0));
    int64_t size = b.attr().i("size");
    if (size < 1 || size > (1 << 20)) b.fail(ErrorCode::BadAttribute, "attribute 'size' is " + std::to_string(size));
    if (b.ok() && b.rank(x) < 2) b.fail(ErrorCode::ShapeMismatch, "LRN takes [N, C, ...], not " + str(b.shape(x)));
    if (!b.ok()) return b.done(ValueId{});
    SymShape dims = b.shape(x);
    SymExpr rest = product(std::span(dims).subspan(2));
    ValueId squares = reshape(b, mul(b, x, x), {dims[0], 1, dims[1], rest});
    ValueId mean = b.op("pool", {squares},
                        {{"mode", std::string("average_include_pad")},
                         {"kernel", Ints{size, 1}},
                         {"strides", Ints{1, 1}},
                         {"pads_begin", Ints{(size - 1) / 2, 0}},
                         {"pads_end", Ints{size / 2, 0}},
                         {"dilations", Ints{1, 1}}});
    mean = reshape(b, mean, dims);
    ValueId scale = add(b, mul(b, mean, b.attr().f("alpha", 1e-4)), b.attr().f("bias", 1));
    return b.done(cast(b, div(b, x, pow(b, scale, b.attr().f("beta", 0.75))), b.dtype(b.in(0))));
  }};
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 5, 3, 3}, 1)}, {{"size", int64_t{3}}}),
        sample({random(DType::F32, {1, 4, 5}, 2)},
               {{"size", int64_t{4}}, {"alpha", 0.2}, {"beta", 0.5}, {"bias", 2.0}}),
    };
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3, 4})}, {{"size", int64_t{0}}}, ErrorCode::BadAttribute, "size"),
        wrong({random(DType::F32, {2})}, {{"size", int64_t{3}}}, ErrorCode::ShapeMismatch, "LRN")};
  };
  return def;
}

} // namespace

void register_pool_onnx_ops(OpTable& table) {
  table.add(max_pool_record());
  table.add(average_pool_record());
  table.add(lp_pool_record());
  table.add(lrn_record());
  table.add(global_record("GlobalAveragePool", "mean over the spatial dimensions", [](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = b.in(0);
    Ints axes = spatial_axes(b, x);
    return b.done(cast(b, mean(b, widen(b, x), axes, true), b.dtype(x)));
  }));
  table.add(global_record("GlobalMaxPool", "maximum over the spatial dimensions", [](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = b.in(0);
    Ints axes = spatial_axes(b, x);
    return b.done(reduce(b, "reduce_max", x, axes, true));
  }));
  OpDef lp = global_record("GlobalLpPool", "p-norm over the spatial dimensions", [](Graph& g, const Node& n, int) {
    B b(g, n);
    int64_t p = b.attr().i("p", 2);
    if (!check_p(b)) return b.done(ValueId{});
    Ints axes = spatial_axes(b, b.in(0));
    return b.done(cast(b, root(b, sum(b, power(b, widen(b, b.in(0)), p), axes, true), p), b.dtype(b.in(0))));
  });
  lp.onnx = {{"GlobalLpPool", "", 2}};
  lp.attributes = {{"p", AttrKind::Int, false, int64_t{2}}};
  table.add(std::move(lp));
}

} // namespace tessera
