// Loads kernels of cuBLASLt before a call needs them.
//
// CUDA loads a kernel when it is first launched, which takes milliseconds. A model whose sizes vary from call to call meets
// others for a long time. So the first product of a form, such as f16 [n, 768] x [768, 3072] with n varying, begins a walk:
// on a thread of the context the library's choices for other n are found out, from the grid of gemm_sizes.h that calls
// choose from, and each new kernel is launched in memory that nobody reads, which an executor whose memory has a limit
// does without. (A capture would load it, too, but who waits for the whole device meanwhile gets an error.) No choice
// becomes another one.
//
//   first call n = 300     320, 352, 288, 384, 256, ...     downwards to 1; upwards until eight sizes in a row, which is
//                                                           one doubling, have brought no new kernel
#pragma once
#include "runtime/cuda/context.h"
#include <condition_variable>
#include <list>
#include <set>
#include <thread>

namespace tessera::cuda {

class ProductKernels {
public:
  // Makes the product of so many columns ready. True if that took a kernel which the form had not taken before; the
  // stream is the thread's. Nothing where the GPU has no room for such a product.
  using At = std::function<Result<std::optional<bool>>(int64_t columns, CUstream stream)>;

  // Those of the context.
  [[nodiscard]] static Result<std::shared_ptr<ProductKernels>> of(Context& context);
  explicit ProductKernels(Context& context) : context_(context) {}
  ~ProductKernels();
  ProductKernels(const ProductKernels&) = delete;
  ProductKernels& operator=(const ProductKernels&) = delete;

  // Whoever runs products, between these two. The last one that leaves gives up what has not been done, and waits for
  // what is being done: a process must not end while a kernel is loaded.
  void enter();
  void leave();
  // Begins the form's walk at `near`, a size of the grid, unless it has been begun. `at` is called on one thread, with
  // the context current.
  void begin(const std::string& form, int64_t near, const std::function<At()>& at);
  // Until all walks have ended.
  void wait();

private:
  struct Walk {
    std::string form;
    At at;
    int64_t up = 0, down = 0; // the next sizes; 0: none
    bool upwards = true;
    int nothing_new = 0; // upwards, in a row
  };
  void work();
  [[nodiscard]] bool step(Walk& walk); // false: it has ended

  Context& context_;
  CUstream stream_ = nullptr; // of the thread
  std::mutex mutex_;          // of what follows
  std::condition_variable more_, done_;
  std::set<std::string> begun_;
  std::list<Walk> walks_; // in turn, so that the nearest sizes of all come first; the first one is made while busy_
  int users_ = 0;
  bool busy_ = false, stop_ = false;
  std::thread thread_; // started by the first walk
};

} // namespace tessera::cuda
