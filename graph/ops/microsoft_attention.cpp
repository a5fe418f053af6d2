// Attention of ONNX Runtime's transformer models: Attention, MultiHeadAttention, PackedMultiHeadAttention, QAttention,
// RotaryEmbedding. All of them end in Attention of the default domain.
#include "graph/ops/microsoft.h"
#include <numeric>

namespace tessera {

namespace ops {

ValueId merge_heads(B& b, ValueId x) {
  if (!b.ok()) return {};
  SymShape s = b.shape(x);
  return reshape(b, transpose(b, x, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

std::vector<ValueId> attend(B& b, const AttentionTerms& t, int result_count) {
  Attributes attributes = {{"is_causal", int64_t{t.causal}},
                           {"left_window_size", t.left_window},
                           {"softcap", t.softcap},
                           {"qk_matmul_output_mode", t.scores}};
  if (b.attr().f("scale") != 0) attributes.set("scale", b.attr().f("scale"));
  std::vector<ValueId> operands = {t.q, t.k, t.v, t.bias, t.past_key, t.past_value, t.lengths};
  while (!operands.back().valid()) operands.pop_back();
  return b.ops("Attention", std::move(operands), std::move(attributes), result_count);
}

ValueId mask_bias(B& b, ValueId mask, const SymExpr& batch, const SymExpr& queries, const SymExpr& keys,
                  double hidden) {
  if (!b.ok()) return {};
  const SymShape shape = b.shape(mask);
  ValueId visible;
  if (shape.size() == 1) {
    // Ends of the keys, and with twice as many numbers where they start.
    auto row = [&](const SymExpr& from) {
      return reshape(b, cast(b, slice(b, mask, 0, from, batch), DType::I64), {batch, 1, 1, 1});
    };
    ValueId key = iota(b, {1, 1, 1, keys}, 3);
    visible = lt(b, key, row(0));
    if (!b.env().known_equal(shape[0], batch) && b.decide(sym_eq(shape[0], batch * 2), false, "the mask has starts"))
      visible = logical_and(b, visible, ge(b, key, row(batch)));
  } else {
    ValueId m = mask;
    if (shape.size() == 2) {
      m = unsqueeze(b, m, {1, 2});
    } else if (shape.size() == 3) {
      m = unsqueeze(b, m, {1});
    } else if (shape.size() == 4) { // for any length: the rows of the queries
      m = slice(b, slice(b, m, 2, keys - queries, queries), 3, 0, keys);
    } else {
      return b.fail(ErrorCode::ShapeMismatch, "the mask is " + str(shape)), ValueId{};
    }
    visible = b.dtype(m) == DType::Bool ? m : gt(b, m, b.scalar_i(b.dtype(m), 0));
  }
  return select(b, visible, b.scalar(DType::F32, 0), hidden);
}

ValueId with_rows(B& b, ValueId past, ValueId fresh, ValueId start, const SymExpr& rows) {
  if (!b.ok()) return {};
  const SymShape old = b.shape(past), made = b.shape(fresh);
  const SymExpr more = b.env().simplify(rows - old[2]);
  ValueId kept = past;
  if (!more.is_const(0)) kept = pad(b, past, {0, 0, 0, 0}, {0, 0, more, 0});
  ValueId row = sub(b, iota(b, {1, 1, rows, 1}, 2), start), count = b.size(made[2], DType::I64);
  ValueId within = max(b, min(b, row, sub(b, count, b.scalar_i(DType::I64, 1))), b.scalar_i(DType::I64, 0));
  ValueId index = expand(b, within, {made[0], made[1], rows, made[3]});
  ValueId placed = b.op("gather_elements", {fresh, index}, {{"axis", int64_t{2}}});
  ValueId is_new = logical_and(b, ge(b, row, b.scalar_i(DType::I64, 0)), lt(b, row, count));
  return select(b, is_new, placed, kept);
}

} // namespace ops

namespace {
using namespace ops;

// [batch, length, heads * width] as [batch, heads, length, width].
ValueId heads_of(B& b, ValueId x, int64_t heads) {
  if (!b.ok()) return {};
  SymShape s = b.shape(x);
  if (heads < 1 || s.size() != 3)
    return b.fail(heads < 1 ? ErrorCode::BadAttribute : ErrorCode::ShapeMismatch,
                  "a tensor of " + std::to_string(heads) + " heads is " + str(s)),
           ValueId{};
  b.check(
      b.env().require(sym_eq(mod(s[2], heads), 0), GuardClass::Required, "heads divide the width", b.node().location));
  return transpose(b, reshape(b, x, {s[0], s[1], heads, head_width(b, floordiv(s[2], heads))}), {0, 2, 1, 3});
}

ValueId sum_of(B& b, ValueId x, ValueId y) { return !x.valid() ? y : !y.valid() ? x : add(b, x, y); }

void refuse(B& b, bool given, const char* what) {
  if (given) b.fail(ErrorCode::UnsupportedFeature, std::string(what) + " is not supported");
}

constexpr double kMasked = -10000; // ONNX Runtime's default of mask_filter_value

// ---- Attention and QAttention: what follows the projection [batch, length, widths of Q, K and V]
Result<std::vector<ValueId>> projected_attention(B& b, ValueId projected, int mask, int past, int bias, int results) {
  const int64_t heads = b.attr().i("num_heads");
  refuse(b, b.attr().i("past_present_share_buffer") != 0, "past_present_share_buffer");
  refuse(b, b.attr().i("do_rotary") != 0, "do_rotary");
  if (b.ok() && b.rank(projected) != 3)
    b.fail(ErrorCode::ShapeMismatch, "the input is [batch, length, width], not " + b.type(b.in(0)).str());
  if (!b.ok()) return b.failed();
  SymExpr width = b.dim(projected, 2), third = floordiv(width, 3);
  std::vector<SymExpr> widths = {third, third, third};
  if (Ints given = b.attr().ints("qkv_hidden_sizes"); given.size() == 3) {
    widths.assign(given.begin(), given.end());
  } else if (!given.empty()) {
    b.fail(ErrorCode::BadAttribute,
           "qkv_hidden_sizes holds the widths of Q, K and V, not " + std::to_string(given.size()) + " numbers");
    return b.failed();
  }
  b.check(b.env().require_equal(widths[0] + widths[1] + widths[2], width, "widths of Q, K and V", b.node().location));
  std::vector<ValueId> parts;
  SymExpr at = 0;
  for (const SymExpr& w : widths) {
    parts.push_back(heads_of(b, slice(b, projected, 2, at, w), heads));
    at += w;
  }
  AttentionTerms t{parts[0], parts[1], parts[2]};
  t.causal = b.attr().i("unidirectional") != 0;
  SymExpr batch = b.dim(projected, 0), queries = b.dim(projected, 1), keys = queries;
  if (b.has(past)) {
    SymShape s = b.shape(b.in(past));
    if (s.size() != 5) b.fail(ErrorCode::ShapeMismatch, "past is [2, batch, heads, length, width], not " + str(s));
    if (!b.ok()) return b.failed();
    t.past_key = squeeze(b, slice(b, b.in(past), 0, 0, 1), {0});
    t.past_value = squeeze(b, slice(b, b.in(past), 0, 1, 1), {0});
    keys += s[3];
  }
  if (b.has(mask)) t.bias = mask_bias(b, b.in(mask), batch, queries, keys, b.attr().f("mask_filter_value", kMasked));
  if (bias >= 0 && b.has(bias)) t.bias = sum_of(b, t.bias, cast(b, b.in(bias), DType::F32));
  auto out = attend(b, t, results > 1 ? 3 : 1);
  std::vector<ValueId> values = {merge_heads(b, out[0])};
  if (results > 1) values.push_back(concat(b, {unsqueeze(b, out[1], {0}), unsqueeze(b, out[2], {0})}, 0));
  return b.done(values);
}

std::vector<AttrDef> attention_attributes() {
  return {{"num_heads", AttrKind::Int, true},
          integer("unidirectional", 0),
          {"scale", AttrKind::Float},
          {"mask_filter_value", AttrKind::Float},
          integer("past_present_share_buffer", 0),
          integer("do_rotary", 0)};
}

std::vector<Sample> attention_samples() {
  const int64_t two = 2, one = 1;
  auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
  auto i = [](Dims d, std::initializer_list<int64_t> v) { return integers(DType::I32, std::move(d), v); };
  Tensor x = r({2, 3, 6}, 1), w = r({6, 24}, 2), bias = r({24}, 3), none, past = r({2, 2, 2, 2, 4}, 4);
  Attributes plain = {{"num_heads", two}}, causal = {{"num_heads", two}, {"unidirectional", one}};
  std::vector<Sample> out = {
      sample({x, w, bias}, plain),
      sample({x, w, bias, i({2, 3}, {1, 1, 0, 1, 1, 1})}, plain),
      sample({x, w, bias, i({2}, {2, 3})}, causal),
      sample({x, w, bias, i({4}, {2, 3, 0, 1})}, plain),
      sample({x, w, none, i({2, 3, 3}, {1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1})}, plain),
      sample({x, w, bias, none, past, r({1, 2, 3, 5}, 5)}, causal),
      sample({x, r({6, 20}, 2), r({20}, 3)},
             {{"num_heads", two}, {"qkv_hidden_sizes", Ints{8, 8, 4}}, {"scale", 0.25}}),
  };
  out[5].result_count = 2;
  return out;
}

void add_attention(OpTable& table) {
  OpDef def = microsoft("com.microsoft.Attention", "projections to Q, K and V, and attention over heads",
                        {{"input", TypeSet::Float},
                         {"weights", TypeSet::SameAsFirst},
                         {"bias", TypeSet::SameAsFirst, true},
                         {"mask_index", TypeSet::Index, true},
                         {"past", TypeSet::SameAsFirst, true},
                         {"attention_bias", TypeSet::Float, true},
                         {"past_sequence_length", TypeSet::Index, true}},
                        [](Graph& g, const Node& n, int results) {
                          B b(g, n);
                          ValueId projected = b.op("MatMul", {b.in(0), b.in(1)});
                          if (b.has(2)) projected = add(b, projected, b.in(2));
                          return projected_attention(b, projected, 3, 4, 5, results);
                        });
  def.attributes = attention_attributes();
  def.attributes.push_back({"qkv_hidden_sizes", AttrKind::Ints});
  def.attributes.push_back(integer("rotary_embedding_dim", 0));
  def.max_results = 2;
  def.samples = attention_samples;
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3, 6}), w = random(DType::F32, {6, 24});
    return std::vector<ErrorSample>{wrong({x, w}, {{"num_heads", int64_t{3}}}, ErrorCode::ShapeMismatch, "heads"),
                                    wrong({x, w}, {{"num_heads", int64_t{2}}, {"do_rotary", int64_t{1}}},
                                          ErrorCode::UnsupportedFeature, "do_rotary"),
                                    wrong({x, w}, {{"num_heads", int64_t{2}}, {"qkv_hidden_sizes", Ints{8, 16}}},
                                          ErrorCode::BadAttribute, "widths")};
  };
  table.add(std::move(def));

  OpDef quantized = microsoft("com.microsoft.QAttention", "attention over heads of quantised projections to Q, K and V",
                              {{"input", TypeSet::Integer},
                               {"weight", TypeSet::Integer},
                               {"bias", TypeSet::Float},
                               {"input_scale", TypeSet::Float},
                               {"weight_scale", TypeSet::Float},
                               {"mask_index", TypeSet::Index, true},
                               {"input_zero_point", TypeSet::Integer, true},
                               {"weight_zero_point", TypeSet::Integer, true},
                               {"past", TypeSet::Float, true}},
                              [](Graph& g, const Node& n, int results) {
                                B b(g, n);
                                ValueId projected =
                                    scaled_product(b, b.in(0), b.in(3), b.in(6), b.in(1), b.in(4), b.in(7));
                                return projected_attention(b, add(b, projected, b.in(2)), 5, 8, -1, results);
                              });
  quantized.attributes = attention_attributes();
  quantized.max_results = 2;
  quantized.samples = [] {
    Tensor x = random(DType::U8, {2, 3, 6}, 1, 0, 255), w = random(DType::I8, {6, 24}, 2, -128, 127), none;
    Tensor bias = random(DType::F32, {24}, 3), xs = scalar(DType::F32, 0.01), ws = scalar(DType::F32, 0.01);
    return std::vector<Sample>{
        sample({x, w, bias, xs, ws, integers(DType::I32, {2, 3}, {1, 1, 0, 1, 1, 1}), scalar(DType::U8, 128),
                scalar(DType::I8, 3)},
               {{"num_heads", int64_t{2}}}),
        sample({x, w, bias, xs, random(DType::F32, {24}, 4, 0.005, 0.02), none, scalar(DType::U8, 120)},
               {{"num_heads", int64_t{2}}, {"unidirectional", int64_t{1}}})};
  };
  table.add(std::move(quantized));
}

// ---- MultiHeadAttention: Q, K and V projected before
class MultiHead {
public:
  explicit MultiHead(B& b) : b_(b) {}

