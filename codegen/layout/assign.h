// A layout for every tile value of a kernel.
//
// Loads and stores decide: each has an axis along which its offsets are contiguous, and a number of neighbours that one
// thread may move at once. Tiles of one shape vote, by bytes, for one order and width, so that most of a kernel works
// in one layout. Smaller tiles that are broadcast to or reduced from a large one get its slices. An access that runs
// along the other axis (a transposed operand) keeps a layout of its own, and the value is converted.
//
// The kernel comes back rewritten, so that what a lowering sees is simple: *each value has one layout*, and
//
//   op                          layouts
//   const, range                as the result says: an element is computed from its coordinates
//   scalar (but conversions)    the tile operands have the result's
//   load, store, atomic_add     offset, mask, other, value (those that are tiles) have one, and so does the result
//   expand_dims axis=a          the operand has result.drop_axis(a)
//   broadcast                   the operand, when a tile, has result.project(operand's shape)
//   reduce axis=a               value and index tile have one, in which each basis moves along one axis; the results,
//                               when tiles, have its drop_axis(a)
//   scan axis=a                 the result has the operand's; along a, bits of registers are lowest, then lanes, then
//                               warps: a thread holds a run of the axis, lanes runs side by side
//   dot                         accumulator and result have one, on tensor cores that of dot.h; the factors any
//   for, if                     initial, carried, yielded value and result have one
//   report_index                any
//   cast to its operand's type  a *conversion*: operand and result may have any layouts (plan_conversion says how)
//
// Copies: where a layout has free bits (free_mask), several threads hold one element, all of them the same bits. A
// store needs one of them, atomic_add must be done by one of them alone (those whose free lane and warp bits are 0).
// Scalars are held by all threads.
//
// Conversions stand once, right behind the definition of what they convert. What is cheap to compute, index and mask
// arithmetic on ranges and constants, is never converted but computed again in the layout asked for.
//
// Offsets of memory operations that touch one buffer may be spread differently over threads: a lowering has to
// put a barrier between a store and a later access of the same memory (scratch), and between loads and a later store
// that may overwrite what other threads have yet to load.
#pragma once
#include "codegen/layout/choose.h"
#include "codegen/tile/tile.h"

namespace tessera::layout {

struct KernelLayouts {
  tile::Kernel kernel; // the same meaning; new values and operations behind the old ones' ids
  int warps = 4;       // of a block: config "warps", a power of two, at most 32
  // By ValueId of `kernel`: the layout of each tile; scalars and pointers have an empty one. No copies among
  // the registers of a thread.
  std::vector<LinearLayout> of_value;
  // By OpId of `kernel`: of tile Loads, Stores and AtomicAdds the elements of one access, 1 for all else. Registers
  // [i * width, (i + 1) * width) are neighbours in memory, their first one is aligned to width * element size bytes
  // (at most 16), and the mask is the same for all of them, or holds for an interval of them where the access `splits`.
  // Scratch is taken to be aligned to 16 bytes.
  std::vector<int> access_width;
  std::vector<bool> splits;
  // By OpId, of tile Loads of memory whose end is known and that nothing writes: neighbours that begin anywhere, wider
  // than the access. They lie in whole accesses one behind the other, all of which may be read up to the memory's end:
  //
  //   memory      8 9 10 11 12 13 14 15 | 16 17 18 19 20 21 22 23 | 24 ...      of two bytes each
  //   registers         0  1  2  3  4  5    6  7                               offset 10, width 8: two accesses
  //
  // The mask holds for all of the `width` neighbours of a window, or for an interval of them.
  std::vector<Window> windows;

  [[nodiscard]] const LinearLayout& operator[](tile::ValueId v) const { return of_value[static_cast<size_t>(v)]; }
  // A conversion between layouts: a cast to its operand's own type, of tiles.
  [[nodiscard]] bool is_conversion(const tile::Op& op) const;
  // The kernel's text, each tile's layout and each access' width beside it.
  [[nodiscard]] std::string str() const;
};

// Config of the kernel: "warps" of a block (4), and "width", the most neighbours that a thread holds side by side (16;
// for a tuner). Errors: CodegenError for tile dimensions that are not powers of two, for more than 1024 elements a
// thread, and for a wrong number of warps, naming them. The kernel must have passed verify.
[[nodiscard]] Result<KernelLayouts> assign_layouts(const tile::Kernel& kernel);
// Whether the table above holds (and tile::verify). What assign_layouts yields passes; an error is a bug.
[[nodiscard]] Status verify_layouts(const KernelLayouts& layouts);

} // namespace tessera::layout
