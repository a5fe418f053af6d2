// Kernels of structured operators that no loop nest describes and no library takes: built in the tile IR directly. One
// table (own_kernels.cpp) says which there are.
#pragma once
#include "codegen/schedule/schedule.h"

namespace tessera {

// Whether a kernel exists for this node; otherwise `why_not` says what is missing.
[[nodiscard]] bool has_own_kernel(const Graph& graph, const Node& node, std::string* why_not = nullptr);
// Buffers: operands that the kernel reads, then results. For a node with has_own_kernel().
[[nodiscard]] Result<ScheduledKernel> lower_own_kernel(const Graph& graph, const Node& node, const DeviceTraits& device,
                                                       const std::string& name);

// ---- private to the folder: Scan for blocks of threads (block_scan.cpp)
struct ScanShape {
  DType dtype = DType::F32;
  SymExpr outer, n, inner; // the operand as [outer, n, inner], running along n
  bool product = false, exclusive = false, reverse = false;
};
// Without buffers, buffer_written and may_overwrite.
[[nodiscard]] ScheduledKernel scan_by_blocks(const Graph& graph, const ScanShape& shape, const std::string& name);

} // namespace tessera
