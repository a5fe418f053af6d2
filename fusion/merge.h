// Merging two nests into one.
//
// A producer and a consumer become one nest when under some bijection of their iteration spaces every load of what the
// producer stores happens at the point that stores it; the load then is the scalar itself. Roles of axes must agree:
// rows of one are rows of the other. Four cases beyond "same iteration space, same roles":
//   pointwise into reduction   the producer's axes take the consumer's roles
//   reduction, then its rows   the consumer's axes that the reduced value is broadcast along are paired with the row
//   axes reduction, then per row    the consumer runs over the outer axes only; it is computed once per outer point per
//   row into reduction     the producer runs over the consumer's outer axes only
#pragma once
#include "fusion/plan.h"
#include "fusion/rewrite.h"

namespace tessera::fusion {

struct Refusal {
  FusionReason reason = FusionReason::DifferentIterationSpace;
  std::string detail;
};

// The iteration space of a nest, for people: "[b, 12] by rows of [64]".
[[nodiscard]] std::string axes_text(const LoopNest& nest);

class Merger {
public:
  Merger(const Graph& graph, AxisPool& pool) : graph_(graph), pool_(pool) {}
  // Appends consumer `b` to producer `a`; on refusal `a` is as it was. With `keep_axes` the axes of `a` stay (those of
  // a library's result), and finer ones of `b` become quotients and remainders of them.
  [[nodiscard]] std::optional<Refusal> vertical(LoopNest& a, const LoopNest& b, bool keep_axes);
  // Appends sibling `b` to `a`: equal axes, and at least one load at the same index.
  [[nodiscard]] std::optional<Refusal> horizontal(LoopNest& a, const LoopNest& b);

  // Appends `b`, which shares nothing with `a`, where both iteration spaces have the same size (side_by_side.cpp).
  [[nodiscard]] std::optional<Refusal> side_by_side(LoopNest& a, const LoopNest& b);

private:
  struct Joint {
    AxisMatch match;
    std::vector<Axis> axes;
  };
  std::optional<Refusal> match_rows(AxisMatcher& matcher, const LoopNest& a, const LoopNest& b) const;
  std::optional<Refusal> assign_roles(Joint& joint, const LoopNest& a, const LoopNest& b) const;
  void append(LoopNest& a, const LoopNest& b, Joint joint, bool keep_axes);

  const Graph& graph_;
  AxisPool& pool_;
};

} // namespace tessera::fusion
