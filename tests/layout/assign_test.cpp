// Kernels in, kernels with layouts out: whole, as texts (TESSERA_BLESS=1 rewrites them), and what has to hold of all.
#include "codegen/layout/assign.h"
#include "kernels.h"
#include "random_kernel.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tessera::layout {
namespace {

using tile::OpKind;
using tile::test::read;

KernelLayouts assign(std::string_view text) {
  Result<KernelLayouts> k = assign_layouts(read(text));
  if (!k.ok()) {
    ADD_FAILURE() << k.error().str();
    std::abort();
  }
  Status good = verify_layouts(*k);
  EXPECT_TRUE(good.ok()) << good.error().str() << k->str();
  return std::move(k).value();
}

void expect_golden(const std::string& name, std::string_view text) {
  std::string out = assign(text).str();
  std::string path = std::string(TESSERA_TEST_DIR) + "/golden/" + name + ".tile";
  if (std::getenv("TESSERA_BLESS")) {
    std::ofstream(path) << out;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(out, expected.str());
  auto parsed = tile::parse(expected.str(), path);
  ASSERT_TRUE(parsed.ok()) << parsed.error().str();
}

TEST(AssignGolden, Scale) { expect_golden("scale", test::kScale); }
TEST(AssignGolden, Softmax) { expect_golden("softmax", test::kSoftmax); }
TEST(AssignGolden, ShortRows) { expect_golden("short_rows", test::kShortRows); }
TEST(AssignGolden, LongRow) { expect_golden("long_row", test::kLongRow); }
TEST(AssignGolden, Columns) { expect_golden("columns", test::kColumns); }
TEST(AssignGolden, Transpose) { expect_golden("transpose", test::kTranspose); }
TEST(AssignGolden, Mixed) { expect_golden("mixed", test::kMixed); }
TEST(AssignGolden, BothWays) { expect_golden("both_ways", test::kBothWays); }
TEST(AssignGolden, Carried) { expect_golden("carried", test::kCarried); }

// --- what has to hold ---

int conversions(const KernelLayouts& k) {
  int n = 0;
  for (tile::OpId id = 0; id < k.kernel.op_count(); ++id) {
    const tile::Op& op = k.kernel.op(id);
    n += k.is_conversion(op) && k[op.operands[0]] != k[op.results[0]];
  }
  return n;
}

// Widths of the loads and stores of tiles, in order.
std::vector<int> widths(const KernelLayouts& k) {
  std::vector<int> r;
  for (tile::OpId id = 0; id < k.kernel.op_count(); ++id) {
    const tile::Op& op = k.kernel.op(id);
    if ((op.kind == OpKind::Load || op.kind == OpKind::Store) && k.kernel.type(op.operands[1]).is_tile())
      r.push_back(k.access_width[static_cast<size_t>(id)]);
  }
  return r;
}

TEST(Assign, OnlyWhatRunsAcrossIsConverted) {
  for (const char* text : {test::kScale, test::kScaleAnySize, test::kSoftmax, test::kShortRows, test::kLongRow,
                           test::kColumns, test::kMixed})
    EXPECT_EQ(conversions(assign(text)), 0) << text;
  EXPECT_EQ(conversions(assign(test::kTranspose)), 1);
  EXPECT_EQ(conversions(assign(test::kBothWays)), 1); // the sums, once, as a row
}

TEST(Assign, AccessesAreAsWideAsTheirFactsAllow) {
  EXPECT_EQ(widths(assign(test::kScale)), (std::vector<int>{8, 4}));
  EXPECT_EQ(widths(assign(test::kScaleAnySize)), (std::vector<int>{8, 8})); // split where the size ends
  EXPECT_NE(assign(test::kScaleAnySize).str().find("x8 split"), std::string::npos);
  EXPECT_EQ(widths(assign(test::kTranspose)), (std::vector<int>{4, 4, 4}));
  std::string aligned = test::kScale;
  aligned.replace(aligned.find("%x: ptr<f16>"), 12, "%x: ptr<f16> align=4");
  EXPECT_EQ(widths(assign(aligned)), (std::vector<int>{2, 4}));
  std::string narrow = test::kScale;
  narrow.replace(narrow.find("warps: 4"), 8, "warps: 4, width: 4");
  EXPECT_EQ(widths(assign(narrow)), (std::vector<int>{4, 4}));
}

// Neighbours that begin anywhere, where the memory's end is known and nothing writes it.
TEST(Assign, WindowsAreTakenWhereTheySpareHalfOfTheAccesses) {
  auto windows = [](const std::string& of_x, const std::string& to) {
    auto k = assign("tile.kernel @k(%x: ptr<" + of_x + ", %y: ptr<" + to + R"(> written, %s: i64) config(warps: 4) {
  %r = range 2048 : tile<[2048], i64>
  %o = add(%r, %s) : tile<[2048], i64>
  %v = load %x[%o] : tile<[2048], )" +
                    of_x.substr(0, of_x.find('>')) + R"(>
  %c = cast(%v) : tile<[2048], )" +
                    to + R"(>
  store %y[%r] = %c
})");
    for (const Window& w : k.windows)
      if (w.width > 0) return std::pair(w.width, w.run);
    return std::pair(0, 0);
  };
  EXPECT_EQ(windows("f16> invariant elements=9", "bf16"), std::pair(8, 8));
  EXPECT_EQ(windows("i8> invariant elements=%s", "f16"), std::pair(8, 8));
  EXPECT_EQ(windows("f32> invariant elements=9", "f16"), std::pair(4, 8)); // three accesses instead of eight
  EXPECT_EQ(windows("f32> invariant elements=9", "f32"), std::pair(0, 0)); // two instead of four
  EXPECT_EQ(windows("f16> invariant align=2 elements=9", "f16"), std::pair(0, 0));
  EXPECT_EQ(windows("f16> invariant", "f16"), std::pair(0, 0));
  EXPECT_EQ(windows("f16> elements=9", "f16"), std::pair(0, 0));
}

