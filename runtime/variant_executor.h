// An executor whose variants its owner arranges between calls; the executors of a session are over one.
#pragma once
#include "runtime/executor.h"

namespace tessera {

class VariantExecutor : public Executor {
public:
  // What a miss leads to, ExecutorOptions::recompile, is asked where no variant fits a call. `before_generic`: where a
  // specialized one missed, too; what comes then stands before the generic one, else last.
  struct Order {
    size_t generic =
        0; // index of the generic variant: those before it are specialized, those behind it came as it missed
    bool before_generic = false;
    // The executor runs a body of a control step: a miss ends the call of the step's own executor, which sees to what
    // OutputAllocator promises.
    bool of_body = false;
  };
  // As Executor::create().
  [[nodiscard]] static Result<std::unique_ptr<VariantExecutor>>
  create(std::vector<std::shared_ptr<const Executable>> variants, Order order, ExecutorOptions options);

  // These variants from now on, in this order; the one at index `generic` is the generic one. Those that the executor
  // has stay loaded, and those that it gives up end first. Between calls only. One that cannot be loaded is left out,
  // and logged. Error Usage: an executable is missing; those of loading the generic one.
  [[nodiscard]] virtual Status arrange(std::span<const std::shared_ptr<const Executable>> variants, size_t generic) = 0;
  // Whether the caller captures `stream`: a call on it takes the variants as they are. False also where that is unknown.
  [[nodiscard]] virtual bool captures(void* stream) = 0;
};

} // namespace tessera
