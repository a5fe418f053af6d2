// The report of bad indices: the lowest (site, position) wins with its value, in any order and half by half; and what
// its error says.
#include "runtime/index_check.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace tessera {
namespace {

TEST(IndexReport, TheLowestSiteAndPositionWinsInAnyOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    struct Bad {
      int site;
      int64_t position, value;
    };
    std::vector<Bad> all;
    for (int k = 0; k < 1 + round % 7; ++k)
      all.push_back({static_cast<int>(random() % (round % 3 ? 4 : IndexReport::kSites)),
                     static_cast<int64_t>(random() % (round % 2 ? 8 : IndexReport::kNoPosition)),
                     static_cast<int64_t>(random())});
    // A position of a site has one value.
    std::sort(all.begin(), all.end(),
              [](auto& a, auto& b) { return std::pair(a.site, a.position) < std::pair(b.site, b.position); });
    all.erase(
        std::unique(all.begin(), all.end(),
                    [](auto& a, auto& b) { return std::pair(a.site, a.position) == std::pair(b.site, b.position); }),
        all.end());
    const Bad first = all[0];
    std::shuffle(all.begin(), all.end(), random);
    IndexReport report;
    EXPECT_FALSE(report.any());
    for (const Bad& b : all) report.add(b.site, b.position, b.value);
    EXPECT_TRUE(report.any());
    EXPECT_EQ(report.site(), first.site);
    EXPECT_EQ(report.position(), first.position);
    EXPECT_EQ(report.value(), first.value);
  }
}
TEST(IndexReport, NoWordOfABadIndexIsZero) {
  for (int site : {0, IndexReport::kSites - 1})
    for (int64_t position : {int64_t{0}, IndexReport::kNoPosition, int64_t{-1}, INT64_MAX})
      for (uint64_t word : IndexReport::words(site, position, 0)) EXPECT_NE(word, 0u);
  IndexReport report;
  report.add(2, -1, 7);
  EXPECT_EQ(report.position(), IndexReport::kNoPosition);
}

TEST(IndexCheck, TheErrorSaysWhatIsKnown) {
  const SymExpr n = SymExpr::symbol("n"), m = SymExpr::symbol("m");
  const std::unordered_map<uint64_t, int64_t> sizes{{n.symbol_id(), 4}, {m.symbol_id(), 0}};
  IndexCheck check{"table", "ids", "Gather_3", n * 2, true, {n, 3}};
  EXPECT_EQ(index_error(check, 7, -9, sizes),
            "index -9 at [2, 1] of 'ids' is out of range [-8, 8) of 'table' in Gather_3");
  EXPECT_EQ(index_error(check, 7, -9, {}),
            "index -9 at element 7 of 'ids' is out of range [-(2*n), 2*n) of 'table' in Gather_3");
  EXPECT_EQ(index_error(check, IndexReport::kNoPosition, 8, sizes),
            "index 8 of 'ids' is out of range [-8, 8) of 'table' in Gather_3");
  check.component = 1;
  check.from_end = false;
  EXPECT_EQ(index_error(check, 7, 8, sizes),
            "index 8 at [2, 1, 1] of 'ids' is out of range [0, 8) of 'table' in Gather_3");
  EXPECT_EQ(index_error({"", "", "", m, true, {}}, 0, 5, sizes), "index 5 is out of range [0, 0)");
  EXPECT_EQ(index_error({}, 0, 5, sizes), "index 5 is out of range");
  IndexCheck condition{"", "b", "div_3", {}, false, {n, 3}};
  condition.failure = "division by zero";
  EXPECT_EQ(index_error(condition, 7, -1, sizes), "division by zero at [2, 1] of 'b' in div_3");
  condition.indices = "";
  condition.shape = {};
  EXPECT_EQ(index_error(condition, 0, -1, sizes), "division by zero in div_3");
}

} // namespace
} // namespace tessera
