// Finds a second thread in what one thread uses at a time.
#pragma once
#include "base/result.h"
#include <atomic>

namespace tessera {

class InUse {
public:
  // Ends the use when it goes.
  class Guard {
  public:
    explicit Guard(std::atomic<bool>& busy) : busy_(&busy) {}
    Guard(Guard&& o) noexcept : busy_(std::exchange(o.busy_, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (busy_) busy_->store(false, std::memory_order_release);
    }

  private:
    std::atomic<bool>* busy_;
  };
  // Error Usage where it is in use: "`what` is in use by another thread", with a note that says what to do.
  [[nodiscard]] Result<Guard> begin(const char* what, const char* note) {
    if (!busy_.exchange(true, std::memory_order_acquire)) return Guard(busy_);
    return Diagnostic(ErrorCode::Usage, std::string(what) + " is in use by another thread").note(note);
  }

private:
  std::atomic<bool> busy_{false};
};

} // namespace tessera
