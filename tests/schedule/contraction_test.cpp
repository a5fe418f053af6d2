// Contractions: which nests are one, and every form of schedule that they are offered, against the nest: here by the
// interpreter of tile kernels, in tests/gpu on the emulator.
#include "block_harness.h"
#include "codegen/schedule/contraction.h"
#include "codegen/schedule/contraction_cost.h"
#include "codegen/schedule/space.h"
#include "tests/base/seeds.h"
#include <cmath>
#include <cstring>
#include <random>
#include <regex>
#include <set>

namespace tessera::test {
namespace {

std::optional<Contraction> contraction_of(const Problem& p) {
  auto domain = make_domain(p.graph, p.nest);
  EXPECT_TRUE(domain.ok());
  return domain.ok() ? Contraction::find(p.graph, p.nest, *domain) : std::nullopt;
}

// A few of the schedules that a nest is offered, the smallest tiles among them, so that there are several; `take` of
// them at most.
void expect_contracted(const Case& c, const Meant& m, uint32_t seed, size_t take = 6, double tolerance = 4e-3) {
  SCOPED_TRACE(c.problem.nest.name);
  ASSERT_TRUE(contraction_of(c.problem));
  ASSERT_FALSE(m.expected.empty());
  std::vector<ScheduledKernel> kernels;
  std::set<std::string> met;
  each_kernel(
      c, gpu_with(), [](const Schedule& s) { return s.kind == ScheduleKind::BlockContraction; },
      [&](const Legal& l, ScheduledKernel k) {
        EXPECT_TRUE(l.schedule.tile.depth >= 16);
        ASSERT_TRUE(tile::verify(k.kernel).ok()) << tile::verify(k.kernel).error().str() << tile::print(k.kernel);
        k.why = print(l.schedule);
        if (met.insert(tile::print(k.kernel)).second) kernels.push_back(std::move(k));
      });
  ASSERT_FALSE(kernels.empty());
  expect_meant(c, m, kernels.front(), tolerance);
  std::mt19937 rng(seed);
  std::shuffle(kernels.begin() + 1, kernels.end(), rng);
  for (size_t i = 1; i < std::min(take, kernels.size()); ++i) {
    expect_meant(c, m, kernels[i], tolerance);
    if (testing::Test::HasFailure()) return;
  }
}

void expect_contracted(const Case& c, uint32_t seed, size_t take = 6, double tolerance = 4e-3,
                       const InputScale& scale = {}) {
  expect_contracted(c, meant(c, scale), seed, take, tolerance);
}

struct Product {
  std::string a = "a[i0, i2]", b = "b[i2, i1]", a_shape = "[m, k]", b_shape = "[k, n]", dtype = "f16";
};
Problem product(const Product& p) {
  return problem("a: " + p.dtype + p.a_shape + "\nb: " + p.dtype + p.b_shape + "\ny: " + p.dtype + "[m, n]",
                 "nest product outer(i0: m, i1: n) row(i2: k) {\n %0 = load " + p.a + " : f32\n %1 = load " + p.b +
                     " : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1] = %3 }");
}

TEST(Contraction, IsFoundByItsFactors) {
  EXPECT_TRUE(contraction_of(product({})));
  EXPECT_TRUE(contraction_of(product({.dtype = "bf16"})));
  EXPECT_FALSE(contraction_of(product({.dtype = "f32"})));
  // One factor has all axes of the other one.
  EXPECT_FALSE(contraction_of(product({.b = "b[i2, i0]", .b_shape = "[k, m]"})));
  // A value that is not rounded to 16 bits.
  EXPECT_FALSE(contraction_of(problem(
      "a: f16[m, k]\nb: f16[k, n]\ny: f16[m, n]",
      "nest sum outer(i0: m, i1: n) row(i2: k) { %0 = load a[i0, i2] : f32\n %1 = load b[i2, i1] : f32\n %2 = exp "
      "%0 : f32\n %3 = mul %2, %1 : f32\n %4 = reduce.sum %3 : f32\n store.row y[i0, i1] = %4 }")));
  // Not a sum alone, but with what is stored along the row.
  EXPECT_FALSE(contraction_of(problem(
      "a: f16[m, k]\nb: f16[k, n]\ny: f16[m, n]\nz: f32[m, n, k]",
      "nest sum outer(i0: m, i1: n) row(i2: k) { %0 = load a[i0, i2] : f32\n %1 = load b[i2, i1] : f32\n %2 = mul "
      "%0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1] = %3\n store z[i0, i1, i2] = %2 }")));
}

TEST(Contraction, ProductsOfAllLayoutsAndSizes) {
  const std::vector<Sizes> sizes = {{{"m", 33}, {"n", 47}, {"k", 29}},
                                    {{"m", 16}, {"n", 24}, {"k", 64}},
                                    {{"m", 70}, {"n", 9}, {"k", 136}},
                                    {{"m", 2}, {"n", 40}, {"k", 1}}};
  uint32_t seed = 0;
  for (const auto& [a, a_shape] : {std::pair{"a[i0, i2]", "[m, k]"}, {"a[i2, i0]", "[k, m]"}})
    for (const auto& [b, b_shape] : {std::pair{"b[i2, i1]", "[k, n]"}, {"b[i1, i2]", "[n, k]"}})
      for (const Sizes& s : sizes) expect_contracted({product({a, b, a_shape, b_shape}), s}, ++seed, 3);
}

// Sums in i32 of 8-bit integers, scaled as quantised models have it.
Problem integers(const std::string& left, const std::string& right, const std::string& b, const std::string& b_shape) {
  return problem("a: " + left + "[m, k]\nb: " + right + b_shape + "\ns: f32[n]\ny: f32[m, n]",
                 "nest product outer(i0: m, i1: n) row(i2: k) {\n %0 = load a[i0, i2] : " + left + "\n %1 = load " + b +
                     " : " + right +
                     "\n %2 = cast %0 : i32\n %3 = cast %1 : i32\n %4 = mul %2, %3 : i32\n %5 = reduce.sum %4 : i32\n"
                     " %6 = cast %5 : f32\n %7 = load s[i1] : f32\n %8 = mul %6, %7 : f32\n store.row y[i0, i1] = "
                     "%8 }");
}

TEST(Contraction, OfIntegersOf8Bits) {
  EXPECT_FALSE(contraction_of(integers("i16", "i16", "b[i1, i2]", "[n, k]")));
  uint32_t seed = 300;
  for (const auto& [left, right] : {std::pair{"i8", "i8"}, {"u8", "i8"}})
    for (const auto& [b, shape] : {std::pair{"b[i1, i2]", "[n, k]"}, {"b[i2, i1]", "[k, n]"}})
      expect_contracted({integers(left, right, b, shape), {{"m", 70}, {"n", 48}, {"k", 144}}}, ++seed, 3);
}

// 8-bit floats of both types with a scale of each row and each column, whose results are rounded to such floats.
Problem small_floats(const std::string& left, const std::string& right, const std::string& result = "f32") {
  return problem("a: " + left + "[m, k]\nb: " + right + "[n, k]\ns: f32[m]\nt: f32[n]\ny: " + result + "[m, n]",
                 "nest product outer(i0: m, i1: n) row(i2: k) {\n %0 = load a[i0, i2] : f32\n %1 = load b[i1, i2] : "
                 "f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n %4 = load s[i0] : f32\n %5 = mul %3, %4 : "
                 "f32\n %6 = load t[i1] : f32\n %7 = mul %5, %6 : f32\n store.row y[i0, i1] = %7 }");
}

TEST(Contraction, OfFloatsOf8Bits) {
  EXPECT_FALSE(contraction_of(small_floats("f8e4m3fn", "f16")));
  uint32_t seed = 400;
  for (const auto& [left, right] :
       {std::pair{"f8e4m3fn", "f8e4m3fn"}, {"f8e5m2", "f8e4m3fn"}, {"f8e4m3fn", "f8e5m2"}}) {
    expect_contracted({small_floats(left, right), {{"m", 70}, {"n", 48}, {"k", 144}}}, ++seed, 3);
    expect_contracted({small_floats(left, right), {{"m", 17}, {"n", 24}, {"k", 77}}}, ++seed, 3);
  }
}

// Tensor cores sum no more than 128 products of 8-bit floats: each step's sum begins with zeros, and is added in f32.
TEST(Contraction, SumsOf8BitFloatsArePromoted) {
  const Case c{small_floats("f8e4m3fn", "f8e4m3fn"), {{"m", 128}, {"n", 128}, {"k", 512}}};
  std::set<int> depths;
  each_kernel(
      c, gpu_with(), [](const Schedule& s) { return s.kind == ScheduleKind::BlockContraction; },
      [&](const Legal& l, const ScheduledKernel& k) {
        if (!depths.insert(l.schedule.tile.depth).second) return;
        const std::string text = tile::print(k.kernel);
        const std::regex product(R"((%\d+) = dot\(%\d+, %\d+, (%\d+)\))");
        std::smatch found;
        ASSERT_TRUE(std::regex_search(text, found, product)) << text;
        EXPECT_NE(text.find("add(%"), std::string::npos) << text;
        EXPECT_TRUE(std::regex_search(text, std::regex("add\\(%\\d+, " + found[1].str() + "\\)"))) << text;
      });
  EXPECT_EQ(depths, (std::set<int>{32, 64, 128}));
  Schedule deep =
      *parse_schedule("block-contraction row_axes=1 column_axes=2 depth_axes=4 rows=64 columns=64 depth=256 "
                      "warps=4 num_stages=2");
  auto domain = make_domain(c.problem.graph, c.problem.nest);
  const Target device = gpu_with();
  const BlockFacts facts(c.problem.graph, c.problem.nest, *domain, device);
  EXPECT_FALSE(legal(facts, deep, std::vector<ExtentRange>(domain->axes.size(), {0, INT64_MAX, 1})));
}

TEST(Contraction, OfKnownSizes) {
  for (const char* t : {"f16", "bf16"}) {
    const std::string d = t;
    expect_contracted(
        {problem("a: " + d + "[64, 96]\nb: " + d + "[96, 128]\ny: " + d + "[64, 128]",
                 "nest product outer(i0: 64, i1: 128) row(i2: 96) {\n %0 = load a[i0, i2] : f32\n %1 = load "
                 "b[i2, i1] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1] = "
                 "%3 }"),
         {}},
        1);
    expect_contracted(
        {problem("a: " + d + "[3, 30, 41]\nb: " + d + "[3, 41, 50]\ny: f32[3, 30, 50]",
                 "nest batch outer(i3: 3, i0: 30, i1: 50) row(i2: 41) {\n %0 = load a[i3, i0, i2] : f32\n "
                 "%1 = load b[i3, i2, i1] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n "
                 "store.row y[i3, i0, i1] = %3 }"),
         {}},
        2);
  }
}

// The schedule of y[m, n] = a[m, k] b[k, n] with the lowest price.
Schedule cheapest(const Sizes& of) {
  const Case c{product({}), of};
  auto domain = make_domain(c.problem.graph, c.problem.nest);
  const Target device = gpu_with();
  const BlockFacts facts(c.problem.graph, c.problem.nest, *domain, device);
  const CallSizes sizes = by_id(c.problem, of);
  auto sized = sized_facts(facts, sizes);
  EXPECT_TRUE(sized.ok());
  Schedule best;
  double least = INFINITY;
  if (!sized.ok()) return best;
  for_each_schedule(facts, *sized, sizes, true, [&](const Schedule& s, int64_t) {
    if (s.kind != ScheduleKind::BlockContraction) return;
    const double us = contraction_cost(*sized, s, device).us;
    if (us < least) least = us, best = s;
  });
  EXPECT_TRUE(std::isfinite(least));
  return best;
}

constexpr uint64_t kRowsOfA = 1, kColumnsOfB = 2; // i0, i1

TEST(Contraction, NarrowTilesAreRight) {
  auto kernels = [](const Case& c, uint64_t row_axes) {
    std::vector<ScheduledKernel> out;
    each_kernel(
        c, gpu_with(),
        [&](const Schedule& s) {
          return s.kind == ScheduleKind::BlockContraction && s.placement.row_axes == row_axes && s.tile.columns == 8 &&
                 s.tile.depth <= 32;
        },
        [&](const Legal&, ScheduledKernel k) { out.push_back(std::move(k)); });
    return out;
  };
  for (const auto& [sizes, row_axes] : {std::pair{Sizes{{"m", 70}, {"n", 8}, {"k", 40}}, kRowsOfA},
                                        {Sizes{{"m", 4}, {"n", 70}, {"k", 40}}, kColumnsOfB}})
    for (const auto& [b, b_shape] : {std::pair{"b[i2, i1]", "[k, n]"}, {"b[i1, i2]", "[n, k]"}}) {
      const Case c{product({.b = b, .b_shape = b_shape}), sizes};
      const Meant m = meant(c);
      const auto all = kernels(c, row_axes);
      ASSERT_FALSE(all.empty());
      for (const ScheduledKernel& k : all) expect_meant(c, m, k, 4e-3);
    }
}

// A side that the columns of a fragment hold is the tile's columns; those of products that fill the device are wider.
TEST(Contraction, ATileIsAsNarrowAsItsProduct) {
  const Schedule columns = cheapest({{"m", 4096}, {"n", 8}, {"k", 1024}});
  EXPECT_EQ(columns.placement.row_axes, kRowsOfA) << print(columns);
  EXPECT_EQ(columns.tile.columns, 8) << print(columns);
  const Schedule rows = cheapest({{"m", 4}, {"n", 4096}, {"k", 4096}});
  EXPECT_EQ(rows.placement.row_axes, kColumnsOfB) << print(rows);
  EXPECT_EQ(rows.tile.columns, 8) << print(rows);
  for (const int64_t m : {1000, 4096})
    for (const int64_t n : {1000, 4096})
      for (const int64_t k : {64, 1000, 8192}) {
        const Schedule s = cheapest({{"m", m}, {"n", n}, {"k", k}});
        EXPECT_EQ(s.placement.row_axes, kRowsOfA) << print(s);
        EXPECT_GT(s.tile.columns, 8) << m << " " << n << " " << k << " " << print(s);
      }
}

// One kernel, without conditions, for every size; a sum of nothing is 0.
TEST(Contraction, OfAnySize) {
  Case c{product({}), {}};
  const Problem& p = c.problem;
  auto domain = make_domain(p.graph, p.nest);
  const Target device = gpu_with();
  const BlockFacts facts(p.graph, p.nest, *domain, device);
  const CallSizes sizes = by_id(p, {{"m", 100}, {"n", 100}, {"k", 100}});
  auto sized = sized_facts(facts, sizes);
  ASSERT_TRUE(sized.ok());
  std::optional<ScheduledKernel> kernel;
  for_each_schedule(facts, *sized, sizes, true, [&](const Schedule& s, int64_t) {
    if (kernel || s.kind != ScheduleKind::BlockContraction || s.tile.rows != 32 || s.tile.columns != 16) return;
    const Legal l = legal(facts, s, std::vector<ExtentRange>(domain->axes.size(), {0, INT64_MAX, 1}));
    ASSERT_TRUE(l) << l.refusal;
    auto k = lower_block(p.graph, p.nest, *domain, l, "product");
    ASSERT_TRUE(k.ok()) << k.error().str();
    kernel = std::move(*k);
  });
  ASSERT_TRUE(kernel && kernel->conditions.empty());
  for (const Sizes& s : {Sizes{{"m", 17}, {"n", 16}, {"k", 0}},
                         {{"m", 1}, {"n", 1}, {"k", 1}},
                         {{"m", 64}, {"n", 32}, {"k", 48}},
                         {{"m", 90}, {"n", 41}, {"k", 77}},
                         {{"m", 15}, {"n", 17}, {"k", 33}},
                         {{"m", 31}, {"n", 33}, {"k", 15}},
                         {{"m", 32}, {"n", 15}, {"k", 16}},
                         {{"m", 33}, {"n", 31}, {"k", 17}},
                         {{"m", 63}, {"n", 65}, {"k", 127}},
                         {{"m", 65}, {"n", 64}, {"k", 128}}}) {
    c.sizes = s;
    expect_meant(c, meant(c), *kernel, 4e-3);
  }
}

// Three programs compute all tiles, of sizes that one kernel serves.
TEST(Contraction, ProgramsTakeTilesInTurn) {
  const Target device = gpu_with(3);
  Case c{product({}), {{"m", 150}, {"n", 40}, {"k", 40}}};
  std::vector<ScheduledKernel> kernels;
  each_kernel(
      c, device,
      [](const Schedule& s) {
        return s.kind == ScheduleKind::BlockContraction && s.cooperation.max_blocks > 0 && s.tile.rows == 64 &&
               s.tile.columns == 16 && s.tile.depth == 16;
      },
      [&](const Legal&, ScheduledKernel k) { kernels.push_back(std::move(k)); });
  ASSERT_FALSE(kernels.empty());
  expect_meant(c, meant(c), kernels.front(), 4e-3);
}

// The kernels of the schedules without a split that `take` admits, with `split` programs for each tile.
std::vector<ScheduledKernel> shared(const Case& c, const Target& device, int split,
                                    const std::function<bool(const Schedule&)>& take) {
  const Problem& p = c.problem;
  auto domain = make_domain(p.graph, p.nest);
  const BlockFacts facts(p.graph, p.nest, *domain, device);
  const CallSizes sizes = by_id(p, c.sizes);
  auto sized = sized_facts(facts, sizes);
  EXPECT_TRUE(sized.ok());
  std::vector<ScheduledKernel> out;
  if (!sized.ok()) return out;
  const std::vector<ExtentRange> any(domain->axes.size(), {0, INT64_MAX, 1});
  for_each_schedule(facts, *sized, sizes, true, [&](Schedule s, int64_t) {
    if (s.kind != ScheduleKind::BlockContraction || s.cooperation.split_k != 1 || s.cooperation.cluster != 1 ||
        !take(s))
      return;
    s.cooperation.split_k = split;
    const auto read = parse_schedule(print(s));
    EXPECT_TRUE(read.ok() && *read == s) << print(s);
    const Legal l = legal(facts, s, any);
    EXPECT_TRUE(l) << l.refusal;
    auto k = lower_block(p.graph, p.nest, *domain, l, "shared");
    ASSERT_TRUE(k.ok()) << k.error().str();
    ASSERT_TRUE(tile::verify(k->kernel).ok()) << tile::verify(k->kernel).error().str() << tile::print(k->kernel);
    k->why = print(s);
    out.push_back(std::move(*k));
  });
  EXPECT_FALSE(out.empty());
  return out;
}
bool is_small(const Schedule& s) {
  return s.tile.rows == 32 && s.tile.columns == 16 && s.tile.depth == 16 && s.traversal.num_stages == 2;
}

// One kernel for all depths: segments of several steps, of one, and without any.
TEST(Contraction, ProgramsShareATile) {
  for (const char* dtype : {"f16", "bf16"})
    for (const int split : {2, 3, 5}) {
      Case c{product({.b = "b[i1, i2]", .b_shape = "[n, k]", .dtype = dtype}), {{"m", 100}, {"n", 100}, {"k", 100}}};
      const auto kernels = shared(c, gpu_with(), split, is_small);
      for (const int64_t k : {0, 1, 16, 33, 77, 128, 250}) {
        c.sizes = {{"m", 40}, {"n", 21}, {"k", k}};
        expect_meant(c, meant(c), kernels.front(), 4e-3);
      }
    }
}

TEST(Contraction, ProgramsTakeSegmentsInTurn) {
  Case c{product({}), {{"m", 150}, {"n", 40}, {"k", 40}}};
  const auto kernels = shared(c, gpu_with(3), 3, [](const Schedule& s) {
    return s.cooperation.max_blocks > 0 && s.tile.rows == 64 && s.tile.columns == 16 && s.tile.depth == 16;
  });
  for (const int64_t k : {0, 40, 77}) {
    c.sizes["k"] = k;
    expect_meant(c, meant(c), kernels.front(), 4e-3);
  }
}

// Rows that are the tile's columns, a batch, and a step of the loop for each tap.
TEST(Contraction, ProgramsShareTilesOfEveryForm) {
  const Case few{product({}), {{"m", 4}, {"n", 70}, {"k", 150}}};
  expect_meant(few, meant(few),
               shared(few, gpu_with(), 4,
                      [](const Schedule& s) {
                        return s.placement.row_axes == kColumnsOfB && s.tile.columns == 8 && s.tile.depth == 32;
                      })
                   .front(),
               4e-3);
  const Case batch{problem("a: f16[3, 30, 77]\nb: f16[3, 77, 50]\ny: f32[3, 30, 50]",
                           "nest batch outer(i3: 3, i0: 30, i1: 50) row(i2: 77) {\n %0 = load a[i3, i0, i2] : f32\n "
                           "%1 = load b[i3, i2, i1] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n "
                           "store.row y[i3, i0, i1] = %3 }"),
                   {}};
  expect_meant(batch, meant(batch), shared(batch, gpu_with(), 2, is_small).front(), 4e-3);
  const Case taps{
      of_graph(R"(graph @main(%x: f16[n, 7, 6, 24], %w: f16[18, 24, 3, 3]) -> (%y: f16[n, 7, 6, 18]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] channels_last=1 : f16[n, 7, 6, 18]
})"),
      {{"n", 2}}};
  size_t met = 0;
  for (const ScheduledKernel& k : shared(taps, gpu_with(), 4, is_small))
    if (met++ < 3) expect_meant(taps, meant(taps), k, 4e-3);
}

// Partial sums are added in one order, whichever program is the last one.
TEST(Contraction, SharedTilesHaveTheSameBitsInEveryRun) {
  const Case c{product({}), {{"m", 40}, {"n", 40}, {"k", 300}}};
  const ScheduledKernel kernel = shared(c, gpu_with(), 5, is_small).front();
  const Meant m = meant(c);
  const Tensor first = run_kernel(c.problem, kernel, m.inputs, c.sizes).at("y");
  for (int run = 0; run < 4; ++run) {
    const Tensor again = run_kernel(c.problem, kernel, m.inputs, c.sizes).at("y");
    ASSERT_EQ(again.bytes(), first.bytes());
    EXPECT_EQ(std::memcmp(again.data(), first.data(), first.bytes()), 0);
  }
}

// Partial sums that the level-2 cache holds, a number of programs, and no other kind.
TEST(Contraction, WhichTilesAreShared) {
  const Case c{product({}), {{"m", 40}, {"n", 40}, {"k", 300}}};
  auto domain = make_domain(c.problem.graph, c.problem.nest);
  Target device = gpu_with();
  const BlockFacts facts(c.problem.graph, c.problem.nest, *domain, device);
  const std::vector<ExtentRange> any(domain->axes.size(), {0, INT64_MAX, 1});
  Schedule s = *parse_schedule("block-contraction row_axes=1 column_axes=2 depth_axes=4 rows=64 columns=32 depth=16 "
                               "warps=4 split_k=4");
  const Legal l = legal(facts, s, any);
  ASSERT_TRUE(l) << l.refusal;
  ASSERT_EQ(l.conditions.size(), 1u);
  EXPECT_EQ(l.conditions[0].max, device.l2_bytes / (4 * 64 * 32 * 4));
  EXPECT_TRUE(holds(l.conditions, by_id(c.problem, {{"m", 4096}, {"n", 512}, {"k", 1}})));
  EXPECT_FALSE(holds(l.conditions, by_id(c.problem, {{"m", 65536}, {"n", 65536}, {"k", 1}})));
  for (const int split : {0, -1, Contraction::kMaxSplit + 1}) {
    s.cooperation.split_k = split;
    EXPECT_FALSE(legal(facts, s, any));
  }
  Schedule other = BlockFacts::schedule(ScheduleKind::BlockLoop, 1, 256, 4);
  other.placement = facts.row_placement();
  other.traversal.loop = true;
  EXPECT_TRUE(legal(facts, other, any)) << legal(facts, other, any).refusal;
  other.cooperation.split_k = 2;
  EXPECT_FALSE(legal(facts, other, any));
}

// Blocks of a cluster: of warpgroups, in whole clusters, each with a sum of its own.
TEST(Contraction, WhichBlocksAreClusters) {
  const Case c{product({}), {{"m", 4096}, {"n", 4096}, {"k", 512}}};
  auto domain = make_domain(c.problem.graph, c.problem.nest);
  const std::vector<ExtentRange> any(domain->axes.size(), {0, INT64_MAX, 1});
  const std::string tile = "block-contraction row_axes=1 column_axes=2 depth_axes=4 rows=128 columns=128 depth=64 "
                           "warps=8 num_stages=3 cluster=2";
  Target device = gpu_with();
  const auto refusal = [&](const std::string& more) {
    const BlockFacts facts(c.problem.graph, c.problem.nest, *domain, device);
    return legal(facts, *parse_schedule(tile + more), any).refusal;
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(" max_blocks=132"), "");
  EXPECT_EQ(refusal(" max_blocks=131"), "131 blocks are no whole clusters of 2");
  EXPECT_EQ(refusal(" split_k=2"), "blocks of a cluster have tiles of neighbouring rows, and the same depth");
  for (const char* other : {" cluster=0", " cluster=3"}) EXPECT_NE(refusal(other), "") << other;
  EXPECT_EQ(refusal(" warps=16"), "blocks share tiles in the rings of warpgroups alone");
  device.warpgroup_f16_per_cycle = 0;
  EXPECT_EQ(refusal(""), "blocks share tiles in the rings of warpgroups alone");
}

// With a short wait for each other a cluster is for products that the level-2 cache bounds. The wait has not been measured:
// no price chooses a cluster.
TEST(Contraction, ClustersAreForSharedTilesThatTheCacheBounds) {
  const Case c{product({}), {{"m", 4096}, {"n", 4096}, {"k", 4096}}};
  auto domain = make_domain(c.problem.graph, c.problem.nest);
  const CallSizes sizes = by_id(c.problem, c.sizes);
  Schedule alone =
      *parse_schedule("block-contraction row_axes=1 column_axes=2 depth_axes=4 rows=128 columns=256 depth=64 "
                      "warps=8 num_stages=4 max_blocks=132 group_rows=8");
  Schedule together = alone;
  together.cooperation.cluster = 2;
  for (const double share : {1.0, 0.25}) { // of the cache's bandwidth
    Target device = gpu_with();
    device.l2_bytes_per_us *= share;
    const BlockFacts facts(c.problem.graph, c.problem.nest, *domain, device);
    const auto sized = sized_facts(facts, sizes);
    ASSERT_TRUE(sized.ok());
    ContractionCostModel model;
    model.group_cluster = 0.1;
    const double one = contraction_cost(*sized, alone, device, model).us,
                 two = contraction_cost(*sized, together, device, model).us;
    if (share == 1.0)
      EXPECT_GT(two, one);
    else
      EXPECT_LT(two, one);
  }
  for (const Sizes& s : {Sizes{{"m", 512}, {"n", 512}, {"k", 4096}},
                         {{"m", 64}, {"n", 65536}, {"k", 4096}},
                         {{"m", 8192}, {"n", 8192}, {"k", 8192}},
                         {{"m", 4103}, {"n", 12424}, {"k", 912}}})
    EXPECT_EQ(cheapest(s).cooperation.cluster, 1) << print(cheapest(s));
}

// Where tiles leave multiprocessors without work, and the depth is worth the exchange.
TEST(Contraction, LongSumsOfFewTilesAreShared) {
  for (const Sizes& s : {Sizes{{"m", 4}, {"n", 4096}, {"k", 8192}},
                         {{"m", 16}, {"n", 1024}, {"k", 16384}},
                         {{"m", 128}, {"n", 512}, {"k", 16384}},
                         {{"m", 64}, {"n", 1024}, {"k", 8192}}})
    EXPECT_GT(cheapest(s).cooperation.split_k, 1) << print(cheapest(s));
  for (const Sizes& s : {Sizes{{"m", 4096}, {"n", 4096}, {"k", 1024}},
                         {{"m", 8192}, {"n", 8192}, {"k", 8192}},
                         {{"m", 512}, {"n", 512}, {"k", 128}},
                         {{"m", 64}, {"n", 64}, {"k", 64}}})
    EXPECT_EQ(cheapest(s).cooperation.split_k, 1) << print(cheapest(s));
  // More depth never has fewer programs for a tile.
  int before = 1;
  for (const int64_t k : {256, 1024, 4096, 16384, 65536}) {
    const Schedule s = cheapest({{"m", 128}, {"n", 256}, {"k", k}});
    EXPECT_GE(s.cooperation.split_k, before) << k << " " << print(s);
    before = s.cooperation.split_k;
  }
}

// x x', of one tensor.
TEST(Contraction, OfATensorWithItself) {
  expect_contracted(
      {problem("x: f16[m, k]\ny: f16[m, m]",
               "nest gram outer(i0: m, i1: m) row(i2: k) {\n %0 = load x[i0, i2] : f32\n %1 = load x[i1, "
               "i2] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1] = %3 }"),
       {{"m", 37}, {"k", 50}}},
      3);
}

// Several results, of a bias, a residual, a value per row, and an activation.
TEST(Contraction, WithAnEpilogue) {
  const Case c{problem("a: f16[m, k]\nb: f16[k, n]\nbias: f32[n]\ns: f16[m]\nr: f16[m, n]\ny: f16[m, n]\nz: f32[n, m]",
                       R"(nest epilogue outer(i0: m, i1: n) row(i2: k) {
      %0 = load a[i0, i2] : f32
      %1 = load b[i2, i1] : f32
      %2 = mul %0, %1 : f32
      %3 = reduce.sum %2 : f32
      %4 = load bias[i1] : f32
      %5 = add %3, %4 : f32
      %6 = load s[i0] : f32
      %7 = mul %5, %6 : f32
      %8 = tanh %7 : f32
      %9 = load r[i0, i1] : f32
      %10 = add %8, %9 : f32
      store.row y[i0, i1] = %10
      store.row z[i1, i0] = %7
    })"),
               {{"m", 45}, {"n", 52}, {"k", 40}}};
  expect_contracted(c, 4);
  expect_meant(c, meant(c), shared(c, gpu_with(), 2, is_small).front(), 4e-3);
}

