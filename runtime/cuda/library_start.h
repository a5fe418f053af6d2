// Starts NVIDIA's libraries next to what else opening a model does: their first answers take longer than a run.
#pragma once
#include "runtime/cuda/context.h"
#include "runtime/executable.h"
#include <thread>
#include <vector>

namespace tessera::cuda {

class LibraryStart {
public:
  explicit LibraryStart(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  ~LibraryStart();
  LibraryStart(const LibraryStart&) = delete;
  LibraryStart& operator=(const LibraryStart&) = delete;
  // Those that the steps call and that the context does not have yet, each on a thread of its own. What goes wrong, the
  // call that needs the library says.
  void begin(const Executable& executable);

private:
  void start(void (*library)(Context&));
  std::shared_ptr<Context> context_;
  std::vector<std::thread> threads_;
};

} // namespace tessera::cuda
