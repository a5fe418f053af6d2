// Loads of tiles as boxes of a tensor in memory, which a bulk tensor copy (TMA) moves as a whole.
//
// Such a load has an offset that is a sum over the tile's dimensions of (start + index) * stride, and a mask that is a
// conjunction of start + index < bound; strides and bounds are products of the kernel's i64 parameters. In a tile of
// 128 x 64 at %a[(r0 + i) * k + k0 + j] with the mask r0 + i < m and k0 + j < k:
//
//   dimension   0 (contiguous)   1
//   axis        1                0
//   start       k0               r0
//   size        k                m
//   stride      1                k     times the bytes of an element: a multiple of 16
#pragma once
#include "codegen/layout/polynomial.h"
#include "runtime/tensor_map.h"

namespace tessera::layout {

inline constexpr int kTensorAlignment = 16; // bytes, of a tensor's begin and strides

struct TensorAccess {
  int param = 0;                         // the pointer by index of the kernel's parameters
  std::vector<int> axes;                 // by dimension of the tensor, the contiguous one first: the tile's axis
  std::vector<Polynomial> starts;        // by dimension, in elements: the coordinates of the tile's first element
  std::vector<ParameterProduct> dims;    // by dimension, in elements
  std::vector<ParameterProduct> strides; // of all dimensions but the first, in bytes
};

// The access, or why there is none: a text for people.
struct TensorAccessResult {
  std::optional<TensorAccess> access;
  std::string refusal;
};
// `load`: a Load of a tile of two dimensions at least, that reads zeros where its mask is false. The memory must not be
// written while the kernel runs; the caller checks that.
[[nodiscard]] TensorAccessResult tensor_access(const tile::Kernel& kernel, const Polynomials& polynomials,
                                               const tile::Op& load);

} // namespace tessera::layout
