// The steps of a shape plan put on a stream as one: a CUDA graph, for runs that repeat.
//
// A call of BERT at batch 1 is 120 launches of 2 us of work each, and the host needs longer than that to start one. A
// graph of the same launches costs the host one call, and the GPU goes from one to the next by itself. It holds the
// addresses that were there when it was recorded, so a plan keeps a few, by addresses:
//
//   run 1   addresses A, new      steps singly
//   run 2   addresses A           steps singly, until that has taken as long as recording does
//   run n   addresses A           captured (recorder.h), then singly; a graph is made of it in the background
//   run m   addresses A           the graph is launched, as soon as it is there
//   run m+1 addresses B, new      steps singly (a caller that gives other memory each time never pays for a graph)
//   run l   addresses A, but what the graph copies there was freed meanwhile: it is recorded again
//
// The arena, constants and copied inputs and outputs stay where they are; only memory that the caller gives, and blocks
// that grow, make new addresses; the graph of those that were not used for longest is changed to them. A plan whose steps a
// driver or library does not let be captured goes on without, and graphs of shapes that come no more make room for others
// (graph_room.h).
#pragma once
#include "runtime/cuda/graph_room.h"
#include "runtime/cuda/recorder.h"

namespace tessera::cuda {

class Replays {
public:
  static constexpr size_t kKept = 4;
  static constexpr size_t kFewestSteps = 6; // starting a graph costs the host as much as two or three launches

  // `put` puts the steps on a stream, so many of them.
  Replays(std::shared_ptr<Context> context, std::shared_ptr<Recorder> recorder, std::shared_ptr<GraphRoom> room,
          size_t steps, Recorder::Put put);
  ~Replays();
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  // Puts the steps on `stream`; false: they are to be launched singly, nothing was. `addresses`: all that the steps'
  // work depends on. `submit_ms`: that launching them singly has taken so far. `wait`: until they are recorded, if
  // addresses come again. The context is current. Errors: those that the context does not survive.
  [[nodiscard]] Result<bool> run(std::span<void* const> addresses, CUstream stream, double submit_ms, bool wait);
  // All graphs; addresses that come again are recorded again.
  void drop_all();

private:
  // The error where the context is lost; otherwise this plan does without graphs from now on.
  [[nodiscard]] Result<bool> give_up(Diagnostic why);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<GraphRoom> room_;
  const size_t steps_;
  const Recorder::Put put_;
  struct Kept {
    std::shared_ptr<Recording> recording;
    std::shared_ptr<const void> room; // of its graph, from when it is to be recorded
  };
  std::vector<Kept> kept_; // most recently used first
  bool refused_ = false;
};

} // namespace tessera::cuda