// Factors that are computed: of 8-bit integers with a scale of each column, and an exponential, which is not 0 where
// nothing is read.
TEST(Contraction, OfComputedFactors) {
  expect_contracted({problem("a: f16[m, k]\nq: i8[k, n]\nzero: i8[n]\nscale: f16[n]\nshift: f16[m]\ny: f16[m, n]",
                             R"(nest prologue outer(i0: m, i1: n) row(i2: k) {
      %0 = load a[i0, i2] : f32
      %1 = load shift[i0] : f32
      %2 = add %0, %1 : f32
      %3 = exp %2 : f32
      %4 = cast %3 : f16
      %5 = cast %4 : f32
      %6 = load q[i2, i1] : i8
      %7 = cast %6 : f32
      %8 = load zero[i1] : i8
      %9 = cast %8 : f32
      %10 = sub %7, %9 : f32
      %11 = load scale[i1] : f32
      %12 = mul %10, %11 : f32
      %13 = cast %12 : f16
      %14 = cast %13 : f32
      %15 = mul %5, %14 : f32
      %16 = reduce.sum %15 : f32
      store.row y[i0, i1] = %16
    })"),
                     {{"m", 20}, {"n", 35}, {"k", 27}}},
                    5);
}

// Rows that an index from memory picks.
TEST(Contraction, OfGatheredRows) {
  expect_contracted({problem("t: f16[v, k]\nw: f16[n, k]\nat: i32[m]\ny: f16[m, n]",
                             R"(nest gathered outer(i0: m, i1: n) row(i2: k) {
      %0 = load at[i0] : i32
      %1 = cast %0 : i64
      %2 = index v : i64
      %3 = check_bounds %1, %2 : i64
      %4 = load t[%3, i2] : f32
      %5 = load w[i1, i2] : f32
      %6 = mul %4, %5 : f32
      %7 = reduce.sum %6 : f32
      store.row y[i0, i1] = %7
    })"),
                     {{"v", 9}, {"m", 30}, {"n", 33}, {"k", 40}}},
                    6);
}

