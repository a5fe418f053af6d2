// The boundary at which exceptions end. Our code throws nothing but the InternalError of a failed check (recover.h);
// the standard library and others do: std::bad_alloc above all. The entry points of the API, of executors and of
// threads run inside guarded(), which makes a Diagnostic of what was thrown; in between, destructors release what is
// held.
#pragma once
#include "base/fork.h"
#include "base/recover.h"
#include "base/result.h"
#include <atomic>
#include <exception>
#include <type_traits>

namespace tessera {

// The action that an error interrupted, for its message: "compiling kernel", and its name where it has one.
struct Doing {
  std::string_view what, name;
  Doing(const char* w) : what(w) {} // NOLINT: mostly a literal
  Doing(std::string_view w, std::string_view n) : what(w), name(n) {}
};

// The exception that is being handled, as an error: OutOfMemory for std::bad_alloc, std::length_error and what the
// system lacks resources for; Internal for others. Needs no memory of its own.
[[nodiscard]] Failure exception_as_error(const Doing& doing) noexcept;
// Sets memory aside for errors that are made when there is none. guarded() calls it.
void set_errors_aside() noexcept;

// Instead of Diagnostic::str(), where there is no memory for that.
inline constexpr const char* kNoMemoryForError = "error TES-4001 out-of-memory: out of memory\n";

// body()'s Status or Result; an exception that leaves it is an error.
template <class Body>
[[nodiscard]] std::invoke_result_t<Body> guarded(const Doing& doing, Body&& body) noexcept {
  set_errors_aside();
  const InsideLibrary inside;
  if (refused_after_fork()) return fork_refusal();
  try {
    const RecoveryScope checks_throw;
    return std::forward<Body>(body)();
  } catch (...) {
    return exception_as_error(doing);
  }
}

// The first exception of tasks on several threads, for the thread that waits for them.
class FirstException {
public:
  // False: body() has thrown.
  template <class Body>
  bool run(Body&& body) noexcept {
    try {
      const RecoveryScope checks_throw;
      std::forward<Body>(body)();
      return true;
    } catch (...) {
      if (!thrown_.exchange(true)) first_ = std::current_exception();
      return false;
    }
  }
  [[nodiscard]] bool thrown() const { return thrown_.load(std::memory_order_relaxed); }
  // Throws it again, if there is one, and forgets it. All tasks have ended.
  void rethrow() {
    if (!thrown()) return;
    thrown_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(first_, nullptr));
  }

private:
  std::atomic<bool> thrown_{false};
  std::exception_ptr first_;
};

} // namespace tessera
