// The library calls of a segment, planned for the host.
#pragma once
#include "runtime/device.h"
#include "runtime/library/call.h"

namespace tessera {

struct CpuStep {
  std::unique_ptr<LibraryPlan> library; // null: the step is no library call
  std::unique_ptr<EpiloguePlan> epilogue;
};
struct CpuPlan final : DevicePlan {
  int first_step = 0;
  std::vector<CpuStep> steps; // of the segment
  [[nodiscard]] int64_t host_bytes() const override;
};

// Fills plan.device with a CpuPlan, and the scratch memory that its calls need. Independent calls are planned in
// parallel: they create primitives and pack weights. Errors: those of plan_matmul and its like, SizeOverflow.
[[nodiscard]] Status plan_cpu_calls(const Variant& variant, int segment, const Variant::CallState& call,
                                    SegmentPlan& plan, ThreadPool& pool, const std::shared_ptr<MemoryAccount>& account);

} // namespace tessera
