// A call of a function of an operator of a library (operators.h): what the function may see of the node, and what it has
// said.
#pragma once
#include "api/operators.h"
#include "graph/ops/added.h"
#include "graph/ops/builder.h"
#include <deque>

// One of infer, build, kernel and reference is there: it says which function is being called.
struct tessera_operator_call {
  const tessera::Node& node;
  std::vector<std::optional<tessera::TensorType>> operands; // their types; nothing where one is left out
  int results = 0;                                          // that are wanted
  // In calls of `shape`:
  tessera::InferContext* infer = nullptr;
  bool sizes_of_data = false;
  std::vector<bool> typed; // results whose type was set
  // In calls of `decompose`:
  tessera::ops::B* build = nullptr;
  std::vector<tessera::ValueId> values; // by tessera_value
  std::vector<tessera::ValueId> yielded;
  // In calls of `kernel`:
  bool kernel = false;
  std::string_view device;
  const tessera::ShapeEnv* env = nullptr;
  std::optional<tessera::TileText> text;
  // In calls of `run`:
  tessera::ReferenceContext* reference = nullptr;
  std::vector<std::vector<std::string>> strings; // of results

  std::vector<tessera::SymExpr> dims = {}; // by tessera_dim
  std::optional<tessera::Diagnostic> error = {};
  std::deque<std::vector<const char*>> texts = {}; // that attributes were read as

  void fail(tessera::ErrorCode code, std::string message);
};

namespace tessera {

[[nodiscard]] const tessera_operators_api& operators_api();
// Calls the function; its first error, with the node's place. Exceptions end here.
[[nodiscard]] Status call_operator(tessera_operator_call& call, tessera_operator_function function, void* user);
// Adds an operator to a registry: tessera_operators_api::add (operators.cpp).
const char* add_operator_to(tessera_registry* registry, const tessera_operator* op);

} // namespace tessera
