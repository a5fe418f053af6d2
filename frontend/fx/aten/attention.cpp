// Softmax, attention, and their gradients.
#include "frontend/fx/aten/parts.h"
#include <cmath>
#include <limits>

namespace tessera::fx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- softmax
template <bool kLogarithm>
void translate_softmax(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  DType d = c.b.dtype(x);
  if (c.schema().argument("half_to_float")) {
    if (c.in.flag("half_to_float")) d = DType::F32;
  } else {
    d = requested_dtype(c, d);
  }
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (!c.b.ok()) return;
  if (!is_float(d)) d = c.result_dtype(0);
  c.result(softmax(c, cast(c.b, x, d), axis, kLogarithm));
}

// Rows of minus infinity alone are zeros.
void translate_safe_softmax(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  const DType d = requested_dtype(c, c.b.dtype(x));
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (!c.b.ok()) return;
  x = cast(c.b, x, d);
  ValueId hidden = eq(c.b, reduce(c.b, "reduce_max", x, {axis}, true), -kInfinity);
  c.result(select(c.b, hidden, 0.0, softmax(c, x, axis, false)));
}

template <bool kLogarithm>
void translate_softmax_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), y = c.in.tensor("output");
  const auto d = c.in.dtype("input_dtype");
  if (!c.b.ok()) return;
  const int rank = c.b.rank(y);
  const int64_t axis = c.in.axis("dim", rank);
  if (!c.b.ok() || !d) return;
  const Ints axes = rank == 0 ? Ints() : Ints{axis};
  ValueId g = widen(c.b, grad), p = widen(c.b, y);
  auto sum = [&](ValueId v) { return axes.empty() ? v : ops::sum(c.b, v, axes, true); };
  if (kLogarithm) return c.result(cast(c.b, sub(c.b, g, mul(c.b, exp(c.b, p), sum(g))), *d));
  ValueId weighted = mul(c.b, g, p);
  c.result(cast(c.b, sub(c.b, weighted, mul(c.b, p, sum(weighted))), *d));
}

// ---- attention
// Operands as [batch, heads, length, width].
struct Heads {
  ValueId q, k, v, mask; // mask: bool or added to the scores, broadcast to them; may be invalid
  SymShape lead;         // dimensions of the result before the last two
  bool causal = false;
  std::optional<double> given_scale;
};

SymShape leading(Call& c, ValueId v) {
  SymShape s = c.b.shape(v);
  if (s.size() < 2) {
    c.b.fail(ErrorCode::ShapeMismatch, "attention takes [..., length, width], not " + str(s));
    return {};
  }
  s.resize(s.size() - 2);
  return s;
}

// v [lead..., a, b] as [batch, heads, a, b], where the lead is `to` of them all.
ValueId four_dimensional(Call& c, ValueId v, const SymShape& to) {
  if (!c.b.ok()) return {};
  const SymShape s = c.b.shape(v);
  SymShape wide = to;
  wide.insert(wide.end(), s.end() - 2, s.end());
  v = expand(c.b, v, wide);
  if (to.size() == 2) return v;
  SymExpr batch = 1, heads = to.empty() ? SymExpr(1) : to.back();
  for (size_t i = 0; i + 1 < to.size(); ++i) batch *= to[i];
  return reshape(c.b, v, {batch, heads, s[s.size() - 2], s.back()});
}

// The rounding of products of 16-bit operands. The CPU's operator keeps scores and weights in f32; there a product of
// f32 takes no longer.
enum class Products : uint8_t { Stored, Wide };

