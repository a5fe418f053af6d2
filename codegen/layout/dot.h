// Layouts of products of tiles on tensor cores.
//
// The instruction, mma.m16n8k16, is a warp's: [16, 16] of 16-bit floats times [16, 8], added to [16, 8] of f32. Which
// lane holds which elements is fixed, and it is a linear layout. With positions (row, column):
//
//              register                    lane
//   a [16, 16]  (0, 1) (8, 0) (0, 8)        (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)
//   b [16, 8]   (1, 0) (8, 0)               (2, 0) (4, 0) (0, 1) (0, 2) (0, 4)
//   c [16, 8]   (0, 1) (8, 0)               (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)
//
// A larger product takes several of them: further registers count fragments, warps take rows of c and then columns.
// Registers of c run along a row before they go to further rows, and so do those of a. Hence the result of one product
// is, where warps take rows alone, a left factor of the next one as it stands: softmax(q k) v needs no exchange.
#pragma once
#include "codegen/layout/linear_layout.h"
#include "codegen/tile/tile.h"

namespace tessera::layout {

inline constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;

struct DotLayouts {
  LinearLayout a, b, c;
};

// Whether tensor cores compute this Dot: f16 or bf16 tiles of at least one fragment. Others are computed by fma.
[[nodiscard]] bool on_tensor_cores(const tile::Kernel& kernel, const tile::Op& dot);
// Of such a Dot of `kernel`. Warps take rows of the result as far as there are any; where it is the only product of the
// kernel and no row is folded, they are spread so that the least is read of both factors.
[[nodiscard]] DotLayouts dot_layouts(const tile::Kernel& kernel, const tile::Op& dot, int warps);

} // namespace tessera::layout
