// Values that calls keep in a GPU's memory, on the fake GPU: from the host, on streams, in the caller's graphs.
#include "executor_harness.h"
#include "runtime/cuda/captured_calls.h"

namespace tessera {
namespace {
using namespace test;

class StatesOnGpu : public OnGpu {
protected:
  // y = first(x), and a state n of four elements that becomes 2 n + 4 and begins as 0, 1, 2, 3.
  std::shared_ptr<const Executable> counting(const std::string& first = "twice") {
    auto b = builder();
    auto s = b.symbol("s");
    auto x = b.input("x", {s}), n = b.input("n", {4}), y = b.output("y", {s}), next = b.output("n", {4});
    kernel(b, first, x, y, s);
    kernel(b, "twice", n, next, 4);
    b.exe->states = {static_cast<int>(b.exe->constants.size())};
    b.exe->constants.push_back({"cache.n", ramp(4)});
    return b.done();
  }
  static std::vector<float> after(int calls) {
    auto n = values(ramp(4));
    for (; calls > 0; --calls)
      for (float& e : n) e = 2 * e + 4;
    return n;
  }
  static std::vector<float> state(Executor& e) {
    auto n = e.read_state(0);
    EXPECT_TRUE(n.ok()) << n.error().str();
    return n.ok() ? values(*n) : std::vector<float>();
  }
  static inline void* const kStream = reinterpret_cast<void*>(uintptr_t{0x70});
  static inline void* const kOther = reinterpret_cast<void*>(uintptr_t{0x80});
};

TEST_F(StatesOnGpu, StayThereFromCallToCall) {
  auto e = executor(counting());
  EXPECT_EQ(state(*e), after(0));
  for (int call = 1; call <= 3; ++call) {
    gpu.calls.clear();
    auto r = e->run({{"x", ramp(8 * call)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    ASSERT_EQ(r->size(), 1u);
    EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"], 1) << "the input alone";
    EXPECT_EQ(gpu.calls["cuMemcpyDtoHAsync"], 1) << "the output alone";
    EXPECT_EQ(state(*e), after(call));
  }
  ASSERT_TRUE(e->write_state(0, ramp(4, 1)).ok());
  EXPECT_EQ(state(*e), values(ramp(4, 1)));
  EXPECT_FALSE(e->write_state(0, ramp(3)).ok());
  ASSERT_TRUE(e->reset_states().ok());
  EXPECT_EQ(state(*e), after(0));
}

TEST_F(StatesOnGpu, CallsOnStreamsComeOneAfterTheOther) {
  auto e = executor(counting());
  const auto x = gpu.allocate(400), y = gpu.allocate(400);
  const auto given = {device(y, 100)};
  for (int call = 1; call <= 6; ++call) {
    ASSERT_TRUE(e->run_on_device({{"x", device(x, 100)}}, given, call % 2 ? kStream : kOther).ok());
    if (call == 3) {
      EXPECT_EQ(state(*e), after(3));
    }
  }
  auto r = e->run({{"x", ramp(5)}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  ASSERT_TRUE(e->run_on_device({{"x", device(x, 100)}}, given, kStream).ok());
  ASSERT_TRUE(e->warm_up({{"x", ramp(30)}}).ok());
  ASSERT_TRUE(e->trim().ok());
  EXPECT_EQ(state(*e), after(8));
  ASSERT_TRUE(e->run_on_device({{"x", device(x, 100)}}, given, kOther).ok());
  e.reset(); // with work in flight
}

TEST_F(StatesOnGpu, AFailedCallFromTheHostChangesNothing) {
  auto e = executor(counting("checked"));
  ASSERT_TRUE(e->run({{"x", ramp(5)}}).ok());
  auto r = e->run({{"x", ramp(5, -3)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::BadInput);
  EXPECT_FALSE(e->run({{"n", ramp(4)}}).ok());
  EXPECT_EQ(state(*e), after(1));
}

TEST_F(StatesOnGpu, AGraphOfTheCallerChangesThemEachTimeItRuns) {
  options.poison = false;
  auto e = executor(counting());
  const auto x = gpu.allocate(400), y = gpu.allocate(400);
  const auto given = {device(y, 100)};
  const auto call = [&] { return e->run_on_device({{"x", device(x, 100)}}, given, kStream); };
  gpu.begin_capture(kStream);
  const Status cold = call();
  EXPECT_EQ(cold.error().code, ErrorCode::Usage);
  if (auto* none = gpu.end_capture(kStream)) gpu.drop(none);
  ASSERT_TRUE(call().ok());
  ASSERT_TRUE(e->wait().ok());
  gpu.begin_capture(kStream);
  ASSERT_TRUE(call().ok());
  auto* graph = gpu.end_capture(kStream);
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(state(*e), after(1));
  for (int i = 0; i < 3; ++i) gpu.replay(graph, kStream);
  gpu.run_all();
  EXPECT_EQ(state(*e), after(4));
  ASSERT_TRUE(call().ok());
  EXPECT_EQ(state(*e), after(5));
  gpu.drop(graph);
  const cuda::Context::Current current(*options.gpu_context);
  cuda::CapturedCalls::of(*options.gpu_context).value()->free_unused();
}

} // namespace
} // namespace tessera
