#include "frontend/onnx/order.h"
#include "frontend/onnx/opsets.h"
#include <unordered_map>
#include <unordered_set>

namespace tessera::onnx {

namespace {

// Calls visit(subgraph) for every graph that the node's attributes hold.
template <class Visit>
void for_each_subgraph(const proto::NodeProto& node, const Visit& visit) {
  for (const auto& a : node.attribute()) {
    if (a.has_g()) visit(a.g());
    for (const auto& g : a.graphs()) visit(g);
  }
}

// How diagnostics call a node: its name, or the value it defines.
std::string shown(const proto::NodeProto& node) {
  if (!node.name().empty()) return "'" + node.name() + "' (" + node.op_type() + ")";
  std::string output = node.output_size() > 0 ? node.output(0) : "";
  return node.op_type() + " of '" + output + "'";
}

// Nodes from the one that `open` ends with back to `start`, as text: a cycle, in the direction of the data.
std::string describe_cycle(const Nodes& nodes, const std::vector<int>& open, int start) {
  constexpr size_t kShown = 8;
  std::vector<int> cycle;
  for (size_t i = open.size(); i-- > 0;) {
    cycle.push_back(open[i]);
    if (open[i] == start) break;
  }
  std::string text;
  for (size_t i = 0; i < cycle.size() && i < kShown; ++i) text += shown(nodes[cycle[i]]) + " -> ";
  if (cycle.size() > kShown) text += "... (" + std::to_string(cycle.size() - kShown) + " more) -> ";
  return text + shown(nodes[cycle[0]]);
}

} // namespace

Location locate(const proto::NodeProto& node, const std::string& file, const std::string& prefix) {
  Location where;
  where.file = file;
  for (const auto& output : node.output()) {
    if (output.empty()) continue;
    where.output = output;
    break;
  }
  if (!node.name().empty() || !prefix.empty()) where.node = prefix + (node.name().empty() ? where.output : node.name());
  where.op = full_op_name(node.domain(), node.op_type());
  return where;
}

std::vector<std::string_view> free_names(const proto::GraphProto& graph) {
  std::unordered_set<std::string_view> defined, seen;
  for (const auto& v : graph.input()) defined.insert(v.name());
  for (const auto& t : graph.initializer()) defined.insert(t.name());
  for (const auto& t : graph.sparse_initializer()) defined.insert(t.values().name());
  for (const auto& n : graph.node()) defined.insert(n.output().begin(), n.output().end());
  std::vector<std::string_view> out;
  auto use = [&](std::string_view name) {
    if (!name.empty() && !defined.contains(name) && seen.insert(name).second) out.push_back(name);
  };
  for (const auto& n : graph.node()) {
    for (const auto& input : n.input()) use(input);
    for_each_subgraph(n, [&](const proto::GraphProto& g) {
      for (auto name : free_names(g)) use(name);
    });
  }
  for (const auto& v : graph.output()) use(v.name());
  return out;
}

void add_read_names(const Nodes& nodes, std::unordered_set<std::string_view>& names) {
  for (const auto& n : nodes) {
    names.insert(n.input().begin(), n.input().end());
    for_each_subgraph(n, [&](const proto::GraphProto& g) {
      for (auto name : free_names(g)) names.insert(name);
    });
  }
}

Result<std::vector<int>> topological_order(const Nodes& nodes, const std::string& file, const std::string& prefix) {
  std::unordered_map<std::string_view, int> producer;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const auto& output : nodes[i].output()) {
      if (output.empty()) continue;
      auto [it, fresh] = producer.emplace(output, i);
      if (!fresh)
        return Diagnostic(ErrorCode::MalformedModel, locate(nodes[i], file, prefix),
                          "defines '" + output + "', which node " + shown(nodes[it->second]) + " defines already");
    }
  }
  std::vector<std::vector<int>> needs(static_cast<size_t>(nodes.size()));
  for (int i = 0; i < nodes.size(); ++i) {
    auto need = [&](std::string_view name) {
      if (auto it = producer.find(name); it != producer.end()) needs[static_cast<size_t>(i)].push_back(it->second);
    };
    for (const auto& input : nodes[i].input()) need(input);
    for_each_subgraph(nodes[i], [&](const proto::GraphProto& g) {
      for (auto name : free_names(g)) need(name);
    });
  }

  enum : uint8_t { New, Open, Done };
  std::vector<uint8_t> state(needs.size(), New);
  std::vector<int> out, open;
  std::vector<size_t> next(needs.size(), 0);
  out.reserve(needs.size());
  for (int start = 0; start < nodes.size(); ++start) {
    if (state[static_cast<size_t>(start)] != New) continue;
    open.push_back(start);
    state[static_cast<size_t>(start)] = Open;
    while (!open.empty()) {
      auto top = static_cast<size_t>(open.back());
      if (next[top] == needs[top].size()) {
        state[top] = Done;
        out.push_back(open.back());
        open.pop_back();
        continue;
      }
      int below = needs[top][next[top]++];
      auto& s = state[static_cast<size_t>(below)];
      if (s == Open)
        return Diagnostic(ErrorCode::MalformedModel, locate(nodes[below], file, prefix),
                          "the graph has a cycle: " + describe_cycle(nodes, open, below));
      if (s == New) {
        s = Open;
        open.push_back(below);
      }
    }
  }
  return out;
}

int64_t count_nodes(const Nodes& nodes) {
  int64_t count = nodes.size();
  for (const auto& node : nodes)
    for (const auto& a : node.attribute()) {
      if (a.type() == proto::AttributeProto::GRAPH) count += count_nodes(a.g().node());
      for (const auto& graph : a.graphs()) count += count_nodes(graph.node());
    }
  return count;
}

} // namespace tessera::onnx
