// The search over candidates, with invented times.
#include "measure/tune/search.h"
#include <gtest/gtest.h>
#include <map>

namespace tessera {
namespace {

class FakeMeasurer final : public Measurer {
public:
  std::vector<double> us;
  std::map<size_t, std::string> failing, wrong;
  std::vector<int> runs;
  int checks = 0, every_third = 0; // extra time of every third run: a noisy machine

  explicit FakeMeasurer(std::vector<double> times) : us(std::move(times)), runs(us.size()) {}
  Result<double> time_us(size_t c) override {
    if (failing.contains(c)) return Diagnostic(ErrorCode::DeviceError, failing.at(c));
    return us[c] + (++runs[c] % 3 == 0 ? every_third : 0);
  }
  Result<std::string> difference(size_t c) override {
    ++checks;
    return wrong.contains(c) ? wrong.at(c) : std::string();
  }
};
SearchResult found(FakeMeasurer& m, const SearchOptions& o = {}) {
  auto r = search(m.us.size(), m, o);
  EXPECT_TRUE(r.ok());
  return *r;
}

TEST(Search, TakesTheFastest) {
  FakeMeasurer m({40, 50, 30, 35, 60});
  m.every_third = 100;
  SearchResult r = found(m);
  EXPECT_EQ(r.best, 2U);
  EXPECT_EQ(r.best_us, 30);
  EXPECT_EQ(r.default_us, 40);
  EXPECT_EQ(r.measured, 5);
  EXPECT_EQ(m.checks, 2); // of those that are faster than the first one
  EXPECT_EQ(r.first_us, m.us);
  EXPECT_GT(m.runs[3], m.runs[1]); // the best few were run more often
}

TEST(Search, SmallGainsDoNotCount) {
  FakeMeasurer few({40, 39});
  EXPECT_EQ(found(few).best, 0U);
  FakeMeasurer enough({40, 38.5});
  EXPECT_EQ(found(enough).best, 1U);
  FakeMeasurer noise({3.5, 3.35}); // 4 %, but nothing that a clock could resolve
  EXPECT_EQ(found(noise).best, 0U);
  FakeMeasurer alone({40});
  EXPECT_EQ(found(alone).best, 0U);
}

TEST(Search, WrongAndFailingOnesAreReportedAndNeverTaken) {
  FakeMeasurer m({40, 10, 20, 30, 5});
  m.wrong[1] = "element 3 is 1 and not 2";
  m.failing[4] = "too much shared memory";
  SearchResult r = found(m);
  EXPECT_EQ(r.best, 2U);
  ASSERT_EQ(r.rejected.size(), 2U);
  EXPECT_EQ(r.rejected[0].candidate, 4U);
  EXPECT_FALSE(r.rejected[0].wrong);
  EXPECT_EQ(r.rejected[1].why, "element 3 is 1 and not 2");
  EXPECT_TRUE(r.rejected[1].wrong);
  FakeMeasurer all({40, 10, 20});
  all.wrong = {{1, "a"}, {2, "b"}};
  EXPECT_EQ(found(all).best, 0U);
  // Wrong ones make room for others.
  FakeMeasurer many({40, 1, 2, 3, 4, 5, 30});
  for (size_t c = 1; c < 6; ++c) many.wrong[c] = "differs";
  EXPECT_EQ(found(many).best, 6U);
}

TEST(Search, WithoutTheRulesChoiceThereIsNothingToCompareWith) {
  FakeMeasurer m({40, 10});
  m.failing[0] = "no kernel";
  auto r = search(2, m, {});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, "no kernel");
}

TEST(Search, EndsWhenItsTimeIsUp) {
  for (int allowed = 0; allowed < 12; ++allowed) {
    FakeMeasurer m({40, 30, 20, 10});
    int requested = 0;
    SearchOptions o;
    o.expired = [&] { return requested++ >= allowed; };
    SearchResult r = found(m, o);
    if (allowed < 10) {
      EXPECT_FALSE(r.complete) << allowed;
      EXPECT_EQ(r.best, 0U) << allowed;
    }
    EXPECT_EQ(r.first_us[0], 40);
  }
}

} // namespace
} // namespace tessera
