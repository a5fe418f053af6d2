// Kernels on an NVIDIA GPU: compiled by its backend, launched through the driver.
#include "codegen/device/cuda/backend.h"
#include "codegen/kernels/checked_kernel.h"
#include "runtime/cuda/single_kernel.h"
#include "runtime/empty_tensor_map.h"
#include <algorithm>

namespace tessera {
namespace {

bool reports(const tile::Kernel& kernel) {
  for (tile::OpId id = 0; id < kernel.op_count(); ++id)
    if (kernel.op(id).kind == tile::OpKind::ReportIndex) return true;
  return false;
}

class GpuTileKernel final : public CheckedKernel {
public:
  GpuTileKernel(tile::Kernel kernel, const MadeObject& made, std::unique_ptr<cuda::SingleKernel> loaded)
      : CheckedKernel(std::move(kernel), true), maps_(made.object.tensor_maps), loaded_(std::move(loaded)) {
    info_.device = made.object.ptx_arch;
    info_.threads = made.object.threads;
    info_.shared_bytes = made.object.shared_bytes;
    info_.registers = made.object.registers;
    info_.spill_bytes = made.object.spill_bytes;
    info_.from_cache = made.cached;
  }

private:
  Status start(const Grid& grid, uint64_t* words, void* stream) override {
    TESSERA_ASSIGN(const auto report, loaded_->take_report());
    if (report) return bad_index(*report).note("in an earlier launch on the GPU");
    const size_t count = packer().words();
    std::vector<uint64_t> in_order(count);
    for (size_t i = 0; i < count; ++i) in_order[i] = words[packer().word_of(i)];
    std::vector<TensorMapOf<int64_t>> maps;
    for (const KernelTensorMap& map : maps_) {
      TESSERA_ASSIGN(auto made, map_at(map, in_order));
      maps.push_back(std::move(made));
    }
    return loaded_->launch(grid, in_order, maps, static_cast<CUstream>(stream));
  }

  // The map at the arguments of a launch.
  Result<TensorMapOf<int64_t>> map_at(const KernelTensorMap& map, std::span<const uint64_t> arguments) const {
    bool fits = true;
    auto made = map.convert([&](const ParameterProduct& size) {
      int64_t value = size.factor;
      for (const int i : size.params)
        fits = !__builtin_mul_overflow(value, static_cast<int64_t>(arguments[static_cast<size_t>(i)]), &value) && fits;
      return value;
    });
    if (is_empty(made)) return made;
    const std::string why = fits ? refusal(made, INT64_MAX) : "a size of it is no number of 64 bits";
    if (why.empty()) return made;
    return Diagnostic(ErrorCode::BadInput, "kernel '" + kernel().name + "': the tensor map of argument '" +
                                               kernel().params[static_cast<size_t>(map.buffer)].name +
                                               "' is not possible: " + why);
  }

  std::vector<KernelTensorMap> maps_;
  std::unique_ptr<cuda::SingleKernel> loaded_;
};

} // namespace

Result<std::unique_ptr<TileKernel>> make_gpu_kernel(tile::Kernel kernel, const TileKernelOptions& options,
                                                    Cache& cache) {
  std::shared_ptr<cuda::Context> context = options.gpu_context;
  if (!context) {
    TESSERA_ASSIGN(context, cuda::Context::open(options.gpu));
  }
  TESSERA_ASSIGN(const auto backend, CudaBackend::create(options.compile));
  TESSERA_ASSIGN(const MadeObject made, backend->compile_kernel(kernel, cache));
  TESSERA_ASSIGN(auto loaded, cuda::SingleKernel::load(std::move(context), made.object, reports(kernel),
                                                       tile::needs_cooperative_launch(kernel)));
  return std::unique_ptr<TileKernel>(std::make_unique<GpuTileKernel>(std::move(kernel), made, std::move(loaded)));
}

} // namespace tessera
