// The layout that a tile's accesses agree on, and the blocked layout for it.
#include "codegen/layout/choose.h"
#include <gtest/gtest.h>

namespace tessera::layout {
namespace {

// An access of a one-dimensional tile of 4096.
Access contiguous(int bytes, int width) { return {-1, {4096}, bytes, {width}, {4096}, {1}, {1}, {1}}; }
Access strided(int bytes, int64_t stride) { return {-1, {4096}, bytes, {1}, {1}, {1}, {stride}, {1}}; }
Access gathered(int bytes) { return {-1, {4096}, bytes, {1}, {1}, {1}, {std::nullopt}, {1}}; }
int width(const std::vector<Access>& accesses) { return vote({4096}, accesses, kAccessBytes).width; }

TEST(Vote, LinesAndInstructionsAreCounted) {
  EXPECT_EQ(contiguous(2, 8).cost(0, 8), 5.0 / 256);
  EXPECT_EQ(contiguous(2, 8).cost(0, 1), 2.0 / 32);
  EXPECT_EQ(contiguous(2, 1).cost(0, 8), 5.0 / 32);
  EXPECT_EQ(strided(4, 2).cost(0, 1), 3.0 / 32);
  EXPECT_EQ(strided(4, 0).cost(0, 4), 2.0 / 32);
  EXPECT_EQ(gathered(4).cost(0, 4), 33.0 / 32);
}

TEST(Vote, TheNarrowestElementsDecideUnlessOthersSuffer) {
  EXPECT_EQ(width({contiguous(4, 4), contiguous(4, 4)}), 4);
  EXPECT_EQ(width({contiguous(2, 8), contiguous(4, 4)}), 8);
  EXPECT_EQ(width({contiguous(1, 16), contiguous(4, 4)}), 8);
  EXPECT_EQ(width({contiguous(1, 16)}), 16);
  EXPECT_EQ(width({contiguous(2, 8), gathered(2)}), 8); // a gather does not care
  EXPECT_EQ(width({contiguous(2, 1), contiguous(2, 1)}), 1);
  // An operand that is not aligned, and every second element: neighbouring lanes are better than neighbouring
  // registers.
  EXPECT_LE(width({contiguous(2, 8), contiguous(2, 8), contiguous(2, 1)}), 4);
  EXPECT_LE(width({contiguous(2, 8), strided(2, 2), strided(2, 2)}), 2);
  EXPECT_EQ(vote({4096}, {contiguous(2, 8)}, 4).width, 4);
  // Pairs of equal elements that may lie anywhere are better in neighbouring lanes; near each other they do not count.
  Access pairs{-1, {4096}, 2, {1}, {1}, {2}, {std::nullopt}, {1}};
  EXPECT_LT(width({contiguous(2, 8), pairs, contiguous(2, 8)}), 8);
  pairs.span = 20;
  EXPECT_EQ(width({contiguous(2, 8), pairs, contiguous(2, 8)}), 8);
}

TEST(Vote, TheAxisOfLeastCost) {
  auto along = [](int axis, int64_t other) {
    Access a{-1, {64, 64}, 4, {1, 1}, {1, 1}, {1, 1}, {std::nullopt, std::nullopt}, {1, 1}};
    size_t i = static_cast<size_t>(axis);
    a.width[i] = 4, a.contiguity[i] = 64, a.stride[i] = 1;
    if (other >= 0) a.stride[1 - i] = other;
    return a;
  };
  auto first = [](const std::vector<Access>& accesses) { return vote({64, 64}, accesses, kAccessBytes).order[0]; };
  EXPECT_EQ(first({along(0, -1), along(1, -1)}), 1);
  EXPECT_EQ(first({along(0, -1), along(0, -1), along(1, -1)}), 0);
  EXPECT_EQ(first({along(0, 0), along(1, -1)}), 1); // one element for all lanes costs little
  EXPECT_EQ(first({}), 1);
  EXPECT_EQ(vote({64, 1}, {}, kAccessBytes).order, (std::vector<int>{0, 1}));
  EXPECT_EQ(along(0, -1).better_axis(1), 0);
  EXPECT_EQ(along(0, 0).better_axis(1), -1);
  EXPECT_EQ(along(0, 2).better_axis(1), -1);
  EXPECT_EQ(along(1, -1).better_axis(1), -1);
}

TEST(LayoutFor, WidthShrinksWhereThreadsWouldIdleAndWarpsAvoidReducedAxes) {
  EXPECT_EQ(layout_for({256}, {{0}, 8}, 4, {false}).str(),
            "register: (1) | lane: (2) (4) (8) (16) (32) | warp: (64) (128) -> [256]");
  EXPECT_EQ(layout_for({4, 512}, {{1, 0}, 4}, 4, {false, true}).basis(Dim::Warp, 0, axis(0)), 1);
  EXPECT_EQ(layout_for({4, 512}, {{1, 0}, 4}, 4, {true, false}).basis(Dim::Warp, 0, axis(1)), 128);
  EXPECT_EQ(layout_for({1, 512}, {{1, 0}, 4}, 4, {false, true}).basis(Dim::Warp, 0, axis(1)), 128);
}

TEST(ScanLayout, AThreadHoldsARun) {
  for (int rows : {1, 4, 64})
    for (int columns : {1, 16, 256, 4096})
      for (int warps : {1, 4, 16})
        for (int scanned : {0, 1}) {
          LinearLayout l = scan_layout({rows, columns}, scanned, warps);
          EXPECT_TRUE(is_scannable(l, scanned) && l.is_surjective() && l.is_permutation()) << l.str();
        }
  EXPECT_FALSE(is_scannable(layout_for({1024}, {{0}, 4}, 1, {false}), 0)); // registers of a second round
  EXPECT_TRUE(is_scannable(layout_for({128}, {{0}, 4}, 1, {false}), 0));
}

} // namespace
} // namespace tessera::layout
