// The runtime on an NVIDIA GPU, with kernels in PTX that its driver compiles. Skipped, saying so, where there is none.
#include "base/file.h"
#include "base/stopwatch.h"
#include "runtime/cuda/assembler.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/constants.h"
#include "tests/runtime/build_executable.h"
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {
using namespace cuda;
using test::Builder;

// y[i] = 2 x[i] + n for i in [0, n), 64 threads a block; then `more`, with x[i] in %f1 and the address of its report
// in %d4.
std::string ptx(const std::string& symbol, const std::string& more = "") {
  return ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry " + symbol +
         "(.param .u64 x, .param .u64 y, .param .u64 n, .param .u64 error)\n{\n"
         "  .reg .pred %p<3>;\n  .reg .b32 %r<6>;\n  .reg .f32 %f<5>;\n  .reg .b64 %d<12>;\n"
         "  ld.param.u64 %d1, [x];\n  ld.param.u64 %d2, [y];\n  ld.param.u64 %d3, [n];\n  ld.param.u64 %d4, [error];\n"
         "  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ntid.x;\n  mov.u32 %r3, %tid.x;\n"
         "  mul.wide.u32 %d5, %r1, %r2;\n  cvt.u64.u32 %d6, %r3;\n  add.s64 %d5, %d5, %d6;\n"
         "  setp.ge.s64 %p1, %d5, %d3;\n  @%p1 ret;\n"
         "  shl.b64 %d7, %d5, 2;\n  add.s64 %d8, %d1, %d7;\n  add.s64 %d9, %d2, %d7;\n"
         "  ld.global.f32 %f1, [%d8];\n  cvt.rn.f32.s64 %f2, %d3;\n  fma.rn.f32 %f3, %f1, 0f40000000, %f2;\n"
         "  st.global.f32 [%d9], %f3;\n" +
         more + "  ret;\n}\n";
}
// Reports index -5 at position 7 of site 1 for each negative element.
const std::string kCheck = [] {
  std::string text = "  setp.ge.f32 %p2, %f1, 0f00000000;\n";
  const auto words = IndexReport::words(1, 7, -5);
  for (size_t w = 0; w < words.size(); ++w)
    text += "  mov.u64 %d11, " + std::to_string(words[w]) + "U;\n  @!%p2 red.global.max.u64 [%d4+" +
            std::to_string(8 * w) + "], %d11;\n";
  return text;
}();
const char* const kBreak = "  mov.u64 %d10, 64;\n  st.global.f32 [%d10], %f3;\n";

class RealGpu : public ::testing::Test {
protected:
  void SetUp() override {
    auto opened = Context::open();
    if (!opened.ok()) GTEST_SKIP() << "needs an NVIDIA GPU: " << opened.error().message;
    context = *opened;
  }
  static void kernel(Builder& b, const std::string& symbol, BufferId in, BufferId out, SymExpr n,
                     const std::string& more = "", const std::string& cubin_for = "") {
    CodeObject o;
    o.symbol = symbol;
    o.ptx_arch = "sm_75";
    o.ptx = ptx(symbol, more);
    if (!cubin_for.empty()) {
      auto cubin = Assembler::find().value()->assemble(o.ptx, cubin_for);
      ASSERT_TRUE(cubin.ok()) << cubin.error().str();
      o.cubin_arch = cubin_for;
      o.cubin = cubin->bytes;
      o.ptx = "this is not PTX";
    }
    auto k = Builder::launch(symbol, nullptr, {in}, {out}, {n}, ceildiv(n, 64));
    k.threads = 64;
    k.object = static_cast<int>(b.exe->objects.size());
    k.report_sites = {{}, {"", "x", symbol, 4, false, {8}}};
    b.exe->objects.push_back(encode(o));
    b.exe->steps.emplace_back(std::move(k));
  }
  // x -> t -> y: y = 4 x + 3 n.
  static std::shared_ptr<const Executable> chain(const std::string& more = "", const std::string& cubin_for = "") {
    Builder b;
    b.exe->target = "cuda sm_75";
    auto s = b.symbol("s");
    auto x = b.input("x", {s}), t = b.buffer("t", {s}), y = b.output("y", {s});
    kernel(b, "first", x, t, s, "", cubin_for);
    kernel(b, "second", t, y, s, more, cubin_for);
    return b.done();
  }
  static Tensor ramp(int64_t n, float from = 0) {
    Tensor t = Tensor::create(DType::F32, {n}).value();
    for (int64_t i = 0; i < n; ++i) t.mutable_as<float>()[static_cast<size_t>(i)] = from + static_cast<float>(i % 1000);
    return t;
  }
  static void expect_chain(const Tensor& x, const float* y) {
    auto n = static_cast<float>(x.count());
    int64_t wrong = 0;
    for (int64_t i = 0; i < x.count(); ++i)
      if (y[i] != 2 * (2 * x.as<float>()[static_cast<size_t>(i)] + n) + n) ++wrong;
    EXPECT_EQ(wrong, 0) << "of " << x.count();
  }
  std::shared_ptr<Context> context;
};

TEST_F(RealGpu, TellsWhatItIs) {
  const auto& p = context->properties();
  std::printf("[ device   ] %s, %s, %d multiprocessors, %.1f GiB, L2 %.1f MiB, CUDA %s\n", p.name.c_str(),
              p.arch().c_str(), p.multiprocessors, static_cast<double>(p.memory_bytes) / (1 << 30),
              static_cast<double>(p.l2_bytes) / (1 << 20), version_text(context->driver().version).c_str());
  EXPECT_GE(p.major, 7);
  EXPECT_GT(p.multiprocessors, 0);
  EXPECT_GE(p.shared_bytes_per_block, p.default_shared_bytes_per_block);
}

TEST_F(RealGpu, CopiesOfEverySizeArrive) {
  auto pool = ThreadPool::create();
  Context::Current current(*context);
  auto stream = Stream::create(context).value();
  Staging staging(context, pool.get());
  for (size_t bytes : {size_t{1}, size_t{4097}, Staging::kSlotBytes + 1, size_t{200} << 20}) {
    DeviceBlock block;
    ASSERT_TRUE(block.reserve(*context, static_cast<int64_t>(bytes), stream->handle(), "a test").ok());
    auto address = reinterpret_cast<CUdeviceptr>(block.data());
    std::vector<char> sent(bytes), received(bytes);
    for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<char>(i * 2654435761u >> 13);
    const Stopwatch upload;
    ASSERT_TRUE(staging.upload(address, sent.data(), bytes, stream->handle(), "up").ok());
    ASSERT_TRUE(staging.wait().ok());
    double up = upload.seconds();
    const Stopwatch download;
    ASSERT_TRUE(staging.download(received.data(), address, bytes, stream->handle(), "down").ok());
    ASSERT_TRUE(staging.wait().ok());
    double down = download.seconds();
    EXPECT_TRUE(sent == received) << bytes;
    if (bytes > 100 << 20)
      std::printf("[ copies   ] %.1f GB/s to the GPU, %.1f GB/s back\n", static_cast<double>(bytes) / up * 1e-9,
                  static_cast<double>(bytes) / down * 1e-9);
    block.release(*context, stream->handle());
  }
}

TEST_F(RealGpu, KernelsRunFromPtxForEveryShape) {
  ExecutorOptions options;
  options.poison = true;
  auto e = Executor::create({chain()}, options);
  ASSERT_TRUE(e.ok()) << e.error().str();
  for (int64_t n : {1, 63, 100000, 0, 64, 5000000, 100000}) {
    auto x = ramp(n);
    auto r = (*e)->run({{"x", x}});
    ASSERT_TRUE(r.ok()) << r.error().str();
    expect_chain(x, (*r)[0].as<float>().data());
  }
}

TEST_F(RealGpu, KernelsRunFromCubins) {
  if (auto a = Assembler::find(); !a.ok()) GTEST_SKIP() << a.error().message;
  auto e = Executor::create({chain("", context->properties().arch())});
  ASSERT_TRUE(e.ok()) << e.error().str();
  auto x = ramp(1000);
  auto r = (*e)->run({{"x", x}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  expect_chain(x, (*r)[0].as<float>().data());
}

TEST_F(RealGpu, PtxThatIsNoneIsAnErrorWithTheCompilersLog) {
  auto e = Executor::create({chain("  no.such.instruction;\n")});
  ASSERT_TRUE(e.ok()) << e.error().str();
  auto r = (*e)->run({{"x", ramp(10)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::CodegenError);
  EXPECT_NE(r.error().str().find("ptxas"), std::string::npos) << r.error().str();
}

TEST_F(RealGpu, MoreMemoryThanThereIsIsSurvived) {
  Builder b;
  b.exe->target = "cuda sm_75";
  auto s = b.symbol("s"), huge = b.symbol("h");
  auto x = b.input("x", {s}), rows = b.input("rows", {huge}), t = b.buffer("t", {huge * (1 << 28), s}),
       y = b.output("y", {s});
  (void)rows;
  kernel(b, "first", x, t, s);
  kernel(b, "second", t, y, s);
  auto e = Executor::create({b.done()}).value();
  auto run = [&](int64_t gigabytes) {
    return e->run({{"x", ramp(1)}, {"rows", Tensor::create(DType::F32, {gigabytes}, true).value()}});
  };
  ASSERT_TRUE(run(1).ok());
  auto r = run(4000); // a GiB each
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::OutOfMemory);
  EXPECT_NE(r.error().message.find("bytes are free"), std::string::npos) << r.error().message;
  r = run(2);
  ASSERT_TRUE(r.ok()) << r.error().str();
}

TEST_F(RealGpu, MemoryThatOthersHoldIsToldAndMissedNoLonger) {
  auto e = Executor::create({chain()}).value();
  auto small = ramp(1000), large = ramp(100 << 20);
  ASSERT_TRUE(e->run({{"x", small}}).ok());
  std::vector<CUdeviceptr> held;
  auto let_go = [&] {
    Context::Current current(*context);
    for (auto address : held) context->driver().cuMemFree(address);
    held.clear();
  };
  {
    Context::Current current(*context);
    CUdeviceptr address = 0;
    for (size_t bytes = size_t{64} << 30; bytes >= size_t{2} << 20; bytes /= 2)
      while (context->driver().cuMemAlloc(&address, bytes) == CUDA_SUCCESS) held.push_back(address);
  }
  auto r = e->run({{"x", large}});
  if (r.ok()) {
    let_go();
    FAIL() << "there was room for 1.2 GB";
  }
  std::printf("[ memory   ] %s\n", r.error().message.c_str());
  EXPECT_EQ(r.error().code, ErrorCode::OutOfMemory);
  EXPECT_NE(r.error().message.find("cannot allocate 419430400 bytes of GPU memory"), std::string::npos);
  EXPECT_NE(r.error().message.find("bytes are free"), std::string::npos);
  r = e->run({{"x", small}}); // what it has is enough
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().str());
  let_go();
  r = e->run({{"x", large}});
  ASSERT_TRUE(r.ok()) << r.error().str();
  expect_chain(large, (*r)[0].as<float>().data());
}

TEST_F(RealGpu, ViolationsAreTheInputsFault) {
  auto e = Executor::create({chain(kCheck)}).value();
  EXPECT_TRUE(e->run({{"x", ramp(500)}}).ok());
  auto r = e->run({{"x", ramp(500, -2000)}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::BadInput);
  EXPECT_TRUE(r.error().message.starts_with("index -5 at [7] of 'x' is out of range [0, 4)")) << r.error().message;
  EXPECT_TRUE(e->run({{"x", ramp(500)}}).ok());
}

TEST_F(RealGpu, CallsOnTheDeviceOfTheCaller) {
  auto e = Executor::create({chain(kCheck)}).value();
  Context::Current current(*context);
  auto stream = Stream::create(context).value(), other = Stream::create(context).value();
  constexpr int64_t n = 300000;
  DeviceBlock x, y;
  ASSERT_TRUE(x.reserve(*context, n * 4 + 64, stream->handle(), "x").ok());
  ASSERT_TRUE(y.reserve(*context, n * 4 + 64, stream->handle(), "y").ok());
  Staging staging(context);
  for (int64_t shift : {0, 4}) { // bytes: misaligned memory is copied
    auto in = ramp(n, static_cast<float>(shift));
    std::vector<float> out(n);
    auto address = [&](const DeviceBlock& block) { return reinterpret_cast<CUdeviceptr>(block.data() + shift); };
    ASSERT_TRUE(staging.upload(address(x), in.data(), in.bytes(), stream->handle(), "").ok());
    ASSERT_TRUE(staging.wait().ok());
    DeviceTensor given[] = {{DType::F32, {n}, y.data() + shift}};
    for (auto* s : {stream.get(), other.get(), stream.get()}) {
      auto status = e->run_on_device({{"x", {DType::F32, {n}, x.data() + shift}}}, given, s->handle());
      ASSERT_TRUE(status.ok()) << status.error().str();
    }
    ASSERT_TRUE(e->wait().ok());
    ASSERT_TRUE(staging.download(out.data(), address(y), in.bytes(), stream->handle(), "").ok());
    ASSERT_TRUE(staging.wait().ok());
    expect_chain(in, out.data());
  }
  auto bad = ramp(n, -1000000); // t = 2 x + n is negative, too
  ASSERT_TRUE(
      staging.upload(reinterpret_cast<CUdeviceptr>(x.data()), bad.data(), bad.bytes(), stream->handle(), "").ok());
  ASSERT_TRUE(staging.wait().ok());
  DeviceTensor given[] = {{DType::F32, {n}, y.data()}};
  ASSERT_TRUE(e->run_on_device({{"x", {DType::F32, {n}, x.data()}}}, given, stream->handle()).ok());
  auto told = e->wait();
  ASSERT_FALSE(told.ok());
  EXPECT_TRUE(told.error().message.starts_with("index -5 at [7] of 'x' is out of range [0, 4)"))
      << told.error().message;
  x.release(*context, stream->handle());
  y.release(*context, stream->handle());
}

TEST_F(RealGpu, ProductsAreFollowedByTheirEpilogueKernel) {
  for (bool fused : {false, true}) {
    Builder b;
    b.exe->target = "cuda sm_75";
    auto s = b.symbol("s"), m0 = b.symbol("m0"), n0 = b.symbol("n0"), m = b.symbol("m"), n = b.symbol("n");
    auto a = b.input("a", {s, 48}), w = b.constant("w", test::random_tensor({48, 40}, 2)),
         bias = b.constant("bias", test::random_tensor({40}, 3)), c = b.output("c", {s, 40});
    kernel(b, "twice", c, c, m * n); // c = 2 c + elements
    EpilogueKernel epilogue{std::get<KernelLaunch>(b.exe->steps.back()), {m0, n0}, {m, n}};
    b.exe->steps.clear();
    MatmulCall call{b.dense(a), b.dense(w), b.dense(c), std::nullopt};
    if (fused) {
      call.fused.emplace();
      call.fused->bias = StridedOperand{bias, {s, 40}, {0, 1}, 0};
      call.fused->bias_dim = 1;
    } else {
      call.epilogue = epilogue;
    }
    b.exe->steps.emplace_back(LibraryStep{"product", call});
    auto exe = b.done();
    auto e = Executor::create({exe}).value();
    for (int64_t rows : {64, 1, 7}) {
      auto x = test::random_tensor({rows, 48}, 5);
      auto r = e->run({{"a", x}});
      if (!r.ok() && r.error().code == ErrorCode::UnsupportedFeature) GTEST_SKIP() << r.error().str();
      ASSERT_TRUE(r.ok()) << r.error().str();
      Tensor want = Tensor::create(DType::F32, {rows, 40}).value();
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < 40; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < 48; ++k) sum += x.get_f64(i * 48 + k) * exe->constants[0].value.get_f64(k * 40 + j);
          want.set_f64(i * 40 + j,
                       fused ? sum + exe->constants[1].value.get_f64(j) : 2 * sum + static_cast<double>(rows * 40));
        }
      auto same = compare((*r)[0], want, 1e-2, 1e-2);
      EXPECT_TRUE(same.same) << same.message;
    }
  }
}

TEST_F(RealGpu, LongChainsOfLaunchesRun) {
  Builder b;
  b.exe->target = "cuda sm_75";
  constexpr int kKernels = 500;
  BufferId last = b.input("x", {64});
  for (int i = 0; i < kKernels; ++i) {
    auto next = i + 1 < kKernels ? b.buffer("t" + std::to_string(i), {64}) : b.output("y", {64});
    kernel(b, "k", last, next, 64);
    last = next;
  }
  auto e = Executor::create({b.done()}).value();
  Context::Current current(*context);
  auto stream = Stream::create(context).value();
  DeviceBlock block;
  ASSERT_TRUE(block.reserve(*context, 1024, stream->handle(), "x and y").ok());
  DeviceTensor given[] = {{DType::F32, {64}, block.data() + 512}};
  std::map<std::string, DeviceTensor> in{{"x", {DType::F32, {64}, block.data()}}};
  double best = 1e9, total = 1e9;
  for (int round = 0; round < 20; ++round) {
    const Stopwatch watch;
    ASSERT_TRUE(e->run_on_device(in, given, stream->handle()).ok());
    best = std::min(best, watch.seconds() / kKernels);
    ASSERT_TRUE(e->wait().ok());
    total = std::min(total, watch.seconds() / kKernels);
  }
  std::printf("[ launches ] %.2f us each on the host, %.2f us until done\n", best * 1e6, total * 1e6);
  block.release(*context, stream->handle());
}

TEST_F(RealGpu, MappedWeightsGoToTheGpuOnceForTwoThreads) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  auto path = std::filesystem::temp_directory_path() / ("tessera_weights_" + std::to_string(::getpid()));
  {
    std::ofstream f(path, std::ios::binary);
    std::vector<float> piece(1 << 20);
    for (size_t i = 0; i < piece.size(); ++i) piece[i] = static_cast<float>(i % 777);
    for (int64_t at = 0; at < kBytes; at += static_cast<int64_t>(piece.size() * 4))
      f.write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size() * 4));
  }
  auto mapped = map_file(path.string()).value();
  Builder b;
  b.exe->target = "cuda sm_75";
  constexpr int64_t n = kBytes / 4;
  auto w = b.constant("w", Tensor::view(DType::F32, {n}, mapped)), y = b.output("y", {n});
  kernel(b, "k", w, y, n);
  auto exe = b.done();
  auto before = context->held_bytes();
  const Stopwatch watch;
  std::vector<std::thread> threads;
  std::atomic<int64_t> wrong{0};
  std::vector<std::unique_ptr<Executor>> executors;
  for (int i = 0; i < 2; ++i) executors.push_back(Executor::create({exe}).value());
  for (auto& e : executors)
    threads.emplace_back([&wrong, executor = e.get()] {
      auto r = executor->run({});
      if (!r.ok()) {
        ++wrong;
        return;
      }
      auto v = (*r)[0].as<float>();
      for (size_t i = 0; i < v.size(); ++i)
        if (v[i] != 2 * static_cast<float>(i % (1 << 20) % 777) + static_cast<float>(n)) ++wrong;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
  std::printf("[ weights  ] two executors of 512 MiB ready and run in %.2f s\n", watch.seconds());
  EXPECT_LT(context->held_bytes() - before, 3 * kBytes + (1 << 20)) << "weights once, outputs twice";
  executors.clear();
  EXPECT_EQ(context->held_bytes(), before);
  std::filesystem::remove(path);
}

TEST_F(RealGpu, ProfilesTellTimesOfSteps) {
  ExecutorOptions options;
  options.profile = true;
  auto e = Executor::create({chain()}, options).value();
  RunStats stats;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(e->run({{"x", ramp(50000000)}}, &stats).ok());
  ASSERT_EQ(stats.steps.size(), 2u);
  for (const auto& s : stats.steps) {
    std::printf("[ profile  ] %s: %.3f ms, %.0f GB/s\n", s.name.c_str(), s.ms,
                static_cast<double>(s.bytes) / s.ms * 1e-6);
    EXPECT_GT(s.ms, 0.01);
  }
}

// In processes of their own: such an error ends the GPU's use for the whole process.
class RealGpuDeathTest : public RealGpu {};
TEST_F(RealGpuDeathTest, ABrokenKernelIsToldAndTheDeviceIsLost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (bool synchronize : {false, true}) {
    auto body = [&] {
      ExecutorOptions options;
      options.synchronize_launches = synchronize;
      auto e = Executor::create({chain(kBreak)}, options).value();
      auto first = e->run({{"x", ramp(10)}});
      auto second = e->run({{"x", ramp(10)}});
      if (first.ok() || second.ok()) std::exit(2);
      std::fprintf(stderr, "%s%s", first.error().str().c_str(), second.error().str().c_str());
      std::exit(0);
    };
    EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), synchronize ? "step 'second'" : "one of the 2 steps");
    EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "the GPU is lost to this process by an earlier error");
  }
}

} // namespace
} // namespace tessera
