// Recording CUDA graphs next to the calls: a thread of the context that captures steps on a stream of its own.
#pragma once
#include "runtime/cuda/context.h"
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <span>
#include <thread>
#include <vector>

namespace tessera::cuda {

// Steps with the addresses that they read and write, as a graph.
struct Recording {
  enum class State : uint8_t { New, Waiting, Ready, Refused };
  std::atomic<State> state = State::New;
  std::vector<void*> addresses;
  CUgraphExec graph = nullptr;   // Ready
  std::optional<Diagnostic> why; // Refused
};

class Recorder {
public:
  // Puts the steps on a stream, with these addresses. Called on the recorder's thread, with the context current.
  using Put = std::function<Status(CUstream stream, std::span<void* const> addresses)>;
  // Whom a recording belongs to, for forget() and wait().
  using Owners = std::array<const void*, 3>;
  static constexpr size_t kMostWaiting = 64;

  // That of the context.
  [[nodiscard]] static Result<std::shared_ptr<Recorder>> of(Context& context);
  explicit Recorder(Context& context) : context_(context) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Recorded later: the state is Waiting until then. Where too many wait, nothing happens. `put` is not called after a
  // forget() of one of its owners has returned.
  void add(std::shared_ptr<Recording> recording, const Owners& owners, Put put);
  [[nodiscard]] double mean_ms() const { return mean_ms_; } // that a recording took; 0 before the first
  // Until no recording of the owner waits; the states are then Ready or Refused.
  void wait(const void* owner);
  // Gives up what waits (its state is New again), and waits for the one that is being recorded.
  void forget(const void* owner);

private:
  struct Job {
    std::shared_ptr<Recording> recording;
    Owners owners{};
    Put put;
    [[nodiscard]] bool is_of(const void* owner) const;
  };
  void work();
  void record(const Job& job, CUstream stream);
  [[nodiscard]] Status capture(const Job& job, CUstream stream) const;

  Context& context_;
  std::mutex mutex_;
  std::condition_variable more_, done_;
  std::deque<Job> jobs_; // the first one is being recorded while busy_
  std::atomic<double> mean_ms_ = 0;
  int64_t recorded_ = 0;
  bool busy_ = false, stop_ = false;
  std::thread thread_; // started by the first job
};

} // namespace tessera::cuda
