#include "codegen/driver/backend.h"
#include "codegen/driver/gpu_kernels.h"
#include "codegen/driver/legalize.h"
#include "graph/ops/op.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"

namespace tessera {
namespace {

// Most that a block may have. PTX for sm_90 runs on newer GPUs, some of which have less: kernels that ask for it are
// alternatives there.
int64_t shared_bytes_of(std::string_view arch) {
  if (arch == "sm_86" || arch == "sm_89") return 99 << 10;
  if (arch == "sm_80" || arch == "sm_87") return 163 << 10;
  return 227 << 10;
}

class CudaBackend final : public Backend {
public:
  CudaBackend(const CompileOptions& options, GpuTarget target, GpuKernelOptions kernels,
              std::vector<std::string> warnings)
      : target_(std::move(target)), kernels_(std::move(kernels)), warnings_(std::move(warnings)),
        find_libraries_(options.find_libraries) {
    libraries_.as_loops = options.as_loops;
    libraries_.cublaslt = options.cublaslt;
    libraries_.tf32 = options.strict_rounding ? Tf32::Off : options.tf32;
    libraries_.cudnn = options.cudnn;
    traits_.kind = DeviceTraits::Kind::Cuda;
    traits_.name = "cuda " + target_.arch;
    traits_.shared_bytes = shared_bytes_of(target_.arch);
    if (options.multiprocessors > 0) traits_.multiprocessors = options.multiprocessors;
  }

  std::string target() const override {
    return traits_.name + (kernels_.assemble_for.empty() ? "" : " for " + kernels_.assemble_for);
  }
  const DeviceTraits& traits() const override { return traits_; }
  Status legalize(Graph& graph) override {
    if (find_libraries_) find_libraries(graph);
    return legalize_for_cuda(graph, libraries_);
  }
  bool supports(const Graph& graph, NodeId node, std::string* why_not) override {
    return cuda_supports(graph, node, why_not);
  }
  void configure(FusionOptions& fusion) override { configure_for_cuda(fusion, libraries_); }
  void refine(const Graph& graph, FusionPlan& plan) override { place_attention(graph, libraries_, plan); }

  Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests, ObjectCache& cache,
                             const CompileOptions& options) override {
    TESSERA_ASSIGN(auto made, compile_gpu_kernels(graph, requests, traits_, target_, cache, options, kernels_));
    DeviceCode out;
    out.objects = std::move(made.objects);
    out.reports = std::move(made.reports);
    out.warnings = warnings_;
    out.warnings.insert(out.warnings.end(), made.warnings.begin(), made.warnings.end());
    out.hits = made.hits;
    out.misses = made.misses;
    out.codegen_ms = made.codegen_ms;
    auto kernels = std::make_shared<std::vector<GpuKernel>>(std::move(made.kernels));
    out.scheduled = [kernels](int kernel) -> const ScheduledKernel& {
      return (*kernels)[static_cast<size_t>(kernel)].variants.back().scheduled;
    };
    out.launch = [kernels](int kernel, const std::string& name, const std::function<BufferId(ValueId)>& buffer) {
      return gpu_launch(name, (*kernels)[static_cast<size_t>(kernel)], buffer);
    };
    return out;
  }

private:
  // Opens the libraries that this graph has work for.
  void find_libraries(const Graph& graph) {
    bool products = false, windows = false;
    for (NodeId id : graph.order())
      if (const auto* s = graph.node(id).op->structured()) {
        products = products || s->kind == Structured::Matmul || s->kind == Structured::Conv;
        windows = windows || s->kind == Structured::Conv || s->kind == Structured::Pool;
      }
    auto look = [&](bool wanted, bool& there, const char* what, auto open) {
      if (!wanted || !there) return;
      auto opened = open();
      if (opened.ok()) return;
      there = false;
      warnings_.push_back(opened.error().message + ": " + what + " are generated loops");
    };
    look(products, libraries_.cublaslt, "products", cuda::CublasLt::open);
    look(windows, libraries_.cudnn, "convolutions and pooling", cuda::Cudnn::open);
  }

  GpuTarget target_;
  GpuKernelOptions kernels_;
  std::vector<std::string> warnings_;
  bool find_libraries_;
  CudaLibraries libraries_;
  DeviceTraits traits_;
};

} // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CompileOptions& options) {
  TESSERA_ASSIGN(auto target, GpuTarget::parse(options.arch.empty() ? "sm_90" : options.arch));
  GpuKernelOptions kernels;
  kernels.assemble_for = options.assemble_for;
  std::vector<std::string> warnings;
  auto assembler = cuda::Assembler::find();
  if (assembler.ok())
    kernels.assembler = *assembler;
  else
    warnings.push_back("no assembler of PTX, the driver compiles it when it is loaded: " + assembler.error().message);
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(options, std::move(target), std::move(kernels), std::move(warnings)));
}

} // namespace tessera
