// Tensor cores: a warp's loads of matrices and products, as NVIDIA's PTX manual defines them ("ldmatrix",
// "mma.m16n8k16"). Operands and results of a lane are words on its stack; the last lane to arrive computes for all
// lanes. Also asynchronous copies to shared memory.
#include "codegen/emulate/block.h"
#include <bit>
#include <cstring>

namespace tessera::emu {

void Block::load_matrices(Thread& t, int64_t offset, int count, bool transposed, uint32_t* words, int32_t site) {
  constexpr int kRowBytes = 16;
  int lane = t.index % kWarp;
  if (lane < 8 * count) shared(t, offset, kRowBytes, Access::Read);
  warps_[static_cast<size_t>(t.index / kWarp)].words[static_cast<size_t>(lane)] = words;
  collective(t, Collective::LoadMatrices, site, static_cast<uint32_t>(offset), 2 * count + (transposed ? 1 : 0));
}

void Block::read_matrices(const Warp& w, Thread* lanes) {
  bool transposed = w.source[0] % 2 == 1;
  size_t count = static_cast<size_t>(w.source[0] / 2);
  for (size_t matrix = 0; matrix < count; ++matrix)
    for (size_t lane = 0; lane < kWarp; ++lane) {
      uint16_t halves[2];
      for (size_t i = 0; i < 2; ++i) {
        size_t across = lane / 4, along = 2 * (lane % 4) + i;
        size_t row = transposed ? along : across, column = transposed ? across : along;
        int64_t at = int64_t{w.value[8 * matrix + row]} + 2 * static_cast<int64_t>(column);
        std::memcpy(&halves[i], shared(lanes[lane], at, 2, Access::Read), 2);
      }
      w.words[lane][matrix] = halves[0] | static_cast<uint32_t>(halves[1]) << 16;
    }
}

void Block::store_matrices(Thread& t, int64_t offset, int count, bool transposed, uint32_t* words, int32_t site) {
  constexpr int kRowBytes = 16;
  int lane = t.index % kWarp;
  if (lane < 8 * count && offset % kRowBytes != 0)
    fail(t, "a row of its store of matrices at offset " + std::to_string(offset) + " of shared memory is not aligned");
  if (error_) abort_block(t);
  warps_[static_cast<size_t>(t.index / kWarp)].words[static_cast<size_t>(lane)] = words;
  collective(t, Collective::StoreMatrices, site, static_cast<uint32_t>(offset), 2 * count + (transposed ? 1 : 0));
}

void Block::write_matrices(const Warp& w, Thread* lanes) {
  bool transposed = w.source[0] % 2 == 1;
  size_t count = static_cast<size_t>(w.source[0] / 2);
  for (size_t matrix = 0; matrix < count; ++matrix)
    for (size_t lane = 0; lane < kWarp; ++lane)
      for (size_t i = 0; i < 2; ++i) {
        size_t across = lane / 4, along = 2 * (lane % 4) + i;
        size_t row = transposed ? along : across, column = transposed ? across : along;
        int64_t at = int64_t{w.value[8 * matrix + row]} + 2 * static_cast<int64_t>(column);
        auto half = static_cast<uint16_t>(w.words[lane][matrix] >> 16 * i);
        std::memcpy(shared(lanes[lane], at, 2, Access::Write), &half, 2);
      }
}

void Block::multiply(Thread& t, bool bf16, uint32_t* words, int32_t site) {
  warps_[static_cast<size_t>(t.index / kWarp)].words[static_cast<size_t>(t.index % kWarp)] = words;
  collective(t, Collective::Multiply, site, 0, bf16 ? 1 : 0);
}

// Products are exact and their sum is rounded once. Tensor cores keep fewer bits, so the last bits of a GPU's results
// differ.
void Block::multiply_fragments(const Warp& w) {
  bool bf16 = w.source[0] == 1;
  float a[16][16], b[16][8];
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t i = 0; i < 12; ++i) {
      uint32_t word = w.words[lane][i / 2];
      auto bits = static_cast<uint16_t>(i % 2 ? word >> 16 : word);
      float v = bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
      size_t group = lane / 4, pair = 2 * (lane % 4) + i % 2;
      if (i < 8) // a0..a7: rows + 8 for 2, 3, 6, 7; columns + 8 from 4 on
        a[group + (i / 2 % 2 ? 8 : 0)][pair + (i >= 4 ? 8 : 0)] = v;
      else // b0..b3
        b[pair + (i >= 10 ? 8 : 0)][group] = v;
    }
  for (size_t lane = 0; lane < kWarp; ++lane)
    for (size_t i = 0; i < 4; ++i) {
      size_t row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + i % 2;
      double sum = std::bit_cast<float>(w.words[lane][6 + i]);
      for (size_t k = 0; k < 16; ++k) sum += static_cast<double>(a[row][k]) * b[k][column];
      w.words[lane][i] = std::bit_cast<uint32_t>(static_cast<float>(sum));
    }
}

// The destination counts as written when the copy starts, so no thread may still read it, and again when the copy ends,
// so reads must follow a barrier behind the wait.
void Block::copy_async(Thread& t, int64_t offset, std::byte* from, int bytes, bool exists) {
  if (exists) global(t, from, bytes, Access::Read);
  std::memset(shared(t, offset, bytes, Access::Write), 0xff, static_cast<size_t>(bytes));
  t.copies.push_back({offset, exists ? from : nullptr, bytes});
}

void Block::complete(const ThreadCopy& c) {
  if (c.from)
    std::memcpy(shared_.data() + c.offset, c.from, static_cast<size_t>(c.bytes));
  else
    std::memset(shared_.data() + c.offset, 0, static_cast<size_t>(c.bytes));
}

void Block::wait_for_copies(Thread& t, size_t later) {
  if (t.ends.size() <= later) return;
  const size_t groups = t.ends.size() - later, end = t.ends[groups - 1];
  for (size_t i = 0; i < end; ++i) {
    const auto& c = t.copies[i];
    shared(t, c.offset, c.bytes, Access::Write);
    complete(c);
  }
  t.copies.erase(t.copies.begin(), t.copies.begin() + static_cast<std::ptrdiff_t>(end));
  t.ends.erase(t.ends.begin(), t.ends.begin() + static_cast<std::ptrdiff_t>(groups));
  for (size_t& e : t.ends) e -= end;
}

} // namespace tessera::emu

using tessera::emu::Thread;

static Thread& self(void* thread) { return tessera::emu::Block::self(thread); }

void tessera_emu_load_matrices(void* thread, int32_t offset, int32_t count, int32_t transposed, uint32_t* words,
                               int32_t site) {
  self(thread).block->load_matrices(self(thread), offset, count, transposed != 0, words, site);
}
void tessera_emu_multiply(void* thread, int32_t bf16, uint32_t* words, int32_t site) {
  self(thread).block->multiply(self(thread), bf16 != 0, words, site);
}
void tessera_emu_copy_async(void* thread, int32_t offset, void* address, int32_t bytes, int32_t exists) {
  self(thread).block->copy_async(self(thread), offset, static_cast<std::byte*>(address), bytes, exists != 0);
}
void tessera_emu_commit_copies(void* thread) { self(thread).ends.push_back(self(thread).copies.size()); }
void tessera_emu_wait_for_copies(void* thread, int32_t later) {
  self(thread).block->wait_for_copies(self(thread), static_cast<size_t>(later));
}
