// One nest for different GPUs: code for each from its target alone, and other choices where the devices differ.
#include "../schedule/nests.h"
#include "codegen/device/cuda/gpu_kernels.h"
#include "codegen/target/select.h"
#include "runtime/cuda/code_object.h"
#include <set>
#include <tuple>

namespace tessera::test {
namespace {

// Bytes of a thread: less than what a block less would cost; and where blocks wait for each other, so that there cannot
// be fewer of them.
constexpr int kFewSpilled = 16, kFewSpilledWaiting = 96;

struct MadeFor {
  std::vector<std::string> schedules;     // of the variants, with all their numbers
  std::vector<cuda::CodeObject> variants; // as they are taken
  std::vector<bool> waits;                // their blocks wait for each other
};

MadeFor compile_for(const Problem& p, const Target& device) {
  MadeFor out;
  auto assembler = cuda::Assembler::find();
  EXPECT_TRUE(assembler.ok()) << assembler.error().str(); // the toolkit is there where this is built
  auto target = GpuTarget::parse(device.arch);
  EXPECT_TRUE(target.ok());
  if (!assembler.ok() || !target.ok()) return out;
  Cache cache("", false);
  GpuKernelOptions options;
  options.assembler = *assembler;
  const std::vector<KernelRequest> requests{{"kernel", &p.nest, {}}};
  auto made = compile_gpu_kernels(p.graph, requests, device, *target, cache, {}, options);
  EXPECT_TRUE(made.ok()) << made.error().str();
  if (!made.ok()) return out;
  for (const ScheduledKernel& v : made->kernels[0].scheduled) {
    out.schedules.push_back(print(v.schedule));
    auto object = cuda::decode(made->objects[static_cast<size_t>(v.object)]);
    EXPECT_TRUE(object.ok());
    if (object.ok()) out.variants.push_back(std::move(*object));
    out.waits.push_back(!v.cooperative_blocks.is_const(0));
  }
  return out;
}

struct Named {
  const char* name;
  Problem problem;
};
std::vector<Named> suite() {
  std::vector<Named> out;
  out.push_back({"short rows", softmax_of("8192", "1024", "bf16")});
  out.push_back({"norm", norm_of("8192", "4096", "bf16")});
  out.push_back({"add and norm", add_norm_of("8192", "1024", "f16")});
  out.push_back({"long rows", softmax_of("2048", "32768", "bf16")});
  out.push_back({"rows that no block of an A100 holds", softmax_of("132", "49152", "f32")});
  out.push_back({"few long rows", softmax_of("16", "1048576")});
  out.push_back({"a row for each of an H200's multiprocessors", softmax_of("132", "65536", "bf16")});
  out.push_back({"any sizes", softmax("f16")});
  return out;
}

TEST(GpuTargets, EachGpuHasATargetOfItsOwnOrAnOlderOne) {
  for (auto [major, minor, expected] :
       {std::tuple{8, 0, "sm_80"}, {8, 9, "sm_80"}, {9, 0, "sm_90a"}, {10, 0, "sm_90"}}) {
    const GpuTarget target = GpuTarget::of(major, minor);
    EXPECT_EQ(target.arch, expected);
    EXPECT_TRUE(GpuTarget::parse(target.arch).ok());
  }
}

TEST(GpuTargets, EachGpuHasCodeThatFitsIt) {
  for (const Named& n : suite())
    for (const char* gpu : {"a100", "rtx4090", "h200"}) {
      const Target& device = shipped_target(gpu);
      const MadeFor made = compile_for(n.problem, device);
      for (size_t i = 0; i < made.variants.size(); ++i) {
        const cuda::CodeObject& o = made.variants[i];
        EXPECT_EQ(o.cubin_arch, device.arch);
        EXPECT_LE(o.spill_bytes, made.waits[i] ? kFewSpilledWaiting : kFewSpilled) << n.name << " on " << gpu;
        EXPECT_LE(o.shared_bytes, device.shared_bytes) << n.name << " on " << gpu;
      }
    }
}

TEST(GpuTargets, ChoicesDifferWhereTheDevicesDo) {
  std::set<std::string> differ;
  for (const Named& n : suite())
    if (compile_for(n.problem, shipped_target("a100")).schedules !=
        compile_for(n.problem, shipped_target("h200")).schedules)
      differ.insert(n.name);
  // A row of 192 KB fits the shared memory of an H200's block, not that of an A100's; few rows are divided among the
  // multiprocessors there are.
  for (const char* name :
       {"rows that no block of an A100 holds", "few long rows", "a row for each of an H200's multiprocessors"})
    EXPECT_EQ(differ.count(name), 1u) << name;
}

} // namespace
} // namespace tessera::test
