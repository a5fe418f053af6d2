// Loop nests to code objects: what is shared, what the cache keeps, what is said where nothing assembles.
#include "../schedule/block_harness.h"
#include "../schedule/nests.h"
#include "codegen/device/cuda/gpu_kernels.h"
#include "codegen/target/select.h"
#include "machine_code.h"
#include "tests/base/share.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

constexpr int kFewSpilled = 16; // bytes of a thread, which cost less than a block less

Target h200() { return shipped_target("h200"); }

class CompileGpuKernels : public ::testing::Test {
protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("tessera-gpu-kernels-" + std::to_string(::getpid()))).string();
    fs::remove_all(folder_);
    auto found = cuda::Assembler::find();
    ASSERT_TRUE(found.ok()) << found.error().str(); // the toolkit is there where this is built
    gpu_.assembler = *found;
    options_.cache_dir = folder_;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // One schedule for every nest.
  class First final : public TunedSchedules {
  public:
    explicit First(const Schedule& s) : schedule_(s) {}
    std::vector<TunedSchedule> find(const Hash128&) const override {
      return {{schedule_, std::vector<ExtentRange>(2), "fixed"}};
    }

  private:
    Schedule schedule_;
  };

  Result<DeviceCode> compile(const Problem& p, std::vector<std::string> names = {"kernel"},
                             const TunedSchedules* tuned = nullptr) {
    std::vector<KernelRequest> requests;
    for (const auto& n : names) requests.push_back({n, &p.nest, {}, tuned});
    Cache cache(folder_, true);
    TESSERA_ASSIGN(auto target, GpuTarget::parse(arch_));
    return compile_gpu_kernels(p.graph, requests, h200(), target, cache, options_, gpu_);
  }
  std::vector<cuda::CodeObject> decoded(const DeviceCode& k) {
    std::vector<cuda::CodeObject> out;
    for (const auto& bytes : k.objects) {
      auto o = cuda::decode(bytes);
      EXPECT_TRUE(o.ok()) << o.error().str();
      out.push_back(std::move(*o));
    }
    return out;
  }
  int entries() const {
    int n = 0;
    for (const auto& e : fs::recursive_directory_iterator(folder_)) n += e.path().extension() == ".tsc";
    return n;
  }

  std::string folder_, arch_ = "sm_90";
  CompileOptions options_;
  GpuKernelOptions gpu_;
};

int instructions(const std::vector<char>& cubin, uint64_t opcode) {
  int found = 0;
  each_opcode(cubin, [&](uint64_t other) { found += other == opcode; });
  return found;
}

// Assemblers of CUDA 12.9 and 13.0 lose registers of copies that carry a hint and have a uniform place: such code
// traps.
TEST_F(CompileGpuKernels, CopiesWithHintsHaveTheirRegisters) {
  constexpr uint64_t kCopy = 0xfae, kUniformCopy = 0xdae;
  int tried = 0;
  for (const Problem& p : {softmax_of("8192", "1024", "bf16"), norm_of("8192", "4096", "bf16"),
                           softmax_of("2048", "32768", "bf16"), softmax_of("16", "1048576")}) {
    int n = 0;
    auto take = [&](const Schedule& s) {
      return (s.residency.async_copy || s.traversal.rows_in_flight > 1) &&
             s.access.load_hint != tile::Caching::Normal && n++ % 40 == 0 && n < 100;
    };
    each_kernel({p, {}}, h200(), take, [&](const Legal&, const ScheduledKernel& k) {
      First first(k.schedule);
      auto made = compile(p, {"kernel"}, &first);
      ASSERT_TRUE(made.ok()) << made.error().str();
      const auto object = decoded(*made).at(static_cast<size_t>(made->kernels[0].scheduled[0].object));
      if (object.ptx.find("L2::cache_hint [place]") == std::string::npos) return;
      ++tried;
      EXPECT_GE(instructions(object.cubin, kCopy), 1) << object.ptx.substr(0, 200);
      EXPECT_EQ(instructions(object.cubin, kUniformCopy), 0);
    });
  }
  EXPECT_GE(tried, 4);
}

