// Types and contents follow from a node's record and its operands, as do checks of operands and attributes.
// `Graph::add_node` stands here (add_node.cpp), as it infers what it adds.
#pragma once
#include "graph/ir/bodies.h"
#include "graph/ir/sizes.h"

namespace tessera {

// Given the graph (environment, operand types, contents) and the node; yields one type per result and, where it can,
// contents.
struct InferContext {
  Graph& graph;
  const Node& node;                                          // operands, attributes, opset, location
  int result_count;                                          // how many results are wanted
  std::vector<TensorType> results;                           // to fill
  std::vector<std::optional<std::vector<SymExpr>>> contents; // to fill, optional

  [[nodiscard]] bool has(int operand) const; // given and not left out
  [[nodiscard]] const TensorType& type(int operand) const;
  [[nodiscard]] const SymShape& shape(int operand) const { return type(operand).shape; }
  [[nodiscard]] ShapeEnv& env() const { return graph.env(); }
  // Operands whose contents are read when the model runs: what known() found no contents of. add_node() gives the node
  // a `read` of each.
  struct Read {
    int operand;
    std::vector<SymExpr> symbols; // the contents, row-major
  };
  std::vector<Read> reads = {};

  // Integer contents of an operand that steer sizes (shapes, repeats, starts): constants, sizes, or symbols that a
  // `read` of the operand defines when the model runs. Error UnsupportedFeature where even their number is unknown.
  [[nodiscard]] Result<std::vector<SymExpr>> known(int operand);
  // Contents that must be constants (axes, permutations): of symbols, those of the hints, and where there are none their
  // positions; both are assumed, so that another call is a miss. Error UnsupportedFeature where a size has no hint.
  [[nodiscard]] Result<Ints> known_ints(int operand);
  // An axis attribute or value brought into [0, rank). Error BadAttribute.
  [[nodiscard]] Result<int64_t> axis(int64_t a, int rank) const;
  [[nodiscard]] Diagnostic error(ErrorCode code, std::string message) const; // with location
};

// Runs `infer` (or derives it): fills results, and contents where the record does or the node has its results already;
// checks operand count, dtypes and attributes against the record.
[[nodiscard]] Status infer_node(InferContext& context);
// Symbolic contents from the meaning: interprets a pointwise, indexing or reduction body over the contents of the
// operands when all of them are known and small (<= 1024 elements); nullopt otherwise. The node's results must be in
// the graph.
[[nodiscard]] std::optional<std::vector<SymExpr>> infer_contents(const Graph& graph, const Node& node,
                                                                 const TensorType& result, int result_index = 0);

// The elements of a small integer value that follows from constants alone, row-major; nullopt of any other value.
[[nodiscard]] std::optional<std::vector<SymExpr>> constant_contents(const Graph& graph, ValueId id);
// Binds the sizes that only running `node` defines (bind_read_sizes), with the contents of its results, where its few
// operands follow from constants; other nodes stay as they are.
void bind_constant_node(Graph& graph, NodeId node);
} // namespace tessera
