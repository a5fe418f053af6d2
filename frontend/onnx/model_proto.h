// Bytes to ModelProto, without copying the weights that lie in them.
//
// The idea. Protobuf copies every `bytes` field into a string of its own, and refuses messages above 2 GiB. Weights
// inside a model are such fields (TensorProto.raw_data of graph.initializer). So the bytes are first walked once on the
// level of the wire format, jumping from field to field: long raw_data fields of initializers are noted and left out,
// and the length prefixes around them are corrected. Protobuf then parses a stream of pieces: everything else, in
// place.
#pragma once
#include "base/result.h"
#include "tessera_onnx.pb.h"
#include <memory>
#include <string_view>
#include <vector>

namespace tessera::onnx {

namespace proto = ::tessera::onnx_proto;

// Nesting of messages; a subgraph in a subgraph takes three levels.
inline constexpr int kMaxMessageDepth = 100;

struct ParsedModel {
  std::unique_ptr<proto::ModelProto> model;
  // By index of graph.initializer: its raw_data where it was left out of the message, a part of the bytes given; else
  // empty.
  std::vector<std::string_view> raw;
};

// Errors: MalformedModel for what is no protobuf of this kind, UnsupportedFeature where more than 2 GiB are left
// without the weights.
[[nodiscard]] Result<ParsedModel> parse_model(std::string_view bytes, const std::string& file);
// Parses any message of ONNX, with the same limits.
[[nodiscard]] Status parse_message(std::string_view bytes, google::protobuf::MessageLite& message,
                                   const std::string& file);

} // namespace tessera::onnx
