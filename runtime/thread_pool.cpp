// The pool hands out chunks of one loop at a time. A region (one run of an executor) takes its helpers once and
// keeps them at hand, so that a loop inside costs well under a microsecond to start: a helper spins on the region's epoch
// for a while, then yields, then sleeps. Every worker first takes the chunks of its own share of [0, n):
// the same rows fall to the same core in every loop, so what one kernel wrote is still in that core's cache when the
// next one reads it. A worker that is done takes chunks of the others' shares; one that never arrives (busy elsewhere)
// is not waited for.
//
// A body that throws ends its loop, not the pool: the chunks that have not begun are left out, and the exception goes
// on in the loop's caller once no helper is inside. A region that is left by an exception lets its helpers go first.
#include "base/guarded.h"
#include "base/processors.h"
#include "runtime/executor.h"
#include "runtime/float_mode.h"
#include "runtime/helper_threads.h"
#include "runtime/single_thread_openmp.h"
#include <algorithm>
#include <atomic>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

using Body = std::function<void(int64_t, int64_t, int)>;

// One loop in flight. Written by the owner while no helper is inside, read by helpers after they have entered.
struct Region {
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  const Body* body = nullptr;
  int64_t chunk = 1;
  std::vector<Share> shares;
  alignas(64) std::atomic<uint64_t> epoch{0}; // odd: a loop is open
  alignas(64) std::atomic<int> inside{0};     // helpers that work on the open loop
  alignas(64) std::atomic<int> asleep{0};
  std::atomic<bool> closed{false};
  FirstException failure; // of the open loop
  FloatMode mode;         // of the thread that entered the region

  explicit Region(int threads) : shares(static_cast<size_t>(threads)) {}

  void work(int worker) noexcept {
    failure.run([&] {
      auto n = shares.size();
      for (size_t k = 0; k < n; ++k) {
        auto& share = shares[(static_cast<size_t>(worker) + k) % n];
        while (!failure.thrown()) {
          if (share.next.load(std::memory_order_relaxed) >= share.end) break;
          int64_t begin = share.next.fetch_add(chunk, std::memory_order_relaxed);
          if (begin >= share.end) break;
          (*body)(begin, std::min(begin + chunk, share.end), worker);
        }
      }
    });
  }

  void helper(int worker) noexcept;
  void loop(int64_t n, int64_t grain, const Body& b);
  void close() {
    closed.store(true);
    epoch.fetch_add(2);
    epoch.notify_all();
  }
};

struct Current {
  const void* pool = nullptr;
  Region* region = nullptr;
  int worker = 0;
  bool in_loop = false;
};
thread_local Current current;

// Sets, in a scope, the work that this thread does.
class Now {
public:
  explicit Now(Current now) : before_(current) { current = now; }
  ~Now() { current = before_; }
  Now(const Now&) = delete;
  Now& operator=(const Now&) = delete;

private:
  Current before_;
};

void Region::helper(int worker) noexcept {
  SingleThreadOpenMP omp;
  WithFloatMode as_its_owner(mode);
  Now now_helping({nullptr, this, worker, true});
  uint64_t seen = 0;
  for (;;) {
    // The epoch first: close() sets `closed` and then moves the epoch on, so that sleeping on a value read before the
    // flag was seen clear always ends.
    uint64_t now = epoch.load(std::memory_order_acquire);
    if (closed.load(std::memory_order_acquire)) break;
    if ((now & 1) && now != seen) {
      // Enter, then look again: the owner closes the loop first and then waits until nobody is inside.
      inside.fetch_add(1);
      if (epoch.load() == now) work(worker);
      inside.fetch_sub(1, std::memory_order_release);
      seen = now;
      continue;
    }
    int spins = 0;
    constexpr int kSpins = 4000, kYields = 200; // a quarter of a millisecond of pauses at most, then yields
    while (epoch.load(std::memory_order_acquire) == now && spins < kSpins + kYields) {
      if (spins++ < kSpins)
        relax();
      else
        std::this_thread::yield();
    }
    if (spins >= kSpins + kYields) {
      asleep.fetch_add(1);
      epoch.wait(now);
      asleep.fetch_sub(1);
    }
  }
}

void Region::loop(int64_t n, int64_t grain, const Body& b) {
  auto threads = static_cast<int64_t>(shares.size());
  body = &b;
  chunk = std::max(grain, (n + threads * 4 - 1) / (threads * 4));
  int64_t chunks = (n + chunk - 1) / chunk, at = 0;
  for (int64_t t = 0; t < threads; ++t) { // shares are whole numbers of chunks, as equal as can be
    int64_t end = std::min(n, (chunks * (t + 1) / threads) * chunk);
    shares[static_cast<size_t>(t)].next.store(at, std::memory_order_relaxed);
    shares[static_cast<size_t>(t)].end = end;
    at = end;
  }
  epoch.fetch_add(1);
  if (asleep.load() > 0) epoch.notify_all();
  current.in_loop = true;
  work(0);
  current.in_loop = false;
  epoch.fetch_add(1);
  // A helper that was put to sleep in its chunk may need this very core to go on.
  for (int spins = 0; inside.load() != 0; ++spins) {
    if (spins < 4000)
      relax();
    else
      std::this_thread::yield();
  }
  failure.rethrow();
}

class HelperPool final : public ThreadPool {
public:
  explicit HelperPool(int threads) : threads_(threads) {}
  [[nodiscard]] int threads() const override { return threads_; }

  void parallel_for(int64_t n, int64_t grain, const Body& body) override {
    if (n <= 0) return;
    grain = std::max<int64_t>(grain, 1);
    if (current.in_loop) return body(0, n, current.worker); // nested: the other workers are busy with the outer loop
    if (threads_ == 1 || n <= grain) {
      SingleThreadOpenMP omp;
      Now in_loop({current.pool, current.region, current.worker, true});
      return body(0, n, 0);
    }
    if (current.pool == this) return current.region->loop(n, grain, body);
    region([&] { current.region->loop(n, grain, body); });
  }

  void region(const std::function<void()>& body) override {
    SingleThreadOpenMP omp;
    if (threads_ == 1 || current.pool == this || current.in_loop) return body();
    thread_local std::unique_ptr<Region> spare; // a region is opened on every run: its memory is kept
    auto region = std::move(spare);
    if (!region || region->shares.size() != static_cast<size_t>(threads_)) region = std::make_unique<Region>(threads_);
    region->closed.store(false);
    region->mode = FloatMode::here();
    FirstException failure;
    auto inside = [&] {
      failure.run([&] {
        Now now({this, region.get(), 0, false});
        body();
      });
      region->close(); // helpers wait in it until then
    };
    with_helpers(
        threads_ - 1, [at = region.get()](int worker) { at->helper(worker); }, std::ref(inside));
    spare = std::move(region);
    failure.rethrow();
  }

private:
  const int threads_;
};

} // namespace

std::shared_ptr<ThreadPool> ThreadPool::create(int threads) {
  return std::make_shared<HelperPool>(std::clamp(threads > 0 ? threads : usable_processors(), 1, 1024));
}

} // namespace tessera