std::optional<Heads> heads_of(Call& c, Products products = Products::Stored) {
  Heads h;
  h.q = c.in.tensor("query");
  h.k = c.in.tensor("key");
  h.v = c.in.tensor("value");
  if (products == Products::Wide)
    for (ValueId* v : {&h.q, &h.k, &h.v}) *v = widen(c.b, *v);
  h.mask = c.schema().argument("attn_mask")   ? c.in.maybe("attn_mask")
           : c.schema().argument("attn_bias") ? c.in.maybe("attn_bias")
                                              : ValueId();
  h.causal = c.in.flag("is_causal");
  h.given_scale = c.in.maybe_number("scale");
  if (products == Products::Wide && h.mask.valid() && c.b.ok() && c.b.dtype(h.mask) != DType::Bool)
    h.mask = widen(c.b, h.mask);
  if (c.in.number("dropout_p") != 0)
    c.unsupported("attention with dropout " + std::to_string(c.in.number("dropout_p")));
  if (!c.b.ok()) return std::nullopt;
  SymShape lq = leading(c, h.q), lk = leading(c, h.k), lv = leading(c, h.v);
  if (!c.b.ok()) return std::nullopt;
  auto broadcast = [&](const SymShape& a, const SymShape& b) {
    auto s = c.b.env().broadcast(a, b, c.b.node().location);
    if (!s.ok()) c.b.fail(s.error());
    return s.ok() ? *s : SymShape();
  };
  // Queries that share keys in groups: by the flag, or, of operators without one, by numbers of heads that differ.
  const bool four = lq.size() == 2 && lk.size() == 2;
  const bool grouped =
      c.schema().argument("enable_gqa") ? c.in.flag("enable_gqa") : four && !c.b.env().known_equal(lq[1], lk[1]);
  if (grouped && four) {
    SymExpr heads = broadcast({lk[1]}, {lv[1]})[0];
    SymExpr batch = broadcast(broadcast({lq[0]}, {lk[0]}), {lv[0]})[0];
    h.lead = {batch, lq[1]};
    h.q = four_dimensional(c, h.q, h.lead);
    h.k = four_dimensional(c, h.k, {batch, heads});
    h.v = four_dimensional(c, h.v, {batch, heads});
  } else {
    h.lead = broadcast(broadcast(lq, lk), lv);
    if (!c.b.ok()) return std::nullopt;
    h.q = four_dimensional(c, h.q, h.lead);
    h.k = four_dimensional(c, h.k, h.lead);
    h.v = four_dimensional(c, h.v, h.lead);
  }
  if (!c.b.ok()) return std::nullopt;
  if (h.mask.valid()) {
    SymShape m = c.b.shape(h.mask);
    const SymExpr keys = c.b.dim(h.k, 2);
    if (m.empty()) m = {1};
    h.mask = reshape(c.b, h.mask, m);
    if (m.back().is_const(1) && !keys.is_const(1)) { // one column for all keys
      m.back() = keys;
      h.mask = expand(c.b, h.mask, m);
    }
    if (m.size() > 2 && h.lead.size() != 2) { // the mask's own lead is flattened as the scores' is
      while (m.size() < h.lead.size() + 2) m.insert(m.begin(), SymExpr(1));
      h.mask = reshape(c.b, h.mask, m);
      SymShape to = h.lead;
      if (h.lead.size() > 2)
        h.mask = four_dimensional(c, h.mask, to);
      else
        while (m.size() < 4) {
          m.insert(m.begin(), SymExpr(1));
          h.mask = reshape(c.b, h.mask, m);
        }
    }
  }
  return h;
}

// v, of the computing dtype, times the scale of the scores: the one given, or the reciprocal root of the width.
ValueId times_scale(Call& c, const Heads& h, ValueId v) {
  if (h.given_scale) return mul(c.b, v, *h.given_scale);
  const SymExpr width = c.b.dim(h.q, 3);
  if (auto w = width.as_const()) return mul(c.b, v, *w > 0 ? 1 / std::sqrt(static_cast<double>(*w)) : 1.0);
  if (!c.b.ok()) return {};
  return mul(c.b, v, rsqrt(c.b, c.b.size(width, c.b.dtype(v))));
}

// Heads of keys and values repeated as grouped queries need them.
void spread_groups(Call& c, Heads& h) {
  if (!c.b.ok()) return;
  const SymExpr q = c.b.dim(h.q, 1), k = c.b.dim(h.k, 1);
  if (c.b.env().known_equal(q, k)) return;
  const SymExpr group = c.b.env().simplify(floordiv(q, k));
  auto spread = [&](ValueId v) {
    SymShape s = c.b.shape(v);
    ValueId wide = expand(c.b, unsqueeze(c.b, v, {2}), {s[0], s[1], group, s[2], s[3]});
    return reshape(c.b, wide, {s[0], q, s[2], s[3]});
  };
  h.k = spread(h.k);
  h.v = spread(h.v);
}

