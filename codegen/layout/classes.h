// Values that share a layout, and the layout of each such class.
#pragma once
#include "codegen/layout/choose.h"
#include <map>

namespace tessera::layout {

// Layouts before conversions: what each value would be held in by itself.
struct Classes {
  // By ValueId: tiles that are computed again in whatever layout they are asked for. Ranges, constants and broadcast
  // scalars, and arithmetic on them that is cheaper than moving its result.
  std::vector<char> cheap;
  // By ValueId: the layout of each tile that is not cheap.
  std::vector<LinearLayout> of_value;
  // By OpId, of tile Loads, Stores and AtomicAdds: in which they are done, and how many elements at a time.
  std::vector<LinearLayout> of_access;
  std::vector<int> access_width;
  std::vector<bool> splits;    // by OpId: the mask of an access may hold for a part of its elements
  std::vector<Window> windows; // by OpId, of Loads
  // For cheap tiles that nothing else says anything about.
  [[nodiscard]] const LinearLayout& of_shape(const std::vector<int>& shape);

  int warps = 4;
  std::map<std::vector<int>, LinearLayout> by_shape;
};

[[nodiscard]] Classes classify(const tile::Kernel& kernel, int warps);

} // namespace tessera::layout
