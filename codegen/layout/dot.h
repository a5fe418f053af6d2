// Layouts of tensor core products. Those of warpgroups stand in warpgroup.h; this is for the products of a warp.
//
// The instruction mma.m16n8k16 is executed by a warp: [16, 16] times [16, 8] of 16-bit floats, added to [16, 8] of f32.
// The instruction fixes which lane holds which elements; it is a linear layout. With coordinates (row, column):
//
//              register                    lane
//   a [16, 16]  (0, 1) (8, 0) (0, 8)        (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)
//   b [16, 8]   (1, 0) (8, 0)               (2, 0) (4, 0) (0, 1) (0, 2) (0, 4)
//   c [16, 8]   (0, 1) (8, 0)               (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)
//
// For elements of 8 bits it is mma.m16n8k32, with sums of integers in i32. A register of an operand holds four of them; along the
// depth, each basis of 16-bit elements becomes twice as large, behind one more register bit. c is the same:
//
//   a [16, 32]  (0, 1) (0, 2) (8, 0) (0, 16)  (0, 4) (0, 8) (1, 0) (2, 0) (4, 0)
//   b [32, 8]   (1, 0) (2, 0) (16, 0)         (4, 0) (8, 0) (0, 1) (0, 2) (0, 4)
//
// A larger product uses several instructions: further registers enumerate fragments, warps take rows of c and then
// columns. Registers of c run along a row before further rows, and so do those of a. So if warps take rows only, the
// result of one product of 16-bit floats has the layout of the left operand of the next: softmax(q k) v needs no
// conversion.
#pragma once
#include "codegen/layout/warpgroup.h"

namespace tessera::layout {

inline constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaDepthBytes = 32;
// Elements of one 32-bit register of an operand, and of the depth of one instruction: 32 bytes.
[[nodiscard]] int mma_word_elements(DType dtype);
[[nodiscard]] int mma_depth(DType dtype);

struct DotLayouts {
  LinearLayout a, b, c;
};

// Config of a kernel for a target whose tensor cores multiply f8e4m3fn and f8e5m2: 1.
inline constexpr const char* kSmallFloatProducts = "small_float_products";
// True if tensor cores compute this Dot: f16, bf16, i8 or u8 tiles of at least one fragment, and 8-bit floats where the
// kernel has kSmallFloatProducts. FMA computes the others.
[[nodiscard]] bool on_tensor_cores(const tile::Kernel& kernel, const tile::Op& dot);
// Layouts of such a Dot of `kernel`. Warps take rows of the result while there are rows; if it is the only product of
// the kernel and no row is reduced, warps are spread so that the operands are read least.
[[nodiscard]] DotLayouts dot_layouts(const tile::Kernel& kernel, const tile::Op& dot, int warps);
// The layout of a Dot's sum, where its instructions fix it; nothing where FMA computes it. `plan`: null if warpgroups
// compute no product.
[[nodiscard]] std::optional<LinearLayout> accumulator_layout(const tile::Kernel& kernel, tile::OpId dot, int warps,
                                                             const WarpgroupPlan* plan);
// The layout of a left factor that consumers compute; nothing for other products.
[[nodiscard]] std::optional<LinearLayout> left_layout(const tile::Kernel& kernel, tile::OpId dot, int warps,
                                                      const WarpgroupPlan* plan);

} // namespace tessera::layout
