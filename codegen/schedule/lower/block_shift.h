// Misaligned rows, private to the folder: tiles begin at aligned offsets (alignment peel).
#pragma once
#include "codegen/schedule/lower/block_context.h"

namespace tessera::block {

class Shift final : Part {
public:
  explicit Shift(Context& context) : Part(context) {}
  void shift_row();
  void shift_tile_rows();
  [[nodiscard]] bool is_shifted(const Side& s) const { return schedule_.access.alignment_peel > 1 && &s == &sides_[1]; }
  // Offset in the tiles of an access that is aligned with them.
  [[nodiscard]] std::optional<SymExpr> aligned_offset(const Access& a) const;
  void tell_end(const Access& a);
  void mask(Side& side);
  V whole_tile(V at);
  V tiles();
  [[nodiscard]] SymExpr positions_of_row() const; // number of positions that tiles cover
  [[nodiscard]] const SymExpr& by() const { return shift_.by; }
  [[nodiscard]] const SymExpr& place() const { return shift_.place; }

private:
  [[nodiscard]] std::optional<SymExpr> in_step(const Access& a) const;

  struct {
    SymExpr start; // of the row in the accesses that decide, elements
    SymExpr aligned, by,
        place; // start - by, a multiple of schedule_.access.alignment_peel; position in the tiles, from `aligned` on
  } shift_;
};

} // namespace tessera::block
