// Pooling: the primitive pool.
#include "graph/ops/parts.h"
#include <cmath>
#include <limits>

namespace tessera {

namespace {
using namespace ops;

const std::vector<AttrDef>& window_attribute_defs() {
  static const std::vector<AttrDef> attributes = {{"kernel", AttrKind::Ints, true},
                                                  {"strides", AttrKind::Ints, true},
                                                  {"pads_begin", AttrKind::Ints, true},
                                                  {"pads_end", AttrKind::Ints, true},
                                                  {"dilations", AttrKind::Ints, true}};
  return attributes;
}

Status infer_pool(InferContext& c) {
  const SymShape x = channels_first(c.node, c.shape(0));
  Ints kernel = c.node.attributes.ints("kernel");
  if (x.size() < 3) return c.error(ErrorCode::ShapeMismatch, "pooling takes [N, C, spatial...], not " + str(x));
  if (kernel.size() != x.size() - 2)
    return c.error(ErrorCode::BadAttribute,
                   "a kernel of " + std::to_string(kernel.size()) + " dimensions on " + str(x));
  for (int64_t k : kernel)
    if (k < 1 || k > (int64_t{1} << 40))
      return c.error(ErrorCode::BadAttribute, "a kernel of size " + std::to_string(k));
  Window window = window_of(c.node.attributes);
  TESSERA_TRY(check_window(c.node, window, kernel.size()));
  SymShape sizes(kernel.begin(), kernel.end());
  TESSERA_ASSIGN(SymShape spatial, slide(c, std::span(x).subspan(2), sizes, window));
  SymShape out = {x[0], x[1]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  return set_result(c, c.type(0).dtype, in_own_order(c.node, out));
}

Result<Dims> pooled_dims(const ReferenceContext& c, const Dims& x, const Ints& kernel, const Window& w) {
  Dims out = {x[0], x[1]};
  for (size_t i = 0; i < kernel.size(); ++i) {
    int64_t room = x[i + 2] + w.pads_begin[i] + w.pads_end[i] - ((kernel[i] - 1) * w.dilations[i] + 1);
    if (room < 0) return c.error(ErrorCode::ShapeMismatch, "the kernel does not fit the padded input");
    out.push_back(room / w.strides[i] + 1);
  }
  return out;
}

// Calls f(flat position in x) for the elements that a window covers, in order.
template <class F>
void each_covered(const Dims& x, const Dims& stride, const MultiIndex& o, const Ints& kernel, const Window& w, F f) {
  int64_t base = o[0] * stride[0] + o[1] * stride[1];
  for (MultiIndex k(kernel); !k.done(); k.next()) {
    int64_t at = base;
    bool inside = true;
    for (size_t i = 0; i < kernel.size() && inside; ++i) {
      int64_t p = o[i + 2] * w.strides[i] - w.pads_begin[i] + k[i] * w.dilations[i];
      inside = p >= 0 && p < x[i + 2];
      at += p * stride[i + 2];
    }
    if (inside) f(at);
  }
}

template <class V>
V lowest_of(DType d) {
  if constexpr (std::is_same_v<V, double>)
    return -std::numeric_limits<double>::infinity();
  else
    return static_cast<V>(reduce_identity_i64(ReduceKind::Max, d));
}

Status reference_pool(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  Ints kernel = c.node.attributes.ints("kernel");
  Window w = window_of(c.node.attributes);
  std::string mode = c.node.attributes.s("mode");
  TESSERA_ASSIGN(Dims dims, pooled_dims(c, x.dims(), kernel, w));
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), dims));
  Dims stride = strides_of(x.dims());
  double taps = 1;
  for (int64_t k : kernel) taps *= static_cast<double>(k);
  if (mode == "max") {
    by_kind(x.dtype(), [&](auto zero) {
      using V = decltype(zero);
      for (MultiIndex o(dims); !o.done(); o.next()) {
        V best = lowest_of<V>(x.dtype());
        each_covered(x.dims(), stride, o, kernel, w, [&](int64_t at) {
          V v = get<V>(x, at);
          if (v > best || v != v) best = v; // NaN stays: no later element is greater than it
        });
        set(out, o.i(), best);
      }
    });
  } else {
    for (MultiIndex o(dims); !o.done(); o.next()) {
      double sum = 0, count = 0;
      each_covered(x.dims(), stride, o, kernel, w, [&](int64_t at) {
        sum += x.get_f64(at);
        count += 1;
      });
      out.set_f64(o.i(), sum / (mode == "average" ? count : taps));
    }
  }
  c.results = {out};
  return {};
}