TEST_F(CompileGpuKernels, YieldPtxAndCubinForEveryAlternative) {
  Problem p = softmax("f16");
  auto made = compile(p);
  ASSERT_TRUE(made.ok()) << made.error().str();
  EXPECT_TRUE(made->warnings.empty()) << made->warnings[0];
  ASSERT_EQ(made->kernels.size(), 1u);
  const auto& variants = made->kernels[0].scheduled;
  ASSERT_GE(variants.size(), 2u); // rows that fit in registers, and any
  auto objects = decoded(*made);
  EXPECT_EQ(objects.size(), variants.size());
  const KernelReport& report = made->kernels[0].report; // names each of them, the one for every size last
  ASSERT_EQ(report.alternatives.size() + 1, variants.size());
  for (size_t i = 0; i < report.alternatives.size(); ++i) {
    EXPECT_EQ(report.alternatives[i].why, variants[i].why);
    EXPECT_EQ(report.alternatives[i].when.substr(0, 3), "if ");
  }
  EXPECT_EQ(report.why, variants.back().why);
  for (const auto& v : variants) {
    const auto& o = objects.at(static_cast<size_t>(v.object));
    EXPECT_EQ(o.symbol, v.symbol);
    EXPECT_NE(o.ptx.find(".entry " + v.symbol + "("), std::string::npos);
    EXPECT_EQ(o.ptx_arch, "sm_90");
    EXPECT_EQ(o.cubin_arch, "sm_90");
    EXPECT_EQ(o.assembler, gpu_.assembler->version());
    EXPECT_EQ(std::string(o.cubin.begin() + 1, o.cubin.begin() + 4), "ELF");
    EXPECT_EQ(o.threads, v.threads);
    EXPECT_EQ(v.threads, 32 * v.kernel.config.at("warps"));
    EXPECT_EQ(o.shared_bytes, v.shared_bytes);
    EXPECT_GT(o.registers, 0);
    EXPECT_GE(o.spill_bytes, 0); // reported, whichever assembler it was
  }
  EXPECT_TRUE(variants.back().conditions.empty());
  EXPECT_FALSE(variants.front().conditions.empty());
  EXPECT_GT(made->kernels[0].report.registers, 0);
  EXPECT_LE(made->kernels[0].report.spill_bytes, kFewSpilled);

  // The kernel as a launch names its values as arguments.
  std::vector<ValueId> requested;
  auto launch = made->kernels[0].launch("softmax", [&](ValueId v) {
    requested.push_back(v);
    return static_cast<BufferId>(v.index);
  });
  EXPECT_EQ(launch.symbol, variants.back().symbol);
  EXPECT_TRUE(launch.conditions.empty());
  ASSERT_EQ(launch.alternatives.size(), variants.size() - 1);
  for (size_t i = 0; i < launch.alternatives.size(); ++i) {
    const auto& a = launch.alternatives[i];
    EXPECT_EQ(a.symbol, variants[i].symbol);
    EXPECT_EQ(a.conditions.size(), variants[i].conditions.size());
    EXPECT_EQ(a.buffers, launch.buffers);
    EXPECT_EQ(a.written, launch.written);
    EXPECT_EQ(a.threads, variants[i].threads);
    EXPECT_TRUE(a.alternatives.empty());
  }
}

