// Normalizations of ONNX Runtime, with what it fuses before them.
#include "graph/ops/microsoft.h"

namespace tessera {

namespace {
using namespace ops;

// ---- over the last dimension: layer norm, or without the mean ("simplified"): RMS norm
// Results: normalized, mean, 1 / standard deviation; the last two in f32 and the dimension kept.
std::vector<ValueId> normalized(B& b, ValueId x, ValueId gamma, ValueId beta, bool simplified, int64_t axis,
                                int count) {
  const double epsilon = b.attr().f("epsilon");
  Attributes attributes = {{"axis", axis}, {"epsilon", epsilon}};
  if (!simplified) {
    std::vector<ValueId> operands = {x, gamma};
    if (beta.valid()) operands.push_back(beta);
    return b.ops("LayerNormalization", operands, attributes, std::min(count, 3));
  }
  std::vector<ValueId> out = {b.op("RMSNormalization", {x, gamma}, attributes), {}, {}};
  if (count > 1) {
    const int rank = b.rank(x);
    Ints axes;
    for (int64_t a = b.axis(axis, rank); a < rank; ++a) axes.push_back(a);
    ValueId wide = widen(b, x);
    out[1] = mean(b, wide, axes, true);
    out[2] = rsqrt(b, add(b, mean(b, mul(b, wide, wide), axes, true), epsilon));
  }
  return out;
}

Result<std::vector<ValueId>> skip_norm(Graph& g, const Node& n, int results, bool simplified) {
  B b(g, n);
  const int beta = simplified ? -1 : 3, bias = simplified ? 3 : 4;
  ValueId x = add(b, b.in(0), b.in(1));
  if (b.has(bias)) x = add(b, x, b.in(bias));
  if (b.ok() && b.rank(x) != b.rank(b.in(0)))
    b.fail(ErrorCode::ShapeMismatch, "skip, " + b.type(b.in(1)).str() + ", has more dimensions than the input");
  auto out = normalized(b, x, b.in(2), beta < 0 ? ValueId{} : b.in(beta), simplified, -1, results > 3 ? 3 : results);
  out.resize(4);
  out[3] = x;
  out.resize(static_cast<size_t>(results));
  return b.done(out);
}

std::vector<Sample> skip_samples(bool simplified) {
  std::vector<Sample> out;
  auto with = [&](std::vector<Tensor> operands, int results) {
    out.push_back(sample(std::move(operands), {{"epsilon", 0.01}}));
    out.back().result_count = results;
  };
  for (DType d : {DType::F32, DType::F16}) {
    Tensor x = random(d, {2, 3, 8}, 1), skip = random(d, {2, 3, 8}, 2), v = random(d, {8}, 3);
    with({x, skip, v}, 1);
    with(simplified ? std::vector{x, skip, v, v} : std::vector{x, skip, v, v, v}, 4);
    with({x, random(d, {3, 8}, 4), v}, 1);
  }
  return out;
}

void add_layer_norms(OpTable& table) {
  const std::vector<OperandDef> plain = {
      {"input", TypeSet::Float}, {"skip", TypeSet::SameAsFirst}, {"gamma", TypeSet::SameAsFirst}};
  auto and_more = [&](std::initializer_list<OperandDef> more) {
    std::vector<OperandDef> out = plain;
    out.insert(out.end(), more);
    return out;
  };
  OpDef skip = microsoft("com.microsoft.SkipLayerNormalization", "layer norm of input + skip + bias",
                         and_more({{"beta", TypeSet::SameAsFirst, true}, {"bias", TypeSet::SameAsFirst, true}}),
                         [](Graph& g, const Node& n, int r) { return skip_norm(g, n, r, false); });
  OpDef rms = microsoft("com.microsoft.SkipSimplifiedLayerNormalization", "RMS norm of input + skip + bias",
                        and_more({{"bias", TypeSet::SameAsFirst, true}}),
                        [](Graph& g, const Node& n, int r) { return skip_norm(g, n, r, true); });
  skip.attributes = {number("epsilon", 1e-12)};
  rms.attributes = {number("epsilon", 1e-12)};
  skip.max_results = rms.max_results = 4;
  skip.samples = [] { return skip_samples(false); };
  rms.samples = [] { return skip_samples(true); };
  table.add(std::move(skip));
  table.add(std::move(rms));

  OpDef simple =
      microsoft("com.microsoft.SimplifiedLayerNormalization", "x divided by its root mean square, scaled",
                {{"X", TypeSet::Float}, {"scale", TypeSet::Float}}, [](Graph& g, const Node& n, int results) {
                  B b(g, n);
                  ValueId x = b.in(0);
                  auto out =
                      normalized(b, x, cast(b, b.in(1), b.dtype(x)), {}, true, b.attr().i("axis"), results > 1 ? 3 : 1);
                  if (results > 1) out = {out[0], out[2]};
                  out.resize(static_cast<size_t>(results));
                  return b.done(out);
                });
  // ONNX Runtime has it in the default domain, too.
  simple.onnx.push_back({"SimplifiedLayerNormalization"});
  simple.attributes = {integer("axis", -1), number("epsilon", 1e-5), integer("stash_type", 1)};
  simple.max_results = 2;
  simple.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16})
      for (int64_t axis : {-1, 1}) {
        Tensor x = random(d, {2, 3, 8}, 1);
        out.push_back(sample({x, axis == 1 ? random(d, {3, 8}, 2) : random(d, {8}, 2)}, {{"axis", axis}}));
        out.back().result_count = 2;
      }
    return out;
  };
  table.add(std::move(simple));
}