ValueId attention(Call& c, Heads h) {
  // The composite divides the queries' heads by a number.
  if (c.b.ok() && !c.b.dim(h.k, 1).as_const()) spread_groups(c, h);
  std::vector<ValueId> operands = {h.q, h.k, h.v};
  if (h.mask.valid()) operands.push_back(h.mask);
  Attributes a = {{"is_causal", int64_t{h.causal}}};
  if (h.given_scale) a.set("scale", *h.given_scale);
  ValueId y = c.b.op("Attention", operands, std::move(a));
  if (!c.b.ok() || h.lead.size() == 2) return y;
  SymShape s = c.b.shape(y), out = h.lead;
  out.insert(out.end(), s.end() - 2, s.end());
  return reshape(c.b, y, out);
}

// Scores with everything that masks them, in the computing dtype: as the composite Attention makes them.
ValueId masked_scores(Call& c, const Heads& h) {
  if (!c.b.ok()) return {};
  const DType wide = compute_dtype(c.b.dtype(h.q));
  ValueId s = times_scale(c, h, wide_matmul(c.b, h.q, transpose(c.b, h.k, {0, 1, 3, 2})));
  if (h.mask.valid()) {
    ValueId m = c.b.dtype(h.mask) == DType::Bool ? select(c.b, h.mask, c.b.scalar(wide, 0), -kInfinity)
                                                 : cast(c.b, h.mask, wide);
    s = add(c.b, s, m);
  }
  if (h.causal) {
    ValueId key = iota(c.b, {1, 1, 1, c.b.dim(h.k, 2)}, 3), query = iota(c.b, {1, 1, c.b.dim(h.q, 2), 1}, 2);
    s = select(c.b, le(c.b, key, query), s, -kInfinity);
  }
  return s;
}

ValueId log_sum(Call& c, Heads h) {
  spread_groups(c, h);
  ValueId s = masked_scores(c, h);
  if (!c.b.ok()) return {};
  ValueId high = reduce(c.b, "reduce_max", s, {3}, true);
  high = select(c.b, eq(c.b, high, -kInfinity), 0.0, high);
  ValueId sum = log(c.b, ops::sum(c.b, exp(c.b, sub(c.b, s, high)), {3}, true));
  return squeeze(c.b, add(c.b, sum, high), {3});
}

// Sums [batch, heads, rows] as the program states them: some libraries pad the rows, some have them as columns.
ValueId stated_sums(Call& c, ValueId sums, const SymShape& stated) {
  if (!c.b.ok()) return {};
  if (stated.size() < 3 || stated[2].is_const(0)) return zeros(c, c.b.dtype(sums), stated); // not wanted
  const SymExpr more = c.b.env().simplify(stated[2] - c.b.dim(sums, 2));
  if (!more.is_const(0)) {
    const SymShape none(3, SymExpr(0));
    sums = pad(c.b, sums, none, {0, 0, more}, c.b.scalar(c.b.dtype(sums), kInfinity));
  }
  return stated.size() == 4 ? unsqueeze(c.b, sums, {3}) : sums;
}

// Sums [batch, heads, rows] of what a forward operator stated.
ValueId read_sums(Call& c, ValueId sums, const SymExpr& rows) {
  if (!c.b.ok()) return {};
  if (c.b.rank(sums) == 4) sums = squeeze(c.b, sums, {3});
  return !c.b.ok() || c.b.env().known_equal(c.b.dim(sums, 2), rows) ? sums : slice(c.b, sums, 2, 0, rows);
}

