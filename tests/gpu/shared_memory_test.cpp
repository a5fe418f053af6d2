// Kernels keep to the shared memory of the GPU that their schedules are for, and there is one for every nest: softmax
// along an inner axis, then a normalisation, whose tiles stay there between stages.
#include "codegen/llvm/gpu_compiler.h"
#include "codegen/schedule/schedule.h"
#include "codegen/target/select.h"
#include "tests/base/share.h"
#include "tests/fusion/harness.h"

namespace tessera::test {
namespace {

// T is the element type, S the shape [r, c] of which dimension 0 is folded, K that with r = 1.
constexpr const char* kSoftmaxThenNorm = R"(graph @main(%x: T[S]) -> (%y: T[S])W {
  %m = reduce_max(%x) axes=[0] keepdims=1 : T[K]
  %z = sub(%x, %m) : T[S]
  %e = exp(%z) : T[S]
  %n = reduce_sum(%e) axes=[0] keepdims=1 : T[K]
  %p = div(%e, %n) : T[S]
  %a = reduce_sum(%p) axes=[0] keepdims=1 : T[K]
  %d = sub(%p, %a) : T[S]
  %q = mul(%d, %d) : T[S]
  %v = reduce_sum(%q) axes=[0] keepdims=1 : T[K]
  %s = sqrt(%v) : T[K]
  %y = div(%d, %s) : T[S] })";

std::string with(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

TEST(SharedMemory, IsTheTargets) {
  Share share;
  for (const auto& [name, arch] : {std::pair{"l40s", "sm_89"}, {"a100", "sm_80"}, {"h200", "sm_90a"}})
    for (const char* dtype : {"f16", "f32", "f64"})
      for (const auto& [rows, columns] :
           {std::pair{"r", "c"}, {"1", "c"}, {"r", "1"}, {"4096", "65"}, {"127", "100000"}, {"100000", "3"}}) {
        if (!share.takes({name, dtype, std::string(rows) + " " + columns})) continue;
        std::string text = with(kSoftmaxThenNorm, "T[", std::string(dtype) + "[");
        text = with(with(text, "[S]", std::string("[") + rows + ", " + columns + "]"), "[K]",
                    std::string("[1, ") + columns + "]");
        std::string where;
        for (const std::string size : {rows, columns})
          if (size == "r" || size == "c") where += (where.empty() ? " where " : ", ") + size + " in [0, 1000000]";
        text = with(text, "W {", where + " {");
        SCOPED_TRACE(std::string(name) + " " + dtype + " " + rows + " " + columns);
        Graph graph = parsed(text);
        const auto plan = plan_fusion(graph, generated());
        ASSERT_TRUE(plan.ok()) << plan.error().str();
        const Target& device = shipped_target(name);
        GpuTarget target = GpuTarget::parse(arch).value();
        target.shared_bytes = device.shared_bytes;
        for (const Group& group : plan->groups) {
          if (group.kind != Group::Kind::Kernel) continue;
          auto kernels = lower_for_gpu(graph, group.nest, device, "kernel");
          ASSERT_TRUE(kernels.ok()) << kernels.error().str();
          ASSERT_FALSE(kernels->empty());
          EXPECT_TRUE(kernels->back().conditions.empty());
          for (const ScheduledKernel& k : *kernels) {
            auto code = compile_gpu_kernel(k.kernel, target);
            ASSERT_TRUE(code.ok()) << code.error().str() << " " << k.why;
            EXPECT_LE(code->shared_bytes, device.shared_bytes) << k.why;
          }
        }
      }
}

} // namespace
} // namespace tessera::test