// ---- EmbedLayerNormalization: rows of three tables added and normalized; the mask's lengths
// `value`: operands 2 to 6, three tables, gamma and beta, as real numbers; `position_ids`: that operand, -1 for none.
Result<std::vector<ValueId>> embed(B& b, const std::function<ValueId(int)>& value, int position_ids, int results) {
  ValueId ids = b.in(0);
  if (b.rank(ids) != 2) b.fail(ErrorCode::ShapeMismatch, "input_ids are [batch, length], not " + b.type(ids).str());
  if (!b.ok()) return b.failed();
  SymShape shape = b.shape(ids);
  const bool placed = position_ids >= 0 && b.has(position_ids);
  ValueId position = placed ? gather(b, value(3), b.in(position_ids), 0) : slice(b, value(3), 0, 0, shape[1]);
  ValueId sum = add(b, gather(b, value(2), ids, 0), position);
  if (b.has(1) && b.has(4)) sum = add(b, sum, gather(b, value(4), b.in(1), 0));
  std::vector<ValueId> out = {normalized(b, sum, value(5), value(6), false, -1, 1)[0]};
  if (results > 1) {
    ValueId lengths = b.has(7) ? ops::sum(b, cast(b, eq(b, b.in(7), 1.0), DType::I32), {1}, false)
                               : expand(b, b.scalar_i(DType::I32, 0), {shape[0]});
    out.push_back(lengths);
  }
  if (results > 2) out.push_back(sum);
  return b.done(out);
}

OpDef embed_record() {
  OpDef def =
      microsoft("com.microsoft.EmbedLayerNormalization", "sum of word, position and segment embeddings, normalized",
                {{"input_ids", TypeSet::Index},
                 {"segment_ids", TypeSet::Index, true},
                 {"word_embedding", TypeSet::Float},
                 {"position_embedding", TypeSet::Float},
                 {"segment_embedding", TypeSet::Float, true},
                 {"gamma", TypeSet::Float},
                 {"beta", TypeSet::Float},
                 {"mask", TypeSet::Index, true},
                 {"position_ids", TypeSet::Index, true}},
                [](Graph& g, const Node& n, int results) {
                  B b(g, n);
                  return embed(
                      b, [&b](int i) { return b.in(i); }, 8, results);
                });
  def.attributes = {number("epsilon", 1e-12), integer("mask_index_type", 0)};
  def.max_results = 3;
  def.samples = [] {
    auto ids = [](uint64_t seed, double hi) { return random(DType::I32, {2, 3}, seed, 0, hi); };
    Tensor table = random(DType::F32, {5, 8}, 1), v = random(DType::F32, {8}, 2), none;
    std::vector<Sample> out = {
        sample({ids(1, 4), ids(2, 1), table, table, table, v, v, integers(DType::I32, {2, 3}, {1, 1, 0, 1, 1, 1})}),
        sample({ids(1, 4), none, table, table, none, v, v, none, ids(3, 4)})};
    for (Sample& s : out) s.result_count = 3;
    return out;
  };
  return def;
}

// The same on quantised tables, gamma and beta; their scales and zero points stand behind the mask.
OpDef quantised_embed_record() {
  std::vector<OperandDef> operands = {{"input_ids", TypeSet::Index}, {"segment_ids", TypeSet::Index, true}};
  constexpr std::string_view kValues[] = {"word_embedding_quant", "position_embedding_quant", "segment_embedding",
                                          "gamma_quant", "beta_quant"};
  constexpr std::string_view kScales[] = {"word_embedding_scale", "position_embedding_scale", "segment_embedding_scale",
                                          "gamma_scale", "beta_scale"};
  constexpr std::string_view kZeros[] = {"word_embedding_zero_point", "position_embedding_zero_point",
                                         "segment_embedding_zero_point", "gamma_zero_point", "beta_zero_point"};
  auto list = [&](std::span<const std::string_view> names, TypeSet types) {
    for (size_t i = 0; i < names.size(); ++i) operands.push_back({names[i], types, i == 2});
  };
  list(kValues, TypeSet::Integer);
  operands.push_back({"mask", TypeSet::Index, true});
  list(kScales, TypeSet::Float);
  list(kZeros, TypeSet::Integer);
  OpDef def = microsoft("com.microsoft.QEmbedLayerNormalization",
                        "sum of quantised word, position and segment embeddings, normalized", operands,
                        [](Graph& g, const Node& n, int results) {
                          B b(g, n);
                          return embed(
                              b, [&b](int i) { return dequantize(b, i, i + 6, i + 11); }, -1, results);
                        });
  def.attributes = {number("epsilon", 1e-12)};
  def.max_results = 2;
  def.samples = [] {
    auto ids = [](uint64_t seed, double hi) { return random(DType::I32, {2, 3}, seed, 0, hi); };
    Tensor table = random(DType::U8, {5, 8}, 1, 0, 255), v = random(DType::U8, {8}, 2, 0, 255), none;
    Tensor s = scalar(DType::F32, 0.01), z = scalar(DType::U8, 128);
    std::vector<Sample> out = {
        sample({ids(1, 4), ids(2, 1), table, table, table, v, v, integers(DType::I32, {2, 3}, {1, 1, 0, 1, 1, 1}), s, s,
                s, s, s, z, z, z, z, z})};
    out[0].result_count = 2;
    return out;
  };
  return def;
}

