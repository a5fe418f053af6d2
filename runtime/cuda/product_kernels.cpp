#include "runtime/cuda/product_kernels.h"
#include "graph/support/guarded.h"
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
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
  questions_.clear();
  for (const Walk& walk : walks_) forms_.erase(walk.name);
  walks_.clear();
  gap_.notify_all();
  done_.wait(lock, [&] { return !busy_; });
}

std::shared_ptr<ProductKernels::Form> ProductKernels::form(const std::string& name, int64_t near,
                                                           const std::function<std::shared_ptr<Form>()>& make) {
  std::lock_guard lock(mutex_);
  if (const auto found = forms_.find(name); found != forms_.end()) return found->second;
  std::list<Walk> walk;
  walk.push_back({name, make(), near, size_below(near, kSizeParts)});
  start_thread();
  const auto& form = forms_.emplace(name, walk.front().form).first->second;
  walks_.splice(walks_.end(), walk);
  more_.notify_one();
  return form;
}

bool ProductKernels::ask(Question question) {
  std::lock_guard lock(mutex_);
  if (questions_.size() >= kMostQuestions) return false;
  start_thread();
  questions_.push_back(std::move(question));
  more_.notify_one();
  return true;
}

void ProductKernels::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return walks_.empty() && questions_.empty() && !busy_; });
}

void ProductKernels::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
}

void ProductKernels::work() {
  Context::Current current(context_);
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return stop_ || !walks_.empty() || !questions_.empty(); });
    await_gap(lock);
    if (stop_) break;
    if (walks_.empty() && questions_.empty()) continue;
    busy_ = true;
    const Stopwatch watch;
    if (walks_.empty()) {
      Question question = std::move(questions_.front());
      questions_.pop_front();
      lock.unlock();
      const bool more = answer(question);
      if (!more) question = nullptr; // what it holds goes before the one that waits for it
      lock.lock();
      if (more && users_ > 0) questions_.push_front(std::move(question));
    } else {
      std::list<Walk> walk;
      walk.splice(walk.end(), walks_, walks_.begin());
      lock.unlock();
      const bool goes_on = step(walk.front());
      lock.lock();
      if (goes_on && users_ > 0)
        walks_.splice(walks_.end(), walk);
      else if (goes_on)
        forms_.erase(walk.front().name);
    }
    disturbed_ms_ = watch.ms();
    busy_ = false;
    done_.notify_all();
  }
  if (stream_) context_.driver().cuStreamDestroy(stream_);
}

void ProductKernels::await_gap(std::unique_lock<std::mutex>& lock) {
  const auto longest = std::chrono::duration<double, std::milli>(patience_ * disturbed_ms_);
  awaits_gap_ = true;
  gap_.wait_for(lock, longest, [&] { return stop_ || submissions_ == 0 || (walks_.empty() && questions_.empty()); });
  awaits_gap_ = false;
}

Status ProductKernels::make_stream() {
  if (!stream_)
    TESSERA_CUDA_TRY(context_, "loading kernels of products", cuStreamCreateWithPriority, &stream_,
                     CU_STREAM_NON_BLOCKING, 0);
  return {};
}

bool ProductKernels::answer(const Question& question) {
  const auto more = guarded("asking for products", [&]() -> Result<bool> {
    TESSERA_TRY(make_stream());
    return question(stream_);
  });
  if (!more.ok())
    TESSERA_LOGF(LogChannel::Perf, "products keep the algorithms of sizes near theirs: " + more.error().str());
  return more.ok() && *more;
}

bool ProductKernels::step(Walk& walk) {
  if (walk.up == 0 || walk.down == 0) walk.upwards = walk.up != 0;
  const int64_t columns = walk.upwards ? walk.up : walk.down;
  auto done = guarded("loading kernels of products", [&]() -> Result<std::optional<bool>> {
    TESSERA_TRY(make_stream());
    return walk.form->make_ready(columns, stream_);
  });
  if (!done.ok()) {
    TESSERA_LOGF(LogChannel::Perf, "kernels of " + walk.name + " are not loaded beforehand: " + done.error().str());
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
