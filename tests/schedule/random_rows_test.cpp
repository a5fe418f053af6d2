// Rows of random lengths, known ones, about where blocks hold them, cooperative blocks share them or short tiles read
// them again (docs/schedules.md): on a GPU of one to three multiprocessors, so that few programs run at a time.
#include "block_harness.h"
#include "nests.h"
#include "tests/base/seeds.h"
#include <functional>
#include <random>

namespace tessera::test {
namespace {

class Lengths {
public:
  explicit Lengths(uint32_t seed) : rng_(seed) {}
  int number(int least, int most) { return std::uniform_int_distribution(least, most)(rng_); }
  std::string operator()(int least, int most) { return std::to_string(number(least, most)); }
  std::string narrow() { return number(0, 1) ? "f16" : "bf16"; }

private:
  std::mt19937 rng_;
};

// Two problems of each kind, which the seed names.
void expect_same_of_some(uint32_t seed, const std::function<Problem(Lengths&)>& make) {
  Lengths any(seed);
  kernel_runner().blocks_only = true;
  for (uint32_t i = 0; i < seeds(2); ++i) {
    const Problem p = make(any);
    SCOPED_TRACE(print(p.graph, p.nest));
    expect_same(p, {{}}, {.tolerance = 2e-2, .multiprocessors = any.number(1, 3)});
  }
  kernel_runner().blocks_only = false;
}

// Arguments of a call are drawn in any order: each number stands alone.
using Rows = Problem (&)(const std::string& rows, const std::string& row, const std::string& t);
void expect_same_of_rows(uint32_t seed, Rows make, std::pair<int, int> rows, std::pair<int, int> row, bool narrow) {
  expect_same_of_some(seed, [&](Lengths& n) {
    const std::string count = n(rows.first, rows.second), length = n(row.first, row.second);
    return make(count, length, narrow ? n.narrow() : "f32");
  });
}

TEST(RandomRows, Masks) {
  expect_same_of_rows(1, masked_softmax_of, {4, 9}, {4097, 12000}, true);
  expect_same_of_rows(2, masked_softmax_of, {1, 5}, {16000, 90000}, true);
}
TEST(RandomRows, Gains) {
  expect_same_of_rows(3, norm_of, {4, 9}, {8100, 12400}, false);
  expect_same_of_rows(4, norm_of, {1, 5}, {30000, 90000}, false);
  expect_same_of_rows(5, norm_of, {1, 5}, {30000, 90000}, true);
}
TEST(RandomRows, TwoStreams) { expect_same_of_rows(6, add_norm_of, {4, 9}, {8100, 14500}, false); }
TEST(RandomRows, SeveralAxes) {
  for (const char* t : {"f32", "bf16"})
    expect_same_of_some(7, [&](Lengths& n) {
      const int access = 1 << n.number(0, 3);
      const std::string groups = n(1, 9), channels = n(2, 6);
      return group_norm_of(groups, channels, std::to_string(access * n.number(1, 10000 / access)), t);
    });
}
TEST(RandomRows, EverySecondElement) {
  expect_same_of_some(8, [](Lengths& n) {
    const int length = n.number(1000, 60000), width = 2 * length + n.number(0, 1);
    const std::string rows = n(1, 9), t = n.narrow();
    return softmax_at(rows, std::to_string(length), t, std::to_string(width), "2*i1");
  });
}
TEST(RandomRows, Columns) {
  expect_same_of_some(9, [](Lengths& n) {
    const std::string length = n(100, 4000), width = n(1, 300), t = n.narrow();
    const std::string shape = t + "[" + length + ", " + width + "]";
    return softmax_nest("x: " + shape + "\ny: " + shape, width, length, "x[i1, i0]", "y[i1, i0]");
  });
}

} // namespace
} // namespace tessera::test
