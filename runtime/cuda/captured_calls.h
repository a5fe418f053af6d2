// Memory and code of ours that CUDA graphs of the caller hold.
//
// A call on a stream that the caller captures becomes a part of the caller's graph, which runs whenever the caller
// likes: many times, on any stream, next to other graphs and to later calls. So its steps work in memory that no other
// call uses, and code, constants and reports that they refer to stay. A user object of the driver, which the graph owns,
// says when the graph and all that was instantiated from it are gone: the memory is then used by another capture, or
// freed.
//
//   capture 7, stream s    call 1    block A
//                          call 2    block A again: calls on one stream of one capture run one after the other
//   capture 8, stream s    call 3    block B, or A if the graph of capture 7 is gone
#pragma once
#include "runtime/cuda/memory.h"
#include "runtime/memory_account.h"
#include <set>

namespace tessera::cuda {

// The source of memory that only one call uses.
class CallMemory {
public:
  virtual ~CallMemory() = default;
  // At least `bytes`, aligned to kBlockAlignment, until the call ends and its stream has got there. `what`: for errors.
  // Error: OutOfMemory.
  [[nodiscard]] virtual Result<std::byte*> take(int64_t bytes, const char* what) = 0;
};

class CapturedCalls {
public:
  // Those of the context.
  [[nodiscard]] static Result<std::shared_ptr<CapturedCalls>> of(Context& context);
  explicit CapturedCalls(Context& context) : context_(context) {}
  ~CapturedCalls();
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;

  // The memory and code that the calls of one executor on one stream of a capture hold. Used by one thread at a time.
  class Holding final : public CallMemory {
  public:
    // Begins another call, which uses the memory of the calls before. The graph keeps the objects in `uses`.
    void begin(std::initializer_list<std::shared_ptr<const void>> uses);
    [[nodiscard]] Result<std::byte*> take(int64_t bytes, const char* what) override;
    void keep(std::shared_ptr<const void> what) { kept_.insert(std::move(what)); }

  private:
    friend class CapturedCalls;
    struct Block {
      CUdeviceptr address = 0;
      int64_t bytes = 0, used = 0; // used: by the present call
      std::shared_ptr<const void> counted;
    };
    explicit Holding(CapturedCalls& all) : all_(all) {}
    CapturedCalls& all_;
    uint64_t capture_ = 0;
    CUstream stream_ = nullptr;
    const void* owner_ = nullptr;
    std::shared_ptr<MemoryAccount> account_;
    std::vector<Block> blocks_;
    std::set<std::shared_ptr<const void>> kept_;
    std::shared_ptr<std::atomic<bool>> gone_; // true: the graph is, and all that was made of it
  };

  // `owner`: the executor. `account`: counts the memory. The context is current. Errors: DeviceError.
  [[nodiscard]] Result<std::shared_ptr<Holding>> holding(const Context::Capture& capture, CUstream stream,
                                                         const void* owner,
                                                         const std::shared_ptr<MemoryAccount>& account);
  // Frees what graphs that are gone held. The context is current, and nothing of it is being captured by this thread.
  void free_unused();

private:
  [[nodiscard]] Result<Holding::Block> block(int64_t bytes, const char* what, MemoryAccount& account);
  void collect(); // takes over the blocks of what is gone; the mutex is held

  Context& context_;
  std::atomic<size_t> holdings_count_ = 0; // free_unused() of those who capture nothing costs a load
  std::mutex mutex_;                       // of what follows
  std::vector<std::shared_ptr<Holding>> holdings_;
  std::vector<Holding::Block> unused_; // not counted
};

} // namespace tessera::cuda
