// Parts of the records of ONNX Runtime's domain "com.microsoft". Each record is a decomposition into operators of the
// default domain, so that it fuses as those do; its name in the table is "com.microsoft." and the operator's.
#pragma once
#include "graph/ops/parts.h"

namespace tessera::ops {

// `name` with the domain: "com.microsoft.FastGelu".
[[nodiscard]] OpDef microsoft(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
                              DecomposeFn rewrite);
// A decomposition that yields one value.
[[nodiscard]] DecomposeFn formula(std::function<ValueId(B&)> value);

// The activation that a fused operator names ("Relu", "LeakyRelu" ...; "" for none), with its numbers in ONNX's order.
[[nodiscard]] ValueId activate(B& b, ValueId x, const std::string& name, const std::vector<double>& numbers);

// (x - zero) * scale in f32, for an operand that `x` names, its scale and its zero point standing behind it.
[[nodiscard]] ValueId dequantize(B& b, int x, int scale, int zero);
// y / scale + zero in the zero point's dtype, or in `fallback` where there is none.
[[nodiscard]] ValueId quantize(B& b, ValueId y, int scale, int zero, DType fallback);
// A @ B of integers without their zero points, in f32: scales and zero points are operands, of a scalar or of columns.
[[nodiscard]] ValueId scaled_product(B& b, ValueId a_values, ValueId a_scale, ValueId a_zero, ValueId b_values,
                                     ValueId b_scale, ValueId b_zero);
// Codes of `bits` bits in the bytes of the last dimension, lowest first: u8[..., n] as u8[..., n * 8 / bits].
[[nodiscard]] ValueId unpacked(B& b, ValueId bytes, int64_t bits);

// ---- attention: Q, K and V as [batch, heads, length, width]
[[nodiscard]] ValueId merge_heads(B& b, ValueId x); // back to [batch, length, heads * width]
struct AttentionTerms {
  ValueId q, k, v;
  ValueId bias = {}; // added to the scores
  ValueId past_key = {}, past_value = {};
  ValueId lengths = {}; // of keys, i64[batch]
  bool causal = false;
  int64_t left_window = -1;
  double softcap = 0;
  int64_t scores = 3; // which scores the fourth result is: qk_matmul_output_mode of Attention
};
// Attention of the default domain, with the node's attribute `scale` (0 and none: by the width): the weighted sum,
// keys and values with the past, scores.
[[nodiscard]] std::vector<ValueId> attend(B& b, const AttentionTerms& terms, int result_count);
// A mask of com.microsoft as what is added to scores: 0 where a key may be seen, else `hidden`. It is [batch, keys],
// [batch, queries, keys], [batch, 1, most, most], or lengths: [batch], [2 * batch] (ends, starts), [3 * batch + 2].
[[nodiscard]] ValueId mask_bias(B& b, ValueId mask, const SymExpr& batch, const SymExpr& queries, const SymExpr& keys,
                                double hidden);
// `past` [batch, heads, p, width] with `fresh` [batch, heads, s, width] in the rows from `start` (i64 that broadcasts to
// [batch, 1, 1, 1]) on, `rows` rows in all.
[[nodiscard]] ValueId with_rows(B& b, ValueId past, ValueId fresh, ValueId start, const SymExpr& rows);

// Width of a head: one number where a call says what it is, as code for any width would be slow for every one.
[[nodiscard]] SymExpr head_width(B& b, const SymExpr& width);

} // namespace tessera::ops

namespace tessera {

void register_microsoft_ops(OpTable&);            // all of them
void register_microsoft_activation_ops(OpTable&); // microsoft_activation.cpp
void register_microsoft_norm_ops(OpTable&);       // microsoft_norm.cpp
void register_microsoft_attention_ops(OpTable&);  // microsoft_attention.cpp
void register_microsoft_cache_ops(OpTable&);      // microsoft_cache.cpp: GroupQueryAttention
void register_microsoft_matmul_ops(OpTable&);     // microsoft_matmul.cpp
void register_microsoft_quant_ops(OpTable&);      // microsoft_quant.cpp
void register_microsoft_moe_ops(OpTable&);        // microsoft_moe.cpp
void register_microsoft_text_ops(OpTable&);       // microsoft_text.cpp: MurmurHash3, Tokenizer
void register_microsoft_misc_ops(OpTable&);       // microsoft_misc.cpp: crops, n-grams, inverses and the rest

} // namespace tessera
