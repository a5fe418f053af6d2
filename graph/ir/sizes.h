// Sizes that only running a node defines: how many elements NonZero finds, integers that are read.
#pragma once
#include "graph/ir/graph.h"
#include <unordered_map>

namespace tessera {

struct DefinedSize {
  SymExpr symbol;
  int result;       // of the node
  int dim = -1;     // of that result: the symbol is its size
  int element = -1; // of that result, row-major: the symbol is its value
};
// In the order of results; a symbol once. Inputs may bind some of them: those are not defined by the node.
[[nodiscard]] std::vector<DefinedSize> defined_sizes(const Graph& graph, const Node& node);

// Whether a node `read` reads this value: itself, or its elements as a vector.
[[nodiscard]] bool reads(const Graph& graph, const Node& read, ValueId value);

// Every size that a graph, its subgraphs and their guards speak of.
[[nodiscard]] std::vector<SymExpr> all_sizes(const Graph& graph);

class SizeDefiners {
public:
  explicit SizeDefiners(const Graph& graph);
  // Calls f with each node that defines a size which `node` needs: one of its results' sizes, of its attributes, or of
  // the known contents of its operands. Not with `node` itself.
  template <class F>
  void needed_by(const Graph& graph, NodeId node, F&& f) const {
    if (by_symbol_.empty()) return;
    for (const SymExpr& e : sizes_of(graph, node))
      needed_by(e, [&](NodeId definer) {
        if (definer != node) f(definer);
      });
  }
  // The same for an expression.
  template <class F>
  void needed_by(const SymExpr& e, F&& f) const {
    for (const SymExpr& symbol : e.symbols())
      if (auto it = by_symbol_.find(symbol.symbol_id()); it != by_symbol_.end()) f(it->second);
  }

private:
  [[nodiscard]] static std::vector<SymExpr> sizes_of(const Graph& graph, NodeId node);
  std::unordered_map<uint64_t, NodeId> by_symbol_;
};

inline constexpr int64_t kContentsLimit = 1024; // elements of a tensor whose contents are followed
// Names of the symbols of a value that is read: "axes", or "axes_0", "axes_1" ...
[[nodiscard]] std::vector<std::string> read_symbols(std::string_view name, int64_t count);
// The result of a node `read` of the value, if the graph has one.
[[nodiscard]] ValueId read_of(const Graph& graph, ValueId value);
} // namespace tessera
