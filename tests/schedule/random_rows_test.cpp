// Rows of random lengths, known ones, about where blocks hold them, teams share them or short tiles read them again
// (docs/gpu-schedules.md): on a GPU of one to three multiprocessors, so that few programs run at a time.
#include "block_harness.h"
#include "nests.h"
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
  for (int i = 0; i < 2; ++i) {
    const Problem p = make(any);
    SCOPED_TRACE(print(p.graph, p.nest));
    expect_same(p, {{}}, {.tolerance = 2e-2, .multiprocessors = any.number(1, 3)});
  }
  kernel_runner().blocks_only = false;
}

TEST(RandomRows, Masks) {
  expect_same_of_some(1, [](Lengths& n) { return masked_softmax_of(n(4, 9), n(4097, 12000), n.narrow()); });
  expect_same_of_some(2, [](Lengths& n) { return masked_softmax_of(n(1, 5), n(16000, 90000), n.narrow()); });
}
TEST(RandomRows, Gains) {
  expect_same_of_some(3, [](Lengths& n) { return norm_of(n(4, 9), n(8100, 12400), "f32"); });
  expect_same_of_some(4, [](Lengths& n) { return norm_of(n(1, 5), n(30000, 90000), "f32"); });
  expect_same_of_some(5, [](Lengths& n) { return norm_of(n(1, 5), n(30000, 90000), n.narrow()); });
}
TEST(RandomRows, TwoStreams) {
  expect_same_of_some(6, [](Lengths& n) { return add_norm_of(n(4, 9), n(8100, 14500), "f32"); });
}
TEST(RandomRows, SeveralAxes) {
  for (const char* t : {"f32", "bf16"})
    expect_same_of_some(7, [&](Lengths& n) {
      const int access = 1 << n.number(0, 3);
      return group_norm_of(n(1, 9), n(2, 6), std::to_string(access * n.number(1, 10000 / access)), t);
    });
}
TEST(RandomRows, EverySecondElement) {
  expect_same_of_some(8, [](Lengths& n) {
    const int length = n.number(1000, 60000);
    return softmax_at(n(1, 9), std::to_string(length), n.narrow(), std::to_string(2 * length + n.number(0, 1)), "2*i1");
  });
}
TEST(RandomRows, Columns) {
  expect_same_of_some(9, [](Lengths& n) {
    const std::string length = n(100, 4000), width = n(1, 300), shape = n.narrow() + "[" + length + ", " + width + "]";
    return softmax_nest("x: " + shape + "\ny: " + shape, width, length, "x[i1, i0]", "y[i1, i0]");
  });
}

} // namespace
} // namespace tessera::test
