// Kernels for blocks of threads, next to those for hosts, in every test that compares schedules with their nest.
#pragma once
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/tuned.h"
#include "harness.h"

namespace tessera::test {

Target gpu_with(int multiprocessors = 132);
// The kernels of a GPU, then those of the same plans with small tiles, so that short rows loop and few points fill
// several blocks. Each is verified, printed and parsed again; all tiles are powers of two.
std::vector<ScheduledKernel> block_kernels(const Problem& p, const Target& device = gpu_with());
// Those that a GPU gets.
std::vector<ScheduledKernel> lower_blocks(const Problem& p, const LoweringOptions& options = {},
                                          const Target& device = gpu_with());
bool conditions_hold(const Graph& graph, const ScheduledKernel& kernel, const Sizes& sizes);

// The nest of the one operator that makes %y.
Problem of_graph(const std::string& text);
CallSizes by_id(const Problem& p, const Sizes& sizes);
struct Case {
  Problem problem;
  Sizes sizes;
};
// Inputs for a case, a factor of all elements of an input by its name, and what the nest makes of them.
using InputScale = std::function<double(const std::string& name)>;
struct Meant {
  std::map<std::string, Tensor> inputs;
  std::vector<Tensor> expected;
};
Meant meant(const Case& c, const InputScale& scale = {});
// Whether a kernel does the same.
void expect_meant(const Case& c, const Meant& m, const ScheduledKernel& k, double tolerance = 2e-5);

// Calls `visit` with the kernel of each schedule of the space that is legal at these sizes and that `take` admits.
void each_kernel(const Case& c, const Target& device, const std::function<bool(const Schedule&)>& take,
                 const std::function<void(const Legal&, ScheduledKernel)>& visit);
// The form of a schedule without the sizes of its tiles.
std::string form(const Schedule& schedule);

} // namespace tessera::test
