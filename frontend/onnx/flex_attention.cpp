// FlexAttention of ai.onnx.preview: attention around two subgraphs, which are inlined where they stand. So the scores'
// shape is known inside of them, and what they compute fuses into the attention.
#include "frontend/onnx/graph_builder.h"
#include "graph/ops/formulas.h"
#include "graph/ops/heads.h"
#include <algorithm>
#include <cmath>

namespace tessera::onnx {

namespace {
using namespace ops;

// [b, h*g, s, x] as [b, h, g*s, x], the query heads that share a key head as rows of one product; and back.
ValueId grouped(B& b, ValueId x, const SymExpr& group) {
  if (!b.ok() || group.is_const(1)) return x;
  SymShape s = b.shape(x);
  return reshape(b, x, {s[0], floordiv(s[1], group), s[2] * group, s[3]});
}
ValueId ungrouped(B& b, ValueId x, const SymExpr& group) {
  if (!b.ok() || group.is_const(1)) return x;
  SymShape s = b.shape(x);
  return reshape(b, x, {s[0], s[1] * group, floordiv(s[2], group), s[3]});
}

} // namespace

Result<ValueId> GraphBuilder::inline_modifier(Scope& scope, const BoundAttributes& attributes, std::string_view name,
                                              ValueId input, const Location& where) {
  auto it = std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) { return a.first == name; });
  if (it == attributes.end()) return input;
  const BoundAttribute& bound = it->second;
  if (bound.value->type() != proto::AttributeProto::GRAPH) return wrong_attribute_type(*bound.value, "GRAPH", where);
  if (&bound.scope->into != &scope.into)
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "subgraph '" + std::string(name) +
                          "' is given by a call outside of the subgraph that the node is in");
  const auto& graph = bound.value->g();
  if (graph.input_size() != 1 || graph.output_size() != 1)
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "subgraph '" + std::string(name) + "' has " + std::to_string(graph.input_size()) +
                          " inputs and " + std::to_string(graph.output_size()) + " outputs; one of each is expected");
  TESSERA_TRY(enter(where));
  ++nesting_;
  Scope body{scope.into, bound.scope, bound.scope->opsets, bound.scope->function,
             (where.node.empty() ? where.output : where.node) + "/" + std::string(name) + "/"};
  body.values.emplace(graph.input(0).name(), input);
  body.read.insert(graph.output(0).name());
  auto built = [&]() -> Result<ValueId> {
    TESSERA_TRY(add_initializers(body, graph, false));
    TESSERA_TRY(add_nodes(body, graph.node()));
    return lookup(body, graph.output(0).name(), where);
  }();
  --nesting_;
  TESSERA_ASSIGN(ValueId out, std::move(built));
  const TensorType before = scope.into.graph.type(input), after = scope.into.graph.type(out);
  if (before.dtype != after.dtype || before.rank() != after.rank())
    return Diagnostic(ErrorCode::TypeMismatch, where,
                      "subgraph '" + std::string(name) + "' makes " + after.str() + " of " + before.str());
  return out;
}

Status GraphBuilder::inline_flex_attention(Scope& scope, const proto::NodeProto& node,
                                           const BoundAttributes& attributes, const Location& where) {
  TESSERA_ASSIGN(std::vector<ValueId> operands, operands_of(scope, node, where));
  if (operands.size() != 3 || !operands[0].valid() || !operands[1].valid() || node.output_size() != 1)
    return Diagnostic(ErrorCode::MalformedModel, where, "takes Q, K and V, and yields one value");
  Graph& graph = scope.into.graph;
  Node place;
  place.location = where;
  B b(graph, place);
  ValueId q = operands[0], k = operands[1], v = operands[2];
  const DType dtype = b.dtype(q);
  DType precision = dtype == DType::F64 ? DType::F64 : DType::F32;
  auto width = b.dim(q, 3).as_const();
  std::optional<double> scale;
  for (const auto& [name, bound] : attributes) {
    if (name == "scale") {
      TESSERA_ASSIGN(auto value, convert_attribute(*bound.value, AttrKind::Float, weights_, where));
      scale = std::get<double>(*value);
    } else if (name == "softmax_precision") {
      TESSERA_ASSIGN(auto value, convert_attribute(*bound.value, AttrKind::Type, weights_, where));
      if (value) precision = std::get<DType>(*value);
    } else if (name != "score_mod" && name != "prob_mod") {
      return Diagnostic(ErrorCode::BadAttribute, where,
                        "operator 'FlexAttention' has no attribute '" + std::string(name) + "'")
          .note("it has prob_mod, scale, score_mod, softmax_precision");
    }
  }
  for (ValueId x : {q, k, v})
    if (b.rank(x) != 4 || !is_float(b.dtype(x)))
      return Diagnostic(ErrorCode::ShapeMismatch, where,
                        "Q, K and V are [batch, heads, length, width] of real numbers, not " + b.type(x).str());
  const SymExpr group = heads_per_key(b, b.dim(q, 1), b.dim(k, 1));
  if (!b.ok()) return b.failed().error();
  if (!scale && !width)
    return Diagnostic(ErrorCode::UnsupportedFeature, where, "the width of a head is not known when compiling");
  if (!scale) scale = *width > 0 ? 1 / std::sqrt(static_cast<double>(*width)) : 1;
  ValueId scores = matmul(b, grouped(b, mul(b, q, *scale), group), transpose(b, k, {0, 1, 3, 2}));
  scores = cast(b, ungrouped(b, scores, group), precision);
  if (!b.ok()) return b.failed().error();
  TESSERA_ASSIGN(scores, inline_modifier(scope, attributes, "score_mod", scores, where));
  ValueId probabilities = b.op("Softmax", {scores}, {{"axis", int64_t{-1}}});
  if (!b.ok()) return b.failed().error();
  TESSERA_ASSIGN(probabilities, inline_modifier(scope, attributes, "prob_mod", probabilities, where));
  ValueId y = ungrouped(b, matmul(b, grouped(b, cast(b, probabilities, b.dtype(v)), group), v), group);
  if (!b.ok()) return b.failed().error();
  return define(scope, node.output(0), y, where);
}

} // namespace tessera::onnx
