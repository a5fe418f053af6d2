// Mixtures of experts: MoE, QMoE. Every expert computes every token, as one batch of products, and the router's weights,
// 0 for all but the k best experts of a token, add their results.
#include "graph/ops/microsoft.h"

namespace tessera {

namespace {
using namespace ops;

// Weights, bias of one layer of all experts; weights are [experts, out, in].
struct Layer {
  ValueId weight, bias;
};

class Mixture {
public:
  explicit Mixture(B& b) : b_(b) {}

  // The router's weight of each expert for each token, [experts, tokens, 1].
  ValueId routing(ValueId logits, ValueId chosen_weights, bool normalized) {
    ValueId wide = widen(b_, logits);
    if (b_.rank(wide) != 2)
      b_.fail(ErrorCode::ShapeMismatch, "router_probs are [tokens, experts], not " + b_.type(logits).str());
    if (!b_.ok()) return {};
    const int64_t k = b_.attr().i("k");
    SymExpr tokens = b_.dim(wide, 0), experts = b_.dim(wide, 1);
    ValueId e = exp(b_, sub(b_, wide, reduce(b_, "reduce_max", wide, {1}, true)));
    ValueId p = div(b_, e, ops::sum(b_, e, {1}, true));
    auto best = b_.ops("topk", {wide, b_.ints({k})}, {{"axis", int64_t{1}}}, 2);
    // [tokens, k, experts]: whether the choice is that expert.
    ValueId choice = eq(b_, unsqueeze(b_, best[1], {2}), iota(b_, {1, 1, experts}, 2));
    ValueId is_chosen = reduce(b_, "reduce_max", cast(b_, choice, DType::F32), {1}, false);
    ValueId weight = mul(b_, is_chosen, chosen_weights.valid() ? widen(b_, chosen_weights) : p);
    if (normalized) weight = div(b_, weight, ops::sum(b_, weight, {1}, true));
    return reshape(b_, transpose(b_, weight, {1, 0}), {experts, tokens, 1});
  }

  Result<std::vector<ValueId>> build(ValueId logits, ValueId chosen_weights, const Layer& fc1, const Layer& fc2,
                                     const Layer& fc3, bool normalized) {
    if (b_.attr().i("use_sparse_mixer") != 0)
      b_.fail(ErrorCode::UnsupportedFeature, "use_sparse_mixer is not supported");
    ValueId x = b_.in(0);
    if (!b_.ok()) return b_.failed();
    SymShape shape = b_.shape(x);
    if (shape.size() != 2 && shape.size() != 3)
      b_.fail(ErrorCode::ShapeMismatch,
              "the input is [tokens, width] or [batch, length, width], not " + b_.type(x).str());
    if (!b_.ok()) return b_.failed();
    SymExpr tokens = shape.size() == 2 ? shape[0] : shape[0] * shape[1];
    ValueId v = reshape(b_, x, {1, tokens, shape.back()});
    ValueId hidden = activated(layer(v, fc1), fc3.weight.valid() ? layer(v, fc3) : ValueId{});
    ValueId weighted = mul(b_, widen(b_, layer(hidden, fc2)), routing(logits, chosen_weights, normalized));
    ValueId y = ops::sum(b_, weighted, {0}, false);
    return b_.done(cast(b_, reshape(b_, y, shape), b_.dtype(x)));
  }

private:
  ValueId layer(ValueId x, const Layer& l) {
    ValueId y = matmul(b_, x, transpose(b_, cast(b_, l.weight, b_.dtype(x)), {0, 2, 1}));
    return l.bias.valid() ? add(b_, y, unsqueeze(b_, l.bias, {1})) : y;
  }

  // Halves of the last dimension: gate and linear part, interleaved or one behind the other.
  std::pair<ValueId, ValueId> halves(ValueId x, bool interleaved) {
    SymExpr half = floordiv(b_.dim(x, 2), 2);
    if (interleaved) return {slice(b_, x, 2, 0, half, 2), slice(b_, x, 2, 1, half, 2)};
    return {slice(b_, x, 2, 0, half), slice(b_, x, 2, half, half)};
  }

