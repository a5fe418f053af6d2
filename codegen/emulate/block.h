// One block: a fiber per thread, their scheduling, barriers, shuffles, votes, and checked memory accesses.
// docs/emulator.md
#pragma once
#include "codegen/emulate/asynchronous.h"
#include "codegen/emulate/cooperation.h"
#include "codegen/emulate/fiber.h"
#include "codegen/emulate/history.h"
#include "codegen/emulate/memory.h"
#include "codegen/emulate/packets.h"
#include "codegen/emulate/tensor.h"
#include "codegen/llvm/emulated_abi.h"
#include <array>
#include <set>

namespace tessera::emu {

constexpr int kWarp = 32, kWarpgroup = 128;

// State shared by all blocks of a launch.
struct Launch {
  std::string kernel; // its name, for errors
  EmulatedKernelFn function = nullptr;
  Grid grid;
  void* const* args = nullptr;
  int threads = 0; // of a block, a multiple of 32, at most 1024
  int64_t shared_bytes = 0;
  bool asynchronous = false; // calls functions of emulated_warpgroup_abi.h
  int launch_registers = 0;  // of a thread; 0: not known
  const GlobalMemory* memory = nullptr;
  Cooperation* cooperation = nullptr; // null unless blocks are cooperative
  uint64_t seed = 0;
  bool poison_shared = true, detect_races = true;
  int32_t ignored_barrier = -1; // its site; EmulateOptions
};

// Collective operations.
enum class Collective : uint8_t {
  Barrier,
  BarrierOr,
  Shuffle,
  Ballot,
  WarpBarrier,
  LoadMatrices,
  StoreMatrices,
  Multiply,
  // of some threads of the block
  MbarrierWait,
  NumberedBarrier,
  // of warpgroups
  SetRegisters,
  BeginProducts,
  MultiplyWarpgroup,
  CommitProducts,
  WaitForProducts,
};
[[nodiscard]] std::string_view name(Collective kind);

// A block's number in the grid.
struct PlaceInGrid {
  const Grid& grid;
  int64_t number = 0;
};

class Block;
struct Thread {
  enum class State : uint8_t { Ready, Waiting, Ended };
  Block* block = nullptr;
  int index = 0;
  State state = State::Ready;
  Collective kind = Collective::Barrier; // the one in which the thread waits
  int32_t site = 0;
  uint32_t result = 0; // of the last collective
  uint32_t epoch = 0;  // accesses.h
  int64_t calls = 0;
  std::vector<ThreadCopy> copies; // in flight, in the order in which they were started
  std::vector<size_t> ends;       // ends of committed groups, as indices into `copies`
  int64_t waits_at = 0;           // the mbarrier
  uint32_t value = 0;             // that the thread gives to a collective of its warpgroup
  ProductOperands product;
  struct {
    int64_t offset = 0; // of a row of a matrix in shared memory
    uint32_t* words = nullptr;
  } matrix; // operands of Matrices
  Fiber fiber;
  const std::byte* least = nullptr; // Stacks::least
};

// Runs blocks one after another on the calling system thread.
class Block {
public:
  [[nodiscard]] static Result<std::unique_ptr<Block>> make(const Launch& launch);
  // Error CodegenError: a race, a collective that not all threads reach, an access out of bounds.
  [[nodiscard]] Status run(int64_t index);
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

  // For the parts of a block. After fail(), the thread's outermost function calls abort_if_failed(): no object with
  // a destructor may be alive on a stack that is left for good.
  [[nodiscard]] const Launch& launch() const { return launch_; }
  [[nodiscard]] Thread& thread(int i) { return threads_[static_cast<size_t>(i)]; }
  [[nodiscard]] std::byte* shared_data() { return shared_.data(); }
  [[nodiscard]] uint64_t random();
  void fail(const Thread& t, const std::string& what);
  void count_call(Thread& t); // fails when there are so many that the kernel does not end
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  void abort_if_failed(Thread& t) {
    if (error_) abort_block(t);
  }
  // Leaves until another thread makes this one ready.
  void suspend(Thread& t, Collective kind, int32_t site);
  void wake(const std::vector<int>& threads);
  // Makes threads [first, first + count) except one ready, in an order that depends on the seed.
  void make_ready(int first, int count, const Thread* except);
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
  explicit Block(const Launch& launch) : launch_(launch) {}
  static void enter(void* thread);
  uint32_t in_warp(Thread& t, Collective kind, int32_t site, uint32_t value, int32_t source);
  uint32_t in_block(Thread& t, Collective kind, int32_t site, uint32_t value);
  // True in the last of `count` threads to arrive; the others wait. `of`: "its warp".
  bool gather(Thread& t, Gathering& g, int count, Collective kind, int32_t site, const char* of);
  void leave(Thread& t); // switches to the next ready thread, or to run()
  Thread* next();
  [[noreturn]] void abort_block(Thread& t);
  [[nodiscard]] std::string deadlock_text() const;
  [[noreturn]] void stack_overflow(Thread& t);
  template <class Where>
  void check_races(Thread& t, Histories& histories, int64_t at, int bytes, Access access, bool global,
                   const Where& where);
  void check_global(Thread& t, const std::byte* address, int bytes, Access access);

  const Launch launch_;
  std::unique_ptr<Stacks> stacks_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Gathering> warpgroups_;
  std::unique_ptr<Asynchronous> async_;
  Pages shared_;
  Histories shared_history_, global_history_;
  Packets packets_{*this};
  Matrices matrices_{*this};
  ThreadCopies copies_{*this};
  Fiber caller_;
  int64_t index_ = 0;
  int ended_ = 0, arrived_ = 0; // threads that have ended, that wait at the block's barrier
  Collective barrier_kind_ = Collective::Barrier;
  int32_t barrier_site_ = 0;
  uint32_t barrier_or_ = 0;
  std::vector<uint16_t> ready_; // ring of threads; its size is a power of two
  size_t ready_begin_ = 0, ready_count_ = 0, ready_mask_ = 0;
  enum class Order : uint8_t { First, Last, Any } order_ = Order::First;
  uint64_t random_ = 0;
  std::optional<Diagnostic> error_;
};

} // namespace tessera::emu
