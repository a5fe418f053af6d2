// Calibration: a GPU whose kernels take known times is measured as what it is, and the host's figures are sane.
#include "../cuda/fake_driver.h"
#include "measure/calibrate/calibrate.h"
#include "runtime/cuda/assembler.h"
#include "runtime/run.h"
#include <cstring>

namespace tessera::test {
namespace {

TEST(Calibrate, KernelsAssembleForEveryArchitectureWithoutSpills) {
  auto assembler = cuda::Assembler::find();
  ASSERT_TRUE(assembler.ok()) << assembler.error().str(); // the toolkit is there where this is built
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90"}) {
    auto cubin = (*assembler)->assemble(calibration_ptx(), arch);
    ASSERT_TRUE(cubin.ok()) << arch << ": " << cubin.error().str();
    EXPECT_EQ(cubin->spill_bytes, 0) << arch;
  }
}

// A GPU of 132 multiprocessors by its kernels' times. Every launch takes 1 us, every memory is as slow as said here.
struct ModelGpu {
  FakeGpu fake;
  double memory_rate = 4e6, l2_rate = 8e6, shared_rate = 2e5; // bytes a us
  double saturating = 32 << 10;                               // bytes in flight on a multiprocessor
  double clock = 1700;                                        // MHz
  double extra_us = 0;                                        // of every launch

