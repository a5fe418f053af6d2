#include "runtime/library/blocks.h"
#include <algorithm>
#include <bit>
#include <numeric>

namespace tessera {

std::vector<Block> cut_into_blocks(std::span<const int64_t> dims, int64_t target, int threads) {
  for (int64_t d : dims)
    if (d == 0) return {};
  if (dims.empty()) return {Block{0, 1, {}, {}}};
  target = std::max<int64_t>(target, 1);
  size_t j = dims.size() - 1;
  int64_t inner = 1; // product of the dims inside of j
  while (j > 0 && inner <= target / dims[j]) inner *= dims[j--];
  int64_t outer = 1;
  for (size_t d = 0; d < j; ++d) outer *= dims[d];
  int64_t length = std::clamp<int64_t>(target / inner, 1, dims[j]);
  int64_t pieces = (dims[j] + length - 1) / length;
  int64_t share = threads / std::gcd(outer, static_cast<int64_t>(threads)); // pieces must be a multiple of this
  if (pieces > 1 && share > 1) pieces = std::min(dims[j], (pieces + share - 1) / share * share);
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(outer * pieces));
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t p = 0; p < pieces; ++p) {
      int64_t from = dims[j] * p / pieces, to = dims[j] * (p + 1) / pieces;
      Block b;
      b.begin = index;
      b.count.assign(dims.size(), 1);
      for (size_t d = j + 1; d < dims.size(); ++d) b.count[d] = dims[d];
      b.begin[j] = from;
      b.count[j] = to - from;
      b.flat_begin = (o * dims[j] + from) * inner;
      b.flat_count = (to - from) * inner;
      blocks.push_back(std::move(b));
    }
    for (size_t d = j; d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
  return blocks;
}

std::vector<Block> cut_into_few_sizes(std::span<const int64_t> dims, int64_t target, int threads) {
  for (int64_t d : dims)
    if (d == 0) return {};
  const auto image = dims.subspan(1);
  int64_t elements = 1;
  for (int64_t d : image) elements *= d;
  std::vector<Block> blocks;
  if (target >= elements) {
    auto together = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(target / elements, dims[0]))));
    for (int64_t at = 0; at < dims[0]; at += together) {
      while (together > dims[0] - at) together /= 2;
      Block b{at * elements, together * elements, Dims(dims.size(), 0), Dims(dims.begin(), dims.end())};
      b.begin[0] = at;
      b.count[0] = together;
      blocks.push_back(std::move(b));
    }
    return blocks;
  }
  int64_t pieces = threads / std::gcd(dims[0], static_cast<int64_t>(threads));
  while (pieces * target < elements) pieces *= 2;
  const auto parts = cut_into_blocks(image, (elements + pieces - 1) / pieces, 1);
  for (int64_t n = 0; n < dims[0]; ++n)
    for (Block b : parts) {
      b.flat_begin += n * elements;
      b.begin.insert(b.begin.begin(), n);
      b.count.insert(b.count.begin(), 1);
      blocks.push_back(std::move(b));
    }
  return blocks;
}

} // namespace tessera
