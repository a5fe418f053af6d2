// Library calls run single-threaded inside the pool's tasks. oneDNN as packaged takes its thread count from OpenMP, per
// calling thread, when a primitive is created and again when it is executed: every thread that does either holds one of
// these.
#pragma once

namespace tessera {

// Sets the calling thread's OpenMP thread count to 1 and restores it. A few nanoseconds; nothing when OpenMP is not
// loaded.
class SingleThreadOpenMP {
public:
  SingleThreadOpenMP();
  ~SingleThreadOpenMP();
  SingleThreadOpenMP(const SingleThreadOpenMP&) = delete;
  SingleThreadOpenMP& operator=(const SingleThreadOpenMP&) = delete;

private:
  int before_ = 0;
};

} // namespace tessera
