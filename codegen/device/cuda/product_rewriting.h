// The base of passes that replace products: the graph as it was, who reads its values, and what takes their place.
#pragma once
#include "codegen/device/cuda/libraries.h"
#include "codegen/device/cuda/names.h"
#include "codegen/device/library_cost.h"
#include "fusion/cost.h"
#include "graph/ir/graph.h"
#include <set>

namespace tessera {

// An operand of a product as memory has it.
struct StoredOperand {
  ValueId value;       // below the exchange of the last two dimensions
  bool turned = false; // there is one
};

class ProductRewriting {
protected:
  ProductRewriting(Graph& graph, const CudaLibraries& libraries);

  static size_t at(ValueId v) { return static_cast<size_t>(v.index); }
  [[nodiscard]] bool is_product(NodeId id) const;
  [[nodiscard]] static bool is_view(const Node& node);
  [[nodiscard]] StoredOperand stored(ValueId operand) const;
  // Products between which a maximum of rows lies: softmax reads the result of one, the other one reads the softmax.
  [[nodiscard]] std::set<NodeId> attentions() const;
  // The extents of a product, estimated; neither bytes nor alignment. A second operand without batch has all rows.
  [[nodiscard]] ProductShape shape_of(const Node& product);
  // True for what a pointwise operator computes for one reader, so that it can be written otherwise.
  [[nodiscard]] bool is_made_for_one(ValueId v) const;
  // True for an operator that must stay recognizable.
  [[nodiscard]] bool is_kept_apart(const Node& node) const;
  [[nodiscard]] bool is_output(ValueId v) const { return outputs_[at(v)]; }
  [[nodiscard]] const std::vector<NodeId>& users(ValueId v) const { return users_[at(v)]; }
  // True if all readers of the value, through views, accept strides.
  [[nodiscard]] bool read_by_strides(ValueId v) const;

  // True if so many bytes of weights may be stored a second time, which are counted then.
  [[nodiscard]] bool may_copy(int64_t bytes);

  // A slice of `sizes` from `starts` on.
  Result<ValueId> slice(ValueId from, SymShape starts, SymShape sizes, const Location& location);
  // `after` has the name of `before` and takes its place when the pass ends.
  void replace(ValueId before, ValueId after);
  // Replaces values and removes what is no longer read.
  Status end();

  Graph& graph_;
  const CudaLibraries& libraries_;
  NewNames names_;
  fusion::Estimator estimate_;

private:
  std::vector<std::vector<NodeId>> users_; // of the original graph, by value
  std::vector<bool> outputs_;
  std::vector<ValueId> by_value_; // replacement of each value
  int64_t copied_ = 0;            // bytes of weights
};

} // namespace tessera
