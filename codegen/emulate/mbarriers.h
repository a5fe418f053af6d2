// Barriers of a part of a block: mbarriers in shared memory, numbered barriers, and the registers that warpgroups hand
// to each other.
//
// An mbarrier's phase completes when its pending arrivals and its bytes are 0. The clocks of those that arrived are
// collected and handed to who waits for the phase.
#pragma once
#include "codegen/emulate/order.h"
#include <map>

namespace tessera::emu {

class Block;
struct Thread;

class Mbarriers {
public:
  Mbarriers(Block& block, Order& order) : block_(block), order_(order) {}
  void begin(); // of a block

  // Called by threads; arrive(), and what copies call, also by threads of other blocks of the cluster. After an error the
  // caller aborts the cluster.
  void init(Thread& t, int64_t offset, int arrivals);
  void fence_init(const Thread& t);
  void arrive(Thread& t, int64_t offset, int64_t expected_bytes);
  void wait(Thread& t, int64_t offset, uint32_t parity, int32_t site);
  void join(Thread& t, int id, int threads, bool wait, int32_t site);
  void set_registers(Thread& t, int count, bool raise, int32_t site);

  // For copies: the phase in which a copy by the thread begins, as its stamp, null after an error; and its completion,
  // of bytes (of a tensor copy) or of one arrival.
  [[nodiscard]] std::optional<Stamp> begin_copy(const Thread& t, int64_t offset, bool of_tensor);
  void complete_copy(const Thread& t, int64_t offset, const Stamp& stamp, int64_t bytes);
  void complete_arrival(const Thread& t, int64_t offset);

  // True if some of the bytes belong to an mbarrier.
  [[nodiscard]] bool overlaps(int64_t at, int64_t bytes) const;
  // Text on the mbarrier at this offset: "2 of 3 arrivals and 512 bytes of phase 7 are missing".
  [[nodiscard]] std::string state(int64_t offset) const;
  // The time of the last arrival or copy that comes from another block, by its agent.
  [[nodiscard]] const std::map<int, uint32_t>& from_others() const { return from_others_; }
  static constexpr int64_t kBytes = 8;

private:
  struct Mbarrier {
    int agent = -1, initialiser = 0;
    bool fenced = false; // its initialisation, for copies
    int arrivals = 0, pending = 0;
    int64_t bytes = 0; // expected and not copied
    uint32_t phase = 0;
    Known arriving, released; // of the current phase, of those that are complete
    std::vector<int> waiting; // threads
    Stamp initialised;
  };
  struct Numbered {
    int threads = 0, arrived = 0;
    Known arriving;
    std::vector<int> waiting;
  };
  struct Registers { // of a warpgroup
    int count = 0;
    bool waits = false;
    int wanted = 0;
  };
  [[nodiscard]] std::string named(int64_t offset, const Thread& t) const;
  [[nodiscard]] Mbarrier* find(const Thread& t, int64_t offset, const char* what);
  void take_arrival(const Thread& t, int64_t offset, Mbarrier& m);
  void complete_if_done(Mbarrier& m);
  void hand_out_registers(const Thread& running);

  Block& block_;
  Order& order_;
  std::map<int64_t, Mbarrier> mbarriers_; // by offset
  std::map<int, uint32_t> from_others_;
  std::array<Numbered, 16> numbered_;
  std::vector<Registers> registers_; // by warpgroup
  int64_t free_registers_ = 0;
};

} // namespace tessera::emu
