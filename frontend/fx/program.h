// A program of torch.export as its JSON states it (schema version 8): nodes that call ATen operators, values by name.
// Nothing here knows what an operator means.
#pragma once
#include "base/dtype.h"
#include "base/result.h"
#include "frontend/fx/checked.h"
#include "symbols/expr.h"
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::fx {

inline constexpr int64_t kSchemaMajor = 8; // the one major version of the schema that is understood

struct FxGraph;

// One argument or result: a union in the schema.
struct Argument {
  enum class Kind : uint8_t {
    None,
    Tensor,       // name
    Int,          // integer
    Float,        // number
    Bool,         // integer, 0 or 1
    Complex,      // number, imaginary
    String,       // name
    SymInt,       // name of a value of the graph
    SymFloat,     // name
    SymBool,      // name
    ScalarType,   // dtype; nothing where we have no such type
    MemoryFormat, // integer: 1 contiguous, 2 channels_last, 3 channels_last_3d, 4 preserve
    Layout,       // integer: 7 strided
    Device,       // name ("cpu", "cuda")
    List,         // items: of tensors, numbers, strings
    Graph,        // name, graph
    Operator,     // name
    Unknown,      // name: the schema's key for it
  };
  Kind kind = Kind::None;
  std::string name;
  int64_t integer = 0;
  double number = 0, imaginary = 0;
  std::optional<DType> dtype;
  std::vector<Argument> items;
  std::shared_ptr<FxGraph> graph;

  [[nodiscard]] bool is_none() const { return kind == Kind::None; }
};
[[nodiscard]] std::string_view name(Argument::Kind kind); // "a tensor", "an integer"

// A size, stride or offset: a number, or an expression over symbols as sympy's srepr writes it.
struct Size {
  int64_t constant = 0;
  std::string expression;      // empty for a constant
  std::optional<int64_t> hint; // value when the program was captured
};

// The exporter's description of a tensor.
struct TensorMeta {
  std::optional<DType> dtype;       // nothing where we have no such type
  int64_t dtype_number = 0;         // as the schema has it
  std::vector<Size> sizes, strides; // strides in elements
  Size storage_offset;              // in elements
  std::string device = "cpu";
};

// A symbolic integer or boolean of the graph: what it is equal to.
struct SymValue {
  Size value;
};

struct NamedArgument {
  std::string name; // of the operator's schema
  Argument value;
};

struct FxNode {
  std::string target; // "torch.ops.aten.add.Tensor", "_operator.mul"
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs; // Tensor, SymInt ..., List of tensors, None
  std::string module;            // path of the module that the call is in: "layers.0.attention"; empty for the root
  std::string source;            // the user's line: "model.py:42"; empty where it is not known
};

struct FxGraph {
  std::vector<Argument> inputs, outputs;
  std::vector<FxNode> nodes;
  std::map<std::string, TensorMeta, std::less<>> tensors;           // by value name
  std::map<std::string, SymValue, std::less<>> sym_ints, sym_bools; // an expression that is 0 or 1 for a boolean
  bool single_tensor_return = false;                                // of subgraphs
};

struct InputSpec {
  enum class Kind : uint8_t { User, Parameter, Buffer, TensorConstant, Constant, Token, CustomObject };
  Kind kind = Kind::User;
  Argument argument;      // the value of the graph
  std::string target;     // of parameters, buffers, constants: their name in the module ("fc.weight")
  bool persistent = true; // buffers
  Argument constant;      // Constant: its value
};
struct OutputSpec {
  enum class Kind : uint8_t { User, Loss, BufferMutation, InputMutation, ParameterMutation, Gradient, Token };
  Kind kind = Kind::User;
  Argument argument;
  std::string target; // mutations: name of the buffer, or of the user input, that takes the value
};

struct SymRangeSpec {
  std::optional<int64_t> min, max;
};

struct Program {
  int64_t schema_major = 0, schema_minor = 0;
  std::string torch_version;
  int64_t aten_opset = 0;
  FxGraph graph;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::map<std::string, SymRangeSpec, std::less<>> ranges; // by symbol
  std::vector<std::string> guards;                         // conditions on inputs as Python's text (guards.h)
};

// Reads the JSON of an exported program. Errors: MalformedModel naming the place in the document, UnsupportedFeature
// for another major version of the schema.
[[nodiscard]] Result<Program> parse_program(std::string_view json, const std::string& file);

// The archive's description of a weight or constant: its entry, and its layout there.
struct PayloadSpec {
  std::string file;               // name of the entry in its folder; several weights may share one
  bool pickled = false;           // an object of Python in the place of bytes
  std::optional<TensorMeta> meta; // sizes, strides and offset in the entry, which is a whole storage
};
using PayloadSpecs = std::map<std::string, PayloadSpec, std::less<>>; // by name in the module
// Reads a list of payloads (weights_config.json, constants_config.json). `name` is the entry's, for messages. Error
// MalformedModel naming the place in the document.
[[nodiscard]] Result<PayloadSpecs> parse_payloads(std::string_view json, const std::string& name);

// DType of the schema's number for it; nothing for types that we do not have.
[[nodiscard]] std::optional<DType> dtype_of_schema(int64_t number);
// "float8_e5m2fnuz", for messages.
[[nodiscard]] std::string dtype_name_of_schema(int64_t number);

} // namespace tessera::fx
