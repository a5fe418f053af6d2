// Kernels on the host: the thread pool divides the numbers of the programs.
#include "codegen/kernels/checked_kernel.h"
#include "codegen/kernels/host_code.h"
#include "codegen/kernels/scratch_size.h"
#include "codegen/kernels/work.h"
#include "runtime/cpu/chunk.h"
#include <algorithm>
#include <mutex>
#include <new>

namespace tessera {
namespace {

// Scratch memory of one launch: a block for each worker.
class ScratchBlocks {
public:
  [[nodiscard]] Status reserve(int64_t bytes, size_t workers) {
    bytes_ = static_cast<size_t>(bytes);
    size_t all = 0;
    if (__builtin_mul_overflow(bytes_, workers, &all)) return missing(workers);
    if (all <= held_) return {};
    memory_.reset();
    held_ = 0;
    memory_.reset(
        static_cast<std::byte*>(::operator new(all, std::align_val_t(ScratchSize::kAlignment), std::nothrow)));
    if (!memory_) return missing(workers);
    held_ = all;
    return {};
  }
  [[nodiscard]] std::byte* of(size_t worker) const { return memory_.get() + worker * bytes_; }

private:
  struct Release {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t(ScratchSize::kAlignment)); }
  };
  [[nodiscard]] Diagnostic missing(size_t workers) const {
    return {ErrorCode::OutOfMemory, "cannot allocate " + std::to_string(bytes_) + " bytes of scratch for each of " +
                                        std::to_string(workers) + " threads"};
  }

  std::unique_ptr<std::byte, Release> memory_;
  size_t bytes_ = 0, held_ = 0; // of a worker; of all
};

// Those of a kernel, which launches that run at the same time do not share.
class ScratchOfLaunches {
public:
  class Use {
  public:
    explicit Use(ScratchOfLaunches& owner) : owner_(owner), blocks_(owner.take()) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { owner_.give(std::move(blocks_)); }
    ScratchBlocks* operator->() { return &blocks_; }

  private:
    ScratchOfLaunches& owner_;
    ScratchBlocks blocks_;
  };

private:
  ScratchBlocks take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    ScratchBlocks last = std::move(free_.back());
    free_.pop_back();
    return last;
  }
  void give(ScratchBlocks blocks) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(blocks));
  }

  std::mutex mutex_;
  std::vector<ScratchBlocks> free_;
};

class HostTileKernel final : public CheckedKernel {
public:
  HostTileKernel(tile::Kernel kernel, LinkedKernel linked, ScratchSize scratch, std::shared_ptr<ThreadPool> pool)
      : CheckedKernel(std::move(kernel), false), linked_(std::move(linked)), scratch_(std::move(scratch)),
        pool_(std::move(pool)), uses_grid_(tile::uses_grid(this->kernel())),
        grain_(std::max<int64_t>(1, kElementsPerChunk / std::max<int64_t>(1, work_of_program(this->kernel())))) {
    info_.device = "cpu";
    info_.from_cache = linked_.from_cache;
  }

private:
  // The arguments of HostKernelFn that the programs of a launch share.
  struct Frame {
    HostKernelFn function;
    void* const* buffers;
    const int64_t* sizes;
    const ScratchBlocks* scratch; // null: none
    IndexReport* report;
  };

  Status start(const Grid& grid, uint64_t* words, void*) override {
    IndexReport report;
    const auto* sizes = reinterpret_cast<const int64_t*>(words + packer().pointers());
    Frame frame{linked_.function, reinterpret_cast<void* const*>(words), sizes, nullptr, &report};
    std::copy(grid.extents.begin(), grid.extents.end(), words + packer().words());
    if (scratch_.none()) {
      run(grid, frame);
    } else {
      TESSERA_ASSIGN(const int64_t bytes, scratch_.bytes(grid, words));
      ScratchOfLaunches::Use blocks(memory_);
      TESSERA_TRY(blocks->reserve(bytes, static_cast<size_t>(pool_->threads())));
      frame.scratch = blocks.operator->();
      run(grid, frame);
    }
    return report.any() ? bad_index(report) : Status();
  }

  // Code that does not know the grid takes a program's number for its index along axis 0.
  void run(const Grid& grid, Frame& frame) const {
    const int64_t rounds = uses_grid_ ? 1 : grid[1] * grid[2];
    const int64_t programs = uses_grid_ ? grid.programs() : grid[0];
    for (int64_t i = 0; i < rounds; ++i)
      pool_->parallel_for(programs, grain_, [&frame](int64_t begin, int64_t end, int worker) {
        void* scratch = frame.scratch ? frame.scratch->of(static_cast<size_t>(worker)) : nullptr;
        frame.function(frame.buffers, frame.sizes, begin, end, scratch, frame.report);
      });
  }

  LinkedKernel linked_;
  ScratchSize scratch_;
  std::shared_ptr<ThreadPool> pool_;
  bool uses_grid_;
  int64_t grain_; // programs of a chunk
  ScratchOfLaunches memory_;
};

} // namespace

Result<std::unique_ptr<TileKernel>> make_host_kernel(tile::Kernel kernel, const TileKernelOptions& options,
                                                     Cache& cache) {
  TESSERA_ASSIGN(ScratchSize scratch, ScratchSize::of(kernel));
  TESSERA_ASSIGN(LinkedKernel linked, linked_kernel(kernel, cache));
  return std::unique_ptr<TileKernel>(
      std::make_unique<HostTileKernel>(std::move(kernel), std::move(linked), std::move(scratch), options.pool));
}

} // namespace tessera
