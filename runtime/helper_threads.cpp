#include "runtime/helper_threads.h"
#include "base/fork.h"
#include "base/limits.h"
#include "base/log.h"
#include "runtime/float_mode.h"
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {
namespace {

struct Work {
  const std::function<void(int)>& help;
  const int count;
  int begun = 0;               // of the helpers
  std::atomic<int> at_work{0}; // of these, those that are not done
  Work* next = nullptr;        // that waits for helpers
};

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// A while awake costs less than being woken, and what is waited for often follows at once: a quarter of a millisecond of
// pauses at most, then yields. False: it did not come.
template <class Condition>
bool awaited(const Condition& condition) {
  constexpr int kSpins = 4000, kYields = 200;
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (condition()) return true;
    if (i < kSpins)
      relax();
    else
      std::this_thread::yield();
  }
  return condition();
}

class HelperThreads {
public:
  void run(int count, const std::function<void(int)>& help, const std::function<void()>& body) {
    Work work{help, count};
    int woken = 0;
    {
      const std::lock_guard lock(mutex_);
      grow(count);
      *last_ = &work;
      last_ = &work.next;
      wanted_.fetch_add(count, std::memory_order_release);
      woken = std::min(asleep_, count - lingering_);
    }
    for (int i = 0; i < woken; ++i) wanted_.notify_one();
    body();
    {
      const std::lock_guard lock(mutex_);
      if (work.begun < count) {
        wanted_.fetch_sub(count - work.begun, std::memory_order_relaxed);
        take_out(work);
      }
    }
    const auto done = [&] { return work.at_work.load(std::memory_order_acquire) == 0; };
    if (awaited(done)) return;
    std::unique_lock lock(mutex_);
    ++waiting_;
    done_.wait(lock, done);
    --waiting_;
  }

private:
  void grow(int count) {
    try {
      for (; threads_ < count && !no_more_; ++threads_) std::thread([this] { serve(); }).detach();
    } catch (const std::system_error& e) {
      no_more_ = true;
      std::string text =
          std::string("no more threads can be started (") + e.what() + "), " + std::to_string(threads_ + 1) + " work";
      for (const std::string& note : limit_notes(true)) text += "; " + note;
      log_write(LogChannel::Warnings, text);
    }
  }
  void take_out(Work& work) {
    Work** at = &first_;
    while (*at != &work) at = &(*at)->next;
    *at = work.next;
    if (last_ == &work.next) last_ = at;
  }

  void serve() {
    FloatMode::standard().set(); // not that of the thread that started this one
    std::unique_lock lock(mutex_);
    while (true) {
      while (!first_) {
        ++lingering_;
        lock.unlock();
        const bool soon = awaited([&] { return wanted_.load(std::memory_order_acquire) > 0; });
        lock.lock();
        --lingering_;
        if (soon || first_) continue;
        ++asleep_;
        lock.unlock();
        wanted_.wait(0, std::memory_order_acquire);
        lock.lock();
        --asleep_;
      }
      Work& work = *first_;
      const int number = ++work.begun;
      work.at_work.fetch_add(1, std::memory_order_relaxed);
      wanted_.fetch_sub(1, std::memory_order_relaxed);
      if (number == work.count) take_out(work);
      lock.unlock();
      work.help(number);
      const bool last = work.at_work.fetch_sub(1, std::memory_order_acq_rel) == 1; // now it may be gone
      lock.lock();
      if (last && waiting_ > 0) done_.notify_all();
    }
  }

  std::mutex mutex_; // of what follows
  std::condition_variable done_;
  Work* first_ = nullptr; // of those with helpers that have not begun
  Work** last_ = &first_;
  int threads_ = 0, lingering_ = 0, asleep_ = 0, waiting_ = 0;
  bool no_more_ = false;
  std::atomic<int> wanted_{0}; // helpers that have not begun
};

// The helper threads live as long as the process: they are not waited for when that ends.
HelperThreads& helper_threads() {
  struct Made {
    HelperThreads* threads;
    uint32_t generation;
  };
  static std::atomic<Made*> made{nullptr};
  Made* now = made.load(std::memory_order_acquire);
  while (!now || now->generation != fork_generation()) {
    auto* fresh = new Made{new HelperThreads, fork_generation()};
    if (made.compare_exchange_strong(now, fresh)) return *fresh->threads;
    delete fresh->threads;
    delete fresh;
  }
  return *now->threads;
}

} // namespace

void with_helpers(int count, const std::function<void(int)>& help, const std::function<void()>& body) {
  if (count <= 0) return body();
  helper_threads().run(count, help, body);
}

} // namespace tessera
