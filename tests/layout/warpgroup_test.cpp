// Which loads are boxes of a tensor, which products warpgroups compute, and where their sums lie.
#include "codegen/layout/conversion.h"
#include "codegen/layout/warpgroup.h"
#include "tests/tile/helpers.h"
#include <gtest/gtest.h>
#include <regex>

namespace tessera::layout {
namespace {

using tile::test::read;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// c = a b, a by rows, b by columns: both have the sum's dimension contiguous.
const std::string kProduct = R"(
tile.kernel @product(%a: ptr<bf16> invariant, %b: ptr<bf16> invariant, %c: ptr<f32> written, %m: i64, %n: i64, %k: i64 multiple=8) config(warps: 8) {
  %p = program_id 0                             : i64
  %r0 = mul(%p, 128)                            : i64
  %r = range 128                                : tile<[128], i64>
  %row = add(%r, %r0)                           : tile<[128], i64>
  %row_in = lt(%row, %m)                        : tile<[128], bool>
  %rows = expand_dims(%row) axis=1              : tile<[128, 1], i64>
  %rows_in = expand_dims(%row_in) axis=1        : tile<[128, 1], bool>
  %a_rows = mul(%rows, %k)                      : tile<[128, 1], i64>
  %a_row = broadcast(%a_rows)                   : tile<[128, 64], i64>
  %a_row_in = broadcast(%rows_in)               : tile<[128, 64], bool>
  %column = range 64                            : tile<[64], i64>
  %column_in = lt(%column, %n)                  : tile<[64], bool>
  %columns = expand_dims(%column) axis=0        : tile<[1, 64], i64>
  %columns_in = expand_dims(%column_in) axis=0  : tile<[1, 64], bool>
  %b_columns = mul(%columns, %k)                : tile<[1, 64], i64>
  %b_column = broadcast(%b_columns)             : tile<[64, 64], i64>
  %b_column_in = broadcast(%columns_in)         : tile<[64, 64], bool>
  %zero = const 0                               : tile<[128, 64], f32>
  %sum = for %i = 0 to %k step 64 num_stages=3 carry(%acc = %zero) {
    %depth = add(%column, %i)                   : tile<[64], i64>
    %depth_in = lt(%depth, %k)                  : tile<[64], bool>
    %a_depths = expand_dims(%depth) axis=0      : tile<[1, 64], i64>
    %a_ins = expand_dims(%depth_in) axis=0      : tile<[1, 64], bool>
    %a_depth = broadcast(%a_depths)             : tile<[128, 64], i64>
    %a_depth_in = broadcast(%a_ins)             : tile<[128, 64], bool>
    %a_at = add(%a_row, %a_depth)               : tile<[128, 64], i64>
    %a_in = and(%a_row_in, %a_depth_in)         : tile<[128, 64], bool>
    %a_tile = load %a[%a_at] mask=%a_in other=0 : tile<[128, 64], bf16>
    %b_depths = expand_dims(%depth) axis=1      : tile<[64, 1], i64>
    %b_ins = expand_dims(%depth_in) axis=1      : tile<[64, 1], bool>
    %b_depth = broadcast(%b_depths)             : tile<[64, 64], i64>
    %b_depth_in = broadcast(%b_ins)             : tile<[64, 64], bool>
    %b_at = add(%b_column, %b_depth)            : tile<[64, 64], i64>
    %b_in = and(%b_column_in, %b_depth_in)      : tile<[64, 64], bool>
    %b_tile = load %b[%b_at] mask=%b_in         : tile<[64, 64], bf16>
    %next = dot(%a_tile, %b_tile, %acc)         : tile<[128, 64], f32>
    yield %next
  }
  %c_row = broadcast(%a_rows)                   : tile<[128, 64], i64>
  store %c[%c_row] = %sum
})";

std::string str(const ParameterProduct& p, const tile::Kernel& k) {
  std::string out = std::to_string(p.factor);
  for (const int i : p.params) out += " " + k.params[static_cast<size_t>(i)].name;
  return out;
}

WarpgroupChoice plan(const std::string& text, int64_t shared_bytes = 200 << 10) {
  const tile::Kernel k = read(text);
  return plan_warpgroups(k, static_cast<int>(k.config.at("warps")), shared_bytes);
}

TEST(Warpgroup, LoadsBecomeBoxes) {
  const tile::Kernel k = read(kProduct);
  const WarpgroupChoice choice = plan(kProduct);
  ASSERT_TRUE(choice.plan) << choice.refusal;
  ASSERT_EQ(choice.plan->loops.size(), 1U);
  const RingLoop& loop = choice.plan->loops[0];
  ASSERT_EQ(loop.tiles.size(), 2U);
  const RingTile &a = loop.tiles[0], &b = loop.tiles[1];
  for (const RingTile& t : loop.tiles) {
    EXPECT_TRUE(t.k_major);
    EXPECT_EQ(t.map.swizzle, Swizzle::Bytes128);
    EXPECT_EQ(str(t.map.dims[0], k), "1 k");
    EXPECT_EQ(str(t.map.strides[0], k), "2 k");
    EXPECT_EQ(t.chunks, 1);
  }
  EXPECT_EQ(str(a.map.dims[1], k), "1 m");
  EXPECT_EQ(str(b.map.dims[1], k), "1 n");
  EXPECT_EQ(a.map.buffer, 0);
  EXPECT_EQ(b.map.buffer, 1);
  EXPECT_EQ(a.map.box, (std::vector<int>{64, 128}));
  EXPECT_EQ(b.map.box, (std::vector<int>{64, 64}));
  EXPECT_TRUE(b.access.dimensions[1].start.is_zero());
  EXPECT_EQ(a.access.dimensions[1].start.terms().begin()->second, 128) << "times the program's index";
  EXPECT_EQ(loop.bytes, (128 + 64) * 64 * 2);
  EXPECT_EQ(choice.plan->stages, 3);
  EXPECT_EQ(choice.plan->producer.size(), 3U) << "0, 64 and the program's index";
}

// Rows are 8 lines of every second of 29 pixels, from the one before the line on.
TEST(Warpgroup, RowsAreABox) {
  std::string text = replaced(kProduct, "%row = add(%r, %r0)                           : tile<[128], i64>",
                              R"(%lane_y = div(%r, 16) : tile<[128], i64>
  %lane_x = mod(%r, 16) : tile<[128], i64>
  %y = add(%lane_y, %r0) : tile<[128], i64>
  %twice = mul(%lane_x, 2) : tile<[128], i64>
  %x = sub(%twice, 1) : tile<[128], i64>
  %y_in = lt(%y, %m) : tile<[128], bool>
  %not_before = le(0, %x) : tile<[128], bool>
  %not_behind = lt(%x, 29) : tile<[128], bool>
  %x_in = and(%not_before, %not_behind) : tile<[128], bool>
  %line = mul(%k, 29) : i64
  %y_at = mul(%y, %line) : tile<[128], i64>
  %x_at = mul(%x, %k) : tile<[128], i64>
  %at = add(%y_at, %x_at) : tile<[128], i64>)");
  text = replaced(text, "%row_in = lt(%row, %m)  ", "%row_in = and(%y_in, %x_in)");
  text = replaced(text, "expand_dims(%row) axis=1              : tile<[128, 1], i64>",
                  "expand_dims(%at) axis=1 : tile<[128, 1], i64>");
  text = replaced(text, "%a_rows = mul(%rows, %k)  ", "%a_rows = add(%rows, 0)  ");
  const tile::Kernel k = read(text);
  const WarpgroupChoice choice = plan(text);
  ASSERT_TRUE(choice.plan) << choice.refusal;
  const RingTile& a = choice.plan->loops[0].tiles[0];
  std::vector<std::string> dims, strides;
  for (const ParameterProduct& p : a.map.dims) dims.push_back(str(p, k));
  for (const ParameterProduct& p : a.map.strides) strides.push_back(str(p, k));
  EXPECT_EQ(dims, (std::vector<std::string>{"1 k", "29", "1 m"}));
  EXPECT_EQ(strides, (std::vector<std::string>{"2 k", "58 k"}));
  EXPECT_EQ(a.map.box, (std::vector<int>{64, 16, 8}));
  EXPECT_EQ(a.map.steps, (std::vector<int>{1, 2, 1}));
  EXPECT_EQ(a.rows, 128);
  EXPECT_EQ(a.access.dimensions[1].start, Polynomial(-1));
  EXPECT_NE(plan(replaced(text, "le(0, %x)", "le(1, %x)")).refusal.find("begin at different elements"),
            std::string::npos);
  EXPECT_NE(plan(replaced(text, "mod(%r, 16)", "mod(%r, 32)")).refusal.find("different steps"), std::string::npos);
}

// A load that something is computed of comes to its stage, and lies there as the consumers' reads expect it.
TEST(Warpgroup, LeftFactorsMayBeComputed) {
  const std::string text = replaced(
      kProduct, "%next = dot(%a_tile,",
      "%wide = cast(%a_tile) : tile<[128, 64], f32>\n    %twice = cast(%wide) : tile<[128, 64], bf16>\n    %next = "
      "dot(%twice,");
  const tile::Kernel k = read(text);
  const WarpgroupChoice choice = plan(text);
  ASSERT_TRUE(choice.plan) << choice.refusal;
  const RingLoop& loop = choice.plan->loops[0];
  ASSERT_EQ(loop.tiles.size(), 2U);
  EXPECT_EQ(loop.computed, std::set<tile::OpId>(loop.products.begin(), loop.products.end()));
  EXPECT_TRUE(loop.tiles[0].is_read);
  EXPECT_FALSE(loop.tiles[1].is_read);
  const LinearLayout memory = loop.tiles[0].arrangement({128, 64});
  for (const int row : {0, 1, 7, 8, 63, 127})
    for (const int column : {0, 1, 8, 33, 63}) {
      const int64_t offset = swizzled(Swizzle::Bytes128, row * 128 + column * 2) / 2;
      EXPECT_EQ(memory.apply(Dim::Offset, static_cast<int>(offset), Dim::Axis0), row);
      EXPECT_EQ(memory.apply(Dim::Offset, static_cast<int>(offset), Dim::Axis1), column);
    }
  EXPECT_EQ(plan_shared_load(memory, warpgroup_left_registers({128, 64}, 64, 16, 8), 2).load_matrices,
            Conversion::Matrices::Rows);
  EXPECT_NE(
      plan(replaced(text, " mask=%a_in other=0 ", " mask=%a_in other=1 ")).refusal.find("masked elements are not 0"),
      std::string::npos);
}

TEST(Warpgroup, StagesFitTheSharedMemory) {
  EXPECT_EQ(plan(kProduct, 60 << 10).plan->stages, 2);
  EXPECT_EQ(plan(kProduct, 40 << 10).refusal, "two stages do not fit into shared memory");
  EXPECT_EQ(plan(replaced(kProduct, "num_stages=3", "num_stages=1")).plan->stages, 2);
  EXPECT_EQ(plan(replaced(kProduct, " num_stages=3", "")).plan->stages, 4);
}

TEST(Warpgroup, RefusalsSayWhy) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"%k: i64 multiple=8", "%k: i64 multiple=4", "a stride is not known to be a multiple of 16 bytes"},
      {"%a: ptr<bf16> invariant", "%a: ptr<bf16> invariant align=8", "the pointer is not aligned"},
      {"%a: ptr<bf16> invariant", "%a: ptr<bf16> written", "its memory may be written"},
      {"load %a[%a_at] mask=%a_in other=0", "load %a[%a_at]", "no mask that bounds each dimension"},
      {"load %a[%a_at] mask=%a_in", "load %a[%a_at] mask=%a_row_in", "only some of its dimensions"},
      {"mask=%a_in other=0", "mask=%a_in other=1", "masked elements are not 0"},
      {"%a_at = add(%a_row, %a_depth) ", "%a_at = add(%a_row, %a_row) ", "no single contiguous dimension"},
      {"%a_at = add(%a_row, %a_depth) ", "%a_at = div(%a_row, %a_depth) ", "no sum of indices"},
      {"%row_in = lt(%row, %m) ", "%row_in = lt(%r, %m) ", "begin at different elements"},
      {"%row_in = lt(%row, %m) ", "%row_in = lt(%row, %p) ", "a bound is no product of parameters"},
      {"yield %next", "%more = add(%next, 1) : tile<[128, 64], f32>\n yield %more", "more than a sum"},
      {"warps: 8", "warps: 2", "2 warps are not one or two warpgroups"},
      {"    yield %next", "    %other = dot(%a_tile, %b_tile, %zero) : tile<[128, 64], f32>\n    yield %next",
       "more than a sum"},
  };
  for (const auto& [from, to, why] : cases) {
    const WarpgroupChoice choice = plan(replaced(kProduct, from, to));
    EXPECT_FALSE(choice.plan) << to;
    EXPECT_NE(choice.refusal.find(why), std::string::npos) << to << ": " << choice.refusal;
  }
}