TEST(Contraction, Convolutions) {
  uint32_t seed = 10;
  for (const char* text :
       {R"(graph @main(%x: f16[n, 5, 19], %w: f16[12, 5, 4]) -> (%y: f16[n, 12, 10]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[2] pads_begin=[1] pads_end=[2] dilations=[1] : f16[n, 12, 10]
})",
        R"(graph @main(%x: f16[n, 7, 6, 24], %w: f16[18, 24, 3, 3]) -> (%y: f16[n, 7, 6, 18]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] channels_last=1 : f16[n, 7, 6, 18]
})",
        R"(graph @main(%x: f16[n, 8, 7, 6], %w: f16[12, 4, 3, 2]) -> (%y: f16[n, 12, 4, 5]) where n in [0, ?] {
  %y = conv(%x, %w) strides=[2, 1] pads_begin=[1, 0] pads_end=[1, 1] dilations=[1, 2] groups=2 : f16[n, 12, 4, 5]
})",
        R"(graph @main(%x: bf16[n, 6, 5], %w: bf16[6, 9, 3]) -> (%y: bf16[n, 9, 10]) where n in [0, ?] {
  %y = conv_transpose(%x, %w) strides=[2] pads_begin=[1] pads_end=[0] dilations=[1] output_padding=[0] : bf16[n, 9, 10]
})"})
    expect_contracted({of_graph(text), {{"n", 2}}}, ++seed);
}

