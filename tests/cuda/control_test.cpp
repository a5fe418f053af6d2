// Control steps on the fake GPU: bodies run on the caller's stream, on memory of the device, and nothing is copied or
// waited for but a condition and a trip count that were computed.
#include "executor_harness.h"

namespace tessera {
namespace {
using namespace test;
using Source = BodyArgument::Source;

class ControlOnGpu : public OnGpu {
protected:
  // v -> twice v, twice.
  std::shared_ptr<const Executable> body(const std::string& first = "twice") {
    auto b = builder();
    auto n = b.symbol("n");
    auto v = b.input("v", {n}), out = b.output("out", {n}), slice = b.output("slice", {n});
    kernel(b, first, v, out, n);
    kernel(b, "twice", v, slice, n);
    return b.done();
  }
  std::shared_ptr<const Executable> loop(bool counted, const std::string& first = "twice") {
    auto b = builder();
    auto n = b.symbol("n"), count = b.symbol("count");
    auto x = b.input("x", {n});
    ControlStep step;
    step.name = step.op = "loop";
    step.kind = ControlStep::Kind::Loop;
    if (counted)
      step.trips = b.input("trips", {}, DType::I64);
    else
      step.trip_count = 3;
    step.initial = {x};
    step.outputs = {b.output("y", {n}), b.output("all", {counted ? count : SymExpr(3), n})};
    step.reverse = {false};
    if (counted) step.defines = {{count, 1, 0}};
    step.bodies = {{body(first), {{Source::Carried, -1, 0}}}};
    b.exe->steps.emplace_back(std::move(step));
    return b.done();
  }
  // The same by way of a temporary.
  std::shared_ptr<const Executable> chain_body() {
    auto b = builder();
    auto n = b.symbol("n");
    auto v = b.input("v", {n}), t = b.buffer("t", {n}), out = b.output("out", {n}), slice = b.output("slice", {n});
    kernel(b, "twice", v, t, n);
    kernel(b, "twice", t, out, n);
    kernel(b, "twice", v, slice, n);
    return b.done();
  }
  static std::vector<float> after(std::vector<float> v, int64_t trips) {
    for (int64_t i = 0; i < trips; ++i)
      for (float& e : v) e = 2 * e + static_cast<float>(v.size());
    return v;
  }
};

TEST_F(ControlOnGpu, ALoopOfAKnownCountStaysOnTheDevice) {
  options.poison = false;
  auto e = executor(loop(false));
  const int64_t n = 64;
  auto x = gpu.allocate(256), y = gpu.allocate(256), all = gpu.allocate(768);
  auto in = ramp(n);
  std::memcpy(reinterpret_cast<void*>(x), in.data(), 256);
  auto* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  const DeviceTensor given[] = {device(y, n), {DType::F32, {3, n}, reinterpret_cast<void*>(all)}};
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, stream).ok());
  gpu.run_all();
  gpu.calls.clear();
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, stream).ok());
  EXPECT_EQ(gpu.calls["cuLaunchKernel"], 6);
  EXPECT_EQ(gpu.calls["cuStreamSynchronize"] + gpu.calls["cuEventSynchronize"], 0);
  EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"] + gpu.calls["cuMemcpyDtoDAsync"] + gpu.calls["cuMemcpyDtoHAsync"], 0);
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), after(values(in), 3));
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(at_address(all + static_cast<uint64_t>(i) * 256, n), after(values(in), i + 1)) << i;
}

// A loop whose count is known is captured: its iterations one after the other, with memory that is the graph's.
TEST_F(ControlOnGpu, ALoopOfAKnownCountIsCaptured) {
  options.poison = false;
  auto e = executor(loop(false));
  const int64_t n = 64;
  auto x = gpu.allocate(256), y = gpu.allocate(256), all = gpu.allocate(768);
  auto* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  auto call = [&] {
    const DeviceTensor given[] = {device(y, n), {DType::F32, {3, n}, reinterpret_cast<void*>(all)}};
    const Status done = e->run_on_device({{"x", device(x, n)}}, given, stream);
    EXPECT_TRUE(done.ok()) << done.error().str();
  };
  auto check = [&](float from, const std::function<void()>& run) {
    auto in = ramp(n, from);
    std::memcpy(reinterpret_cast<void*>(x), in.data(), 256);
    std::memset(reinterpret_cast<void*>(y), 0, 256);
    run();
    gpu.run_all();
    EXPECT_EQ(at_address(y, n), after(values(in), 3));
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(at_address(all + static_cast<uint64_t>(i) * 256, n), after(values(in), i + 1)) << i;
  };
  check(1, call);
  gpu.begin_capture(stream);
  call();
  auto* graph = gpu.end_capture(stream);
  ASSERT_NE(graph, nullptr);
  for (float from : {2.0f, 3.0f}) {
    check(from, [&] { gpu.replay(graph, nullptr); });
    check(from + 10, call);
  }
  gpu.drop(graph);
  check(4, call);

  auto counted = executor(loop(true));
  const auto trips = gpu.allocate(8);
  *reinterpret_cast<int64_t*>(trips) = 3;
  gpu.begin_capture(stream);
  const DeviceTensor given[] = {device(y, n), {DType::F32, {3, n}, reinterpret_cast<void*>(all)}};
  const Status refused = counted->run_on_device(
      {{"x", device(x, n)}, {"trips", {DType::I64, {}, reinterpret_cast<void*>(trips)}}}, given, stream);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'loop' is decided by a value"), std::string::npos) << refused.error().str();
  auto* empty = gpu.end_capture(stream);
  EXPECT_NE(empty, nullptr);
  gpu.drop(empty);
}

TEST_F(ControlOnGpu, ACountIsReadAndSizesAreDefined) {
  auto e = executor(loop(true));
  for (int64_t trips : {3, 0, 6, 1}) {
    auto r = e->run({{"x", ramp(48)}, {"trips", Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{trips})}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), after(values(ramp(48)), trips));
    ASSERT_EQ((*r)[1].dims(), (Dims{trips, 48}));
    if (trips > 0) {
      EXPECT_EQ((*r)[1].as<float>()[static_cast<size_t>(48 * (trips - 1) + 7)], after(values(ramp(48)), trips)[7]);
    }
  }
}

TEST_F(ControlOnGpu, AViolationInABodyIsAnErrorOfTheCall) {
  auto e = executor(loop(false, "checked"));
  auto r = e->run({{"x", ramp(8, -3)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::BadInput);
  EXPECT_TRUE(r.error().message.ends_with(" of 'x' is out of range in checked")) << r.error().message;
  auto fine = e->run({{"x", ramp(8, 1)}});
  EXPECT_TRUE(fine.ok()) << fine.error().str();
}

TEST_F(ControlOnGpu, OneOfTwoBodiesRuns) {
  auto b = builder();
  auto n = b.symbol("n");
  auto c = b.input("c", {}, DType::Bool);
  auto x = b.input("x", {n});
  ControlStep step;
  step.name = step.op = "if";
  step.condition = c;
  step.outputs = {b.output("y", {n}), -1};
  step.bodies = {{body(), {{Source::Buffer, x}}}, {chain_body(), {{Source::Buffer, x}}}};
  b.exe->steps.emplace_back(std::move(step));
  auto e = executor(b.done());
  for (int64_t yes : {1, 0, 1}) {
    auto r = e->run({{"c", Tensor::of<int64_t>(DType::Bool, {}, std::vector<int64_t>{yes})}, {"x", ramp(16)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), after(values(ramp(16)), yes ? 1 : 2));
  }
}

} // namespace
} // namespace tessera
