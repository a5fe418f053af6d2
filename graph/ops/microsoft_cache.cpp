// GroupQueryAttention: causal attention with a cache of keys and values that grows call by call.
//
// The new rows of batch element b stand in the cache from row `start[b]` on: 0 for a prompt (as many queries as there are
// keys in all), seqlens_k[b] + 1 - queries afterwards. The cache handed on has max(past rows, total) rows, so that a
// buffer of the greatest length keeps its size; rows behind an element's keys mean nothing.
#include "graph/ops/microsoft.h"

namespace tessera {

namespace {
using namespace ops;

class GroupQuery {
public:
  explicit GroupQuery(B& b) : b_(b) {}

  Result<std::vector<ValueId>> build(int results) {
    refuse();
    read_operands();
    if (!b_.ok()) return b_.failed();
    const SymExpr batch = b_.dim(q_, 0), queries = b_.dim(q_, 2);
    std::vector<SymExpr> totals = b_.known(6);
    if (b_.ok() && totals.size() != 1)
      b_.fail(ErrorCode::ShapeMismatch, "total_sequence_length must be one number, not " + b_.type(b_.in(6)).str());
    if (!b_.ok()) return b_.failed();
    const SymExpr total = totals[0];
    b_.check_size(total, "total_sequence_length");
    const bool own_keys = !b_.has(3) || !b_.has(4); // there is no cache: every call is a prompt
    if (own_keys)
      b_.check(b_.env().require(sym_eq(total, queries), GuardClass::Required,
                                "without past_key and past_value, total_sequence_length is the number of queries",
                                b_.node().location));
    const bool prompt =
        own_keys || b_.decide(sym_eq(total, queries), false, "the keys are those of this call: a prompt");
    ValueId lengths = add(b_, reshape(b_, cast(b_, b_.in(5), DType::I64), {batch}), b_.scalar_i(DType::I64, 1));
    ValueId start = prompt ? b_.scalar_i(DType::I64, 0)
                           : reshape(b_, sub(b_, lengths, b_.size(queries, DType::I64)), {batch, 1, 1, 1});
    normalize();
    if (b_.attr().i("do_rotary") != 0) rotate(start, prompt, batch, queries);
    if (!b_.ok()) return b_.failed();

    ValueId keys = k_, values = v_;
    SymExpr past = own_keys ? SymExpr(0) : b_.dim(b_.in(3), 2);
    const bool no_past = past.is_const(0) || (prompt && b_.decide(sym_eq(past, 0), true, "the cache is empty"));
    if (!no_past || !prompt) {
      SymExpr rows = b_.env().simplify(sym_max(past, total));
      keys = with_rows(b_, b_.in(3), k_, start, rows);
      values = with_rows(b_, b_.in(4), v_, start, rows);
    }
    AttentionTerms t{q_, keys, values};
    t.causal = b_.attr().i("causal") != 0;
    if (prompt && !no_past) t.k = k_, t.v = v_; // the rest of the buffer is not visible
    if (!prompt) t.k = first_rows(keys, total), t.v = first_rows(values, total);
    if (!prompt || !t.causal) t.lengths = lengths; // in a prompt, what pads it stands behind every query
    const int64_t window = b_.attr().i("local_window_size");
    if (window > 0) t.left_window = window - 1;
    t.softcap = b_.attr().f("softcap");
    if (b_.has(10)) t.bias = cast(b_, b_.in(10), DType::F32);
    const int64_t shown = b_.attr().i("qk_output");
    t.scores = shown == 1 ? 2 : 3;
    if (results > 3 && shown != 1 && shown != 2)
      b_.fail(ErrorCode::BadAttribute, "qk_output is " + std::to_string(shown) + ", and output_qk is wanted");
    const bool sink = b_.has(11) || b_.attr().i("smooth_softmax") > 0;
    if (sink && results > 3) b_.fail(ErrorCode::UnsupportedFeature, "output_qk of a smooth softmax is not supported");
    if (sink) t.scores = 2;
    auto out = attend(b_, t, sink || results > 3 ? 4 : 1);
    if (sink) out[0] = cast(b_, mul(b_, widen(b_, out[0]), share(out[3])), b_.dtype(q_));
    out.resize(4);
    out[0] = merge_heads(b_, out[0]);
    out[1] = keys, out[2] = values;
    out.resize(static_cast<size_t>(results));
    return b_.done(out);
  }

private:
  void refuse() {
    const auto& a = b_.attr();
    for (const char* quantized : {"k_quant_type", "v_quant_type"})
      if (a.s(quantized, "NONE") != "NONE")
        b_.fail(ErrorCode::UnsupportedFeature, "a quantised cache (" + std::string(quantized) + ") is not supported");
    auto no = [&](bool given, const char* what) {
      if (given) b_.fail(ErrorCode::UnsupportedFeature, std::string(what) + " is not supported");
    };
    no(a.i("sliding_window_cache") != 0, "sliding_window_cache");
    no(b_.has(16), "query_seqlens");
  }

