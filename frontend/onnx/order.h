// Topological order of a graph's nodes, and the names that they define and need.
#pragma once
#include "base/result.h"
#include "frontend/onnx/model_proto.h"
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tessera::onnx {

using Nodes = google::protobuf::RepeatedPtrField<proto::NodeProto>;

// Place of a node: file, its name (after `prefix`), operator, first output.
[[nodiscard]] Location locate(const proto::NodeProto& node, const std::string& file, const std::string& prefix = "");

// Indices of `nodes` such that producers come before their users, and otherwise as they stand in the file: a sorted
// graph keeps its order. Names that no node here defines are left to the caller. Near-linear; not recursive over nodes.
// Errors, MalformedModel: a cycle (its nodes are named), a value that two nodes define.
[[nodiscard]] Result<std::vector<int>> topological_order(const Nodes& nodes, const std::string& file,
                                                         const std::string& prefix);

// How many nodes there are, those of subgraphs included.
[[nodiscard]] int64_t count_nodes(const Nodes& nodes);
// Names that a subgraph reads from the graphs around it, in the order of their first use, each once.
[[nodiscard]] std::vector<std::string_view> free_names(const proto::GraphProto& graph);
// Names that nodes read, themselves or in their subgraphs.
void add_read_names(const Nodes& nodes, std::unordered_set<std::string_view>& names);

} // namespace tessera::onnx
