#include "frontend/onnx/functions.h"
#include <set>

namespace tessera::onnx {

namespace {
Status no_duplicates(const google::protobuf::RepeatedPtrField<std::string>& names, const char* what,
                     const std::string& function, const Location& where) {
  std::set<std::string_view> seen;
  for (const auto& name : names)
    if (!seen.insert(name).second)
      return Diagnostic(ErrorCode::MalformedModel, where,
                        "function '" + function + "' has two " + what + " called '" + name + "'");
  return {};
}
} // namespace

Status FunctionTable::read(const proto::ModelProto& model, const std::string& file,
                           std::vector<std::string>& warnings) {
  Location where;
  where.file = file;
  for (const auto& f : model.functions()) {
    std::string shown = full_op_name(f.domain(), f.name());
    bool fresh = functions_
                     .emplace(std::tuple(canonical_domain(f.domain()), std::string_view(f.name()),
                                         std::string_view(f.overload())),
                              &f)
                     .second;
    if (!fresh) return Diagnostic(ErrorCode::MalformedModel, where, "function '" + shown + "' is defined twice");
    TESSERA_TRY(no_duplicates(f.input(), "inputs", shown, where));
    TESSERA_TRY(no_duplicates(f.output(), "outputs", shown, where));
    TESSERA_TRY(no_duplicates(f.attribute(), "attributes", shown, where));
    std::set<std::string_view> with_default;
    for (const auto& a : f.attribute_proto())
      if (!with_default.insert(a.name()).second)
        return Diagnostic(ErrorCode::MalformedModel, where,
                          "function '" + shown + "' has two defaults of attribute '" + a.name() + "'");
    TESSERA_ASSIGN(Opsets opsets, read_opsets(f.opset_import(), file, "function '" + shown + "'", warnings));
    opsets_.emplace(&f, std::move(opsets));
  }
  return {};
}

const proto::FunctionProto* FunctionTable::find(const proto::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  auto it = functions_.find({canonical_domain(node.domain()), node.op_type(), node.overload()});
  return it == functions_.end() ? nullptr : it->second;
}

} // namespace tessera::onnx
