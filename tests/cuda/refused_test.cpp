// Library calls that this machine's libraries do not compute: another variant that does without them takes over, where
// there is somebody to compile it. On the fake GPU.
#include "fake_driver.h"
#include "runtime/cuda/code_object.h"
#include "tests/cuda/variable.h"
#include "tests/runtime/build_executable.h"

namespace tessera {
namespace {
using namespace test;

class RefusedCalls : public ::testing::Test {
protected:
  RefusedCalls() {
    gpu.kernel("twice", 4, [this](const FakeGpu::Launch& l) {
      auto n = static_cast<int64_t>(l.args[2]);
      const auto* x = gpu.at<float>(l.args[0], n);
      auto* y = gpu.at<float>(l.args[1], n);
      for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
      return CUDA_SUCCESS;
    });
    options.pool = ThreadPool::create(2);
    options.poison = true;
    options.gpu_context = gpu.context();
  }

  static SymExpr start(Builder& b) {
    b.exe->target = "cuda sm_90";
    return b.symbol("s");
  }
  // Two products in a row, of which no library is there.
  static std::shared_ptr<const Executable> products() {
    Builder b;
    auto s = start(b);
    auto x = b.input("x", {s, 4}), w = b.constant("w", random_tensor({4, 4}, 1)), t = b.buffer("t", {s, 4}),
         y = b.output("y", {s, 4});
    b.exe->steps.emplace_back(LibraryStep{"first product", MatmulCall{b.dense(x), b.dense(w), b.dense(t), {}}});
    b.exe->steps.emplace_back(LibraryStep{"second product", MatmulCall{b.dense(t), b.dense(w), b.dense(y), {}}});
    return b.done();
  }
  static std::shared_ptr<const Executable> loops() {
    Builder b;
    auto s = start(b);
    auto x = b.input("x", {s, 4}), y = b.output("y", {s, 4});
    cuda::CodeObject o;
    o.symbol = "twice";
    o.ptx_arch = "sm_90";
    o.ptx = "// twice";
    auto k = Builder::launch("twice", nullptr, {x}, {y}, {s * 4}, ceildiv(s * 4, 64));
    k.threads = 64;
    k.object = 0;
    b.exe->objects.push_back(cuda::encode(o));
    b.exe->steps.emplace_back(std::move(k));
    return b.done();
  }
  std::unique_ptr<Executor> executor(std::shared_ptr<const Executable> exe, CompilingSource::Compile compile = {}) {
    auto e = compile ? make_executor(std::make_shared<CompilingSource>(std::vector{exe}, std::move(compile)), options)
                     : Executor::create({exe}, options);
    EXPECT_TRUE(e.ok()) << (e.ok() ? "" : e.error().str());
    return std::move(*e);
  }
  void expect_twice(Executor& e, int64_t rows, int recompiles) {
    Tensor x = random_tensor({rows, 4}, 3);
    RunStats stats;
    auto r = e.run({{"x", x}}, &stats);
    ASSERT_TRUE(r.ok()) << r.error().str();
    for (int64_t i = 0; i < x.count(); ++i) EXPECT_EQ((*r)[0].get_f64(i), 2 * x.get_f64(i));
    EXPECT_EQ(stats.recompiles, recompiles);
    EXPECT_EQ(stats.misses.size(), static_cast<size_t>(recompiles));
  }

  FakeGpu gpu; // destroyed last
  Variable without{"TESSERA_CUDA_WITHOUT", "cuBLASLt"};
  ExecutorOptions options;
};

TEST_F(RefusedCalls, AreReplacedAllAtOnceAndForGood) {
  auto exe = products();
  std::vector<GuardMiss> requested;
  auto e = executor(exe, [&](const GuardMiss& miss) {
    requested.push_back(miss);
    return Result<std::shared_ptr<const Executable>>(loops());
  });
  expect_twice(*e, 5, 1);
  ASSERT_EQ(requested.size(), 1u);
  EXPECT_EQ(requested[0].refused, (std::vector<std::string>{"first product", "second product"}));
  EXPECT_EQ(requested[0].refused_in, exe);
  EXPECT_EQ(requested[0].sizes.at("s"), 5);
  EXPECT_NE(requested[0].reason.find("cuBLASLt is left out"), std::string::npos) << requested[0].reason;
  expect_twice(*e, 5, 0);
  expect_twice(*e, 9, 0);
  EXPECT_EQ(requested.size(), 1u);
  EXPECT_EQ(e->variants().size(), 2u);
}

TEST_F(RefusedCalls, AreAnErrorWhereNobodyCompiles) {
  auto e = executor(products());
  for (int round = 0; round < 2; ++round) {
    auto r = e->run({{"x", random_tensor({5, 4}, 3)}});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::UnsupportedFeature);
    EXPECT_NE(r.error().str().find("cuBLASLt"), std::string::npos) << r.error().str();
  }
}

TEST_F(RefusedCalls, OfTheReplacementEndInTheErrorOfTheFirst) {
  int requested = 0;
  auto e = executor(products(), [&](const GuardMiss&) {
    ++requested;
    return Result<std::shared_ptr<const Executable>>(products());
  });
  auto r = e->run({{"x", random_tensor({5, 4}, 3)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_GE(requested, 1);
  EXPECT_LE(requested, 4);
}

} // namespace
} // namespace tessera