// The dtype and shape that the program states, where that is what there is.
void attention_results(Call& c, int sums, Products products = Products::Stored) {
  auto h = heads_of(c, products);
  if (!h) return;
  c.result(cast(c.b, attention(c, *h), c.result_dtype(0)));
  const int count = static_cast<int>(c.schema().results.size());
  for (int i = 1; i < count && c.b.ok(); ++i) {
    if (!c.is_used(i)) {
      c.unused_result();
      continue;
    }
    if (i == sums) {
      const DType d = c.result_dtype(i);
      const SymShape stated = c.result_shape(i);
      c.result(cast(c.b, stated_sums(c, log_sum(c, *h), stated), d));
      continue;
    }
    // Seeds and offsets of a dropout that there is not, cumulative sizes of sequences of one size.
    const SymShape shape = c.result_shape(i);
    if (!c.b.ok()) return;
    c.result(zeros(c, c.result_dtype(i), shape));
  }
}

void translate_attention(Call& c) { attention_results(c, -1); }
void translate_attention_with_sums(Call& c) { attention_results(c, 1); }
void translate_attention_of_cpu(Call& c) { attention_results(c, 1, Products::Wide); }

// The second result is the weights.
void translate_attention_math(Call& c) {
  if (c.in.given("dropout_mask")) return c.unsupported("attention with a dropout mask");
  auto h = heads_of(c);
  if (!h) return;
  c.result(attention(c, *h));
  if (!c.is_used(1)) return c.unused_result();
  const DType d = c.result_dtype(1);
  const SymShape shape = c.result_shape(1);
  spread_groups(c, *h);
  ValueId s = masked_scores(c, *h);
  ValueId hidden = eq(c.b, reduce(c.b, "reduce_max", s, {3}, true), -kInfinity);
  ValueId weights = cast(c.b, select(c.b, hidden, 0.0, softmax(c, s, 3, false)), d);
  c.result(reshape(c.b, weights, shape));
}

// With P the weights, dV = P^T dO, dP = dO V^T, dS = P * (dP - rowsum(dO * O)), dQ = scale dS K, dK = scale dS^T Q.
template <Products kProducts>
void translate_attention_backward(Call& c) {
  ValueId grad = c.in.tensor(c.schema().argument("grad_out_") ? "grad_out_" : "grad_out"), out = c.in.tensor("out"),
          sums = c.in.tensor("logsumexp");
  auto h = heads_of(c, kProducts);
  Ints mask = c.schema().argument("grad_input_mask") ? c.in.ints("grad_input_mask") : Ints{1, 1, 1, 0};
  if (!h || !c.b.ok()) return;
  mask.resize(4, 0);
  const DType stored = c.b.dtype(grad), d = c.b.dtype(h->q), wide = compute_dtype(d);
  grad = cast(c.b, grad, d);
  if (c.b.rank(grad) != 4 || h->lead.size() != 2)
    return c.unsupported("the gradient of an attention over " + str(c.b.shape(grad)));
  const SymExpr key_heads = c.b.dim(h->k, 1);
  const SymShape key_shape = c.b.shape(h->k), value_shape = c.b.shape(h->v);
  spread_groups(c, *h);
  ValueId s = masked_scores(c, *h);
  if (!c.b.ok()) return;
  sums = read_sums(c, sums, c.b.dim(h->q, 2));
  ValueId p = exp(c.b, sub(c.b, s, unsqueeze(c.b, cast(c.b, sums, wide), {3})));
  // A row without keys has the sum -inf, and no weights.
  p = select(c.b, eq(c.b, s, -kInfinity), 0.0, p);
  ValueId narrow = cast(c.b, p, d);
  ValueId dv = matmul(c.b, transposed(c, narrow), grad);
  ValueId dp = wide_matmul(c.b, grad, transposed(c, h->v)); // nearly cancels below
  ValueId row = sum(c.b, mul(c.b, cast(c.b, grad, wide), cast(c.b, out, wide)), {3}, true);
  ValueId ds = mul(c.b, p, sub(c.b, dp, row));
  ValueId scaled = cast(c.b, times_scale(c, *h, ds), d);
  ValueId dq = matmul(c.b, scaled, h->k), dk = matmul(c.b, transposed(c, scaled), h->q);
  auto gathered = [&](ValueId v, const SymShape& shape) { // heads that share a key head add up
    if (!c.b.ok() || c.b.env().known_equal(c.b.dim(v, 1), key_heads)) return v;
    const SymExpr group = c.b.env().simplify(floordiv(c.b.dim(v, 1), key_heads));
    v = reshape(c.b, v, {shape[0], key_heads, group, shape[2], shape[3]});
    return cast(c.b, sum(c.b, widen(c.b, v), {2}, false), d);
  };
  auto give = [&](size_t i, ValueId v) {
    if (mask[i])
      c.result(cast(c.b, v, stored));
    else
      c.unused_result();
  };
  give(0, dq);
  give(1, gathered(dk, key_shape));
  give(2, gathered(dv, value_shape));
  if (c.schema().results.size() < 4) return;
  if (!mask[3] || !h->mask.valid() || !c.is_used(3)) return c.unused_result();
  // The bias was broadcast to the scores.
  const SymShape wanted = c.result_shape(3), full = c.b.shape(ds);
  Ints axes;
  for (size_t i = 0; i < full.size(); ++i)
    if (i + wanted.size() < full.size() || !c.b.env().known_equal(wanted[i + wanted.size() - full.size()], full[i]))
      axes.push_back(static_cast<int64_t>(i));
  if (!axes.empty()) ds = sum(c.b, ds, axes, true);
  c.result(cast(c.b, reshape(c.b, ds, wanted), c.result_dtype(3)));
}

