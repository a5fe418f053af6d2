// Surveys: imports that go on after nodes that fail. What a refused node defines is an input where the model declares
// its type. Elsewhere its names are unknown, and nodes that read them are only looked up.
#include "frontend/onnx/graph_builder.h"
#include "frontend/onnx/known_operators.h"
#include <algorithm>
#include <utility>

namespace tessera::onnx {

bool Scope::is_unknown(std::string_view name) const {
  for (const Scope* s = this; s != nullptr; s = s->outer) {
    if (s->unknown.contains(name)) return true;
    if (s->values.contains(name)) return false;
  }
  return false;
}

bool Scope::follow_unknown(std::string_view name, Scope& other, std::string_view as) const {
  return is_unknown(name) && (other.unknown.insert(as), true);
}

void GraphBuilder::report(const Scope& scope, const proto::NodeProto& node, Diagnostic error) {
  const std::string_view domain = canonical_domain(node.domain());
  RefusedNode refused{full_op_name(domain, node.op_type()), opset_of(scope, domain), std::nullopt,
                      std::move(error).at(locate(node, file_, scope.prefix))};
  // Loops that are unrolled have a node several times.
  if (std::any_of(refused_->begin(), refused_->end(), [&](const RefusedNode& r) {
        return r.reason.location == refused.reason.location && r.reason.message == refused.reason.message;
      }))
    return;
  for (const auto& input : node.input()) {
    const ValueId* id = input.empty() ? nullptr : find_value(scope, input);
    if (id == nullptr || !id->valid()) continue;
    refused.dtype = scope.into.graph.type(*id).dtype;
    break;
  }
  refused_->push_back(std::move(refused));
}

void GraphBuilder::look_up(const Scope& scope, const proto::NodeProto& node) {
  const Location where = locate(node, file_, scope.prefix);
  if (!count(where).ok() || nesting_ >= kMaxNesting) return;
  const Nesting nesting(nesting_);
  if (const auto* function = functions_.find(node)) {
    if (std::find(calls_.begin(), calls_.end(), function) != calls_.end()) return;
    calls_.push_back(function);
    const Scope body{scope.into, nullptr, &functions_.opsets(*function), nullptr, body_prefix(where)};
    for (const auto& inner : function->node()) look_up(body, inner);
    calls_.pop_back();
    return;
  }
  const std::string_view domain = canonical_domain(node.domain());
  const int opset = opset_of(scope, domain);
  if (!is_known_operator(domain, node.op_type(), opset))
    if (auto op = find_operator(node.op_type(), domain, opset, where); !op.ok()) report(scope, node, op.error());
  const Scope body{scope.into, &scope, scope.opsets, nullptr, body_prefix(where)};
  for (const auto& attribute : node.attribute())
    for (const auto& inner : attribute.g().node()) look_up(body, inner);
}

Status GraphBuilder::refuse(Scope& scope, const proto::NodeProto& node, Diagnostic error) {
  if (refused_ == nullptr) return error;
  if (std::exchange(reads_unknown_, false)) {
    --out_.info.nodes; // look_up() counts it again
    --imported_;
    look_up(scope, node);
  } else {
    report(scope, node, std::move(error));
  }
  for (const auto& name : node.output()) {
    if (name.empty() || scope.values.contains(name)) continue;
    // A subgraph has the inputs that its operator gives it.
    auto declared = scope.declared.find(name);
    auto type = declared == scope.declared.end() || &scope.into.graph != &out_.graph
                    ? Result<TensorType>(Diagnostic())
                    : dimensions_.input_type(*declared->second, false, model_location());
    if (type.ok())
      scope.values.emplace(
          name, scope.into.graph.add_input(scope.into.unique(name_of_result(scope, name)), std::move(*type)));
    else
      scope.unknown.insert(name);
  }
  return {};
}

Status GraphBuilder::survey(std::vector<RefusedNode>& refused) {
  refused_ = &refused;
  return build();
}

} // namespace tessera::onnx
