// Kernels of structured operators without a loop nest or library, built directly in the tile IR. The table in
// own_kernels.cpp lists them.
#pragma once
#include "codegen/schedule/schedule.h"

namespace tessera {

// True if a kernel exists for this node; otherwise sets `why_not`.
[[nodiscard]] bool has_own_kernel(const Graph& graph, const Node& node, std::string* why_not = nullptr);
// Kernels in order of preference; the last one has no conditions; a host has one. Buffers: operands, then results.
// Requires has_own_kernel().
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_own_kernel(const Graph& graph, const Node& node,
                                                                    const Target& device, const std::string& name);

// ---- private to the folder: own_scatter.cpp, own_sort.cpp
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_scatter(const Graph& graph, const Node& node,
                                                                 const Target& device, const std::string& name);

[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_suppress(const Graph& graph, const Node& node,
                                                                  const Target& device, const std::string& name);
// The text that an added record has (graph/ops/added.h), of Structured::Other. Errors: ParseError; TypeMismatch for parameters that are not the node's.
[[nodiscard]] bool tile_text_takes(const Graph& graph, const Node& node, std::string_view device, std::string* why_not);
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_tile_text(const Graph& graph, const Node& node,
                                                                   const Target& device, const std::string& name);
// `sort_indices` on a host, `sort_tiles` and `merge_runs` on a GPU.
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_sort(const Graph& graph, const Node& node,
                                                              const Target& device, const std::string& name);

// ---- private to the folder: Scan for blocks of threads (block_scan.cpp)
struct ScanShape {
  DType dtype = DType::F32;
  SymExpr outer, n, inner; // the operand as [outer, n, inner], scanned along n
  bool product = false, exclusive = false, reverse = false;
};
struct ScanPlan {
  int64_t height = 1, width = 1, warps = 8; // of the tile
  // Alignment peel of misaligned rows: tiles begin at multiples of this, in elements (block_shift.cpp).
  int64_t shift = 1;
  // Cooperative blocks of a row, or of a group of columns, at least 1 under the conditions; tiles of a block that stay
  // in shared memory; blocks to be resident on a multiprocessor.
  bool cooperative = false;
  SymExpr blocks_per_row = 1;
  int64_t max_blocks_per_row = 1, keep = 0, min_blocks = 0;
  std::vector<SizeCondition> conditions;
};
// In order of preference; the last one has no conditions.
[[nodiscard]] std::vector<ScanPlan> scan_plans(const ShapeEnv& env, const ScanShape& shape, const Target& device);
// Without buffers, buffer_written and may_overwrite.
[[nodiscard]] ScheduledKernel scan_kernel(const ShapeEnv& env, const ScanShape& shape, const ScanPlan& plan,
                                          const std::string& name);

} // namespace tessera