  ModelGpu() {
    fake.memory = size_t{128} << 20;
    // Adds a kernel whose loop takes round_us for a round. Arguments: a, b, rounds, n.
    auto loop = [this](const char* name, auto round_us) {
      fake.kernel(name, 4, [this, round_us](const FakeGpu::Launch& l) {
        const double us = static_cast<double>(l.args[2]) * round_us(l);
        fake.take((us + extra_us) / 1e3);
        return CUDA_SUCCESS;
      });
    };
    for (int unroll : {1, 2, 4}) {
      loop(("copy_" + std::to_string(unroll)).c_str(), [this, unroll](const FakeGpu::Launch& l) {
        const double in_flight = l.grid / 132.0 * l.threads * 16 * unroll;
        return 2.0 * l.grid * l.threads * 16 * unroll / (memory_rate * std::min(1.0, in_flight / saturating));
      });
    }
    loop("read_l2", [this](const FakeGpu::Launch& l) { return 64.0 * l.grid * l.threads / l2_rate; });
    loop("read_shared", [this](const FakeGpu::Launch& l) { return 128.0 * l.threads / shared_rate; });
    loop("load_shared", [this](const FakeGpu::Launch& l) { return 8.0 * l.threads / 32 / clock; });
    fake.kernel("link", 4, [](const FakeGpu::Launch&) { return CUDA_SUCCESS; });
    loop("chase_l2", [](const FakeGpu::Launch&) { return 0.5; });
    loop("chase_l1", [](const FakeGpu::Launch&) { return 0.02; });
    loop("chase_shared", [](const FakeGpu::Launch&) { return 0.015; });
    loop("barrier", [](const FakeGpu::Launch&) { return 0.03; });
    loop("exchange", [](const FakeGpu::Launch& l) { return 0.1 + 0.05 * l.threads / 32; });
    loop("grid_barrier", [](const FakeGpu::Launch& l) {
      EXPECT_TRUE(l.cooperative);
      return 1.5;
    });
    fake.kernel("empty", 4, [this](const FakeGpu::Launch& l) {
      fake.take((1 + 0.0005 * l.grid + extra_us) / 1e3);
      return CUDA_SUCCESS;
    });
    struct {
      const char* name;
      double results, rate; // of a block in a round; per cycle
    } const classes[] = {{"fma", 1024 * 128, 128},
                         {"integer", 1024 * 128, 64},
                         {"special", 1024 * 64, 16},
                         {"conversion", 1024 * 128, 60},
                         {"shuffle", 1024 * 64, 32},
                         {"tensor_f16", 32 * 32 * 2048, 1024},
                         {"tensor_tf32", 32 * 32 * 1024, 512},
                         {"tensor_i8", 32 * 32 * 4096, 2048}};
    for (const auto& c : classes)
      fake.kernel(std::string("rate_") + c.name, 4, [this, c](const FakeGpu::Launch& l) {
        const double cycles = static_cast<double>(l.args[2]) * c.results / c.rate;
        *fake.at<uint64_t>(l.args[1], 1) = static_cast<uint64_t>(cycles);
        fake.take((cycles / clock + extra_us) / 1e3);
        return CUDA_SUCCESS;
      });
  }
};

TEST(Calibrate, AGpuIsMeasuredAsWhatItIs) {
  ModelGpu gpu;
  auto context = gpu.fake.context();
  std::vector<std::string> told;
  CalibrateOptions options;
  options.name = "model";
  options.progress = [&](const std::string& what) { told.push_back(what); };
  auto t = calibrate_gpu(*context, options);
  ASSERT_TRUE(t.ok()) << t.error().str();
  EXPECT_EQ(t->name, "model");
  EXPECT_EQ(t->gpu, "Fake GPU");
  EXPECT_EQ(t->arch, "sm_90");
  EXPECT_GE(told.size(), 4u);
  const struct {
    double measured, is;
  } figures[] = {
      {t->memory_bytes_per_us, gpu.memory_rate},
      {t->l2_bytes_per_us, gpu.l2_rate},
      {t->shared_bytes_per_us, gpu.shared_rate},
      {t->clock_mhz, gpu.clock},
      {t->fma_per_cycle, 128},
      {t->integer_per_cycle, 64},
      {t->special_per_cycle, 16},
      {t->conversion_per_cycle, 60},
      {t->shuffle_per_cycle, 32},
      {t->tensor_f16_per_cycle, 1024},
      {t->tensor_tf32_per_cycle, 512},
      {t->tensor_i8_per_cycle, 2048},
      {t->load_store_per_cycle, 32},
      {t->l2_latency_us, 0.5},
      {t->l1_latency_us, 0.02},
      {t->shared_latency_us, 0.015},
      {t->barrier_us, 0.03},
      {t->warp_exchange_us, 0.05},
      {t->grid_barrier_us, 1.5},
      {t->block_us, 0.0005},
  };
  for (const auto& f : figures) EXPECT_NEAR(f.measured / f.is, 1, 0.02) << f.is;
  EXPECT_EQ(t->saturating_bytes, 32 << 10);
  // It is a target file.
  auto read = parse_target(print_target(*t), "model.json");
  ASSERT_TRUE(read.ok()) << read.error().str();
  EXPECT_EQ(print_target(*read), print_target(*t));
}

TEST(Calibrate, NonsenseIsAnErrorThatNamesTheFigure) {
  ModelGpu gpu;
  gpu.clock = 5; // MHz
  auto t = calibrate_gpu(*gpu.fake.context(), {});
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code, ErrorCode::DeviceError);
  EXPECT_NE(t.error().str().find("clock_mhz"), std::string::npos) << t.error().str();
}

TEST(Calibrate, ErrorsOfTheDriverComeBackAndLeaveNothingBehind) {
  for (const char* call : {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuLaunchKernel", "cuEventSynchronize",
                           "cuMemAllocFromPoolAsync", "cuGraphInstantiateWithFlags", "cuGraphLaunch"}) {
    ModelGpu gpu;
    gpu.fake.fail(call, 0, CUDA_ERROR_INVALID_VALUE);
    auto t = calibrate_gpu(*gpu.fake.context(), {});
    EXPECT_FALSE(t.ok()) << call;
    gpu.fake.run_all();
    EXPECT_EQ(gpu.fake.live_bytes(), 0) << call;
    EXPECT_EQ(gpu.fake.live_graphs(), 0u) << call;
  }
}

TEST(Calibrate, TheHostIsMeasured) {
  auto pool = ThreadPool::create(1);
  auto t = calibrate_host(*pool, {});
  ASSERT_TRUE(t.ok()) << t.error().str();
  EXPECT_EQ(t->cores, 1);
  EXPECT_TRUE(parse_target(print_target(*t), "host.json").ok());
}

} // namespace
} // namespace tessera::test
