#include "graph/ops/microsoft.h"
#include <numeric>

namespace tessera {

namespace ops {

OpDef microsoft(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
                DecomposeFn rewrite) {
  constexpr std::string_view kDomain = "com.microsoft";
  OpDef def = composite(name, summary, std::move(operands), std::move(rewrite));
  def.onnx = {{name.substr(kDomain.size() + 1), kDomain}};
  return def;
}

DecomposeFn formula(std::function<ValueId(B&)> value) {
  return [value = std::move(value)](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(value(b));
  };
}

ValueId activate(B& b, ValueId x, const std::string& name, const std::vector<double>& numbers) {
  auto with = [&](std::initializer_list<const char*> attributes) {
    Attributes a;
    size_t i = 0;
    for (const char* attribute : attributes)
      if (i < numbers.size()) a.set(attribute, numbers[i++]);
    return b.op(name, {x}, std::move(a));
  };
  if (name.empty()) return x;
  if (name == "Clip" && numbers.size() == 2) return b.op("Clip", {x, b.like(x, numbers[0]), b.like(x, numbers[1])});
  if (name == "HardSigmoid") return with({"alpha", "beta"});
  if (name == "LeakyRelu" || name == "Elu" || name == "ThresholdedRelu") return with({"alpha"});
  if (name == "Relu" || name == "Tanh" || name == "Sigmoid" || name == "Softplus" || name == "HardSwish")
    return b.op1(name == "Tanh" ? "tanh" : name == "Sigmoid" ? "sigmoid" : name, x);
  b.fail(ErrorCode::UnsupportedFeature,
         "activation '" + name + "' with " + std::to_string(numbers.size()) + " numbers");
  return {};
}

ValueId dequantize(B& b, int x, int scale, int zero) {
  std::vector<ValueId> operands = {b.in(x), b.in(scale)};
  if (b.has(zero)) operands.push_back(b.in(zero));
  return b.op("DequantizeLinear", std::move(operands));
}

ValueId quantize(B& b, ValueId y, int scale, int zero, DType fallback) {
  return b.op("QuantizeLinear", {y, b.in(scale), b.has(zero) ? b.in(zero) : b.scalar_i(fallback, 0)});
}

ValueId scaled_product(B& b, ValueId a_values, ValueId a_scale, ValueId a_zero, ValueId b_values, ValueId b_scale,
                       ValueId b_zero) {
  auto scalar = [&](ValueId v) {
    return v.valid() && b.rank(v) == 1 && b.dim(v, 0).is_const(1) ? reshape(b, v, {}) : v;
  };
  std::vector<ValueId> operands = {a_values, b_values, scalar(a_zero), scalar(b_zero)};
  while (!operands.back().valid()) operands.pop_back();
  ValueId product = b.op("MatMulInteger", std::move(operands));
  return mul(b, cast(b, product, DType::F32), mul(b, scalar(a_scale), scalar(b_scale)));
}

ValueId unpacked(B& b, ValueId bytes, int64_t bits) {
  if (!b.ok() || bits == 8) return bytes;
  if (bits != 2 && bits != 4)
    return b.fail(ErrorCode::UnsupportedFeature, "codes of " + std::to_string(bits) + " bits"), ValueId{};
  SymShape shape = b.shape(bytes);
  const int64_t rank = static_cast<int64_t>(shape.size());
  std::vector<ValueId> parts;
  for (int64_t at = 0; at < 8; at += bits) {
    ValueId part = at == 0 ? bytes : b.op("shr", {bytes, b.scalar_i(DType::U8, at)});
    parts.push_back(unsqueeze(b, b.op("and", {part, b.scalar_i(DType::U8, (1 << bits) - 1)}), {rank}));
  }
  shape.back() = shape.back() * (8 / bits);
  return reshape(b, concat(b, parts, rank), shape);
}

SymExpr head_width(B& b, const SymExpr& width) {
  const SymExpr w = b.env().simplify(width);
  if (const auto hint = b.env().hint(w); hint && !w.is_const())
    b.check(b.env().require(sym_eq(w, *hint), GuardClass::Assumed, "width of a head", b.node().location));
  return b.env().simplify(w);
}

} // namespace ops

void register_microsoft_ops(OpTable& table) {
  for (auto* add : {register_microsoft_activation_ops, register_microsoft_norm_ops, register_microsoft_attention_ops,
                    register_microsoft_cache_ops, register_microsoft_matmul_ops, register_microsoft_quant_ops,
                    register_microsoft_moe_ops, register_microsoft_text_ops, register_microsoft_misc_ops})
    add(table);
}

} // namespace tessera
