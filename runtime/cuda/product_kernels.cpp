#include "runtime/cuda/product_kernels.h"
#include "graph/support/guarded.h"
#include "graph/support/log.h"
#include "runtime/cuda/gemm_sizes.h"

namespace tessera::cuda {

Result<std::shared_ptr<ProductKernels>> ProductKernels::of(Context& context) {
  return context.attachment_of<ProductKernels>("kernels of products");
}

ProductKernels::~ProductKernels() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProductKernels::enter() {
  std::lock_guard lock(mutex_);
  ++users_;
}

void ProductKernels::leave() {
  std::unique_lock lock(mutex_);
  if (--users_ > 0) return;
  while (walks_.size() > (busy_ ? 1 : 0)) {
    begun_.erase(walks_.back().form);
    walks_.pop_back();
  }
  done_.wait(lock, [&] { return !busy_; });
}

void ProductKernels::begin(const std::string& form, int64_t near, const std::function<At()>& at) {
  {
    std::lock_guard lock(mutex_);
    if (!begun_.insert(form).second) return;
  }
  std::list<Walk> walk;
  walk.push_back({form, at(), near, size_below(near, kSizeParts)});
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  walks_.splice(walks_.end(), walk);
  more_.notify_one();
}

void ProductKernels::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return walks_.empty() && !busy_; });
}

void ProductKernels::work() {
  Context::Current current(context_);
  context_.keep_out_of_captures();
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return stop_ || !walks_.empty(); });
    if (stop_) break;
    busy_ = true;
    Walk& walk = walks_.front(); // stays in place: others are added behind it
    lock.unlock();
    const bool goes_on = step(walk);
    lock.lock();
    busy_ = false;
    if (goes_on && users_ > 0) {
      walks_.splice(walks_.end(), walks_, walks_.begin());
    } else {
      if (goes_on) begun_.erase(walk.form);
      walks_.pop_front();
    }
    done_.notify_all();
  }
  if (stream_) context_.driver().cuStreamDestroy(stream_);
}

bool ProductKernels::step(Walk& walk) {
  if (walk.up == 0 || walk.down == 0) walk.upwards = walk.up != 0;
  const int64_t columns = walk.upwards ? walk.up : walk.down;
  auto done = guarded("loading kernels of products", [&]() -> Result<std::optional<bool>> {
    if (!stream_)
      TESSERA_CUDA_TRY(context_, "loading kernels of products", cuStreamCreateWithPriority, &stream_,
                       CU_STREAM_NON_BLOCKING, 0);
    return walk.at(columns, stream_);
  });
  if (!done.ok()) {
    TESSERA_LOGF(LogChannel::Perf, "kernels of " + walk.form + " are not loaded beforehand: " + done.error().str());
    return false;
  }
  if (walk.upwards) {
    walk.nothing_new = done->value_or(false) ? 0 : walk.nothing_new + 1;
    walk.up = *done && walk.nothing_new < kSizeParts ? rounded_size(columns + 1, kSizeParts) : 0;
  } else {
    walk.down = size_below(columns, kSizeParts);
  }
  walk.upwards = !walk.upwards;
  return walk.up != 0 || walk.down != 0;
}

} // namespace tessera::cuda
