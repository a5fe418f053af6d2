// The tiles that contractions of bf16 get, next to those that NVIDIA's heuristics propose (the Python package
// nvidia-matmul-heuristics): ours come from a model of our code, so they need not be equal, but what the heuristics
// propose must not seem expensive. Skipped where the package is missing.
#include "block_harness.h"
#include "codegen/schedule/contraction_cost.h"
#include "codegen/schedule/space.h"
#if __has_include(<nvMatmulHeuristics.h>)
#include <algorithm>
#include <cmath>
#include <dlfcn.h>
#include <nvMatmulHeuristics.h>

namespace tessera::test {
namespace {

struct Size {
  uint32_t m, n, k;
};
constexpr Size kProducts[] = {{4096, 4096, 4096}, {8192, 4096, 4096}, {8192, 8192, 8192},  {2048, 2048, 2048},
                              {1024, 1024, 1024}, {1024, 1536, 4096}, {512, 512, 8192},    {512, 4096, 1024},
                              {256, 4096, 4096},  {128, 4096, 4096},  {128, 512, 16384},   {64, 1024, 4096},
                              {64, 4096, 4096},   {16384, 1024, 512}, {4096, 11008, 4096}, {3000, 5000, 700},
                              {1000, 1000, 1000}, {100, 5000, 3000},  {12288, 128, 4096},  {4096, 64, 8192}};

class Heuristics {
public:
  Heuristics() : library_(dlopen(TESSERA_MATMUL_HEURISTICS, RTLD_NOW)) {
    if (library_ == nullptr) return;
    usable_ = call<decltype(nvMatmulHeuristicsHardwareDescriptorCreate)>("nvMatmulHeuristicsHardwareDescriptorCreate")(
                  &device_) == NVMMH_STATUS_SUCCESS &&
              call<decltype(nvMatmulHeuristicsHardwareDescriptorSetPredefinedGpu)>(
                  "nvMatmulHeuristicsHardwareDescriptorSetPredefinedGpu")(device_, NVMMH_NVGPU_H200_SXM) ==
                  NVMMH_STATUS_SUCCESS;
  }
  [[nodiscard]] bool usable() const { return usable_; }
  // The best first.
  [[nodiscard]] std::vector<nvmmhKernelConfiguration_t> propose(const Size& size) const {
    constexpr unsigned kMaxProposals = 8;
    const nvmmhMatmulProblem_t problem{size.m, size.n, size.k, 1, NVMMH_MATMUL_LAYOUT_NT_ROW_MAJOR};
    std::vector<nvmmhKernelConfiguration_t> out(kMaxProposals);
    out.resize(call<decltype(nvMatmulHeuristicsGetGemmConfig)>("nvMatmulHeuristicsGetGemmConfig")(
        nullptr, "TST", NVMMH_FLAG_NONE, NVMMH_TARGET_CUTLASS3, &problem, out.data(), kMaxProposals, device_));
    return out;
  }

private:
  template <class F>
  F* call(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }

  void* library_;
  nvmmhHardwareDescriptor_t device_ = nullptr;
  bool usable_ = false;
};

TEST(ContractionOracle, ProposedTilesArePricedNearTheChosenOnes) {
  const Heuristics heuristics;
  if (!heuristics.usable()) GTEST_SKIP() << "the library of nvidia-matmul-heuristics does not load";
  const Problem p = problem("a: bf16[m, k]\nb: bf16[n, k]\ny: bf16[m, n]",
                            "nest product outer(i0: m, i1: n) row(i2: k) {\n %0 = load a[i0, i2] : f32\n %1 = load "
                            "b[i1, i2] : f32\n %2 = mul %0, %1 : f32\n %3 = reduce.sum %2 : f32\n store.row y[i0, i1] "
                            "= %3 }");
  const Target device = gpu_with();
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  const BlockFacts facts(p.graph, p.nest, *domain, device);
  size_t met = 0, near = 0;
  for (const Size& size : kProducts) {
    const auto proposed = heuristics.propose(size);
    ASSERT_FALSE(proposed.empty());
    const CallSizes sizes = by_id(p, {{"m", size.m}, {"n", size.n}, {"k", size.k}});
    auto sized = sized_facts(facts, sizes);
    ASSERT_TRUE(sized.ok());
    double ours = INFINITY, theirs = INFINITY;
    Schedule chosen;
    for_each_schedule(facts, *sized, sizes, true, [&](const Schedule& s, int64_t) {
      if (s.kind != ScheduleKind::BlockContraction) return;
      const double us = contraction_cost(*sized, s, device).us;
      if (us < ours) ours = us, chosen = s;
      if (std::any_of(proposed.begin(), proposed.end(), [&](const nvmmhKernelConfiguration_t& c) {
            return c.cta[0] == s.tile.rows && c.cta[1] == s.tile.columns; // the depth of a stage is our ring's
          }))
        theirs = std::min(theirs, us);
    });
    ASSERT_TRUE(std::isfinite(ours));
    if (!std::isfinite(theirs)) continue; // no tile of our space
    ++met;
    constexpr double kNear = 1.25;
    near += theirs <= kNear * ours ? 1 : 0;
    const auto& c = proposed.front();
    RecordProperty(std::to_string(size.m) + "x" + std::to_string(size.n) + "x" + std::to_string(size.k),
                   print(chosen) + ", " + std::to_string(ours) + " us; " + std::to_string(c.cta[0]) + "x" +
                       std::to_string(c.cta[1]) + "x" + std::to_string(c.cta[2]) +
                       " split_k=" + std::to_string(c.splitK) + ", " + std::to_string(theirs) + " us");
  }
  EXPECT_GE(met, std::size(kProducts) * 3 / 4);
  EXPECT_GE(near, met * 3 / 4);
}

} // namespace
} // namespace tessera::test
#endif
