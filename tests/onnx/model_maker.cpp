#include "model_maker.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace tessera::onnx_test {

void set_type(proto::TypeProto& type, const DimList& dims, int elem) {
  auto& tensor = *type.mutable_tensor_type();
  tensor.set_elem_type(elem);
  auto& shape = *tensor.mutable_shape();
  for (const Dim& d : dims) {
    auto& dim = *shape.add_dim();
    if (!d.named)
      dim.set_dim_value(d.value);
    else if (!d.name.empty())
      dim.set_dim_param(d.name);
  }
}

void set_value(proto::ValueInfoProto& v, const std::string& name, const DimList& dims, int elem) {
  v.set_name(name);
  set_type(*v.mutable_type(), dims, elem);
}

namespace {
proto::AttributeProto attribute(const std::string& name, proto::AttributeProto::AttributeType type) {
  proto::AttributeProto a;
  a.set_name(name);
  a.set_type(type);
  return a;
}
} // namespace

proto::AttributeProto int_attribute(const std::string& name, int64_t v) {
  auto a = attribute(name, proto::AttributeProto::INT);
  a.set_i(v);
  return a;
}
proto::AttributeProto ints_attribute(const std::string& name, const Ints& v) {
  auto a = attribute(name, proto::AttributeProto::INTS);
  a.mutable_ints()->Add(v.begin(), v.end());
  return a;
}
proto::AttributeProto float_attribute(const std::string& name, float v) {
  auto a = attribute(name, proto::AttributeProto::FLOAT);
  a.set_f(v);
  return a;
}
proto::AttributeProto string_attribute(const std::string& name, const std::string& v) {
  auto a = attribute(name, proto::AttributeProto::STRING);
  a.set_s(v);
  return a;
}
proto::AttributeProto tensor_attribute(const std::string& name, const proto::TensorProto& v) {
  auto a = attribute(name, proto::AttributeProto::TENSOR);
  *a.mutable_t() = v;
  return a;
}
proto::AttributeProto graph_attribute(const std::string& name, const proto::GraphProto& v) {
  auto a = attribute(name, proto::AttributeProto::GRAPH);
  *a.mutable_g() = v;
  return a;
}
proto::AttributeProto reference(const std::string& name, const std::string& to,
                                proto::AttributeProto::AttributeType type) {
  auto a = attribute(name, type);
  a.set_ref_attr_name(to);
  return a;
}

proto::TensorProto float_tensor(const std::string& name, const Dims& dims, const std::vector<float>& values) {
  proto::TensorProto t;
  t.set_name(name);
  t.set_data_type(proto::TensorProto::FLOAT);
  t.mutable_dims()->Add(dims.begin(), dims.end());
  t.mutable_float_data()->Add(values.begin(), values.end());
  return t;
}
proto::TensorProto int64_tensor(const std::string& name, const Dims& dims, const Ints& values) {
  proto::TensorProto t;
  t.set_name(name);
  t.set_data_type(proto::TensorProto::INT64);
  t.mutable_dims()->Add(dims.begin(), dims.end());
  t.mutable_int64_data()->Add(values.begin(), values.end());
  return t;
}

proto::NodeProto node(const std::string& op, const Names& inputs, const Names& outputs,
                      std::initializer_list<proto::AttributeProto> attributes, const std::string& domain) {
  proto::NodeProto n;
  n.set_op_type(op);
  n.set_domain(domain);
  if (!outputs.empty()) n.set_name("n_" + outputs[0]);
  for (const auto& i : inputs) n.add_input(i);
  for (const auto& o : outputs) n.add_output(o);
  for (const auto& a : attributes) *n.add_attribute() = a;
  return n;
}

Maker::Maker(int64_t opset) {
  model.set_ir_version(8);
  import("", opset);
  graph().set_name("main");
}
Maker& Maker::import(const std::string& domain, int64_t version) {
  auto& o = *model.add_opset_import();
  o.set_domain(domain);
  o.set_version(version);
  return *this;
}
Maker& Maker::input(const std::string& name, const DimList& dims, int elem) {
  set_value(*graph().add_input(), name, dims, elem);
  return *this;
}
Maker& Maker::output(const std::string& name, const DimList& dims, int elem) {
  set_value(*graph().add_output(), name, dims, elem);
  return *this;
}
Maker& Maker::output(const std::string& name) {
  graph().add_output()->set_name(name);
  return *this;
}
Maker& Maker::weight(proto::TensorProto t) {
  *graph().add_initializer() = std::move(t);
  return *this;
}
Maker& Maker::add(proto::NodeProto n) {
  *graph().add_node() = std::move(n);
  return *this;
}
Result<ImportedModel> Maker::import_it(const ImportOptions& options, const std::string& directory) const {
  return onnx::import_bytes(bytes(), directory, options, "model.onnx");
}

Maker relu_model() { return Maker().input("x", {"b", 4}).add("Relu", {"x"}, {"y"}).output("y"); }

void expect_error(const Result<ImportedModel>& result, ErrorCode code, const Names& texts) {
  ASSERT_FALSE(result.ok());
  std::string text = result.error().str();
  EXPECT_EQ(info(result.error().code).name, info(code).name) << text;
  for (const auto& part : texts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

std::string type_of_output(const ImportedModel& model, size_t output) {
  return model.graph.type(model.graph.outputs().at(output).value).str();
}

const Tensor* weight_named(const Graph& graph, const std::string& name) {
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).results)
      if (v.valid() && graph.value(v).name == name) return graph.node(id).attributes.get<Tensor>("value");
  return nullptr;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera-onnx-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored; // a leftover folder fails no test
  std::filesystem::remove_all(path_, ignored);
}
std::string TemporaryFolder::write(const std::string& name, std::string_view bytes) const {
  std::string whole = path_ + "/" + name;
  std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
  std::ofstream(whole, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return whole;
}

} // namespace tessera::onnx_test
