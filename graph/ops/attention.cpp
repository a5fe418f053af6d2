// Attention, by decomposition: scaled scores, masks, softmax in f32 (f64 on request), and the weighted sum of values.
//
// Grouped queries cost nothing: the heads that share a key head become rows of one product,
//   Q [b, h*g, s, d] is read as [b, h, g*s, d], which times K^T [b, h, d, t] is [b, h, g*s, t], read as [b, h*g, s, t].
#include "graph/ops/heads.h"
#include "graph/ops/parts.h"
#include <cmath>
#include <limits>

namespace tessera {

namespace {
using namespace ops;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// [b, s, h*d] as [b, h, s, d].
ValueId split_heads(B& b, ValueId x, int64_t heads, const char* what) {
  if (!b.ok()) return {};
  if (heads < 1)
    return b.fail(ErrorCode::BadAttribute,
                  std::string("the number of heads of ") + what + " is " + std::to_string(heads)),
           ValueId{};
  SymShape s = b.shape(x);
  b.check(b.env().require(sym_eq(mod(s[2], heads), 0), GuardClass::Required,
                          std::string("heads divide the width of ") + what, b.node().location));
  return transpose(b, reshape(b, x, {s[0], s[1], heads, floordiv(s[2], heads)}), {0, 2, 1, 3});
}

class AttentionBuilder {
public:
  explicit AttentionBuilder(B& b) : b_(b) {}

