#include "codegen/llvm/gpu_convert.h"
#include "base/check.h"

namespace tessera::gpu {

using layout::Conversion;
using layout::Dim;

Registers Conversions::exchanged(const Registers& source, const Conversion& plan, size_t results) {
  Registers out;
  if (plan.kind == Conversion::Kind::Registers) {
    for (int r : plan.register_map) out.push_back(source[static_cast<size_t>(r)]);
    return out;
  }
  std::vector<std::pair<int, int>> bits;
  for (int i = 0; i < layout::kLaneBits; ++i) bits.emplace_back(i, plan.lane_bases[static_cast<size_t>(i)]);
  auto* part = positions_.xor_of_bits(bits);
  auto* lane = b_.CreateAnd(c_.thread, b_.getInt32(31));
  Registers selectors; // i1
  for (auto mask : plan.selector_masks) {
    auto* set = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, b_.CreateAnd(lane, b_.getInt32(mask)));
    selectors.push_back(b_.CreateTrunc(set, b_.getInt1Ty()));
  }
  for (size_t r = 0; r < results; ++r) {
    auto* source_lane = b_.CreateXor(part, b_.getInt32(static_cast<uint32_t>(plan.lane_of_register[r])));
    Registers candidates;
    for (int s : plan.shuffled[r]) candidates.push_back(gpu_.shuffle(source[static_cast<size_t>(s)], source_lane));
    for (auto* selector : selectors) { // the lowest bit of the index first
      Registers left;
      for (size_t c = 0; c < candidates.size(); c += 2)
        left.push_back(candidates[c] == candidates[c + 1]
                           ? candidates[c]
                           : b_.CreateSelect(selector, candidates[c + 1], candidates[c]));
      candidates = std::move(left);
    }
    out.push_back(candidates[0]);
  }
  return out;
}

Registers Conversions::swapped(const Registers& source, const Conversion& plan, DType dtype) {
  // Two elements of 16 bits that stay side by side move as one word.
  int packed_bits = info(dtype).bits == 16 ? 1 : 0;
  for (const auto& swap : plan.swaps) packed_bits = std::min(packed_bits, swap.register_bit);
  for (size_t r = 0; r < plan.register_map.size(); r += 2)
    if (plan.register_map[r] % 2 != 0 || plan.register_map[r + 1] != plan.register_map[r] + 1) packed_bits = 0;
  Registers words;
  if (packed_bits == 0) words = source;
  for (size_t r = 0; packed_bits > 0 && r < source.size(); r += 2)
    words.push_back(words_.pack(std::span<Value* const>(&source[r], 2), dtype)[0]);
  for (const auto& swap : plan.swaps) {
    const uint32_t mask = 1u << swap.lane_bit;
    auto* set = b_.CreateICmpNE(b_.CreateAnd(c_.thread, b_.getInt32(mask)), b_.getInt32(0));
    const size_t other = size_t{1} << (swap.register_bit - packed_bits);
    for (size_t r = 0; r < words.size(); ++r) {
      if (r & other) continue;
      auto *low = words[r], *high = words[r | other];
      auto* got = gpu_.shuffle_xor(b_.CreateSelect(set, low, high), static_cast<int>(mask));
      words[r] = b_.CreateSelect(set, got, low);
      words[r | other] = b_.CreateSelect(set, high, got);
    }
  }
  Registers out;
  if (packed_bits == 0)
    for (const int r : plan.register_map) out.push_back(words[static_cast<size_t>(r)]);
  else
    for (size_t r = 0; r < plan.register_map.size(); r += 2) {
      auto* word = words[static_cast<size_t>(plan.register_map[r]) / 2];
      for (auto* e : words_.unpack(std::span<Value* const>(&word, 1), dtype, 2)) out.push_back(e);
    }
  return out;
}

Staged Conversions::stage(const Registers& source, Conversion plan, DType dtype, int64_t region) {
  auto* stores = positions_.acts_for_copies(plan.store_free_lanes, plan.store_free_warps);
  auto* part = positions_.thread_part(plan.store, Dim::Offset);
  auto width = static_cast<size_t>(plan.store_width);
  uint32_t reach = thread_reach(plan.store, Dim::Offset);
  for (size_t r = 0; r < source.size(); r += width) {
    auto* offset =
        shared_.offset(part, static_cast<uint32_t>(plan.store.apply(Dim::Register, static_cast<int>(r), Dim::Offset)),
                       reach, dtype, region);
    shared_.store(offset, std::span<Value* const>(&source[r], width), dtype, stores);
  }
  return {std::move(plan), dtype, region, nullptr, nullptr};
}

// In an ldmatrix load each lane gives the address of one matrix row.
static std::vector<std::pair<int, int>> row_bits(const Conversion& plan) {
  std::vector<std::pair<int, int>> bits;
  auto rows = plan.row_bases();
  for (int i = 0; i < layout::kLaneBits; ++i) bits.emplace_back(i, rows[static_cast<size_t>(i)]);
  for (int i = 0; i < plan.load.in_bits(Dim::Warp); ++i)
    bits.emplace_back(layout::kLaneBits + i, plan.load.basis(Dim::Warp, i, Dim::Offset));
  return bits;
}

Registers Conversions::staged_registers(Staged& s, size_t first) {
  const Conversion& plan = s.plan;
  bool matrices = plan.load_matrices != Conversion::Matrices::None;
  if (!s.base)
    s.base = matrices ? positions_.xor_of_bits(row_bits(plan)) : positions_.thread_part(plan.load, Dim::Offset);
  uint32_t reach = 0;
  if (matrices)
    for (auto [bit, basis] : row_bits(plan)) reach |= static_cast<uint32_t>(basis);
  else
    reach = thread_reach(plan.load, Dim::Offset);
  auto own = static_cast<uint32_t>(plan.load.apply(Dim::Register, static_cast<int>(first), Dim::Offset));
  auto* offset = shared_.offset(s.base, own, reach, s.dtype, s.region, s.stage);
  if (!matrices) return shared_.load(offset, s.dtype, plan.load_width);
  return words_.unpack(gpu_.load_matrices(offset, plan.matrices(), plan.load_matrices == Conversion::Matrices::Columns),
                       s.dtype, plan.load_step());
}

Status Conversions::convert(const tile::Op& op) {
  auto from = op.operands[0], to = op.results[0];
  DType dtype = kernel_.type(to).dtype;
  auto plan =
      layout::plan_conversion(layouts_[from], layouts_[to], element_bytes(dtype), layouts_.warpgroups.has_value());
  size_t n = register_count(to);
  Registers out;
  if (plan.kind == Conversion::Kind::Swaps) {
    out = swapped(registers(from), plan, dtype);
  } else if (plan.kind != Conversion::Kind::Shared) {
    out = exchanged(registers(from), plan, n);
  } else {
    TESSERA_ASSIGN(int64_t region, shared_.region(plan.shared_bytes));
    int64_t end = region + plan.shared_bytes;
    auto staged = stage(registers(from), std::move(plan), dtype, region);
    shared_.barrier();
    c_.hazards.touch_shared({region, end});
    while (out.size() < n)
      for (auto* e : staged_registers(staged, out.size())) out.push_back(e);
  }
  TESSERA_CHECK(out.size() == n, "conversion of a layout in kernel " + kernel_.name);
  define(to, std::move(out));
  return {};
}

} // namespace tessera::gpu
