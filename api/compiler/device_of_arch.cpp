#include "api/device.h"
#include "codegen/llvm/gpu_compiler.h"

namespace tessera {

Result<DeviceChoice> choose_device(const std::string& requested, const std::string& arch) {
  if (arch.empty()) return choose_device_here(requested);
  if (requested == "cpu")
    return Diagnostic(ErrorCode::Usage, "an architecture (" + arch + ") is of a GPU, not of the CPU");
  if (requested != "auto" && !requested.starts_with("cuda")) return choose_device_here(requested); // its error
  TESSERA_ASSIGN(auto target, GpuTarget::parse(arch));
  DeviceChoice c;
  c.device = "cuda";
  c.arch = target.arch;
  c.why = "code for " + target.arch;
  return c;
}

} // namespace tessera
