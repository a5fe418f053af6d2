// Common code of compiling loop nests for every device: requests, parallel compilation, launches.
#pragma once
#include "codegen/compilation/compiled.h"
#include "codegen/schedule/tuned.h"
#include "runtime/cache/cache.h"

namespace tessera {

struct KernelRequest {
  std::string name;               // for people; unique
  const LoopNest* nest = nullptr; // null: a structured kernel of `node`, or of `attention`
  NodeId node = {};
  const TunedSchedules* tuned = nullptr;    // replaces CompileOptions::tuned for this kernel
  const AttentionCall* attention = nullptr; // on a GPU
  const FixedSchedules* pinned = nullptr;   // by a plan file; before `tuned` and CompileOptions::tuned
};
// The request for the kernel of a group of kind Kernel or Own, without schedules.
[[nodiscard]] KernelRequest request_for(const Group& group);
// The measured schedules that count for a request: pinned ones, its own, those of the options.
[[nodiscard]] const TunedSchedules* schedules_for(const KernelRequest& request, const CompileOptions& options);
// Says in report.unmet which pinned schedules of a request are not those that it got, and why.
void check_pinned(const Graph& graph, const KernelRequest& request, const Target& device, KernelReport& report);
inline constexpr std::string_view kPinned = "pinned by a plan file"; // TunedSchedule::measured of such a schedule
// Runs body(0) ... body(count - 1), in any order, on options.jobs threads. Returns after all are done. If one throws,
// those that have not begun are skipped, and the exception propagates.
void compile_each(size_t count, const CompileOptions& options, const std::function<void(size_t)>& body);

// The kernel's text without the model's value names, so that kernels of equal layers are equal.
[[nodiscard]] std::string anonymous_text(tile::Kernel kernel);

// The name of a kernel's computation, in letters, digits and '_', as a profiler shows it: "softmax", "layer_norm_gelu",
// "sum".
[[nodiscard]] std::string kernel_title(const Graph& graph, const KernelRequest& request);

// The origin, in the cache, of a kernel that a compiler of this version (host_compiler_version(),
// gpu_compiler_version()) made: the version's first two words are the creator, the third is the device.
[[nodiscard]] EntryOrigin kernel_origin(const std::string& version, std::string name);

// The launch of the last of these kernels, for every size, with the others as alternatives; `buffer` gives the
// executable's buffer of a graph value.
[[nodiscard]] KernelLaunch launch_of(std::span<const ScheduledKernel> kernels, const std::string& name,
                                     const std::function<BufferId(ValueId)>& buffer);

} // namespace tessera
