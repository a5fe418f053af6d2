// A tile moves from one layout to another, as codegen/layout plans it.
#include "codegen/llvm/gpu_emit.h"
#include "graph/support/check.h"

namespace tessera::gpu {

using layout::Conversion;
using layout::Dim;

Emitter::Registers Emitter::exchanged(const Registers& source, const Conversion& plan, size_t results) {
  Registers out;
  if (plan.kind == Conversion::Kind::Registers) {
    for (int r : plan.register_map) out.push_back(source[static_cast<size_t>(r)]);
    return out;
  }
  std::vector<std::pair<int, int>> bits;
  for (int i = 0; i < layout::kLaneBits; ++i) bits.emplace_back(i, plan.lane_bases[static_cast<size_t>(i)]);
  auto* part = xor_of_bits(bits);
  auto* lane = b_.CreateAnd(thread_, b_.getInt32(31));
  Registers selectors; // i1
  for (auto mask : plan.selector_masks) {
    auto* set = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, b_.CreateAnd(lane, b_.getInt32(mask)));
    selectors.push_back(b_.CreateTrunc(set, b_.getInt1Ty()));
  }
  for (size_t r = 0; r < results; ++r) {
    auto* source_lane = b_.CreateXor(part, b_.getInt32(static_cast<uint32_t>(plan.lane_of_register[r])));
    Registers candidates;
    for (int s : plan.shuffled[r]) candidates.push_back(gpu_->shuffle(source[static_cast<size_t>(s)], source_lane));
    for (auto* selector : selectors) { // the lowest bit of the number first
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

// What differs from register to register is added last, and as a constant: an immediate of the access.
llvm::Value* Emitter::shared_offset(Value* part, uint32_t by, uint32_t reach, DType dtype, int64_t region,
                                    Value* stage) {
  auto bytes = static_cast<uint32_t>(element_bytes(dtype));
  Value* offset = b_.CreateMul(part, b_.getInt32(bytes), "", true, true);
  if (by & reach) offset = b_.CreateXor(offset, b_.getInt32((by & reach) * bytes));
  if (stage) offset = b_.CreateAdd(offset, stage, "", true, true);
  auto fixed = static_cast<uint32_t>(region) + (by & ~reach) * bytes;
  return fixed == 0 ? offset : b_.CreateAdd(offset, b_.getInt32(fixed), "", true, true);
}

Emitter::Staged Emitter::stage(const Registers& source, Conversion plan, DType dtype, int64_t region) {
  auto* stores = acts_for_copies(plan.store_free_lanes, plan.store_free_warps);
  auto* part = thread_part(plan.store, Dim::Offset);
  auto width = static_cast<size_t>(plan.store_width);
  uint32_t reach = thread_reach(plan.store, Dim::Offset);
  for (size_t r = 0; r < source.size(); r += width) {
    auto* offset =
        shared_offset(part, static_cast<uint32_t>(plan.store.apply(Dim::Register, static_cast<int>(r), Dim::Offset)),
                      reach, dtype, region);
    store_shared_elements(offset, std::span<Value* const>(&source[r], width), dtype, stores);
  }
  return {std::move(plan), dtype, region, nullptr, nullptr};
}

// What lanes name in a load of matrices is rows of them.
static std::vector<std::pair<int, int>> row_bits(const Conversion& plan) {
  std::vector<std::pair<int, int>> bits;
  auto rows = plan.row_bases();
  for (int i = 0; i < layout::kLaneBits; ++i) bits.emplace_back(i, rows[static_cast<size_t>(i)]);
  for (int i = 0; i < plan.load.in_bits(Dim::Warp); ++i)
    bits.emplace_back(layout::kLaneBits + i, plan.load.basis(Dim::Warp, i, Dim::Offset));
  return bits;
}

Emitter::Registers Emitter::staged_registers(Staged& s, size_t first) {
  const Conversion& plan = s.plan;
  bool matrices = plan.load_matrices != Conversion::Matrices::None;
  if (!s.base) s.base = matrices ? xor_of_bits(row_bits(plan)) : thread_part(plan.load, Dim::Offset);
  uint32_t reach = 0;
  if (matrices)
    for (auto [bit, basis] : row_bits(plan)) reach |= static_cast<uint32_t>(basis);
  else
    reach = thread_reach(plan.load, Dim::Offset);
  auto own = static_cast<uint32_t>(plan.load.apply(Dim::Register, static_cast<int>(first), Dim::Offset));
  auto* offset = shared_offset(s.base, own, reach, s.dtype, s.region, s.stage);
  if (!matrices) return load_shared_elements(offset, s.dtype, plan.load_width);
  return from_words(gpu_->load_matrices(offset, plan.matrices(), plan.load_matrices == Conversion::Matrices::Columns),
                    s.dtype, plan.load_step());
}

Status Emitter::convert(const tile::Op& op) {
  auto from = op.operands[0], to = op.results[0];
  DType dtype = kernel_.type(to).dtype;
  auto plan = layout::plan_conversion(layouts_[from], layouts_[to], element_bytes(dtype));
  size_t n = register_count(to);
  Registers out;
  if (plan.kind != Conversion::Kind::Shared) {
    out = exchanged(registers(from), plan, n);
  } else {
    TESSERA_ASSIGN(int64_t region, shared_region(plan.shared_bytes));
    int64_t end = region + plan.shared_bytes;
    auto staged = stage(registers(from), std::move(plan), dtype, region);
    barrier();
    hazards_.touch_shared({region, end});
    while (out.size() < n)
      for (auto* e : staged_registers(staged, out.size())) out.push_back(e);
  }
  TESSERA_CHECK(out.size() == n, "conversion of a layout in kernel " + kernel_.name);
  define(to, std::move(out));
  return {};
}

} // namespace tessera::gpu
