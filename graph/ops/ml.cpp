#include "graph/ops/ml.h"
#include <algorithm>

namespace tessera {

namespace ops {

OpDef ml(std::string_view name, std::string_view summary, std::vector<OperandDef> operands, DecomposeFn rewrite) {
  constexpr std::string_view kDomain = "ai.onnx.ml";
  OpDef def = composite(name, summary, std::move(operands), std::move(rewrite));
  def.onnx = {{name.substr(kDomain.size() + 1), kDomain}};
  return def;
}

OpDef ml(std::string_view name, std::string_view summary, std::vector<OperandDef> operands,
         std::function<ValueId(B&)> formula) {
  return ml(name, summary, std::move(operands),
            DecomposeFn([formula = std::move(formula)](Graph& g, const Node& n, int) {
              B b(g, n);
              ValueId v = formula(b);
              return b.done(v);
            }));
}

ValueId ml_rows(B& b, DType dtype, std::optional<int64_t> features) {
  ValueId x = b.in(0);
  const SymShape shape = b.shape(x);
  if (shape.empty() || shape.size() > 2)
    return b.fail(ErrorCode::ShapeMismatch, "takes features [F] or [N, F], not " + str(shape)), ValueId{};
  if (features)
    b.check(b.env().require_equal(shape.back(), *features, "features of " + std::string(b.node().op->name),
                                  b.node().location));
  if (shape.size() == 1) x = unsqueeze(b, x, {0});
  return cast(b, x, dtype);
}

std::vector<double> ml_floats(const Node& node, std::string_view name) {
  const auto* values = node.attributes.get<std::vector<double>>(name);
  return values ? *values : std::vector<double>{};
}

std::vector<std::string> ml_strings(const Node& node, std::string_view name) {
  const auto* values = node.attributes.get<std::vector<std::string>>(name);
  return values ? *values : std::vector<std::string>{};
}

ValueId ml_constant(B& b, DType dtype, Dims dims, const std::vector<double>& values) {
  if (!b.ok()) return {};
  return b.constant(Tensor::of<double>(dtype, std::move(dims), values));
}

size_t ml_choice(B& b, std::string_view attribute, std::initializer_list<std::string_view> names) {
  const std::string value = b.attr().s(attribute);
  const auto it = std::find(names.begin(), names.end(), value);
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  std::string all;
  for (std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  b.fail(ErrorCode::BadAttribute,
         "attribute '" + std::string(attribute) + "' is '" + value + "', expected one of " + all);
  return 0;
}

AttrDef ml_text(std::string_view name, std::string_view fallback) {
  return {name, AttrKind::String, false, std::string(fallback)};
}

MlLabels ml_labels(B& b, std::string_view numbers) {
  MlLabels out{b.attr().ints(numbers), ml_strings(b.node(), "classlabels_strings")};
  if (!out.numbers.empty() && !out.texts.empty())
    b.fail(ErrorCode::BadAttribute, "classes have labels in '" + std::string(numbers) +
                                        "' and in 'classlabels_strings'; one of the two is expected");
  return out;
}

ValueId ml_labelled(B& b, const MlLabels& labels, ValueId indices) {
  if (!b.ok()) return {};
  if (labels.texts.empty()) return gather(b, b.ints(labels.numbers), indices, 0);
  const auto n = static_cast<int64_t>(labels.texts.size());
  return b.op("gather", {b.constant(Tensor::strings({n}, labels.texts)), indices}, {{"axis", int64_t{0}}});
}

ValueId ml_labelled(B& b, const MlLabels& labels, ValueId condition, int64_t yes, int64_t no) {
  if (!b.ok()) return {};
  return ml_labelled(b, labels, select(b, condition, b.scalar_i(DType::I64, yes), b.scalar_i(DType::I64, no)));
}

ValueId ml_largest(B& b, ValueId scores) {
  return b.op("argmax", {scores}, {{"axes", Ints{1}}, {"keepdims", int64_t{0}}, {"select_last", int64_t{0}}});
}

PostTransform post_transform(B& b) {
  return static_cast<PostTransform>(
      ml_choice(b, "post_transform", {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"}));
}

namespace {

// sqrt(2) * erfinv(2 p - 1) with Winitzki's approximation of the inverse error function.
ValueId probit(B& b, ValueId p) {
  constexpr double kA = 0.147, kPi = 3.14159; // as ONNX Runtime has them
  ValueId x = sub(b, mul(b, p, 2.0), 1.0);
  ValueId l = log(b, mul(b, sub(b, 1.0, x), add(b, x, 1.0)));
  ValueId v = add(b, mul(b, l, 0.5), 2 / (kPi * kA));
  ValueId root = sqrt(b, sub(b, sqrt(b, sub(b, mul(b, v, v), mul(b, l, 1 / kA))), v));
  return mul(b, select(b, lt(b, x, 0.0), neg(b, root), root), 1.41421356);
}

// Softmax of the scores that are not 0.
ValueId softmax_zero(B& b, ValueId x) {
  ValueId largest = reduce(b, "reduce_max", x, {1}, true);
  ValueId counts = gt(b, abs(b, x), 0.0000001);
  ValueId e = exp(b, sub(b, x, largest));
  ValueId total = sum(b, select(b, counts, e, 0.0), {1}, true);
  return div(b, select(b, counts, e, mul(b, x, exp(b, neg(b, largest)))), total);
}

} // namespace

ValueId transformed(B& b, ValueId scores, PostTransform transform) {
  if (!b.ok()) return {};
  const bool one = b.dim(scores, 1).is_const(1);
  switch (transform) {
  case PostTransform::None: return scores;
  case PostTransform::Probit: return probit(b, scores);
  case PostTransform::Softmax: return one ? scores : b.op("Softmax", {scores}, {{"axis", int64_t{1}}});
  case PostTransform::Logistic: return one ? scores : sigmoid(b, scores);
  case PostTransform::SoftmaxZero: return one ? scores : softmax_zero(b, scores);
  }
  TESSERA_UNREACHABLE("a transform of scores");
}

std::vector<ValueId>
ml_repeat(B& b, int64_t trips, const std::vector<ValueId>& carried, const std::vector<ValueId>& captured,
          const std::function<MlStep(B&, ValueId, std::vector<ValueId>, std::vector<ValueId>)>& step) {
  const std::vector<ValueId> none(carried.size());
  if (!b.ok()) return none;
  auto body = std::make_shared<Graph>("step", std::make_shared<ShapeEnv>(b.env().inner()));
  auto inputs = [&](const std::vector<ValueId>& from, const std::string& name) {
    std::vector<ValueId> out;
    for (size_t i = 0; i < from.size(); ++i)
      out.push_back(body->add_input(name + std::to_string(i), b.graph().type(from[i])));
    return out;
  };
  const ValueId iteration = body->add_input("i", {DType::I64, {}}), on = body->add_input("on", {DType::Bool, {}});
  auto states = inputs(carried, "state"), around = inputs(captured, "around");
  Node place;
  place.location = b.node().location;
  B inner(*body, place);
  MlStep next = step(inner, iteration, std::move(states), std::move(around));
  if (!inner.ok()) return b.fail(inner.failed().error()), none;
  body->add_output("goes_on", next.goes_on.valid() ? next.goes_on : on);
  for (size_t i = 0; i < next.carried.size(); ++i) body->add_output("next" + std::to_string(i), next.carried[i]);
  std::vector<ValueId> operands = {b.scalar_i(DType::I64, trips), b.scalar_i(DType::Bool, 1)};
  operands.insert(operands.end(), carried.begin(), carried.end());
  operands.insert(operands.end(), captured.begin(), captured.end());
  return b.ops("loop", std::move(operands),
               {{"body", std::move(body)}, {"captures", Ints{static_cast<int64_t>(captured.size())}}},
               static_cast<int>(carried.size()));
}

} // namespace ops

void register_ml_ops(OpTable& table) {
  for (auto* add : {register_ml_feature_ops, register_ml_linear_ops, register_ml_svm_ops, register_ml_tree_ops,
                    register_ml_label_ops, register_ml_map_ops})
    add(table);
}

} // namespace tessera