  ValueId activated(ValueId x, ValueId linear) {
    const std::string kind = b_.attr().s("activation_type", "relu");
    const int64_t fusion = b_.attr().i("swiglu_fusion");
    if (!b_.ok()) return {};
    if (kind == "swiglu") {
      ValueId gate = x;
      if (fusion != 0) std::tie(gate, linear) = halves(x, fusion == 1);
      if (!linear.valid()) b_.fail(ErrorCode::MalformedModel, "swiglu needs fc3, or fc1 with swiglu_fusion 1 or 2");
      if (!b_.ok()) return {};
      if (b_.attr().has("swiglu_limit")) {
        const double limit = b_.attr().f("swiglu_limit");
        gate = min(b_, gate, limit);
        linear = max(b_, min(b_, linear, limit), -limit);
      }
      ValueId s = mul(b_, gate, sigmoid(b_, mul(b_, gate, b_.attr().f("activation_alpha"))));
      return mul(b_, s, add(b_, linear, b_.attr().f("activation_beta")));
    }
    ValueId y;
    if (kind == "relu")
      y = b_.op("Relu", {x});
    else if (kind == "gelu")
      y = b_.op("Gelu", {x}, {{"approximate", std::string("tanh")}});
    else if (kind == "silu")
      y = mul(b_, x, sigmoid(b_, x));
    else if (kind == "identity")
      y = x;
    else
      b_.fail(ErrorCode::UnsupportedFeature, "activation_type '" + kind + "' is not supported");
    return linear.valid() && b_.ok() ? mul(b_, y, linear) : y;
  }

