// Measures the figures of a Target on the device at hand: small kernels, each of which is bound by one thing alone.
#pragma once
#include "codegen/target/select.h"
#include "runtime/executor.h"
#include <functional>
#include <memory>

namespace tessera {

namespace cuda {
class Context;
}

struct CalibrateOptions {
  std::string name = "calibrated";                       // Target::name
  std::function<void(const std::string& what)> progress; // what is measured next, for people; may be empty
};

// Of a GPU, in less than two minutes. What is not measured comes from the target that stands for it otherwise
// (choose_target), with its source. Errors: those of the driver; DeviceError for a measured figure out of its bounds.
[[nodiscard]] Result<Target> calibrate_gpu(cuda::Context& context, const CalibrateOptions& options);
// Of the host, whose cores `pool` uses.
[[nodiscard]] Result<Target> calibrate_host(ThreadPool& pool, const CalibrateOptions& options);

// PTX of the kernels that calibrate_gpu() runs, for sm_80 and newer.
[[nodiscard]] std::string calibration_ptx();

} // namespace tessera
