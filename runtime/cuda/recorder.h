// Recording CUDA graphs: steps are captured in the call that wants it, and become a graph on a thread of the context.
//
// Capturing costs a call about what starting the steps costs; it cannot be done next to the calls: while a stream captures,
// whoever waits for the whole device (cuCtxSynchronize, torch.cuda.synchronize) gets an error, and so does the capture.
// A caller that uses the device from several threads may still cause it; the capture is then tried again.
//
// A kernel of a graph has addresses as numbers. A node that copies or fills memory refers to the allocation that was
// there when it was recorded: the driver must not launch it once that has been freed, even where other memory has come to
// the same address, as it does when an allocator returns memory that it had kept. Libraries put such nodes into their
// workspaces, too. So a recording knows these allocations by the numbers that the driver gives them.
#pragma once
#include "runtime/cuda/context.h"
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace tessera::cuda {

// Steps with the addresses that they read and write, as a graph.
struct Recording {
  enum class State : uint8_t { New, Waiting, Ready, Refused };
  std::atomic<State> state = State::New;
  std::vector<void*> addresses;
  CUgraphExec graph = nullptr; // Ready; before, one of the same steps that is changed rather than made anew, or null
  struct Allocation {
    CUdeviceptr address = 0; // in it
    uint64_t number = 0;     // of the driver's, which no other allocation of the process ever has
  };
  std::vector<Allocation> allocations; // that nodes of the graph copy and fill
  int captures = 0;                    // that were tried
  std::optional<Diagnostic> why;       // Refused
};

class Recorder {
public:
  // Puts the steps on a stream, with these addresses.
  using Put = std::function<Status(CUstream stream, std::span<void* const> addresses)>;
  static constexpr size_t kMaxWaiting = 64;
  static constexpr int kMaxCaptures = 3; // of a recording, where others disturb them

  // That of the context.
  [[nodiscard]] static Result<std::shared_ptr<Recorder>> of(Context& context);
  explicit Recorder(Context& context) : context_(context) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Captures what `put` puts on a stream; nothing is executed. The state is Waiting until the graph is made of it, New
  // where it is to be tried again: too many wait, another thread captures, or has disturbed the capture. `wait`: waits
  // for other captures. The context is current. `owner`: for forget() and wait().
  void add(const std::shared_ptr<Recording>& recording, const void* owner, const Put& put, bool wait);
  [[nodiscard]] double mean_ms() const { return mean_ms_; } // that a recording took; 0 before the first
  // False once an allocation that the graph refers to has been freed. The context is current.
  [[nodiscard]] bool is_valid(const Recording& recording) const;
  // Until no recording of the owner waits; the states are then Ready or Refused.
  void wait(const void* owner);
  // Gives up what waits (its state is New again), and waits for the one that is being made.
  void forget(const void* owner);

private:
  struct Job {
    std::shared_ptr<Recording> recording;
    const void* owner = nullptr;
    CUgraph graph = nullptr; // destroyed with the job
    double capture_ms = 0;
  };
  [[nodiscard]] Result<CUgraph> capture(Recording& recording, const Put& put);
  [[nodiscard]] Status find_allocations(CUgraph graph, Recording& recording) const;
  void work();
  void make(const Job& job);
  [[nodiscard]] Status instantiate(CUgraphExec& graph, CUgraph of) const;

  Context& context_;
  std::mutex capturing_; // of stream_: one capture at a time
  CUstream stream_ = nullptr;
  std::mutex mutex_; // of what follows
  std::condition_variable more_, done_;
  std::deque<Job> jobs_; // the first one is being made while busy_
  std::atomic<double> mean_ms_ = 0;
  int64_t recorded_ = 0;
  bool busy_ = false, stop_ = false;
  std::thread thread_; // started by the first job
};

} // namespace tessera::cuda
