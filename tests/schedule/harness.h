// Lowers nests given as text, in every way a schedule could run them, and compares what the tile kernels compute with
// what the nest means.
#pragma once
#include "codegen/schedule/schedule.h"
#include <gtest/gtest.h>

namespace tessera::test {

using Sizes = std::map<std::string, int64_t>;

// Values by declaration ("x: f32[b, s]"), one a line, and a nest over them.
struct Problem {
  Graph graph;
  LoopNest nest;
};
Problem problem(std::string_view declarations, std::string_view nest);

struct RunOptions {
  double tolerance = 2e-5;
  int64_t integer_limit = 6; // integer inputs are in [-limit, limit], unsigned and index ones in [0, limit]
  bool specials = false;     // NaN, infinities and equal values among the float inputs
  std::map<std::string, std::vector<int64_t>> given; // contents of integer inputs
  int multiprocessors = 132;                         // of the GPU whose kernels are run
};
// Every schedule that fits (each axis, two vector widths, two unrollings), and those for blocks of threads whose
// conditions hold, against interpret(nest).
void expect_same(const Problem& p, const std::vector<Sizes>& sizes, const RunOptions& options = {});
// How these tests run a tile kernel: by the interpreter, until a test program sets something else (tests/gpu runs what
// is for blocks of threads on the emulator). `run` yields the report of bad indices.
struct KernelRunner {
  std::function<Result<IndexReport>(const tile::Kernel&, std::span<const tile::Argument>, int64_t grid)> run;
  bool blocks_only = false; // schedules for hosts are left out
  // Each kernel once more with outputs in the memory of inputs, where may_overwrite allows it.
  bool also_in_place = false;
};
KernelRunner& kernel_runner();
// The kernel of the schedule that is chosen for a machine with 64-byte vectors.
ScheduledKernel lower(const Problem& p, int unroll = 4);
// Compares with tests/schedule/golden/NAME.tile; TESSERA_BLESS=1 writes it.
void expect_golden(const std::string& name, const ScheduledKernel& kernel);
// Memory that programs of a kernel share: arguments behind those of its buffers. Workspaces hold what was there before.
struct SharedMemory {
  SharedMemory(const ScheduledKernel& k, const std::unordered_map<uint64_t, int64_t>& symbols);
  std::vector<std::vector<std::byte>> workspaces;
  std::vector<uint32_t> counters, mailboxes;
  bool counted, boxed; // the kernel has a parameter for them
  void add_to(std::vector<tile::Argument>& args);
  [[nodiscard]] bool at_rest() const; // every counter and box
};
// Runs one kernel; inputs by buffer name. Bad indices come back in *report. `in_place`: outputs lie where inputs were
// that they may overwrite.
std::map<std::string, Tensor> run_kernel(const Problem& p, const ScheduledKernel& k,
                                         const std::map<std::string, Tensor>& inputs, const Sizes& sizes,
                                         IndexReport* report = nullptr, bool in_place = false);

} // namespace tessera::test
