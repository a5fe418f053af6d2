#include "base/processors.h"
#include "codegen/device/cpu/cpu.h"
#include "codegen/device/cpu/host_kernels.h"
#include "codegen/target/host.h"
#include "codegen/target/select.h"

namespace tessera {
namespace {

class CpuBackend final : public Backend {
public:
  CpuBackend(HostTarget target, ChosenTarget device, const CompileOptions& options)
      : target_(std::move(target)), device_(std::move(device.target)),
        routes_(std::make_shared<const DeviceRoutes>(cpu_routes(options.as_loops))), figures_(std::move(device.why)) {}

  std::string target() const override {
    return std::string("cpu x86-64 ") + (target_.vector_bytes == 64   ? "avx512"
                                         : target_.vector_bytes == 32 ? "avx2"
                                                                      : "sse");
  }
  const Target& device() const override { return device_; }
  const std::string& figures() const override { return figures_; }
  std::vector<std::pair<std::string, std::string>> versions() const override {
    return {{"compiler", host_compiler_version(target_)}};
  }
  std::shared_ptr<const DeviceRoutes> routes() const override { return routes_; }
  void configure(FusionOptions& fusion) const override {
    fusion.generated_epilogues = true;
    fusion.half_weights = true;
    fusion.bytes_per_instruction = device_.bytes_per_instruction();
    fusion.cached_instructions = cached_instructions(device_);
  }

  Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests, Cache& cache,
                             const CompileOptions& options) override {
    return compile_host_kernels(graph, requests, device_, target_, cache, options);
  }

private:
  HostTarget target_;
  Target device_;
  std::shared_ptr<const DeviceRoutes> routes_;
  std::string figures_;
};

} // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const CompileOptions& options) {
  HostTarget host = HostTarget::detect();
  DeviceFacts here;
  here.vector_bytes = host.vector_bytes;
  TESSERA_ASSIGN(ChosenTarget chosen, choose_target(options.target, here));
  Target& device = chosen.target;
  if (device.vector_bytes > host.vector_bytes)
    return Diagnostic(ErrorCode::Usage, "target '" + options.target + "' has vectors of " +
                                            std::to_string(device.vector_bytes) + " bytes, this machine of " +
                                            std::to_string(host.vector_bytes));
  host.vector_bytes = device.vector_bytes;
  // A default target stands for every host with these vectors; the system reports the caches and cores.
  if (options.target.empty()) {
    device.cores = usable_processors();
    set_host_caches(device);
  }
  if (options.threads > 0) device.cores = options.threads;
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(host), std::move(chosen), options));
}

} // namespace tessera
