// Counts of a session of the C interface. Each context counts its own calls without a lock; the counts are summed when
// they are read.
#pragma once
#include "api/c.h"
#include "runtime/memory_account.h"
#include "runtime/run.h"
#include <array>
#include <mutex>
#include <set>

namespace tessera {

class ContextMetrics;

// Shared by the contexts of a session.
class SharedMetrics {
public:
  explicit SharedMetrics(std::shared_ptr<const MemoryAccount> memory) : memory_(std::move(memory)) {}
  // Adds the counts of contexts and the account's bytes; the session's own counts are left as they are.
  void add_to(tessera_metrics& metrics) const;
  [[nodiscard]] std::string last_miss() const; // empty: none

private:
  friend class ContextMetrics;
  std::shared_ptr<const MemoryAccount> memory_;
  mutable std::mutex mutex_;
  std::set<const ContextMetrics*> open_;
  tessera_metrics closed_{}; // what contexts have counted that are closed
  std::string last_miss_;
};

// Counts of one context; written by the thread that uses it, read by any.
class ContextMetrics {
public:
  explicit ContextMetrics(std::shared_ptr<SharedMetrics> shared);
  ~ContextMetrics();
  ContextMetrics(const ContextMetrics&) = delete;
  ContextMetrics& operator=(const ContextMetrics&) = delete;

  enum class Kind : uint8_t { Call, WarmUp, Sizes }; // Sizes: nothing was run
  void add(Kind kind, const RunStats& stats, bool ok, double us);
  [[nodiscard]] const std::shared_ptr<SharedMetrics>& shared() const { return shared_; }

private:
  friend class SharedMetrics;
  void add_to(tessera_metrics& metrics) const;
  using Counter = std::atomic<uint64_t>;
  static void count(Counter& counter, uint64_t by) { // there is one writer
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::shared_ptr<SharedMetrics> shared_;
  Counter calls_{0}, errors_{0}, warmups_{0}, new_shapes_{0}, guard_misses_{0}, latency_us_{0};
  std::array<Counter, TESSERA_LATENCY_BUCKETS> latency_{};
};

} // namespace tessera
