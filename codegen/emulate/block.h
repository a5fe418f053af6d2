// One block: barriers, shuffles, votes, and checked memory accesses of its threads. docs/emulator.md
#pragma once
#include "codegen/emulate/asynchronous.h"
#include "codegen/emulate/history.h"
#include "codegen/emulate/packets.h"
#include "codegen/emulate/threads.h"
#include <array>
#include <set>

namespace tessera::emu {

// A block's number in the grid.
struct PlaceInGrid {
  const Grid& grid;
  int64_t number = 0;
};

// Runs one block after another, as its cluster says (cluster.h).
class Block : public BlockThreads {
public:
  [[nodiscard]] static Result<std::unique_ptr<Block>> make(const Launch& launch, Cluster& cluster, int rank);
  void begin(int64_t index);          // its threads are ready
  int64_t barriers = 0, shuffles = 0; // number executed so far; a warp's shuffle counts once
  std::set<int32_t> barrier_sites;
  uint32_t epoch = 1; // the last one that began, of all threads or of some (accesses.h)

  // The calling thread, from its handle. Aborts the block if the thread's frames do not fit its stack.
  [[nodiscard]] static Thread& self(void* thread) {
    auto& t = *static_cast<Thread*>(thread);
    if (static_cast<const std::byte*>(__builtin_frame_address(0)) < t.least) t.block->stack_overflow(t);
    return t;
  }

  // Called by threads.
  uint32_t collective(Thread& t, Collective kind, int32_t site, uint32_t value, int32_t source);
  void* shared(Thread& t, int64_t offset, int bytes, Access access);
  void* global(Thread& t, std::byte* address, int bytes, Access access);
  uint32_t arrive(Thread& t, std::byte* counter, uint32_t amount, bool wait);
  [[nodiscard]] Packets& packets() { return packets_; }
  [[nodiscard]] Matrices& matrices() { return matrices_; }
  [[nodiscard]] ThreadCopies& copies() { return copies_; }
  [[nodiscard]] PlaceInGrid place() const { return {launch_.grid, index_}; }
  // Null unless the kernel is asynchronous.
  [[nodiscard]] Asynchronous* asynchronous() { return async_.get(); }

  // For the parts of a block.
  [[nodiscard]] std::byte* shared_data() { return shared_.data(); }
  [[nodiscard]] int64_t order_place(int64_t offset) const; // of shared memory, in that of the cluster's race detector
  void begin_epoch();                                      // of all threads
  // Waits until all threads of the warp or warpgroup are here; true in the last one, which acts for all and lets them
  // go on.
  [[nodiscard]] bool gather_warp(Thread& t, Collective kind, int32_t site);
  void scatter_warp(const Thread& t);
  [[nodiscard]] bool gather_warpgroup(Thread& t, Collective kind, int32_t site);
  void scatter_warpgroup(const Thread& t) { make_ready(t.index / kWarpgroup * kWarpgroup, kWarpgroup, &t); }
  // Checks and records an access of shared memory by somebody who knows `known`.
  void touch(const Thread& t, int64_t offset, int64_t bytes, const Stamp& stamp, const Known& known, Access access,
             Proxy proxy);
  void access_global(Thread& t, std::byte* address, int bytes, Access access);

private:
  struct Gathering {
    int arrived = 0;
    Collective kind = Collective::Barrier;
    int32_t site = 0;
  };
  struct Warp : Gathering {
    uint32_t epoch = 1, exchange_epoch = 1; // accesses.h
    std::array<uint32_t, kWarp> value{};
    std::array<int32_t, kWarp> source{};
  };
  Block(const Launch& launch, Cluster& cluster, int rank) : BlockThreads(launch, cluster, rank) {}
  uint32_t in_warp(Thread& t, Collective kind, int32_t site, uint32_t value, int32_t source);
  uint32_t in_block(Thread& t, Collective kind, int32_t site, uint32_t value);
  // True in the last of `count` threads to arrive; the others wait. `of`: "its warp".
  bool gather(Thread& t, Gathering& g, int count, Collective kind, int32_t site, const char* of);
  template <class Where>
  void check_races(Thread& t, Histories& histories, int64_t at, int bytes, Access access, bool global,
                   const Where& where);
  void check_global(Thread& t, const std::byte* address, int bytes, Access access);

  std::vector<Warp> warps_;
  std::vector<Gathering> warpgroups_;
  std::unique_ptr<Asynchronous> async_;
  Pages shared_;
  Histories shared_history_, global_history_;
  Packets packets_{*this};
  Matrices matrices_{*this};
  ThreadCopies copies_{*this};
  int arrived_ = 0; // threads that wait at the block's barrier
  Collective barrier_kind_ = Collective::Barrier;
  int32_t barrier_site_ = 0;
  uint32_t barrier_or_ = 0;
};

} // namespace tessera::emu