TEST(Assign, TheRewrittenKernelMeansTheSame) {
  struct Case {
    const char* text;
    std::vector<size_t> sizes; // of the arrays
    std::vector<int64_t> scalars;
    int64_t grid;
  };
  const Case cases[] = {
      {test::kScale, {4096, 4096}, {4000}, 2},         {test::kSoftmax, {6 * 504, 504, 6 * 504, 6}, {6, 504}, 2},
      {test::kShortRows, {4096, 256}, {}, 2},          {test::kLongRow, {2 * 3000, 2}, {3000}, 2},
      {test::kColumns, {50 * 100, 100}, {50, 100}, 2}, {test::kTranspose, {128 * 128, 128 * 128, 128 * 128}, {128}, 4},
      {test::kMixed, {2048, 8, 8, 1024}, {16}, 1},     {test::kMixed, {2048, 8, 8, 1024}, {128}, 1},
      {test::kBothWays, {4096, 4096}, {}, 1},          {test::kCarried, {3072, 1024, 1024, 64}, {3}, 1},
  };
  for (const Case& c : cases) {
    std::vector<std::vector<double>> arrays;
    for (size_t n : c.sizes) {
      arrays.emplace_back(n);
      for (size_t i = 0; i < n; ++i) arrays.back()[i] = static_cast<double>((i * 7 + i / 5) % 11);
    }
    KernelLayouts k = assign(c.text);
    tile::test::Outcome before = tile::test::run(read(c.text), arrays, c.scalars, c.grid),
                        after = tile::test::run(k.kernel, arrays, c.scalars, c.grid);
    EXPECT_EQ(before.error, "") << c.text;
    EXPECT_EQ(after.error, "") << c.text;
    EXPECT_EQ(after.arrays, before.arrays) << k.str();
  }
}

