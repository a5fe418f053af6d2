// What of a compile depends on the device: how the graph is prepared, what runs where, and machine code for its
// kernels.
#pragma once
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
  [[nodiscard]] virtual std::string target() const = 0;         // Executable::target
  [[nodiscard]] virtual const Target& device() const = 0;       // whose figures decide
  [[nodiscard]] virtual const std::string& figures() const = 0; // where they come from: "h200", "a100, scaled to ..."
  // Rewrites what the device runs another way.
  [[nodiscard]] virtual Status legalize(Graph& graph) = 0;
  // Whether a node runs on the device; otherwise it runs by its reference on the host, for the reason `why_not`.
  [[nodiscard]] virtual bool supports(const Graph& graph, NodeId node, std::string* why_not) = 0;
  // What the device's library does with results.
  virtual void configure(FusionOptions& fusion) = 0;
  // Chooses among ways of computing a group that the device has beside the plan's.
  virtual void refine(const Graph&, FusionPlan&) {}
  [[nodiscard]] virtual Result<DeviceCode> compile(const Graph& graph, std::span<const KernelRequest> requests,
                                                   ObjectCache& cache, const CompileOptions& options) = 0;
};

[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_backend(const CompileOptions& options);
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cuda_backend(const CompileOptions& options);

} // namespace tessera
