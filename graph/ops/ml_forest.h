// Decision trees as tables: what the attributes of tree ensembles describe, checked, and in the form that walks read.
#pragma once
#include "graph/ops/record.h"

namespace tessera::ops {

// Nodes of all trees. Leaves come first, so that tables of leaves are indexed as those of nodes are; leaf 0 belongs to no
// tree and has no weight. A node may have several parents (sets of categories are written so), and none is below itself.
struct Forest {
  // How the feature has to compare with the split for the branch `yes`: a set of these.
  static constexpr uint8_t kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 /* NaN */;

  int64_t leaves = 0, targets = 0;
  std::vector<int64_t> feature; // of each node; 0 for leaves
  std::vector<double> split;
  std::vector<uint8_t> yes_if;
  std::vector<int64_t> next; // two a node: `yes`, `no`; a leaf itself
  std::vector<int64_t> roots;
  int64_t depth = 0;         // branches on the longest way
  int64_t most_feature = -1; // the largest feature that a branch reads
  struct Weight {
    int64_t leaf, target;
    double value;
  };
  std::vector<Weight> weights;

  [[nodiscard]] int64_t nodes() const { return static_cast<int64_t>(feature.size()); }
};

// The forest of TreeEnsembleClassifier or TreeEnsembleRegressor: `prefix` of the attributes of leaves is "class" or
// "target". Error BadAttribute names the node of a tree and what is wrong with it.
[[nodiscard]] Result<Forest> forest_of_nodes(const Node& node, std::string_view prefix, int64_t targets);
// The forest of TreeEnsemble, which lists branches and leaves apart.
[[nodiscard]] Result<Forest> forest_of_branches(const Node& node);

// Floats of the attribute `name`, or of the tensor `name`_as_tensor. Error BadAttribute where both are given.
[[nodiscard]] Result<std::vector<double>> floats_or_tensor(const Node& node, const std::string& name);

} // namespace tessera::ops