  Result<std::vector<ValueId>> build(int results) {
    heads_ = b_.attr().i("num_heads");
    refuse(b_, b_.has(9), "cache_indirection");
    if (heads_ < 1) b_.fail(ErrorCode::BadAttribute, "num_heads is " + std::to_string(heads_));
    if (!b_.ok()) return b_.failed();
    read_operands();
    if (!b_.ok()) return b_.failed();
    t_.causal = b_.attr().i("unidirectional") != 0;
    SymExpr batch = b_.dim(t_.q, 0), queries = b_.dim(t_.q, 2), keys = b_.dim(t_.k, 2);
    bool shared = b_.has(8) && b_.has(6);
    if (shared) {
      // Past and present are one buffer: the new rows stand behind the past ones in it.
      ValueId start = reshape(b_, cast(b_, b_.in(8), DType::I64), {1, 1, 1, 1});
      ValueId count = b_.size(keys, DType::I64);
      keys = b_.dim(b_.in(6), 2);
      t_.k = with_rows(b_, b_.in(6), t_.k, start, keys);
      t_.v = with_rows(b_, b_.in(7), t_.v, start, keys);
      t_.lengths = expand(b_, add(b_, reshape(b_, start, {1}), count), {batch});
    } else if (b_.has(6)) {
      t_.past_key = b_.in(6), t_.past_value = b_.in(7);
      keys += b_.dim(b_.in(6), 2);
    }
    if (b_.has(4)) t_.bias = mask_bias(b_, b_.in(4), batch, queries, keys, b_.attr().f("mask_filter_value", kMasked));
    if (b_.has(5)) t_.bias = sum_of(b_, t_.bias, cast(b_, b_.in(5), DType::F32));
    auto out = attend(b_, t_, std::max(results, 1));
    out[0] = merge_heads(b_, out[0]);
    return b_.done(out);
  }

private:
  // A third of the bias, [heads, 1, width], added to x of [batch, heads, length, width].
  ValueId biased(ValueId x, SymExpr& at) {
    if (!b_.has(3) || !b_.ok()) return x;
    SymExpr width = b_.dim(x, 3), all = width * heads_;
    ValueId part = reshape(b_, slice(b_, b_.in(3), 0, at, all), {heads_, 1, width});
    at += all;
    return add(b_, x, part);
  }
  // Entry `i` of dimension 3 of [batch, length, heads, n, width].
  ValueId packed(ValueId x, int64_t i) { return transpose(b_, squeeze(b_, slice(b_, x, 3, i, 1), {3}), {0, 2, 1, 3}); }

