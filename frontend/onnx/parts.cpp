#include "frontend/onnx/parts.h"
#include "base/file.h"
#include "frontend/onnx/model_proto.h"
#include "frontend/onnx/order.h"
#include "frontend/onnx/weights.h"
#include <algorithm>

namespace tessera::onnx {

namespace {

constexpr size_t kLargest = size_t{1} << 31; // bytes of a protobuf message

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool random_number(const proto::NodeProto& node) {
  return node.op_type().starts_with("Random") || node.op_type() == "Bernoulli" || node.op_type() == "Multinomial";
}

void set_type(proto::ValueInfoProto& info, const std::string& name, const PartValue& value, int element) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(element);
  auto& shape = *tensor.mutable_shape();
  for (const auto& dim : value.dims) {
    auto& d = *shape.add_dim();
    if (const auto* size = std::get_if<int64_t>(&dim))
      d.set_dim_value(*size);
    else
      d.set_dim_param(std::get<std::string>(dim));
  }
}

} // namespace

struct ModelParts::Impl {
  std::string path;
  Storage file; // the views of `parsed` point into it
  ParsedModel parsed;
  std::unique_ptr<WeightLoader> loader;
  std::vector<PartNode> nodes;
  std::vector<int> in_file; // of each node: its index in the message
  std::vector<std::string> inputs, outputs;
  std::map<std::string, int> weights;      // index of graph.initializer
  std::map<std::string, int> sparse;       // of graph.sparse_initializer
  std::map<std::string, size_t> constants; // values of constant nodes

  [[nodiscard]] const proto::GraphProto& graph() const { return parsed.model->graph(); }

  // Copies a weight, its data inside.
  Status add_weight(int index, proto::GraphProto& to) {
    const proto::TensorProto& from = graph().initializer(index);
    const std::string_view raw = parsed.raw[static_cast<size_t>(index)];
    proto::TensorProto& copy = *to.add_initializer();
    copy = from;
    if (!raw.empty()) copy.set_raw_data(raw.data(), raw.size());
    if (from.data_location() != proto::TensorProto_DataLocation_EXTERNAL) return {};
    Location where;
    where.file = path;
    TESSERA_ASSIGN(Tensor t, loader->load(from, where, raw));
    set_data(copy, t);
    return {};
  }
  static void set_data(proto::TensorProto& to, const Tensor& t) {
    proto::TensorProto plain;
    plain.set_name(to.name());
    plain.set_data_type(to.data_type());
    for (int64_t d : t.dims()) plain.add_dims(d);
    plain.set_raw_data(reinterpret_cast<const char*>(t.data()), t.bytes());
    to = std::move(plain);
  }
};

ModelParts::ModelParts(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelParts::ModelParts(ModelParts&&) noexcept = default;
ModelParts& ModelParts::operator=(ModelParts&&) noexcept = default;
ModelParts::~ModelParts() = default;

Result<ModelParts> ModelParts::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  TESSERA_ASSIGN(impl->file, map_file(path));
  TESSERA_ASSIGN(impl->parsed, parse_model({reinterpret_cast<const char*>(impl->file.data), impl->file.bytes}, path));
  impl->loader =
      std::make_unique<WeightLoader>(folder_of(path), path, impl->file.owner, ImportOptions::MissingWeights::Refuse);
  const proto::GraphProto& graph = impl->graph();
  for (int i = 0; i < graph.initializer_size(); ++i) impl->weights[graph.initializer(i).name()] = i;
  for (int i = 0; i < graph.sparse_initializer_size(); ++i)
    impl->sparse[graph.sparse_initializer(i).values().name()] = i;
  for (const auto& v : graph.input())
    if (!impl->weights.contains(v.name())) impl->inputs.push_back(v.name());
  for (const auto& v : graph.output()) impl->outputs.push_back(v.name());
  TESSERA_ASSIGN(impl->in_file, topological_order(graph.node(), path, ""));
  for (int i : impl->in_file) {
    const proto::NodeProto& from = graph.node(i);
    PartNode node{from.name(), from.op_type(), {}, {from.output().begin(), from.output().end()}};
    if (node.name.empty() && !node.results.empty()) node.name = node.results[0];
    std::erase(node.results, "");
    Nodes one;
    *one.Add() = from;
    std::unordered_set<std::string_view> names;
    add_read_names(one, names);
    for (auto name : names)
      if (!name.empty()) node.reads.emplace_back(name);
    std::sort(node.reads.begin(), node.reads.end());
    node.constant = node.reads.empty() && !random_number(from);
    if (node.constant)
      for (const auto& result : node.results) impl->constants.emplace(result, impl->nodes.size());
    impl->nodes.push_back(std::move(node));
  }
  return ModelParts(std::move(impl));
}

