// Calls with tensors on the device, on the fake GPU.
#include "executor_harness.h"

namespace tessera {
namespace {
using namespace test;

TEST_F(OnGpu, OnTheDeviceNothingIsCopiedAndNobodyWaits) {
  options.poison = false;
  auto e = executor(chain());
  auto n = int64_t{100};
  auto x = gpu.allocate(400), y = gpu.allocate(400);
  auto in = ramp(n);
  std::memcpy(reinterpret_cast<void*>(x), in.data(), 400);
  auto* stream = reinterpret_cast<void*>(uintptr_t{0x77});
  auto given = {device(y, n)};
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, stream).ok());
  gpu.run_all();
  gpu.calls.clear();
  std::memset(reinterpret_cast<void*>(y), 0, 400);
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, stream).ok());
  EXPECT_EQ(gpu.calls["cuLaunchKernel"], 2);
  EXPECT_EQ(gpu.calls["cuStreamSynchronize"] + gpu.calls["cuEventSynchronize"], 0);
  EXPECT_EQ(gpu.calls["cuMemcpyHtoDAsync"] + gpu.calls["cuMemcpyDtoDAsync"] + gpu.calls["cuMemcpyDtoHAsync"], 0);
  EXPECT_EQ(gpu.calls["cuStreamWaitEvent"], 0) << "the same stream";
  EXPECT_EQ(at_address(y, 1)[0], 0) << "it has not run yet";
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), expected(in));
}

TEST_F(OnGpu, MisalignedMemoryIsCopied) {
  auto e = executor(chain());
  auto n = int64_t{50};
  auto x = gpu.allocate(1000) + 4, y = gpu.allocate(1000) + 12;
  auto in = ramp(n);
  std::memcpy(reinterpret_cast<void*>(x), in.data(), 200);
  auto given = {device(y, n)};
  ASSERT_TRUE(e->run_on_device({{"x", device(x, n)}}, given, nullptr).ok());
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), expected(in));
  EXPECT_EQ(gpu.calls["cuMemcpyDtoDAsync"], 2);
  for (const auto& l : gpu.launches) EXPECT_TRUE(l.args[0] % 16 == 0 && l.args[1] % 16 == 0);
}

TEST_F(OnGpu, CallsOnSeveralStreamsComeOneAfterTheOther) {
  auto e = executor(chain());
  auto n = int64_t{64};
  std::vector<uint64_t> xs, ys;
  for (int i = 0; i < 6; ++i) {
    xs.push_back(gpu.allocate(4096));
    ys.push_back(gpu.allocate(4096));
    auto in = ramp(n, static_cast<float>(i));
    std::memcpy(reinterpret_cast<void*>(xs.back()), in.data(), 256);
    auto given = {device(ys.back(), n)};
    auto* stream = reinterpret_cast<void*>(uintptr_t{0x50} + static_cast<uintptr_t>(i % 3));
    ASSERT_TRUE(e->run_on_device({{"x", device(xs.back(), n)}}, given, stream).ok());
  }
  // The last stream alone is waited for, then tensors from the host use the same arena.
  auto r = e->run({{"x", ramp(n, 9)}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(values((*r)[0]), expected(ramp(n, 9)));
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(at_address(ys[static_cast<size_t>(i)], n), expected(ramp(n, static_cast<float>(i)))) << i;
}

TEST_F(OnGpu, ViolationsOnTheDeviceAreToldLater) {
  auto e = executor(chain("checked", "twice"));
  auto n = int64_t{8};
  auto x = gpu.allocate(400), y = gpu.allocate(400);
  auto given = {device(y, n)};
  auto call = [&](float from) {
    auto in = ramp(n, from);
    std::memcpy(reinterpret_cast<void*>(x), in.data(), 32);
    return e->run_on_device({{"x", device(x, n)}}, given, nullptr);
  };
  ASSERT_TRUE(call(-3).ok());
  auto told = e->wait();
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().code, ErrorCode::EarlierCall);
  EXPECT_TRUE(told.error().message.ends_with(" of 'x' is out of range in checked")) << told.error().message;
  EXPECT_TRUE(e->wait().ok()) << "once";
  ASSERT_TRUE(call(1).ok());
  ASSERT_TRUE(e->wait().ok());
  ASSERT_TRUE(call(-3).ok());
  gpu.run_all();
  auto next = call(1);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ErrorCode::EarlierCall);
  EXPECT_TRUE(next.error().message.ends_with(" of 'x' is out of range in checked")) << next.error().message;
  ASSERT_TRUE(call(1).ok());
  ASSERT_TRUE(e->wait().ok());
  EXPECT_EQ(at_address(y, n), expected(ramp(n, 1)));
}

TEST_F(OnGpu, WhatIsGivenOnTheDeviceIsChecked) {
  auto e = executor(chain());
  auto x = gpu.allocate(400), y = gpu.allocate(400);
  auto call = [&](const DeviceTensor& in, const DeviceTensor& out) {
    auto given = {out};
    auto s = e->run_on_device({{"x", in}}, given, nullptr);
    return s.ok() ? std::string() : s.error().message;
  };
  EXPECT_EQ(call(device(x, 100), device(y, 100)), "");
  EXPECT_NE(call(device(x, 100), device(y, 99)), "");
  EXPECT_NE(call(device(0, 100), device(y, 100)), "");
  EXPECT_NE(call(device(x, 50), device(x + 100, 50)).find("overlaps that of input"), std::string::npos);
  EXPECT_NE(call({DType::I64, {100}, reinterpret_cast<void*>(x)}, device(y, 100)), "");
  auto status = e->run_on_device({{"x", device(x, 100)}}, {}, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::BadInput);
  ASSERT_TRUE(e->wait().ok());

  Builder b;
  auto hx = b.input("x", {4}), hy = b.output("y", {4});
  b.kernel("twice", twice_plus, {hx}, {hy}, {SymExpr(1)}, 4);
  auto host = Executor::create({b.done()}).value();
  auto given = {device(y, 4)};
  status = host->run_on_device({{"x", device(x, 4)}}, given, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Usage);
  EXPECT_TRUE(host->wait().ok());
}

} // namespace
} // namespace tessera