// Rows and columns of every size, all numbers of warps.
TEST(Assign, AllShapesOfRowsAndColumns) {
  for (int warps = 1; warps <= 32; warps *= 2)
    for (int rows = 1; rows <= 512; rows *= 2)
      for (int columns = 1; columns <= 8192 && rows * columns <= 32768; columns *= 4)
        for (const char* dtype : {"f16", "f32"})
          for (int reduced : {0, 1}) {
            std::string r = std::to_string(rows), c = std::to_string(columns),
                        left = std::to_string(reduced ? rows : columns);
            std::string tile = "tile<[" + r + ", " + c + "], ";
            std::string text = "tile.kernel @k(%x: ptr<" + std::string(dtype) +
                               ">, %y: ptr<f32> written) config(warps: " + std::to_string(warps) + ") {\n%r = range " +
                               r + " : tile<[" + r + "], i64>\n%c = range " + c + " : tile<[" + c +
                               "], i64>\n%r1 = expand_dims(%r) axis=1 : tile<[" + r +
                               ", 1], i64>\n%c1 = expand_dims(%c) axis=0 : tile<[1, " + c + "], i64>\n%s = mul(%r1, " +
                               c + ") : tile<[" + r + ", 1], i64>\n%rr = broadcast(%s) : " + tile +
                               "i64>\n%cc = broadcast(%c1) : " + tile + "i64>\n%o = add(%rr, %cc) : " + tile +
                               "i64>\n%v = load %x[%o] : " + tile + dtype + ">\n%f = cast(%v) : " + tile +
                               "f32>\n%m = reduce.sum(%f) axis=" + std::to_string(reduced) + " : tile<[" + left +
                               "], f32>\n%at = range " + left + " : tile<[" + left + "], i64>\nstore %y[%at] = %m\n}\n";
            KernelLayouts k = assign(text);
            for (tile::OpId id = 0; id < k.kernel.op_count(); ++id) {
              const tile::Op& op = k.kernel.op(id);
              if (op.kind != OpKind::Reduce) continue;
              const LinearLayout& l = k[op.operands[0]];
              int64_t threads = 32 * warps, elements = int64_t{rows} * columns;
              // No thread does the work of two while others hold copies.
              EXPECT_EQ(l.registers(), std::max<int64_t>(1, elements / threads)) << text << l.str();
              int across = 0; // warps that have to talk for one sum
              for (int i = 0; i < l.in_bits(Dim::Warp); ++i) across += l.basis(Dim::Warp, i, axis(reduced)) != 0;
              if (reduced == 1 && rows >= warps * 32) {
                EXPECT_EQ(across, 0) << l.str();
              }
              // Neighbouring threads read neighbours: a warp's access covers whole rows, or a run of 32 accesses.
              int run = k.access_width[static_cast<size_t>(id - 2)];
              for (int i = 0; i < kLaneBits; ++i)
                if (l.basis(Dim::Lane, i, axis(1)) == run) run *= 2;
              int wide = std::min<int64_t>(16 / byte_size(*dtype_from_name(dtype), 1),
                                           std::max<int64_t>(1, elements / threads));
              EXPECT_GE(run, std::min({columns, 32 * wide})) << text << l.str();
            }
            if (HasFailure()) return;
          }
}

TEST(Assign, RandomKernelsKeepTheirMeaning) {
  std::vector<double> x(test::RandomKernel::kInputs), ids(x.size()), y(test::RandomKernel::kOutputs);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>((i * 2654435761u >> 7) % 1001) - 500;
    ids[i] = static_cast<double>((i * 40503u >> 3) % x.size());
  }
  int converted = 0, grown = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    test::RandomKernel random(seed);
    Result<KernelLayouts> k = assign_layouts(random.kernel());
    ASSERT_TRUE(k.ok()) << k.error().str();
    Status good = verify_layouts(*k);
    ASSERT_TRUE(good.ok()) << good.error().str() << seed << k->str();
    converted += conversions(*k) > 0;
    grown += k->kernel.op_count() > random.kernel().op_count() + conversions(*k);
    for (int64_t n : {8, 20}) {
      tile::test::Outcome before = tile::test::run(random.kernel(), {x, ids, y}, {n}),
                          after = tile::test::run(k->kernel, {x, ids, y}, {n});
      ASSERT_EQ(before.error, "") << print(random.kernel());
      ASSERT_EQ(after.error, "") << k->str();
      ASSERT_EQ(after.arrays, before.arrays) << seed << k->str();
    }
  }
  EXPECT_GT(converted, 60);
  EXPECT_GT(grown, 60);
}

