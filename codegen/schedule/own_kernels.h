// Kernels of structured operators that no loop nest describes and no library takes: built in the tile IR directly. One
// table (own_kernels.cpp) says which there are.
#pragma once
#include "codegen/schedule/schedule.h"

namespace tessera {

// Whether a kernel exists for this node; otherwise `why_not` says what is missing.
[[nodiscard]] bool has_own_kernel(const Graph& graph, const Node& node, std::string* why_not = nullptr);
// Buffers: operands that the kernels read, then results. In order of preference, the last one for every size; on a host
// one. For a node with has_own_kernel().
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_own_kernel(const Graph& graph, const Node& node,
                                                                    const Target& device, const std::string& name);

// ---- private to the folder: Scan for blocks of threads (block_scan.cpp)
struct ScanShape {
  DType dtype = DType::F32;
  SymExpr outer, n, inner; // the operand as [outer, n, inner], running along n
  bool product = false, exclusive = false, reverse = false;
};
struct ScanPlan {
  int64_t height = 1, width = 1, warps = 8; // of the tile
  // Rows begin at any alignment: tiles begin at the multiple of so many elements at or below (block_shift.cpp).
  int64_t shift = 1;
  // Programs that share a row, or a block of columns, at least 1 where the conditions hold; tiles of a member's share
  // that stay in shared memory; blocks that are to be resident on a multiprocessor.
  bool team = false;
  SymExpr members = 1;
  int64_t most_members = 1, keep = 0, min_blocks = 0;
  std::vector<SizeCondition> conditions;
};
// In order of preference, the last one for every size.
[[nodiscard]] std::vector<ScanPlan> scan_plans(const ShapeEnv& env, const ScanShape& shape, const Target& device);
// Without buffers, buffer_written and may_overwrite.
[[nodiscard]] ScheduledKernel scan_kernel(const ShapeEnv& env, const ScanShape& shape, const ScanPlan& plan,
                                          const std::string& name);

} // namespace tessera
