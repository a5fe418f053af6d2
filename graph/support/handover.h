// oneTBB hands work to threads and waits for them; the thread sanitizer does not see into its library. So each handing
// over is said once more with an atomic (Handover), which costs a few nanoseconds a loop; what reads a task's own
// captures, before that, is left out of the check (TESSERA_UNSEEN).
#pragma once
#include <atomic>

#if defined(__SANITIZE_THREAD__)
#define TESSERA_UNSEEN __attribute__((no_sanitize_thread, noinline))
#else
#define TESSERA_UNSEEN
#endif

namespace tessera {

struct Handover {
  std::atomic<int> count{0};
  void give() { count.fetch_add(1, std::memory_order_acq_rel); }
  void take() const { (void)count.load(std::memory_order_acquire); }
};

} // namespace tessera