// x w where x and w are sums of parts, each 2^-8 of the one before: with the error of f32.
TEST(Contraction, OfParts) {
  auto scale = [](const std::string& name) { return std::ldexp(1.0, -8 * (name.back() - '0')); };
  uint32_t seed = 20;
  for (const auto& [m, k, n] : {std::tuple{"m", "k", "n"}, {"70", "72", "136"}, {"128", "136", "40"}}) {
    const std::string a = "bf16[" + std::string(m) + ", " + k + "]", b = "bf16[" + std::string(k) + ", " + n + "]",
                      y = "f32[" + std::string(m) + ", " + n + "]";
    const Problem p = of_graph("graph @main(%a0: " + a + ", %a1: " + a + ", %a2: " + a + ", %b0: " + b + ", %b1: " + b +
                               ", %b2: " + b + ") -> (%y: " + y +
                               (*m == 'm' ? ") where m in [0, ?], k in [0, ?], n in [0, ?] {" : ") {") +
                               "\n  %y = matmul_of_parts(%a0, %a1, %a2, %b0, %b1, %b2) : " + y + "\n}\n");
    const auto found = contraction_of(p);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->parts(), 3);
    EXPECT_EQ(found->products(), 6);
    const Sizes sizes = *m == 'm' ? Sizes{{"m", 66}, {"k", 100}, {"n", 40}} : Sizes{};
    expect_contracted({p, sizes}, ++seed, 12, 2e-6, scale);
  }
}

