// Small ModelProtos, written down briefly.
#pragma once
#include "frontend/onnx/importer.h"
#include "tessera_onnx.pb.h"
#include <functional>
#include <initializer_list>

namespace tessera::onnx_test {

namespace proto = ::tessera::onnx_proto;

// A dimension: a size, a name, or unnamed ("").
struct Dim {
  Dim(int64_t v) : value(v) {}                 // NOLINT: implicit on purpose
  Dim(int v) : value(v) {}                     // NOLINT
  Dim(const char* n) : name(n), named(true) {} // NOLINT
  int64_t value = 0;
  std::string name;
  bool named = false;
};
using DimList = std::vector<Dim>;
using Names = std::vector<std::string>;

void set_type(proto::TypeProto& type, const DimList& dims, int elem = proto::TensorProto::FLOAT);
void set_value(proto::ValueInfoProto& v, const std::string& name, const DimList& dims,
               int elem = proto::TensorProto::FLOAT);

proto::AttributeProto int_attribute(const std::string& name, int64_t v);
proto::AttributeProto ints_attribute(const std::string& name, const Ints& v);
proto::AttributeProto float_attribute(const std::string& name, float v);
proto::AttributeProto string_attribute(const std::string& name, const std::string& v);
proto::AttributeProto tensor_attribute(const std::string& name, const proto::TensorProto& v);
proto::AttributeProto graph_attribute(const std::string& name, const proto::GraphProto& v);
proto::AttributeProto reference(const std::string& name, const std::string& to,
                                proto::AttributeProto::AttributeType type);

proto::TensorProto float_tensor(const std::string& name, const Dims& dims, const std::vector<float>& values);
proto::TensorProto int64_tensor(const std::string& name, const Dims& dims, const Ints& values);

// A node named after its first output: "n_y".
proto::NodeProto node(const std::string& op, const Names& inputs, const Names& outputs,
                      std::initializer_list<proto::AttributeProto> attributes = {}, const std::string& domain = "");

struct Maker {
  proto::ModelProto model;
  Maker(int64_t opset = 17);
  proto::GraphProto& graph() { return *model.mutable_graph(); }
  Maker& import(const std::string& domain, int64_t version);
  Maker& input(const std::string& name, const DimList& dims, int elem = proto::TensorProto::FLOAT);
  Maker& output(const std::string& name, const DimList& dims, int elem = proto::TensorProto::FLOAT);
  Maker& output(const std::string& name); // without a type
  Maker& weight(proto::TensorProto t);
  Maker& add(proto::NodeProto n);
  Maker& add(const std::string& op, const Names& inputs, const Names& outputs,
             std::initializer_list<proto::AttributeProto> attributes = {}, const std::string& domain = "") {
    return add(node(op, inputs, outputs, attributes, domain));
  }
  [[nodiscard]] std::string bytes() const { return model.SerializeAsString(); }
  [[nodiscard]] Result<ImportedModel> import_it(const ImportOptions& options = {},
                                                const std::string& directory = "") const;
};

// x: f32[b, 4] -> y = Relu(x)
Maker relu_model();

// The error, with its parts checked: the code, and each text somewhere in Diagnostic::str().
void expect_error(const Result<ImportedModel>& result, ErrorCode code, const Names& texts);
std::string type_of_output(const ImportedModel& model, size_t output = 0);
const Tensor* weight_named(const Graph& graph, const std::string& name);

// A folder of its own that is gone at the end.
class TemporaryFolder {
public:
  TemporaryFolder();
  ~TemporaryFolder();
  [[nodiscard]] const std::string& path() const { return path_; }
  std::string write(const std::string& name, std::string_view bytes) const; // returns the whole path

private:
  std::string path_;
};

} // namespace tessera::onnx_test