// ---- GroupNorm: channels last by default
Result<std::vector<ValueId>> group_norm(Graph& g, const Node& n, int results, bool skip) {
  B b(g, n);
  ValueId x = b.in(0);
  const int rank = b.rank(x);
  const bool last = b.attr().i("channels_last") != 0;
  if (rank < 3) b.fail(ErrorCode::ShapeMismatch, "images are needed, not " + b.type(x).str());
  if (!b.ok()) return b.failed();
  // Brings a tensor of one value per channel into a shape that broadcasts to x.
  auto per_channel = [&](ValueId v) {
    SymShape dims(static_cast<size_t>(rank), SymExpr(1));
    const int given = b.rank(v);
    if (given == rank) return v;
    dims[last ? static_cast<size_t>(rank - 1) : 1] = b.dim(v, given - 1);
    if (given == 2) dims[0] = b.dim(v, 0);
    return reshape(b, v, dims);
  };
  if (skip) x = add(b, x, per_channel(b.in(3)));
  if (skip && b.has(4)) x = add(b, x, per_channel(b.in(4)));
  Ints to_first = {0, rank - 1}, to_last = {0};
  for (int64_t a = 1; a < rank - 1; ++a) to_first.push_back(a);
  for (int64_t a = 2; a < rank; ++a) to_last.push_back(a);
  to_last.push_back(1);
  ValueId v = last ? transpose(b, x, to_first) : x;
  const DType dtype = b.dtype(v);
  ValueId y = b.op("GroupNormalization", {v, cast(b, b.in(1), dtype), cast(b, b.in(2), dtype)},
                   {{"num_groups", b.attr().i("groups")}, {"epsilon", b.attr().f("epsilon")}});
  if (b.attr().i("activation") == 1) y = mul(b, y, sigmoid(b, y));
  std::vector<ValueId> out = {last ? transpose(b, y, to_last) : y};
  if (results > 1) out.push_back(x);
  return b.done(out);
}

OpDef group_norm_record(bool skip) {
  std::vector<OperandDef> operands = {{"X", TypeSet::Float}, {"gamma", TypeSet::Float}, {"beta", TypeSet::Float}};
  if (skip) operands.insert(operands.end(), {{"skip", TypeSet::SameAsFirst}, {"bias", TypeSet::SameAsFirst, true}});
  OpDef def = microsoft(skip ? "com.microsoft.SkipGroupNorm" : "com.microsoft.GroupNorm",
                        skip ? "group norm of x + skip + bias, with SiLU" : "group norm, with SiLU", operands,
                        [skip](Graph& g, const Node& n, int r) { return group_norm(g, n, r, skip); });
  def.attributes = {{"activation", AttrKind::Int, true},
                    integer("channels_last", 1),
                    number("epsilon", 1e-5),
                    {"groups", AttrKind::Int, true}};
  def.max_results = skip ? 2 : 1;
  def.samples = [skip] {
    std::vector<Sample> out;
    for (int64_t last : {1, 0}) {
      const Dims dims = last ? Dims{2, 3, 5, 8} : Dims{2, 8, 3, 5};
      std::vector<Tensor> operands = {random(DType::F32, dims, 1), random(DType::F32, {8}, 2),
                                      random(DType::F32, {8}, 3)};
      if (skip) operands.insert(operands.end(), {random(DType::F32, {2, 8}, 4), random(DType::F32, {8}, 5)});
      out.push_back(sample(operands, {{"activation", last}, {"groups", int64_t{4}}, {"channels_last", last}}));
      out.back().result_count = skip ? 2 : 1;
    }
    return out;
  };
  return def;
}

} // namespace

void register_microsoft_norm_ops(OpTable& table) {
  add_layer_norms(table);
  table.add(embed_record());
  table.add(quantised_embed_record());
  for (bool skip : {false, true}) table.add(group_norm_record(skip));
}

} // namespace tessera
