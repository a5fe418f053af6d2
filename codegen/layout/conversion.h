// Plans the conversion of a tile from one layout to another: by renaming registers, by shuffles within a warp, or
// through shared memory, swizzled to avoid bank conflicts on both sides.
//
// Shared memory has 32 banks of 4 bytes. An access of up to 4 bytes per lane serves 32 lanes at once, of 8 bytes 16
// lanes, of 16 bytes 8. Lanes served together that access different words of one bank are serialised. The arrangement
// is a linear layout, offset -> element, so each side's offsets, (register, lane, warp) -> offset, are linear, too: the
// xor of a constant per register and of a constant per bit of lane and warp.
//
// Choice of the arrangement. Let V be the bits of contiguous elements that both sides, or one, move in one access: the
// lowest offset bits. Above them are the bits that select the bank, above those the other bits, "segments" S: two words
// whose difference is in span(S) share a bank. There is no conflict if no two lanes that are served together have such
// a difference, that is, if span(S) and the span of either side's lanes intersect only in 0. In a transpose, lanes run
// along columns on one side and along rows on the other: with S = {column bit i ^ row bit i} neither side's differences
// are in span(S). All widths of V are tried, conflicts are counted lane by lane, and the cheapest arrangement is taken.
//
// Matrices. For elements of 2 bytes, ldmatrix reads matrices of 8 rows of 16 bytes: lane l gets elements 2 (l % 4) and
// 2 (l % 4) + 1 of row l / 4 or, transposed, of column l / 4. It serves layouts in which the bits {register 0, lanes 0,
// 1} and the bits {lanes 2, 3, 4} each enumerate eight contiguous elements, as those of tensor cores do: one set is
// contiguous in memory, the other enumerates rows. A row is one access of 16 bytes, and eight are served at once; the
// conflict rule for lanes applies to rows.
#pragma once
#include "codegen/layout/linear_layout.h"

namespace tessera::layout {

struct Conversion {
  enum class Kind : uint8_t {
    Registers, // each thread holds its result (the layouts may be equal)
    Shuffles,
    Swaps,
    Shared,
  } kind = Kind::Registers;

  // Registers: result register r is operand register register_map[r]; Swaps: the same, of the swapped operand.
  std::vector<int> register_map;

  // Shuffles. Result register r, with selector s = sum over j of parity(lane & selector_masks[j]) << j of the receiving
  // lane: all lanes shuffle operand register shuffled[r][t] from lane source_lane(r) for every t < 2^selectors and
  // select t = s. source_lane(r) = lane_of_register[r] ^ (xor over the set bits i of the receiving lane of
  // lane_bases[i]).
  std::vector<std::vector<int>> shuffled;
  std::vector<int> lane_of_register;
  std::array<int, kLaneBits> lane_bases{};
  std::vector<uint32_t> selector_masks;

  // Swaps: a lane's bit and a register's bit trade places, one pair after the other. Of two registers that differ in
  // the register's bit, lanes whose bit is 0 send the higher one and get the lower one of the neighbouring lane, which
  // becomes their higher one.
  struct Swap {
    int lane_bit = 0, register_bit = 0;
  };
  std::vector<Swap> swaps;

  // Shared: threads whose bits in store_free_* are 0 store operand registers [i * store_width, (i + 1) * store_width)
  // at offset store(i * store_width, lane, warp); a barrier; result registers [i * load_width, ...) are loaded from
  // load(...) likewise; another barrier before the memory is reused. Offsets are in elements; accesses are aligned to
  // their width.
  LinearLayout store, load; // (register, lane, warp) -> Offset
  int store_width = 1, load_width = 1;
  // ldmatrix loads instead of load_width: register pairs [i * matrices(), (i + 1) * matrices()) at once.
  enum class Matrices : uint8_t {
    None,
    Rows,    // register 0 and lanes 0, 1 move along the contiguous axis
    Columns, // lanes 2, 3, 4 do (transposed)
  } load_matrices = Matrices::None;
  [[nodiscard]] int matrices() const { return load.registers() >= 8 ? 4 : load.registers() / 2; }
  // Result registers of one load.
  [[nodiscard]] int load_step() const { return load_matrices == Matrices::None ? load_width : 2 * matrices(); }
  // Offsets of the rows whose addresses lanes give in such a load: lane bits 0, 1, 2 are the row, 3 and 4 the matrix.
  [[nodiscard]] std::array<int, kLaneBits> row_bases() const;
  uint32_t store_free_lanes = 0, store_free_warps = 0;
  int64_t shared_bytes = 0;
  // For all accesses of one warp: shared memory cycles, and the least cycles for accesses of these widths.
  int store_wavefronts = 0, load_wavefronts = 0, least_wavefronts = 0;

  [[nodiscard]] std::string str() const;
};

// Both layouts are of one tile shape and as assign_layouts makes them: surjective, without copies among registers.
// element_bytes is 1, 2, 4 or 8. `spares_memory`: Swaps rather than Shared where both are possible, as where a ring of
// stages (warpgroup.h) has the shared memory.
[[nodiscard]] Conversion plan_conversion(const LinearLayout& from, const LinearLayout& to, int element_bytes,
                                         bool spares_memory = false);

// Loads of a tile that lies in shared memory already: `memory` maps offsets in elements to the tile's elements. Kind::Shared
// without a store. Up to 16 bytes are contiguous where `memory` has them so.
[[nodiscard]] Conversion plan_shared_load(const LinearLayout& memory, const LinearLayout& to, int element_bytes);

// Shared memory cycles of all accesses of warp 0 with `width` registers each, counted lane by lane; lanes with a bit of
// `without` set do not take part.
[[nodiscard]] int wavefronts(const LinearLayout& offsets, int width, int element_bytes, uint32_t without = 0);

} // namespace tessera::layout