  Result<std::vector<ValueId>> build(int result_count) {
    if (!read_operands()) return b_.done(ValueId{});
    ValueId raw = scores();
    ValueId capped = soft_cap(raw);
    ValueId biased = mask(capped);
    ValueId weights = softmax(biased);
    DType dtype = b_.dtype(q_);
    ValueId y = matmul(b_, cast(b_, weights, dtype), cast(b_, v_, dtype));
    y = ungroup(y, b_.dim(v_, 3));
    if (flat_) {
      SymShape s = b_.shape(y);
      if (b_.ok()) y = reshape(b_, transpose(b_, y, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
    }
    std::vector<ValueId> results = {y};
    if (result_count > 1) results.push_back(k_);
    if (result_count > 2) results.push_back(v_);
    if (result_count > 3) {
      int64_t mode = b_.attr().i("qk_matmul_output_mode");
      if (mode < 0 || mode > 3)
        b_.fail(ErrorCode::BadAttribute, "attribute 'qk_matmul_output_mode' is " + std::to_string(mode));
      ValueId shown = mode == 0 ? raw : mode == 1 ? capped : mode == 2 ? full(biased) : full(weights);
      results.push_back(cast(b_, mode < 2 ? ungroup(shown, b_.dim(k_, 2)) : shown, dtype));
    }
    return b_.done(std::move(results));
  }

private:
  bool read_operands() {
    q_ = b_.in(0), k_ = b_.in(1), v_ = b_.in(2);
    int rank = b_.rank(q_);
    if (rank != b_.rank(k_) || rank != b_.rank(v_) || (rank != 3 && rank != 4))
      b_.fail(ErrorCode::ShapeMismatch, "Attention takes Q, K and V of rank 3 or 4, not " + str(b_.shape(q_)) + ", " +
                                            str(b_.shape(k_)) + " and " + str(b_.shape(v_)));
    if (b_.has(4) != b_.has(5))
      b_.fail(ErrorCode::MalformedModel, "past_key and past_value of Attention come together");
    if (b_.has(6) && b_.has(4)) b_.fail(ErrorCode::MalformedModel, "nonpad_kv_seqlen of Attention excludes a past");
    flat_ = rank == 3;
    if (flat_) {
      int64_t kv_heads = b_.attr().i("kv_num_heads");
      q_ = split_heads(b_, q_, b_.attr().i("q_num_heads"), "Q");
      k_ = split_heads(b_, k_, kv_heads, "K");
      v_ = split_heads(b_, v_, kv_heads, "V");
    }
    if (b_.has(4)) {
      offset_ = b_.dim(b_.in(4), 2);
      k_ = concat(b_, {b_.in(4), k_}, 2);
      v_ = concat(b_, {b_.in(5), v_}, 2);
    }
    if (!b_.ok()) return false;
    SymExpr heads = b_.dim(q_, 1), kv_heads = b_.dim(k_, 1);
    b_.check(b_.env().require_equal(b_.dim(v_, 1), kv_heads, "heads of K and V", b_.node().location));
    group_ = heads_per_key(b_, heads, kv_heads);
    return b_.ok();
  }

  // [b, h, g*s, x] as [b, h*g, s, x].
  ValueId ungroup(ValueId x, const SymExpr& last) {
    if (!b_.ok() || group_.is_const(1)) return x;
    return reshape(b_, x, {b_.dim(q_, 0), b_.dim(q_, 1), b_.dim(q_, 2), last});
  }
  ValueId full(ValueId grouped) { return ungroup(grouped, b_.dim(k_, 2)); }
  ValueId regroup(ValueId x) {
    if (!b_.ok() || group_.is_const(1)) return x;
    SymShape s = b_.shape(x);
    return reshape(b_, x, {s[0], floordiv(s[1], group_), s[2] * group_, s[3]});
  }

  // In the precision in which products accumulate: rounded to 16 bits, large scores would be off by much of their
  // exponential.
  ValueId scores() {
    const DType wide = compute_dtype(b_.dtype(q_));
    const ValueId s = wide_matmul(b_, regroup(q_), transpose(b_, k_, {0, 1, 3, 2}));
    if (b_.attr().has("scale")) return mul(b_, s, b_.attr().f("scale"));
    const SymExpr width = b_.dim(q_, 3);
    if (auto d = width.as_const()) return mul(b_, s, *d > 0 ? 1 / std::sqrt(static_cast<double>(*d)) : 1.0);
    return mul(b_, s, rsqrt(b_, b_.size(width, wide)));
  }

  ValueId soft_cap(ValueId s) {
    double cap = b_.attr().f("softcap");
    return cap > 0 ? mul(b_, tanh(b_, div(b_, s, cap)), cap) : s;
  }

  // The scores in the precision of the softmax, with everything added that masks them.
  ValueId mask(ValueId s) {
    DType wide = compute_dtype(b_.dtype(s));
    auto precision = dtype_attribute(b_.node(), "softmax_precision", wide);
    if (!precision.ok()) return b_.fail(std::move(precision).take_error()), ValueId{};
    if (*precision == DType::F64) wide = DType::F64;
    s = full(cast(b_, s, wide));
    SymExpr queries = b_.dim(q_, 2), keys = b_.dim(k_, 2);
    if (b_.has(3)) s = add(b_, s, bias(wide, keys));
    bool causal = b_.attr().i("is_causal") != 0;
    int64_t left = b_.attr().i("left_window_size", -1), right = b_.attr().i("right_window_size", -1);
    if (left < -1 || right < -1) b_.fail(ErrorCode::BadAttribute, "a window of Attention is smaller than -1");
    ValueId allowed;
    auto allow = [&](ValueId more) { allowed = allowed.valid() ? logical_and(b_, allowed, more) : more; };
    ValueId key = iota(b_, {1, 1, 1, keys}, 3);
    ValueId lengths; // of each batch element's keys
    if (b_.has(6) && b_.ok()) lengths = reshape(b_, cast(b_, b_.in(6), DType::I64), {b_.dim(q_, 0), 1, 1, 1});
    if (causal || left >= 0 || right >= 0) {
      // The last query stands at the last key: past keys come before the first one.
      ValueId query = iota(b_, {1, 1, queries, 1}, 2);
      if (lengths.valid())
        query = add(b_, query, sub(b_, lengths, b_.size(queries, DType::I64)));
      else if (!offset_.is_const(0))
        query = add(b_, query, b_.size(offset_, DType::I64));
      if (causal) allow(le(b_, key, query));
      if (left >= 0) allow(ge(b_, key, sub(b_, query, b_.scalar_i(DType::I64, left))));
      if (right >= 0) allow(le(b_, key, add(b_, query, b_.scalar_i(DType::I64, right))));
    }
    if (lengths.valid()) allow(lt(b_, key, lengths));
    // Causal alone leaves every query the first key.
    rows_may_be_empty_ = b_.has(3) || lengths.valid() || left >= 0 || right >= 0;
    if (allowed.valid()) s = select(b_, allowed, s, -kInfinity);
    return s;
  }

  // The mask operand as what is added to scores. One that ends before the last key hides the keys after it.
  ValueId bias(DType wide, const SymExpr& keys) {
    ValueId m = b_.in(3);
    int rank = b_.rank(m);
    if (!b_.ok()) return {};
    if (rank < 1 || rank > 4)
      return b_.fail(ErrorCode::ShapeMismatch, "the mask of Attention is " + str(b_.shape(m))), ValueId{};
    if (b_.dtype(m) == DType::Bool)
      m = select(b_, m, b_.scalar(wide, 0), -kInfinity);
    else
      m = cast(b_, m, wide);
    SymExpr given = b_.dim(m, rank - 1);
    auto shorter = b_.env().prove(sym_lt(given, keys));
    if (shorter && *shorter) {
      SymShape begin(static_cast<size_t>(rank), SymExpr(0)), end = begin;
      end.back() = keys - given;
      m = pad(b_, m, begin, end, b_.scalar(wide, -kInfinity));
    }
    return m;
  }

  // A row that hides every key yields zeros, not 0 / 0.
  ValueId softmax(ValueId s) {
    int64_t last = 3;
    ValueId high = reduce(b_, "reduce_max", s, {last}, true);
    if (rows_may_be_empty_) high = select(b_, eq(b_, high, -kInfinity), 0.0, high);
    ValueId e = exp(b_, sub(b_, s, high));
    ValueId sum = ops::sum(b_, e, {last}, true);
    if (rows_may_be_empty_) sum = select(b_, eq(b_, sum, 0.0), 1.0, sum);
    weights_ = div(b_, e, sum);
    return regroup(weights_);
  }

  B& b_;
  ValueId q_, k_, v_, weights_;
  bool flat_ = false, rows_may_be_empty_ = false;
  SymExpr group_ = 1; // heads of Q that share one of K
  SymExpr offset_ = 0;
};

std::vector<Sample> attention_samples() {
  auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
  Tensor q = r({2, 4, 3, 8}, 1), k = r({2, 4, 5, 8}, 2), v = r({2, 4, 5, 6}, 3), none;
  Tensor k2 = r({2, 2, 5, 8}, 4), v2 = r({2, 2, 5, 6}, 5);
  int64_t one = 1;
  std::vector<Sample> out = {
      sample({q, k, v}),
      sample({q, k, v}, {{"is_causal", one}, {"scale", 0.25}}),
      sample({q, k2, v2}, {{"softcap", 2.0}}),
      sample({q, k, v, r({3, 5}, 6)}),
      sample({q, k, v, random(DType::Bool, {2, 1, 3, 5}, 7)}),
      sample({q, k, v, r({3, 4}, 6)}),
      sample({q, k, v, none, r({2, 4, 2, 8}, 8), r({2, 4, 2, 6}, 9)}, {{"is_causal", one}}),
      sample({q, k, v, none, none, none, vec({5, 3})}, {{"is_causal", one}}),
      sample({r({2, 3, 32}, 1), r({2, 5, 16}, 2), r({2, 5, 12}, 3)},
             {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}}),
      sample({q, k, v}, {{"left_window_size", one}, {"right_window_size", one}}),
  };
  for (int64_t mode = 0; mode < 4; ++mode) {
    out.push_back(sample({q, k2, v2, r({3, 5}, 6)}, {{"softcap", 2.0}, {"qk_matmul_output_mode", mode}}));
    out.back().result_count = 4;
  }
  return out;
}

OpDef attention_record() {
  OpDef def;
  def.name = "Attention";
  def.summary = "softmax(Q K^T * scale + mask) V over heads, with key-value cache";
  def.onnx = {{"Attention", "", 23}};
  def.operands = {{"Q", TypeSet::Float},
                  {"K", TypeSet::SameAsFirst},
                  {"V", TypeSet::Float},
                  {"attn_mask", TypeSet::NumericOrBool, true},
                  {"past_key", TypeSet::SameAsFirst, true},
                  {"past_value", TypeSet::Float, true},
                  {"nonpad_kv_seqlen", TypeSet::Index, true}};
  def.attributes = {{"is_causal", AttrKind::Int, false, int64_t{0}},
                    {"kv_num_heads", AttrKind::Int},
                    {"left_window_size", AttrKind::Int, false, int64_t{-1}},
                    {"q_num_heads", AttrKind::Int},
                    {"qk_matmul_output_mode", AttrKind::Int, false, int64_t{0}},
                    {"right_window_size", AttrKind::Int, false, int64_t{-1}},
                    {"scale", AttrKind::Float},
                    {"softcap", AttrKind::Float, false, 0.0},
                    {"softmax_precision", AttrKind::Int}};
  def.max_results = 4;
  def.meaning = Decomposition{[](Graph& g, const Node& n, int result_count) {
    B b(g, n);
    return AttentionBuilder(b).build(result_count);
  }};
  def.samples = attention_samples;
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    Tensor q = r({2, 4, 3, 8}), k = r({2, 4, 5, 8}), none;
    return std::vector<ErrorSample>{
        wrong({q, r({2, 3, 5, 8}), r({2, 3, 5, 8})}, {}, ErrorCode::ShapeMismatch, "heads"),
        wrong({q, k, r({2, 5, 8})}, {}, ErrorCode::ShapeMismatch, "rank"),
        wrong({q, k, k, none, k}, {}, ErrorCode::MalformedModel, "come together"),
        wrong({r({2, 3, 32}), r({2, 5, 32}), r({2, 5, 32})}, {}, ErrorCode::BadAttribute, "heads"),
    };
  };
  return def;
}

} // namespace

void register_attention_ops(OpTable& table) { table.add(attention_record()); }

} // namespace tessera
