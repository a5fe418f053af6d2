// Variants of one executor and executables in files, on the fake GPU.
#include "executor_harness.h"
#include <filesystem>
#include <unistd.h>

namespace tessera {
namespace {
using namespace test;

TEST_F(OnGpu, VariantsOfOneExecutorAreForOneDevice) {
  Builder b;
  auto x = b.input("x", {4}), y = b.output("y", {4});
  b.kernel("twice", twice_plus, {x}, {y}, {SymExpr(1)}, 4);
  auto e = create({chain(), b.done()});
  ASSERT_FALSE(e.ok());
  EXPECT_EQ(e.error().code, ErrorCode::Usage);
}

TEST_F(OnGpu, AssumedGuardsCompileAnotherVariantThatSharesTheArena) {
  int requested = 0;
  auto b = builder();
  auto s = b.symbol("s");
  b.exe->env->add_guard({sym_eq(mod(s, 8), 0), GuardClass::Assumed, "wide accesses", {}});
  auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
  kernel(b, "twice", x, t, s);
  kernel(b, "twice", t, y, s);
  auto e = executor(b.done(), [&](const GuardMiss&) {
    ++requested;
    return Result<std::shared_ptr<const Executable>>(chain());
  });
  for (int64_t n : {8, 9, 16, 11}) {
    auto r = e->run({{"x", ramp(n)}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    EXPECT_EQ(values((*r)[0]), expected(ramp(n)));
  }
  EXPECT_EQ(requested, 1);
  EXPECT_EQ(e->variants().size(), 2u);
}

TEST_F(OnGpu, FilesKeepEverything) {
  auto b = builder();
  auto s = b.symbol("s");
  auto x = b.input("x", {s}), y = b.output("y", {s}), m = b.input("m", {s, 8}),
       w = b.constant("w", random_tensor({8, 8}, 1)), bias = b.constant("bias", ramp(8)), p = b.output("p", {s, 8});
  auto k = launch(b, "twice", x, y, s), wide = launch(b, "twice", x, y, s);
  wide.threads = 128;
  wide.shared_bytes = 50 << 10;
  wide.conditions = {{s, 8, 16, INT64_MAX}};
  wide.dependent_launch = true;
  wide.counters = s;
  wide.mailboxes = s * 2;
  wide.cooperative_blocks = 4;
  k.cluster = 2;
  wide.workspaces = {{DType::F16, s * 3}};
  k.alternatives = {wide};
  b.exe->steps.emplace_back(k);
  MatmulCall call{b.dense(m), b.dense(w), b.dense(p), std::nullopt};
  LibraryEpilogue fused;
  fused.alpha = 0.1;
  fused.bias = StridedOperand{bias, {s, 8}, {0, 1}, 0};
  fused.bias_dim = 1;
  fused.activation = LibraryEpilogue::Activation::Clip;
  fused.clip_low = 0;
  fused.clip_high = std::numeric_limits<double>::infinity();
  call.fused = fused;
  b.exe->steps.emplace_back(LibraryStep{"product", call});
  auto exe = b.done();
  auto path = std::filesystem::temp_directory_path() / ("tessera_gpu_" + std::to_string(::getpid()) + ".exe");
  ASSERT_TRUE(save_executable(*exe, path.string(), true).ok());
  // A link function is for the host's machine code: it is not called.
  auto loaded = load_executable(path.string(), [](const Executable&) -> Result<LinkedCode> {
    return Diagnostic(ErrorCode::Internal, "called to link");
  });
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  const auto& got = std::get<KernelLaunch>((*loaded)->steps[0]);
  EXPECT_EQ(got.threads, 64);
  ASSERT_EQ(got.alternatives.size(), 1u);
  EXPECT_EQ(got.alternatives[0].threads, 128);
  EXPECT_EQ(got.alternatives[0].shared_bytes, 50 << 10);
  ASSERT_EQ(got.alternatives[0].conditions.size(), 1u);
  EXPECT_EQ(got.alternatives[0].conditions[0].multiple_of, 8);
  EXPECT_EQ(got.alternatives[0].conditions[0].min, 16);
  EXPECT_EQ(got.alternatives[0].conditions[0].max, INT64_MAX);
  EXPECT_FALSE(got.dependent_launch);
  EXPECT_EQ(got.cluster, 2);
  EXPECT_EQ(got.alternatives[0].cluster, 0);
  EXPECT_TRUE(got.alternatives[0].dependent_launch);
  EXPECT_EQ(print(got.alternatives[0]), print(wide));
  const auto& epilogue = std::get<MatmulCall>(std::get<LibraryStep>((*loaded)->steps[1]).call).fused;
  ASSERT_TRUE(epilogue.has_value());
  EXPECT_EQ(epilogue->alpha, 0.1);
  EXPECT_EQ(epilogue->clip_high, std::numeric_limits<double>::infinity());
  EXPECT_EQ(epilogue->activation, LibraryEpilogue::Activation::Clip);
  ASSERT_TRUE(epilogue->bias.has_value());
  EXPECT_EQ(epilogue->bias_dim, 1);
  EXPECT_FALSE(epilogue->residual.has_value());
  // Equal objects are kept once.
  for (auto* launch :
       {+[](const Executable& e) -> const KernelLaunch& { return std::get<KernelLaunch>(e.steps[0]); },
        +[](const Executable& e) -> const KernelLaunch& { return std::get<KernelLaunch>(e.steps[0]).alternatives[0]; }})
    EXPECT_EQ((*loaded)->objects.at(static_cast<size_t>(launch(**loaded).object)),
              exe->objects.at(static_cast<size_t>(launch(*exe).object)));
  std::filesystem::remove(path);
}

TEST_F(OnGpu, ExecutablesThatContradictThemselvesAreRefused) {
  auto refused = [&](const std::function<void(KernelLaunch&)>& damage) {
    auto exe = std::make_shared<Executable>(*chain());
    auto& k = std::get<KernelLaunch>(exe->steps[0]);
    damage(k);
    auto e = create({exe});
    EXPECT_FALSE(e.ok());
    return e.ok() ? std::string() : e.error().message;
  };
  EXPECT_NE(refused([](KernelLaunch& k) { k.threads = 0; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.threads = 2000; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.object = -1; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.conditions = {{SymExpr(1), 1, 0, 1}}; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) { k.cooperative_blocks = 1; }).find("there is no other kernel"),
            std::string::npos);
  EXPECT_NE(refused([](KernelLaunch& k) { k.workspaces = {{DType::String, 1}}; }), "");
  EXPECT_NE(refused([](KernelLaunch& k) {
              k.alternatives = {k};
              k.alternatives[0].buffers[0] = k.buffers[1];
            }).find("other buffers"),
            std::string::npos);
  EXPECT_NE(refused([](KernelLaunch& k) {
              auto a = k;
              a.alternatives = {k};
              k.alternatives = {a};
            }),
            "");
  auto odd = std::make_shared<Executable>(*chain());
  odd->target = "cuda gfx942";
  auto refused_target = create({odd});
  ASSERT_FALSE(refused_target.ok());
  EXPECT_EQ(refused_target.error().message,
            "the executable was made for 'cuda gfx942': 'gfx942' is no GPU architecture");
  Builder b;
  auto x = b.input("x", {4}), y = b.output("y", {4});
  b.exe->steps.emplace_back(launch(b, "twice", x, y, 4));
  auto host = Executor::create({b.done()});
  ASSERT_FALSE(host.ok());
  EXPECT_NE(host.error().message.find("it is for a GPU, the executable is not"), std::string::npos);
}

TEST(WithoutGpu, AnExecutorSaysWhatIsMissing) {
  Builder b;
  b.exe->target = "cuda sm_90";
  auto e = Executor::create({b.done()});
  if (e.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(e.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(e.error().message.find("NVIDIA driver"), std::string::npos);
}

} // namespace
} // namespace tessera
