// The steps of a segment, prepared: what is left for a run is one driver call per kernel.
#pragma once
#include "runtime/cuda/library.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/replay.h"
#include "runtime/cuda/reports.h"
#include "runtime/device.h"

namespace tessera::cuda {

// A kernel at given sizes. `params` are addresses of its arguments: entries of the variant's table of pointers, numbers
// of the plan (or `sizes`), and the address of its report. They are read when it is launched.
struct PreparedLaunch {
  CUfunction function = nullptr;
  unsigned grid = 0, threads = 0, shared_bytes = 0; // grid 0: nothing to do
  bool cooperative = false;
  bool alone = false; // by Context::launch_alone
  // By programmatic dependent launch: it comes right behind another kernel, and may start while that one runs. The
  // kernel itself waits for it.
  bool dependent = false;
  std::vector<void*> params;
  std::vector<int64_t> sizes; // of an epilogue
  // A kernel of cooperative blocks has workspaces: their offsets in the step's scratch, and their addresses when it
  // runs.
  std::vector<int64_t> workspaces;
  std::vector<void*> addresses;
  const KernelLaunch* kernel = nullptr;
};

struct PreparedStep {
  PreparedLaunch kernel;                    // of a kernel; of a library call: the epilogue that the library leaves
  std::unique_ptr<CudaLibraryPlan> library; // null: no library call
};

struct CudaPlan final : DevicePlan {
  int first_step = 0;
  int64_t counters = 0, boxes = 0;  // words that some step wants
  std::vector<PreparedStep> steps;  // of the segment
  std::unique_ptr<Replays> replays; // null where they cannot be put on a stream as one
  [[nodiscard]] int64_t host_bytes() const override;
};

// Memory that kernels of cooperative blocks leave as they find it (KernelLaunch::counters, boxes): plans' launches look
// here for it. 0: there is none yet.
struct RestingMemory {
  CUdeviceptr counters = 0, boxes = 0;
};

struct Started {
  CUresult result;
  const char* function; // of the driver
};
// The driver's call. `params`: launch.params, or the like. `dependent`: false if something lies between this kernel and
// the one before it, as an event does. A device, or a capture, that has no dependent launch gets a plain one.
[[nodiscard]] Started start_kernel(const Driver& driver, const PreparedLaunch& launch, CUstream stream,
                                   void* const* params, bool dependent);

// Who a plan is for, and where its launches look when they are made.
struct PlanPlace {
  const std::shared_ptr<Context>& context;
  const std::shared_ptr<Recorder>& recorder;
  const std::shared_ptr<GraphRoom>& graphs;
  const Variant& variant;
  LoadedExecutable& code;
  BufferTable& table; // of all runs of the variant, as are `reports`
  Reports& reports;
  RestingMemory& resting; // will hold addresses when steps run
  bool dependent_launch;  // where it is possible
  ProductKernels* kernels;
  bool loads_ahead; // kernels of products, before a call needs them
};

// Device::choose for a segment whose attentions the library may take.
[[nodiscard]] Status choose_steps(Context& context, const Variant& variant, int segment, const Variant::CallState& call,
                                  SegmentPlan& plan, bool wait);
// Fills plan.device with a CudaPlan, and plan.step_scratch with what its library calls need. Errors: those of
// LoadedExecutable::function and of planning library calls; SizeOverflow for a grid that is too large. `refused` gets
// the names of all library calls that no library computes; the error is then the first one's.
[[nodiscard]] Status prepare_steps(const PlanPlace& place, int segment, const Variant::CallState& call,
                                   SegmentPlan& plan, std::vector<std::string>& refused);

} // namespace tessera::cuda
