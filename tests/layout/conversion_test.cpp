// Conversions carried out on a model of a block: every place gets its element, and shared memory without conflicts.
#include "codegen/layout/conversion.h"
#include "codegen/layout/warpgroup.h"
#include <bit>
#include <gtest/gtest.h>
#include <map>
#include <random>

namespace tessera::layout {
namespace {

using Kind = Conversion::Kind;

LinearLayout tile(std::vector<int> shape, std::vector<int> order, std::vector<int> elements, std::vector<int> lanes,
                  std::vector<int> block_warps, int warps) {
  return LinearLayout::blocked(
      {std::move(shape), std::move(order), std::move(elements), std::move(lanes), std::move(block_warps)}, warps);
}

// The element, packed, that each place holds: elements[warp][lane][register].
using Block = std::vector<std::vector<std::vector<int64_t>>>;
Block held(const LinearLayout& l) {
  Block b(static_cast<size_t>(l.warps()));
  for (int w = 0; w < l.warps(); ++w) {
    b[static_cast<size_t>(w)].resize(kLanes);
    for (int lane = 0; lane < kLanes; ++lane)
      for (int r = 0; r < l.registers(); ++r)
        b[static_cast<size_t>(w)][static_cast<size_t>(lane)].push_back(
            static_cast<int64_t>(l.apply(l.pack_in(std::vector<int>{r, lane, w}))));
  }
  return b;
}

// The elements of the result after the plan has been carried out on the operand.
Block carried_out(const Conversion& c, const LinearLayout& from, const LinearLayout& to) {
  Block in = held(from), out = held(to);
  std::vector<int64_t> memory(c.kind == Kind::Shared ? size_t{1} << from.out_bits() : 0, -1);
  auto offset = [](const LinearLayout& l, int r, int lane, int w) {
    return static_cast<size_t>(l.apply(r, lane, w)[0]);
  };
  if (c.kind == Kind::Shared)
    for (int w = 0; w < from.warps(); ++w)
      for (int lane = 0; lane < kLanes; ++lane) {
        if ((static_cast<uint32_t>(lane) & c.store_free_lanes) || (static_cast<uint32_t>(w) & c.store_free_warps))
          continue;
        for (int r = 0; r < from.registers(); r += c.store_width) {
          size_t start = offset(c.store, r, lane, w);
          EXPECT_EQ(start % static_cast<size_t>(c.store_width), 0u);
          for (int i = 0; i < c.store_width; ++i) {
            int64_t& word = memory.at(start + static_cast<size_t>(i));
            EXPECT_EQ(word, -1) << "written twice";
            word = in[static_cast<size_t>(w)][static_cast<size_t>(lane)][static_cast<size_t>(r + i)];
          }
        }
      }
  for (int w = 0; w < to.warps(); ++w)
    for (int lane = 0; lane < kLanes; ++lane)
      for (int r = 0; r < to.registers(); ++r) {
        int64_t& result = out[static_cast<size_t>(w)][static_cast<size_t>(lane)][static_cast<size_t>(r)];
        switch (c.kind) {
        case Kind::Registers:
          result = in[static_cast<size_t>(w)][static_cast<size_t>(lane)]
                     [static_cast<size_t>(c.register_map[static_cast<size_t>(r)])];
          break;
        case Kind::Shuffles: {
          int source = c.lane_of_register[static_cast<size_t>(r)];
          for (int i = 0; i < kLaneBits; ++i)
            if (lane >> i & 1) source ^= c.lane_bases[static_cast<size_t>(i)];
          size_t selector = 0;
          for (size_t j = 0; j < c.selector_masks.size(); ++j)
            selector |= static_cast<size_t>(std::popcount(static_cast<uint32_t>(lane) & c.selector_masks[j]) & 1) << j;
          int reg = c.shuffled[static_cast<size_t>(r)].at(selector);
          result = in[static_cast<size_t>(w)][static_cast<size_t>(source)][static_cast<size_t>(reg)];
          break;
        }
        case Kind::Swaps: { // back through the renaming and the swaps
          int reg = c.register_map[static_cast<size_t>(r)], source = lane;
          for (auto s = c.swaps.rbegin(); s != c.swaps.rend(); ++s) {
            const int in_lane = source >> s->lane_bit & 1, in_register = reg >> s->register_bit & 1;
            source = (source & ~(1 << s->lane_bit)) | in_register << s->lane_bit;
            reg = (reg & ~(1 << s->register_bit)) | in_lane << s->register_bit;
          }
          result = in[static_cast<size_t>(w)][static_cast<size_t>(source)][static_cast<size_t>(reg)];
          break;
        }
        case Kind::Shared: {
          int first = r / c.load_width * c.load_width;
          size_t start = offset(c.load, first, lane, w);
          EXPECT_EQ(start % static_cast<size_t>(c.load_width), 0u);
          result = memory.at(start + static_cast<size_t>(r - first));
          break;
        }
        }
      }
  return out;
}

Conversion checked(const LinearLayout& from, const LinearLayout& to, int bytes, bool spares_memory = false) {
  Conversion c = plan_conversion(from, to, bytes, spares_memory);
  EXPECT_EQ(carried_out(c, from, to), held(to)) << c.str() << "\n" << from.str() << "\n" << to.str();
  return c;
}

TEST(Conversion, EqualLayoutsAndSlicesStayInTheirRegisters) {
  LinearLayout a = tile({64}, {0}, {2}, {32}, {1}, 4);
  Conversion c = checked(a, a, 4);
  EXPECT_EQ(c.kind, Kind::Registers);
  EXPECT_EQ(c.register_map, (std::vector<int>{0, 1}));
  // The same lanes, registers in another order.
  LinearLayout rows = tile({4, 32}, {1, 0}, {1, 1}, {1, 32}, {1, 1}, 1);
  LinearLayout swapped({{Dim::Register, 2}, {Dim::Lane, 5}, {Dim::Warp, 0}}, rows.out(),
                       {rows.bases()[1], rows.bases()[0], rows.bases()[2], rows.bases()[3], rows.bases()[4],
                        rows.bases()[5], rows.bases()[6]});
  EXPECT_EQ(checked(rows, swapped, 4).register_map, (std::vector<int>{0, 2, 1, 3}));
}

TEST(Conversion, WhereMemoryIsSparedLanesAndRegistersSwapBits) {
  for (auto [m, n] : {std::pair{64, 64}, {128, 256}, {64, 16}}) {
    const LinearLayout sums = warpgroup_accumulators({m, n}, 4);
    for (int width : {4, 8}) {
      const LinearLayout wide = with_contiguous(sums, 1, width);
      for (const auto& [from, to] : {std::pair{sums, wide}, {wide, sums}})
        if (plan_conversion(from, to, 2).kind == Kind::Shared) {
          EXPECT_EQ(checked(from, to, 2, true).kind, Kind::Swaps) << m << " x " << n << " " << width;
        }
    }
  }
  // A lane's bit that no register has.
  LinearLayout rows = tile({64, 64}, {1, 0}, {1, 1}, {1, 32}, {4, 1}, 4),
               columns = tile({64, 64}, {0, 1}, {1, 1}, {32, 1}, {1, 4}, 4);
  EXPECT_EQ(checked(rows, columns, 2, true).kind, Kind::Shared);
}

TEST(Conversion, WithinAWarpItIsShuffles) {
  // 32 elements, held by the first lanes in pairs, wanted one a lane.
  LinearLayout pairs = tile({32}, {0}, {2}, {16}, {1}, 2), singles = tile({32}, {0}, {1}, {32}, {1}, 2);
  Conversion c = checked(pairs, singles, 4);
  EXPECT_EQ(c.kind, Kind::Shuffles);
  EXPECT_EQ(c.selector_masks, (std::vector<uint32_t>{1})); // odd lanes take register 1
  EXPECT_EQ(c.shuffled, (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_EQ(checked(singles, pairs, 4).kind, Kind::Shuffles);
  // Rows over the lanes to columns over the lanes, in one warp.
  EXPECT_EQ(
      checked(tile({8, 4}, {1, 0}, {1, 1}, {8, 4}, {1, 1}, 2), tile({8, 4}, {0, 1}, {1, 1}, {8, 4}, {1, 1}, 2), 2).kind,
      Kind::Shuffles);
}

TEST(Conversion, AcrossWarpsItIsSharedMemory) {
  Conversion c = checked(tile({256}, {0}, {4}, {32}, {2}, 2), tile({256}, {0}, {1}, {32}, {2}, 2), 4);
  EXPECT_EQ(c.kind, Kind::Shared);
  EXPECT_EQ(c.shared_bytes, 1024);
  EXPECT_EQ(c.store_wavefronts + c.load_wavefronts, c.least_wavefronts) << c.str();
}

// A transpose of a tile whose rows are read, and whose columns are written, in accesses of up to 16 bytes.
struct Transposed {
  int rows, columns, bytes, warps;
};
class Transposes : public testing::TestWithParam<Transposed> {};

TEST_P(Transposes, HaveNoBankConflicts) {
  auto [rows, columns, bytes, warps] = GetParam();
  auto side = [&](int inner) {
    std::vector<int> shape = {rows, columns}, elements = {1, 1}, lanes = {1, 1}, spread = {1, 1};
    size_t in = static_cast<size_t>(inner), out = 1 - in;
    elements[in] = std::max(1, std::min(16 / bytes, rows * columns / (32 * warps)));
    lanes[in] = std::min(32, shape[in] / elements[in]);
    lanes[out] = std::min(32 / lanes[in], shape[out]);
    spread[out] = std::min(warps, shape[out] / lanes[out]);
    spread[in] = warps / spread[out];
    return tile(shape, {inner, 1 - inner}, elements, lanes, spread, warps);
  };
  LinearLayout from = side(1), to = side(0);
  Conversion c = checked(from, to, bytes);
  ASSERT_EQ(c.kind, Kind::Shared) << c.str();
  EXPECT_EQ(c.shared_bytes, int64_t{rows} * columns * bytes);
  EXPECT_EQ(c.store_wavefronts + c.load_wavefronts, c.least_wavefronts) << c.str() << from.str() << "\n" << to.str();
  EXPECT_EQ(wavefronts(c.store, c.store_width, bytes), c.store_wavefronts);
  // Without the swizzle, rows one behind the other, the lanes of a column share a bank.
  LinearLayout plain = LinearLayout::identity(Dim::Offset, axis(1), std::countr_zero(static_cast<unsigned>(columns))) *
                       LinearLayout::identity(Dim::Offset, axis(0), std::countr_zero(static_cast<unsigned>(rows)));
  EXPECT_GT(wavefronts(to.invert_and_compose(plain), 1, bytes), to.registers()) << "a test that tests nothing";
}
INSTANTIATE_TEST_SUITE_P(All, Transposes,
                         testing::Values(Transposed{64, 64, 4, 4}, Transposed{64, 64, 4, 8}, Transposed{64, 64, 2, 4},
                                         Transposed{64, 64, 2, 8}, Transposed{32, 32, 4, 4}, Transposed{32, 32, 4, 8},
                                         Transposed{32, 32, 2, 4}, Transposed{128, 32, 4, 4}, Transposed{128, 32, 2, 4},
                                         Transposed{32, 128, 4, 8}, Transposed{32, 128, 2, 8}, Transposed{64, 64, 1, 4},
                                         Transposed{64, 64, 8, 4}, Transposed{32, 32, 8, 4},
                                         Transposed{128, 128, 4, 16}),
                         [](const auto& info) {
                           const Transposed& t = info.param;
                           return std::to_string(t.rows) + "x" + std::to_string(t.columns) + "_bytes" +
                                  std::to_string(t.bytes) + "_warps" + std::to_string(t.warps);
                         });

TEST(Conversion, AnyTwoBlockedLayoutsAndSlices) {
  std::mt19937 rng(7);
  auto upto = [&](int n) { return std::uniform_int_distribution<int>(0, n)(rng); };
  std::map<Kind, int> kinds;
  for (int round = 0; round < 1500; ++round) {
    int warps = upto(3), rank = 1 + upto(1), parent = rank + upto(1);
    std::vector<int> shape;
    for (int i = 0; i < parent; ++i) shape.push_back(1 << upto(i < rank ? 5 : 3));
    auto random = [&] {
      std::vector<int> order, elements, lanes, spread;
      int l = 5, w = warps;
      for (int i = 0; i < parent; ++i) {
        order.push_back(i);
        elements.push_back(1 << upto(3));
        int a = upto(l), b = upto(w);
        l -= a, w -= b;
        lanes.push_back(1 << a);
        spread.push_back(1 << b);
      }
      std::shuffle(order.begin(), order.end(), rng);
      LinearLayout r = tile(shape, order, elements, lanes, spread, 1 << warps);
      return parent > rank ? r.drop_axis(parent - 1) : r;
    };
    LinearLayout from = random(), to = random();
    Conversion c = checked(from, to, 1 << upto(3));
    ++kinds[c.kind];
    if (HasFailure()) return;
  }
  for (Kind kind : {Kind::Registers, Kind::Shuffles, Kind::Shared}) EXPECT_GT(kinds[kind], 50);
}

} // namespace
} // namespace tessera::layout
