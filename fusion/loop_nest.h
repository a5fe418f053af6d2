// LoopNest: an operator, or several merged ones, as loops over a scalar DAG. No operator names, no views: those have
// vanished into index expressions.
//
// The idea. A nest has axes and a DAG (graph/scalar/scalar.h) whose Index nodes speak of the axes. Axes are outer or row
// axes. The row axes, taken together, are what reductions fold over; a value that depends on a row axis (through an
// Index or Load and not through a Reduce) exists for every point, any other value exists once per outer point. This one
// form holds
//   pointwise         outer axes only (a schedule may use any of them as vector axis)
//   reduction         outer axes, row axes, one Reduce, a store per outer point
//   softmax, norms    outer axes, row axes, a chain of Reduces, stores per point and per outer point
// Reductions run in the order of the DAG; a Reduce may depend on earlier Reduces.
//
//   nest Sub_14 outer(i0: b, i1: s) row(i2: 768) {
//     %0 = load z[i0, i1, i2] : f32
//     %1 = reduce.sum %0
//     %2 = mul(%1, 0.00130208) ...
//     store d[i0, i1, i2] = %3 : f16
//   }
// A load's operand number is an index into `loads`. Buffers are whole graph values: contiguous, row-major, of that
// value's type.
#pragma once
#include "graph/ir/graph.h"
#include "graph/ir/operator.h"
#include "graph/scalar/scalar.h"

namespace tessera {

enum class AxisRole : uint8_t { Outer, Row };

struct Axis {
  SymExpr var; // a symbol; its range in the nest's environment is [0, extent-1]
  SymExpr extent;
  AxisRole role = AxisRole::Outer;
};

struct Store {
  ValueId value;               // graph value that it defines
  std::vector<ScalarId> index; // i64 nodes, one per dimension of the value; pure Index nodes
  ScalarId scalar = -1;        // stored, cast to the value's dtype
  bool per_row = false;        // once per outer point: does not depend on row axes
};

// An element of a graph value that a nest computes at its points and does not store.
struct InnerValue {
  ValueId value;
  std::vector<SymExpr> index; // which element, over the axes; one index per dimension
  SymExpr condition = 1;      // the points at which `scalar` is this element
  ScalarId scalar = -1;
};

struct LoopNest {
  std::string name;           // of the first source node; for people
  std::vector<Axis> axes;     // outer ones first, each group in row-major order of its iteration
  std::vector<ValueId> loads; // operand number -> graph value
  ScalarDag dag;
  std::vector<Store> stores;
  std::vector<NodeId> sources; // graph nodes that went in, in order
  // With FusionOptions::keep_values: what can be stored in addition. Kernels do not depend on it.
  std::vector<InnerValue> inner;
  LoopNest();
  LoopNest(const LoopNest&);
  LoopNest(LoopNest&&) noexcept;
  LoopNest& operator=(const LoopNest&);
  LoopNest& operator=(LoopNest&&) noexcept;
  ~LoopNest();

  [[nodiscard]] bool has_reduction() const;
  [[nodiscard]] SymShape extents(AxisRole role) const;
  [[nodiscard]] SymExpr points() const; // product of all extents
};

// The nest of one pointwise, indexing or reduction node. `symbols`: axis symbols are created in graph.env().
// strict_rounding: cast every result to its storage dtype and back, as operator-by-operator execution would round.
[[nodiscard]] Result<LoopNest> make_nest(Graph& graph, NodeId node, bool strict_rounding);

// Which nodes depend on row axes other than through a Reduce; indexed by ScalarId.
[[nodiscard]] std::vector<bool> row_varying(const LoopNest& nest);
// Simplifies all index expressions under the axes' ranges, drops unused nodes, renumbers deterministically.
void normalize(LoopNest& nest, const ShapeEnv& env);
// Runs the nest over concrete tensors, one point at a time: what a nest means. `symbols` binds the sizes.
[[nodiscard]] Result<std::vector<Tensor>> interpret(const Graph& graph, const LoopNest& nest,
                                                    const std::vector<Tensor>& loads,
                                                    const std::unordered_map<uint64_t, int64_t>& symbols);
[[nodiscard]] Status verify(const Graph& graph, const LoopNest& nest);

// Text form; the parser needs the graph for the values' types and symbols.
[[nodiscard]] std::string print(const Graph& graph, const LoopNest& nest);
[[nodiscard]] Result<LoopNest> parse_nest(Graph& graph, std::string_view text);

} // namespace tessera
