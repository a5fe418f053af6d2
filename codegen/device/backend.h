// What of a compile depends on the device: what runs where, and machine code for kernels. How graph and plan are
// prepared is said by the device's passes (device.h).
#pragma once
#include "codegen/device/routes.h"
#include "codegen/driver/kernels.h"

namespace tessera {

// Machine code of kernels, and how they are launched.
struct DeviceCode {
  std::vector<std::vector<char>> objects; // for Executable::objects
  std::shared_ptr<const void> code;       // keeps what is linked alive
  std::vector<KernelReport> reports;      // as requested
  std::vector<std::string> warnings;
  int hits = 0, misses = 0;
  double codegen_ms = 0, link_ms = 0;
  // As requested. `buffer` gives the executable's buffer of a graph value.
  std::function<KernelLaunch(int kernel, const std::string& name, const std::function<BufferId(ValueId)>& buffer)>
      launch;
  // Its buffers, and which of them may take over another's memory; with alternatives, they agree in that.
  std::function<const ScheduledKernel&(int kernel)> scheduled;
};

class Backend {
public:
  // For options.device. Errors: Usage for a device or an architecture that there is no code for.
  [[nodiscard]] static Result<std::unique_ptr<Backend>> create(const CompileOptions& options);
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string target() const = 0;   // Executable::target
  [[nodiscard]] virtual const Target& device() const = 0; // what code is made for
  [[nodiscard]] virtual const std::string&
  figures() const = 0; // where its figures come from: "h200", "a100, scaled to ..."
  // By what each structured operator runs.
  [[nodiscard]] virtual std::shared_ptr<const DeviceRoutes> routes() const = 0;
  // Sets what of planning depends on the device, beside its routes.
  virtual void configure(FusionOptions& fusion) const = 0;
  [[nodiscard]] virtual Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests,
                                                   ObjectCache& cache, const CompileOptions& options) = 0;
};

} // namespace tessera
