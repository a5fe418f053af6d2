// Reductions and scans along an axis: within a thread's registers, then across the lanes of a warp by shuffles, then
// across warps through shared memory. Lane and warp bits that hold copies do not take part.
//
// An argmax folds the values first, then the indices of the elements that equal the extreme: four instructions per
// element, against nine for comparing pairs in order with ties and NaN.
#include "codegen/llvm/gpu_reduce.h"
#include "codegen/llvm/gpu_pointwise.h"
#include "graph/support/check.h"
#include <llvm/IR/MDBuilder.h>

namespace tessera::gpu {

using layout::Dim;
using layout::LinearLayout;

namespace {

// Bits of register, lane and warp that move along an axis.
struct AxisBits {
  std::vector<int> registers, lanes, warps; // bit indices, in the order of the axis
  uint32_t register_mask = 0, lane_mask = 0, warp_mask = 0;
};

std::vector<int> bits_along(const LinearLayout& l, Dim in, int axis, uint32_t* mask) {
  std::vector<std::pair<int, int>> found; // basis, bit
  for (int i = 0; i < l.in_bits(in); ++i)
    if (int basis = l.basis(in, i, layout::axis(axis))) {
      found.emplace_back(basis, i);
      *mask |= 1u << i;
    }
  std::sort(found.begin(), found.end());
  std::vector<int> bits;
  for (auto [basis, bit] : found) bits.push_back(bit);
  return bits;
}

AxisBits axis_bits(const LinearLayout& l, int axis) {
  AxisBits a;
  a.registers = bits_along(l, Dim::Register, axis, &a.register_mask);
  a.lanes = bits_along(l, Dim::Lane, axis, &a.lane_mask);
  a.warps = bits_along(l, Dim::Warp, axis, &a.warp_mask);
  return a;
}

} // namespace

llvm::Value* Reductions::identity(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::Sum && is_float(dtype)) return math_.constant(dtype, -0.0, 0); // -0 + x is x for every x
  return is_float(dtype) ? math_.constant(dtype, reduce_identity_f64(kind, dtype), 0)
                         : math_.constant(dtype, 0, reduce_identity_i64(kind, dtype));
}

// The state of one fold: a value, or a value and its index.
struct Reductions::Folded {
  Value *value = nullptr, *index = nullptr;
};

// By how much the values in a thread's registers grow per position along the axis; nothing if the positions of a thread
// are not evenly spaced.
std::optional<int64_t> Reductions::even_stride(tile::ValueId id, int axis) const {
  if (!kernel_.type(id).is_tile()) return std::nullopt;
  const auto& l = layouts_[id];
  const auto reach = thread_reach(l, layout::axis(axis));
  for (int r = 0; r < l.registers(); ++r)
    if (static_cast<uint32_t>(l.apply(Dim::Register, r, layout::axis(axis))) & reach) return std::nullopt;
  // Narrower integers hold an i64 that fits.
  for (const auto* op = c_.definitions[static_cast<size_t>(id)];
       op &&
       (op->kind == tile::OpKind::Broadcast || (op->kind == tile::OpKind::Scalar && op->scalar == ScalarOp::Cast)) &&
       is_integer(kernel_.type(op->operands[0]).dtype) && kernel_.type(op->operands[0]).is_tile();
       op = c_.definitions[static_cast<size_t>(id)])
    id = op->operands[0];
  const auto stride = c_.facts[static_cast<size_t>(id)].stride[static_cast<size_t>(axis)];
  const auto extent = kernel_.type(id).shape[static_cast<size_t>(axis)];
  return stride && *stride > 0 && *stride < kMostPosition / extent ? stride : std::nullopt;
}

