// Starts NVIDIA's libraries next to what else opening a model does: their first answers take longer than a run.
#pragma once
#include "runtime/cuda/context.h"
#include "runtime/executable.h"
#include <functional>
#include <thread>
#include <vector>

namespace tessera::cuda {

class LibraryStart {
public:
  LibraryStart() = default;
  ~LibraryStart();
  LibraryStart(const LibraryStart&) = delete;
  LibraryStart& operator=(const LibraryStart&) = delete;
  // Each on a thread of its own, those that the steps call. What goes wrong, the call that needs the library says.
  void open(const Executable& executable); // opens their files, which needs no context
  void begin(const std::shared_ptr<Context>& context, const Executable& executable); // that the context has not yet

private:
  void run(std::function<void()> body);
  bool opened_ = false;
  std::vector<std::thread> threads_;
};

} // namespace tessera::cuda