TEST_F(CompileGpuKernels, EqualTextsAreCompiledOnceAndKept) {
  Problem p = bias_gelu();
  auto made = compile(p, {"layer0", "layer1", "layer2"});
  ASSERT_TRUE(made.ok()) << made.error().str();
  size_t variants = made->kernels[0].scheduled.size();
  EXPECT_EQ(made->objects.size(), variants);
  EXPECT_EQ(made->misses, static_cast<int>(variants));
  EXPECT_EQ(made->hits, 0);
  ASSERT_EQ(made->kernels.size(), 3u);
  EXPECT_EQ(made->kernels[1].report.name, "layer1");
  for (const auto& k : made->kernels) EXPECT_EQ(k.scheduled[0].object, made->kernels[0].scheduled[0].object);
  EXPECT_EQ(entries(), static_cast<int>(variants));

  auto again = compile(p, {"another"});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->hits, static_cast<int>(variants));
  EXPECT_EQ(again->misses, 0);
  EXPECT_TRUE(again->kernels[0].report.from_cache);
  EXPECT_EQ(again->objects, made->objects); // byte for byte

  // A damaged entry is made anew.
  for (const auto& e : fs::recursive_directory_iterator(folder_))
    if (e.is_regular_file()) std::ofstream(e.path(), std::ios::binary) << "no object";
  auto repaired = compile(p);
  ASSERT_TRUE(repaired.ok());
  EXPECT_EQ(repaired->misses, static_cast<int>(variants));
  EXPECT_EQ(repaired->objects, made->objects);
}

TEST_F(CompileGpuKernels, TargetsAndAssemblersHaveEntriesOfTheirOwn) {
  Problem p = bias_gelu();
  auto portable = compile(p);
  ASSERT_TRUE(portable.ok()) << portable.error().str();
  auto assembler = gpu_.assembler;
  gpu_.assembler = nullptr;
  auto ptx = compile(p);
  ASSERT_TRUE(ptx.ok());
  EXPECT_EQ(ptx->hits, 0);
  for (const auto& o : decoded(*ptx)) {
    EXPECT_TRUE(o.cubin.empty());
    EXPECT_TRUE(o.cubin_arch.empty());
    EXPECT_EQ(o.registers, -1);
    EXPECT_GT(o.ptx.size(), 100u);
  }
  EXPECT_EQ(ptx->kernels[0].report.registers, -1);
  gpu_.assembler = assembler;
  arch_ = "sm_90a";
  auto hopper = compile(p);
  ASSERT_TRUE(hopper.ok()) << hopper.error().str();
  EXPECT_EQ(hopper->hits, 0);
  EXPECT_EQ(decoded(*hopper)[0].cubin_arch, "sm_90a");
  EXPECT_NE(decoded(*hopper)[0].ptx.find(".target sm_90a"), std::string::npos);
  // PTX of an older target, machine code for a newer GPU.
  arch_ = "sm_90";
  gpu_.assemble_for = "sm_100";
  auto newer = compile(p);
  ASSERT_TRUE(newer.ok()) << newer.error().str();
  EXPECT_EQ(newer->hits, 0);
  EXPECT_EQ(decoded(*newer)[0].ptx_arch, "sm_90");
  EXPECT_EQ(decoded(*newer)[0].cubin_arch, "sm_100");
  EXPECT_EQ(decoded(*newer)[0].cubin.empty(), false);
}

// An assembler that is too old for the PTX.
class Refusing : public cuda::Assembler {
public:
  Kind kind() const override { return Kind::Ptxas; }
  std::string version() const override { return "ptxas 1.0"; }
  Result<cuda::Cubin> assemble(const std::string&, const std::string&) const override {
    return Diagnostic(ErrorCode::CodegenError, "ptxas 1.0 refuses a kernel: unsupported .version");
  }
};

TEST_F(CompileGpuKernels, WhatIsNotAssembledIsLeftToTheDriverAndSaid) {
  gpu_.assembler = std::make_shared<Refusing>();
  Problem p = bias_gelu();
  for (int round = 0; round < 2; ++round) { // nothing is kept: the next time it may work
    auto made = compile(p, {"gelu"});
    ASSERT_TRUE(made.ok()) << made.error().str();
    EXPECT_EQ(made->hits, 0);
    ASSERT_EQ(made->warnings.size(), made->objects.size());
    EXPECT_NE(made->warnings[0].find("unsupported .version"), std::string::npos);
    EXPECT_NE(made->warnings[0].find("the driver assembles kernel gelu"), std::string::npos);
    EXPECT_TRUE(decoded(*made)[0].cubin.empty());
    EXPECT_GT(decoded(*made)[0].ptx.size(), 100u);
  }
}

