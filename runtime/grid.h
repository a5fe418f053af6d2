// The grid of a launch: how many programs there are along each of three axes. On a GPU they are the axes of the driver's
// grid; on the host a program has a number, x first.
#pragma once
#include <array>
#include <cstdint>

namespace tessera {

inline constexpr int kGridAxes = 3;
// Most programs along each axis: CUDA's limits of a grid, which the host has as well.
inline constexpr std::array<int64_t, kGridAxes> kMaxGrid = {0x7fffffff, 0xffff, 0xffff};

struct Grid {
  std::array<int64_t, kGridAxes> extents = {1, 1, 1};

  constexpr Grid(int64_t x = 1, int64_t y = 1, int64_t z = 1) : extents{x, y, z} {}
  [[nodiscard]] constexpr int64_t operator[](int axis) const { return extents[static_cast<size_t>(axis)]; }
  // 0 where an extent is 0 or less. For extents of at most kMaxGrid.
  [[nodiscard]] constexpr int64_t programs() const {
    if (extents[0] <= 0 || extents[1] <= 0 || extents[2] <= 0) return 0;
    return extents[0] * extents[1] * extents[2];
  }
  // The index along an axis of program `number`.
  [[nodiscard]] constexpr int64_t index(int64_t number, int axis) const {
    for (int a = 0; a < axis; ++a) number /= (*this)[a];
    return axis + 1 < kGridAxes ? number % (*this)[axis] : number;
  }
  bool operator==(const Grid&) const = default;
};

} // namespace tessera
