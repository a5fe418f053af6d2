// A kernel at given sizes, prepared for launching, and the driver's call.
#pragma once
#include "runtime/cuda/reports.h"
#include <unordered_map>

namespace tessera::cuda {

// Memory that kernels of cooperative blocks leave as they find it (KernelLaunch::counters, mailboxes). 0: there is none yet.
struct RestingMemory {
  CUdeviceptr counters = 0, mailboxes = 0;
};

// The argument of one of a kernel's parameters, all of which have 64 bits.
struct LaunchArgument {
  enum class Kind : uint8_t {
    Number,    // `value`
    Buffer,    // the address of buffer `value`
    Workspace, // the address `value` bytes behind the beginning of the step's scratch memory
    Counters,  // the address of the counters of grid barriers
    Mailboxes, // the address of the mailboxes
    Report,    // the address of the index report of step `value`
  };
  Kind kind = Kind::Number;
  int64_t value = 0;
};

// Where the memory lies that arguments are addresses of: that of a run, or that of a recording.
struct LaunchMemory {
  void* const* buffers; // by BufferId
  std::byte* scratch;
  RestingMemory resting;
  const Reports& reports;
};

struct PreparedLaunch {
  CUfunction function = nullptr;
  unsigned grid = 0; // 0: nothing to do
  bool cooperative = false;
  bool alone = false; // by Context::launch_alone
  // By programmatic dependent launch: it comes right behind another kernel, and may start while that one runs. The
  // kernel itself waits for it.
  bool dependent = false;
  std::vector<LaunchArgument> arguments;
  std::vector<TensorMapOf<int64_t>> tensor_maps; // behind the arguments; `buffer` is a BufferId
  const KernelLaunch* kernel = nullptr;
};

// A tensor map as the driver has encoded it, valid while sizes and address stay the same.
class EncodedMap {
public:
  // Nothing is done for a map of no elements, which no kernel reads.
  [[nodiscard]] CUresult encode(const Driver& driver, const TensorMapOf<int64_t>& map, std::byte* buffer);
  [[nodiscard]] CUtensorMap* data() { return &map_; }

private:
  TensorMapOf<int64_t> sizes_;
  const void* address_ = nullptr;
  CUtensorMap map_;
};

struct Started {
  CUresult result;
  const char* function; // of the driver
};

// Launches kernels one after the other; allocates nothing for kernels that have no more arguments than earlier ones.
class Launcher {
public:
  // `dependent`: false if something lies between this kernel and the one before it, as an event does. A device, or a
  // capture, that has no dependent launch gets a plain one.
  [[nodiscard]] Started start(const Driver& driver, const PreparedLaunch& launch, const LaunchMemory& memory,
                              CUstream stream, bool dependent);

private:
  std::vector<uint64_t> values_;  // of the arguments
  std::vector<void*> parameters_; // their addresses, which the driver takes, and those of tensor maps
  std::unordered_map<const PreparedLaunch*, std::vector<EncodedMap>> maps_; // a launch may have gone since
};

} // namespace tessera::cuda
