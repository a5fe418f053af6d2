#include "codegen/driver/devices.h"
#include "codegen/device/cpu/cpu.h"
#include "codegen/device/cuda/backend.h"
#include "codegen/device/cuda/passes.h"

namespace tessera {

const std::vector<CompileDevice>& devices() {
  static const std::vector<CompileDevice> table = {
      {"cpu", make_cpu_backend, cpu_passes},
      {"cuda", make_cuda_backend, cuda_passes},
  };
  return table;
}

Result<const CompileDevice*> find_device(std::string_view name) {
  std::string known;
  for (const CompileDevice& d : devices()) {
    if (d.name == name) return &d;
    known += (known.empty() ? "" : " or ") + std::string(d.name);
  }
  return Diagnostic(ErrorCode::Usage, "there is no device '" + std::string(name) + "': it is " + known);
}

Result<std::unique_ptr<Backend>> make_backend(const CompileOptions& options) {
  TESSERA_ASSIGN(const CompileDevice* device, find_device(options.device));
  return device->backend(options);
}

} // namespace tessera