// The same inputs, but for the ends of groups.
Meant with_ends(const Case& c, const std::vector<int64_t>& ends) {
  Meant m = meant(c);
  Tensor& t = m.inputs.at("ends");
  for (size_t i = 0; i < ends.size(); ++i) t.set_i64(static_cast<int64_t>(i), ends[i]);
  std::vector<Tensor> loads;
  for (ValueId v : c.problem.nest.loads) loads.push_back(m.inputs.at(c.problem.graph.value(v).name));
  auto expected = interpret(c.problem.graph, c.problem.nest, loads, by_id(c.problem, c.sizes));
  EXPECT_TRUE(expected.ok()) << expected.error().str();
  m.expected = expected.ok() ? std::move(*expected) : std::vector<Tensor>();
  return m;
}

TEST(Contraction, OfGroupsOfRows) {
  const std::vector<std::vector<int64_t>> ends = {
      {0, 0, 1, 64, 129}, {63, 63, 63, 128, 128}, {129, 129, 129, 129, 129}, {1, 2, 3, 4, 5}, {-3, 20, 50, 200, 300}};
  uint32_t seed = 40;
  for (const std::string d : {"f16", "bf16"})
    for (const bool known : {true, false}) {
      const std::string a = known ? "[129, 72]" : "[t, k]", b = known ? "[5, 72, 40]" : "[g, k, n]",
                        y = known ? "[129, 40]" : "[t, n]";
      const Problem p = of_graph("graph @main(%a: " + d + a + ", %b: " + d + b + ", %ends: i32[" + (known ? "5" : "g") +
                                 "]) -> (%y: " + d + y +
                                 (known ? ") {" : ") where g in [0, ?], t in [0, ?], k in [0, ?], n in [0, ?] {") +
                                 "\n  %y = grouped_matmul(%a, %b, %ends) : " + d + y + "\n}\n");
      const auto found = contraction_of(p);
      ASSERT_TRUE(found && found->groups);
      EXPECT_EQ(found->groups->count.is_const(5), known);
      const Case c{p, known ? Sizes{} : Sizes{{"g", 5}, {"t", 129}, {"k", 72}, {"n", 40}}};
      for (const auto& e : ends) expect_contracted(c, with_ends(c, e), ++seed, 2, d == "f16" ? 4e-3 : 3e-2);
    }
}

