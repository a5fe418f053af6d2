// The table of operators: which versions are imported, and what computes them on each device for each element type.
// Derived: versions from the records and the importer's table of old forms, routes from the plans of the records' samples
// (codegen/driver/planned_operators.h).
#pragma once
#include "codegen/driver/planned_operators.h"
#include "frontend/onnx/known_operators.h"

namespace tessera::command {

// How samples of one element type are computed on one device. An operator that becomes several has the route of the
// least of them: on the host if one is, else by a library if one is, else generated. Several routes where samples
// differ; none where nothing runs: what is computed when compiling, or is its operand as it is.
struct OperatorRoutes {
  std::string_view device; // "cpu"
  DType dtype = DType::F32;
  std::set<ComputedBy> by;
  bool nothing_runs = false; // of some sample
  std::string why;           // Host: why not on the device
};
struct OperatorRow {
  onnx::KnownOperator op;
  std::vector<OperatorRoutes> routes; // by device, then element type
};

struct OperatorFilter {
  std::vector<std::string> names, domains; // empty: all; "ai.onnx" is the default domain
  std::vector<std::string> devices;        // of devices()
  std::optional<DType> dtype;
};
// Errors: Usage for a name or a domain that no operator has, with a suggestion; those of planning.
[[nodiscard]] Result<std::vector<OperatorRow>> operator_table(const OperatorFilter& filter);

// "1-6, 9-12, 14-"
[[nodiscard]] std::string versions_text(const std::vector<onnx::KnownOperator::Versions>& versions);
// "int float f8e5m2": classes of element types where all of one are there, else their names.
[[nodiscard]] std::string dtypes_text(const std::set<DType>& dtypes);
// The classes, for a legend: "int" is "i8 i16 ...".
[[nodiscard]] std::vector<std::pair<std::string, std::string>> dtype_classes();
// docs/operators.md
[[nodiscard]] std::string operators_page(const std::vector<OperatorRow>& rows);

} // namespace tessera::command
