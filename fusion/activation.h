// Activations as algebra: what a scalar expression computes, however its operators are spelled.
//
//   relu        max(x, 0)                        clip     min(max(x, low), high), in either order
//   gelu        c * x * (1 + tanh(p(x))), or with erf; products and sums in any order, where p is expanded as a
//               polynomial: 0.79788 x + 0.79788 * 0.044715 x^3, or 0.70711 x; constants may be rounded to f16
//   silu        x * sigmoid(x)                   sigmoid(x), tanh(x)
#pragma once
#include "fusion/plan.h"

namespace tessera::fusion {

struct ActivationMatch {
  FixedEpilogue::Activation activation = FixedEpilogue::Activation::None;
  ScalarId input = -1;
  double clip_low = 0, clip_high = 0; // Clip
};
// The activation that `root` computes, and its argument.
[[nodiscard]] std::optional<ActivationMatch> match_activation(const ScalarDag& dag, ScalarId root);
[[nodiscard]] std::string_view name(FixedEpilogue::Activation activation); // "gelu_tanh"

// A product as a constant factor and what is not constant.
struct ScalarProduct {
  double factor = 1;
  std::vector<ScalarId> others;
};
[[nodiscard]] ScalarProduct match_product(const ScalarDag& dag, ScalarId root);
// The value of a constant of a float type.
[[nodiscard]] std::optional<double> float_constant(const ScalarDag& dag, ScalarId id);

} // namespace tessera::fusion