// The kernels that schedules make for blocks of threads (tests/schedule/golden): each gets layouts, and nothing that
// could stay where it is moves.
TEST(Assign, ScheduledKernels) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/tests/schedule/golden"))
    if (entry.path().filename().string().starts_with("block_")) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  EXPECT_FALSE(paths.empty());
  for (const auto& path : paths) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    KernelLayouts k = assign(text.str());
    // All transposes but the staged ones, which go through scratch, have a conversion.
    bool crosses = path.filename().string().find("transpose") != std::string::npos &&
                   text.str().find("scratch %") == std::string::npos;
    EXPECT_EQ(conversions(k), crosses ? 1 : 0) << path << k.str();
    constexpr int kMax = 64; // registers of a tile
    for (const LinearLayout& l : k.of_value) EXPECT_LE(l.registers(), kMax) << path;
  }
}

TEST(Assign, WhatDoesNotFitTheMachineIsRefused) {
  auto error = [](std::string_view text) {
    Result<KernelLayouts> k = assign_layouts(read(text));
    return k.ok() ? "" : k.error().message;
  };
  EXPECT_EQ(error("tile.kernel @odd(%y: ptr<f32> written) {\n %r = range 48 : tile<[48], i64>\n store %y[%r] = 1\n}"),
            "kernel odd: on a GPU tile dimensions are powers of two, not those of 'tile<[48], i64>'");
  EXPECT_EQ(error("tile.kernel @w(%y: ptr<f32> written) config(warps: 3) {\n store %y[0] = 1\n}"),
            "kernel w: a block has 1, 2, 4, 8, 16 or 32 warps, not 3");
  EXPECT_EQ(error("tile.kernel @w(%y: ptr<f32> written) config(warps: 64) {\n store %y[0] = 1\n}"),
            "kernel w: a block has 1, 2, 4, 8, 16 or 32 warps, not 64");
  EXPECT_EQ(error("tile.kernel @w(%y: ptr<f32> written) config(width: 0) {\n store %y[0] = 1\n}"),
            "kernel w: config width is a power of two, not 0");
  EXPECT_EQ(
      error("tile.kernel @big(%y: ptr<f32> written) config(warps: 1) {\n %r = range 65536 : tile<[65536], i64>\n store "
            "%y[%r] = 1\n}"),
      "kernel big: a tile of 65536 elements is too large for a block of 32 threads");
}

TEST(Assign, ABrokenLayoutIsFound) {
  KernelLayouts k = assign(test::kTranspose);
  for (tile::OpId id = 0; id < k.kernel.op_count(); ++id)
    if (k.is_conversion(k.kernel.op(id))) {
      KernelLayouts broken = k;
      tile::ValueId v = k.kernel.op(id).results[0];
      broken.of_value[static_cast<size_t>(v)] = k[k.kernel.op(id).operands[0]];
      EXPECT_FALSE(verify_layouts(broken).ok());
    }
  KernelLayouts wide = k;
  for (int& w : wide.access_width) w *= 8;
  EXPECT_FALSE(verify_layouts(wide).ok());
}

TEST(Assign, IsDeterministic) { EXPECT_EQ(assign(test::kMixed).str(), assign(test::kMixed).str()); }

} // namespace
} // namespace tessera::layout
