// The stopwatch on the fake GPU, and in how many sets of memory timed calls take turns.
#include "fake_driver.h"
#include "runtime/cuda/timing.h"
#include <cstring>

namespace tessera {
namespace {
using namespace cuda;

TEST(Timing, CallsMoveTwiceTheCacheBetweenTwoOnTheSameMemory) {
  constexpr int64_t kMiB = 1 << 20, kCache = 50 * kMiB, kNoLimit = INT64_MAX;
  EXPECT_EQ(memory_sets(1000 * kMiB, kCache, kNoLimit), 2);
  EXPECT_EQ(memory_sets(100 * kMiB, kCache, kNoLimit), 2);
  EXPECT_EQ(memory_sets(99 * kMiB, kCache, kNoLimit), 3);
  EXPECT_EQ(memory_sets(10 * kMiB, kCache, kNoLimit), 11);
  for (int64_t moved : {7, 20, 33, 64, 500}) {
    const int64_t sets = memory_sets(moved * kMiB, kCache, kNoLimit);
    EXPECT_GE((sets - 1) * moved * kMiB, 2 * kCache);
    EXPECT_LT((sets - 2) * moved * kMiB, 2 * kCache) << "no more than it takes";
  }
  for (int64_t moved : {int64_t{0}, int64_t{100}, kMiB}) EXPECT_EQ(memory_sets(moved, kCache, kNoLimit), 16);
  // There are fewer sets where memory is short, but always the first one.
  EXPECT_EQ(memory_sets(10 * kMiB, kCache, 40 * kMiB), 4);
  EXPECT_EQ(memory_sets(10 * kMiB, kCache, 5 * kMiB), 1);
}

TEST(Timing, ASetIsCopiedOnTheGpu) {
  test::FakeGpu gpu;
  auto watch = Stopwatch::create(gpu.context());
  ASSERT_TRUE(watch.ok()) << watch.error().str();
  EXPECT_EQ((*watch)->sets(int64_t{30} << 20, INT64_MAX), 5);
  for (int64_t n : {0, 1000}) {
    auto data = Tensor::create(DType::F32, {n}).value();
    for (int64_t i = 0; i < n; ++i) data.set_f64(i, static_cast<double>(i));
    auto first = (*watch)->upload(data);
    ASSERT_TRUE(first.ok());
    const int uploads = gpu.calls["cuMemcpyHtoDAsync"];
    auto second = (*watch)->upload(*first);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"], uploads);
    EXPECT_NE(first->data, second->data);
    // A change of the first one leaves the second as it is.
    ASSERT_TRUE((*watch)->poison(*first).ok());
    auto back = (*watch)->download(*second);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(std::memcmp(back->data(), data.data(), data.bytes()), 0);
  }
}

} // namespace
} // namespace tessera
