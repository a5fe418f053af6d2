// The steps of a segment, prepared: what is left for a run is one driver call per kernel.
#pragma once
#include "runtime/cuda/launch.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/module.h"
#include "runtime/cuda/replay.h"
#include "runtime/device.h"

namespace tessera::cuda {

struct PreparedStep {
  PreparedLaunch kernel;                    // of a kernel; of a library call: the epilogue that the library leaves
  std::unique_ptr<CudaLibraryPlan> library; // null: no library call
};

struct CudaPlan final : DevicePlan {
  int first_step = 0;
  int64_t counters = 0, mailboxes = 0;    // words that some step wants
  std::shared_ptr<LoadedExecutable> code; // stays until its graphs are gone
  std::vector<PreparedStep> steps;        // of the segment
  std::unique_ptr<Replays> replays;       // null where they cannot be put on a stream as one
  [[nodiscard]] int64_t host_bytes() const override;
};

// Who a plan is for.
struct PlanPlace {
  const std::shared_ptr<Context>& context;
  const std::shared_ptr<Recorder>& recorder;
  const std::shared_ptr<GraphRoom>& graphs;
  const Variant& variant;
  const std::shared_ptr<LoadedExecutable>& code;
  const Reports& reports; // of all runs of the variant
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