Status Reductions::reduce(const tile::Op& op) {
  auto source = op.operands[0];
  bool arg = op.reduce == ReduceKind::ArgMax || op.reduce == ReduceKind::ArgMin;
  DType dtype = kernel_.type(source).dtype;
  DType index_type = arg ? kernel_.type(op.operands[1]).dtype : DType::I64;
  const auto& l = layouts_[source];
  AxisBits along = axis_bits(l, op.axis);
  const ReduceKind values_kind = !arg ? op.reduce : op.reduce == ReduceKind::ArgMax ? ReduceKind::Max : ReduceKind::Min;
  // Masked elements add nothing: x + 0 is x except for the sign of zero.
  auto nothing = [&](Value* v) {
    auto* zero = llvm::dyn_cast<llvm::ConstantFP>(v);
    return op.reduce == ReduceKind::Sum && zero && zero->isZero();
  };
  auto combined = [&](Value* a, Value* c) {
    return nothing(c) ? a : nothing(a) ? c : math_.combine(values_kind, dtype, a, c);
  };
  // True if a value equals the extreme of the set that contains it, where NaN equals NaN.
  auto as_good = [&](Value* v, Value* best) {
    return is_float(dtype) ? b_.CreateOr(b_.CreateFCmpOEQ(v, best), b_.CreateFCmpUNO(v, v)) : b_.CreateICmpEQ(v, best);
  };
  const ReduceKind places_kind = op.select_last ? ReduceKind::Max : ReduceKind::Min;
  auto nearer = [&](Value* a, Value* c) { return math_.combine(places_kind, index_type, a, c); };
  auto* nowhere = arg ? identity(places_kind, index_type) : nullptr;
  auto by_halves = [](Registers list, auto f) {
    for (; list.size() > 1; list.resize((list.size() + 1) / 2))
      for (size_t i = 0, half = (list.size() + 1) / 2; i + half < list.size(); ++i)
        list[i] = f(list[i], list[i + half]);
    return list[0];
  };

  // The index of the extreme among several, by select_last.
  auto place_among = [&](const Registers& values, const Registers& places, Value* best) {
    Registers list;
    for (size_t i = 0; i < values.size(); ++i)
      list.push_back(b_.CreateSelect(as_good(values[i], best), places[i], nowhere));
    return by_halves(list, nearer);
  };

  // Registers are folded pairwise, so the depth is the number of axis bits.
  std::vector<Folded> out; // by register of the result
  std::vector<Registers> values, places;
  std::vector<int64_t> positions; // along the axis, of each result's first register
  for (int r = 0; r < l.registers(); ++r) {
    if (static_cast<uint32_t>(r) & along.register_mask) continue;
    Registers v, i;
    for (int n = 0; n < 1 << along.registers.size(); ++n) {
      int at = r;
      for (size_t j = 0; j < along.registers.size(); ++j)
        if (n >> j & 1) at |= 1 << along.registers[j];
      v.push_back(registers(source)[static_cast<size_t>(at)]);
      if (arg) i.push_back(registers(op.operands[1])[static_cast<size_t>(at)]);
      if (out.empty()) positions.push_back(l.apply(Dim::Register, at, layout::axis(op.axis)));
    }
    out.push_back({by_halves(v, combined), arg ? i[0] : nullptr});
    values.push_back(std::move(v));
    places.push_back(std::move(i));
  }
  // If indices grow evenly along the axis, the fold finds the offset of the extreme's register from the thread's first
  // one, in short groups, because selections depend on each other.
  constexpr size_t kRun = 16;
  const auto stride = arg ? even_stride(op.operands[1], op.axis) : std::nullopt;
  auto first = [&](const Registers& of, const std::function<Value*(Value*)>& wanted) {
    Registers runs;
    const size_t n = of.size();
    for (size_t end = n; end > 0; end -= std::min(end, kRun)) {
      Value* found = identity(places_kind, DType::I32);
      for (size_t i = end; i-- > end - std::min(end, kRun);) {
        const size_t at = op.select_last ? n - 1 - i : i;
        found = b_.CreateSelect(wanted(of[at]), math_.constant(DType::I32, 0, *stride * (positions[at] - positions[0])),
                                found);
      }
      runs.push_back(found);
    }
    return by_halves(runs, [&](Value* a, Value* c) { return math_.combine(places_kind, DType::I32, a, c); });
  };
  if (arg && positions.size() > 1 && stride && std::is_sorted(positions.begin(), positions.end())) {
    Registers found;
    Value* any_nan = nullptr;
    for (size_t s = 0; s < out.size(); ++s) {
      found.push_back(first(values[s], [&](Value* v) {
        return is_float(dtype) ? b_.CreateFCmpOEQ(v, out[s].value) : b_.CreateICmpEQ(v, out[s].value);
      }));
      if (!is_float(dtype)) continue;
      auto* nan = b_.CreateFCmpUNO(out[s].value, out[s].value);
      any_nan = any_nan ? b_.CreateOr(any_nan, nan) : nan;
    }
    if (any_nan) { // searches NaNs only if there are any
      auto* nan = llvm::BasicBlock::Create(b_.getContext(), "nan", c_.function);
      auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", c_.function);
      auto* before = b_.GetInsertBlock();
      b_.CreateCondBr(any_nan, nan, after, llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
      b_.SetInsertPoint(nan);
      Registers with_nan;
      for (size_t s = 0; s < out.size(); ++s)
        with_nan.push_back(b_.CreateSelect(b_.CreateFCmpUNO(out[s].value, out[s].value),
                                           first(values[s], [&](Value* v) { return b_.CreateFCmpUNO(v, v); }),
                                           found[s]));
      b_.CreateBr(after);
      b_.SetInsertPoint(after);
      for (size_t s = 0; s < out.size(); ++s) {
        auto* phi = b_.CreatePHI(found[s]->getType(), 2);
        phi->addIncoming(found[s], before);
        phi->addIncoming(with_nan[s], nan);
        found[s] = phi;
      }
    }
    for (size_t s = 0; s < out.size(); ++s)
      out[s].index = b_.CreateAdd(places[s][0], math_.cast(found[s], DType::I32, index_type));
  } else if (arg && positions.size() > 1) {
    for (size_t s = 0; s < out.size(); ++s) out[s].index = place_among(values[s], places[s], out[s].value);
  }

  // Lanes. A vote folds bools across the whole warp.
  uint32_t free_lanes = l.free_mask(Dim::Lane), free_warps = l.free_mask(Dim::Warp);
  auto warps = static_cast<uint32_t>(layouts_.warps - 1);
  bool vote = op.reduce == ReduceKind::Any || op.reduce == ReduceKind::All;
  bool whole_warp = (along.lane_mask | free_lanes) == 31;
  bool whole_block = whole_warp && ((along.warp_mask | free_warps) & warps) == warps && out.size() == 1;
  if (vote && whole_block && along.warp_mask != 0) { // a barrier with vote
    bool all = op.reduce == ReduceKind::All;
    auto* p = all ? b_.CreateNot(out[0].value) : out[0].value;
    p = gpu_.barrier_any(p);
    c_.hazards.barrier();
    define(op.results[0], {all ? b_.CreateNot(p) : p});
    return {};
  }
  if (vote && whole_warp && along.lane_mask != 0) {
    for (auto& o : out) o.value = op.reduce == ReduceKind::Any ? gpu_.vote_any(o.value) : gpu_.vote_all(o.value);
  } else {
    auto among_lanes = [&](Value* v, auto f) {
      for (auto bit = along.lanes.rbegin(); bit != along.lanes.rend(); ++bit) v = f(v, gpu_.shuffle_xor(v, 1 << *bit));
      return v;
    };
    for (auto& o : out) {
      auto* own = o.value;
      o.value = among_lanes(own, combined);
      if (arg && !along.lanes.empty())
        o.index = among_lanes(b_.CreateSelect(as_good(own, o.value), o.index, nowhere), nearer);
    }
  }

  // Warps: each stores its partial result, all read all. Slot s is the index among results of register, lane and warp
  // that do not lie along the axis. With few registers a slot has one element per warp along the axis, contiguous; with
  // several, those of a thread are contiguous, followed by other lanes', to avoid bank conflicts.
  if (along.warp_mask != 0) {
    constexpr size_t kSeveral = 4;
    const int parts = 1 << along.warps.size();
    uint32_t lanes_beside = 31 & ~along.lane_mask & ~free_lanes, warps_beside = warps & ~along.warp_mask & ~free_warps;
    const bool across = out.size() >= kSeveral && lanes_beside != 0;
    std::vector<std::pair<int, int>> slot_bits, part_bits;
    const int own_slots = static_cast<int>(out.size()), slot_stride = across ? 1 : parts;
    int slots = own_slots;
    for (int i = 0; i < layout::kLaneBits; ++i)
      if (lanes_beside >> i & 1) slot_bits.emplace_back(i, slots * slot_stride), slots *= 2;
    for (int i = 0; i < l.in_bits(Dim::Warp); ++i)
      if (warps_beside >> i & 1) slot_bits.emplace_back(layout::kLaneBits + i, slots * slot_stride), slots *= 2;
    const int part_stride = across ? slots : 1;
    for (size_t i = 0; i < along.warps.size(); ++i)
      part_bits.emplace_back(layout::kLaneBits + along.warps[i], part_stride << i);
    auto both_bits = slot_bits;
    both_bits.insert(both_bits.end(), part_bits.begin(), part_bits.end());
    int64_t elements = int64_t{slots} * parts;
    int64_t value_bytes = (elements * element_bytes(dtype) + 15) / 16 * 16;
    int64_t bytes = value_bytes + (arg ? elements * element_bytes(index_type) : 0);
    TESSERA_ASSIGN(int64_t region, shared_.region(bytes));
    auto offset = [&](Value* element, int further, DType type, int64_t start) {
      int64_t fixed = region + start + int64_t{further} * element_bytes(type);
      auto* scaled = b_.CreateMul(element, b_.getInt32(static_cast<uint32_t>(element_bytes(type))));
      return b_.CreateAdd(scaled, b_.getInt32(static_cast<uint32_t>(fixed)));
    };
    auto* own = positions_.xor_of_bits(both_bits);
    auto* mine = positions_.xor_of_bits(slot_bits);
    auto* writes = positions_.acts_for_copies(along.lane_mask | free_lanes, free_warps);
    auto leave = [&](auto member, DType type, int64_t start) {
      const int width = across ? std::min(own_slots, 16 / element_bytes(type)) : 1;
      for (int s = 0; s < own_slots; s += width) {
        Registers some;
        for (int i = s; i < s + width; ++i) some.push_back(out[static_cast<size_t>(i)].*member);
        shared_.store(offset(own, s * slot_stride, type, start), some, type, writes);
      }
    };
    leave(&Folded::value, dtype, 0);
    if (arg) leave(&Folded::index, index_type, value_bytes);
    shared_.barrier();
    c_.hazards.touch_shared({region, region + bytes});
    // Indexed by slot, then by part.
    auto read = [&](DType type, int64_t start) {
      std::vector<Registers> all(out.size(), Registers(static_cast<size_t>(parts)));
      const int near = across ? own_slots : parts, far = across ? parts : own_slots;
      const int width = std::min(near, 16 / element_bytes(type));
      for (int f = 0; f < far; ++f)
        for (int n = 0; n < near; n += width) {
          auto some =
              shared_.load(offset(mine, f * (across ? part_stride : slot_stride) + n, type, start), type, width);
          for (int i = 0; i < width; ++i)
            all[static_cast<size_t>(across ? n + i : f)][static_cast<size_t>(across ? f : n + i)] =
                some[static_cast<size_t>(i)];
        }
      return all;
    };
    const std::vector<Registers> read_values = read(dtype, 0);
    std::vector<Registers> read_indices;
    if (arg) read_indices = read(index_type, value_bytes);
    for (size_t s = 0; s < out.size(); ++s) {
      out[s].value = by_halves(read_values[s], combined);
      if (arg) out[s].index = place_among(read_values[s], read_indices[s], out[s].value);
    }
  }
  Registers best, index;
  for (auto& o : out) best.push_back(o.value), index.push_back(o.index);
  define(op.results[0], std::move(best));
  if (arg) define(op.results[1], std::move(index));
  return {};
}

// Inclusive scan. A thread holds a contiguous segment of the axis; an exclusive scan of the segments' totals over
// lanes, then over warps, gives the prefix of its elements.
Status Reductions::scan(const tile::Op& op) {
  auto source = op.operands[0];
  DType dtype = kernel_.type(source).dtype;
  const auto& l = layouts_[source];
  AxisBits along = axis_bits(l, op.axis);
  auto fold = [&](Value* a, Value* c) { return math_.combine(op.reduce, dtype, a, c); };
  Registers v = registers(source, static_cast<size_t>(l.registers()));

  // Segments: registers that differ along the axis only, in its order.
  std::map<uint32_t, std::vector<int>> runs;
  for (int r = 0; r < l.registers(); ++r) runs[static_cast<uint32_t>(r) & ~along.register_mask].push_back(r);
  for (auto& [beside, run] : runs) {
    std::sort(run.begin(), run.end(), [&](int a, int c) {
      return l.apply(Dim::Register, a, layout::axis(op.axis)) < l.apply(Dim::Register, c, layout::axis(op.axis));
    });
    for (size_t i = 1; i < run.size(); ++i)
      v[static_cast<size_t>(run[i])] = fold(v[static_cast<size_t>(run[i - 1])], v[static_cast<size_t>(run[i])]);
  }
  if (along.lanes.empty() && along.warps.empty()) {
    define(op.results[0], std::move(v));
    return {};
  }

  // Lanes, in blocks of doubling size: the prefix of the upper half is the total of the lower half, which the lower
  // half's last lane has.
  auto* lane = b_.CreateAnd(c_.thread, b_.getInt32(31));
  std::map<uint32_t, Value*> totals, before; // of a segment; `before` is exclusive
  for (auto& [beside, run] : runs) {
    Value *total = v[static_cast<size_t>(run.back())], *prefix = identity(op.reduce, dtype);
    uint32_t below = 0;
    for (int bit : along.lanes) {
      uint32_t own = 1u << bit;
      auto* upper = b_.CreateICmpNE(b_.CreateAnd(lane, b_.getInt32(own)), b_.getInt32(0));
      auto* last = b_.CreateOr(b_.CreateAnd(lane, b_.getInt32(~own)), b_.getInt32(below));
      auto* lower_total = gpu_.shuffle(total, last);
      prefix = b_.CreateSelect(upper, fold(lower_total, prefix), prefix);
      total = b_.CreateSelect(upper, fold(lower_total, total), total);
      below |= own;
    }
    totals[beside] = total;
    before[beside] = prefix;
  }

  // Warps: the last lane stores the warp's total; all threads read all totals and fold those before their warp.
  if (!along.warps.empty()) {
    int parts = 1 << along.warps.size();
    uint32_t free_lanes = l.free_mask(Dim::Lane), free_warps = l.free_mask(Dim::Warp);
    auto warps = static_cast<uint32_t>(layouts_.warps - 1);
    uint32_t lanes_beside = 31 & ~along.lane_mask & ~free_lanes, warps_beside = warps & ~along.warp_mask & ~free_warps;
    std::vector<std::pair<int, int>> slot_bits, part_bits;
    int slots = static_cast<int>(runs.size());
    for (int i = 0; i < layout::kLaneBits; ++i)
      if (lanes_beside >> i & 1) slot_bits.emplace_back(i, slots), slots *= 2;
    for (int i = 0; i < l.in_bits(Dim::Warp); ++i)
      if (warps_beside >> i & 1) slot_bits.emplace_back(layout::kLaneBits + i, slots), slots *= 2;
    for (size_t i = 0; i < along.warps.size(); ++i) part_bits.emplace_back(layout::kLaneBits + along.warps[i], 1 << i);
    int size = element_bytes(dtype);
    int64_t bytes = int64_t{slots} * parts * size;
    TESSERA_ASSIGN(int64_t region, shared_.region(bytes));
    auto *slot = positions_.xor_of_bits(slot_bits), *part = positions_.xor_of_bits(part_bits);
    auto offset = [&](size_t run, Value* which) {
      auto* s = b_.CreateAdd(slot, b_.getInt32(static_cast<uint32_t>(run)));
      auto* element = b_.CreateAdd(b_.CreateMul(s, b_.getInt32(static_cast<uint32_t>(parts))), which);
      return b_.CreateAdd(b_.CreateMul(element, b_.getInt32(static_cast<uint32_t>(size))),
                          b_.getInt32(static_cast<uint32_t>(region)));
    };
    // The last lane along the axis stores: it has all axis bits set and no copy bits.
    auto* writes = b_.CreateICmpEQ(
        b_.CreateAnd(c_.thread, b_.getInt32(along.lane_mask | free_lanes | free_warps << layout::kLaneBits)),
        b_.getInt32(along.lane_mask));
    size_t number = 0;
    for (auto& [beside, total] : totals)
      shared_.store(offset(number++, part), std::span<Value* const>(&total, 1), dtype, writes);
    shared_.barrier();
    c_.hazards.touch_shared({region, region + bytes});
    number = 0;
    for (auto& [beside, prefix] : before) {
      Value* preceding = identity(op.reduce, dtype);
      int width = std::min(parts, 16 / size);
      Registers all;
      for (int p = 0; p < parts; p += width)
        for (auto* e : shared_.load(offset(number, b_.getInt32(static_cast<uint32_t>(p))), dtype, width))
          all.push_back(e);
      for (int p = 0; p + 1 < parts; ++p) {
        auto* earlier = b_.CreateICmpUGT(part, b_.getInt32(static_cast<uint32_t>(p)));
        preceding = b_.CreateSelect(earlier, fold(preceding, all[static_cast<size_t>(p)]), preceding);
      }
      prefix = fold(preceding, prefix);
      ++number;
    }
  }
  for (auto& [beside, run] : runs)
    for (int r : run) v[static_cast<size_t>(r)] = fold(before[beside], v[static_cast<size_t>(r)]);
  define(op.results[0], std::move(v));
  return {};
}

} // namespace tessera::gpu
