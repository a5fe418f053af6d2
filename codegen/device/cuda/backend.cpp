#include "codegen/device/cuda/backend.h"
#include "base/log.h"
#include "codegen/compilation/requests.h"
#include "codegen/schedule/schedule_records.h"
#include "codegen/target/select.h"
#include "graph/ir/operator.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"
#include <mutex>

namespace tessera {
CudaBackend::CudaBackend(const CompileOptions& options, GpuTarget target, ChosenTarget device, GpuKernelOptions kernels,
                         std::vector<std::string> warnings)
    : target_(std::move(target)), device_(std::move(device.target)), figures_(std::move(device.why)),
      kernels_(std::move(kernels)), warnings_(std::move(warnings)), find_libraries_(options.find_libraries) {
  libraries_->device = device_;
  libraries_->as_loops = options.as_loops;
  libraries_->cublaslt = options.cublaslt;
  const FusionConstraints requests = requests_of(options);
  libraries_->kept_apart.insert(requests.breaks.begin(), requests.breaks.end());
  for (const auto& [a, b] : requests.apart) libraries_->kept_apart.insert({a, b});
  libraries_->tf32 = options.strict_rounding ? Tf32::Off : options.tf32;
  libraries_->cudnn = options.cudnn;
}

std::string CudaBackend::target() const {
  return "cuda " + target_.arch + (kernels_.assemble_for.empty() ? "" : " for " + kernels_.assemble_for);
}

std::vector<std::pair<std::string, std::string>> CudaBackend::versions() const {
  std::vector<std::pair<std::string, std::string>> out = {
      {"compiler", gpu_compiler_version(target_)},
      {"assembler", kernels_.assembler ? kernels_.assembler->version() : ""}};
  if (!find_libraries_) return out;
  out.emplace_back("products", libraries_->cublaslt && cuda::CublasLt::open().ok() ? "cuBLASLt" : "");
  out.emplace_back("convolutions", libraries_->cudnn && cuda::Cudnn::open().ok() ? "cuDNN" : "");
  return out;
}

Result<DeviceCode> CudaBackend::compile(const Graph& graph, std::span<const KernelRequest> requests, Cache& cache,
                                        const CompileOptions& options) {
  TESSERA_ASSIGN(auto made, compile_gpu_kernels(graph, requests, device_, target_, cache, options, kernels_));
  made.warnings.insert(made.warnings.begin(), warnings_.begin(), warnings_.end());
  return made;
}

Result<MadeObject> CudaBackend::compile_kernel(const tile::Kernel& kernel, Cache& cache) const {
  const std::function<bool()> never;
  const ObjectCompiler compiler(target_, kernels_, cache, false, never, device_.registers, device_.thread_registers);
  MadeObject made;
  made.key = hash128(kernel.name + "\n" + anonymous_text(kernel), compiler.seed());
  made.first_user = kernel.name;
  made.kernel = &kernel;
  compiler.make(made);
  if (made.error) return std::move(*made.error);
  if (made.not_assembled) TESSERA_LOGF(LogChannel::Warnings, made.not_assembled->str());
  made.kernel = nullptr;
  return made;
}

void CudaBackend::find_libraries(const Graph& graph) {
  if (!find_libraries_) return;
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
  look(products, libraries_->cublaslt, "products", cuda::CublasLt::open);
  look(windows, libraries_->cudnn, "convolutions and pooling", cuda::Cudnn::open);
}

namespace {

// Looked for once, by the first kernel that needs it.
class WholePrograms {
public:
  const cuda::Assembler* get() {
    std::call_once(looked_, [&] {
      if (auto found = cuda::Assembler::find_for_whole_programs(); found.ok()) assembler_ = *found;
    });
    return assembler_.get();
  }

private:
  std::once_flag looked_;
  std::shared_ptr<cuda::Assembler> assembler_;
};

} // namespace

Result<std::unique_ptr<CudaBackend>> CudaBackend::create(const CompileOptions& options) {
  TESSERA_ASSIGN(auto target, GpuTarget::parse(options.arch.empty() ? "sm_90" : options.arch));
  DeviceFacts here;
  here.kind = Target::Kind::Cuda;
  here.gpu = options.device_name;
  here.arch = options.assemble_for.empty() ? target.arch : options.assemble_for;
  here.multiprocessors = options.multiprocessors;
  here.shared_bytes = options.shared_bytes;
  here.l2_bytes = options.l2_bytes;
  here.memory_peak_bytes_per_us = options.memory_peak_bytes_per_us;
  TESSERA_ASSIGN(ChosenTarget chosen, choose_target(options.target, here));
  target.shared_bytes = chosen.target.shared_bytes;
  if (!target.warpgroups()) chosen.target.warpgroup_f16_per_cycle = 0;
  if (!target.small_floats()) chosen.target.tensor_f8_per_cycle = 0;
  if (options.records) TESSERA_TRY(ScheduleRecords::check(chosen.target));
  GpuKernelOptions kernels;
  kernels.assemble_for = options.assemble_for;
  std::vector<std::string> warnings;
  if (!chosen.warning.empty()) warnings.push_back(chosen.warning);
  auto assembler = cuda::Assembler::find();
  if (assembler.ok())
    kernels.assembler = *assembler;
  else
    warnings.push_back("no assembler of PTX, the driver compiles it when it is loaded: " + assembler.error().message);
  kernels.whole_programs = [found = std::make_shared<WholePrograms>()] { return found->get(); };
  return std::make_unique<CudaBackend>(options, std::move(target), std::move(chosen), std::move(kernels),
                                       std::move(warnings));
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const CompileOptions& options) {
  TESSERA_ASSIGN(auto backend, CudaBackend::create(options));
  return std::unique_ptr<Backend>(std::move(backend));
}

} // namespace tessera
