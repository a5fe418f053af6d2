// How a tile moves from one layout to another: by renaming registers, by shuffles within a warp, or through shared
// memory, where the arrangement is swizzled so that neither side has bank conflicts.
//
// Shared memory has 32 banks of 4 bytes. An access of up to 4 bytes a lane serves 32 lanes at once, one of 8 bytes 16,
// one of 16 bytes 8. Lanes served together that touch different words of one bank wait for each other. The arrangement
// is a linear layout, offset -> element, so each side's offsets, (register, lane, warp) -> offset, are
// linear as well: the xor of a constant per register, and of one constant per bit of lane and warp.
//
// Choosing it. Let V be the bits of neighbours that both sides, or one of them, move in one access: the lowest offset
// bits. Above them come the bits that select the bank, above those the rest, "segments" S: two words that differ by an
// element of S share a bank. There is no conflict where no two lanes served together differ by one, that is, where
// span(S) meets the span of either side's lanes in 0 only. For a transpose lanes run along columns on one side and
// along rows on the other: with S = {column bit i ^ row bit i} neither side's differences lie in it. All widths of V
// are tried, conflicts are counted by going through the lanes, the cheapest arrangement is taken.
//
// Matrices. For elements of 2 bytes there is an instruction (ldmatrix) that reads matrices of 8 rows of 16 bytes: lane
// l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 or, transposed, of column l / 4. So it serves layouts in
// which the bits {register 0, lanes 0, 1} and the bits {lanes 2, 3, 4} count eight neighbours each, as those of tensor
// cores do: either set may be what is contiguous in memory, the other one counts rows. A row is one access of 16 bytes,
// eight are served at once; what is said above of lanes holds of rows.
#pragma once
#include "codegen/layout/linear_layout.h"

namespace tessera::layout {

struct Conversion {
  enum class Kind : uint8_t {
    Registers, // each thread has what it needs (the layouts may be equal)
    Shuffles,
    Shared,
  } kind = Kind::Registers;

  // Registers: result register r is operand register register_map[r].
  std::vector<int> register_map;

  // Shuffles. For result register r, with selector s = sum over j of parity(lane & selector_masks[j]) << j (of the lane
  // that receives): shuffle operand register shuffled[r][t] from lane source_lane(r) for every t < 2^selectors, by all
  // lanes, and take that of t = s. source_lane(r) = lane_of_register[r] ^ (xor over the set bits i of the
  // receiving lane of lane_bases[i]).
  std::vector<std::vector<int>> shuffled;
  std::vector<int> lane_of_register;
  std::array<int, kLaneBits> lane_bases{};
  std::vector<uint32_t> selector_masks;

  // Shared: threads whose bits in store_free_* are 0 store operand registers [i * store_width, (i + 1) * store_width)
  // at offset store(i * store_width, lane, warp), all threads meet at a barrier, load result registers
  // [i * load_width, ...) from load(...) likewise, and meet again before the memory is used for something else.
  // Offsets are in elements; accesses are aligned to their width.
  LinearLayout store, load; // (register, lane, warp) -> Offset
  int store_width = 1, load_width = 1;
  // Loads of matrices in place of load_width: register pairs [i * matrices(), (i + 1) * matrices()) at once.
  enum class Matrices : uint8_t {
    None,
    Rows,    // register 0 and lanes 0, 1 move along what is contiguous
    Columns, // lanes 2, 3, 4 do: transposed
  } load_matrices = Matrices::None;
  [[nodiscard]] int matrices() const { return load.registers() >= 8 ? 4 : load.registers() / 2; }
  // Registers of the result that one load yields.
  [[nodiscard]] int load_step() const { return load_matrices == Matrices::None ? load_width : 2 * matrices(); }
  // Offsets of the rows that lanes name in such a load: of lane bits 0, 1, 2 the row, of 3 and 4 the matrix.
  [[nodiscard]] std::array<int, kLaneBits> row_bases() const;
  uint32_t store_free_lanes = 0, store_free_warps = 0;
  int64_t shared_bytes = 0;
  // Of one warp, all its accesses: how often shared memory is busy, and the least for accesses of these widths.
  int store_wavefronts = 0, load_wavefronts = 0, least_wavefronts = 0;

  [[nodiscard]] std::string str() const;
};

// Of layouts of one tile shape, element_bytes 1, 2, 4 or 8. Both as assign_layouts makes them: surjective,
// without copies among registers.
[[nodiscard]] Conversion plan_conversion(const LinearLayout& from, const LinearLayout& to, int element_bytes);

// Times that shared memory is busy while warp 0 makes all its accesses of `width` registers each, by going through
// the lanes; lanes with a bit of `without` set take no part.
[[nodiscard]] int wavefronts(const LinearLayout& offsets, int width, int element_bytes, uint32_t without = 0);

} // namespace tessera::layout
