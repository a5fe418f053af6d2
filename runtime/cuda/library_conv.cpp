#include "runtime/cuda/library_conv.h"
#include "runtime/cuda/gemm_sizes.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr size_t kMaxSpatial = 3;

Dims packed(const Dims& dims, bool channels_last) {
  Dims strides(dims.size());
  int64_t step = 1;
  auto take = [&](size_t d) {
    strides[d] = step;
    step *= std::max<int64_t>(1, dims[d]);
  };
  if (channels_last) take(1);
  for (size_t d = dims.size(); d-- > 0;)
    if (d != 1 || !channels_last) take(d);
  return strides;
}

bool lies_as(const ConvTensor& t, const Dims& strides) {
  for (size_t d = 0; d < t.dims.size(); ++d)
    if (t.dims[d] > 1 && t.strides[d] != strides[d]) return false;
  return true;
}

// A first spatial dimension of one point.
ConvTensor with_two_dimensions(const Operand& o) {
  ConvTensor t{o.shape, o.strides};
  if (t.dims.size() == 3) {
    t.dims.insert(t.dims.begin() + 2, 1);
    t.strides.insert(t.strides.begin() + 2, t.dims[3] * t.strides[2]);
  }
  return t;
}

bool has_none(const Dims& dims) {
  return std::any_of(dims.begin(), dims.end(), [](int64_t n) { return n == 0; });
}

// Gives tensors that all lie in one layout exactly its strides; whether that is channels last. Nothing where they do
// not agree.
std::optional<bool> one_layout(std::initializer_list<ConvTensor*> tensors) {
  for (bool last : {true, false}) {
    bool all = std::all_of(tensors.begin(), tensors.end(),
                           [&](const ConvTensor* t) { return lies_as(*t, packed(t->dims, last)); });
    if (!all) continue;
    for (auto* t : tensors) t->strides = packed(t->dims, last);
    return last;
  }
  return std::nullopt;
}

} // namespace

Result<ConvProblem> describe_conv(const ConvCall& call, const Operand& x, const Operand& w, const Operand& y,
                                  const std::string& name) {
  auto contradiction = [&](const char* what) {
    return Diagnostic(ErrorCode::Internal, "convolution '" + name + "': " + what);
  };
  auto refuse = [&](const char* what) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN does not compute '" + name + "': " + what);
  };
  size_t rank = x.shape.size();
  if (rank < 3 || w.shape.size() != rank || y.shape.size() != rank) return contradiction("ranks of the operands");
  size_t spatial = rank - 2;
  if (spatial > kMaxSpatial) return refuse("it has more than 3 spatial dimensions");
  for (const auto* v : {&call.strides, &call.pads_begin, &call.pads_end, &call.dilations})
    if (v->size() != spatial) return contradiction("one stride, pad and dilation per spatial dimension is needed");
  int64_t groups = call.groups;
  bool channels = call.transposed ? w.shape[0] == x.shape[1] && y.shape[1] == w.shape[1] * groups
                                  : x.shape[1] == w.shape[1] * groups && y.shape[1] == w.shape[0];
  if (groups < 1 || !channels || x.shape[0] != y.shape[0]) return contradiction("channels or batch of the operands");
  ConvProblem out;
  out.transposed = call.transposed;
  out.empty = has_none(y.shape);
  for (size_t i = 0; i < spatial; ++i) {
    // The convolution, or the one that this is the gradient of, from `in` to `of`.
    const Dims &in = call.transposed ? y.shape : x.shape, &of = call.transposed ? x.shape : y.shape;
    int64_t room = in[i + 2] + call.pads_begin[i] + call.pads_end[i] - ((w.shape[i + 2] - 1) * call.dilations[i] + 1);
    if (room >= 0 && room / call.strides[i] + 1 == of[i + 2]) continue;
    if (call.transposed && room >= 0 && room / call.strides[i] + 1 > of[i + 2])
      return refuse("its result has a border as wide as a stride");
    if (!out.empty) return contradiction("spatial sizes of the operands");
  }
  out.x = with_two_dimensions(x);
  out.w = with_two_dimensions(w);
  out.y = with_two_dimensions(y);
  out.strides = call.strides;
  out.pads_begin = call.pads_begin;
  out.pads_end = call.pads_end;
  out.dilations = call.dilations;
  if (spatial == 1) {
    for (auto* v : {&out.strides, &out.dilations}) v->insert(v->begin(), 1);
    for (auto* v : {&out.pads_begin, &out.pads_end}) v->insert(v->begin(), 0);
  }
  if (out.empty) return out;
  out.of_nothing = has_none(x.shape) || has_none(w.shape);
  if (out.of_nothing)
    return one_layout({&out.y}) ? Result<ConvProblem>(out) : refuse("its result is not a whole tensor");
  auto last = one_layout({&out.x, &out.y, &out.w});
  if (!last) { // weights may lie in the other one: the library decides
    last = one_layout({&out.x, &out.y});
    if (!last) return refuse("its input and result are not whole tensors of one layout");
    if (!one_layout({&out.w})) return refuse("its weight is not a whole tensor");
  }
  out.channels_last = *last;
  return out;
}

