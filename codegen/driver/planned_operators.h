// The routes by which a device computes each operator of a graph: derived from the plan that a compile for it makes,
// without code.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/driver/compile.h"

namespace tessera {

// Generated: a kernel of ours. Library: a call of one. Host: the operator's reference on the host (CPU fallback).
enum class ComputedBy : uint8_t { Generated, Library, Host };
[[nodiscard]] std::string_view name(ComputedBy by); // "generated", "library", "host"

struct PlannedOperator {
  std::string_view op;      // the record's name, of a primitive where the model's operator is a composite
  Location where;           // of the model's node
  DType dtype = DType::F32; // of its first operand that is not bool, else of its first result
  ComputedBy by = ComputedBy::Generated;
  std::string why; // Host: why not on the device
};

// The model's nodes that went into a group of a plan.
[[nodiscard]] std::vector<NodeId> nodes_of(const Group& group);

// The operators that are computed at each call: not constants, what is computed when compiling, aliases, nor integers
// that are read to become sizes. Bodies of If and loops are planned likewise. Errors: those of compile().
[[nodiscard]] Result<std::vector<PlannedOperator>> planned_operators(Graph graph, Backend& backend,
                                                                     const CompileOptions& options);

} // namespace tessera