  void read_operands() {
    const int rank = b_.rank(b_.in(0)), key_rank = b_.has(1) ? b_.rank(b_.in(1)) : 0;
    bool known = true, own = true; // own: keys and values of this call, not of another layer's cache
    if (rank == 5) {
      t_.q = packed(b_.in(0), 0), t_.k = packed(b_.in(0), 1), t_.v = packed(b_.in(0), 2);
    } else if (rank == 3 && key_rank == 5) {
      t_.q = heads_of(b_, b_.in(0), heads_);
      t_.k = packed(b_.in(1), 0), t_.v = packed(b_.in(1), 1);
    } else if (rank == 3 && key_rank == 3 && b_.has(2)) {
      t_.q = heads_of(b_, b_.in(0), heads_), t_.k = heads_of(b_, b_.in(1), heads_),
      t_.v = heads_of(b_, b_.in(2), heads_);
    } else if (rank == 3 && key_rank == 4 && b_.has(2)) {
      t_.q = heads_of(b_, b_.in(0), heads_), t_.k = b_.in(1), t_.v = b_.in(2);
      own = false;
    } else {
      known = false;
    }
    if (!known)
      return b_.fail(ErrorCode::ShapeMismatch,
                     "Q, K and V of MultiHeadAttention are [batch, length, width], or packed [batch, length, heads, 3, "
                     "width], not " +
                         b_.type(b_.in(0)).str() + (b_.has(1) ? " and " + b_.type(b_.in(1)).str() : ""));
    SymExpr at = 0;
    t_.q = biased(t_.q, at);
    if (!own) return;
    t_.k = biased(t_.k, at);
    t_.v = biased(t_.v, at);
  }

