// Cutting a result into blocks that are boxes of its index space: an epilogue kernel works on boxes, and a task
// computes one.
#pragma once
#include "base/tensor.h"
#include <span>

namespace tessera {

// A contiguous range of the row-major flattening of some dims that is at the same time a box of them.
struct Block {
  int64_t flat_begin = 0, flat_count = 0;
  std::vector<int64_t> begin, count; // per dim
};
// Cuts prod(dims) into blocks of about `target` elements (at least one), as equal as can be: whole inner dims, a range
// of one dim, one index of each outer dim. The number of ranges is rounded up to make the number of blocks a multiple
// of `threads` where that dim is long enough. No blocks when a dim is 0; one block of one element when there are no
// dims.
[[nodiscard]] std::vector<Block> cut_into_blocks(std::span<const int64_t> dims, int64_t target, int threads);

// The same for [images, ...], where the number of images varies from call to call: blocks of 1, 2, 4... images, or
// parts of one image, so that all calls together have few different blocks. `images` >= 1.
[[nodiscard]] std::vector<Block> cut_into_few_sizes(std::span<const int64_t> dims, int64_t target, int threads);

} // namespace tessera
