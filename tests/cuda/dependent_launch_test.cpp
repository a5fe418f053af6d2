// Programmatic dependent launch: which kernels may start before the one before them has ended, and what happens where
// the driver has no such launch.
#include "executor_harness.h"
#include "runtime/cuda/cudnn.h"
#include "variable.h"

namespace tessera {
namespace {
using namespace test;

class DependentLaunch : public OnGpu {
protected:
  DependentLaunch() {
    // y[i] = x[i] + 1 for i in [0, n). "older": code that does not wait itself.
    for (const char* name : {"more", "older", "gang", "alone"})
      gpu.kernel(name, std::string(name) == "gang" ? 5 : 4, [this, name](const FakeGpu::Launch& l) {
        auto n = static_cast<int64_t>(l.args[std::string(name) == "gang" ? 3 : 2]);
        const auto* x = gpu.at<float>(l.args[0], n);
        auto* y = gpu.at<float>(l.args[1], n);
        for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
        return CUDA_SUCCESS;
      });
    options.poison = false;
    options.wait_for_plans = true; // the second call records
    options.gpu_context = gpu.context();
    Context::Current current(*options.gpu_context);
    auto pools = [this](cuda::Context&) -> Result<std::shared_ptr<void>> { return std::shared_ptr<void>(pooling()); };
    EXPECT_TRUE(options.gpu_context->attachment("cuDNN", pools).ok());
  }
  using Context = cuda::Context;

