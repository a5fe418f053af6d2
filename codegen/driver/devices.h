// The table of devices. A new device is a folder of codegen/device with a backend, routes and passes, and a row in
// devices.cpp.
#pragma once
#include "codegen/compilation/compilation.h"

namespace tessera {

struct CompileDevice {
  std::string_view name; // "cpu": CompileOptions::device
  Result<std::unique_ptr<Backend>> (*backend)(const CompileOptions&);
  // Graph passes, after those of all devices, and plan passes, after those of all devices; in this order.
  std::vector<CompilePass> (*passes)();
};
[[nodiscard]] const std::vector<CompileDevice>& devices();
// The backend of options.device. Errors: Usage for an unknown device or architecture.
[[nodiscard]] Result<std::unique_ptr<Backend>> make_backend(const CompileOptions& options);
// Error Usage for an unknown name.
[[nodiscard]] Result<const CompileDevice*> find_device(std::string_view name);

} // namespace tessera
