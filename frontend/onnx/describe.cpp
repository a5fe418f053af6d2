// Describes an ONNX file as text.
#include "base/file.h"
#include "frontend/description.h"
#include "frontend/onnx/graph_builder.h"
#include <charconv>

namespace tessera::onnx {
namespace {

constexpr int kShownElements = 8; // of an attribute's list or tensor

std::string element_name(int data_type) {
  if (data_type == proto::TensorProto::UNDEFINED) return "?";
  auto dtype = element_type(data_type, {}, "");
  return dtype.ok() ? std::string(name(*dtype)) : onnx_type_name(data_type);
}

template <class Items, class F>
std::string listed(const Items& items, F&& text) {
  std::string out;
  int shown = 0;
  for (const auto& item : items) {
    if (shown == kShownElements) return out + ", ... (" + std::to_string(items.size()) + ")";
    out += (shown++ == 0 ? "" : ", ") + text(item);
  }
  return out;
}

std::string number(double v) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}

std::string type_text(const proto::TypeProto& type) {
  if (type.has_tensor_type() || type.has_sparse_tensor_type()) {
    const bool sparse = type.has_sparse_tensor_type();
    const auto& shape = sparse ? type.sparse_tensor_type().shape() : type.tensor_type().shape();
    const int element = sparse ? type.sparse_tensor_type().elem_type() : type.tensor_type().elem_type();
    std::string out = (sparse ? "sparse " : "") + element_name(element);
    if (!(sparse ? type.sparse_tensor_type().has_shape() : type.tensor_type().has_shape())) return out + "[...]";
    std::string dims;
    for (const auto& d : shape.dim())
      dims += (dims.empty() ? "" : ", ") + (d.has_dim_value()       ? std::to_string(d.dim_value())
                                            : d.dim_param().empty() ? std::string("?")
                                                                    : d.dim_param());
    return out + "[" + dims + "]";
  }
  if (type.has_sequence_type()) return "sequence " + type_text(type.sequence_type().elem_type());
  if (type.has_optional_type()) return "optional " + type_text(type.optional_type().elem_type());
  if (type.has_map_type())
    return "map " + element_name(type.map_type().key_type()) + " " + type_text(type.map_type().value_type());
  return "";
}

std::string dims_text(const google::protobuf::RepeatedField<int64_t>& dims) {
  std::string out;
  for (const int64_t d : dims) out += (out.empty() ? "" : ", ") + std::to_string(d);
  return "[" + out + "]";
}

// Elements times bits of their type; 0 of strings, of unknown types and of sizes that overflow.
int64_t bytes_of(const proto::TensorProto& t) {
  auto dtype = element_type(t.data_type(), {}, "");
  auto count = element_count(Dims(t.dims().begin(), t.dims().end()));
  return dtype.ok() && count.ok() && has_bytes(*dtype) ? byte_size(*dtype, *count) : 0;
}

std::string tensor_text(const proto::TensorProto& t) {
  const std::string type = element_name(t.data_type()) + dims_text(t.dims());
  WeightLoader none("", "", nullptr, ImportOptions::MissingWeights::Empty);
  if (t.data_location() == proto::TensorProto::EXTERNAL || bytes_of(t) > 8 * kShownElements) return type;
  auto value = none.load(t, {});
  if (!value.ok() || !has_bytes(value->dtype()) || info(value->dtype()).kind == DTypeKind::Complex) return type;
  std::string elements;
  for (int64_t i = 0; i < value->count(); ++i)
    elements += (i == 0 ? "" : ", ") +
                (is_float(value->dtype()) ? number(value->get_f64(i)) : std::to_string(value->get_i64(i)));
  return type + " {" + elements + "}";
}

std::string attribute_text(const proto::AttributeProto& a) {
  using A = proto::AttributeProto;
  auto integer = [](int64_t v) { return std::to_string(v); };
  auto real = [](double v) { return number(static_cast<double>(static_cast<float>(v))); };
  auto text = [](const std::string& s) { return "\"" + s + "\""; };
  auto graph = [](const proto::GraphProto& g) { return "graph of " + std::to_string(g.node_size()) + " nodes"; };
  if (!a.ref_attr_name().empty()) return "attribute " + a.ref_attr_name() + " of the function";
  switch (a.type()) {
  case A::INT: return integer(a.i());
  case A::FLOAT: {
    char shortest[32];
    return {shortest, std::to_chars(shortest, shortest + sizeof shortest, a.f()).ptr};
  }
  case A::STRING: return text(a.s());
  case A::TENSOR: return tensor_text(a.t());
  case A::GRAPH: return graph(a.g());
  case A::INTS: return "[" + listed(a.ints(), integer) + "]";
  case A::FLOATS: return "[" + listed(a.floats(), real) + "]";
  case A::STRINGS: return "[" + listed(a.strings(), text) + "]";
  case A::TENSORS: return "[" + listed(a.tensors(), tensor_text) + "]";
  case A::GRAPHS: return "[" + listed(a.graphs(), graph) + "]";
  case A::SPARSE_TENSOR: return "sparse " + tensor_text(a.sparse_tensor().values());
  case A::TYPE_PROTO: return type_text(a.tp());
  default: return "?";
  }
}

class Describer {
public:
  Describer(const ParsedModel& parsed, std::string file)
      : model_(*parsed.model), raw_(parsed.raw), file_(std::move(file)) {}

