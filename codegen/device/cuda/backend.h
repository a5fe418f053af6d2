// NVIDIA GPUs as a device.
#pragma once
#include "codegen/compilation/backend.h"
#include "codegen/device/cuda/code_objects.h"
#include "codegen/device/cuda/gpu_kernels.h"
#include "codegen/device/cuda/routes.h"

namespace tessera {

class CudaBackend final : public Backend {
public:
  // The backend of options.arch. Errors: Usage for an unknown architecture or target.
  [[nodiscard]] static Result<std::unique_ptr<CudaBackend>> create(const CompileOptions& options);
  CudaBackend(const CompileOptions& options, GpuTarget target, ChosenTarget device, GpuKernelOptions kernels,
              std::vector<std::string> warnings);
  [[nodiscard]] std::string target() const override;
  [[nodiscard]] const Target& device() const override { return device_; }
  [[nodiscard]] const std::string& figures() const override { return figures_; }
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> versions() const override;
  [[nodiscard]] std::shared_ptr<const DeviceRoutes> routes() const override { return routes_; }
  void configure(FusionOptions& fusion) const override { configure_for_cuda(fusion, device_); }
  [[nodiscard]] Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests, Cache& cache,
                                           const CompileOptions& options) override;

  // One kernel by itself; its name becomes the symbol's. Errors as of compile(), and CodegenError of an assembler.
  [[nodiscard]] Result<MadeObject> compile_kernel(const tile::Kernel& kernel, Cache& cache) const;

  [[nodiscard]] const CudaLibraries& libraries() const { return *libraries_; }
  // With CompileOptions::find_libraries: opens the libraries that this graph needs; one that cannot be opened counts as
  // missing.
  void find_libraries(const Graph& graph);

private:
  GpuTarget target_;
  Target device_;
  std::string figures_;
  GpuKernelOptions kernels_;
  std::vector<std::string> warnings_;
  bool find_libraries_;
  std::shared_ptr<CudaLibraries> libraries_ = std::make_shared<CudaLibraries>();
  std::shared_ptr<const DeviceRoutes> routes_ = cuda_routes(libraries_);
};
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda_backend(const CompileOptions& options);

} // namespace tessera
