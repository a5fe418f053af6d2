// A GPU that is none: a driver table over host memory, for testing what lies above it.
//
// It is as asynchronous as a GPU may be: what is put on a stream runs only when somebody waits for it (or when another
// stream's waiting reaches it), so that a missing wait, a staging buffer filled too early or memory freed too soon
// show. Device memory is checked: copies and kernels (through at()) must stay inside of what is allocated. Calls that
// need a current context fail without one.
//
// Streams are captured as CUDA's documentation says: what waits for a captured stream or event, and what queries the
// stream's id, fails and ends the capture; so does an event from outside of it; and calls that a capture forbids, unless
// the thread has relaxed its mode. What is put on the stream becomes the graph's.
#pragma once
#include "runtime/cuda/context.h"
#include <array>
#include <deque>
#include <gtest/gtest.h>
#include <set>
#include <thread>

namespace tessera::test {

class FakeGpu {
public:
  FakeGpu();
  ~FakeGpu();
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  [[nodiscard]] std::shared_ptr<cuda::Driver> driver() const { return driver_; }
  [[nodiscard]] std::shared_ptr<cuda::Context> context(); // a new one of driver()

  // The launch of a kernel: its arguments, all of 8 bytes, and its grid.
  // What cuTensorMapEncodeTiled was given.
  struct TensorMap {
    uint64_t address;
    uint32_t rank, swizzle, bits; // of an element
    std::array<uint64_t, 5> dims, strides;
    std::array<uint32_t, 5> box;
  };
  struct Launch {
    std::vector<uint64_t> args;
    std::vector<TensorMap> maps;
    unsigned grid = 0, threads = 0, shared_bytes = 0; // grid: along the first axis
    unsigned grid_y = 1, grid_z = 1;
    bool cooperative = false;
    bool dependent = false; // programmatic dependent launch
    unsigned cluster = 1;   // blocks
  };
  // A kernel of `params` arguments and `maps` tensor maps behind them. It may return an error, which breaks the context.
  using Body = std::function<CUresult(const Launch&)>;
  void kernel(const std::string& name, size_t params, Body body, size_t maps = 0);
  // Device memory [address, address + count) as the kernel sees it; a test failure where it is not all allocated.
  template <class T>
  T* at(uint64_t address, int64_t count) {
    EXPECT_TRUE(alive(address, static_cast<size_t>(count) * sizeof(T))) << "a kernel touches memory that is not there";
    return reinterpret_cast<T*>(address);
  }
  [[nodiscard]] bool alive(uint64_t address, size_t bytes) const;

  // Memory that belongs to the caller of the executor.
  uint64_t allocate(size_t bytes);
  void reallocate(uint64_t address);     // frees memory, and gives other memory at the same address
  void take(double ms) { clock_ += ms; } // of a kernel that runs: so much more time goes by
  void run_all();                        // everything on all streams
  // Graphs of the caller. end_capture() returns one that can be launched by replay() until drop() destroys it; null where
  // the capture failed.
  void begin_capture(void* stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL);
  [[nodiscard]] CUgraphExec end_capture(void* stream);
  void replay(CUgraphExec graph, void* stream);
  void drop(CUgraphExec graph);
  void repair(); // a new process: what broke the context is forgotten

  // The properties of the GPU, to be set before context().
  int devices = 1, major = 9, minor = 0, pools = 1;
  size_t memory = size_t{1} << 30;
  // Errors to inject: the n-th call (from 0) of a function from now on returns this, and so do the next times - 1.
  void fail(const std::string& function, int nth, CUresult result, int times = 1) {
    faults_[function] = {nth, result, times};
  }
  bool cubins_refused = false; // CUDA_ERROR_NO_BINARY_FOR_GPU
  CUresult ptx_result = CUDA_SUCCESS;
  int max_threads = 1024;  // of any kernel
  int resident_blocks = 1; // of a multiprocessor; 132 of them
  int cooperative = 1;

