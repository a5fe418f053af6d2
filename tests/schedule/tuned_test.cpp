// Measured schedules: keys of nests, configs as descriptions of plans, and candidates.
#include "block_harness.h"
#include "codegen/schedule/candidates.h"
#include "codegen/target/select.h"
#include "nests.h"
#include "tests/base/share.h"
#include <cmath>

namespace tessera::test {
namespace {

Target gpu() { return shipped_target("h200"); }
Hash128 key(const Problem& p) {
  auto domain = make_domain(p.graph, p.nest);
  EXPECT_TRUE(domain.ok());
  return nest_key(p.graph, p.nest, *domain);
}
Problem row_sums(const std::string& rows, const std::string& row, const std::string& x = "x",
                 const std::string& dtype = "f32") {
  return problem(x + ": " + dtype + "[" + rows + ", " + row + "]\ny: " + dtype + "[" + rows + ", " + row + "]",
                 "nest sums outer(i0: " + rows + ") row(i1: " + row + ") { %0 = load " + x +
                     "[i0, i1] : f32\n %1 = reduce.sum %0 : f32\n %2 = sub %0, %1 : f32\n store y[i0, i1] = %2 }");
}

// One schedule for every nest.
class Only final : public TunedSchedules {
public:
  explicit Only(TunedSchedule t) : tuned_(std::move(t)) { tuned_.measured = "2.0 us -> 1.0 us"; }
  std::vector<TunedSchedule> find(const Hash128&) const override { return {tuned_}; }

private:
  TunedSchedule tuned_;
};

TEST(NestKey, NamesDoNotCountSizesAndTypesDo) {
  const Hash128 one = key(row_sums("n", "m"));
  EXPECT_EQ(key(row_sums("batch", "length", "input")), one);
  EXPECT_NE(key(row_sums("n", "n")), one);
  EXPECT_NE(key(row_sums("n", "64")), one);
  EXPECT_NE(key(row_sums("n", "64")), key(row_sums("n", "65")));
  EXPECT_NE(key(row_sums("n", "m", "x", "f16")), one);
  EXPECT_NE(key(softmax()), key(softmax("f16")));
  Problem max = problem("x: f32[n, m]\ny: f32[n, m]",
                        "nest top outer(i0: n) row(i1: m) { %0 = load x[i0, i1] : f32\n %1 = reduce.max %0 : f32\n "
                        "%2 = sub %0, %1 : f32\n store y[i0, i1] = %2 }");
  EXPECT_NE(key(max), one);
}

TEST(NestKey, BucketsEndAtPowersOfTwo) {
  auto is = [](int64_t n, int64_t min, int64_t max, int64_t multiple) {
    EXPECT_EQ(bucket_of(n), (ExtentRange{min, max, multiple})) << n;
  };
  is(0, 0, 0, 1);
  is(1, 1, 1, 1);
  is(2, 2, 2, 2);
  is(3, 3, 4, 1);
  is(1000, 513, 1024, 8);
  is(1024, 513, 1024, 16);
  is(1025, 1025, 2048, 1);
}

// The chosen kernel is measured first, and every other candidate is right as well.
TEST(Candidates, EachOneMeansTheNest) {
  std::vector<Case> cases;
  cases.push_back({row_sums("n", "m"), {{"n", 5}, {"m", 72}}});
  cases.push_back({row_sums("6", "1000"), {}});
  cases.push_back({softmax(), {{"b", 3}, {"s", 24}, {"n", 3}, {"m", 24}}});
  cases.push_back({column_sum(), {{"n", 40}, {"m", 24}, {"b", 3}, {"s", 5}, {"c", 24}}});
  cases.push_back({bias_gelu(), {{"n", 10}, {"m", 24}, {"b", 2}, {"s", 5}, {"c", 24}}});
  Share share;
  for (const Case& c : cases) {
    const Problem& p = c.problem;
    auto list = candidates(p.graph, p.nest, gpu(), by_id(p, c.sizes), CandidateOptions{.most = 12, .samples = 100});
    ASSERT_TRUE(list.ok()) << list.error().str();
    EXPECT_GE(list->size(), 3U) << p.nest.name;
    const Meant m = meant(c);
    std::set<std::string> texts;
    size_t lowered = 0;
    for (const Candidate& candidate : *list) {
      if (!share.takes({p.nest.name, form(candidate.tuned.schedule)})) continue;
      ++lowered;
      Only only(candidate.tuned);
      auto kernels = lower_for_gpu(p.graph, p.nest, gpu(), "kernel", {}, &only);
      ASSERT_TRUE(kernels.ok()) << kernels.error().str();
      const ScheduledKernel& k = kernels->front();
      ASSERT_FALSE(k.measured.empty()) << p.nest.name << " " << print(candidate.tuned.schedule);
      EXPECT_TRUE(kernels->back().conditions.empty());
      EXPECT_TRUE(conditions_hold(p.graph, k, c.sizes));
      EXPECT_EQ(k.buffers, kernels->back().buffers);
      EXPECT_EQ(k.may_overwrite, kernels->back().may_overwrite);
      texts.insert(tile::print(k.kernel));
      expect_meant(c, m, k);
    }
    EXPECT_EQ(texts.size(), lowered) << p.nest.name; // all of them different
    // The first one is the one that is chosen.
    bool found = false;
    for (const ScheduledKernel& k : lower_blocks(p))
      if (conditions_hold(p.graph, k, c.sizes)) {
        EXPECT_EQ(print(k.schedule), print(list->front().tuned.schedule));
        found = true;
        break;
      }
    EXPECT_TRUE(found);
  }
}

// Every `step`-th of the candidates with cooperative blocks means the nest and stands before one that needs none.
// Returns in how many ways rows are shared: a tile each, cached, by as many blocks as run at a time.
std::set<std::string> expect_cooperation(const Case& c, size_t step, const Sizes& others) {
  const Problem& p = c.problem;
  std::set<std::string> ways;
  auto list = candidates(p.graph, p.nest, gpu(), by_id(p, c.sizes), CandidateOptions{.most = 1000});
  EXPECT_TRUE(list.ok()) << list.error().str();
  if (!list.ok()) return ways;
  const Meant m = meant(c);
  size_t cooperative = 0;
  Share share;
  for (const Candidate& candidate : *list) {
    const Schedule& s = candidate.tuned.schedule;
    if (s.kind != ScheduleKind::BlockCooperative) continue;
    const std::string way = !s.traversal.loop ? "a tile each" : s.cooperation.max_blocks == 0 ? "cached" : "bounded";
    if (!ways.insert(way).second && ++cooperative % step != 0) continue;
    if (!share.takes({way})) continue;
    Only only(candidate.tuned);
    auto kernels = lower_for_gpu(p.graph, p.nest, gpu(), "kernel", {}, &only);
    EXPECT_TRUE(kernels.ok()) << kernels.error().str();
    if (!kernels.ok()) continue;
    const ScheduledKernel& k = kernels->front();
    EXPECT_FALSE(k.measured.empty()) << print(candidate.tuned.schedule);
    EXPECT_GT((k.counters + k.mailboxes).eval(by_id(p, c.sizes)).value(), 0);
    EXPECT_FALSE(tile::needs_cooperative_launch(kernels->back().kernel));
    EXPECT_TRUE(conditions_hold(p.graph, k, c.sizes));
    EXPECT_TRUE(others.empty() || !conditions_hold(p.graph, k, others));
    expect_meant(c, m, k, 2e-4);
  }
  EXPECT_GT(cooperative, 9U);
  return ways;
}

// Columns that are few and long are shared by any number of cooperative blocks.
TEST(Candidates, CooperativeColumns) {
  for (const char* what : {"%2 = sub %0, %1 : f32\n store y[i0, i1] = %2", "store y[i0] = %1"}) {
    const std::string y = what[0] == '%' ? "[c, n]" : "[c]";
    Case c{problem("x: f32[n, c]\ny: f32" + y,
                   "nest down outer(i0: c) row(i1: n) { %0 = load x[i1, i0] : f32\n %1 = reduce.sum %0 : f32\n " +
                       std::string(what) + " }"),
           {{"n", 700}, {"c", 21}}};
    expect_cooperation(c, 9, {{"n", 700}, {"c", 21 * 64}});
  }
}

// So are rows, of whole accesses and others, of known length and not.
TEST(Candidates, CooperativeRows) {
  const std::set<std::string> all{"a tile each", "cached", "bounded"}, last{"a tile each", "bounded"};
  const Sizes sizes{{"b", 3}, {"s", 40000}}, others{{"b", 3}, {"s", 80000}};
  EXPECT_EQ(expect_cooperation({softmax_of("3", "40000"), {}}, 60, {}), all);
  EXPECT_EQ(expect_cooperation({softmax_of("3", "40003"), {}}, 60, {}), all);
  EXPECT_EQ(expect_cooperation({softmax_of("b", "s"), sizes}, 60, others), all);
  EXPECT_EQ(expect_cooperation({softmax_of("1", "40003", "bf16"), {}}, 60, {}), all);
  for (const char* rows : {"1", "3"}) {
    const std::string n = rows;
    Case sum{problem("x: f32[" + n + ", 40003]\ny: f32[" + n + "]",
                     "nest sum outer(i0: " + n +
                         ") row(i1: 40003) { %0 = load x[i0, i1] : f32\n"
                         " %1 = reduce.sum %0 : f32\n store.row y[i0] = %1 }"),
             {}};
    EXPECT_EQ(expect_cooperation(sum, 60, {}), last) << rows;
  }
}

// A schedule for rows up to 1024 elements, of whole accesses, is not launched for others.
TEST(Candidates, ConditionsKeepATunedKernelToItsSizes) {
  Problem p = row_sums("n", "m");
  auto list = candidates(p.graph, p.nest, gpu(), by_id(p, {{"n", 3000}, {"m", 1000}}), CandidateOptions{.most = 30});
  ASSERT_TRUE(list.ok());
  ASSERT_FALSE(list->empty());
  for (const Candidate& c : *list) {
    Only only(c.tuned);
    auto kernels = lower_for_gpu(p.graph, p.nest, gpu(), "kernel", {}, &only);
    ASSERT_TRUE(kernels.ok());
    auto first = [&](int64_t n, int64_t m) { return conditions_hold(p.graph, kernels->front(), {{"n", n}, {"m", m}}); };
    EXPECT_TRUE(first(3000, 1000) && first(4096, 1024) && first(2049, 520));
    EXPECT_FALSE(first(3000, 1032) || first(3000, 1001) || first(2048, 1000) || first(3000, 0) || first(0, 1000));
  }
}

// Copies to shared memory at once are measured where they are not the default, and cost what their blocks wait for.
TEST(Candidates, CopiedRowsAreWorthMeasuring) {
  for (const Problem& p : {norm_of("1400", "24576", "f32"), softmax_of("20000", "12000", "f16"),
                           softmax_of("2048", "30001", "f16"), softmax_of("90", "390656")}) {
    auto list = candidates(p.graph, p.nest, gpu(), by_id(p, {}), CandidateOptions{.most = 24});
    ASSERT_TRUE(list.ok());
    auto copied = [](const Candidate& c) { return c.tuned.schedule.residency.async_copy; };
    EXPECT_TRUE(std::any_of(list->begin(), list->end(), copied)) << print(list->front().tuned.schedule);
    EXPECT_FALSE(std::all_of(list->begin(), list->end(), copied));
  }
}

// Numbers that make no sense are passed over: the default kernels are there.
TEST(Candidates, DamagedConfigsAreIgnored) {
  Problem p = row_sums("n", "512");
  const std::vector<ScheduledKernel> plain = lower_blocks(p);
  auto list = candidates(p.graph, p.nest, gpu(), by_id(p, {{"n", 3000}}), CandidateOptions{.most = 2});
  ASSERT_TRUE(list.ok() && !list->empty());
  const std::pair<const char*, int64_t> damage[] = {
      {"rows", 0},        {"rows", 1 << 30},    {"columns", 3},     {"columns", 256},  {"warps", 64},
      {"warps", 0},       {"row_axes", 3},      {"column_axes", 8}, {"split_axis", 7}, {"column_axes", 0},
      {"min_blocks", -2}, {"columns", 1 << 19}, {"split_axis", 1}};
  for (auto [name, value] : damage) {
    TunedSchedule t = list->front().tuned;
    ASSERT_TRUE(set_field(t.schedule, name, value).ok()) << name;
    Only only(t);
    auto kernels = lower_for_gpu(p.graph, p.nest, gpu(), "kernel", {}, &only);
    ASSERT_TRUE(kernels.ok()) << name << "=" << value << kernels.error().str();
    EXPECT_EQ(kernels->size(), plain.size()) << name << "=" << value;
    EXPECT_TRUE(kernels->front().measured.empty()) << name << "=" << value;
  }
  TunedSchedule fewer = list->front().tuned;
  fewer.extents.pop_back();
  Only only(fewer);
  auto kernels = lower_for_gpu(p.graph, p.nest, gpu(), "kernel", {}, &only);
  ASSERT_TRUE(kernels.ok());
  EXPECT_TRUE(kernels->front().measured.empty());
}

} // namespace
} // namespace tessera::test
