// A cuDNN that only takes notes, in the context of a fake GPU. It has one engine at a time, with two knobs.
#pragma once
#include "fake_driver.h"
#include "runtime/cuda/cudnn.h"
#include "tests/cuda/library_device.h"

namespace tessera::cuda::test::fake_cudnn {

struct Library {
  tessera::test::FakeGpu gpu;
  std::set<size_t> takes = {1, 2, 3, 4};              // graphs of so many operations
  std::vector<cudnnBackendNumericalNote_t> numerical; // of the only engine
  std::vector<cudnnBackendBehaviorNote_t> behaviour;
  int64_t engine = 7, knob = 3; // what the heuristics propose: the engine's index, the value of its first knob
  std::set<std::pair<int64_t, int64_t>> refused; // engine, batch of x: there is no such plan
  std::vector<size_t> requested;                 // operations of the graphs, in order
  int heuristics = 0;                            // queries
  std::vector<std::string> plans;                // finalized: "engine 7 knobs 2=3 14=1 x 2,8,5,5"
  std::vector<int64_t> ids;                      // of the last run
  std::vector<void*> data;
  int live = 0, runs = 0;
};

struct Machine {
  Library state;
  std::shared_ptr<Cudnn> dnn = std::make_shared<Cudnn>();
  std::unique_ptr<Gpu> gpu;
  // `cache`: where choices are kept. `version`: of the library.
  explicit Machine(const std::shared_ptr<Cache>& cache = nullptr, size_t version = 91900);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

struct Convolution {
  explicit Convolution(int64_t batch = 2, int64_t size = 5);
  DeviceOperand x, w, y, bias;
  ConvCall call;
  bool can_finish = false, batch_varies = false, size_varies = false;
};

// Plans and runs; the roles bound at the last run come back through the library's notes. Whether the epilogue was
// computed.
[[nodiscard]] Result<bool> fused(Machine& machine, Convolution c);

} // namespace tessera::cuda::test::fake_cudnn
