#include "codegen/emulate/tensor.h"
#include "codegen/emulate/block.h"
#include <bit>
#include <cstring>

namespace tessera::emu {

constexpr int kRowBytes = 16; // of a matrix

// Calls f(lane, offset of an element, matrix, half of the lane's word) for each element of `count` matrices.
template <class F>
static void each_element(Block& block, const Thread& t, int count, bool transposed, F f) {
  const int first = t.index / kWarp * kWarp;
  for (int matrix = 0; matrix < count; ++matrix)
    for (int l = 0; l < kWarp; ++l)
      for (int half = 0; half < 2; ++half) {
        const int across = l / 4, along = 2 * (l % 4) + half;
        const int row = transposed ? along : across, column = transposed ? across : along;
        f(block.thread(first + l), block.thread(first + 8 * matrix + row).matrix.offset + 2 * column, matrix, half);
      }
}

void Matrices::load(Thread& t, int64_t offset, int count, bool transposed, uint32_t* words, int32_t site) {
  if (t.index % kWarp < 8 * count) block_.shared(t, offset, kRowBytes, Access::Read);
  t.matrix = {offset, words};
  if (!block_.gather_warp(t, Collective::LoadMatrices, site)) return;
  each_element(block_, t, count, transposed, [&](Thread& lane, int64_t at, int matrix, int half) {
    uint16_t bits = 0;
    std::memcpy(&bits, block_.shared(lane, at, 2, Access::Read), sizeof bits);
    auto& word = lane.matrix.words[matrix];
    word = half == 0 ? bits : word | static_cast<uint32_t>(bits) << 16;
  });
  block_.scatter_warp(t);
}

void Matrices::store(Thread& t, int64_t offset, int count, bool transposed, uint32_t* words, int32_t site) {
  if (t.index % kWarp < 8 * count && offset % kRowBytes != 0)
    block_.fail(t, "a row of its store of matrices at offset " + std::to_string(offset) +
                       " of shared memory is not aligned");
  block_.abort_if_failed(t);
  t.matrix = {offset, words};
  if (!block_.gather_warp(t, Collective::StoreMatrices, site)) return;
  each_element(block_, t, count, transposed, [&](Thread& lane, int64_t at, int matrix, int half) {
    const auto bits = static_cast<uint16_t>(lane.matrix.words[matrix] >> 16 * half);
    std::memcpy(block_.shared(lane, at, 2, Access::Write), &bits, sizeof bits);
  });
  block_.scatter_warp(t);
}

double matrix_element(DType d, const std::byte* at) {
  uint16_t half = 0;
  uint32_t word = 0;
  switch (d) {
  case DType::F16: std::memcpy(&half, at, sizeof half); return f16_to_f32(half);
  case DType::BF16: std::memcpy(&half, at, sizeof half); return bf16_to_f32(half);
  case DType::F32: // tf32: the low bits are ignored
    std::memcpy(&word, at, sizeof word);
    return std::bit_cast<float>(word & 0xffffe000u);
  case DType::I8: return static_cast<int8_t>(*at);
  case DType::U8: return static_cast<uint8_t>(*at);
  default: return small_float_to_f32(d, static_cast<uint8_t>(*at));
  }
}

// Products are exact and their sum is rounded once, or wraps. Tensor cores keep fewer bits, so the last bits of a GPU's
// results differ where they are floats.
static void multiply_fragments(std::array<uint32_t*, kWarp> words, DType a_dtype, DType b_dtype) {
  constexpr size_t kDepthBytes = 32;
  std::byte a[16][kDepthBytes], b[8][kDepthBytes]; // b by columns
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t i = 0; i < 6; ++i) { // a0 .. a3: rows + 8 for 1 and 3, second half of the depth from 2 on; b0, b1
      const size_t group = lane / 4, byte = 4 * (lane % 4), half = kDepthBytes / 2;
      std::byte* to =
          i < 4 ? &a[group + (i % 2 ? 8 : 0)][byte + (i >= 2 ? half : 0)] : &b[group][byte + (i == 5 ? half : 0)];
      std::memcpy(to, &words[lane][i], sizeof(uint32_t));
    }
  const auto bytes = static_cast<size_t>(info(a_dtype).bits / 8);
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + i % 2;
      const uint32_t c = words[lane][6 + i];
      double sum = is_float(a_dtype) ? double{std::bit_cast<float>(c)} : static_cast<double>(std::bit_cast<int32_t>(c));
      for (size_t k = 0; k < kDepthBytes; k += bytes)
        sum += matrix_element(a_dtype, &a[row][k]) * matrix_element(b_dtype, &b[column][k]);
      words[lane][i] = is_float(a_dtype) ? std::bit_cast<uint32_t>(static_cast<float>(sum))
                                         : static_cast<uint32_t>(static_cast<int64_t>(sum));
    }
}

