// Which products of a kernel warpgroups compute (sm_90a), and how their operands come to shared memory.
//
// The instruction wgmma multiplies 64 x k by k x n from shared memory, asynchronously, for the four warps of a
// warpgroup. Its operands come by bulk tensor copies. Both run while other code does, so the block is divided by roles: one
// more warpgroup, the producer, starts copies; the others, the consumers, execute the kernel as if the block had no
// other threads. Between them is a ring of stages in shared memory. A stage holds the operands of one iteration:
//
//   producer   for each iteration: wait until stage s is empty; copy the operands to it, which fills it; next s
//   consumers  for each iteration: wait until stage s is full; start products; wait for those of the iteration before,
//              whose stage then is empty; next s
//
// A left factor may be computed: elements of what it is computed from come through the ring, too, or from memory. The
// consumers read them in the layout in which the instruction takes a left factor from registers, and compute it there.
// Then they wait for the products at once: ptxas gives registers that products in flight still read to other values. One
// warpgroup computes while the other one multiplies.
//
//   consumers  for each iteration: wait until stage s is full; compute the left factor; start products; wait for them,
//              so that the stage is empty; next s
//
// The ring runs through all loops of the kernel, so that the producer of a persistent kernel copies operands of the next
// tile while consumers store this one.
//
// A loop of the ring has products of operands that the loop loads as boxes (tensor_access.h), or of left factors that
// element-wise operations compute; of what they load, all tiles of the factor's shape are boxes. The producer needs
// nothing but scalars for it. A product adds to a carried value, to the product before it, or to zero. The sum goes to the next
// iteration or to a further product, or it is read by the iteration, which then waits for it:
//
//   t = dot(a, b, 0), u = dot(a, c, carried)    both run on; the wait for t leaves u running
//   next = add(other carried, t)
//
// Blocks of a cluster. Config "cluster": c says that programs c q to c q + c - 1 may run as a cluster. They do where all of
// them do the same iterations, and some tiles are the same box in all of them (uniform.h): each block copies its share of
// such a tile to the shared memory of all, so that the tile is read from memory once for the cluster. A share is some of the
// tile's chunks, or of its rows.
//
//   c = 2, programs q 2 and q 2 + 1:    rows of the left factor from program * 128 on      each block copies its own
//                                       columns of the right factor from f(program / 2)    block r copies half r to both
#pragma once
#include "codegen/layout/linear_layout.h"
#include "codegen/layout/tensor_access.h"
#include <set>

namespace tessera::layout {

inline constexpr int kWarpsPerGroup = 4, kWarpgroupRows = 64;
inline constexpr int64_t kExchangeBytes = 16 << 10; // of shared memory, which stages leave to exchanges between threads

// A tile of a stage. Its contiguous dimension is cut into chunks of swizzle_bytes; a chunk holds all rows, which are the
// other dimensions, one behind the other, permuted as the swizzle says.
struct RingTile {
  tile::OpId load = -1;
  TensorAccess access;
  KernelTensorMap map; // its box is a chunk, or as much of one as a box can have
  int rows = 0, chunks = 0;
  int chunk_elements = 0; // along the contiguous dimension
  int64_t at = 0;         // byte offset in the stage
  bool k_major = false;   // the contiguous dimension is that which the product sums over
  bool is_shared = false; // by the blocks of a cluster, each of which copies a share to all
  bool is_read = false;   // by consumers, who compute a left factor from it; otherwise by products

  // Offsets in elements, from the tile's begin, of the elements of the loaded tile of this shape.
  [[nodiscard]] LinearLayout arrangement(const std::vector<int>& shape) const;

  [[nodiscard]] int64_t chunk_bytes() const { return int64_t{rows} * swizzle_bytes(map.swizzle); }
  [[nodiscard]] int64_t bytes() const { return chunks * chunk_bytes(); }
};

struct RingLoop {
  tile::OpId loop = -1;
  std::vector<RingTile> tiles;
  std::vector<tile::OpId> products; // Dots of the loop's body, in its order
  std::set<tile::OpId> from_zero;   // of those: they add to zero
  std::set<tile::OpId> computed;    // of those: consumers compute the left factor
  std::vector<tile::OpId> awaited;  // of those: the iteration reads their sums
  size_t waited = 0;                // products until the last one of `awaited`, which iterations wait for
  int64_t bytes = 0;                // of a stage

