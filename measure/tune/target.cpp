#include "measure/tune/target.h"
#include "base/file.h"
#include "base/processors.h"
#include "codegen/llvm/gpu_compiler.h"
#include "codegen/llvm/host_compiler.h"
#include <sstream>

namespace tessera {
namespace {

// The processor's "model name" on Linux; other systems do not report it.
std::string processor() {
  auto cpuinfo = read_file("/proc/cpuinfo");
  std::istringstream in(cpuinfo.ok() ? *cpuinfo : "");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name"))
      if (auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "x86-64";
}

} // namespace

std::optional<TunedTarget> tuned_target(const CompileOptions& o) {
  if (o.device == "cuda") {
    auto target = GpuTarget::parse(o.arch.empty() ? "sm_90" : o.arch);
    if (!target.ok() || o.device_name.empty()) return std::nullopt;
    const std::string arch = o.assemble_for.empty() ? target->arch : o.assemble_for;
    return TunedTarget{o.device_name + ", " + arch, o.driver, gpu_compiler_version(*target)};
  }
  const HostTarget host = HostTarget::detect();
  const int threads = o.threads > 0 ? o.threads : usable_processors();
  return TunedTarget{processor() + ", " + std::to_string(host.vector_bytes) + "-byte vectors, " +
                         std::to_string(threads) + " threads",
                     "none", host_compiler_version(host)};
}

} // namespace tessera