  // [batch, length, heads * width] as [batch, heads, length, width].
  ValueId split(ValueId x, int64_t heads) {
    if (!b_.ok()) return {};
    SymShape s = b_.shape(x);
    b_.check(b_.env().require(sym_eq(mod(s[2], heads), 0), GuardClass::Required, "heads divide the width",
                              b_.node().location));
    return transpose(b_, reshape(b_, x, {s[0], s[1], heads, head_width(b_, floordiv(s[2], heads))}), {0, 2, 1, 3});
  }

  void read_operands() {
    const int64_t heads = b_.attr().i("num_heads"), kv_heads = b_.attr().i("kv_num_heads");
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
      b_.fail(ErrorCode::BadAttribute,
              std::to_string(heads) + " heads of Q share " + std::to_string(kv_heads) + " of K");
    if (b_.rank(b_.in(0)) != 3)
      b_.fail(ErrorCode::ShapeMismatch, "the query is [batch, length, width], not " + b_.type(b_.in(0)).str());
    if (!b_.ok()) return;
    if (b_.has(1) && b_.has(2)) {
      q_ = split(b_.in(0), heads), k_ = split(b_.in(1), kv_heads), v_ = split(b_.in(2), kv_heads);
      return;
    }
    SymExpr width = floordiv(b_.dim(b_.in(0), 2), heads + 2 * kv_heads); // of one head
    q_ = split(slice(b_, b_.in(0), 2, 0, width * heads), heads);
    k_ = split(slice(b_, b_.in(0), 2, width * heads, width * kv_heads), kv_heads);
    v_ = split(slice(b_, b_.in(0), 2, width * (heads + kv_heads), width * kv_heads), kv_heads);
  }

  // The RMS norm of each head of Q and K that some models have.
  void normalize() {
    if (!b_.has(14) || !b_.has(15)) return;
    const double both = b_.attr().f("qk_norm_epsilon");
    q_ = b_.op("RMSNormalization", {q_, b_.in(14)}, {{"epsilon", b_.attr().f("q_norm_epsilon", both)}});
    k_ = b_.op("RMSNormalization", {k_, b_.in(15)}, {{"epsilon", b_.attr().f("k_norm_epsilon", both)}});
  }

  void rotate(ValueId start, bool prompt, const SymExpr& batch, const SymExpr& queries) {
    if (!b_.has(7) || !b_.has(8)) b_.fail(ErrorCode::MalformedModel, "do_rotary needs cos_cache and sin_cache");
    if (!b_.ok()) return;
    ValueId positions;
    if (b_.has(9)) {
      positions = b_.in(9);
    } else {
      ValueId first = prompt ? start : reshape(b_, start, {batch, 1});
      positions = expand(b_, add(b_, first, iota(b_, {1, queries}, 1)), {batch, queries});
      // An element that is shorter than its chunk has rows before its first one; they mean nothing.
      positions = max(b_, positions, b_.scalar_i(DType::I64, 0));
    }
    auto half = b_.dim(b_.in(7), 1).as_const();
    if (!half) b_.fail(ErrorCode::UnsupportedFeature, "the width of cos_cache is not known when compiling");
    if (!b_.ok()) return;
    Attributes a = {{"interleaved", b_.attr().i("rotary_interleaved")}, {"rotary_embedding_dim", 2 * *half}};
    q_ = b_.op("RotaryEmbedding", {q_, b_.in(7), b_.in(8), positions}, a);
    k_ = b_.op("RotaryEmbedding", {k_, b_.in(7), b_.in(8), positions}, a);
  }

  // A smooth softmax has one key more, which has the score head_sink (0 where there is none) and no value. What is left
  // for the others, of scores [batch, heads, queries, keys]: sum e^s / (sum e^s + e^sink).
  ValueId share(ValueId scores) {
    ValueId wide = widen(b_, scores);
    ValueId high = max(b_, reduce(b_, "reduce_max", wide, {3}, true), -1e30); // a row may be hidden altogether
    ValueId all = add(b_, log(b_, ops::sum(b_, exp(b_, sub(b_, wide, high)), {3}, true)), high);
    if (!b_.has(11)) return sigmoid(b_, all);
    return sigmoid(b_, sub(b_, all, reshape(b_, widen(b_, b_.in(11)), {1, b_.dim(q_, 1), 1, 1})));
  }

