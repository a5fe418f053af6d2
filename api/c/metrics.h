// Counts of a session of the C interface. Each context counts its own calls without a lock; the counts are summed when
// they are read.
#pragma once
#include "api/c.h"
#include "runtime/memory_account.h"
#include "runtime/run.h"
#include <mutex>
#include <set>

namespace tessera {

class ContextMetrics;

// Shared by the contexts of a session.
class SharedMetrics {
public:
  explicit SharedMetrics(std::shared_ptr<const MemoryAccount> memory) : memory_(std::move(memory)) {}
  // Adds the counts of contexts and the account's bytes; the session's own counts are left as they are.
  void add_to(tessera_metrics& metrics);
  [[nodiscard]] std::string last_miss() const; // empty: none

private:
  friend class ContextMetrics;
  std::shared_ptr<const MemoryAccount> memory_;
  mutable std::mutex mutex_;
  std::set<ContextMetrics*> open_;
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
  std::shared_ptr<SharedMetrics> shared_;
  tessera_metrics counts_{}; // of calls; the other fields stay 0. Each is read and written by atomic_ref
};

} // namespace tessera
