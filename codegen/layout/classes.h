// Classes of values that share a layout, and the layout of each class.
#pragma once
#include "codegen/layout/choose.h"
#include "codegen/layout/warpgroup.h"
#include <map>

namespace tessera::layout {

// Layouts before conversions: the preferred layout of each value.
struct Classes {
  // By ValueId: tiles that are recomputed in any required layout: ranges, constants, broadcast scalars, and arithmetic
  // on them that is cheaper than a conversion.
  std::vector<char> cheap;
  // By ValueId: the layout of each tile that is not cheap.
  std::vector<LinearLayout> of_value;
  // By OpId of tile Loads, Stores and Atomics: the layout of the access, and its elements per access.
  std::vector<LinearLayout> of_access;
  std::vector<int> access_width;
  std::vector<bool> splits;    // by OpId: the mask of an access may be true for a part of its elements
  std::vector<Window> windows; // by OpId, of Loads
  // Layout of cheap tiles that no other value determines.
  [[nodiscard]] const LinearLayout& of_shape(const std::vector<int>& shape);

  int warps = 4;
  const WarpgroupPlan* plan = nullptr;
  std::map<std::vector<int>, LinearLayout> by_shape;
};

// `plan`: as of accumulator_layout (dot.h).
[[nodiscard]] Classes classify(const tile::Kernel& kernel, int warps, const WarpgroupPlan* plan);

} // namespace tessera::layout
