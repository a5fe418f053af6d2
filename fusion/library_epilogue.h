// Recognising what a library can do to its result by itself in what an epilogue nest computes.
//
// The idea. A GPU's library takes no code; it takes one form, y = activation(alpha * sum + bias + residual). Operators
// do not matter here, nor how the form is spelled: the nest's scalar expression is read as algebra. Its root may be an
// activation of some x (activation.h), and x, or the root itself, is linear when it is a sum of the raw value times
// constants, once, and of loads, each once. Of the loads, one may lie along a single dimension (the bias) and one as
// the result does (the residual). The library computes in the type it accumulates in, so products and sums may be
// regrouped: what is stored differs by rounding of that type only.
//
//   matmul f16 [b, s, 3072]                                       alpha 1
//   %1 = add(load raw[i0,i1,i2], load bias[i2])                   bias along dimension 2
//   %2 = mul(mul(%1, 0.5), add(tanh(mul(add(%1, mul(pow(%1, 3), 0.0447)), 0.798)), 1))        gelu by tanh
#pragma once
#include "fusion/plan.h"

namespace tessera::fusion {

struct EpilogueMatch {
  double alpha = 1;
  std::vector<ScalarId> addends; // loads, in the order of the expression
  FixedEpilogue::Activation activation = FixedEpilogue::Activation::None;
  double clip_low = 0, clip_high = 0;
};
// The form of nest.stores[0].scalar; loads of `raw` are the sum. nullopt, and why, when it has another one.
[[nodiscard]] std::optional<EpilogueMatch> match_epilogue(const LoopNest& nest, ValueId raw, std::string* why_not);

} // namespace tessera::fusion
