#include "runtime/cuda/product_kernels.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
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
  gap_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProductKernels::end_submission() {
  if (submissions_.fetch_sub(1) > 1 || !awaits_gap_) return;
  std::lock_guard lock(mutex_);
  gap_.notify_all();
}

void ProductKernels::enter() {
  std::lock_guard lock(mutex_);
  ++users_;
}

void ProductKernels::leave() {
  std::unique_lock lock(mutex_);
  if (--users_ > 0) return;
  queries_.clear();
  for (const Preload& preload : preloads_) forms_.erase(preload.name);
  preloads_.clear();
  gap_.notify_all();
  done_.wait(lock, [&] { return !busy_; });
}

std::shared_ptr<ProductKernels::Form> ProductKernels::form(const std::string& name, int64_t near,
                                                           const std::function<std::shared_ptr<Form>()>& make) {
  std::lock_guard lock(mutex_);
  if (const auto found = forms_.find(name); found != forms_.end()) return found->second;
  std::list<Preload> preload;
  preload.push_back({name, make(), near, size_below(near, kSizeParts)});
  start_thread();
  const auto& form = forms_.emplace(name, preload.front().form).first->second;
  preloads_.splice(preloads_.end(), preload);
  more_.notify_one();
  return form;
}

bool ProductKernels::add_query(Query query) {
  std::lock_guard lock(mutex_);
  if (queries_.size() >= kMaxQueries) return false;
  start_thread();
  queries_.push_back(std::move(query));
  more_.notify_one();
  return true;
}

void ProductKernels::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return preloads_.empty() && queries_.empty() && !busy_; });
}

void ProductKernels::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void ProductKernels::work() {
  Context::Current current(context_);
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return stop_ || !preloads_.empty() || !queries_.empty(); });
    await_gap(lock);
    if (stop_) break;
    if (preloads_.empty() && queries_.empty()) continue;
    busy_ = true;
    const Stopwatch watch;
    if (preloads_.empty()) {
      Query query = std::move(queries_.front());
      queries_.pop_front();
      lock.unlock();
      const bool more = run_query(query);
      if (!more) query = nullptr; // what it holds goes before the one that waits for it
      lock.lock();
      if (more && users_ > 0) queries_.push_front(std::move(query));
    } else {
      std::list<Preload> preload;
      preload.splice(preload.end(), preloads_, preloads_.begin());
      lock.unlock();
      const bool goes_on = load_next(preload.front());
      lock.lock();
      if (goes_on && users_ > 0)
        preloads_.splice(preloads_.end(), preload);
      else if (goes_on)
        forms_.erase(preload.front().name);
    }
    last_work_ms_ = watch.ms();
    busy_ = false;
    done_.notify_all();
  }
  if (stream_) context_.driver().cuStreamDestroy(stream_);
}

void ProductKernels::await_gap(std::unique_lock<std::mutex>& lock) {
  const auto longest = std::chrono::duration<double, std::milli>(pause_ratio_ * last_work_ms_);
  awaits_gap_ = true;
  gap_.wait_for(lock, longest, [&] { return stop_ || submissions_ == 0 || (preloads_.empty() && queries_.empty()); });
  awaits_gap_ = false;
}

Status ProductKernels::make_stream() {
  if (!stream_)
    TESSERA_CUDA_TRY(context_, "loading kernels of products", cuStreamCreateWithPriority, &stream_,
                     CU_STREAM_NON_BLOCKING, 0);
  return {};
}

bool ProductKernels::run_query(const Query& query) {
  const auto more = guarded("querying products", [&]() -> Result<bool> {
    TESSERA_TRY(make_stream());
    return query(stream_);
  });
  if (!more.ok())
    TESSERA_LOGF(LogChannel::Perf, "products keep the algorithms of sizes near theirs: " + more.error().str());
  return more.ok() && *more;
}

bool ProductKernels::load_next(Preload& preload) {
  if (preload.up == 0 || preload.down == 0) preload.upwards = preload.up != 0;
  const int64_t columns = preload.upwards ? preload.up : preload.down;
  auto done = guarded("loading kernels of products", [&]() -> Result<std::optional<bool>> {
    TESSERA_TRY(make_stream());
    return preload.form->make_ready(columns, stream_);
  });
  if (!done.ok()) {
    TESSERA_LOGF(LogChannel::Perf, "kernels of " + preload.name + " are not loaded beforehand: " + done.error().str());
    return false;
  }
  if (preload.upwards) {
    preload.nothing_new = done->value_or(false) ? 0 : preload.nothing_new + 1;
    preload.up = *done && preload.nothing_new < kSizeParts ? rounded_size(columns + 1, kSizeParts) : 0;
  } else {
    preload.down = size_below(columns, kSizeParts);
  }
  preload.upwards = !preload.upwards;
  return preload.up != 0 || preload.down != 0;
}

} // namespace tessera::cuda