  ValueId first_rows(ValueId x, const SymExpr& rows) {
    return b_.ok() && !b_.env().known_equal(b_.dim(x, 2), rows) ? slice(b_, x, 2, 0, rows) : x;
  }

  B& b_;
  ValueId q_, k_, v_;
};

} // namespace

void register_microsoft_cache_ops(OpTable& table) {
  OpDef def =
      microsoft("com.microsoft.GroupQueryAttention", "causal attention of grouped heads with a cache and rotation",
                {{"query", TypeSet::Float},
                 {"key", TypeSet::SameAsFirst, true},
                 {"value", TypeSet::SameAsFirst, true},
                 {"past_key", TypeSet::Numeric, true},
                 {"past_value", TypeSet::Numeric, true},
                 {"seqlens_k", TypeSet::Index},
                 {"total_sequence_length", TypeSet::Index},
                 {"cos_cache", TypeSet::SameAsFirst, true},
                 {"sin_cache", TypeSet::SameAsFirst, true},
                 {"position_ids", TypeSet::Index, true},
                 {"attention_bias", TypeSet::Float, true},
                 {"head_sink", TypeSet::Float, true},
                 {"k_scale", TypeSet::Float, true},
                 {"v_scale", TypeSet::Float, true},
                 {"q_norm_weight", TypeSet::SameAsFirst, true},
                 {"k_norm_weight", TypeSet::SameAsFirst, true},
                 {"query_seqlens", TypeSet::Index, true}},
                [](Graph& g, const Node& n, int results) {
                  B b(g, n);
                  return GroupQuery(b).build(results);
                });
  def.attributes = {{"num_heads", AttrKind::Int, true},
                    {"kv_num_heads", AttrKind::Int, true},
                    {"scale", AttrKind::Float},
                    number("softcap", 0),
                    integer("causal", 1),
                    integer("do_rotary", 0),
                    integer("kv_cache_bit_width", 0),
                    integer("local_window_size", -1),
                    integer("qk_output", 0),
                    integer("rotary_interleaved", 0),
                    integer("sliding_window_cache", 0),
                    integer("smooth_softmax", 0),
                    number("qk_norm_epsilon", 1e-6),
                    {"q_norm_epsilon", AttrKind::Float},
                    {"k_norm_epsilon", AttrKind::Float},
                    {"k_quant_type", AttrKind::String},
                    {"v_quant_type", AttrKind::String}};
  def.max_results = 4;
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
    auto i = [](Dims d, std::initializer_list<int64_t> v) { return integers(DType::I32, std::move(d), v); };
    Tensor q = r({2, 3, 16}, 1), k = r({2, 3, 8}, 2), v = r({2, 3, 8}, 3), c = r({12, 2}, 4), s = r({12, 2}, 5), none;
    Tensor past = r({2, 2, 4, 4}, 6), other = r({2, 2, 4, 4}, 7), buffer = r({2, 2, 10, 4}, 8);
    auto a = [](std::initializer_list<std::pair<std::string, Attribute>> more) {
      Attributes out = {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}};
      for (const auto& [name, value] : more) out.set(name, value);
      return out;
    };
    std::vector<Sample> out = {
        sample({q, k, v, none, none, i({2}, {2, 2}), i({1}, {3})}, a({})),
        sample({q, k, v, past, other, i({2}, {6, 6}), i({1}, {7}), c, s}, a({{"do_rotary", int64_t{1}}})),
        sample({q, k, v, buffer, buffer, i({2}, {2, 2}), i({}, {3}), c, s},
               a({{"do_rotary", int64_t{1}}, {"rotary_interleaved", int64_t{1}}})),
        sample({q, k, v, buffer, buffer, i({2}, {6, 5}), i({1}, {7})}, a({{"local_window_size", int64_t{3}}})),
        sample({r({2, 1, 32}, 9), none, none, past, other, i({2}, {4, 4}), i({1}, {5})}, a({{"softcap", 2.0}})),
        sample({q, k, v, none, none, i({2}, {2, 2}), i({1}, {3}), none, none, none, none, r({4}, 9)}, a({})),
    };
    for (Sample& sample : out) sample.result_count = 3;
    return out;
  };
  def.error_samples = [] {
    Tensor q = random(DType::F32, {2, 3, 16}), one = integers(DType::I32, {1}, {3}),
           n = integers(DType::I32, {2}, {2, 2});
    Attributes a = {{"num_heads", int64_t{4}}, {"kv_num_heads", int64_t{3}}};
    return std::vector<ErrorSample>{wrong({q, q, q, Tensor(), Tensor(), n, one}, a, ErrorCode::BadAttribute, "share")};
  };
  table.add(std::move(def));
}

} // namespace tessera
