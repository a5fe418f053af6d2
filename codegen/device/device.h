// The table of devices: all that the compile driver knows of one. A new device is a folder beside this file, with a
// backend, routes and passes, and a row in device.cpp.
#pragma once
#include "codegen/driver/pipeline.h"

namespace tessera {

struct Device {
  std::string_view name; // "cpu": CompileOptions::device
  Result<std::unique_ptr<Backend>> (*backend)(const CompileOptions&);
  // Of graphs, after the passes that all devices have, and of plans, after what all devices do to those; in this order.
  std::vector<CompilePass> (*passes)();
};
[[nodiscard]] const std::vector<Device>& devices();
// Error Usage for a name that no device has.
[[nodiscard]] Result<const Device*> find_device(std::string_view name);

} // namespace tessera
