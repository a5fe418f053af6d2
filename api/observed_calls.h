// What stands in the place of which executable, and how executors take it between two calls.
#pragma once
#include "runtime/executor.h"
#include <atomic>
#include <mutex>
#include <set>

namespace tessera {

class BackgroundWork; // api/variant_source.h
struct SessionVariant;

// Shared by the executors of a session.
class Successors {
public:
  void add(const Executable& of, std::shared_ptr<const Executable> successor);
  // The variant is given up: another executable may come to lie where one of its executables was.
  void forget(const SessionVariant& variant);
  [[nodiscard]] uint64_t generation() const { return generation_.load(); }
  // The last one, where there are several in a row.
  [[nodiscard]] std::shared_ptr<const Executable> of(const Executable& executable) const;

private:
  std::atomic<uint64_t> generation_{0};
  mutable std::mutex mutex_;
  std::map<const Executable*, std::shared_ptr<const Executable>> next_;
};

// One executor's calls, reported to the work in the background.
[[nodiscard]] std::shared_ptr<CallObserver> observe_calls(std::shared_ptr<BackgroundWork> work,
                                                          std::shared_ptr<const Successors> successors);

} // namespace tessera
