#include "base/fork.h"
#include <atomic>
#include <chrono>
#include <pthread.h>
#include <thread>

namespace tessera {
namespace {

// One for each thread that has been inside; those of threads that ended are taken again.
struct Slot {
  std::atomic<bool> inside{false}, taken{true};
  Slot* next = nullptr;
};
std::atomic<Slot*> slots{nullptr};
std::atomic<int> forking{0};
std::atomic<uint32_t> generation{0};
std::atomic<bool> refused{false};
bool quiet = false; // by the thread that forks, from prepare() to child()

struct Mine {
  Slot* slot = nullptr;
  int depth = 0;
  ~Mine() {
    if (slot) slot->taken.store(false, std::memory_order_release);
    slot = nullptr;
    depth = 1 << 20; // what destructors of the thread still do is not counted
  }
};
thread_local Mine mine;

Slot& own_slot() {
  if (mine.slot) return *mine.slot;
  for (Slot* s = slots.load(std::memory_order_acquire); s; s = s->next)
    if (bool is_free = false; s->taken.compare_exchange_strong(is_free, true)) return *(mine.slot = s);
  auto* made = new Slot; // as long as the process
  made->next = slots.load(std::memory_order_relaxed);
  while (!slots.compare_exchange_weak(made->next, made)) {
  }
  return *(mine.slot = made);
}

void enter(Slot& slot) {
  while (true) {
    slot.inside.store(true, std::memory_order_seq_cst);
    if (forking.load(std::memory_order_seq_cst) == 0) return;
    slot.inside.store(false, std::memory_order_release);
    forking.wait(1);
  }
}

bool all_outside(std::chrono::steady_clock::time_point until) {
  for (Slot* s = slots.load(std::memory_order_acquire); s; s = s->next)
    while (s != mine.slot && s->inside.load(std::memory_order_seq_cst)) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  return true;
}

void open_gate() {
  forking.store(0, std::memory_order_seq_cst);
  forking.notify_all();
}

// Two threads that fork at a time: the second one waits at the gate. The one that forks may be inside: it goes on in the
// child with what it holds.
void prepare() {
  for (int open = 0; !forking.compare_exchange_strong(open, 1); open = 0) forking.wait(1);
  quiet = all_outside(std::chrono::steady_clock::now() + std::chrono::milliseconds(kForkWaitMs));
}
void child() {
  for (Slot* s = slots.load(std::memory_order_acquire); s; s = s->next)
    if (s != mine.slot) {
      s->inside.store(false, std::memory_order_relaxed);
      s->taken.store(false, std::memory_order_relaxed);
    }
  generation.fetch_add(1);
  if (!quiet) refused.store(true);
  open_gate();
}

// Before any thread is inside.
[[maybe_unused]] const int registered = ::pthread_atfork(prepare, open_gate, child);

} // namespace

uint32_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }
bool refused_after_fork() noexcept { return refused.load(std::memory_order_relaxed); }
Diagnostic fork_refusal() {
  return Diagnostic(ErrorCode::Usage, "this process was forked while a thread of its parent was inside Tessera, in a "
                                      "compile or a call, whose locks nobody releases here")
      .note("load the model after the fork in a process that has none before, or start processes by 'spawn' or "
            "'forkserver'");
}

InsideLibrary::InsideLibrary() noexcept {
  if (mine.depth++ == 0) enter(own_slot());
}
InsideLibrary::~InsideLibrary() {
  if (--mine.depth == 0) mine.slot->inside.store(false, std::memory_order_release);
}

OutsideLibrary::OutsideLibrary() noexcept : depth_(mine.depth) {
  mine.depth = 0;
  if (depth_ > 0 && mine.slot) mine.slot->inside.store(false, std::memory_order_release);
}
OutsideLibrary::~OutsideLibrary() {
  if (depth_ > 0 && mine.slot) enter(*mine.slot);
  mine.depth = depth_;
}

} // namespace tessera
