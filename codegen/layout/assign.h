// Assigns a layout to every tile value of a kernel.
//
// Loads and stores decide: each has an axis along which its offsets are contiguous, and a number of contiguous elements
// that one thread may access at once. Tiles of one shape vote, by bytes, for one order and width, so that most of a
// kernel uses one layout. Smaller tiles that are broadcast to or reduced from a large one get slices of its layout. An
// access that is contiguous along the other axis (a transposed operand) keeps its own layout, and the value is
// converted.
//
// The kernel is rewritten so that *each value has one layout*, and
//
//   op                          layouts
//   const, range                that of the result: an element is computed from its coordinates
//   scalar (not conversions)    the tile operands have the result's
//   load, store, atomic updates offset, mask, other, value (if tiles) have one layout, and so has the result
//   expand_dims axis=a          the operand has result.drop_axis(a)
//   broadcast                   the operand, if a tile, has result.project(operand's shape)
//   reduce axis=a               value and index tile have one, in which each basis moves along one axis; the results,
//                               if tiles, have its drop_axis(a)
//   scan axis=a                 the result has the operand's; along a, register bits are lowest, then lanes, warps:
//                               a thread holds a contiguous segment of the axis, lanes hold consecutive segments
//   dot                         accumulator and result have one, on tensor cores that of dot.h or warpgroup.h; the operands
//                               any
//   for, if                     initial, carried, yielded value and result have one
//   report_index                the same for all operands, any
//   cast to its operand's type  a *conversion*: operand and result may have any layouts (see plan_conversion)
//
// Copies: if a layout has free bits (free_mask), several threads hold the same element. One of them stores it, and
// exactly one must do an atomic update: the one whose free lane and warp bits are 0. All threads hold scalars.
//
// A conversion is made once, directly behind the definition of the converted value. Values that are cheap to compute,
// index and mask arithmetic on ranges and constants, are recomputed in the required layout instead.
//
// Memory operations on one buffer may have different layouts: a lowering must put a barrier between a store and a later
// access of the same memory (scratch), and between loads and a later store that may overwrite elements that other
// threads still load.
#pragma once
#include "codegen/layout/choose.h"
#include "codegen/layout/warpgroup.h"

namespace tessera::layout {

struct KernelLayouts {
  tile::Kernel kernel; // equivalent kernel; ids of new values and operations follow the old ones
  int warps = 4;       // of a block: config "warps", a power of two, at most 32
  // By ValueId of `kernel`: the layout of each tile; empty for scalars and pointers. The registers of a thread hold no
  // element twice.
  std::vector<LinearLayout> of_value;
  // By OpId of `kernel`: elements of one access of tile Loads, Stores and Atomics, 1 for other operations. Registers
  // [i * width, (i + 1) * width) are contiguous in memory, aligned to width * element size bytes (at most 16), and have
  // the same mask, or a mask that is true for an interval of them if the access `splits`. Scratch is aligned to 16
  // bytes.
  std::vector<int> access_width;
  std::vector<bool> splits;
  // By OpId, for tile Loads of memory that has a known end and is not written: unaligned vectors wider than
  // `access_width`. They lie in consecutive aligned accesses, all of which may be read up to the memory's end:
  //
  //   memory      8 9 10 11 12 13 14 15 | 16 17 18 19 20 21 22 23 | 24 ...      of two bytes each
  //   registers         0  1  2  3  4  5    6  7                               offset 10, width 8: two accesses
  //
  // The mask is true for all `width` elements of a window, or for an interval of them.
  std::vector<Window> windows;
  // The products that warpgroups compute; ids are those of `kernel`.
  std::optional<WarpgroupPlan> warpgroups;

  [[nodiscard]] const LinearLayout& operator[](tile::ValueId v) const { return of_value[static_cast<size_t>(v)]; }
  // True for a conversion between layouts: a cast of a tile to its own type.
  [[nodiscard]] bool is_conversion(const tile::Op& op) const;
  // The kernel's text with the layout of each tile and the width of each access.
  [[nodiscard]] std::string str() const;
};

// Config of the kernel: "warps" per block (default 4), and "width", the most contiguous elements of a thread (default
// 16; set by a tuner). Errors: CodegenError for tile dimensions that are not powers of two, for more than 1024 elements
// per thread, and for an invalid number of warps or programs of a cluster. The kernel must have passed verify.
[[nodiscard]] Result<KernelLayouts> assign_layouts(const tile::Kernel& kernel,
                                                   std::optional<WarpgroupPlan> warpgroups = std::nullopt);
// Checks the table above and tile::verify. Results of assign_layouts pass; an error is a bug.
[[nodiscard]] Status verify_layouts(const KernelLayouts& layouts);

} // namespace tessera::layout
