// A convolution or pooling of strided operands in the terms of cuDNN: at least two spatial dimensions, one layout for
// all tensors. A pure function of shapes and strides.
//
// A convolution over one dimension gets a second one of a single point in front: [N, C, W] is [N, C, 1, W]. Strides of
// dimensions of one point say nothing, and libraries compare strides with those of the layouts they know; so tensors
// that lie as a layout does are given exactly its strides:
//
//   x [2, 64, 1, 1] strides (64, 1, 9, 9)      channels last as well as first: 64, 1, 64, 64
//
// A transposed convolution is the gradient of a convolution with respect to its input: what the library calls dy is our
// x, what it calls dx our y.
#pragma once
#include "runtime/library/call.h"

namespace tessera::cuda {

struct ConvTensor {
  Dims dims, strides; // [N, C, spatial...], elements; weights [O, C / groups, kernel...]
};
struct ConvProblem {
  ConvTensor x, w, y;
  std::vector<int64_t> strides, pads_begin, pads_end, dilations;
  bool transposed = false, channels_last = false;
  bool empty = false;      // no results
  bool of_nothing = false; // results are sums over nothing: zeros
  [[nodiscard]] int spatial() const { return static_cast<int>(strides.size()); }
};
// Errors: Internal where shapes contradict; UnsupportedFeature for more than 3 spatial dimensions, for tensors that are
// not whole, and for a transposed convolution that leaves a whole stride of its result untouched.
[[nodiscard]] Result<ConvProblem> describe_conv(const ConvCall& call, const Operand& x, const Operand& w,
                                                const Operand& y, const std::string& name);

// Dimensions of x whose sizes differ from call to call: the batch, and the spatial ones of the description.
struct VaryingDims {
  bool batch = false;
  std::vector<bool> spatial;
};
// The problem with these sizes of x rounded up to a grid, batches to powers of two, the others by an eighth at most
// (rounded_size, gemm_sizes.h), and y as large as that makes it.
[[nodiscard]] ConvProblem on_grid(ConvProblem problem, const VaryingDims& varying);

struct PoolProblem {
  ConvTensor x, y;
  std::vector<int64_t> kernel, strides, pads;
  bool empty = false;
};
// Besides: UnsupportedFeature for dilations and for pads that differ before and behind, where the last window reaches
// beyond what equal pads admit.
[[nodiscard]] Result<PoolProblem> describe_pool(const PoolCall& call, const Operand& x, const Operand& y,
                                                const std::string& name);

} // namespace tessera::cuda
