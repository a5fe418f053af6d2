// Attention of strided operands in the terms of cuDNN: [batch, heads, length, width], keys and values with as many
// heads or fewer. A pure function of shapes and strides.
//
// A call may have any number of batch dimensions. Those that lie one after the other in every operand are merged; two
// are left in most models, batch and heads. Where heads share keys and values, a third one with stride 0 for them is
// merged with the heads of the queries alone:
//
//   q [2, 4, 8, s, 64] strides (2048 s, 512 s, 64 s, 64, 1)     4 * 8 heads at distance 64 s
//   k [2, 4, 8, s, 64] strides (256 s, 64 s, 0, 64, 1)          4 heads
#pragma once
#include "runtime/library/call.h"
#include <array>
#include <optional>
#include <span>

namespace tessera::cuda {

struct AttentionTensor {
  std::array<int64_t, 4> dims{}, strides{}; // batch, heads, length, width; elements
  bool operator==(const AttentionTensor&) const = default;
};
struct AttentionProblem {
  AttentionTensor q, k, v, out;
  std::optional<AttentionTensor> bias; // [batch, heads, queries, keys], strides 0 where it is the same
  DType dtype = DType::F16, bias_dtype = DType::F16;
  double scale = 1;
  bool causal = false;
  [[nodiscard]] bool empty() const;      // no results
  [[nodiscard]] std::string key() const; // all that an engine depends on; also what logs say
};
// `operands` in the order of operands_of(). Errors: Internal where shapes contradict; UnsupportedFeature for what the
// library does not address (widths and distances that are not multiples of 16 bytes, more batch dimensions, rows over
// no keys).
[[nodiscard]] Result<AttentionProblem> describe_attention(const FusedAttentionCall& call,
                                                          std::span<const Operand> operands, const std::string& name);

} // namespace tessera::cuda
