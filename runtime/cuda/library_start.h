// Starts NVIDIA's libraries next to what else opening a model does: opening their files and their first answers take
// longer than a run.
#pragma once
#include "runtime/cuda/context.h"
#include "runtime/cuda/library_attention.h"
#include "runtime/executable.h"
#include <functional>
#include <thread>
#include <vector>

namespace tessera::cuda {

struct LibraryNeeds {
  bool products = false, convolutions = false;
  void add(const Executable& executable); // what its steps call
};

class LibraryStart {
public:
  LibraryStart() = default;
  ~LibraryStart(); // waits for those that it starts
  LibraryStart(const LibraryStart&) = delete;
  LibraryStart& operator=(const LibraryStart&) = delete;
  // Each on a thread of its own, and once in a context. What goes wrong, the call that needs the library says.
  void begin(int gpu, const LibraryNeeds& needs); // next to the driver's own start
  void begin(const std::shared_ptr<Context>& context, const LibraryNeeds& needs);
  // Begins plans of attentions, which a thread of cuDNN's engines goes on with (cudnn_attention.h).
  void begin(const std::shared_ptr<Context>& context, std::vector<AttentionProblem> attentions);

private:
  void run(std::function<Status()> body);
  std::vector<std::thread> threads_;
};

} // namespace tessera::cuda
