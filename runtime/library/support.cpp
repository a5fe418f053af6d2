#include "runtime/library/support.h"

namespace tessera {
namespace {

std::string dtype_refusal(std::span<const DType> dtypes) {
  for (auto d : dtypes)
    if (d != DType::F32) return std::string(name(d)) + " operand: the host libraries compute in f32";
  return {};
}

std::string operand_refusal(const char* which, const StridedOperand& o) {
  if (o.strides.size() != o.shape.size()) return std::string(which) + ": one stride per dimension is needed";
  for (const auto& s : o.strides)
    if (auto v = s.as_const(); v && *v < 0) return std::string(which) + ": a stride is negative";
  return {};
}

std::string result_refusal(const StridedOperand& o) {
  for (size_t d = 0; d < o.strides.size() && d < o.shape.size(); ++d)
    if (o.strides[d].is_const(0) && !o.shape[d].is_const(0) && !o.shape[d].is_const(1)) return "result: a stride of 0";
  return {};
}

std::string window_refusal(const StridedOperand& x, const StridedOperand& y,
                           std::initializer_list<const std::vector<int64_t>*> per_axis) {
  size_t rank = x.shape.size();
  if (rank < 3 || rank > 5) return "rank " + std::to_string(rank) + ": 1 to 3 spatial dimensions are supported";
  if (y.shape.size() != rank) return "ranks of operand and result differ";
  for (const auto* v : per_axis) {
    if (v->size() != rank - 2) return "strides, pads and dilations need one entry per spatial dimension";
    for (int64_t e : *v)
      if (e < 0 || e > (int64_t{1} << 30)) return "a stride, pad or dilation is negative or above 2^30";
  }
  return {};
}

std::string positive(std::initializer_list<const std::vector<int64_t>*> per_axis) {
  for (const auto* v : per_axis)
    for (int64_t e : *v)
      if (e == 0) return "a stride, dilation or window of 0";
  return {};
}

std::string first(std::initializer_list<std::string> reasons) {
  for (const auto& r : reasons)
    if (!r.empty()) return r;
  return {};
}

} // namespace

std::string matmul_refusal(const MatmulCall& call, std::span<const DType> dtypes) {
  size_t rank = call.c.shape.size();
  std::string ranks;
  if (rank < 2 || call.a.shape.size() < 2 || call.b.shape.size() < 2)
    ranks = "a product needs matrices";
  else if (call.a.shape.size() > rank || call.b.shape.size() > rank)
    ranks = "an operand has more dimensions than the result";
  return first({dtype_refusal(dtypes), ranks, operand_refusal("a", call.a), operand_refusal("b", call.b),
                operand_refusal("result", call.c), result_refusal(call.c)});
}

std::string conv_refusal(const ConvCall& call, std::span<const DType> dtypes) {
  std::string groups;
  if (call.groups < 1)
    groups = "groups must be positive";
  else if (call.w.shape.size() != call.x.shape.size())
    groups = "ranks of operand and weights differ";
  return first({dtype_refusal(dtypes),
                window_refusal(call.x, call.y, {&call.strides, &call.pads_begin, &call.pads_end, &call.dilations}),
                positive({&call.strides, &call.dilations}), groups, operand_refusal("x", call.x),
                operand_refusal("weights", call.w), operand_refusal("result", call.y), result_refusal(call.y)});
}

std::string pool_refusal(const PoolCall& call, std::span<const DType> dtypes) {
  return first(
      {dtype_refusal(dtypes),
       window_refusal(call.x, call.y, {&call.kernel, &call.strides, &call.pads_begin, &call.pads_end, &call.dilations}),
       positive({&call.kernel, &call.strides, &call.dilations}), operand_refusal("x", call.x),
       operand_refusal("result", call.y), result_refusal(call.y)});
}

} // namespace tessera