  B& b_;
};

std::vector<AttrDef> mixture_attributes() {
  return {{"activation_type", AttrKind::String, false, std::string("relu")},
          number("activation_alpha", 1),
          number("activation_beta", 0),
          integer("k", 1),
          integer("normalize_routing_weights", 0),
          integer("swiglu_fusion", 0),
          {"swiglu_limit", AttrKind::Float},
          integer("use_sparse_mixer", 0)};
}

void add_plain(OpTable& table) {
  OpDef def = microsoft("com.microsoft.MoE", "mixture of experts: two layers of the k best experts of each token",
                        {{"input", TypeSet::Float},
                         {"router_probs", TypeSet::SameAsFirst},
                         {"fc1_experts_weights", TypeSet::SameAsFirst},
                         {"fc1_experts_bias", TypeSet::SameAsFirst, true},
                         {"fc2_experts_weights", TypeSet::SameAsFirst},
                         {"fc2_experts_bias", TypeSet::SameAsFirst, true},
                         {"fc3_experts_weights", TypeSet::SameAsFirst, true},
                         {"fc3_experts_bias", TypeSet::SameAsFirst, true}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          return Mixture(b).build(b.in(1), {}, {b.in(2), b.in(3)}, {b.in(4), b.in(5)},
                                                  {b.in(6), b.in(7)}, b.attr().i("normalize_routing_weights") != 0);
                        });
  def.attributes = mixture_attributes();
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
    Tensor x = r({5, 8}, 1), router = r({5, 4}, 2), none;
    return std::vector<Sample>{sample({x, router, r({4, 6, 8}, 3), r({4, 6}, 4), r({4, 8, 6}, 5), r({4, 8}, 6)},
                                      {{"k", int64_t{2}}, {"activation_type", std::string("gelu")}}),
                               sample({r({1, 5, 8}, 1), router, r({4, 12, 8}, 3), none, r({4, 8, 6}, 5)},
                                      {{"k", int64_t{2}},
                                       {"activation_type", std::string("swiglu")},
                                       {"swiglu_fusion", int64_t{1}},
                                       {"normalize_routing_weights", int64_t{1}},
                                       {"swiglu_limit", 1.0},
                                       {"activation_alpha", 1.7},
                                       {"activation_beta", 1.0}})};
  };
  table.add(std::move(def));
}

// ---- QMoE: weights in codes of 2, 4 or 8 bits with scales of rows or of blocks of rows
ValueId expert_weights(B& b, int codes, int scales, int zeros, int64_t bits) {
  if (!b.ok() || !b.has(codes)) return {};
  if (!b.has(scales)) return b.fail(ErrorCode::MalformedModel, "weights have no scales"), ValueId{};
  if (bits != 2 && bits != 4 && bits != 8)
    return b.fail(ErrorCode::UnsupportedFeature, "codes of " + std::to_string(bits) + " bits"), ValueId{};
  ValueId weight = cast(b, unpacked(b, b.in(codes), bits), DType::F32);
  SymShape shape = b.shape(weight);
  if (!b.ok() || shape.size() != 3)
    return b.fail(ErrorCode::ShapeMismatch, "weights are [experts, out, in]"), ValueId{};
  ValueId scale = cast(b, b.in(scales), DType::F32);
  if (b.rank(scale) == 2) scale = unsqueeze(b, scale, {2});
  SymExpr blocks = b.dim(scale, 2), width = floordiv(shape[2], blocks);
  ValueId zero = b.scalar(DType::F32, static_cast<double>(1 << (bits - 1)));
  if (b.has(zeros)) {
    ValueId z = b.in(zeros);
    const bool rows = b.rank(z) == 2; // packed along the rows of a matrix, not along blocks
    z = cast(b, unpacked(b, z, bits), DType::F32);
    zero = rows ? unsqueeze(b, slice(b, z, 1, 0, shape[1]), {2}) : slice(b, z, 2, 0, blocks);
    zero = unsqueeze(b, zero, {3});
  }
  ValueId grouped = reshape(b, weight, {shape[0], shape[1], blocks, width});
  return reshape(b, mul(b, sub(b, grouped, zero), unsqueeze(b, scale, {3})), shape);
}

void add_quantized(OpTable& table) {
  auto weights = [](std::string_view name, bool optional) { return OperandDef{name, TypeSet::Integer, optional}; };
  auto real = [](std::string_view name) { return OperandDef{name, TypeSet::Float, true}; };
  OpDef def =
      microsoft("com.microsoft.QMoE", "mixture of experts with quantised weights",
                {{"input", TypeSet::Float},
                 {"router_probs", TypeSet::SameAsFirst},
                 weights("fc1_experts_weights", false),
                 real("fc1_scales"),
                 real("fc1_experts_bias"),
                 weights("fc2_experts_weights", false),
                 real("fc2_scales"),
                 real("fc2_experts_bias"),
                 weights("fc3_experts_weights", true),
                 real("fc3_scales"),
                 real("fc3_experts_bias"),
                 weights("fc1_zero_points", true),
                 weights("fc2_zero_points", true),
                 weights("fc3_zero_points", true),
                 real("router_weights")},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  const auto& a = b.attr();
                  if (a.s("quant_type", "int") != "int")
                    b.fail(ErrorCode::UnsupportedFeature, "quant_type '" + a.s("quant_type") + "' is not supported");
                  if (a.i("weights_prepacked", 0) == 1)
                    b.fail(ErrorCode::UnsupportedFeature, "prepacked weights are not supported");
                  const int64_t bits = a.i("expert_weight_bits");
                  auto layer = [&](int codes, int zeros, const char* own) {
                    return Layer{expert_weights(b, codes, codes + 1, zeros, a.i(own, bits)), b.in(codes + 2)};
                  };
                  Layer fc1 = layer(2, 11, "fc1_expert_weight_bits"), fc2 = layer(5, 12, "fc2_expert_weight_bits");
                  Layer fc3 = layer(8, 13, "fc3_expert_weight_bits");
                  // The softmax of ONNX Runtime's kernel is over the chosen experts, whatever the attribute says.
                  const bool normalized = !b.has(14) || a.i("normalize_routing_weights") != 0;
                  return Mixture(b).build(b.in(1), b.in(14), fc1, fc2, fc3, normalized);
                });
  def.attributes = mixture_attributes();
  for (const char* name : {"accuracy_level", "block_size", "fc1_expert_weight_bits", "fc2_expert_weight_bits",
                           "fc3_expert_weight_bits", "weights_prepacked"})
    def.attributes.push_back({name, AttrKind::Int});
  def.attributes.push_back(integer("expert_weight_bits", 4));
  def.attributes.push_back({"quant_type", AttrKind::String});
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, 0.1, 1); };
    auto u = [](Dims d, uint64_t seed) { return random(DType::U8, std::move(d), seed, 0, 255); };
    Tensor x = random(DType::F32, {5, 8}, 1), router = random(DType::F32, {5, 4}, 2), none;
    return std::vector<Sample>{
        sample({x, router, u({4, 6, 4}, 3), r({4, 6}, 4), none, u({4, 8, 3}, 5), r({4, 8}, 6)},
               {{"k", int64_t{2}}, {"activation_type", std::string("silu")}}),
        sample({x, router, u({4, 6, 8}, 3), r({4, 6}, 4), r({4, 6}, 7), u({4, 8, 6}, 5), r({4, 8}, 6)},
               {{"k", int64_t{1}}, {"expert_weight_bits", int64_t{8}}})};
  };
  table.add(std::move(def));
}

} // namespace

void register_microsoft_moe_ops(OpTable& table) {
  add_plain(table);
  add_quantized(table);
}

} // namespace tessera
