// Asynchronous copies of a block: bulk tensor copies, tensor stores, and copies of threads that arrive at an mbarrier.
//
// A copy's destination counts as written, by the mbarrier's copies, from the moment at which it starts; it holds NaN
// patterns until the copy completes, which is when all threads wait, at once, or at any time between, as the seed has
// it. A store's source counts as read until it is waited for, and is read then.
#pragma once
#include "codegen/emulate/memory.h"
#include "codegen/emulate/order.h"
#include "codegen/emulate/tensor.h"
#include "runtime/tensor_map.h"
#include <map>

namespace tessera::emu {

class Block;
struct Thread;

// A tensor map of a launch.
struct TensorMap {
  TensorMapOf<int64_t> sizes;
  std::byte* begin = nullptr; // of the first element
  bool written = false;       // its memory is written by the kernel
  // Error BadInput for what the driver would refuse, and where elements lie outside of the argument.
  [[nodiscard]] static Result<TensorMap> make(const KernelTensorMap& map, const tile::Kernel& kernel,
                                              std::span<const tile::Argument> args, const GlobalMemory& memory);
};

class TensorCopies {
public:
  TensorCopies(Block& block, Order& order) : block_(block), order_(order) {}
  void begin(); // of a block

  // Called by threads; after an error the block is aborted by the caller.
  // `blocks`: a bit for each rank of the cluster. Each of these blocks gets the box at the offset, and its mbarrier the
  // bytes, each at a time of its own.
  void copy(Thread& t, int64_t offset, const TensorMap& map, const int32_t* coordinates, int64_t barrier,
            uint32_t blocks);
  void arrive_after_copies(Thread& t, int64_t barrier);
  void store(Thread& t, const TensorMap& map, const int32_t* coordinates, int64_t offset);
  void commit(const Thread& t);
  void wait(Thread& t, int64_t later);
  void end(const Thread& t);

  [[nodiscard]] bool pending() const { return !copies_.empty(); }
  void complete_one();

private:
  struct Box {
    const TensorMap* map = nullptr;
    std::array<int64_t, 5> at{};
    int64_t offset = 0; // in shared memory
  };
  struct Copy {
    int thread = 0;
    Block* to = nullptr;
    int64_t barrier = 0;
    Stamp stamp;
    Box box;                       // map null: copies of a thread
    std::vector<ThreadCopy> moved; // those
  };
  struct Stores { // of a thread
    int agent = -1;
    uint32_t committed = 0; // groups
    std::vector<std::pair<uint32_t, Box>> open;
  };
  [[nodiscard]] Box box(const Thread& t, const TensorMap& map, const int32_t* coordinates, int64_t offset);

  Block& block_;
  Order& order_;
  std::vector<Copy> copies_; // that are not complete
  std::map<int, Stores> stores_;
};

} // namespace tessera::emu
