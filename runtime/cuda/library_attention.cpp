#include "runtime/cuda/library_attention.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr int64_t kAligned = 8;  // elements of half precision: 16 bytes
constexpr int64_t kWidest = 256; // of a head
constexpr size_t kOperands = 5;  // q, k, v, out, bias
using Distances = std::array<int64_t, kOperands>;
struct Batch {
  int64_t size;
  Distances at;
};

} // namespace

bool AttentionProblem::empty() const {
  return std::any_of(out.dims.begin(), out.dims.end(), [](int64_t n) { return n == 0; });
}

std::string AttentionProblem::key() const {
  std::string text = std::string(name(dtype));
  auto add = [&](const char* what, const AttentionTensor& t) {
    text += std::string(" ") + what;
    for (const auto* list : {&t.dims, &t.strides})
      for (size_t i = 0; i < list->size(); ++i)
        text += (i > 0 ? "," : list == &t.dims ? " " : " at ") + std::to_string((*list)[i]);
  };
  add("q", q);
  add("k", k);
  add("v", v);
  add("out", out);
  if (bias) add((std::string(name(bias_dtype)) + " bias").c_str(), *bias);
  return text + (causal ? " causal" : "");
}

Result<AttentionProblem> describe_attention(const FusedAttentionCall& call, std::span<const Operand> operands,
                                            const std::string& name) {
  auto refuse = [&](const char* what) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuDNN does not compute '" + name + "': " + what);
  };
  const Operand &q = operands[0], &k = operands[1], &v = operands[2], &out = operands[3];
  const Operand* bias = operands.size() > 4 ? &operands[4] : nullptr;
  size_t rank = q.shape.size(), batches = rank - 2;
  bool fits = k.shape[rank - 1] == q.shape[rank - 1] && v.shape[rank - 2] == k.shape[rank - 2] &&
              out.shape[rank - 2] == q.shape[rank - 2] && out.shape[rank - 1] == v.shape[rank - 1];
  for (const auto& o : operands)
    for (size_t d = 0; d < batches; ++d) fits = fits && o.shape[d] == q.shape[d];
  if (bias) fits = fits && bias->shape[rank - 2] == q.shape[rank - 2] && bias->shape[rank - 1] == k.shape[rank - 2];
  if (!fits) return Diagnostic(ErrorCode::Internal, "attention '" + name + "': sizes of the operands");
  int64_t queries = q.shape[rank - 2], keys = k.shape[rank - 2], width = q.shape[rank - 1],
          value_width = v.shape[rank - 1];

  // Batch dimensions of more than one point, merged where every operand goes on at one distance.
  std::vector<Batch> dims;
  bool none = queries == 0 || value_width == 0;
  for (size_t d = 0; d < batches; ++d) {
    none = none || q.shape[d] == 0;
    if (q.shape[d] == 1) continue;
    Batch b{q.shape[d], {q.strides[d], k.strides[d], v.strides[d], out.strides[d], bias ? bias->strides[d] : 0}};
    auto goes_on = [&](size_t o) { return dims.back().at[o] == b.size * b.at[o]; };
    if (!dims.empty() && goes_on(0) && goes_on(1) && goes_on(2) && goes_on(3) && goes_on(4))
      dims.back() = {dims.back().size * b.size, b.at};
    else
      dims.push_back(b);
  }
  AttentionProblem p;
  p.dtype = q.dtype;
  p.scale = call.scale;
  p.causal = call.causal;
  int64_t shared = 1; // heads of queries for one of keys
  if (!none && dims.size() > 1 && dims.back().at[1] == 0 && dims.back().at[2] == 0) {
    Batch inner = dims.back();
    dims.pop_back();
    shared = inner.size;
    Batch& heads = dims.back();
    bool queries_go_on = true;
    for (size_t o : {size_t{0}, size_t{3}, size_t{4}})
      queries_go_on = queries_go_on && heads.at[o] == inner.size * inner.at[o];
    if (queries_go_on && dims.size() <= 2) {
      for (size_t o : {size_t{0}, size_t{3}, size_t{4}}) heads.at[o] = inner.at[o];
      heads.size *= inner.size;
    } else if (dims.size() == 1) { // one head of keys in each batch
      dims.push_back(inner);
    } else {
      return refuse("heads that share keys do not lie one after the other");
    }
  }
  if (dims.size() > 2) return refuse("it has more than two batch dimensions that do not lie one after the other");
  while (dims.size() < 2) dims.insert(dims.begin(), Batch{1, {}});
  auto tensor = [&](size_t o, int64_t heads, int64_t rows, int64_t columns, const Operand& from) {
    AttentionTensor t{{dims[0].size, heads, rows, columns},
                      {dims[0].at[o], dims[1].at[o], from.strides[rank - 2], from.strides[rank - 1]}};
    // Strides of dimensions of one point say nothing; libraries compare them with those of layouts.
    int64_t whole = 0;
    for (size_t d = 0; d < 4; ++d)
      if (t.dims[d] > 1) whole = std::max(whole, t.dims[d] * t.strides[d]);
    for (size_t d = 0; d < 4; ++d)
      if (t.dims[d] == 1) t.strides[d] = d == 3 ? 1 : std::max(whole, columns);
    return t;
  };
  p.q = tensor(0, dims[1].size, queries, width, q);
  p.k = tensor(1, dims[1].size / shared, keys, width, k);
  p.v = tensor(2, dims[1].size / shared, keys, value_width, v);
  p.out = tensor(3, dims[1].size, queries, value_width, out);
  if (bias) {
    p.bias = tensor(4, dims[1].size, queries, keys, *bias);
    p.bias_dtype = bias->dtype;
  }
  if (p.empty()) return p;
  if (keys == 0) return refuse("there are no keys");
  if (width % kAligned != 0 || value_width % kAligned != 0 || width > kWidest || value_width > kWidest || width == 0)
    return refuse("the width of a head is not a multiple of 8 up to 256");
  for (const auto* t : {&p.q, &p.k, &p.v, &p.out}) {
    if (t->strides[3] != 1) return refuse("the elements of a head are not neighbours");
    for (size_t d = 0; d < 3; ++d) {
      if (t->strides[d] % kAligned != 0) return refuse("heads do not begin at multiples of 16 bytes");
      if (t->strides[d] == 0 && t->dims[d] > 1) return refuse("batches share keys or values");
    }
  }
  for (size_t o = 0; o < 4; ++o)
    if (operands[o].offset % kAligned != 0) return refuse("heads do not begin at multiples of 16 bytes");
  if (bias && p.bias->strides[3] != 1) return refuse("the biases of neighbouring keys are not neighbours");
  return p;
}

} // namespace tessera::cuda
