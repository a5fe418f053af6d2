// A planned convolution: blocks of the result, each computed by one oneDNN primitive.
#pragma once
#include "runtime/library/call.h"
#include "runtime/library/conv_primitives.h"

namespace tessera {

inline constexpr size_t kMaxRank = 5; // of a convolution's operands

class ConvPlan final : public LibraryPlan {
public:
  struct Primitive {
    std::shared_ptr<const ConvPrimitive> code;
    std::shared_ptr<const PackedWeight> weights; // of a constant
    int64_t weights_at = -1;                     // step scratch, of weights that change
    std::shared_ptr<dnnl::reorder> reorder;      // of these
    dnnl::memory::desc w_plain;
    int64_t w_offset = 0; // elements
  };
  // Block b computes box b, or the first rows of what its primitive computes.
  struct Block {
    size_t primitive = 0;
    int64_t x_offset = 0; // elements
    int64_t y_offset = 0; // of the box's first element
    bool direct = true;   // written where it belongs; otherwise through scratch
    // A block that reads beyond the ends of x has its rows copied between zeros: `rows` of them behind `zeros`, of
    // `window` rows. -1: it reads x.
    int64_t window = -1, zeros = 0, rows = 0;
  };

  void run(const LibraryRun& run) const override;
  [[nodiscard]] int64_t host_bytes() const override;
  // Once all blocks are there, for a pool of so many threads.
  void make_memory(int threads);

  BufferId x_buffer = -1, w_buffer = -1, y_buffer = -1;
  int64_t x_offset = 0, w_offset = 0, y_offset = 0;
  Dims x_dims, x_strides, y_strides;
  bool zeros = false, pack_x = false;
  Dims packed_strides, pad_first; // of the copy of x
  int64_t padded_count = 0, pack_grain = 1;
  std::vector<Primitive> primitives;
  std::vector<Block> blocks;
  std::vector<std::shared_ptr<void>> holds; // what finds its primitives for later plans
  int64_t stage_at = 0, window_at = 0;      // worker scratch, bytes
  int64_t row_elements = 0;                 // of x, where a block has a window

private:
  // Memory objects, whose addresses are set for each block: as many of each primitive as blocks are computed at a time.
  struct Arguments {
    dnnl::memory x, w, y, scratchpad;
  };
  void zero(int64_t block, float* y) const;
  void pack(const float* x, float* to, int64_t begin, int64_t end) const;
  static void reorder_weights(const Primitive& p, const float* w, const LibraryRun& run);
  void compute(int64_t block, const LibraryRun& run, const float* x, float* y, int worker) const;
  // The sizes of the part of y that a block computes.
  [[nodiscard]] std::span<const int64_t> count(int64_t block) const {
    return std::span(boxes).subspan(static_cast<size_t>(block * 2 + 1) * static_cast<size_t>(rank),
                                    static_cast<size_t>(rank));
  }

  mutable std::vector<Arguments> arguments_; // by primitive, then by worker, or by block where there are fewer
  size_t at_a_time_ = 0;
};

} // namespace tessera
