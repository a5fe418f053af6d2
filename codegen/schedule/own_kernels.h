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

// How `scatter_runs` (own_runs.cpp) divides an order of updates of this type.
struct RunChunks {
  int64_t updates = 1;   // of a chunk
  int64_t in_flight = 1; // whose loads are issued together
  double update_us = 0;  // that one more update of a chunk takes, in microseconds
};
[[nodiscard]] RunChunks run_chunks(const Target& device, DType dtype);

// ---- private to the folder: own_scatter.cpp, own_runs.cpp, own_sort.cpp, own_suppress.cpp
// A block that leaves room for as many others as a multiprocessor has schedulers.
struct BlockSize {
  int threads = 1, warps = 1;
  int elements = 1; // of a thread: what one access moves
};
[[nodiscard]] BlockSize block_size(const Target& device, int element_bytes);
[[nodiscard]] int block_warps(int64_t threads); // at least one
// The least power of two that is no less than the size, or `most`.
[[nodiscard]] int power_at_most(const SymExpr& size, int most);
// The least time of a kernel that moves so many bytes once, where they are known.
[[nodiscard]] PredictedTime time_of_bytes(const ShapeEnv& env, const Target& device, const SymExpr& bytes);
[[nodiscard]] Result<std::vector<ScheduledKernel>> lower_scatter(const Graph& graph, const Node& node,
                                                                 const Target& device, const std::string& name);

[[nodiscard]] ScheduledKernel lower_runs(const Graph& graph, const Node& node, const Target& device,
                                         const std::string& name);
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
  SymExpr outer, n, inner;           // the operand as [outer, n, inner], scanned along n
  ReduceKind kind = ReduceKind::Sum; // one with a scalar operator: not ArgMax, ArgMin
  bool exclusive = false, reverse = false;
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
// Without buffers, written and may_overwrite.
[[nodiscard]] ScheduledKernel scan_kernel(const ShapeEnv& env, const ScanShape& shape, const ScanPlan& plan,
                                          const std::string& name);

} // namespace tessera
