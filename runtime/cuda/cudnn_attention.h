// Fused attention by cuDNN's graph API: product, scale, bias, causal mask, softmax and product in one graph.
//
// The kernels are compiled by the library when a plan is made: half a second for the first of a kind, some 30 ms for
// each further shape. No call waits for that: plans are made on a thread of their own, for sizes that come again, and
// until one is ready its call is computed in steps (LibraryStep::instead_of). TESSERA_CUDNN_WAIT=1 waits instead, so that
// every call takes one route.
#pragma once
#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/library_attention.h"
#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>

namespace tessera::cuda {

// Tensors are identified by these numbers.
enum class AttentionRole : int64_t { Q = 1, K, V, Out, Bias, Scale, Hidden };
// The operations for a problem, and the tensors that they refer to. Needs no GPU.
[[nodiscard]] Result<OperationGraph> make_attention_graph(const Cudnn& library, const AttentionProblem& problem);

class AttentionEngines {
public:
  // Those of the context. Errors: as for Cudnn::of.
  [[nodiscard]] static Result<std::shared_ptr<AttentionEngines>> of(Context& context);
  AttentionEngines(Context& context, std::shared_ptr<Cudnn> library)
      : context_(context), library_(std::move(library)) {}
  ~AttentionEngines();
  AttentionEngines(const AttentionEngines&) = delete;
  AttentionEngines& operator=(const AttentionEngines&) = delete;

  struct Entry {
    enum class State : uint8_t { Making, Ready, Refused };
    std::atomic<State> state = State::Making; // what is below is complete when it is no longer Making
    std::shared_ptr<const ConvEngine> engine; // Ready
    std::string why;                          // Refused
  };
  // That of a problem; null where it was not requested yet, or has been forgotten since.
  [[nodiscard]] std::shared_ptr<const Entry> known(const AttentionProblem& problem);
  // With `wait` engine(), without known().
  [[nodiscard]] std::shared_ptr<const Entry> known_or_made(const AttentionProblem& problem, bool wait);
  // The engine of a problem; the first request has it made. `wait`: until it is made.
  [[nodiscard]] std::shared_ptr<const Entry> engine(const AttentionProblem& problem, bool wait);
  [[nodiscard]] double mean_ms() const; // that making an engine took; 0 where none was made
  // Until all that were requested are made.
  void wait();
  // Until none is being made: what has not been begun is refused, and made at the next request. For the end of
  // an executor: a process must not end while the library compiles.
  void finish();
  [[nodiscard]] const std::shared_ptr<Cudnn>& library() const { return library_; }

private:
  struct Job {
    AttentionProblem problem;
    std::shared_ptr<Entry> entry;
  };
  [[nodiscard]] bool waits(bool requested) const { return requested || library_->wait_for_plans; }
  void work();
  void make(const Job& job, cudnnHandle_t handle) const;

  Context& context_;
  std::shared_ptr<Cudnn> library_;
  mutable std::mutex mutex_;
  std::condition_variable more_, done_;
  struct Kept {
    std::shared_ptr<Entry> entry;
    uint64_t used = 0; // at which request
  };
  static constexpr size_t kMax = 256; // kept beyond those that plans hold
  void make_room();
  std::map<std::string, Kept> entries_;
  uint64_t requests_ = 0;
  std::deque<Job> jobs_;
  size_t open_ = 0; // jobs that are not done, and the start of the thread
  int64_t made_ = 0;
  double made_ms_ = 0;
  bool stop_ = false;
  std::thread thread_; // started by the first job
};

} // namespace tessera::cuda
