// How a thread rounds and treats denormals: torch.set_flush_denormal() and its like set it for the calling thread, whose
// helpers compute a part of the same loops.
#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera {

class FloatMode {
public:
  // That of this thread.
  static FloatMode here() {
    FloatMode mode;
#if defined(__x86_64__)
    mode.bits_ = _mm_getcsr();
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(mode.bits_));
#endif
    return mode;
  }
  // That of a thread nobody has changed it for: to nearest, with denormals.
  static FloatMode standard() {
    FloatMode mode;
#if defined(__x86_64__)
    mode.bits_ = 0x1f80;
#endif
    return mode;
  }
  void set() const {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(bits_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(bits_));
#endif
  }

private:
  uint64_t bits_ = 0;
};

// Another thread's mode, in a scope.
class WithFloatMode {
public:
  explicit WithFloatMode(const FloatMode& mode) : before_(FloatMode::here()) { mode.set(); }
  ~WithFloatMode() { before_.set(); }
  WithFloatMode(const WithFloatMode&) = delete;
  WithFloatMode& operator=(const WithFloatMode&) = delete;

private:
  FloatMode before_;
};

} // namespace tessera
