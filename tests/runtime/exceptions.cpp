// An exception of a task reaches the caller of its loop, and leaves the pool usable.
#include "build_executable.h"
#include <atomic>
#include <stdexcept>

namespace tessera {
namespace {

int64_t sum(ThreadPool& pool, int64_t n) {
  std::atomic<int64_t> total{0};
  pool.parallel_for(n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) total += i;
  });
  return total;
}

// Whichever worker's chunk it is, the pool's own caller's or a helper's.
TEST(Exceptions, OfATaskReachTheCallerOfTheLoop) {
  for (int threads : {1, 2, 4}) {
    auto pool = ThreadPool::create(threads);
    for (int64_t thrower = 0; thrower < 64; ++thrower) {
      auto body = [&](int64_t begin, int64_t end, int) {
        if (begin <= thrower && thrower < end) throw std::bad_alloc();
      };
      EXPECT_THROW(pool->parallel_for(64, 1, body), std::bad_alloc);
      EXPECT_EQ(sum(*pool, 100), 4950);
      pool->region([&] {
        EXPECT_THROW(pool->parallel_for(64, 1, body), std::bad_alloc);
        EXPECT_EQ(sum(*pool, 100), 4950); // in the same region
      });
    }
  }
}

TEST(Exceptions, LeaveARegionWithoutWaiters) {
  auto pool = ThreadPool::create(4);
  for (int i = 0; i < 100; ++i) {
    EXPECT_THROW(pool->region([] { throw std::runtime_error("here"); }), std::runtime_error);
    EXPECT_THROW(pool->region([&] {
      EXPECT_EQ(sum(*pool, 100), 4950);
      pool->parallel_for(64, 1, [](int64_t, int64_t, int) { throw std::runtime_error("there"); });
    }),
                 std::runtime_error);
  }
  EXPECT_EQ(sum(*pool, 100), 4950);
}

// All chunks throw at once; one of the exceptions arrives.
TEST(Exceptions, OfManyTasksAreOne) {
  auto pool = ThreadPool::create(4);
  for (int i = 0; i < 100; ++i)
    EXPECT_THROW(pool->parallel_for(1000, 1, [](int64_t, int64_t, int) { throw std::bad_alloc(); }), std::bad_alloc);
}

// An operator on the host that throws is an error with its name, and the executor runs on.
TEST(Exceptions, OfAHostStepAreErrors) {
  test::Builder b;
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s});
  std::function<void()> before = [] {};
  HostStep h;
  h.name = "middle";
  h.op = "identity";
  h.inputs = {x};
  h.outputs = {y};
  h.run = [&](const std::vector<Tensor>& in, const auto&) -> Result<std::vector<Tensor>> {
    before();
    return std::vector<Tensor>{in[0]};
  };
  b.exe->steps.emplace_back(h);
  b.exe->host_steps = 1;
  ExecutorOptions options;
  options.pool = ThreadPool::create(3);
  auto executor = Executor::create({b.done()}, options).value();
  std::vector<float> values(10, 3);
  std::map<std::string, Tensor> inputs{{"x", Tensor::of<float>(DType::F32, {10}, values)}};
  auto expect = [&](ErrorCode code, const std::string& text) {
    auto failed = executor->run(inputs);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, code);
    EXPECT_NE(failed.error().str().find(text), std::string::npos) << failed.error().str();
    EXPECT_NE(failed.error().str().find("'middle'"), std::string::npos) << failed.error().str();
    before = [] {};
    auto right = executor->run(inputs);
    ASSERT_TRUE(right.ok()) << right.error().str();
    EXPECT_EQ((*right)[0].as<float>()[9], 3);
  };
  before = [] { throw std::bad_alloc(); };
  expect(ErrorCode::OutOfMemory, "memory is exhausted");
  before = [] { (void)std::vector<char>().at(1); };
  expect(ErrorCode::Internal, "exception");
  before = [] { std::vector<char>().resize(std::vector<char>().max_size() + size_t{1}); };
  expect(ErrorCode::OutOfMemory, "larger than any memory");
}

} // namespace
} // namespace tessera