  [[nodiscard]] const RingTile& tile_of(const tile::Kernel& kernel, tile::ValueId factor) const;
};

struct WarpgroupPlan {
  std::vector<RingLoop> loops;
  std::set<tile::OpId> around;   // loops that are no ring loops but contain some
  std::set<tile::OpId> producer; // scalar operations that copies need
  int stages = 0;
  int64_t stage_bytes = 0;
  int cluster = 1;        // blocks
  std::string no_cluster; // why the kernel's config "cluster" is not followed: a text for people

  // "by warpgroups, 4 stages, clusters of 2".
  [[nodiscard]] std::string str() const;
  [[nodiscard]] const RingLoop* loop(tile::OpId id) const; // null: no loop of the ring
  [[nodiscard]] bool has_product(tile::OpId dot) const;
  [[nodiscard]] bool has_load(tile::OpId load) const;
  [[nodiscard]] bool is_computed(tile::OpId dot) const; // its left factor
  [[nodiscard]] bool is_read(tile::OpId load) const;    // RingTile::is_read
  [[nodiscard]] bool carries_ring(tile::OpId loop) const { return around.contains(loop) || this->loop(loop); }
};

// The plan, or why there is none: a text for people.
struct WarpgroupChoice {
  std::optional<WarpgroupPlan> plan;
  std::string refusal;
};
// A number of blocks of a cluster that every GPU with clusters has, and shares of tiles.
[[nodiscard]] constexpr bool is_cluster(int64_t blocks) {
  return blocks == 1 || blocks == 2 || blocks == 4 || blocks == 8;
}
// The kernel must have passed verify. `shared_bytes`: that a block may use for stages; `warps`: of the consumers.
[[nodiscard]] WarpgroupChoice plan_warpgroups(const tile::Kernel& kernel, int warps, int64_t shared_bytes);

// The accumulators of m x n on `warps` warps: warpgroups take rows by 64 while there are some, then columns.
//
//              register                     lane                                  warp
//   [64, 8 j]  (0, 1) (8, 0) (0, 8) ...     (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)    (16, 0) (32, 0)
[[nodiscard]] LinearLayout warpgroup_accumulators(const std::vector<int>& shape, int warps);
// A left factor in registers: `depth` columns of elements of `bits` (8, 16 or 32), for sums of this shape. An
// instruction multiplies 32 bytes of each row; its four registers of 4 bytes follow each other, those of its next
// 32 bytes come next, then the next 64 rows of the warpgroup. Warpgroups that share rows hold the same elements.
//
//                    register                      lane                                  warp
//   [64, 32] bf16    (0, 1) (8, 0) (0, 8) (0, 16)  (0, 2) (0, 4) (1, 0) (2, 0) (4, 0)    (16, 0) (32, 0)
[[nodiscard]] LinearLayout warpgroup_left_registers(const std::vector<int>& sums, int depth, int bits, int warps);
// The layout with up to `width` contiguous elements of a thread along an axis: bits of lanes and registers trade places.
[[nodiscard]] LinearLayout with_contiguous(const LinearLayout& layout, int axis, int width);
// True if so many warps compute `sums` tiles of this shape at a time: one or two warpgroups, with registers for all.
// `left_bits`: of a row of the left factor, if consumers compute it.
[[nodiscard]] bool fits_warpgroups(const std::vector<int>& shape, int warps, int sums = 1, int left_bits = 0);
// How many of the warpgroups share rows, and how many columns.
struct WarpgroupGrid {
  int rows = 1, columns = 1;
};
[[nodiscard]] WarpgroupGrid warpgroup_grid(const std::vector<int>& shape, int warps);

} // namespace tessera::layout