ConvProblem on_grid(ConvProblem p, const VaryingDims& varying) {
  if (varying.batch) p.x.dims[0] = p.y.dims[0] = rounded_size(p.x.dims[0], kBatchParts);
  for (size_t i = 0; i < varying.spatial.size(); ++i) {
    if (!varying.spatial[i]) continue;
    int64_t &x = p.x.dims[i + 2], &y = p.y.dims[i + 2];
    const int64_t before = x, reach = (p.w.dims[i + 2] - 1) * p.dilations[i] + 1;
    x = rounded_size(x, kSizeParts);
    if (p.transposed)
      y += (x - before) * p.strides[i];
    else
      y = (x + p.pads_begin[i] + p.pads_end[i] - reach) / p.strides[i] + 1;
  }
  for (auto* t : {&p.x, &p.y}) t->strides = packed(t->dims, p.channels_last);
  return p;
}

Result<PoolProblem> describe_pool(const PoolCall& call, const Operand& x, const Operand& y, const std::string& name) {
  auto contradiction = [&](const char* what) {
    return Diagnostic(ErrorCode::Internal, "pooling '" + name + "': " + what);
  };
  auto refuse = [&](const char* what) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN does not compute '" + name + "': " + what);
  };
  size_t rank = x.shape.size();
  if (rank < 3 || y.shape.size() != rank || x.shape[0] != y.shape[0] || x.shape[1] != y.shape[1])
    return contradiction("shapes of the operands");
  size_t spatial = rank - 2;
  if (spatial > kMaxSpatial) return refuse("it has more than 3 spatial dimensions");
  for (const auto* v : {&call.kernel, &call.strides, &call.pads_begin, &call.pads_end, &call.dilations})
    if (v->size() != spatial) return contradiction("one stride, pad and dilation per spatial dimension is needed");
  PoolProblem out;
  out.empty = has_none(y.shape);
  out.kernel = call.kernel;
  out.strides = call.strides;
  out.pads = call.pads_begin;
  for (size_t i = 0; i < spatial && !out.empty; ++i) {
    if (call.dilations[i] != 1 && call.kernel[i] != 1) return refuse("its windows are dilated");
    int64_t room = x.shape[i + 2] + 2 * out.pads[i] - call.kernel[i];
    if (room < 0 || room / out.strides[i] + 1 != y.shape[i + 2]) return refuse("its pads differ before and behind");
    if (out.pads[i] >= call.kernel[i]) return refuse("a window lies in the padding alone");
    // Windows that count padding divide by their size, whichever side it is on; but the library's reach must be ours.
    if (call.kind == PoolCall::Kind::AverageIncludePad && call.pads_begin[i] != call.pads_end[i])
      return refuse("its pads differ before and behind");
  }
  out.x = with_two_dimensions(x);
  out.y = with_two_dimensions(y);
  if (spatial == 1) {
    for (auto* v : {&out.kernel, &out.strides}) v->insert(v->begin(), 1);
    out.pads.insert(out.pads.begin(), 0);
  }
  if (!out.empty && !one_layout({&out.x, &out.y})) return refuse("its input and result are not whole tensors");
  return out;
}

} // namespace tessera::cuda
