// The host as a device: its routes and passes. Private to the folder and its tests; device.cpp's table has the rest.
#pragma once
#include "codegen/device/device.h"

namespace tessera {

// Products and convolutions by oneDNN in f32, loops for other dtypes and numbers of dimensions, scans by kernels.
[[nodiscard]] DeviceRoutes cpu_routes();

// Pass: products, convolutions and pooling in a dtype that the library takes only widened become f32 ones. Operands are
// cast where they are produced (the cast vanishes into the producing kernel; constant weights stay what they are:
// FusionOptions::half_weights), results are cast back.
[[nodiscard]] Result<bool> widen_halves(Graph& graph, const DeviceRoutes& routes);

[[nodiscard]] std::vector<CompilePass> cpu_passes();
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_backend(const CompileOptions& options);

} // namespace tessera