void Matrices::multiply(Thread& t, DType a_dtype, DType b_dtype, uint32_t* words, int32_t site) {
  t.matrix = {0, words};
  if (!block_.gather_warp(t, Collective::Multiply, site)) return;
  std::array<uint32_t*, kWarp> of_lanes{};
  for (int l = 0; l < kWarp; ++l)
    of_lanes[static_cast<size_t>(l)] = block_.thread(t.index / kWarp * kWarp + l).matrix.words;
  multiply_fragments(of_lanes, a_dtype, b_dtype);
  block_.scatter_warp(t);
}

void ThreadCopies::begin(int64_t shared_bytes) {
  threads_.assign(static_cast<size_t>((shared_bytes + kLeastBytes - 1) / kLeastBytes), -1);
}

void ThreadCopies::mark(const ThreadCopy& c, int thread) {
  for (int64_t at = c.offset; at < c.offset + c.bytes; at += kLeastBytes)
    threads_[static_cast<size_t>(at / kLeastBytes)] = static_cast<int16_t>(thread);
}

bool ThreadCopies::refuse(const Thread& t, int64_t offset, int64_t bytes) const {
  for (int64_t word = offset / kLeastBytes; word * kLeastBytes < offset + bytes; ++word)
    if (const int thread = threads_[static_cast<size_t>(word)]; thread >= 0) {
      block_.fail(t, "its access of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                         " of shared memory touches the destination of a copy that thread " + std::to_string(thread) +
                         " has not waited for");
      return true;
    }
  return false;
}

void ThreadCopies::start(Thread& t, int64_t offset, std::byte* from, int bytes, bool exists) {
  if (exists) block_.global(t, from, bytes, Access::Read);
  std::memset(block_.shared(t, offset, bytes, Access::Write), 0xff, static_cast<size_t>(bytes));
  t.copies.push_back({offset, exists ? from : nullptr, bytes});
  mark(t.copies.back(), t.index);
}

void ThreadCopies::complete(const ThreadCopy& c) {
  mark(c, -1);
  auto* to = block_.shared_data() + c.offset;
  if (c.from)
    std::memcpy(to, c.from, static_cast<size_t>(c.bytes));
  else
    std::memset(to, 0, static_cast<size_t>(c.bytes));
}

void ThreadCopies::wait(Thread& t, size_t later) {
  if (t.ends.size() <= later) return;
  const size_t groups = t.ends.size() - later, end = t.ends[groups - 1];
  for (size_t i = 0; i < end; ++i) {
    const auto& c = t.copies[i];
    complete(c);
    block_.shared(t, c.offset, c.bytes, Access::Write);
  }
  t.copies.erase(t.copies.begin(), t.copies.begin() + static_cast<std::ptrdiff_t>(end));
  t.ends.erase(t.ends.begin(), t.ends.begin() + static_cast<std::ptrdiff_t>(groups));
  for (size_t& e : t.ends) e -= end;
}

} // namespace tessera::emu

using tessera::emu::Block;

void tessera_emu_load_matrices(void* thread, int32_t offset, int32_t count, int32_t transposed, uint32_t* words,
                               int32_t site) {
  auto& t = Block::self(thread);
  t.block->matrices().load(t, offset, count, transposed != 0, words, site);
}
void tessera_emu_store_matrices(void* thread, int32_t offset, int32_t count, int32_t transposed, uint32_t* words,
                                int32_t site) {
  auto& t = Block::self(thread);
  t.block->matrices().store(t, offset, count, transposed != 0, words, site);
}
void tessera_emu_multiply(void* thread, int32_t a_dtype, int32_t b_dtype, uint32_t* words, int32_t site) {
  auto& t = Block::self(thread);
  t.block->matrices().multiply(t, static_cast<tessera::DType>(a_dtype), static_cast<tessera::DType>(b_dtype), words,
                               site);
}
void tessera_emu_copy_async(void* thread, int32_t offset, void* address, int32_t bytes, int32_t exists) {
  auto& t = Block::self(thread);
  t.block->copies().start(t, offset, static_cast<std::byte*>(address), bytes, exists != 0);
}
void tessera_emu_commit_copies(void* thread) {
  auto& t = Block::self(thread);
  t.ends.push_back(t.copies.size());
}
void tessera_emu_wait_for_copies(void* thread, int32_t later) {
  auto& t = Block::self(thread);
  t.block->copies().wait(t, static_cast<size_t>(later));
}
