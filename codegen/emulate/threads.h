// The threads of a block: a fiber each, the order in which they run, and how they fail. docs/emulator.md
#pragma once
#include "codegen/emulate/cooperation.h"
#include "codegen/emulate/fiber.h"
#include "codegen/emulate/memory.h"
#include "codegen/emulate/products.h"
#include "codegen/emulate/tensor.h"
#include "codegen/llvm/emulated_abi.h"
#include "runtime/grid.h"

namespace tessera::emu {

constexpr int kWarp = 32, kWarpgroup = 128;

// State shared by all blocks of a launch.
struct Launch {
  std::string kernel; // its name, for errors
  EmulatedKernelFn function = nullptr;
  Grid grid;
  void* const* args = nullptr;
  int threads = 0; // of a block, a multiple of 32, at most 1024
  int cluster = 1; // blocks of a cluster
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
  // of all threads of a cluster
  ClusterBarrier,
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
[[nodiscard]] std::string at_site(Collective kind, int32_t site); // "the barrier at site 4"

class Block;
class Cluster;
struct Thread {
  enum class State : uint8_t { Ready, Waiting, Ended };
  Block* block = nullptr;
  int index = 0; // in the block
  int agent = 0; // of the cluster's race detector (order.h)
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

class BlockThreads {
public:
  BlockThreads(const BlockThreads&) = delete;
  BlockThreads& operator=(const BlockThreads&) = delete;

  [[nodiscard]] const Launch& launch() const { return launch_; }
  [[nodiscard]] Cluster& cluster() const { return cluster_; }
  [[nodiscard]] int64_t index() const { return index_; } // in the grid
  [[nodiscard]] int rank() const { return rank_; }       // in the cluster
  [[nodiscard]] Thread& thread(int i) { return threads_[static_cast<size_t>(i)]; }
  [[nodiscard]] int agent(int thread) const { return rank_ * launch_.threads + thread; }
  [[nodiscard]] bool ended() const { return ended_ == launch_.threads; }
  // " of block 1 of the cluster"; empty where a cluster is a block.
  [[nodiscard]] std::string of_block() const;

  // After fail(), the thread's outermost function calls abort_if_failed(): no object with a destructor may be alive on
  // a stack that is left for good.
  void fail(const Thread& t, const std::string& what);
  [[nodiscard]] bool failed() const;
  void abort_if_failed(Thread& t) {
    if (failed()) abort(t);
  }
  // Aborts the cluster: its fibers do not run again. No object with a destructor may be alive on the thread's stack.
  [[noreturn]] void abort(Thread& t);
  [[noreturn]] void stack_overflow(Thread& t);
  void count_call(Thread& t); // fails when there are so many that the kernel does not end
  // Where each thread waits, after "deadlock"; empty if all have ended.
  [[nodiscard]] std::string deadlock_text();

  [[nodiscard]] uint64_t random();
  // Leaves until another thread makes this one ready.
  void suspend(Thread& t, Collective kind, int32_t site);
  void leave(Thread& t); // switches to the next ready thread of the cluster, or to who runs it
  void wake(const std::vector<int>& threads);
  // Makes threads [first, first + count) except one ready, in an order that depends on the seed.
  void make_ready(int first, int count, const Thread* except);
  [[nodiscard]] bool has_ready() const { return ready_count_ > 0; }
  [[nodiscard]] Thread& take_ready();
  // Whether a tensor copy completes now, before other threads run; depends on the seed.
  [[nodiscard]] bool copies_at_once() { return order_ == Order::Last || (order_ == Order::Any && random() % 4 == 0); }

protected:
  BlockThreads(const Launch& launch, Cluster& cluster, int rank)
      : launch_(launch), cluster_(cluster), rank_(rank), threads_(static_cast<size_t>(launch.threads)) {}
  ~BlockThreads() = default;
  [[nodiscard]] Status reserve();                      // stacks
  void start(int64_t index, Block& b, uint32_t epoch); // all threads are ready

  const Launch launch_;
  Cluster& cluster_;
  const int rank_;
  std::vector<Thread> threads_;
  int64_t index_ = 0;

private:
  static void enter(void* thread);

  std::unique_ptr<Stacks> stacks_;
  int ended_ = 0;               // threads
  std::vector<uint16_t> ready_; // ring of threads; its size is a power of two
  size_t ready_begin_ = 0, ready_count_ = 0, ready_mask_ = 0;
  enum class Order : uint8_t { First, Last, Any } order_ = Order::First;
  uint64_t random_ = 0;
};

} // namespace tessera::emu
