#include "frontend/onnx/sequence_map.h"

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

Result<std::vector<proto::NodeProto>> sequence_map_as_loop(const proto::NodeProto& node, const proto::GraphProto& map,
                                                           const std::vector<bool>& sequences, const Location& where) {
  if (node.input_size() == 0 || node.input_size() != map.input_size() || node.output_size() > map.output_size())
    return Diagnostic(ErrorCode::MalformedModel, where,
                      "subgraph 'body' has " + std::to_string(map.input_size()) + " inputs and " +
                          std::to_string(map.output_size()) + " outputs; " + std::to_string(node.input_size()) +
                          " and at least " + std::to_string(node.output_size()) + " are expected");
  // Names that begin so are of the loop; the operands get such names, which no name of the subgraph hides.
  const std::string own = where.output + "/SequenceMap/";
  auto name = [&](const char* what, int i) { return own + what + std::to_string(i); };
  std::vector<proto::NodeProto> out;
  auto add = [&](const char* op, std::initializer_list<std::string> inputs, const std::string& output) -> auto& {
    fill(out.emplace_back(), op, inputs, output);
    return out.back();
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
    add("Identity", {node.input(k)}, name("operand", k));
    if (sequences[static_cast<size_t>(k)])
      fill(*body.add_node(), "SequenceAt", {name("operand", k), own + "i"}, map.input(k).name());
    else
      fill(*body.add_node(), "Identity", {name("operand", k)}, map.input(k).name());
  }
  add("SequenceLength", {name("operand", 0)}, own + "length");
  body.mutable_node()->MergeFrom(map.node());
  for (int k = 0; k < node.output_size(); ++k) {
    const auto& output = map.output(k);
    add_attribute(add("SequenceEmpty", {}, name("empty", k)), "dtype", proto::AttributeProto::INT)
        .set_i(output.type().tensor_type().elem_type());
    loop.add_input(name("empty", k));
    loop.add_output(node.output(k));
    body.add_input()->set_name(name("items", k));
    fill(*body.add_node(), "SequenceInsert", {name("items", k), output.name()}, name("more", k));
    body.add_output()->set_name(name("more", k));
  }
  out.push_back(std::move(loop));
  return out;
}

} // namespace tessera::onnx
