// Race detection in blocks with mbarriers, barriers of a part of the block, tensor copies and products of warpgroups: an
// access happened before another one, or it races with it.
//
// An agent is a thread, or what works asynchronously: the copies of an mbarrier, the products of a warpgroup, the tensor
// stores of a thread. Each agent has a time; an access has the agent and the time of its agent (a stamp). A thread knows
// of each agent the time up to which its accesses happened before (a vector clock). A release merges what a thread knows
// into a barrier and begins the thread's next time; an acquire merges the barrier's into what the thread knows.
//
//   thread 0 writes at time 3, arrives at an mbarrier      thread 40 waits for it, knows (0: 3), reads: ordered
//   thread 0 writes at time 4                              thread 40, without another wait, reads: a race
//   a copy for phase 5 of mbarrier m writes at (m, 6)      who waits for phase 5 knows (m: 6)
//   a product of group 2 of warpgroup 1 reads at (w1, 2)   who waits for that group knows (w1: 2)
//
// The asynchronous proxy sees a thread's write only behind a fence. So each clock exists twice: `events`, and `fenced`,
// which a fence sets to `events`.
#pragma once
#include "codegen/emulate/accesses.h"
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::emu {

class Clock {
public:
  [[nodiscard]] uint32_t operator[](int agent) const {
    return static_cast<size_t>(agent) < times_.size() ? times_[static_cast<size_t>(agent)] : 0;
  }
  void advance(int agent, uint32_t time); // to at least `time`
  void merge(const Clock& other);
  void intersect(const Clock& other); // what both know
  void clear() { times_.clear(); }

private:
  std::vector<uint32_t> times_;
};
struct Known {
  Clock events, fenced;
  void merge(const Known& other);
  void intersect(const Known& other);
  void clear();
};
struct Stamp {
  int32_t agent = -1; // -1: none
  uint32_t time = 0;
};
enum class Proxy : uint8_t { Generic, Async };
// The access with which another one is not ordered.
struct Conflict {
  Stamp other;
  Access earlier = Access::Read;
  bool lacks_fence = false; // it is ordered, but not for the asynchronous proxy
};

class Order {
public:
  // Each block of a cluster has `threads` threads, which are the first agents; `shared_bytes` is the shared memory of all.
  // Without `detect`, accesses are not recorded.
  Order(int blocks, int threads, int64_t shared_bytes, bool detect);
  // Forgets all accesses; agents are the threads alone.
  void begin();
  [[nodiscard]] int add_agent(std::string name);
  [[nodiscard]] const std::string& name(int agent) const { return names_[static_cast<size_t>(agent)]; }

  [[nodiscard]] Known& of(int thread) { return known_[static_cast<size_t>(thread)]; }
  [[nodiscard]] Stamp now(int thread) const { return {thread, known_[static_cast<size_t>(thread)].events[thread]}; }
  void release(int thread, Known& to);
  void acquire(int thread, const Known& from) { of(thread).merge(from); }
  void barrier(int first, int count); // of these threads
  void fence(int thread);             // of the proxies

  // Records an access of bytes [at, at + bytes) of shared memory by somebody who knows `known`.
  [[nodiscard]] std::optional<Conflict> touch(int64_t at, int64_t bytes, const Stamp& stamp, const Known& known,
                                              Access access, Proxy proxy);
  // Makes the stamp the last writer, which has been ordered before.
  void set_writer(int64_t at, int64_t bytes, const Stamp& stamp);

  static constexpr int64_t kUnit = 16; // bytes with one history, until a part of them is accessed

private:
  struct History {
    Stamp writer;
    Proxy writer_proxy = Proxy::Generic;
    std::vector<Stamp> readers; // since the last write; of those that are ordered the last one
  };
  struct Unit {
    History all;
    std::unique_ptr<std::array<History, kUnit>> bytes; // null: all bytes have the same history
  };
  static std::optional<Conflict> touch(History& h, const Stamp& stamp, const Known& known, Access access, Proxy proxy);
  // Calls f(History&) for all histories of the bytes until it yields a conflict.
  template <class F>
  std::optional<Conflict> each(int64_t at, int64_t bytes, F f);

  const int blocks_, threads_; // threads of a block
  const bool detect_;
  std::vector<Known> known_; // by thread of the cluster
  std::vector<Unit> units_;
  std::vector<std::string> names_;
};

} // namespace tessera::emu
