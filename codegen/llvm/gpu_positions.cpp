#include "codegen/llvm/gpu_positions.h"

namespace tessera::gpu {

using layout::Dim;
using layout::LinearLayout;

static std::vector<std::pair<int, int>> thread_bits(const LinearLayout& layout, Dim out) {
  std::vector<std::pair<int, int>> bits;
  for (int i = 0; i < layout.in_bits(Dim::Lane); ++i) bits.emplace_back(i, layout.basis(Dim::Lane, i, out));
  for (int i = 0; i < layout.in_bits(Dim::Warp); ++i)
    bits.emplace_back(layout::kLaneBits + i, layout.basis(Dim::Warp, i, out));
  return bits;
}

uint32_t thread_reach(const LinearLayout& layout, Dim out) {
  uint32_t reach = 0;
  for (auto [bit, basis] : thread_bits(layout, out)) reach |= static_cast<uint32_t>(basis);
  return reach;
}

// Bits of the thread's index that move by the same shift are moved together.
llvm::Value* Positions::xor_of_bits(std::span<const std::pair<int, int>> bits) {
  std::map<int, uint32_t> by_shift; // left shift -> mask of bits
  Value* sum = nullptr;
  uint32_t taken = 0;
  auto add = [&](Value* v, uint32_t reaches) {
    if (!sum)
      sum = v;
    else if (taken & reaches)
      sum = b_.CreateXor(sum, v);
    else
      sum = disjoint_or(b_, sum, v);
    taken |= reaches;
  };
  for (auto [bit, basis] : bits) {
    auto u = static_cast<uint32_t>(basis);
    if (u == 0) continue;
    if ((u & (u - 1)) == 0) {
      by_shift[__builtin_ctz(u) - bit] |= 1u << bit;
    } else { // all ones if the bit is set
      auto* set = b_.CreateAnd(b_.CreateLShr(c_.thread, static_cast<uint64_t>(bit)), 1);
      add(b_.CreateAnd(b_.CreateNeg(set), b_.getInt32(u)), u);
    }
  }
  auto all = static_cast<uint32_t>(c_.threads() - 1);
  for (auto [shift, mask] : by_shift) {
    Value* v = mask == all ? c_.thread : b_.CreateAnd(c_.thread, b_.getInt32(mask));
    if (shift > 0) v = b_.CreateShl(v, static_cast<uint64_t>(shift), "", true, true);
    if (shift < 0) v = b_.CreateLShr(v, static_cast<uint64_t>(-shift));
    add(v, shift > 0 ? mask << shift : mask >> -shift);
  }
  return sum ? sum : b_.getInt32(0);
}

llvm::Value* Positions::thread_part(const LinearLayout& layout, Dim out) {
  return xor_of_bits(thread_bits(layout, out));
}

llvm::Value* Positions::position(const LinearLayout& layout, Dim out, int reg, Value* part) {
  auto own = static_cast<uint32_t>(layout.apply(Dim::Register, reg, out));
  const uint32_t reach = thread_reach(layout, out);
  if (own & reach) part = b_.CreateXor(part, b_.getInt32(own & reach));
  own &= ~reach;
  // A sum, so that addresses are a register plus an immediate.
  return own == 0 ? part : b_.CreateAdd(part, b_.getInt32(own), "", true, true);
}

llvm::Value* Positions::acts_for_copies(uint32_t free_lanes, uint32_t free_warps) {
  uint32_t mask = free_lanes | free_warps << layout::kLaneBits;
  mask &= static_cast<uint32_t>(c_.threads() - 1);
  if (mask == 0) return nullptr;
  return b_.CreateICmpEQ(b_.CreateAnd(c_.thread, b_.getInt32(mask)), b_.getInt32(0));
}

} // namespace tessera::gpu