// ---- nn.MultiheadAttention and nn.TransformerEncoderLayer in one operator, as eval mode has them
struct Packed {
  ValueId y, weights; // weights: [N, heads, L, S], wide
};
Packed packed_attention(Call& c, ValueId q, ValueId k, ValueId v, int64_t width, int64_t heads, ValueId mask,
                        std::optional<int64_t> mask_type, bool need_weights) {
  Packed out;
  ValueId weight = c.in.tensor("qkv_weight"), bias = c.in.tensor("qkv_bias");
  if (!c.b.ok()) return out;
  if (heads < 1 || width < heads) {
    c.b.fail(ErrorCode::BadAttribute,
             "argument 'num_heads' is " + std::to_string(heads) + ", of an embedding of " + std::to_string(width));
    return out;
  }
  const SymShape s = c.b.shape(q);
  auto project = [&](ValueId x, int64_t part) {
    ValueId w = slice(c.b, weight, 0, part * width, width), b = slice(c.b, bias, 0, part * width, width);
    ValueId y = linear(c, x, w, b);
    SymShape shape = c.b.shape(y);
    if (!c.b.ok()) return y;
    return transpose(c.b, reshape(c.b, y, {shape[0], shape[1], heads, width / heads}), {0, 2, 1, 3});
  };
  Heads h;
  h.q = project(q, 0);
  h.k = project(k, 1);
  h.v = project(v, 2);
  h.lead = {s[0], heads};
  if (mask.valid() && c.b.ok()) { // true hides a key: 0 is [L, S], 1 is [N, S], 2 is [N, heads, L, S]
    const SymShape m = c.b.shape(mask);
    const int64_t kind = mask_type.value_or(m.size() == 2 ? 0 : 2);
    if (kind == 1 && m.size() == 2) mask = reshape(c.b, mask, {m[0], 1, 1, m[1]});
    h.mask = c.b.dtype(mask) == DType::Bool ? logical_not(c.b, mask) : mask;
  }
  ValueId y = attention(c, h);
  if (need_weights) {
    ValueId scores = masked_scores(c, h);
    out.weights = softmax(c, scores, 3, false);
  }
  y = reshape(c.b, transpose(c.b, y, {0, 2, 1, 3}), {s[0], s[1], width});
  out.y = linear(c, y, c.in.tensor("proj_weight"), c.in.tensor("proj_bias"));
  return out;
}

void translate_multi_head(Call& c) {
  ValueId q = c.in.tensor("query"), k = c.in.tensor("key"), v = c.in.tensor("value"), mask = c.in.maybe("mask");
  const int64_t width = c.in.integer("embed_dim"), heads = c.in.integer("num_head");
  const auto mask_type = c.in.maybe_integer("mask_type");
  const bool need = c.in.flag("need_weights") && c.is_used(1), average = c.in.flag("average_attn_weights");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(q);
  Packed p = packed_attention(c, q, k, v, width, heads, mask, mask_type, need);
  c.result(p.y);
  if (!need) return c.unused_result();
  c.result(cast(c.b, average ? mean(c.b, p.weights, {1}, false) : p.weights, d));
}

