// The device-dependent part of a compilation: planning options and machine code. The device's passes prepare graph and
// plan (device.h).
#pragma once
#include "codegen/compilation/kernels.h"
#include "codegen/compilation/routes.h"

namespace tessera {

// A kernel for which no schedule gives code.
struct FailedKernel {
  size_t request;
  Diagnostic error;
};
// Machine code of kernels, and their launches.
struct DeviceCode {
  std::vector<std::vector<char>> objects;  // for Executable::objects
  std::shared_ptr<const void> code;        // owner of the linked code
  std::vector<KernelReport> reports;       // by request
  std::vector<FailedKernel> failed;        // if there are any, nothing else is valid
  std::vector<ContainedFailure> contained; // of schedules and code that others took the place of
  std::vector<std::string> warnings;
  int hits = 0, misses = 0;
  double codegen_ms = 0, link_ms = 0;
  // By request: kernels for sizes with conditions, and last one for every size. All have the same buffers in the same
  // order, the same `written` and may_overwrite.
  std::vector<std::vector<ScheduledKernel>> kernels;

  [[nodiscard]] const ScheduledKernel& scheduled(int kernel) const {
    return kernels[static_cast<size_t>(kernel)].back();
  }
  [[nodiscard]] KernelLaunch launch(int kernel, const std::string& name,
                                    const std::function<BufferId(ValueId)>& buffer) const {
    return launch_of(kernels[static_cast<size_t>(kernel)], name, buffer);
  }
};

class Backend {
public:
  // Creates the backend of options.device. Errors: Usage for an unknown device or architecture.
  [[nodiscard]] static Result<std::unique_ptr<Backend>> create(const CompileOptions& options);
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string target() const = 0;         // Executable::target
  [[nodiscard]] virtual const Target& device() const = 0;       // the device of the code
  [[nodiscard]] virtual const std::string& figures() const = 0; // source of its figures: "h200", "a100, scaled to ..."
  // The routes of each structured operator.
  [[nodiscard]] virtual std::shared_ptr<const DeviceRoutes> routes() const = 0;
  // Sets device-dependent planning options, except routes.
  virtual void configure(FusionOptions& fusion) const = 0;
  [[nodiscard]] virtual Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests,
                                                   Cache& cache, const CompileOptions& options) = 0;
};

} // namespace tessera
