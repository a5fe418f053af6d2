// The table of devices. A new device is a folder next to this file, with a backend, routes and passes, and a row in
// device.cpp.
#pragma once
#include "codegen/driver/pipeline.h"

namespace tessera {

struct Device {
  std::string_view name; // "cpu": CompileOptions::device
  Result<std::unique_ptr<Backend>> (*backend)(const CompileOptions&);
  // Graph passes, after those of all devices, and plan passes, after those of all devices; in this order.
  std::vector<CompilePass> (*passes)();
};
[[nodiscard]] const std::vector<Device>& devices();
// Error Usage for an unknown name.
[[nodiscard]] Result<const Device*> find_device(std::string_view name);

} // namespace tessera
