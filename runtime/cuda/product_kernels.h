// Loads kernels of cuBLASLt before a call needs them, and asks the library for sizes that come again.
//
// CUDA loads a kernel when it is first launched, which takes milliseconds. A model whose sizes vary from call to call meets
// others for a long time. So the first product of a form, such as f16 [n, 768] x [768, 3072] with n varying, begins a walk:
// on a thread of the context the library's choices for other n are found out, from the grid of gemm_sizes.h that calls
// choose from, and each new kernel is launched in memory that nobody reads, which an executor whose memory has a limit
// does without. (A capture would load it, too, but who waits for the whole device meanwhile gets an error.) No choice
// becomes another one. Questions come when all walks have ended: who asks has a kernel meanwhile.
//
// While the library loads a kernel, it launches none, whoever asks. So work is done where no call is being submitted: in
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
  using Question = std::function<bool(CUstream stream)>;
  static constexpr size_t kMostQuestions = 64; // that wait
  // Calls without a gap are disturbed again when so many times as long has passed as the last disturbance took.
  static constexpr double kPatience = 1;

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
  explicit ProductKernels(Context& context, double patience = kPatience) : context_(context), patience_(patience) {}
  ~ProductKernels();
  ProductKernels(const ProductKernels&) = delete;
  ProductKernels& operator=(const ProductKernels&) = delete;

  // Whoever runs products, between these two. The last one that leaves gives up what has not been done, and waits for
  // what is being done: a process must not end while a kernel is loaded.
  void enter();
  void leave();
  // The form of this name. Where there is none, it is made, and its walk begun at `near`, a size of the grid.
  std::shared_ptr<Form> form(const std::string& name, int64_t near, const std::function<std::shared_ptr<Form>()>& make);
  // False where too many wait.
  [[nodiscard]] bool ask(Question question);
  // Until all walks have ended, and all questions.
  void wait();

private:
  struct Walk {
    std::string name;
    std::shared_ptr<Form> form;
    int64_t up = 0, down = 0; // the next sizes; 0: none
    bool upwards = true;
    int nothing_new = 0; // upwards, in a row
  };
  void work();
  void start_thread();
  [[nodiscard]] bool answer(const Question& question); // a part
  [[nodiscard]] bool step(Walk& walk);                 // false: it has ended
  void begin_submission() { submissions_.fetch_add(1); }
  void end_submission();
  void await_gap(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] Status make_stream();

  Context& context_;
  const double patience_;
  CUstream stream_ = nullptr; // of the thread
  std::mutex mutex_;          // of what follows
  std::condition_variable more_, done_, gap_;
  std::map<std::string, std::shared_ptr<Form>> forms_;
  std::list<Walk> walks_; // in turn, so that the nearest sizes of all come first
  std::deque<Question> questions_;
  int users_ = 0;
  bool busy_ = false, stop_ = false;
  double disturbed_ms_ = 0; // by what was done last
  std::atomic<int> submissions_ = 0;
  std::atomic<bool> awaits_gap_ = false;
  std::thread thread_; // started by the first form or question
};

} // namespace tessera::cuda