  B& b_;
  int64_t heads_ = 0;
  AttentionTerms t_;
};

void add_multi_head(OpTable& table) {
  OpDef def = microsoft("com.microsoft.MultiHeadAttention", "attention over heads of projected Q, K and V, with cache",
                        {{"query", TypeSet::Float},
                         {"key", TypeSet::SameAsFirst, true},
                         {"value", TypeSet::SameAsFirst, true},
                         {"bias", TypeSet::SameAsFirst, true},
                         {"key_padding_mask", TypeSet::Index, true},
                         {"attention_bias", TypeSet::Float, true},
                         {"past_key", TypeSet::SameAsFirst, true},
                         {"past_value", TypeSet::SameAsFirst, true},
                         {"past_sequence_length", TypeSet::Index, true},
                         {"cache_indirection", TypeSet::Index, true}},
                        [](Graph& g, const Node& n, int results) {
                          B b(g, n);
                          return MultiHead(b).build(results);
                        });
  def.attributes = {{"num_heads", AttrKind::Int, true},
                    integer("unidirectional", 0),
                    {"scale", AttrKind::Float},
                    {"mask_filter_value", AttrKind::Float}};
  def.max_results = 4;
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
    Tensor q = r({2, 3, 8}, 1), k = r({2, 5, 8}, 2), v = r({2, 5, 6}, 3), bias = r({22}, 4), none;
    Attributes a = {{"num_heads", int64_t{2}}}, causal = {{"num_heads", int64_t{2}}, {"unidirectional", int64_t{1}}};
    std::vector<Sample> out = {
        sample({q, k, v, bias}, a),
        sample({q, k, v, none, integers(DType::I32, {2}, {3, 5})}, a),
        sample({q, k, v, bias, integers(DType::I32, {2, 5}, {1, 1, 1, 0, 0, 1, 1, 1, 1, 1}), r({1, 2, 3, 5}, 5)}, a),
        sample({r({2, 3, 2, 3, 4}, 1)}, causal),
        sample({q, r({2, 5, 2, 2, 4}, 2)}, a),
        sample({q, r({2, 2, 5, 4}, 2), r({2, 2, 5, 3}, 3)}, a),
        sample({q, r({2, 3, 8}, 2), r({2, 3, 6}, 3), none, none, none, r({2, 2, 4, 4}, 6), r({2, 2, 4, 3}, 7)}, causal),
        sample({q, r({2, 3, 8}, 2), r({2, 3, 6}, 3), none, none, none, r({2, 2, 9, 4}, 6), r({2, 2, 9, 3}, 7),
                integers(DType::I32, {1}, {4})},
               causal),
    };
    out[6].result_count = out[7].result_count = 3;
    return out;
  };
  def.error_samples = [] {
    Tensor q = random(DType::F32, {2, 3, 8});
    return std::vector<ErrorSample>{
        wrong({q, q}, {{"num_heads", int64_t{2}}}, ErrorCode::ShapeMismatch, "Q, K and V"),
        wrong({q, q, q}, {{"num_heads", int64_t{3}}}, ErrorCode::ShapeMismatch, "heads"),
        wrong({q, q, q}, {{"num_heads", int64_t{0}}}, ErrorCode::BadAttribute, "num_heads")};
  };
  table.add(std::move(def));
}

// ---- PackedMultiHeadAttention: the tokens of all sequences in a row, without padding
Result<std::vector<ValueId>> packed_attention(Graph& g, const Node& n, int) {
  B b(g, n);
  const int64_t heads = b.attr().i("num_heads");
  const bool joined = b.rank(b.in(0)) == 4;
  if (heads < 1) b.fail(ErrorCode::BadAttribute, "num_heads is " + std::to_string(heads));
  if (!joined && (b.rank(b.in(0)) != 2 || !b.has(1) || !b.has(2)))
    b.fail(ErrorCode::ShapeMismatch, "Q, K and V are [tokens, width] or packed [tokens, heads, 3, width]");
  if (b.rank(b.in(4)) != 2 || b.rank(b.in(5)) != 1)
    b.fail(ErrorCode::ShapeMismatch, "token_offset is [batch, length] and cumulative_sequence_length a vector");
  if (!b.ok()) return b.failed();
  SymExpr tokens = b.dim(b.in(0), 0), batch = b.dim(b.in(4), 0), length = b.dim(b.in(4), 1);
  ValueId ends = cast(b, b.in(5), DType::I64), starts = slice(b, ends, 0, 0, batch);
  ValueId lengths = sub(b, slice(b, ends, 0, 1, batch), starts);
  // The token that stands at each place of [batch, length]; behind a sequence's end it is any.
  ValueId token = add(b, reshape(b, starts, {batch, 1}), iota(b, {1, length}, 1));
  token = min(b, token, b.size(tokens - 1, DType::I64));
  SymExpr at = 0;
  auto padded = [&](int operand) {
    ValueId x = joined ? b.in(0) : b.in(operand);
    if (joined) {
      SymShape s = b.shape(x);
      x = reshape(b, slice(b, x, 2, operand, 1), {s[0], s[1] * s[3]});
    }
    SymExpr width = b.dim(x, 1);
    if (b.has(3)) x = add(b, x, slice(b, b.in(3), 0, at, width));
    at += width;
    return heads_of(b, gather(b, x, token, 0), heads);
  };
  AttentionTerms t;
  t.q = padded(0), t.k = padded(1), t.v = padded(2);
  t.lengths = lengths;
  if (b.has(6)) t.bias = cast(b, b.in(6), DType::F32);
  ValueId y = merge_heads(b, attend(b, t, 1)[0]);
  if (!b.ok()) return b.failed();
  // token_offset begins with the places of the tokens, in order.
  ValueId places = slice(b, reshape(b, b.in(4), {batch * length}), 0, 0, tokens);
  return b.done(gather(b, reshape(b, y, {batch * length, b.dim(y, 2)}), places, 0));
}

void add_packed(OpTable& table) {
  OpDef def = microsoft("com.microsoft.PackedMultiHeadAttention", "attention over heads of sequences without padding",
                        {{"query", TypeSet::Float},
                         {"key", TypeSet::SameAsFirst, true},
                         {"value", TypeSet::SameAsFirst, true},
                         {"bias", TypeSet::SameAsFirst, true},
                         {"token_offset", TypeSet::Index},
                         {"cumulative_sequence_length", TypeSet::Index},
                         {"attention_bias", TypeSet::Float, true}},
                        packed_attention);
  def.attributes = {
      {"num_heads", AttrKind::Int, true}, {"scale", AttrKind::Float}, {"mask_filter_value", AttrKind::Float}};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
    Tensor offsets = integers(DType::I32, {2, 4}, {0, 1, 4, 5, 6, 7, 2, 3}),
           ends = integers(DType::I32, {3}, {0, 2, 6}), none;
    Attributes a = {{"num_heads", int64_t{2}}};
    return std::vector<Sample>{sample({r({6, 8}, 1), r({6, 8}, 2), r({6, 6}, 3), r({22}, 4), offsets, ends}, a),
                               sample({r({6, 2, 3, 4}, 1), none, none, none, offsets, ends, r({1, 2, 4, 4}, 5)}, a)};
  };
  table.add(std::move(def));
}

