#include "codegen/driver/backend.h"
#include "codegen/driver/legalize.h"
#include <thread>
#include <unistd.h>

namespace tessera {
namespace {

class CpuBackend final : public Backend {
public:
  explicit CpuBackend(const CompileOptions& options) : target_(HostTarget::detect()) {
    traits_.vector_bytes = target_.vector_bytes;
    traits_.name = std::string("cpu ") + (target_.vector_bytes == 64   ? "avx512"
                                          : target_.vector_bytes == 32 ? "avx2"
                                                                       : "sse");
    traits_.threads =
        options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    if (long l1 = ::sysconf(_SC_LEVEL1_DCACHE_SIZE); l1 > 0) traits_.l1_bytes = l1;
    if (long l2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE); l2 > 0) traits_.l2_bytes = l2;
  }

  std::string target() const override { return "cpu x86-64 " + traits_.name.substr(4); }
  const DeviceTraits& traits() const override { return traits_; }
  Status legalize(Graph& graph) override { return legalize_for_host(graph); }
  bool supports(const Graph& graph, NodeId node, std::string* why_not) override {
    return host_supports(graph, node, why_not);
  }
  void configure(FusionOptions& fusion) override {
    fusion.generated_epilogues = true;
    fusion.half_weights = true;
    fusion.as_loops = host_as_loops;
  }

  Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests, ObjectCache& cache,
                             const CompileOptions& options) override {
    TESSERA_ASSIGN(auto linked, compile_kernels(graph, requests, traits_, target_, cache, options));
    DeviceCode out;
    for (const auto& o : linked.objects) out.objects.push_back(o.object);
    out.code = linked.module;
    out.reports = std::move(linked.reports);
    out.hits = linked.hits;
    out.misses = linked.misses;
    out.codegen_ms = linked.codegen_ms;
    out.link_ms = linked.link_ms;
    auto kernels = std::make_shared<std::vector<LinkedKernel>>(std::move(linked.kernels));
    out.scheduled = [kernels](int kernel) -> const ScheduledKernel& {
      return (*kernels)[static_cast<size_t>(kernel)].scheduled;
    };
    out.launch = [kernels](int kernel, const std::string& name, const std::function<BufferId(ValueId)>& buffer) {
      const auto& k = (*kernels)[static_cast<size_t>(kernel)];
      KernelLaunch l = launch_of(k.scheduled, name, k.symbol, k.object, buffer);
      l.function = k.function;
      return l;
    };
    return out;
  }

private:
  HostTarget target_;
  DeviceTraits traits_;
};

} // namespace

std::unique_ptr<Backend> make_cpu_backend(const CompileOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

Result<std::unique_ptr<Backend>> Backend::create(const CompileOptions& options) {
  if (options.device == "cpu") return make_cpu_backend(options);
  if (options.device == "cuda") return make_cuda_backend(options);
  return Diagnostic(ErrorCode::Usage, "there is no device '" + options.device + "': it is cpu or cuda");
}

} // namespace tessera
