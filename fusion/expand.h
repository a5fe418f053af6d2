// Expander: makes the nest of one graph value, with producers that are not in memory written out in place of loads.
//
// A value that is "virtual" is a function from an index to a scalar: the body of its operator, whose loads are again
// elements of values. Views, concat, pad, gather and pointwise operators are all of this form, so a load of a virtual
// value is replaced by its body at that index, and so on down to memory. A reshape between two operators thus leaves
// nothing but the arithmetic on indices, which the environment simplifies.
//
// A load with a predicate (pad, concat) yields 0 where the predicate is false and reads nothing. Expanding its value
// keeps both promises: every load and every bounds check within the body takes the predicate, and the body's result is
// selected against 0.
#pragma once
#include "fusion/rewrite.h"

namespace tessera::fusion {

// The value that is constant while planning: a scalar's, or that of a small tensor whose elements are all the same.
[[nodiscard]] std::optional<ScalarNode> literal_of(const Graph& graph, ValueId value);
// Values whose few integer elements are known as expressions need no memory.
inline constexpr size_t kMaxKnownElements = 8;
[[nodiscard]] bool known_contents(const Graph& graph, ValueId value);

// A result of a pointwise, indexing or reduction node as a function of its axes; loads are numbered by operand
// position.
struct NodeBody {
  ScalarDag dag;
  std::vector<Axis> axes;  // outer: dimensions of the result that are not 1; rows: those reduced over
  std::vector<SymExpr> at; // index of the result
  ScalarId root = -1;
  // Instructions per element, by scalar_op's table. What does not depend on the innermost axis is done once per run of
  // it.
  double cost = 0;
  std::vector<bool> invariant; // by operand: read at an index that does not depend on the innermost axis
  SymExpr innermost = 1;       // its extent
};

class NodeBodies {
public:
  NodeBodies(const Graph& graph, AxisPool& pool) : graph_(graph), pool_(pool) {}
  // Errors are those of the operator's record. The pointer stays valid.
  [[nodiscard]] Result<const NodeBody*> get(ValueId value);

private:
  [[nodiscard]] Result<NodeBody> make(const Node& node, int result) const;
  const Graph& graph_;
  AxisPool& pool_;
  std::unordered_map<ValueId, std::unique_ptr<NodeBody>> done_;
};

class Expander {
public:
  // `is_virtual` says which values are written out; `strict` rounds every result to its storage dtype; `keep` lists
  // those written out in LoopNest::inner.
  Expander(const Graph& graph, AxisPool& pool, NodeBodies& bodies, std::function<bool(ValueId)> is_virtual, bool strict,
           bool keep = false)
      : graph_(graph), pool_(pool), bodies_(bodies), is_virtual_(std::move(is_virtual)), strict_(strict), keep_(keep) {}
  // The nest that computes and stores `value`.
  [[nodiscard]] Result<LoopNest> nest(ValueId value);
  // The nest with each load of `value`, whatever is_virtual says of that, replaced by its expression.
  [[nodiscard]] Result<LoopNest> written_out(const LoopNest& nest, ValueId value);
  // The position of `value`'s elements in memory as a function of axes: the one plain load, times constants, that it
  // comes down to, or nullopt.
  struct Access {
    ValueId value;
    std::vector<SymExpr> index;
    double scale = 1;
  };
  [[nodiscard]] std::optional<Access> access(ValueId value, std::span<const SymExpr> at);

private:
  [[nodiscard]] Result<ScalarId> element(ValueId value, std::span<const ScalarId> at, ScalarId predicate);
  [[nodiscard]] Result<ScalarId> body(ValueId value, std::span<const ScalarId> at, ScalarId predicate);
  [[nodiscard]] std::optional<ScalarId> known(ValueId value, std::span<const ScalarId> at);
  [[nodiscard]] Result<ScalarId> copy(const Node& node, const NodeBody& body, const Substitution& axes,
                                      const std::unordered_map<uint64_t, ScalarId>& data, ScalarId predicate);
  void list(ValueId value, std::span<const ScalarId> at, ScalarId predicate, ScalarId scalar); // in nest_.inner
  // `scalar`, the element at `at`, with the bounds checks of the index: a value that is the same at every index, such as
  // an expanded one, has dropped them.
  [[nodiscard]] ScalarId checked(ScalarId scalar, std::span<const ScalarId> at);
  [[nodiscard]] ScalarId rounded(ScalarId scalar, ValueId value);
  [[nodiscard]] ScalarId through(ScalarId scalar, DType storage);
  [[nodiscard]] static bool rounds(const Node& node);
  [[nodiscard]] DType storage_behind(ValueId value) const;
  // How the rounding of an operand is seen. Cast: by the model, or by a product, whose factors are rounded. Decides: a small difference changes the result much (a comparison), so all that
  // it is computed from rounds as if operator by operator.
  enum class Seen : uint8_t { No, Cast, Decides };
  [[nodiscard]] static std::vector<Seen> seen_roundings(const Node& node, const NodeBody& body,
                                                        const std::vector<bool>& need);
  [[nodiscard]] ScalarId zero(DType dtype);
  [[nodiscard]] ScalarId masked(ScalarId scalar, ScalarId predicate);
  [[nodiscard]] ScalarId both(ScalarId a, ScalarId b); // predicates; -1 is true

  const Graph& graph_;
  AxisPool& pool_;
  NodeBodies& bodies_;
  std::function<bool(ValueId)> is_virtual_;
  bool strict_, keep_;
  LoopNest nest_;
  std::map<std::vector<ScalarId>, ScalarId> memo_; // (value, predicate, strict, index) -> scalar
  std::unordered_set<int32_t> seen_;               // sources
};

} // namespace tessera::fusion
