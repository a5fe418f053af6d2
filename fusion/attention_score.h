// The scalar side of recognising attention (attention.h): softmax in the expression of a nest, and a score as algebra.
#pragma once
#include "fusion/axes.h"
#include "fusion/plan.h"

namespace tessera::fusion {

struct SoftmaxMatch {
  ScalarId score = -1; // what the softmax is of
  bool zero_where_undefined = false;
};
// exp(x - max x) / sum exp(x - max x), with or without guards; casts between floating-point types are looked through.
// Reductions are over the row axes of the nest. nullopt, and why, for anything else.
[[nodiscard]] std::optional<SoftmaxMatch> match_softmax(const ScalarDag& dag, ScalarId root, std::string* why_not);

// call.score in the fixed form; nullopt, and why, when it has another one. A bias with a nest has no value yet.
[[nodiscard]] std::optional<FixedScore> fix_score(const Graph& graph, AxisPool& pool, const AttentionCall& call,
                                                  std::string* why_not);

} // namespace tessera::fusion