// Bytes have one arrangement, and sums in i32.
TEST(Warpgroup, FactorsOfBytes) {
  const std::string bytes = std::regex_replace(
      std::regex_replace(std::regex_replace(kProduct, std::regex("bf16"), "i8"), std::regex("f32"), "i32"),
      std::regex("multiple=8"), "multiple=16");
  const WarpgroupChoice choice = plan(bytes);
  ASSERT_TRUE(choice.plan) << choice.refusal;
  const RingLoop& loop = choice.plan->loops[0];
  EXPECT_EQ(loop.tiles[0].map.swizzle, Swizzle::Bytes64);
  EXPECT_EQ(loop.tiles[0].chunk_elements, 64);
  EXPECT_EQ(loop.bytes, (128 + 64) * 64);
  const WarpgroupChoice unaligned = plan(replaced(bytes, "%k: i64 multiple=16", "%k: i64 multiple=8"));
  EXPECT_FALSE(unaligned.plan);
  EXPECT_NE(unaligned.refusal.find("a stride is not known to be a multiple of 16 bytes"), std::string::npos);
}

// The second product of a loop is a warp's if its sums are floats where the first one's are integers.
TEST(Warpgroup, ProductsOfALoopHaveSumsOfOneType) {
  for (const auto& [first, products] : {std::pair("bf16", 2U), {"i8", 1U}}) {
    std::string text =
        replaced(kProduct, "%c: ptr<f32>", "%x: ptr<bf16> invariant, %y: ptr<bf16> invariant, %c: ptr<f32>");
    text = replaced(text, "multiple=8", "multiple=16");
    text = replaced(text, "%sum = for", "%none = const 0 : tile<[128, 64], f32>\n  %sum, %others = for");
    text = replaced(text, "carry(%acc = %zero)", "carry(%acc = %zero, %more = %none)");
    if (std::string(first) == "i8") {
      text = std::regex_replace(text, std::regex("%(a|b): ptr<bf16>"), "%$1: ptr<i8>");
      text = std::regex_replace(text, std::regex("%c: ptr<f32>"), "%c: ptr<i32>");
      text = std::regex_replace(text, std::regex("(%[ab]_tile = .*), bf16>"), "$1, i8>");
      text = std::regex_replace(text, std::regex("(%(zero|next) = .*), f32>"), "$1, i32>");
    }
    text = replaced(text, "yield %next", R"(%x_tile = load %x[%a_at] mask=%a_in : tile<[128, 64], bf16>
    %y_tile = load %y[%b_at] mask=%b_in : tile<[64, 64], bf16>
    %further = dot(%x_tile, %y_tile, %more) : tile<[128, 64], f32>
    yield %next, %further)");
    const WarpgroupChoice choice = plan(text);
    ASSERT_TRUE(choice.plan) << choice.refusal;
    EXPECT_EQ(choice.plan->loops[0].products.size(), products) << first;
  }
}

