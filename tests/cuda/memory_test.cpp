// Blocks, staging, streams and modules on the fake GPU.
#include "fake_driver.h"
#include "runtime/cuda/code_object.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/module.h"
#include <cstring>
#include <numeric>
#include <random>

namespace tessera {
namespace {
using namespace cuda;
using test::FakeGpu;

TEST(Blocks, GrowInTheOrderOfTheStreamAndAreEmptyAfterAnError) {
  FakeGpu gpu;
  gpu.memory = 1 << 20;
  auto context = gpu.context();
  Context::Current current(*context);
  DeviceBlock block;
  ASSERT_TRUE(block.reserve(*context, 1000, nullptr, "a test").ok());
  auto* first = block.data();
  ASSERT_TRUE(block.reserve(*context, 500, nullptr, "a test").ok());
  EXPECT_EQ(block.data(), first) << "it is kept";
  // Both would not fit: the first is given back before the second is requested.
  ASSERT_TRUE(block.reserve(*context, 900 << 10, nullptr, "a test").ok());
  ASSERT_TRUE(block.reserve(*context, 1000 << 10, nullptr, "a test").ok());
  EXPECT_EQ(context->held_bytes(), 1000 << 10);
  EXPECT_FALSE(block.reserve(*context, 2 << 20, nullptr, "a test").ok());
  EXPECT_EQ(block.data(), nullptr);
  ASSERT_TRUE(block.reserve(*context, 2000, nullptr, "a test").ok());
  block.release(*context, nullptr);
  gpu.run_all();
  EXPECT_EQ(gpu.live_bytes(), 0);
  EXPECT_EQ(context->held_bytes(), 0);
}

TEST(SharedBlocks, AreReadAfterTheirStreamAndFreedAfterAllStreams) {
  FakeGpu gpu;
  auto context = gpu.context();
  Context::Current current(*context);
  auto a = Stream::create(context).value(), b = Stream::create(context).value();
  auto block = SharedBlock::create(context, 64, a->handle(), "a test").value();
  const auto address = reinterpret_cast<CUdeviceptr>(block->data());
  const auto& driver = context->driver();
  ASSERT_EQ(driver.cuMemsetD8Async(address, 7, 64, a->handle()), CUDA_SUCCESS);
  ASSERT_TRUE(block->wait_on(a->handle()).ok()) << "nothing to wait for";
  ASSERT_TRUE(block->wait_on(b->handle()).ok());
  char seen = 0;
  ASSERT_EQ(driver.cuMemcpyDtoHAsync(&seen, address, 1, b->handle()), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuStreamSynchronize(b->handle()), CUDA_SUCCESS);
  EXPECT_EQ(seen, 7);
  ASSERT_EQ(driver.cuMemsetD8Async(address, 8, 64, b->handle()), CUDA_SUCCESS);
  block.reset();
  gpu.run_all();
  EXPECT_EQ(gpu.live_bytes(), 0);
  EXPECT_EQ(context->held_bytes(), 0);
}

TEST(SharedBlocks, ThatDoNotFitAreAnError) {
  FakeGpu gpu;
  gpu.memory = 1 << 20;
  auto block = SharedBlock::create(gpu.context(), 2 << 20, nullptr, "a test");
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.error().code, ErrorCode::OutOfMemory);
}

TEST(Copies, OfEverySizeArriveThoughTheGpuTakesItsTime) {
  auto pool = ThreadPool::create(2);
  std::mt19937 rng(1);
  for (auto* helping : {static_cast<ThreadPool*>(nullptr), pool.get()}) {
    FakeGpu gpu;
    auto context = gpu.context();
    Context::Current current(*context);
    auto stream = Stream::create(context).value();
    Staging staging(context, helping);
    std::vector<std::vector<char>> sent, received;
    std::vector<uint64_t> where;
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{65}, size_t{5000}, Staging::kSlotBytes - 1,
                         Staging::kSlotBytes, Staging::kSlotBytes + 1, 11 * Staging::kSlotBytes + 7, size_t{3}}) {
      std::vector<char> data(bytes);
      for (size_t i = 0; i < bytes; i += 1 + bytes / 1000) data[i] = static_cast<char>(rng());
      where.push_back(gpu.allocate(std::max<size_t>(bytes, 1)));
      ASSERT_TRUE(staging.upload(where.back(), data.data(), bytes, stream->handle(), "up").ok());
      sent.push_back(data);
      std::fill(data.begin(), data.end(), 'x'); // the source may change now
      received.emplace_back(bytes, 'y');
    }
    for (size_t i = 0; i < sent.size(); ++i)
      ASSERT_TRUE(staging.download(received[i].data(), where[i], received[i].size(), stream->handle(), "down").ok());
    ASSERT_TRUE(staging.wait().ok());
    EXPECT_TRUE(sent == received);
    EXPECT_LE(gpu.live_pinned(), Staging::kSlots);
  }
}

