// SequenceMap: a graph for each item of sequences, as a Loop over their items.
#pragma once
#include "frontend/onnx/order.h"

namespace tessera::onnx {

// Nodes that stand for a SequenceMap of `map`, in order. `sequences`: which of its operands are sequences; the first one
// is, and its length counts. Error MalformedModel where node and graph do not fit each other.
[[nodiscard]] Result<std::vector<proto::NodeProto>> sequence_map_as_loop(const proto::NodeProto& node,
                                                                         const proto::GraphProto& map,
                                                                         const std::vector<bool>& sequences,
                                                                         const Location& where);

} // namespace tessera::onnx
