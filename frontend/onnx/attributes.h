// AttributeProto to Attribute, checked against the operator's record.
#pragma once
#include "frontend/onnx/order.h"
#include "frontend/onnx/weights.h"
#include "graph/ir/operator.h"

namespace tessera::onnx {

struct Scope;

// An attribute as a node has it, after references to the attributes of the surrounding function were followed. `scope`
// is where it was written: names in a subgraph mean values of that scope.
struct BoundAttribute {
  const proto::AttributeProto* value = nullptr;
  const Scope* scope = nullptr;
};
using BoundAttributes = std::vector<std::pair<std::string_view, BoundAttribute>>; // by name on the node, in file order

// The attributes of a node. `function` holds those of the call that is being inlined (nullptr outside of functions): a
// reference to one that the call does not give leaves the attribute out. Error BadAttribute: given twice, type differs
// from the reference's.
[[nodiscard]] Result<BoundAttributes> bind_attributes(const proto::NodeProto& node, const Scope& scope,
                                                      const std::map<std::string_view, BoundAttribute>* function,
                                                      const Location& where);

// Everything but subgraphs. `kind` is what the record requires. nullopt: the value says "not given" (an element type of
// 0). Errors: BadAttribute where the type differs, those of weights.
[[nodiscard]] Result<std::optional<Attribute>> convert_attribute(const proto::AttributeProto& value, AttrKind kind,
                                                                 WeightLoader& weights, const Location& where);
// The same where no record says the kind: as the attribute is written. Error BadAttribute for subgraphs and other types
// that an old form of an operator does not have.
[[nodiscard]] Result<Attribute> attribute_as_written(const proto::AttributeProto& value, WeightLoader& weights,
                                                     const Location& where);
[[nodiscard]] Diagnostic wrong_attribute_type(const proto::AttributeProto& value, std::string_view wanted,
                                              const Location& where);

// The tensor that an ONNX Constant node stands for. Error BadAttribute when it has not exactly one value.
[[nodiscard]] Result<Tensor> constant_value(const BoundAttributes& attributes, WeightLoader& weights,
                                            const Location& where);

} // namespace tessera::onnx