const std::vector<PartNode>& ModelParts::nodes() const { return impl_->nodes; }
const std::vector<std::string>& ModelParts::inputs() const { return impl_->inputs; }
const std::vector<std::string>& ModelParts::outputs() const { return impl_->outputs; }
bool ModelParts::is_weight(const std::string& name) const {
  return impl_->weights.contains(name) || impl_->sparse.contains(name);
}

Result<Tensor> ModelParts::weight(const std::string& name) {
  Location where;
  where.file = impl_->path;
  if (auto it = impl_->sparse.find(name); it != impl_->sparse.end())
    return impl_->loader->load_sparse(impl_->graph().sparse_initializer(it->second), where);
  auto it = impl_->weights.find(name);
  if (it == impl_->weights.end()) return Diagnostic(ErrorCode::Internal, "'" + name + "' is no weight");
  return impl_->loader->load(impl_->graph().initializer(it->second), where,
                             impl_->parsed.raw[static_cast<size_t>(it->second)]);
}

std::set<std::string> ModelParts::needs(const std::set<size_t>& nodes) const {
  std::set<std::string> read, made;
  for (size_t n : nodes) {
    read.insert(impl_->nodes[n].reads.begin(), impl_->nodes[n].reads.end());
    made.insert(impl_->nodes[n].results.begin(), impl_->nodes[n].results.end());
  }
  std::erase_if(read, [&](const std::string& name) {
    return made.contains(name) || is_weight(name) || impl_->constants.contains(name);
  });
  return read;
}

std::set<std::string> ModelParts::weights_of(const std::set<size_t>& nodes) const {
  std::set<std::string> out;
  for (size_t n : nodes)
    for (const auto& name : impl_->nodes[n].reads)
      if (is_weight(name)) out.insert(name);
  return out;
}

Result<std::string> ModelParts::serialized(const Part& part) {
  const proto::ModelProto& model = *impl_->parsed.model;
  proto::ModelProto out;
  out.set_ir_version(model.ir_version());
  out.set_producer_name(model.producer_name());
  out.set_producer_version(model.producer_version());
  *out.mutable_opset_import() = model.opset_import();
  *out.mutable_functions() = model.functions();
  proto::GraphProto& graph = *out.mutable_graph();
  graph.set_name(impl_->graph().name());
  std::set<size_t> nodes = part.nodes;
  for (size_t n : part.nodes)
    for (const auto& name : impl_->nodes[n].reads)
      if (auto it = impl_->constants.find(name); it != impl_->constants.end()) nodes.insert(it->second);
  for (size_t n : nodes) *graph.add_node() = impl_->graph().node(impl_->in_file[n]);
  auto add = [&](proto::ValueInfoProto& info, const std::string& name, const PartValue& value) -> Status {
    if (value.dtype == DType::List)
      return Diagnostic(ErrorCode::UnsupportedType, "'" + name + "' is " + std::string(tessera::name(value.dtype)) +
                                                        ", which no ONNX file can hold");
    set_type(info, name, value, tessera::info(value.dtype).onnx);
    return {};
  };
  for (const auto& [name, value] : part.inputs) TESSERA_TRY(add(*graph.add_input(), name, value));
  for (const auto& [name, value] : part.outputs) TESSERA_TRY(add(*graph.add_output(), name, value));
  for (const auto& name : weights_of(nodes)) {
    if (auto given = part.weights.find(name); given != part.weights.end()) {
      proto::TensorProto& t = *graph.add_initializer();
      t.set_name(name);
      t.set_data_type(impl_->graph().initializer(impl_->weights.at(name)).data_type());
      Impl::set_data(t, given->second);
    } else if (auto sparse = impl_->sparse.find(name); sparse != impl_->sparse.end()) {
      *graph.add_sparse_initializer() = impl_->graph().sparse_initializer(sparse->second);
    } else {
      TESSERA_TRY(impl_->add_weight(impl_->weights.at(name), graph));
    }
  }
  if (out.ByteSizeLong() >= kLargest)
    return Diagnostic(ErrorCode::UnsupportedFeature, "the part of the model with its weights takes more than 2 GiB");
  return out.SerializeAsString();
}

} // namespace tessera::onnx