TEST(Copies, AreForgottenAfterAnErrorAndGoOn) {
  FakeGpu gpu;
  auto context = gpu.context();
  Context::Current current(*context);
  auto stream = Stream::create(context).value();
  Staging staging(context);
  auto where = gpu.allocate(100);
  std::vector<char> old(100, 'a'), fresh(100, 'b');
  ASSERT_TRUE(staging.upload(where, old.data(), 100, stream->handle(), "").ok());
  std::vector<char> never(100, 'n');
  ASSERT_TRUE(staging.download(never.data(), where, 100, stream->handle(), "").ok());
  staging.abandon();
  gpu.fail("cuMemcpyHtoDAsync", 0, CUDA_ERROR_INVALID_VALUE);
  auto failed = staging.upload(where, fresh.data(), 100, stream->handle(), "sending fresh data");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message,
            "sending fresh data: cuMemcpyHtoDAsync failed with CUDA_ERROR_INVALID_VALUE (words of the fake)");
  staging.abandon();
  gpu.fail("cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_TRUE(staging.upload(where, fresh.data(), 100, stream->handle(), "").ok()) << "its slot is there";
  ASSERT_TRUE(staging.download(old.data(), where, 100, stream->handle(), "").ok());
  ASSERT_TRUE(staging.wait().ok());
  EXPECT_EQ(old, fresh);
  EXPECT_EQ(never, std::vector<char>(100, 'n'));
}

// ---- modules
KernelLaunch launch(const std::string& symbol, int object, int64_t shared = 0, int threads = 128) {
  KernelLaunch k;
  k.name = "k_" + symbol;
  k.symbol = symbol;
  k.object = object;
  k.threads = threads;
  k.shared_bytes = shared;
  return k;
}
CodeObject object(const std::string& symbol, const std::string& ptx_arch, const std::string& cubin_arch = "") {
  CodeObject o;
  o.symbol = symbol;
  o.ptx_arch = ptx_arch;
  o.ptx = "// ptx";
  o.cubin_arch = cubin_arch;
  if (!cubin_arch.empty()) o.cubin = {'c', 'u', 'b', 'i', 'n'};
  o.assembler = "ptxas";
  return o;
}

class Modules : public ::testing::Test {
protected:
  Modules() {
    gpu.kernel("f", 1, [](const FakeGpu::Launch&) { return CUDA_SUCCESS; });
    exe->target = "cuda sm_90";
  }
  Result<CUfunction> find(const KernelLaunch& k) {
    if (!context) context = gpu.context();
    Context::Current current(*context);
    TESSERA_ASSIGN(auto loaded, LoadedExecutable::get(context, exe));
    keep = loaded;
    return loaded->function(k);
  }
  FakeGpu gpu;
  std::shared_ptr<Executable> exe = std::make_shared<Executable>();
  std::shared_ptr<Context> context;
  std::shared_ptr<LoadedExecutable> keep;
};

TEST_F(Modules, ACubinThatFitsIsTakenAndLoadedOnce) {
  exe->objects = {encode(object("f", "sm_90", "sm_90"))};
  ASSERT_TRUE(find(launch("f", 0)).ok());
  ASSERT_TRUE(find(launch("f", 0)).ok());
  EXPECT_EQ(gpu.loaded, std::vector<std::string>{"cubin"});
  EXPECT_EQ(gpu.calls["cuModuleGetFunction"], 1);
}

TEST_F(Modules, AnotherGpusCubinOrOneThatIsRefusedGivesWayToPtx) {
  exe->objects = {encode(object("f", "sm_90", "sm_100"))};
  ASSERT_TRUE(find(launch("f", 0)).ok());
  EXPECT_EQ(gpu.loaded, std::vector<std::string>{"ptx"});
  exe = std::make_shared<Executable>(*exe);
  exe->objects = {encode(object("f", "sm_90", "sm_90"))};
  gpu.cubins_refused = true;
  ASSERT_TRUE(find(launch("f", 0)).ok());
  EXPECT_EQ(gpu.loaded, (std::vector<std::string>{"ptx", "ptx"}));
}