  // The record of what has happened. Where other threads call, too, it is read while pause() is held.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> pause() { return std::unique_lock(mutex_); }
  std::map<std::string, int> calls;
  std::vector<Launch> launches;      // executed
  std::vector<std::string> launched; // names
  int encoded_maps = 0;
  std::vector<std::string> loaded;           // "ptx" or "cubin", in order
  std::map<std::string, int> dynamic_shared; // by kernel, what it was allowed
  [[nodiscard]] int64_t live_bytes() const;  // device memory that is allocated
  [[nodiscard]] size_t live_pinned() const { return pinned_.size(); }
  [[nodiscard]] size_t live_graphs() const { return graphs_.size(); }
  [[nodiscard]] int retained() const { return retained_; }

private:
  friend struct FakeCalls;
  struct Kernel {
    std::string name;
    size_t params;
    Body body;
    size_t maps;
  };
  struct Event {
    uint64_t recorded = 0, passed = 0;
    void* stream = nullptr;
    double at = 0;
    uint64_t capture = 0; // that it was recorded in
  };
  struct Operation {
    std::function<CUresult()> body;
    Event* event = nullptr; // a record
    uint64_t sequence = 0;
  };
  struct Allocation {
    size_t bytes;
    bool freed = false;
    uint64_t number = 0; // of no other one
  };
  CUresult enter(const char* function, bool needs_context = true);
  using Work = std::function<CUresult()>;
  // The user objects, with their functions, that the graph and what is instantiated from it own together.
  struct Owned {
    std::vector<std::pair<CUhostFn, void*>> objects;
    ~Owned() {
      for (auto [destroy, data] : objects) destroy(data);
    }
  };
  struct MemoryNode { // copies or fills
    CUgraphNodeType type;
    uint64_t from = 0, to = 0;
    uint64_t from_number = 0, to_number = 0; // of the allocations
  };
  struct Graph {
    std::vector<Work> work;
    std::shared_ptr<std::deque<MemoryNode>> nodes = std::make_shared<std::deque<MemoryNode>>();
    std::shared_ptr<Owned> owned = std::make_shared<Owned>();
  };
  struct Capture {
    uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    bool failed = false;
    CUgraph graph = nullptr;
  };
  // The result of a call that captures forbid, or that conflicts with that of `stream`.
  CUresult unsafe();
  CUresult conflict(void* stream);
  Capture* capture_of(void* stream);
  [[nodiscard]] bool pinned(const void* p) const {
    const auto at = pinned_.upper_bound(reinterpret_cast<uint64_t>(p));
    return at != pinned_.begin() && reinterpret_cast<uint64_t>(p) < std::prev(at)->first + std::prev(at)->second;
  }
  CUresult put(CUstream stream, Work body); // on the stream, or into the graph that it is captured for
  CUresult put(CUstream stream, MemoryNode node, Work body);
  [[nodiscard]] uint64_t number_of(uint64_t address) const; // of the allocation, 0: none
  CUresult run(void* stream, const Event* until = nullptr, uint64_t sequence = 0);
  CUresult allocate_for(CUdeviceptr* out, size_t bytes);
  CUresult release(uint64_t address);

  std::recursive_mutex mutex_; // of calls: kernels make some themselves
  std::shared_ptr<cuda::Driver> driver_;
  struct Fault {
    int countdown;
    CUresult result;
    int times;
  };
  std::map<std::string, Fault> faults_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::map<uint64_t, Allocation> allocations_;
  std::map<void*, std::deque<Operation>> streams_; // the null stream, too
  std::set<std::unique_ptr<Event>> events_;
  std::map<void*, std::shared_ptr<Capture>> captures_;  // by stream; several may be of one
  std::map<void*, Graph> graphs_;                       // of both kinds, by handle
  std::map<void*, std::pair<CUhostFn, void*>> objects_; // of the caller's
  uint64_t last_capture_ = 0, last_allocation_ = 0;
  std::map<uint64_t, size_t> pinned_; // bytes; the GPU sees it, too
  std::vector<void*> graveyard_;      // freed memory keeps its address, so that a late access is noticed
  CUresult broken_ = CUDA_SUCCESS;
  uint64_t sequence_ = 0;
  double clock_ = 0;
  int retained_ = 0;
};

} // namespace tessera::test
