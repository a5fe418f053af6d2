#include "api/session/adaptive.h"
#include "base/fork.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include <chrono>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {

constexpr size_t kMaxSeen = 256; // combinations of sizes; when there are more, counts are halved and zeros forgotten
constexpr int kNice = 10;

class AdaptiveCompiles final : public BackgroundWork {
public:
  explicit AdaptiveCompiles(std::shared_ptr<VariantPool> pool) : pool_(std::move(pool)) {
    thread_ = std::thread([this] {
      // At low priority. (On Linux each thread has its own.)
      (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
      auto worked = guarded("compiling in the background", [this]() -> Status {
        work();
        return {};
      });
      std::lock_guard lock(mutex_);
      working_ = false;
      stopped_ = true; // calls continue
      changed_.notify_all();
    });
  }
  ~AdaptiveCompiles() override { stop(); }
  AdaptiveCompiles(const AdaptiveCompiles&) = delete;
  AdaptiveCompiles& operator=(const AdaptiveCompiles&) = delete;

  void begins() override {}
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values) override {
    if (!ran || symbols.empty() || !process_.here()) return;
    (void)guarded("counting a call", [&]() -> Status {
      std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock || stopped_) return {}; // another call will do
      Key key{ran.get(), {values.begin(), values.end()}};
      auto it = seen_.find(key);
      if (it == seen_.end()) {
        forget();
        Seen seen;
        seen.executable = ran;
        for (size_t i = 0; i < symbols.size(); ++i) seen.sizes[symbols[i].symbol_name()] = values[i];
        const auto variant = pool_->variant_with(*ran);
        seen.specialized = variant && variant->specialized;
        it = seen_.emplace(std::move(key), std::move(seen)).first;
      }
      Seen& seen = it->second;
      ++seen.calls;
      if (seen.specialized)
        pool_->used(*ran);
      else if (seen.wants())
        wake();
      return {};
    });
  }
  void stop() override {
    if (!process_.here()) return; // its thread is another process's
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
      wake();
    }
    if (thread_.joinable()) thread_.join();
  }
  void wait_idle() override {
    if (!process_.here()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || (!working_ && next() == nullptr); });
  }

private:
  void wake() {
    woken_ = true;
    changed_.notify_all();
  }

  struct Seen {
    std::shared_ptr<const Executable> executable;
    Sizes sizes;
    int64_t calls = 0;
    double loss_us = -1; // of a call; below 0: not predicted yet
    int64_t due = 0;     // calls that pay for a compile
    bool specialized = false, done = false;
    [[nodiscard]] bool priced() const { return loss_us >= 0; }
    // The first call of sizes requires nothing: most sizes may never come again.
    [[nodiscard]] bool wants() const { return !specialized && !done && (priced() ? calls >= due : calls > 1); }
  };
  using Key = std::pair<const Executable*, std::vector<int64_t>>;

  void forget() {
    while (seen_.size() >= kMaxSeen)
      for (auto it = seen_.begin(); it != seen_.end();)
        it = (it->second.calls /= 2) == 0 ? seen_.erase(it) : std::next(it);
  }

  // The sizes that were called most. The mutex is held.
  [[nodiscard]] Seen* next() {
    Seen* best = nullptr;
    for (auto& [key, seen] : seen_)
      if (seen.wants() && (!best || seen.calls > best->calls)) best = &seen;
    return best;
  }

  // A compile takes what those of this session took.
  [[nodiscard]] double compile_us() const {
    const CompileTotals totals = pool_->totals();
    return 1000 * totals.ms / static_cast<double>(std::max<int64_t>(1, totals.compiles));
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      Seen* const seen = next();
      if (!seen) {
        working_ = false;
        changed_.notify_all();
        woken_ = false;
        wait_outside(lock, changed_, [&] { return woken_ || stopped_; });
        continue;
      }
      working_ = true;
      const auto executable = seen->executable; // its entry may be forgotten
      const Sizes sizes = seen->sizes;
      Key key{executable.get(), {}};
      for (auto& [k, s] : seen_)
        if (&s == seen) key = k;
      const bool priced = seen->priced();
      if (priced) seen->done = true;
      lock.unlock();
      double loss = 0;
      int64_t due = 0;
      if (!priced) {
        loss = loss_us(*executable, sizes);
        if (loss > 0) due = static_cast<int64_t>(std::min(compile_us() / loss, 1e15)) + 1;
      } else {
        const Stopwatch watch;
        const bool compiled = pool_->compile_exact(sizes);
        const double rest = watch.seconds() * (1 / pool_->options().compile_share - 1);
        lock.lock();
        if (compiled) { // should it be evicted, its calls have to pay again
          seen_.erase(key);
          std::erase_if(seen_, [&](const auto& s) { return !pool_->variant_with(*s.second.executable); });
        }
        count_queued();
        wait_outside_for(lock, changed_, std::chrono::duration<double>(rest), [&] { return stopped_; });
        continue;
      }
      lock.lock();
      if (auto it = seen_.find(key); it != seen_.end()) {
        it->second.loss_us = loss;
        it->second.due = due;
        it->second.done = loss <= 0;
      }
      count_queued();
    }
  }

  void count_queued() {
    int64_t queued = 0;
    for (const auto& [key, seen] : seen_) queued += seen.priced() && seen.wants() ? 1 : 0;
    pool_->count_queued(queued);
  }

  [[nodiscard]] double loss_us(const Executable& executable, const Sizes& sizes) {
    if (pool_->options().predicted_loss_us) return pool_->options().predicted_loss_us(sizes);
    const auto variant = pool_->variant_with(executable);
    return variant ? pool_->source().loss_us(*variant, sizes) : 0;
  }

  const std::shared_ptr<VariantPool> pool_;
  std::mutex mutex_; // of the fields below; held briefly
  std::condition_variable changed_;
  bool woken_ = false;
  const OfProcess process_;
  std::map<Key, Seen> seen_;
  bool working_ = false, stopped_ = false;
  std::thread thread_;
};

class Several final : public BackgroundWork {
public:
  explicit Several(std::vector<std::shared_ptr<BackgroundWork>> all) : all_(std::move(all)) {}
  void begins() override {
    for (const auto& w : all_) w->begins();
  }
  void ended(const std::shared_ptr<const Executable>& ran, std::span<const SymExpr> symbols,
             std::span<const int64_t> values) override {
    for (const auto& w : all_) w->ended(ran, symbols, values);
  }
  void stop() override {
    for (const auto& w : all_) w->stop();
  }
  void wait_idle() override {
    for (const auto& w : all_) w->wait_idle();
  }

private:
  const std::vector<std::shared_ptr<BackgroundWork>> all_;
};

} // namespace

std::shared_ptr<BackgroundWork> compile_in_background(std::shared_ptr<VariantPool> pool) {
  return std::make_shared<AdaptiveCompiles>(std::move(pool));
}

std::shared_ptr<BackgroundWork> together(std::vector<std::shared_ptr<BackgroundWork>> all) {
  if (all.empty()) return nullptr;
  return all.size() == 1 ? all.front() : std::make_shared<Several>(std::move(all));
}

} // namespace tessera
