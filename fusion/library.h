// Library calls: products, convolutions and pooling with their operands as strided views of memory, and the nest that
// is run on their result.
#pragma once
#include "fusion/expand.h"
#include "fusion/plan.h"

namespace tessera::fusion {

// Which kind of library call a node is; nullopt when it is none.
[[nodiscard]] std::optional<LibraryCall::Kind> library_kind(const Node& node);

// Whether a value is an operand of its operator times, or divided by, a floating-point constant.
[[nodiscard]] bool is_scaling(const Graph& graph, NodeBodies& bodies, ValueId value);

// A call as the planner works on it: the axes of its result stay fixed, while consumers are appended to `epilogue`.
struct CallDraft {
  LibraryCall call;
  std::vector<SymExpr> result_axes; // one symbol per dimension of the result; of dimensions of 1 too
  LoopNest epilogue;                // at first: loads the result and stores it where it is
};

class LibraryCalls {
public:
  // `keep_values` as in FusionOptions.
  LibraryCalls(const Graph& graph, AxisPool& pool, NodeBodies& bodies, bool keep_values = false)
      : graph_(graph), pool_(pool), bodies_(bodies), keep_values_(keep_values) {}
  // `through(k, v)`: whether operand k may be looked through view v, or scaling v of a product's operand, to what that
  // is made from. Operands that stay nonlinear are read as they are. `half_weights` as in FusionOptions.
  using Through = std::function<bool(size_t operand, ValueId)>;
  [[nodiscard]] CallDraft draft(NodeId node, const Through& through, bool half_weights = false);
  // The call with `kept` stores only. A nest that does nothing but move elements to linear indices becomes strides of
  // the result; one that stores nothing disappears.
  [[nodiscard]] LibraryCall finish(const CallDraft& draft, const std::function<bool(ValueId)>& kept) const;
  // The epilogue of a finished call in the form that GPU libraries compute (library_epilogue.h); nullopt, and why, when
  // it has another one.
  [[nodiscard]] std::optional<FixedEpilogue> fixed(const LibraryCall& call, std::string* why_not) const;

private:
  struct Dim {
    SymExpr var, extent;
  };
  struct Operand {
    ValueId value;
    std::vector<SymExpr> index; // into value's dimensions
    double scale = 1;
  };
  // The dimensions of a call: those of the result, then of what only operands have: the inner dimension of a product,
  // those of a convolution's operands.
  struct Space {
    std::vector<Dim> dims;
    std::vector<size_t> batch;                 // dimensions of a batched product
    std::vector<size_t> result;                // dimensions of the result, in its order
    std::vector<std::vector<size_t>> operands; // of each operand
    std::vector<std::vector<Dim>> parts;       // of each dimension, one unless it is split
    Substitution split;                        // dimensions by their parts
  };
  [[nodiscard]] Space space(const Node& node) const;
  [[nodiscard]] std::vector<SymExpr> elements(const Space& space, const SymShape& shape,
                                              const std::vector<size_t>& use) const;
  void split_batch(Space& space, std::vector<Operand>& operands) const;
  [[nodiscard]] Operand operand(ValueId value, const std::vector<SymExpr>& at,
                                const std::function<bool(ValueId)>& through);
  [[nodiscard]] std::optional<Operand> half_weight(ValueId value, const std::vector<SymExpr>& at,
                                                   const std::function<bool(ValueId)>& through);
  [[nodiscard]] std::optional<OperandView> view(ValueId value, const std::vector<SymExpr>& index,
                                                const std::vector<Dim>& dims) const;

  const Graph& graph_;
  AxisPool& pool_;
  NodeBodies& bodies_;
  bool keep_values_;
};

} // namespace tessera::fusion
