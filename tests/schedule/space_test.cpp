// The space of schedules and their cost: every schedule that is enumerated and legal computes what the nest means, and
// predicted times behave.
#include "block_harness.h"
#include "codegen/schedule/space.h"
#include "codegen/target/select.h"
#include "nests.h"
#include "tests/base/share.h"
#include <bit>
#include <set>

namespace tessera::test {
namespace {

Target small_gpu() {
  Target t = shipped_target("h200");
  t.multiprocessors = 4;
  return t;
}

// Some schedules of each form, of those with the smallest tiles and of others; the forms. Of kernels that `share` does not
// take only the form is looked at.
std::set<std::string> expect_all(Share& share, const Case& c, double tolerance = 2e-5, int of_each = 2,
                                 const Target& device = small_gpu()) {
  const Meant m = meant(c);
  std::map<std::string, int> met;
  std::set<std::string> forms;
  int count = 0;
  auto take = [&](const Schedule& schedule) {
    int& n = met[form(schedule)];
    return n < of_each * 7 && n++ % 7 == 0;
  };
  each_kernel(c, device, take, [&](const Legal& l, ScheduledKernel k) {
    k.why = form(l.schedule);
    if (share.takes({k.why, c.problem.nest.name})) expect_meant(c, m, k, tolerance);
    forms.insert(form(l.schedule));
    ++count;
  });
  EXPECT_GT(count, 0) << c.problem.nest.name;
  return forms;
}

bool any(const std::set<std::string>& forms, const std::string& what) {
  return std::any_of(forms.begin(), forms.end(), [&](const auto& f) { return f.find(what) != std::string::npos; });
}

TEST(Space, SchedulesOfRowsMeanTheNest) {
  std::set<std::string> all;
  Share share;
  for (const auto& [rows, row, dtype] :
       std::initializer_list<std::tuple<const char*, const char*, const char*>>{{"5", "4096", "f32"},
                                                                                {"3", "2049", "f32"},
                                                                                {"7", "8192", "bf16"},
                                                                                {"3", "5003", "f16"},
                                                                                {"40", "96", "bf16"}}) {
    const double tolerance = dtype == std::string("f32") ? 1e-4 : 2e-2;
    all.merge(expect_all(share, {softmax_of(rows, row, dtype), {}}, tolerance));
    all.merge(expect_all(share, {add_norm_of(rows, row, dtype), {}}, tolerance, 1));
  }
  all.merge(expect_all(share, {masked_softmax_of("3", "4100", "bf16"), {}}, 2e-2, 1));
  all.merge(expect_all(share, {group_norm_of("5", "4", "1024", "bf16"), {}}, 2e-2, 1));
  all.merge(expect_all(share, {softmax_at("3", "3001", "f16", "6002", "2*i1"), {}}, 2e-2, 1));
  all.merge(expect_all(share, {softmax_of("b", "s"), {{"b", 6}, {"s", 1000}}}, 1e-4, 1));
  all.merge(expect_all(share, {softmax_of("b", "s"), {{"b", 2}, {"s", 40003}}}, 1e-3, 1));
  for (const char* what : {"block-rows", "block-loop", "block-team", "rows in flight", "pipelined", "peel", "cached",
                           "copied", "max blocks", "online"})
    EXPECT_TRUE(any(all, what)) << what;
}

TEST(Space, SchedulesOfColumnsMeanTheNest) {
  std::set<std::string> all;
  Share share;
  for (const char* stored : {"%2 = sub %0, %1 : f32\n store y[i0, i1] = %2", "store.row y[i0] = %1"})
    for (const auto& [rows, width] :
         std::initializer_list<std::pair<const char*, const char*>>{{"600", "64"}, {"37", "200"}, {"2000", "13"}}) {
      const std::string n = rows, w = width, y = stored[0] == '%' ? "[" + w + ", " + n + "]" : "[" + w + "]";
      all.merge(expect_all(share,
                           {problem("x: f32[" + n + ", " + w + "]\ny: f32" + y,
                                    "nest down outer(i0: " + w + ") row(i1: " + n +
                                        ") { %0 = load x[i1, i0] : f32\n %1 = reduce.sum %0 : f32\n " + stored + " }"),
                            {}},
                           1e-3));
    }
  all.merge(expect_all(share, {column_sum(), {{"n", 40}, {"m", 24}, {"b", 3}, {"s", 5}, {"c", 24}}}));
  for (const char* what : {"block-columns", "block-team", "loop", "cached"}) EXPECT_TRUE(any(all, what)) << what;
}

TEST(Space, SchedulesWithoutReductionsMeanTheNest) {
  std::set<std::string> all;
  Share share;
  for (const Sizes& sizes : {Sizes{{"n", 100}, {"m", 72}, {"b", 2}, {"s", 33}, {"c", 96}, {"h", 3}},
                             Sizes{{"n", 67}, {"m", 41}, {"b", 3}, {"s", 7}, {"c", 19}, {"h", 2}}}) {
    all.merge(expect_all(share, {bias_gelu("f16"), sizes}, 2e-2));
    all.merge(expect_all(share, {transposed(), sizes}));
    all.merge(expect_all(share, {rope(), sizes}, 1e-4));
  }
  all.merge(expect_all(share, {embedding(), {{"b", 3}, {"s", 9}, {"n", 10}}}));
  for (const char* what : {"staged", "split", "contiguous", "unmasked"}) EXPECT_TRUE(any(all, what)) << what;
}

TEST(Space, SchedulesOfHostsMeanTheNest) {
  if (kernel_runner().blocks_only) return;
  const Target host = shipped_target("avx512");
  std::set<std::string> all;
  Share share;
  all.merge(expect_all(share, {softmax_of("3", "5003", "f32"), {}}, 1e-4, 1, host));
  all.merge(expect_all(share, {add_norm_of("5", "300", "bf16"), {}}, 2e-2, 1, host));
  all.merge(
      expect_all(share,
                 {problem("x: f32[90, 37]\ny: f32[37]",
                          "nest down outer(i0: 37) row(i1: 90) { %0 = load x[i1, i0] : f32\n %1 = reduce.sum %0 : "
                          "f32\n store.row y[i0] = %1 }"),
                  {}},
                 1e-4, 1, host));
  all.merge(expect_all(share,
                       {problem("x: f32[40, 37]\ny: f32[37, 40]",
                                "nest turn outer(i0: 37, i1: 40) { %0 = load x[i1, i0] : f32\n store y[i0, i1] = %0 }"),
                        {}},
                       0, 1, host));
  for (const char* what :
       {"flat", "row-loop", "column-loop", "tiled-2d", "online", "unroll", "square", "distant", "in output", "shared"})
    EXPECT_TRUE(any(all, what)) << what;
}

// ---- the cost
double best_us(const Problem& p, const Sizes& sizes, const Target& device) {
  auto domain = make_domain(p.graph, p.nest);
  BlockFacts facts(p.graph, p.nest, *domain, device);
  auto sized = sized_facts(facts, by_id(p, sizes));
  double best = 1e30;
  for_each_schedule(facts, *sized, by_id(p, sizes), true, [&](const Schedule& schedule, int64_t blocks) {
    const Cost c = cost(*sized, schedule, blocks, device, {});
    if (c.registers <= c.most) best = std::min(best, c.us);
  });
  return best;
}

TEST(Cost, GrowsWithTheBytesAndFallsWithTheBandwidth) {
  const Target device = shipped_target("h200");
  for (const Problem& p : {softmax_of("b", "s", "bf16"), bias_gelu("f16"), transposed()}) {
    double before = 0;
    for (int64_t n : {16, 256, 4096, 65536}) {
      const Sizes sizes{{"b", n}, {"h", 1}, {"s", 1024}, {"n", n}, {"m", 1024}, {"c", 1024}};
      const double us = best_us(p, sizes, device);
      EXPECT_GE(us, before) << p.nest.name << " " << n;
      EXPECT_GE(us, device.kernel_us);
      before = us;
      Target slow = device;
      slow.memory_peak_bytes_per_us /= 2;
      EXPECT_GE(best_us(p, sizes, slow), us);
    }
    EXPECT_GT(before, 10 * device.kernel_us) << p.nest.name;
  }
}

// Rows that are read again cost more where the level-2 cache holds less of them.
TEST(Cost, RowsThatAreReadAgainComeFromACacheOrFromMemory) {
  const Target large = shipped_target("h200");
  Target small = large;
  small.l2_bytes /= 8;
  const Problem p = softmax_of("5000", "60000", "f32");
  auto domain = make_domain(p.graph, p.nest);
  BlockFacts facts(p.graph, p.nest, *domain, large);
  auto sized = sized_facts(facts, {});
  int more = 0;
  for_each_schedule(facts, *sized, {}, true, [&](const Schedule& schedule, int64_t blocks) {
    const double us = cost(*sized, schedule, blocks, large, {}).us,
                 slower = cost(*sized, schedule, blocks, small, {}).us;
    EXPECT_GE(slower, us);
    more += slower > us;
  });
  EXPECT_GT(more, 0);
}

// Next to nothing takes the time of a launch; much that is copied that of its bytes.
TEST(Cost, AtItsLimits) {
  const Target device = shipped_target("h200");
  Problem copy = problem("x: f32[n]\ny: f32[n]", "nest copy outer(i0: n) { %0 = load x[i0] : f32\n store y[i0] = %0 }");
  EXPECT_NEAR(best_us(copy, {{"n", 100}}, device), device.kernel_us, 1.5);
  const double bytes = 8 * 256e6;
  EXPECT_NEAR(best_us(copy, {{"n", 256000000}}, device), bytes / device.memory_bytes_per_us,
              0.2 * bytes / device.memory_bytes_per_us);
}

// The choice is the best of the space, and says what it is bound by.
TEST(Choice, IsTheLeastPredicted) {
  for (const Problem& p :
       {softmax_of("4096", "1000", "f16"), norm_of("300", "50001", "bf16"), add_norm_of("8192", "1024", "f32")}) {
    const Target device = shipped_target("h200");
    auto domain = make_domain(p.graph, p.nest);
    BlockFacts facts(p.graph, p.nest, *domain, device);
    const std::vector<BlockChoice> choices = choose_blocks(facts, {.records = false});
    ASSERT_FALSE(choices.empty());
    auto sized = sized_facts(facts, {});
    const Legal& first = choices.front().legal;
    const int64_t blocks = first.blocks_per_row ? first.blocks_per_row->as_const().value_or(1) : 1;
    EXPECT_LE(cost(*sized, first.schedule, blocks, device, {}).us, 1.0001 * best_us(p, {}, device)) << p.nest.name;
    EXPECT_FALSE(choices.front().predicted.bound().empty()) << choices.front().why;
    EXPECT_TRUE(choices.back().legal.conditions.empty());
    EXPECT_FALSE(choices.back().legal.grid_barrier);
  }
}

// Few points have a kernel of their own where the one for many takes longer, and only up to where it does.
TEST(Choice, FewPointsHaveAScheduleOfTheirOwn) {
  const Target device = shipped_target("h200");
  int apart = 0;
  for (const Problem& p :
       {softmax_of("n", "1000", "f16"), norm_of("n", "768", "f16"), norm_of("n", "20000", "bf16"),
        problem("x: f16[n, 49, 672]\ny: f32[n, 672]",
                "nest columns outer(i0: n, i1: 672) row(i2: 49) { %0 = load x[i0, i2, i1] : f32\n %1 = reduce.sum %0 : "
                "f32\n store.row y[i0, i1] = %1 }")}) {
    auto domain = make_domain(p.graph, p.nest);
    BlockFacts facts(p.graph, p.nest, *domain, device);
    const std::vector<BlockChoice> choices = choose_blocks(facts, {.records = false});
    ASSERT_FALSE(choices.empty());
    for (const int64_t n : {1, 1 << 20}) {
      const CallSizes sizes = by_id(p, {{"n", n}});
      auto sized = sized_facts(facts, sizes);
      ASSERT_TRUE(sized.ok());
      const auto runs = std::find_if(choices.begin(), choices.end(),
                                     [&](const BlockChoice& c) { return holds(c.legal.conditions, sizes); });
      ASSERT_NE(runs, choices.end());
      auto us = [&](const BlockChoice& c) { return cost(*sized, c.legal.schedule, 1, device, {}).us; };
      EXPECT_LE(us(*runs), 1.0001 * us(choices.back())) << p.nest.name << " " << n;
      if (n == 1)
        apart += runs != choices.end() - 1;
      else
        EXPECT_EQ(runs, choices.end() - 1) << p.nest.name;
    }
  }
  EXPECT_GT(apart, 0);
}

// The choice differs where the device does.
TEST(Choice, FollowsTheDevice) {
  auto chosen = [](const Problem& p, const char* target) {
    auto domain = make_domain(p.graph, p.nest);
    return choose_blocks(BlockFacts(p.graph, p.nest, *domain, shipped_target(target)), {.records = false})
        .at(0)
        .legal.schedule;
  };
  int different = 0;
  for (const Problem& p :
       {softmax_of("600", "50000", "f32"), softmax_of("132", "20000", "f16"), norm_of("108", "30000", "bf16"),
        add_norm_of("64", "100000", "f16"), softmax_of("4", "1048576", "f32")})
    different += chosen(p, "h200") != chosen(p, "a100");
  EXPECT_GT(different, 1);
}

} // namespace
} // namespace tessera::test
