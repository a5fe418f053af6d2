// A session whose kernels are tuned during its calls: codegen/tune/background.h, and who takes what it finds.
#pragma once
#include "codegen/tune/background.h"
#include "runtime/executor.h"

namespace tessera {

// What stands in the place of which executable; shared by the executors of a session.
class Successors {
public:
  void add(const Executable& of, std::shared_ptr<const Executable> successor);
  [[nodiscard]] uint64_t generation() const { return generation_.load(); }
  // The last one, where there are several in a row.
  [[nodiscard]] std::shared_ptr<const Executable> of(const Executable& executable) const;

private:
  std::atomic<uint64_t> generation_{0};
  mutable std::mutex mutex_;
  std::map<const Executable*, std::shared_ptr<const Executable>> next_;
};

// One executor's calls, reported to the tuner. `known` is the executor's list of executables that it has been given.
[[nodiscard]] std::shared_ptr<CallObserver> observe_calls(std::shared_ptr<BackgroundTuner> tuner,
                                                          std::shared_ptr<const Successors> successors,
                                                          std::shared_ptr<std::set<const Executable*>> known);

// TESSERA_TUNE_SHARE, 0 where it is not set. Error Usage: no number from 0 to 1.
[[nodiscard]] Result<double> tune_share_of_environment();
// Error Usage: not from 0 to 1. Anything else is fine.
[[nodiscard]] Status check_tune_share(double share, const std::string& where);

} // namespace tessera
