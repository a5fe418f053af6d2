// Loads kernels of cuBLASLt before a call needs them, and queries the library for the exact sizes of calls that repeat.
//
// CUDA loads a kernel when it is first launched, which takes milliseconds. A model whose sizes vary from call to call needs
// new ones for a long time. So the first product of a form, such as f16 [n, 768] x [768, 3072] with n varying, begins a
// preload: a thread of the context queries the library's choices for other n, from the grid of gemm_sizes.h that calls
// choose from, and launches each new kernel in memory that nobody reads, which an executor whose memory has a limit does
// without. (A capture would load it, too, but whoever waits for the whole device meanwhile gets an error.) No choice
// becomes another one. Queries come when all preloads have ended: their calls have a kernel meanwhile.
//
// While the library loads a kernel, it launches none on any thread. So work is done where no call is being submitted: in
// between, or while the caller waits for the GPU. Where calls leave no gap, it takes a share of the time.
//
//   first call n = 300     320, 352, 288, 384, 256, ...     downwards to 1; upwards until eight sizes in a row, which is
//                                                           one doubling, have brought no new kernel
#pragma once
#include "runtime/cuda/context.h"
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <thread>

namespace tessera::cuda {

class ProductKernels {
public:
  // Products that differ in their columns alone. What it does is done on one thread, with the context current; the
  // stream is the thread's.
  class Form {
  public:
    virtual ~Form() = default;
    // Makes the product of so many columns ready. True if that took a kernel which the form had not taken before.
    // Nothing where the GPU has no room for such a product.
    virtual Result<std::optional<bool>> make_ready(int64_t columns, CUstream stream) = 0;
  };
  // Does a part of its work, as much as one call may be kept waiting for. True where there is more. Likewise.
  using Query = std::function<bool(CUstream stream)>;
  static constexpr size_t kMaxQueries = 64; // that wait
  // Where calls leave no gap, the thread pauses for so many times as long as its last piece of work took.
  static constexpr double kPauseRatio = 1;

  // While it lives, a call is being planned or submitted.
  class Submission {
  public:
    explicit Submission(ProductKernels& kernels) : kernels_(kernels) { kernels_.begin_submission(); }
    ~Submission() { kernels_.end_submission(); }
    Submission(const Submission&) = delete;
    Submission& operator=(const Submission&) = delete;

  private:
    ProductKernels& kernels_;
  };
  // Inside of one: the call waits.
  class Gap {
  public:
    explicit Gap(ProductKernels& kernels) : kernels_(kernels) { kernels_.end_submission(); }
    ~Gap() { kernels_.begin_submission(); }
    Gap(const Gap&) = delete;
    Gap& operator=(const Gap&) = delete;

  private:
    ProductKernels& kernels_;
  };

  // Those of the context.
  [[nodiscard]] static Result<std::shared_ptr<ProductKernels>> of(Context& context);
  explicit ProductKernels(Context& context, double pause_ratio = kPauseRatio)
      : context_(context), pause_ratio_(pause_ratio) {}
  ~ProductKernels();
  ProductKernels(const ProductKernels&) = delete;
  ProductKernels& operator=(const ProductKernels&) = delete;

  // Whoever runs products, between these two. The last one that leaves gives up what has not been done, and waits for
  // what is being done: a process must not end while a kernel is loaded.
  void enter();
  void leave();
  // The form of this name. Where there is none, it is made, and its preload begins at `near`, a size of the grid.
  std::shared_ptr<Form> form(const std::string& name, int64_t near, const std::function<std::shared_ptr<Form>()>& make);
  // Adds a query. False where kMaxQueries wait.
  [[nodiscard]] bool add_query(Query query);
  // Waits until all preloads and queries have ended.
  void wait();

private:
  struct Preload {
    std::string name;
    std::shared_ptr<Form> form;
    int64_t up = 0, down = 0; // the next sizes; 0: none
    bool upwards = true;
    int nothing_new = 0; // upwards, in a row
  };
  void work();
  void start_thread();
  [[nodiscard]] bool run_query(const Query& query); // a part
  [[nodiscard]] bool load_next(Preload& preload);   // false: it has ended
  void begin_submission() { submissions_.fetch_add(1); }
  void end_submission();
  void await_gap(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Status make_stream();

  Context& context_;
  const double pause_ratio_;
  CUstream stream_ = nullptr; // of the thread
  std::mutex mutex_;          // of what follows
  std::condition_variable more_, done_, gap_;
  std::map<std::string, std::shared_ptr<Form>> forms_;
  std::list<Preload> preloads_; // in turn, so that the nearest sizes of all come first
  std::deque<Query> queries_;
  int users_ = 0;
  bool busy_ = false, stop_ = false;
  double last_work_ms_ = 0; // duration of the last piece of work
  std::atomic<int> submissions_ = 0;
  std::atomic<bool> awaits_gap_ = false;
  std::thread thread_; // started by the first form or query
};

} // namespace tessera::cuda
