// The interface between the executor and the library calls: a call is planned once per shape (block sizes, primitives,
// packed weights) and then run many times without a decision or an allocation.
#pragma once
#include "runtime/executor.h"
#include "runtime/library/packed_weights.h"
#include "runtime/operand.h"
#include <atomic>

namespace tessera {

// [..., m, k] times [..., k, n] is [..., m, n]. An internal error names the product whose operands contradict that.
struct ProductSizes {
  struct Batch {           // one dimension of the batch
    int64_t size, a, b, c; // strides in elements; 0 where the operand has one index, as all have where size is 1
  };
  int64_t m = 0, n = 0, k = 0;
  std::vector<Batch> batch;         // outermost first
  [[nodiscard]] bool empty() const; // of the result
};
[[nodiscard]] Result<ProductSizes> product_sizes(const Operand& a, const Operand& b, const Operand& c,
                                                 const std::string& name);

// The epilogue kernel over the boxes that a plan divided its result into, all sizes evaluated.
struct EpiloguePlan {
  HostKernelFn function = nullptr;
  std::vector<BufferId> buffers;
  size_t sizes_per_box = 0;
  std::vector<int64_t> sizes, grids; // box after box
  int64_t scratch_bytes = 0;
  void run(int64_t box, void* const* args, std::byte* scratch, IndexReport* report) const {
    auto i = static_cast<size_t>(box);
    if (grids[i] > 0) function(args, sizes.data() + i * sizes_per_box, 0, grids[i], scratch, report);
  }
};

// One run of a library step.
struct LibraryRun {
  ThreadPool* pool = nullptr;
  void* const* pointers = nullptr;            // by BufferId
  std::byte* step_scratch = nullptr;          // of LibraryPlan::step_scratch bytes, shared by the tasks
  std::byte* const* worker_scratch = nullptr; // by worker: LibraryPlan::worker_scratch bytes, then the epilogue's
  const EpiloguePlan* epilogue = nullptr;     // null: none
  void* const* epilogue_args = nullptr;
  IndexReport* report = nullptr;       // of the epilogue
  std::atomic<int>* failure = nullptr; // status of a library function that failed
};

class LibraryPlan {
public:
  virtual ~LibraryPlan() = default;
  virtual void run(const LibraryRun& run) const = 0;
  [[nodiscard]] virtual int64_t host_bytes() const { // that it takes, about; without generated code and weights
    return static_cast<int64_t>(boxes.capacity() * sizeof(int64_t));
  }

  int64_t code_bytes = 0;                       // generated for this plan first; others may share it
  int64_t step_scratch = 0, worker_scratch = 0; // bytes, multiples of 64
  // Boxes of the result's index space that tasks compute one at a time: begin per dimension, then count per dimension.
  int rank = 0;
  std::vector<int64_t> boxes;
  int box_count = 0;

  void add_box(const std::vector<int64_t>& begin, const std::vector<int64_t>& count) {
    boxes.insert(boxes.end(), begin.begin(), begin.end());
    boxes.insert(boxes.end(), count.begin(), count.end());
    ++box_count;
  }

protected:
  // Runs the epilogue of a box that has just been computed.
  void finish(const LibraryRun& run, int64_t box, int worker) const {
    if (run.epilogue)
      run.epilogue->run(box, run.epilogue_args, run.worker_scratch[worker] + worker_scratch, run.report);
  }
};

// The error that a LibraryRun::failure means: OutOfMemory or DeviceError.
[[nodiscard]] Diagnostic library_error(int failure, const std::string& step);

struct PlanContext {
  int threads = 1;
  bool has_epilogue = false;
  std::string name; // of the step, for errors
  PackRequests* packs = nullptr;
};
// Errors: UnsupportedFeature for what support.h refuses, Internal where shapes contradict, DeviceError from the
// library.
[[nodiscard]] Result<std::unique_ptr<LibraryPlan>> plan_matmul(const PlanContext& context, const Operand& a,
                                                               const Operand& b, const Operand& c);
[[nodiscard]] Result<std::unique_ptr<LibraryPlan>> plan_conv(const PlanContext& context, const ConvCall& call,
                                                             const Operand& x, const Operand& w, const Operand& y);
[[nodiscard]] Result<std::unique_ptr<LibraryPlan>> plan_pool(const PlanContext& context, const PoolCall& call,
                                                             const Operand& x, const Operand& y);

} // namespace tessera
