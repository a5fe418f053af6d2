// A model's configuration, as Triton's config.pbtxt has it: made from the model's inputs and outputs, checked against
// them, printed. Used by the backend and by `tessera triton`.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::triton {

using Json = nlohmann::ordered_json; // with the fields of Triton's message ModelConfig

// An element type that Triton has.
struct ElementType {
  int onnx;           // number of TensorProto.DataType, as the C interface's tessera_dtype
  int triton;         // TRITONSERVER_DataType
  const char* config; // "TYPE_FP32"
  size_t bytes;       // of an element; 0 for strings, which have no fixed size
};
[[nodiscard]] const ElementType* element_type(int onnx); // null where Triton has none

// An input or output as the model declares it. dims: numbers, or expressions over symbols ("768", "batch", "2*seq").
struct Value {
  std::string name;
  int onnx; // its element type; -1 for a list
  std::vector<std::string> dims;
  bool any_rank = false; // calls decide how many there are
};
struct Interface {
  std::vector<Value> inputs, outputs;
};

// Why there is no configuration, and what to do.
struct Refusal {
  std::string message, hint;
};

// The symbol that is dimension 0 of every input and output and stands in no other dimension, or why there is none.
[[nodiscard]] std::variant<std::string, Refusal> batch_symbol(const Interface& model);

// The rows that a call may have where the caller did not give a number and the model has a batch dimension.
inline constexpr int kMaxBatch = 32;

struct ConfigOptions {
  std::string name;
  std::optional<int> max_batch; // 0: no batching; empty: kMaxBatch where there is a batch dimension, else 0
  int instances = 1;            // contexts, each of which executes one batch at a time
  std::string device = "auto";  // "cpu", "cuda", "cuda:1"
  std::map<std::string, std::string> parameters;
};
// Refused: a batch without a batch dimension, a value whose rank calls decide, a list, an element type that Triton lacks, a model without outputs.
[[nodiscard]] std::variant<Json, Refusal> make_config(const Interface& model, const ConfigOptions& options);

// Inputs, outputs and, where neither is given, the batch size that `config` leaves out. Refusals as of make_config().
[[nodiscard]] std::variant<Json, Refusal> complete_config(Json config, const Interface& model);
// Whether the names, element types and ranks in `config` are the model's.
[[nodiscard]] std::optional<Refusal> check_config(const Json& config, const Interface& model);

// The configuration in protobuf's text form, as config.pbtxt holds it.
[[nodiscard]] std::string config_text(const Json& config);

} // namespace tessera::triton