  ModelDescription run() {
    out_.format = "ONNX";
    out_.version = model_.ir_version();
    out_.producer = model_.producer_name();
    if (!model_.producer_version().empty()) out_.producer += " " + model_.producer_version();
    out_.domain = model_.domain();
    out_.model_version = model_.model_version();
    out_.documentation = model_.doc_string();
    out_.graph = model_.graph().name();
    for (const auto& o : model_.opset_import())
      out_.opsets.emplace_back(canonical_domain(o.domain()).empty() ? "ai.onnx" : o.domain(), o.version());
    for (const auto& m : model_.metadata_props()) out_.metadata.emplace_back(m.key(), m.value());
    const auto& graph = model_.graph();
    std::set<std::string_view> weights;
    for (int i = 0; i < graph.initializer_size(); ++i) {
      weight(graph.initializer(i), raw_[static_cast<size_t>(i)]);
      weights.insert(graph.initializer(i).name());
    }
    for (const auto& s : graph.sparse_initializer()) {
      weight(s.values(), {});
      out_.weights.back().bytes += bytes_of(s.indices());
      out_.weights.back().type = "sparse " + element_name(s.values().data_type()) + dims_text(s.dims());
      weights.insert(s.values().name());
    }
    for (const auto& v : graph.input())
      if (!weights.contains(v.name())) out_.inputs.push_back({v.name(), type_text(v.type())});
    for (const auto& v : graph.output()) out_.outputs.push_back({v.name(), type_text(v.type())});
    for (const auto* values : {&graph.input(), &graph.value_info(), &graph.output()})
      for (const auto& v : *values)
        if (v.has_type()) out_.types.emplace(v.name(), type_text(v.type()));
    for (const auto& w : out_.weights) out_.types.emplace(w.name, w.type);
    nodes(graph.node(), "", 0, "");
    for (const auto& f : model_.functions()) {
      const std::string name = full_op_name(f.domain(), f.name());
      out_.functions.push_back(name);
      nodes(f.node(), "", 0, name);
    }
    return std::move(out_);
  }

private:
  void weight(const proto::TensorProto& t, std::string_view raw) {
    DescribedWeight w{t.name(), element_name(t.data_type()) + dims_text(t.dims()), element_name(t.data_type()),
                      bytes_of(t), ""};
    for (const auto& entry : t.external_data())
      if (t.data_location() == proto::TensorProto::EXTERNAL && entry.key() == "location") w.file = entry.value();
    if (w.bytes == 0) w.bytes = static_cast<int64_t>(std::max(raw.size(), t.raw_data().size()));
    out_.weights.push_back(std::move(w));
  }

  void nodes(const Nodes& nodes, const std::string& prefix, int depth, const std::string& function) {
    if (depth > kMaxNesting) return;
    for (const auto& node : nodes) {
      DescribedNode n;
      n.place = locate(node, file_, prefix);
      n.depth = depth;
      n.function = function;
      n.inputs.assign(node.input().begin(), node.input().end());
      n.outputs.assign(node.output().begin(), node.output().end());
      for (const auto& a : node.attribute()) n.attributes.emplace_back(a.name(), attribute_text(a));
      const std::string inner = body_prefix(n.place);
      out_.nodes.push_back(std::move(n));
      for (const auto& a : node.attribute()) {
        if (a.has_g()) this->nodes(a.g().node(), inner, depth + 1, function);
        for (const auto& g : a.graphs()) this->nodes(g.node(), inner, depth + 1, function);
      }
    }
  }

  const proto::ModelProto& model_;
  const std::vector<std::string_view>& raw_; // data of initializers that was left out of the message
  std::string file_;
  ModelDescription out_;
};

} // namespace

Result<ModelDescription> describe_file(const std::string& path) {
  TESSERA_ASSIGN(const Storage mapped, map_file(path));
  TESSERA_ASSIGN(const ParsedModel parsed,
                 parse_model({reinterpret_cast<const char*>(mapped.data), mapped.bytes}, path));
  return Describer(parsed, path).run();
}

} // namespace tessera::onnx
