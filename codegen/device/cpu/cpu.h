// The host as a device: its routes and passes. Private to the folder and its tests; device.cpp's table has the rest.
#pragma once
#include "codegen/compilation/compilation.h"

namespace tessera {

// Routes: oneDNN for f32 products and convolutions, loops for other dtypes and ranks, kernels for scans.
[[nodiscard]] DeviceRoutes cpu_routes(const std::set<std::string>& as_loops = {}); // as CompileOptions::as_loops

// Pass: products, convolutions and pooling in a dtype that the library supports only as f32 are rewritten to f32.
// Operands are cast where they are produced (the producing kernel absorbs the cast; constant weights are unchanged:
// FusionOptions::half_weights), results are cast back.
[[nodiscard]] Result<bool> widen_halves(Graph& graph, const DeviceRoutes& routes);

[[nodiscard]] std::vector<CompilePass> cpu_passes();
[[nodiscard]] Result<std::unique_ptr<Backend>> make_cpu_backend(const CompileOptions& options);

} // namespace tessera