Attributes pool_attributes(std::string mode, Ints kernel, Ints strides, Ints begin, Ints end, Ints dilations) {
  return {{"mode", std::move(mode)},        {"kernel", std::move(kernel)}, {"strides", std::move(strides)},
          {"pads_begin", std::move(begin)}, {"pads_end", std::move(end)},  {"dilations", std::move(dilations)}};
}

OpDef pool_record() {
  OpDef def;
  def.name = "pool";
  def.summary = "maximum or mean of each window over x [N, C, spatial...] (channels_last 1: [N, spatial..., C]); "
                "'average' counts only elements of x";
  def.operands = {{"x", TypeSet::Numeric}};
  def.attributes = window_attribute_defs();
  def.attributes.insert(def.attributes.begin(), AttrDef{"mode", AttrKind::String, true});
  def.attributes.push_back({"channels_last", AttrKind::Int});
  def.infer = [](InferContext& c) -> Status {
    std::string mode = c.node.attributes.s("mode");
    if (mode != "max" && mode != "average" && mode != "average_include_pad")
      return c.error(ErrorCode::BadAttribute, "unknown mode of pooling '" + mode + "'");
    if (mode != "max" && !is_float(c.type(0).dtype))
      return c.error(ErrorCode::TypeMismatch, "a mean of integers is not defined");
    return infer_pool(c);
  };
  def.meaning = StructuredOp{Structured::Pool};
  def.reference = [](ReferenceContext& c) { return on_channels_first(c, reference_pool); };
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    for (const char* mode : {"max", "average", "average_include_pad"})
      for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
        out.push_back(sample({random(d, {2, 3, 7}, seed++)}, pool_attributes(mode, {3}, {2}, {1}, {1}, {1})));
        out.push_back(
            sample({random(d, {1, 2, 6, 7}, seed++)}, pool_attributes(mode, {2, 3}, {1, 2}, {0, 1}, {1, 0}, {2, 1})));
        out.push_back(sample({random(d, {1, 1, 4, 4, 5}, seed++)},
                             pool_attributes(mode, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {0, 0, 1}, {1, 1, 1})));
      }
    out.push_back(sample({random(DType::I8, {1, 2, 6, 7}, 9, -100, 100)},
                         pool_attributes("max", {2, 2}, {1, 1}, {1, 0}, {0, 0}, {1, 1})));
    for (const char* mode : {"max", "average"}) {
      Attributes a = pool_attributes(mode, {2, 3}, {1, 2}, {0, 1}, {1, 0}, {2, 1});
      a.set("channels_last", int64_t{1});
      out.push_back(sample({random(DType::F32, {2, 6, 7, 3}, seed++)}, a));
    }
    out.push_back(sample({random(DType::F32, {0, 2, 6}, 9)}, pool_attributes("max", {2}, {1}, {0}, {0}, {1})));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {1, 2, 3, 3});
    return std::vector<ErrorSample>{
        wrong({x}, pool_attributes("max", {4, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::ShapeMismatch, ""),
        wrong({x}, pool_attributes("median", {2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}), ErrorCode::BadAttribute, "mode"),
        wrong({x}, pool_attributes("max", {2}, {1}, {0}, {0}, {1}), ErrorCode::BadAttribute, "kernel"),
        wrong({random(DType::I8, {1, 2, 3, 3})}, pool_attributes("average", {2, 2}, {1, 1}, {0, 0}, {0, 0}, {1, 1}),
              ErrorCode::TypeMismatch, ""),
    };
  };
  return def;
}

} // namespace

void register_pool_ops(OpTable& table) {
  table.add(pool_record());
  register_pool_onnx_ops(table);
}

} // namespace tessera