TEST(Contraction, OfGroupsOfTheDepth) {
  uint32_t seed = 60;
  for (const std::string t : {"200", "t"}) {
    const bool known = t == "200";
    const Problem p = of_graph(
        "graph @main(%a: f16[40, " + t + "], %b: f16[" + t + ", 24], %ends: i64[4]) -> (%y: f16[4, 40, 24])" +
        (known ? " {" : " where t in [0, ?] {") + "\n  %y = grouped_matmul(%a, %b, %ends) : f16[4, 40, 24]\n}\n");
    const auto found = contraction_of(p);
    ASSERT_TRUE(found && found->range);
    const Case c{p, known ? Sizes{} : Sizes{{"t", 200}}};
    for (const std::vector<int64_t>& e :
         {std::vector<int64_t>{0, 63, 64, 200}, {130, 130, 130, 130}, {-3, 5, 300, 400}})
      expect_contracted(c, with_ends(c, e), ++seed, 3);
  }
}

// Every schedule that the space offers is legal, and none but a contraction has its fields.
TEST(Contraction, EveryScheduleIsLegal) {
  const Case c{product({}), {{"m", 2000}, {"n", 3000}, {"k", 1001}}};
  auto domain = make_domain(c.problem.graph, c.problem.nest);
  const BlockFacts facts(c.problem.graph, c.problem.nest, *domain, gpu_with());
  const CallSizes sizes = by_id(c.problem, c.sizes);
  auto sized = sized_facts(facts, sizes);
  ASSERT_TRUE(sized.ok());
  const std::vector<ExtentRange> any(domain->axes.size());
  size_t met = 0;
  for_each_schedule(facts, *sized, sizes, true, [&](const Schedule& s, int64_t) {
    if (s.kind != ScheduleKind::BlockContraction) return;
    ++met;
    const Legal l = legal(facts, s, any);
    EXPECT_TRUE(l) << l.refusal << " " << print(s);
    EXPECT_EQ(l.conditions.empty(), s.cooperation.split_k == 1) << print(s);
    Schedule other = s;
    other.kind = ScheduleKind::BlockColumns;
    EXPECT_FALSE(legal(facts, other, any));
    other = s;
    other.traversal.loop = true;
    EXPECT_FALSE(legal(facts, other, any));
    other = s;
    std::swap(other.placement.row_axes, other.placement.depth_axes);
    EXPECT_FALSE(legal(facts, other, any));
  });
  EXPECT_GT(met, 50u);
}

} // namespace
} // namespace tessera::test
