// Loads of tiles as boxes of a tensor in memory, which a bulk tensor copy (TMA) moves as a whole.
//
// Such a load has an offset that is a sum over the tensor's dimensions of coordinate * stride, and a mask that is a
// conjunction of 0 <= coordinate < bound; strides and bounds are products of the kernel's i64 parameters. A coordinate is
// a start and bits of one index of the tile. In a tile of 128 x 64 at %a[(r0 + i) * k + k0 + j] with the mask r0 + i < m
// and k0 + j < k:
//
//   dimension   0 (contiguous)   1
//   axis        1                0
//   start       k0               r0
//   size        k                m
//   stride      1                k     times the bytes of an element: a multiple of 16
//
// An index of the tile may run through a box of several dimensions, and a dimension may have no index of the tile. Of a
// convolution of stride 2 with padding 1, at the filter position (s, t) and the pixel (n0, y0, x0), a tile of 128 pixels
// and 64 channels, where pixel i is (i / 32, i / 8 % 4, i % 8) of a box of 4 x 4 x 8, is in a tensor [n, h, w, c]:
//
//   dimension   0       1                 2                 3
//   axis        1       0, bits 0 to 2    0, bits 3 to 4    0, bits 5 to 6
//   box         64      8                 4                 4
//   step        1       2                 2                 1
//   start       c0      2 x0 - 1 + t      2 y0 - 1 + s      n0
#pragma once
#include "codegen/layout/polynomial.h"
#include "runtime/tensor_map.h"

namespace tessera::layout {

inline constexpr int kTensorAlignment = 16; // bytes, of a tensor's begin and strides

struct TensorAccess {
  // By dimension: the contiguous one first, then those of the tile's other axis by bits of its index, then those of none.
  struct Dimension {
    int axis = -1;           // of the tile; -1: of none
    int box = 1, step = 1;   // positions of the tile, and elements of the tensor from one to the next
    Polynomial start;        // in elements: the coordinate of the tile's first element
    ParameterProduct size;   // in elements
    ParameterProduct stride; // of all dimensions but the first, in bytes
  };
  int param = 0; // the pointer by index of the kernel's parameters
  std::vector<Dimension> dimensions;
};

// The access, or why there is none: a text for people.
struct TensorAccessResult {
  std::optional<TensorAccess> access;
  std::string refusal;
};
// `load`: a Load of a tile of two dimensions, that reads zeros where its mask is false. The memory must not be written
// while the kernel runs; the caller checks that.
[[nodiscard]] TensorAccessResult tensor_access(const tile::Kernel& kernel, const Polynomials& polynomials,
                                               const tile::Op& load);

} // namespace tessera::layout