  // A cuDNN that takes every pooling and does nothing.
  static std::shared_ptr<cuda::Cudnn> pooling() {
    auto t = std::make_shared<cuda::Cudnn>();
    t->version = 91900;
    t->handle = reinterpret_cast<cudnnHandle_t>(t.get());
    t->cudnnDestroy = [](cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnSetStream = [](cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnCreateTensorDescriptor = [](cudnnTensorDescriptor_t*) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnDestroyTensorDescriptor = [](cudnnTensorDescriptor_t) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnSetTensorNdDescriptor = [](cudnnTensorDescriptor_t, cudnnDataType_t, int, const int*, const int*) {
      return CUDNN_STATUS_SUCCESS;
    };
    t->cudnnCreatePoolingDescriptor = [](cudnnPoolingDescriptor_t*) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnDestroyPoolingDescriptor = [](cudnnPoolingDescriptor_t) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnSetPoolingNdDescriptor = [](cudnnPoolingDescriptor_t, cudnnPoolingMode_t, cudnnNanPropagation_t, int,
                                        const int*, const int*, const int*) { return CUDNN_STATUS_SUCCESS; };
    t->cudnnPoolingForward = [](cudnnHandle_t, cudnnPoolingDescriptor_t, const void*, cudnnTensorDescriptor_t,
                                const void*, const void*, cudnnTensorDescriptor_t,
                                void*) { return CUDNN_STATUS_SUCCESS; };
    return t;
  }

  // Steps by letter, y = x + their number without the pooling and copies:
  //   m  a kernel that waits itself      o  one that does not       p  pooling by the library
  //   c  a copy                          h  a host step             g  blocks that wait for each other
  //   l  as m, in clusters of blocks
  std::unique_ptr<Executor> executor(const std::string& steps) {
    auto b = builder();
    auto s = b.symbol("s");
    auto from = b.input("x", {s});
    auto pooled = b.buffer("pooled", {1, 1, 4}),
         window = b.constant("window", Tensor::create(DType::F32, {1, 1, 4}, true).value());
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string number = std::to_string(i);
      if (steps[i] == 'p') {
        PoolCall pool;
        pool.x = b.dense(window);
        pool.y = b.dense(pooled);
        pool.kernel = pool.strides = pool.dilations = {1};
        pool.pads_begin = pool.pads_end = {0};
        b.exe->steps.emplace_back(LibraryStep{"pool " + number, pool});
        continue;
      }
      auto to = i + 1 < steps.size() ? b.buffer("t" + number, {s}) : b.output("y", {s});
      if (steps[i] == 'c') {
        b.exe->steps.emplace_back(CopyStep{"copy " + number, from, to, s * 8});
      } else if (steps[i] == 'h') {
        HostStep h;
        h.name = h.op = "same";
        h.inputs = {from};
        h.outputs = {to};
        h.run = [](const std::vector<Tensor>& in, const std::unordered_map<uint64_t, int64_t>&) {
          return Result<std::vector<Tensor>>(in);
        };
        b.exe->steps.emplace_back(h);
      } else {
        auto k = kernel(b,
                        steps[i] == 'm' || steps[i] == 'l' ? "more"
                        : steps[i] == 'o'                  ? "older"
                                                           : "alone",
                        from, to, s);
        if (steps[i] == 'l') k.cluster = 2;
        if (steps[i] == 'g') {
          auto gang = kernel(b, "gang", from, to, s);
          gang.counters = 1;
          gang.cooperative_blocks = 8;
          k.alternatives = {gang};
        }
        b.exe->steps.emplace_back(k);
      }
      from = to;
    }
    return OnGpu::executor(b.done());
  }
  KernelLaunch kernel(Builder& b, const std::string& symbol, BufferId from, BufferId to, const SymExpr& n) {
    auto k = launch(b, symbol, from, to, n);
    k.dependent_launch = symbol != "older";
    return k;
  }
  // The launches of a run by letter: d dependent, c cooperative, - neither.
  std::string run(Executor& e, int64_t n, float more, RunStats* stats = nullptr) {
    gpu.launches.clear();
    auto r = e.run({{"x", ramp(n)}}, stats);
    EXPECT_TRUE(r.ok()) << r.error().str();
    if (r.ok()) {
      EXPECT_EQ(values((*r)[0]), values(ramp(n, more)));
    }
    std::string letters;
    for (const auto& l : gpu.launches) letters += l.cooperative ? 'c' : l.dependent ? 'd' : '-';
    return letters;
  }
};

constexpr int64_t kAtOnce = 132 * 64; // elements whose blocks all run at once

TEST_F(DependentLaunch, KernelsRightBehindAnotherOne) {
  for (auto [steps, launches] : std::vector<std::pair<std::string, std::string>>{{"mmm", "-dd"},
                                                                                 {"mpm", "-d"},
                                                                                 {"pm", "d"},
                                                                                 {"mcmm", "--d"},
                                                                                 {"mmhmm", "-d-d"},
                                                                                 {"mommo", "--dd-"},
                                                                                 {"mgmm", "-cdd"}}) {
    auto e = executor(steps);
    EXPECT_EQ(run(*e, kAtOnce, static_cast<float>(launches.size())), launches) << steps;
  }
}

TEST_F(DependentLaunch, NotBehindAKernelThatIsAloneOnTheDevice) {
  auto e = executor("mgmm");
  EXPECT_EQ(run(*e, kAtOnce + 1, 4), "---d") << "an event lies behind it";
}

TEST_F(DependentLaunch, NotAroundStepsThatLaunchNothing) {
  auto e = executor("mmm");
  EXPECT_EQ(run(*e, 0, 3), "");
}

TEST_F(DependentLaunch, RecordedOnesToo) {
  auto e = executor("mmpmcmgm");
  const std::string launches = "-dd-cd";
  for (int round = 0; round < 3; ++round) EXPECT_EQ(run(*e, kAtOnce, 6), launches) << round;
  EXPECT_EQ(gpu.calls["cuGraphLaunch"], 2);
}

TEST_F(DependentLaunch, NotWhereEachStepIsTimed) {
  options.profile = true;
  auto e = executor("mmm");
  RunStats stats;
  EXPECT_EQ(run(*e, 64, 3, &stats), "---");
  EXPECT_EQ(run(*e, 64, 3), "-dd") << "who gives no statistics gets no profile";
}

TEST_F(DependentLaunch, AVariableTurnsItOff) {
  const Variable off("TESSERA_CUDA_DEPENDENT_LAUNCH", "0");
  EXPECT_EQ(run(*executor("mmm"), 64, 3), "---");
}

TEST_F(DependentLaunch, PlainLaunchesWhereTheDriverHasNone) {
  for (auto result : {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE}) {
    gpu.fail("cuLaunchKernelEx", 0, result, 1000);
    auto e = executor("mmmmmmm");
    gpu.calls.clear();
    for (int round = 0; round < 3; ++round) EXPECT_EQ(run(*e, 64, 7), "-------") << round;
    EXPECT_EQ(gpu.calls["cuGraphLaunch"], 2);
  }
}

// Blocks in clusters, with a dependent launch and without, launched and replayed; a cluster is not given up.
TEST_F(DependentLaunch, ClustersOfBlocks) {
  const auto clusters = [&] {
    std::string letters;
    for (const auto& l : gpu.launches) letters += l.cluster == 1 ? '-' : static_cast<char>('0' + l.cluster);
    return letters;
  };
  for (const bool refused : {false, true}) {
    if (refused) gpu.fail("cuLaunchKernelEx", 1, CUDA_ERROR_NOT_SUPPORTED); // the dependent launch of the second one
    auto e = executor("llmml");
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(run(*e, 128, 5), refused && round == 0 ? "--ddd" : "-dddd") << round;
      EXPECT_EQ(clusters(), "22--2") << round;
    }
  }
}

TEST_F(DependentLaunch, GridsThatAreNoWholeClusters) {
  auto e = executor("l");
  auto r = e->run({{"x", ramp(129)}});
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("3 blocks, which is no multiple of its clusters of 2"), std::string::npos)
      << r.error().message;
  gpu.fail("cuLaunchKernelEx", 0, CUDA_ERROR_INVALID_VALUE);
  r = e->run({{"x", ramp(128)}});
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("cuLaunchKernelEx failed with CUDA_ERROR_INVALID_VALUE"), std::string::npos)
      << r.error().message;
}

TEST_F(DependentLaunch, AnotherErrorIsTold) {
  auto e = executor("mmm");
  gpu.fail("cuLaunchKernelEx", 0, CUDA_ERROR_ILLEGAL_ADDRESS);
  auto r = e->run({{"x", ramp(64)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, "launching kernel 'the kernel more': cuLaunchKernelEx failed with "
                               "CUDA_ERROR_ILLEGAL_ADDRESS (words of the fake)");
}

} // namespace
} // namespace tessera
