// Cost model: bytes as expressions, and estimates of them for decisions.
//
// Decisions compare numbers, so symbols take representative sizes: the hint of the call that led to this compilation,
// else 128, clamped to what is known of the symbol. The same graph thus always gets the same plan.
#pragma once
#include "fusion/detail.h"
#include "fusion/loop_nest.h"

namespace tessera::fusion {

inline constexpr double kRepresentativeSize = 128;

// A number of bytes for people: "4.2 MB", "38.0 kB".
[[nodiscard]] std::string bytes_text(double bytes);
[[nodiscard]] SymExpr byte_count(DType dtype, const SymExpr& elements);
[[nodiscard]] SymExpr byte_count(const Graph& graph, ValueId value);

class Estimator {
public:
  explicit Estimator(const ShapeEnv& env) : env_(env) {}
  [[nodiscard]] double operator()(const SymExpr& e);

private:
  const ShapeEnv& env_;
  std::unordered_map<SymExpr, double> done_;
};

// At the sizes that the planner took.
[[nodiscard]] std::string detail_text(const Graph& graph, const Detail& detail);

// A view that keeps the number of elements and their order: free also by itself.
[[nodiscard]] bool moves_nothing(const Graph& graph, NodeId node);

// Bytes of `nest.loads[k]` that the nest reads: all of the value, or as many elements as there are points that differ
// in its index where those are fewer (slices, gathers).
[[nodiscard]] std::vector<SymExpr> bytes_read(const Graph& graph, const LoopNest& nest, Estimator& estimate);
// Scalar operations of a nest at all its points: arithmetic, comparisons, folds; no loads, indices or casts.
[[nodiscard]] SymExpr operations(const LoopNest& nest);
// Instructions of a nest's body by scalar_op's table; no loads and indices.
[[nodiscard]] double instructions(const LoopNest& nest);
// The bytes that a node moves when it runs by itself. A view that only renames positions moves nothing.
[[nodiscard]] SymExpr bytes_alone(const Graph& graph, NodeId node);

} // namespace tessera::fusion
