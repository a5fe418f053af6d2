// Resize and Upsample as their files share them: what a node requests, and the elements and weights of the input that
// make one of the result.
#pragma once
#include "graph/ops/parts.h"

namespace tessera::ops::resizing {

// The request of a node, in the terms of any opset.
struct Spec {
  std::string mode, coordinates, nearest, policy;
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
  int roi = -1, scales = -1, sizes = -1; // operands
  Ints axes;
  std::vector<double> fixed_scales; // Upsample 7: an attribute
};

[[nodiscard]] Result<Spec> spec_of(const Node& node, int rank);

// floor(size * scale) for a scale that is a fraction of small terms; nothing when it is not.
[[nodiscard]] SymExpr scaled(const SymExpr& size, double scale);

struct Tap {
  int64_t index;
  double weight;
};
struct Axis {
  int64_t in = 1, out = 1;
  double scale = 1;
  double roi_begin = 0, roi_end = 1;
};

// The input coordinate of output element y.
[[nodiscard]] double source(const Spec& spec, const Axis& axis, int64_t y);
// The elements of the input, with their weights, that make the result's at an input coordinate.
[[nodiscard]] std::vector<Tap> taps(const Spec& spec, const Axis& axis, double coordinate);

[[nodiscard]] Result<std::vector<ValueId>> decompose(Graph& graph, const Node& node);

} // namespace tessera::ops::resizing