TEST_F(Modules, CodeForAnotherGpuIsRefusedNamingBoth) {
  exe->target = "cuda sm_100";
  auto r = find(launch("f", 0));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_EQ(r.error().message, "the executable was made for 'cuda sm_100', this GPU (Fake GPU) is sm_90");
  exe->target = "cuda";
  exe->objects = {encode(object("f", "sm_90a", "sm_90a"))};
  gpu.minor = 3;
  context = nullptr;
  r = find(launch("f", 0));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message, "kernel 'f' was compiled for sm_90a, this GPU (Fake GPU) is sm_93");
}

TEST_F(Modules, WhatTheDriversCompilerSaysIsTold) {
  exe->objects = {encode(object("f", "sm_90"))};
  gpu.ptx_result = CUDA_ERROR_INVALID_PTX;
  auto r = find(launch("f", 0));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::CodegenError);
  EXPECT_NE(r.error().str().find("log of the compiler"), std::string::npos);
  gpu.ptx_result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  r = find(launch("f", 0));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::UnsupportedFeature);
  EXPECT_NE(r.error().str().find("the driver supports CUDA 13.0, which is older than the PTX"), std::string::npos);
  gpu.ptx_result = CUDA_SUCCESS;
  EXPECT_TRUE(find(launch("f", 0)).ok()) << "it is tried again";
}

TEST_F(Modules, DamageAndMissingKernelsAreCorruptFiles) {
  auto bytes = encode(object("f", "sm_90"));
  exe->objects = {bytes, encode(object("g", "sm_90"))};
  exe->objects[0][bytes.size() - 1] ^= 1;
  EXPECT_EQ(find(launch("f", 0)).error().code, ErrorCode::CorruptFile);
  auto r = find(launch("g", 1));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::CorruptFile);
  EXPECT_EQ(r.error().message, "the machine code has no kernel 'g'");
}

TEST_F(Modules, SharedMemoryAboveTheDefaultIsAskedForAndLimitsAreNamed) {
  exe->objects = {encode(object("f", "sm_90"))};
  ASSERT_TRUE(find(launch("f", 0, 48 << 10)).ok());
  EXPECT_TRUE(gpu.dynamic_shared.empty());
  ASSERT_TRUE(find(launch("f", 0, 100 << 10)).ok());
  EXPECT_EQ(gpu.dynamic_shared["f"], 100 << 10);
  ASSERT_TRUE(find(launch("f", 0, 64 << 10)).ok());
  EXPECT_EQ(gpu.dynamic_shared["f"], 100 << 10) << "it is not taken away from others";
  auto r = find(launch("f", 0, 300 << 10));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "kernel 'k_f' wants 307200 bytes of shared memory, a block of this GPU (Fake GPU) has at most 232448");
  gpu.max_threads = 512;
  exe = std::make_shared<Executable>(*exe);
  r = find(launch("f", 0, 0, 1024));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "kernel 'k_f' wants blocks of 1024 threads, this GPU (Fake GPU) runs it with at most 512");
}

TEST(Architectures, CubinsRunOnTheirGenerationPtxOnNewerOnes) {
  DeviceProperties h200{"H200", 0, 9, 0}, b200{"B200", 0, 10, 0}, ada{"L4", 0, 8, 9};
  EXPECT_TRUE(cubin_runs_on("sm_90", h200));
  EXPECT_TRUE(cubin_runs_on("sm_90a", h200));
  EXPECT_FALSE(cubin_runs_on("sm_90", b200));
  EXPECT_TRUE(cubin_runs_on("sm_86", ada));
  EXPECT_FALSE(cubin_runs_on("sm_86", h200));
  EXPECT_TRUE(ptx_runs_on("sm_90", b200));
  EXPECT_FALSE(ptx_runs_on("sm_90a", b200));
  EXPECT_FALSE(ptx_runs_on("sm_90", ada));
  EXPECT_TRUE(ptx_runs_on("sm_75", ada));
  EXPECT_FALSE(ptx_runs_on("gfx942", h200));
  EXPECT_FALSE(ptx_runs_on("sm_", h200));
  EXPECT_TRUE(check_device("cuda", h200).ok());
  EXPECT_TRUE(check_device("cuda sm_90a", h200).ok());
  EXPECT_FALSE(check_device("cuda sm_90a", b200).ok());
}

} // namespace
} // namespace tessera
