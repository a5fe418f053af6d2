// The steps of a shape plan put on a stream as one: a CUDA graph, for runs that repeat.
//
// A call of BERT at batch 1 is 120 launches of 2 us of work each, and the host needs longer than that to start one. A
// graph of the same launches costs the host one call, and the GPU goes from one to the next by itself. It holds the
// addresses that were there when it was captured, so a plan keeps a few, by addresses:
//
//   run 1   addresses A, new      steps singly; A is recorded
//   run 2   addresses A           the steps are captured and launched as a graph
//   run 3   addresses A           the graph is launched
//   run 4   addresses B, new      steps singly (a caller that gives other memory each time never pays for a graph)
//
// The arena, constants and copied inputs and outputs stay where they are; only memory that the caller gives, and blocks
// that grow, make new addresses. A plan whose steps a driver or library does not let be captured goes on without.
#pragma once
#include "runtime/cuda/context.h"
#include <span>
#include <vector>

namespace tessera::cuda {

class Replays {
public:
  static constexpr size_t kKept = 4;
  static constexpr size_t kFewestSteps = 6; // starting a graph costs the host as much as two or three launches

  explicit Replays(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~Replays();
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  // Puts the steps on `stream`; false: they are to be launched singly, nothing was. `addresses`: all that the
  // steps' work depends on. `put` puts them on a stream, which is `capture_on` while they are captured: one that
  // nobody else uses. The context is current. Errors: those that the context does not survive.
  using Put = std::function<Status(CUstream)>;
  [[nodiscard]] Result<bool> run(std::span<void* const> addresses, CUstream stream, CUstream capture_on,
                                 const Put& put);

private:
  struct Kept {
    std::vector<void*> addresses;
    CUgraphExec graph = nullptr; // null: seen once
  };
  [[nodiscard]] Status capture(Kept& kept, CUstream on, const Put& put);
  // The error where the context is lost; otherwise this plan does without graphs from now on.
  [[nodiscard]] Result<bool> give_up(Diagnostic why);
  void drop(Kept& kept);

  std::shared_ptr<Context> context_;
  std::vector<Kept> kept_; // most recently used first
  bool refused_ = false;
};

} // namespace tessera::cuda
