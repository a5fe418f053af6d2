// Values that neighbouring programs have in common.
//
// Programs are in groups of `group`, a power of two: c * group to (c + 1) * group - 1. A scalar is uniform if all programs
// of a group compute the same value: what follows from parameters, constants and p / (k * group), where p is the
// program's index, and from memory that nothing writes. The induction value of a loop is uniform, iteration by iteration, if
// the loop begins and goes on by uniform values.
//
//   %q = div(program_id 0, 2)      uniform in groups of 2
//   %r = mod(program_id 0, 2)      is not
#pragma once
#include "codegen/tile/tile.h"
#include <map>

namespace tessera::layout {

class Uniform {
public:
  Uniform(const tile::Kernel& kernel, int group);
  [[nodiscard]] bool is_uniform(tile::ValueId scalar) const;
  // All programs of a group do as many iterations of the loop.
  [[nodiscard]] bool iterates(const tile::Op& loop) const;

private:
  [[nodiscard]] bool is_number(const tile::Op& div) const; // of the group, or of several

  const tile::Kernel& k_;
  const int group_;
  std::map<tile::ValueId, const tile::Op*> definitions_, loops_; // loops: by induction value
  mutable std::map<tile::ValueId, bool> known_;
};

} // namespace tessera::layout