TEST_F(CompileGpuKernels, TextsAreThereWhenAskedFor) {
  Problem p = softmax();
  auto without = compile(p);
  ASSERT_TRUE(without.ok());
  EXPECT_TRUE(without->kernels[0].report.tile_text.empty());
  EXPECT_TRUE(without->kernels[0].report.ptx_text.empty());
  options_.keep_texts = true;
  auto with = compile(p);
  ASSERT_TRUE(with.ok());
  const auto& r = with->kernels[0].report;
  size_t kernels = 0;
  for (size_t at = 0; (at = r.tile_text.find("tile.kernel @", at)) != std::string::npos; ++at) ++kernels;
  EXPECT_EQ(kernels, with->kernels[0].scheduled.size());
  EXPECT_NE(r.tile_text.find("for every size"), std::string::npos);
  EXPECT_NE(r.tile_text.find(" if "), std::string::npos);
  EXPECT_NE(r.tile_text.find(" registers"), std::string::npos);
  EXPECT_NE(r.ptx_text.find(".entry"), std::string::npos);
  EXPECT_NE(r.llvm_text.find("define"), std::string::npos);
  EXPECT_EQ(with->objects, without->objects);
}

// Every nest that the tests of schedules know by name, and rows that few programs share. Registers suffice but where
// programs wait: rather a spill than fewer of them at a time, which would not be launched at all.
TEST_F(CompileGpuKernels, NamedNestsHaveTheRegistersAndBlocksTheyWerePlannedFor) {
  std::vector<Problem> problems;
  Share share;
  int shared = 0; // problems whose rows several blocks share
  for (const char* d : {"f32", "f16", "bf16"}) {
    problems.push_back(softmax(d));
    problems.push_back(layer_norm("768", d));
    problems.push_back(layer_norm("w", d));
    problems.push_back(bias_gelu(d));
    for (const char* rows : {"1", "2", "3", "4", "5", "7", "16"})
      for (const char* row : {"1000003", "1048576"}) {
        if (!share.takes({rows, row, d})) continue;
        problems.push_back(softmax_of(rows, row, d));
        ++shared;
      }
  }
  problems.push_back(column_sum());
  problems.push_back(rope());
  problems.push_back(embedding());
  problems.push_back(embedding("v"));
  const Target gpu = h200();
  constexpr int64_t kSystem = 1 << 10, kRegisters = 64 << 10; // bytes of each block, of a multiprocessor
  int waiting = 0;
  for (const auto& p : problems) {
    auto made = compile(p, {p.nest.name});
    ASSERT_TRUE(made.ok()) << made.error().str();
    auto objects = decoded(*made);
    bool waits = false;
    for (const auto& v : made->kernels[0].scheduled) {
      const auto& o = objects.at(static_cast<size_t>(v.object));
      const auto& config = v.kernel.config;
      auto planned = config.find("min_blocks"), least = config.find("least_blocks");
      const std::string what =
          v.why + ", " + std::to_string(o.registers) + " registers, " + std::to_string(o.shared_bytes) + " bytes";
      if (planned != config.end()) {
        const int64_t blocks = planned->second;
        EXPECT_LE(blocks * (o.shared_bytes + kSystem), gpu.shared_bytes + kSystem) << what;
      }
      if (v.cooperative_blocks.is_const(0)) {
        EXPECT_LE(o.spill_bytes, kFewSpilled) << what;
        continue;
      }
      waits = true;
      if (least != config.end()) {
        EXPECT_LE(least->second * o.threads * ((o.registers + 7) / 8 * 8), kRegisters) << what;
      }
    }
    waiting += waits;
    if (!waits) {
      EXPECT_TRUE(made->warnings.empty()) << made->warnings[0];
    }
  }
  EXPECT_GE(waiting, shared);
}

} // namespace
} // namespace tessera::test
