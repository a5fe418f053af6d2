// Measures the figures of a Target on the device at hand, with micro-kernels that are each bound by one resource.
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
  std::function<void(const std::string& what)> progress; // called before each measurement with its name; may be empty
};

// Measures a GPU, in less than two minutes. Figures that are not measured are those of the default target of this GPU
// (choose_target), with their source. Errors: those of the driver; DeviceError for a measured figure out of its bounds.
[[nodiscard]] Result<Target> calibrate_gpu(cuda::Context& context, const CalibrateOptions& options);
// Measures the host, on the cores of `pool`.
[[nodiscard]] Result<Target> calibrate_host(ThreadPool& pool, const CalibrateOptions& options);

// PTX of the kernels that calibrate_gpu() runs, for sm_80 and newer.
[[nodiscard]] std::string calibration_ptx();

} // namespace tessera