TEST(Warpgroup, SumsLieWhereTheInstructionPutsThem) {
  EXPECT_EQ(warpgroup_accumulators({64, 16}, 4).str(),
            "register: (0, 1) (8, 0) (0, 8) | lane: (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) | warp: (16, 0) (32, 0) -> [64, "
            "16]");
  auto high = [](const std::vector<int>& shape) {
    const LinearLayout l = warpgroup_accumulators(shape, 8);
    EXPECT_TRUE(l.is_injective() && l.is_surjective()) << l.str();
    return l.unpack_out(l.bases(Dim::Warp)[2]);
  };
  EXPECT_EQ(high({128, 256}), (std::vector<int>{64, 0}));
  EXPECT_EQ(high({256, 128}), (std::vector<int>{64, 0}));
  EXPECT_EQ(high({64, 128}), (std::vector<int>{0, 64}));
}

// The rows and bytes that WarpgroupIntrinsics::multiply expects of each register of A, and for two warpgroups the rows
// of their own sums.
TEST(Warpgroup, LeftFactorsLieWhereTheInstructionReadsThem) {
  EXPECT_EQ(
      warpgroup_left_registers({64, 16}, 32, 16, 4).str(),
      "register: (0, 1) (8, 0) (0, 8) (0, 16) | lane: (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) | warp: (16, 0) (32, 0) -> "
      "[64, 32]");
  constexpr int kWords = 4, kInstructionBytes = 32;
  for (const int bits : {8, 16, 32})
    for (const auto& sums : {std::vector<int>{64, 64}, {128, 64}, {256, 32}})
      for (const int warps : {4, 8}) {
        const int bytes = bits / 8, per_word = 4 / bytes, per_instruction = kInstructionBytes / bytes, depth = 64;
        const LinearLayout l = warpgroup_left_registers(sums, depth, bits, warps),
                           c = warpgroup_accumulators(sums, warps);
        EXPECT_TRUE(l.is_permutation() && l.is_surjective());
        EXPECT_EQ(l.free_mask(Dim::Register), 0U);
        const int of_row_block = depth / per_instruction * kWords * per_word; // registers of 64 rows
        const int block_of_sums = c.registers() / std::max(1, l.registers() / of_row_block);
        for (int warp = 0; warp < warps; ++warp)
          for (int lane = 0; lane < kLanes; ++lane)
            for (int r = 0; r < l.registers(); ++r) {
              const int element = r % per_word, word = r / per_word % kWords, q = word / 2, h = word % 2;
              const int instruction = r / (kWords * per_word) % (depth / per_instruction), block = r / of_row_block;
              auto at = [&](const LinearLayout& of, int reg, Dim dim) {
                return of.apply(Dim::Register, reg, dim) ^ of.apply(Dim::Lane, lane, dim) ^
                       of.apply(Dim::Warp, warp, dim);
              };
              // The first sums of a block of rows have the row of the instruction's first register.
              ASSERT_EQ(at(l, r, Dim::Axis0), at(c, block * block_of_sums, Dim::Axis0) + 8 * h);
              ASSERT_EQ(at(l, r, Dim::Axis1),
                        instruction * per_instruction + (16 * q + 4 * (lane % 4)) / bytes + element);
            }
      }
}

// Lanes and registers trade bits of the column; rows and warps stay.
TEST(Warpgroup, WideAccessesTakeNeighboursFromOtherLanes) {
  const LinearLayout sums = warpgroup_accumulators({64, 64}, 4), wide = with_contiguous(sums, 1, 8);
  EXPECT_EQ(wide.str(), "register: (0, 1) (0, 2) (0, 4) (8, 0) (0, 32) | lane: (0, 8) (0, 16) (1, 0) (2, 0) (4, 0) | "
                        "warp: (16, 0) (32, 0) -> [64, 64]");
  EXPECT_EQ(with_contiguous(warpgroup_accumulators({64, 8}, 4), 1, 8).contiguous(Dim::Axis1), 2) << "no bit to trade";
}

} // namespace
} // namespace tessera::layout