// ---- RotaryEmbedding: positions are the second operand
void add_rotary(OpTable& table) {
  OpDef def =
      microsoft("com.microsoft.RotaryEmbedding", "pairs of components turned by an angle that grows with the position",
                {{"input", TypeSet::Float},
                 {"position_ids", TypeSet::Index},
                 {"cos_cache", TypeSet::SameAsFirst},
                 {"sin_cache", TypeSet::SameAsFirst}},
                formula([](B& b) -> ValueId {
                  ValueId x = b.in(0);
                  const int rank = b.rank(x);
                  refuse(b, b.attr().i("is_packed_batching") != 0, "is_packed_batching");
                  if (rank != 3 && rank != 4)
                    b.fail(ErrorCode::ShapeMismatch, "3 or 4 dimensions are needed, not " + b.type(x).str());
                  if (!b.ok()) return {};
                  SymExpr batch = b.dim(x, 0), length = b.dim(x, rank - 2);
                  if (rank == 3) length = b.dim(x, 1);
                  ValueId positions = b.in(1);
                  if (b.rank(positions) == 1) // of the first one
                    positions = add(b, expand(b, reshape(b, cast(b, positions, DType::I64), {1, 1}), {batch, length}),
                                    iota(b, {1, length}, 1));
                  ValueId y = b.op("RotaryEmbedding", {x, b.in(2), b.in(3), positions},
                                   {{"interleaved", b.attr().i("interleaved")},
                                    {"num_heads", b.attr().i("num_heads")},
                                    {"rotary_embedding_dim", b.attr().i("rotary_embedding_dim")}});
                  return b.attr().f("scale") == 1 ? y : mul(b, y, b.attr().f("scale"));
                }));
  def.attributes = {integer("interleaved", 0), integer("is_packed_batching", 0), integer("num_heads", 0),
                    integer("rotary_embedding_dim", 0), number("scale", 1)};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    Tensor c = r({10, 4}, 1), s = r({10, 4}, 2), positions = random(DType::I64, {2, 3}, 3, 0, 9);
    return std::vector<Sample>{
        sample({r({2, 3, 16}, 4), positions, c, s}),
        sample({r({2, 2, 3, 8}, 4), vec({5}), c, s}, {{"interleaved", int64_t{1}}}),
        sample({r({2, 3, 24}, 4), positions, c, s}, {{"num_heads", int64_t{2}}, {"rotary_embedding_dim", int64_t{8}}})};
  };
  table.add(std::move(def));
}

} // namespace

void register_microsoft_attention_ops(OpTable& table) {
  add_attention(table);
  add_multi_head(table);
  add_packed(table);
  add_rotary(table);
}

} // namespace tessera
