// SequenceMap: a graph for each item of sequences, as a Loop over their items.
#include "frontend/onnx/graph_builder.h"

namespace tessera::onnx {

namespace {

proto::AttributeProto& add_attribute(proto::NodeProto& node, const char* name,
                                     proto::AttributeProto_AttributeType type) {
  auto& a = *node.add_attribute();
  a.set_name(name);
  a.set_type(type);
  return a;
}

void fill(proto::NodeProto& node, const char* op, std::initializer_list<std::string> inputs,
          const std::string& output) {
  node.set_op_type(op);
  node.set_name(output);
  for (const std::string& i : inputs) node.add_input(i);
  node.add_output(output);
}

} // namespace

Status GraphBuilder::add_sequence_map(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                                      const Location& where) {
  TESSERA_ASSIGN(const BoundAttribute* bound, graph_attribute(attributes, "body", scope, where));
  if (bound->scope != &scope)
    return Diagnostic(ErrorCode::UnsupportedFeature, where, "the subgraph 'body' is given by a call of a function");
  const auto& map = bound->value->g();
  if (node.input_size() == 0 || node.input_size() != map.input_size() || node.output_size() > map.output_size())
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "subgraph 'body' has " + std::to_string(map.input_size()) + " inputs and " +
                          std::to_string(map.output_size()) + " outputs; " + std::to_string(node.input_size()) +
                          " and at least " + std::to_string(node.output_size()) + " are expected");
  // Names that begin so are of the loop; the operands get such names, which no name of the subgraph hides.
  const std::string own = where.output + "/SequenceMap/";
  auto name = [&](const char* what, int i) { return own + what + std::to_string(i); };
  auto add = [&](const char* op, std::initializer_list<std::string> inputs, const std::string& output) {
    proto::NodeProto& made = made_.emplace_back();
    fill(made, op, inputs, output);
    return &made;
  };
  proto::NodeProto loop;
  fill(loop, "Loop", {own + "length", ""}, "");
  loop.set_name(node.name().empty() ? where.output : node.name());
  loop.clear_output();
  auto& body = *add_attribute(loop, "body", proto::AttributeProto::GRAPH).mutable_g();
  body.set_name(map.name());
  *body.mutable_initializer() = map.initializer();
  *body.mutable_sparse_initializer() = map.sparse_initializer();
  body.add_input()->set_name(own + "i");
  body.add_input()->set_name(own + "on");
  fill(*body.add_node(), "Identity", {own + "on"}, own + "goes_on");
  body.add_output()->set_name(own + "goes_on");
  for (int k = 0; k < node.input_size(); ++k) {
    TESSERA_TRY(add_node(scope, *add("Identity", {node.input(k)}, name("operand", k))));
    TESSERA_ASSIGN(const ValueId value, lookup(scope, made_.back().output(0), where));
    const auto& items = scope.into.graph.type(value).items;
    const bool sequence = items != nullptr && items->container == ItemType::Container::Sequence;
    if (k == 0 && !sequence)
      return Diagnostic(ErrorCode::TypeMismatch, where, "maps a sequence, not " + scope.into.graph.type(value).str());
    if (sequence)
      fill(*body.add_node(), "SequenceAt", {name("operand", k), own + "i"}, map.input(k).name());
    else
      fill(*body.add_node(), "Identity", {name("operand", k)}, map.input(k).name());
  }
  TESSERA_TRY(add_node(scope, *add("SequenceLength", {name("operand", 0)}, own + "length")));
  body.mutable_node()->MergeFrom(map.node());
  for (int k = 0; k < node.output_size(); ++k) {
    const auto& output = map.output(k);
    proto::NodeProto* empty = add("SequenceEmpty", {}, name("empty", k));
    add_attribute(*empty, "dtype", proto::AttributeProto::INT).set_i(output.type().tensor_type().elem_type());
    TESSERA_TRY(add_node(scope, *empty));
    loop.add_input(name("empty", k));
    loop.add_output(node.output(k));
    body.add_input()->set_name(name("items", k));
    fill(*body.add_node(), "SequenceInsert", {name("items", k), output.name()}, name("more", k));
    body.add_output()->set_name(name("more", k));
  }
  made_.push_back(std::move(loop));
  return add_node(scope, made_.back());
}

} // namespace tessera::onnx
