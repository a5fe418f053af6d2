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
// The kernels of one request, and their report.
struct GeneratedKernel {
  // Kernels for sizes with conditions, and last one for every size. All have the same buffers in the same order, the
  // same `written` and may_overwrite.
  std::vector<ScheduledKernel> scheduled;
  KernelReport report; // its schedule is that of the last one; its texts hold all

  [[nodiscard]] const ScheduledKernel& general() const { return scheduled.back(); }
  // The launch of the last one, with the others as alternatives; `buffer` gives the executable's buffer of a graph value.
  [[nodiscard]] KernelLaunch launch(const std::string& name, const std::function<BufferId(ValueId)>& buffer) const {
    return launch_of(scheduled, name, buffer);
  }
};
// Machine code of kernels, and their launches. Kernels of the same text share their symbol and object.
struct DeviceCode {
  std::vector<GeneratedKernel> kernels;    // by request
  std::vector<std::vector<char>> objects;  // for Executable::objects
  std::shared_ptr<const void> code;        // owner of the linked code
  std::vector<FailedKernel> failed;        // if there are any, nothing else is valid
  std::vector<ContainedFailure> contained; // of schedules and code that others took the place of
  std::vector<std::string> warnings;       // spills, no assembler; each once
  int hits = 0, misses = 0;                // of the cache, by distinct text
  double codegen_ms = 0, link_ms = 0;
};

class Backend {
public:
  // Creates the backend of options.device. Errors: Usage for an unknown device or architecture.
  [[nodiscard]] static Result<std::unique_ptr<Backend>> create(const CompileOptions& options);
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string target() const = 0;         // Executable::target
  [[nodiscard]] virtual const Target& device() const = 0;       // the device of the code
  [[nodiscard]] virtual const std::string& figures() const = 0; // source of its figures: "h200", "a100, scaled to ..."
  // Names and values of what code depends on besides options and figures: compilers, an assembler, libraries.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> versions() const = 0;
  // The routes of each structured operator.
  [[nodiscard]] virtual std::shared_ptr<const DeviceRoutes> routes() const = 0;
  // Sets device-dependent planning options, except routes.
  virtual void configure(FusionOptions& fusion) const = 0;
  [[nodiscard]] virtual Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests,
                                                   Cache& cache, const CompileOptions& options) = 0;
};

} // namespace tessera