void translate_encoder_layer(Call& c) {
  ValueId x = c.in.tensor("src"), mask = c.in.maybe("mask");
  const int64_t width = c.in.integer("embed_dim"), heads = c.in.integer("num_heads");
  const auto mask_type = c.in.maybe_integer("mask_type");
  const bool gelu = c.in.flag("use_gelu"), first = c.in.flag("norm_first");
  const double epsilon = c.in.number("eps");
  if (!c.b.ok()) return;
  const int rank = c.b.rank(x);
  auto norm = [&](ValueId v, const char* weight, const char* bias) {
    return layer_norm(c, v, rank - 1, c.in.tensor(weight), c.in.tensor(bias), epsilon);
  };
  auto attend = [&](ValueId v) { return packed_attention(c, v, v, v, width, heads, mask, mask_type, false).y; };
  auto feed = [&](ValueId v) {
    ValueId y = linear(c, v, c.in.tensor("ffn_weight_1"), c.in.tensor("ffn_bias_1"));
    y = c.b.op1(gelu ? "Gelu" : "Relu", y);
    return linear(c, y, c.in.tensor("ffn_weight_2"), c.in.tensor("ffn_bias_2"));
  };
  if (first) {
    x = add(c.b, x, attend(norm(x, "norm_weight_1", "norm_bias_1")));
    x = add(c.b, x, feed(norm(x, "norm_weight_2", "norm_bias_2")));
  } else {
    x = norm(add(c.b, x, attend(x)), "norm_weight_1", "norm_bias_1");
    x = norm(add(c.b, x, feed(x)), "norm_weight_2", "norm_bias_2");
  }
  c.result(x);
}

} // namespace

void register_attention(AtenTable& t) {
  t.add({"softmax.int", "_softmax.default"}, translate_softmax<false>);
  t.add({"log_softmax.int", "_log_softmax.default"}, translate_softmax<true>);
  t.add({"_safe_softmax.default"}, translate_safe_softmax);
  t.add({"_softmax_backward_data.default"}, translate_softmax_backward<false>);
  t.add({"_log_softmax_backward_data.default"}, translate_softmax_backward<true>);
  t.add({"scaled_dot_product_attention.default"}, translate_attention);
  t.add({"_scaled_dot_product_attention_math.default"}, translate_attention_math);
  t.add({"_scaled_dot_product_flash_attention.default", "_scaled_dot_product_efficient_attention.default",
         "_scaled_dot_product_cudnn_attention.default", "_scaled_dot_product_fused_attention_overrideable.default"},
        translate_attention_with_sums);
  t.add({"_scaled_dot_product_flash_attention_for_cpu.default"}, translate_attention_of_cpu);
  t.add({"_scaled_dot_product_flash_attention_backward.default",
         "_scaled_dot_product_efficient_attention_backward.default",
         "_scaled_dot_product_cudnn_attention_backward.default",
         "_scaled_dot_product_fused_attention_overrideable_backward.default"},
        translate_attention_backward<Products::Stored>);
  t.add({"_scaled_dot_product_flash_attention_for_cpu_backward.default"}, translate_attention_backward<Products::Wide>);
  t.add({"_native_multi_head_attention.default"}, translate_multi_head);
  t.add({"_transformer_encoder_layer_fwd.default"}, translate_encoder_layer);
  // A model's constants: the width of heads, and of queries that share keys in groups the numbers of heads.
  t.add_known({"scaled_dot_product_attention.default", "_scaled_dot_product_flash_attention.default",
               "_scaled_dot_product_efficient_attention.default", "_scaled_dot_product_cudnn_attention.default",
               "_scaled_dot_product_fused_attention_overrideable.default"},
              {{"query", -1}, {"value", -1}, {"query", -3, "key"}, {"key", -3, "query"}});
}

} // namespace tessera::fx
