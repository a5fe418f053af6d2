// A tile moves from one layout to another, as codegen/layout plans it.
#include "codegen/llvm/gpu_emit.h"
#include "graph/support/check.h"

namespace tessera::gpu {

using layout::Conversion;
using layout::Dim;

Status Emitter::convert(const tile::Op& op) {
  auto from = op.operands[0], to = op.results[0];
  DType dtype = kernel_.type(to).dtype;
  int bytes = std::max(1, info(dtype).bits / 8);
  auto plan = layout::plan_conversion(layouts_[from], layouts_[to], bytes);
  const Registers source = registers(from);
  size_t n = register_count(to);
  Registers out;
  switch (plan.kind) {
  case Conversion::Kind::Registers:
    for (int r : plan.register_map) out.push_back(source[static_cast<size_t>(r)]);
    break;
  case Conversion::Kind::Shuffles: {
    std::vector<std::pair<int, int>> bits;
    for (int i = 0; i < layout::kLaneBits; ++i) bits.emplace_back(i, plan.lane_bases[static_cast<size_t>(i)]);
    auto* part = xor_of_bits(bits);
    auto* lane = b_.CreateAnd(thread_, b_.getInt32(31));
    Registers selectors; // i1
    for (auto mask : plan.selector_masks) {
      auto* set = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, b_.CreateAnd(lane, b_.getInt32(mask)));
      selectors.push_back(b_.CreateTrunc(set, b_.getInt1Ty()));
    }
    for (size_t r = 0; r < n; ++r) {
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
    break;
  }
  case Conversion::Kind::Shared: {
    TESSERA_ASSIGN(int64_t region, shared_region(plan.shared_bytes));
    auto offset = [&](const layout::LinearLayout& l, Value* part, size_t reg) {
      auto* element = position(l, Dim::Offset, static_cast<int>(reg), part);
      return b_.CreateAdd(b_.CreateMul(element, b_.getInt32(static_cast<uint32_t>(bytes))),
                          b_.getInt32(static_cast<uint32_t>(region)));
    };
    auto* stores = acts_for_copies(plan.store_free_lanes, plan.store_free_warps);
    auto* part = thread_part(plan.store, Dim::Offset);
    auto width = static_cast<size_t>(plan.store_width);
    for (size_t r = 0; r < source.size(); r += width)
      store_shared_elements(offset(plan.store, part, r), std::span<Value* const>(&source[r], width), dtype, stores);
    barrier();
    hazards_.touch_shared({region, region + plan.shared_bytes});
    part = thread_part(plan.load, Dim::Offset);
    width = static_cast<size_t>(plan.load_width);
    for (size_t r = 0; r < n; r += width)
      for (auto* e : load_shared_elements(offset(plan.load, part, r), dtype, static_cast<int>(width))) out.push_back(e);
    break;
  }
  }
  TESSERA_CHECK(out.size() == n, "conversion of a layout in kernel " + kernel_.name);
  define(to, std::move(out));
  return {};
}

} // namespace tessera::gpu
