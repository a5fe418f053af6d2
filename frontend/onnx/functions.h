// Local functions of a model, by domain, name and overload.
#pragma once
#include "frontend/onnx/opsets.h"
#include <tuple>

namespace tessera::onnx {

class FunctionTable {
public:
  // Reads the functions and their opset imports. Errors: MalformedModel (defined twice, attribute or value named
  // twice), those of read_opsets().
  [[nodiscard]] Status read(const proto::ModelProto& model, const std::string& file,
                            std::vector<std::string>& warnings);
  // nullptr when the node calls an operator. A function of the model comes before an operator of the same name.
  [[nodiscard]] const proto::FunctionProto* find(const proto::NodeProto& node) const;
  [[nodiscard]] const Opsets& opsets(const proto::FunctionProto& function) const { return opsets_.at(&function); }

private:
  std::map<std::tuple<std::string_view, std::string_view, std::string_view>, const proto::FunctionProto*> functions_;
  std::map<const proto::FunctionProto*, Opsets> opsets_; // only looked up
};

} // namespace tessera::onnx
