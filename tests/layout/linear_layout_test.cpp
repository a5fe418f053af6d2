// The algebra of layouts: worked examples, and laws on random ones.
#include "codegen/layout/linear_layout.h"
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace tessera::layout {
namespace {

using Pair = std::vector<int>;

// The table of the header, with 32 lanes.
LinearLayout rows() {
  return LinearLayout::blocked(
      {.shape = {4, 64}, .order = {1, 0}, .elements = {1, 2}, .lanes = {1, 32}, .warps = {2, 1}}, 2);
}

TEST(LinearLayout, BlockedCountsUpFastestAxisFirst) {
  LinearLayout l = rows();
  EXPECT_EQ(l.str(), "register: (0, 1) (2, 0) | lane: (0, 2) (0, 4) (0, 8) (0, 16) (0, 32) | warp: (1, 0) -> [4, 64]");
  EXPECT_EQ(l.registers(), 4);
  EXPECT_EQ(l.apply(1, 0, 0), (Pair{0, 1}));
  EXPECT_EQ(l.apply(2, 3, 0), (Pair{2, 6}));
  EXPECT_EQ(l.apply(3, 31, 1), (Pair{3, 63}));
  EXPECT_EQ(l.apply(Dim::Lane, 5, axis(1)), 10);
  EXPECT_EQ(l.basis(Dim::Warp, 0, axis(0)), 1);
  EXPECT_EQ(l.contiguous(axis(1)), 2);
  EXPECT_EQ(l.contiguous(axis(0)), 1);
  EXPECT_TRUE(l.is_injective() && l.is_surjective() && l.is_permutation());
  EXPECT_EQ(l.shape(), (Pair{4, 64}));
}

TEST(LinearLayout, ThreadsThatFindNothingHoldCopies) {
  LinearLayout l =
      LinearLayout::blocked({.shape = {16}, .order = {0}, .elements = {2}, .lanes = {32}, .warps = {4}}, 4);
  EXPECT_EQ(l.str(), "register: (1) | lane: (2) (4) (8) (0) (0) | warp: (0) (0) -> [16]");
  EXPECT_EQ(l.free_mask(Dim::Lane), 0b11000u);
  EXPECT_EQ(l.free_mask(Dim::Warp), 0b11u);
  EXPECT_EQ(l.free_mask(Dim::Register), 0u);
  EXPECT_FALSE(l.is_injective());
  EXPECT_TRUE(l.is_surjective());
  LinearLayout one =
      LinearLayout::blocked({.shape = {1}, .order = {0}, .elements = {4}, .lanes = {32}, .warps = {4}}, 4);
  EXPECT_EQ(one.str(), "register: | lane: (0) (0) (0) (0) (0) | warp: (0) (0) -> [1]");
}

TEST(LinearLayout, SlicesDropAnAxisAndItsCopiesInRegisters) {
  LinearLayout mean = rows().drop_axis(1);
  EXPECT_EQ(mean.str(), "register: (2) | lane: (0) (0) (0) (0) (0) | warp: (1) -> [4]");
  EXPECT_EQ(rows().drop_axis(0).str(), "register: (1) | lane: (2) (4) (8) (16) (32) | warp: (0) -> [64]");
  std::vector<int> column = {4, 1};
  EXPECT_EQ(rows().project(column), mean.insert_axis(1));
  EXPECT_EQ(mean.insert_axis(1).drop_axis(1), mean);
  EXPECT_EQ(mean.insert_axis(0).drop_axis(0), mean);
}

TEST(LinearLayout, BroadcastIsARegisterMap) {
  std::vector<int> column = {4, 1}, row = {1, 64};
  // Registers 0, 1 of a thread are columns of one row, 2 and 3 of the row two below.
  EXPECT_EQ(register_map(rows().project(column), rows()), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(register_map(rows().project(row), rows()), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(register_map(rows(), rows()), (std::vector<int>{0, 1, 2, 3}));
  LinearLayout other = LinearLayout::blocked(
      {.shape = {4, 64}, .order = {1, 0}, .elements = {1, 1}, .lanes = {1, 32}, .warps = {2, 1}}, 2);
  EXPECT_EQ(register_map(rows(), other), std::nullopt); // neighbours are in other lanes
}

TEST(LinearLayout, ProductsAndQuotients) {
  LinearLayout low = LinearLayout::identity(Dim::Register, axis(0), 2);
  LinearLayout high = LinearLayout::identity(Dim::Lane, axis(0), 3) * LinearLayout::identity(Dim::Register, axis(1), 1);
  LinearLayout both = low * high;
  EXPECT_EQ(both.str(), "register: (1, 0) (2, 0) (0, 1) | lane: (4, 0) (8, 0) (16, 0) -> [32, 2]");
  EXPECT_EQ(both.divide_left(low)->str(), "register: (0, 1) | lane: (1, 0) (2, 0) (4, 0) -> [8, 2]");
  EXPECT_EQ(low * *both.divide_left(low), both);
  LinearLayout right = both.divide_right(high).value();
  EXPECT_EQ(right * high, both);
  EXPECT_EQ(both.divide_left(LinearLayout::identity(Dim::Register, axis(0), 3)), std::nullopt);
  EXPECT_EQ(both.divide_right(LinearLayout::identity(Dim::Warp, axis(0), 1)), std::nullopt);
  EXPECT_EQ(LinearLayout() * both, both);
  EXPECT_EQ(LinearLayout::zeros({Dim::Warp, 2}, {{axis(0), 1}}).str(), "warp: (0) (0) -> [2]");
}

TEST(LinearLayout, InverseNamesThePlaceWithoutRedundantBits) {
  LinearLayout mean = rows().drop_axis(1);
  EXPECT_EQ(mean.invert().str(), "axis 0: (0, 0, 1) (1, 0, 0) -> [register 2, lane 32, warp 2]");
  EXPECT_EQ(mean.invert().compose(mean), LinearLayout::identity(axis(0), axis(0), 2));
}

TEST(LinearLayout, AValueThatIsInEachWarpIsFetchedFromTheOwnOne) {
  LinearLayout from =
      LinearLayout::blocked({.shape = {32}, .order = {0}, .elements = {1}, .lanes = {32}, .warps = {1}}, 4);
  LinearLayout to =
      LinearLayout::blocked({.shape = {32}, .order = {0}, .elements = {1}, .lanes = {8}, .warps = {4}}, 4);
  LinearLayout place = to.invert_and_compose(from);
  EXPECT_EQ(place.compose(from), to);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(place.basis(Dim::Warp, i, Dim::Warp), 1 << i);
  for (int i = 0; i < kLaneBits; ++i) EXPECT_EQ(place.basis(Dim::Lane, i, Dim::Warp), 0);
}

// --- laws ---

struct Maker {
  std::mt19937 rng;
  int upto(int n) { return std::uniform_int_distribution<int>(0, n)(rng); }
  // Any map from 2^bits places to a tile; with `onto`, one that reaches all of it.
  LinearLayout any(const std::vector<Extent>& out, bool onto) {
    for (;;) {
      std::vector<Extent> in = {{Dim::Register, upto(5)}, {Dim::Lane, 5}, {Dim::Warp, upto(3)}};
      int n = in[0].bits + in[1].bits + in[2].bits, m = 0;
      for (const Extent& e : out) m += e.bits;
      std::vector<Bits> bases;
      for (int i = 0; i < n; ++i)
        bases.push_back(upto(4) == 0 ? 0 : std::uniform_int_distribution<Bits>(0, (Bits{1} << m) - 1)(rng));
      LinearLayout l(in, out, bases);
      if (!onto || l.is_surjective()) return l;
    }
  }
  LinearLayout blocked() {
    Blocked b;
    int rank = 1 + upto(2), lanes = 5, warps = upto(4), w = warps;
    for (int i = 0; i < rank; ++i) {
      b.shape.push_back(1 << upto(6));
      b.order.push_back(i);
      b.elements.push_back(1 << upto(3));
      int l = upto(lanes), m = upto(warps);
      lanes -= l;
      warps -= m;
      b.lanes.push_back(1 << l);
      b.warps.push_back(1 << m);
    }
    std::shuffle(b.order.begin(), b.order.end(), rng);
    return LinearLayout::blocked(b, 1 << w);
  }
};

TEST(LinearLayoutLaws, ApplyIsLinearAndComposeIsApplyTwice) {
  Maker make{std::mt19937(1)};
  for (int round = 0; round < 300; ++round) {
    LinearLayout a = make.any({{axis(0), make.upto(4)}, {axis(1), make.upto(4)}}, false);
    LinearLayout b(a.out(), {{Dim::Offset, 6}}, [&] {
      std::vector<Bits> bases;
      for (int i = 0; i < a.out_bits(); ++i) bases.push_back(static_cast<Bits>(make.upto(63)));
      return bases;
    }());
    LinearLayout c = a.compose(b);
    for (int i = 0; i < 20; ++i) {
      Bits all = (Bits{1} << a.in_bits()) - 1;
      Bits x = make.rng() & all, y = make.rng() & all;
      EXPECT_EQ(a.apply(x) ^ a.apply(y), a.apply(x ^ y));
      EXPECT_EQ(c.apply(x), b.apply(a.apply(x)));
    }
  }
}

TEST(LinearLayoutLaws, InvertAndComposeFindsThePlace) {
  Maker make{std::mt19937(2)};
  for (int round = 0; round < 500; ++round) {
    std::vector<Extent> out = {{axis(0), make.upto(3)}, {axis(1), make.upto(3)}};
    LinearLayout a = make.any(out, false), b = make.any(out, true);
    EXPECT_EQ(a.invert_and_compose(b).compose(b), a) << a.str() << "\n" << b.str();
    LinearLayout inverse = b.invert();
    LinearLayout unit = inverse.compose(b);
    for (int i = 0; i < b.out_bits(); ++i) EXPECT_EQ(unit.bases()[static_cast<size_t>(i)], Bits{1} << i);
    if (!b.is_injective()) continue;
    for (Bits x = 0; x < (Bits{1} << b.in_bits()); ++x) EXPECT_EQ(inverse.apply(b.apply(x)), x);
  }
}

TEST(LinearLayoutLaws, QuotientsUndoProducts) {
  Maker make{std::mt19937(3)};
  for (int round = 0; round < 300; ++round) {
    LinearLayout a = make.any({{axis(0), make.upto(3)}, {axis(1), make.upto(3)}}, false);
    LinearLayout b = make.any({{axis(0), make.upto(3)}, {axis(1), make.upto(3)}}, false);
    LinearLayout ab = a * b;
    EXPECT_EQ(ab.divide_right(b), a);
    EXPECT_EQ(ab.divide_left(a), b);
    LinearLayout c = make.any({{axis(1), make.upto(2)}}, false);
    EXPECT_EQ((a * b) * c, a * (b * c));
  }
}

TEST(LinearLayoutLaws, BlockedLayoutsCoverTheTileOnceUpToFreeBits) {
  Maker make{std::mt19937(4)};
  for (int round = 0; round < 300; ++round) {
    LinearLayout l = make.blocked();
    EXPECT_TRUE(l.is_permutation() && l.is_surjective()) << l.str();
    EXPECT_EQ(l.free_mask(Dim::Register), 0u);
    std::set<Bits> seen;
    int warps = l.warps();
    for (int w = 0; w < warps; ++w)
      for (int lane = 0; lane < kLanes; ++lane) {
        if ((static_cast<uint32_t>(lane) & l.free_mask(Dim::Lane)) ||
            (static_cast<uint32_t>(w) & l.free_mask(Dim::Warp)))
          continue;
        for (int r = 0; r < l.registers(); ++r)
          EXPECT_TRUE(seen.insert(l.apply(l.pack_in(std::vector<int>{r, lane, w}))).second);
      }
    int64_t elements = 1;
    for (int d : l.shape()) elements *= d;
    EXPECT_EQ(static_cast<int64_t>(seen.size()), elements);
    for (int i = 0; i < static_cast<int>(l.out().size()); ++i) {
      int c = l.contiguous(axis(i));
      for (int r = 0; r < c; ++r) EXPECT_EQ(l.apply(Dim::Register, r, axis(i)), r);
    }
  }
}

TEST(LinearLayoutLaws, SlicesBroadcastBackByRegisterMap) {
  Maker make{std::mt19937(5)};
  for (int round = 0; round < 300; ++round) {
    LinearLayout l = make.blocked();
    for (int i = 0; i < static_cast<int>(l.out().size()); ++i) {
      std::vector<int> flat = l.shape();
      flat[static_cast<size_t>(i)] = 1;
      LinearLayout slice = l.project(flat);
      std::optional<std::vector<int>> map = register_map(slice, l);
      ASSERT_TRUE(map.has_value()) << slice.str() << "\n" << l.str();
      for (int r = 0; r < l.registers(); ++r)
        for (int lane = 0; lane < kLanes; lane += 5) {
          std::vector<int> want = l.apply(r, lane, l.warps() - 1);
          want[static_cast<size_t>(i)] = 0;
          EXPECT_EQ(slice.apply((*map)[static_cast<size_t>(r)], lane, l.warps() - 1), want);
        }
    }
  }
}

} // namespace
} // namespace tessera::layout
