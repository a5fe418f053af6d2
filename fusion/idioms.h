// The names that people know for what a nest computes, found in its loops, whatever operators the model spelled it
// with.
//
//   softmax          e / sum(e), e an exponential           log_softmax      x - log(sum(exp(x)))
//   log_sum_exp      log(sum(exp(x)))                       layer_norm       (x - mean) / sqrt(mean of its square + eps)
//   rms_norm         x / sqrt(mean(x^2) + eps)              group_norm       layer_norm, scaled by a value of each row
//   matmul           sum of products, as loops              quantize         rounded to integers of 8 bits or fewer
//   l2_norm          x / sqrt(sum(x^2) + eps)               gelu, silu, relu, clip, sigmoid, tanh    activation.h
#pragma once
#include "fusion/loop_nest.h"

namespace tessera::fusion {

// In the order of the computation, each once. Empty: none that has a name.
[[nodiscard]] std::vector<std::string_view> idioms(const LoopNest& nest);
// One of a single operator, which does not say what a whole kernel is.
[[nodiscard]] bool is_activation(std::string_view idiom);
// One for every nest: "layer_norm_gelu" of its idioms, else what its loops are: "sum", "max_sum", "gather", "copy", "map".
[[nodiscard]] std::string title(const LoopNest& nest);

} // namespace tessera::fusion
