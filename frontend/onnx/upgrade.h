// Old forms of ONNX's operators, brought to forms that the records understand.
//
// A record understands every version of its operator from the one that its OnnxName states; what differs between those
// is decided by Node::opset inside of it. Anything older, and the experimental operators of the first exporters, is one
// row of the table here: the operator, the versions that have the form, and what the form becomes. Several rows may
// apply to a node; they do so in the order of the table.
#pragma once
#include "graph/ir/operator.h"

namespace tessera::onnx {

struct OperatorForm {
  std::string op_type; // of the default domain
  int opset = 0;
  std::vector<ValueId> operands;
  Attributes attributes; // of kinds as written, where the record does not have them
  Location where;
  int results = 1;
  std::function<bool(int)> is_read = {}; // whether anything in the model reads that result
  std::optional<ValueId> value = {};     // set where the form became other operators: they yield the one result
};

// Whether a row of the table is for this operator of the default domain.
[[nodiscard]] bool has_old_form(std::string_view op_type, int opset);
// Applies the rows that are for the operator. Errors: BadAttribute, UnsupportedFeature, those of the operators made.
[[nodiscard]] Status upgrade(Graph& graph, OperatorForm& form, std::vector<std::string>& warnings);

// The rows that name operators of the default domain, in the order of the table.
struct OldForm {
  std::string_view op_type;
  int since, until;         // versions that have the form
  std::string_view becomes; // the operator made
  int version;              // of the form made; 0: as it was, or several operators
};
[[nodiscard]] std::vector<OldForm> old_forms();
// An operator that has no record, applied to one image f32[1, 3, 4, 6]: what its old form becomes. Errors: those of
// upgrade(); UnsupportedOp where a record has the operator.
[[nodiscard]] Result<Graph> old_form_example(std::string_view op_type);

} // namespace tessera::onnx
