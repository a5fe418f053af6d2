// Versions of operator sets and of the file format that are understood.
#pragma once
#include "base/result.h"
#include "frontend/onnx/model_proto.h"
#include <map>
#include <string>
#include <vector>

namespace tessera::onnx {

inline constexpr int64_t kOldestIrVersion = 1;
inline constexpr int64_t kLastIrWithWeightsAsInputs = 3; // there every initializer is an input as well
inline constexpr int64_t kFirstIrWithOpsets = 3;         // older models are of opset 1, and import none
inline constexpr int64_t kNewestOpset = 28;              // of the default domain

using Opsets = std::map<std::string, int64_t, std::less<>>; // domain -> version; "" is the default domain

// "ai.onnx" is another name of the default domain "".
[[nodiscard]] inline std::string_view canonical_domain(std::string_view domain) {
  return domain == "ai.onnx" ? "" : domain;
}
// "Foo", or "com.example.Foo".
[[nodiscard]] std::string full_op_name(std::string_view domain, std::string_view op_type);

// Reads opset imports and checks their versions. Of a domain that is imported twice the last version counts, and two
// different ones are a warning. `of`: what imports them ("the model", "function 'f'"). Errors: MalformedModel (a version
// below 1), UnsupportedFeature (one that is not known yet).
[[nodiscard]] Result<Opsets> read_opsets(const google::protobuf::RepeatedPtrField<proto::OperatorSetIdProto>& imports,
                                         const std::string& file, const std::string& of,
                                         std::vector<std::string>& warnings);

} // namespace tessera::onnx
