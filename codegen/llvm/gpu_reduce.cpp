// Reductions and scans along an axis: within a thread's registers, then across the lanes of a warp by shuffles, then
// across warps through shared memory. Lane and warp bits that hold copies do not take part.
//
// An argmax folds the values first, then the indices of the elements that equal the extreme: four instructions per
// element, against nine for comparing pairs in order with ties and NaN.
#include "codegen/llvm/gpu_reduce.h"
#include "base/check.h"
#include "codegen/llvm/gpu_pointwise.h"
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

// The registers that differ from `first` along the axis only, in its order.
std::vector<int> registers_along(const AxisBits& along, int first) {
  std::vector<int> out;
  for (int n = 0; n < 1 << along.registers.size(); ++n) {
    int r = first;
    for (size_t j = 0; j < along.registers.size(); ++j)
      if (n >> j & 1) r |= 1 << along.registers[j];
    out.push_back(r);
  }
  return out;
}

// Results that a block's warps exchange: one slot for each index among results of register, lane and warp that do not
// lie along the axis. `bits`: which bit of the thread's index adds how much to the position of its first slot.
struct Slots {
  std::vector<std::pair<int, int>> bits;
  int count = 0;
};

Slots slots_of(const LinearLayout& l, const AxisBits& along, int warps, int of_thread, int stride) {
  Slots out{{}, of_thread};
  const uint32_t lanes = 31 & ~along.lane_mask & ~l.free_mask(Dim::Lane);
  const uint32_t other_warps = static_cast<uint32_t>(warps - 1) & ~along.warp_mask & ~l.free_mask(Dim::Warp);
  auto add = [&](int bit) {
    out.bits.emplace_back(bit, out.count * stride);
    out.count *= 2;
  };
  for (int i = 0; i < layout::kLaneBits; ++i)
    if (lanes >> i & 1) add(i);
  for (int i = 0; i < l.in_bits(Dim::Warp); ++i)
    if (other_warps >> i & 1) add(layout::kLaneBits + i);
  return out;
}

Value* identity(Math& math, ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::Sum && is_float(dtype)) return math.constant(dtype, -0.0, 0); // -0 + x is x for every x
  return is_float(dtype) ? math.constant(dtype, reduce_identity_f64(kind, dtype), 0)
                         : math.constant(dtype, 0, reduce_identity_i64(kind, dtype));
}

template <class F>
Value* by_halves(Registers list, F&& f) {
  for (; list.size() > 1; list.resize((list.size() + 1) / 2))
    for (size_t i = 0, half = (list.size() + 1) / 2; i + half < list.size(); ++i) list[i] = f(list[i], list[i + half]);
  return list[0];
}

// The state of one fold: a value, or a value and its index.
struct Folded {
  Value *value = nullptr, *index = nullptr;
};
// The part of one result that the registers of a thread hold.
struct ThreadPart {
  Registers values, indices;
};

// One reduction, level by level.
class Reduction final : Part {
public:
  Reduction(Context& context, Positions& positions, SharedMemory& shared, const tile::Op& op)
      : Part(context), positions_(positions), shared_(shared), op_(op), layout_(layouts_[op.operands[0]]),
        along_(axis_bits(layout_, op.axis)), arg_(op.reduce == ReduceKind::ArgMax || op.reduce == ReduceKind::ArgMin),
        dtype_(dtype_of(op.operands[0])), index_type_(arg_ ? dtype_of(op.operands[1]) : DType::I64),
        value_kind_(!arg_                             ? op.reduce
                    : op.reduce == ReduceKind::ArgMax ? ReduceKind::Max
                                                      : ReduceKind::Min),
        index_kind_(op.select_last ? ReduceKind::Max : ReduceKind::Min),
        no_index_(arg_ ? identity(math_, index_kind_, index_type_) : nullptr) {}

  Status emit() {
    std::vector<Folded> results = fold_registers();
    if (is_block_vote(results)) {
      results[0].value = block_vote(results[0].value);
    } else {
      fold_lanes(results);
      if (along_.warp_mask != 0) TESSERA_TRY(fold_warps(results));
    }
    Registers values, indices;
    for (auto& r : results) values.push_back(r.value), indices.push_back(r.index);
    define(op_.results[0], std::move(values));
    if (arg_) define(op_.results[1], std::move(indices));
    return {};
  }

private:
  // Masked elements add nothing: x + 0 is x except for the sign of zero.
  [[nodiscard]] bool adds_nothing(Value* v) const {
    auto* zero = llvm::dyn_cast<llvm::ConstantFP>(v);
    return op_.reduce == ReduceKind::Sum && zero && zero->isZero();
  }
  Value* combined(Value* a, Value* c) {
    return adds_nothing(c) ? a : adds_nothing(a) ? c : math_.combine(value_kind_, dtype_, a, c);
  }
  Value* nearer(Value* a, Value* c) { return math_.combine(index_kind_, index_type_, a, c); }
  Value* fold(const Registers& values) {
    return by_halves(values, [&](Value* a, Value* c) { return combined(a, c); });
  }
  Value* equal(Value* v, Value* best) {
    return is_float(dtype_) ? b_.CreateFCmpOEQ(v, best) : b_.CreateICmpEQ(v, best);
  }
  // True if a value equals the extreme of the set that contains it, where NaN equals NaN.
  Value* as_good(Value* v, Value* best) {
    return is_float(dtype_) ? b_.CreateOr(b_.CreateFCmpOEQ(v, best), b_.CreateFCmpUNO(v, v)) : b_.CreateICmpEQ(v, best);
  }
  // The index of the extreme among several, by select_last.
  Value* index_of(Value* best, const ThreadPart& among) {
    Registers list;
    for (size_t i = 0; i < among.values.size(); ++i)
      list.push_back(b_.CreateSelect(as_good(among.values[i], best), among.indices[i], no_index_));
    return by_halves(list, [&](Value* a, Value* c) { return nearer(a, c); });
  }

  std::vector<Folded> fold_registers();
  [[nodiscard]] std::vector<int64_t> even_offsets() const;
  Value* first_offset(const Registers& values, const std::vector<int64_t>& offsets,
                      const std::function<Value*(Value*)>& wanted);
  Registers offsets_of(const std::vector<Folded>& results, const std::vector<ThreadPart>& parts,
                       const std::vector<int64_t>& offsets);
  [[nodiscard]] bool is_vote() const { // a vote folds bools across the whole warp
    return (op_.reduce == ReduceKind::Any || op_.reduce == ReduceKind::All) &&
           (along_.lane_mask | layout_.free_mask(Dim::Lane)) == 31;
  }
  [[nodiscard]] bool is_block_vote(const std::vector<Folded>& results) const {
    const auto warps = static_cast<uint32_t>(layouts_.warps - 1);
    return is_vote() && ((along_.warp_mask | layout_.free_mask(Dim::Warp)) & warps) == warps && results.size() == 1 &&
           along_.warp_mask != 0;
  }
  Value* block_vote(Value* value);
  void fold_lanes(std::vector<Folded>& results);
  Status fold_warps(std::vector<Folded>& results);

  Positions& positions_;
  SharedMemory& shared_;
  const tile::Op& op_;
  const LinearLayout& layout_; // of the source
  const AxisBits along_;
  const bool arg_; // the index of the extreme is a result, too
  const DType dtype_, index_type_;
  const ReduceKind value_kind_, index_kind_; // by which values and indices are folded
  Value* const no_index_;
};

// Offsets of the indices in a thread's registers from the first one, where they grow evenly from position to position;
// empty if they do not.
std::vector<int64_t> Reduction::even_offsets() const {
  tile::ValueId id = op_.operands[1];
  if (!kernel_.type(id).is_tile()) return {};
  const auto& l = layouts_[id];
  const auto axis = layout::axis(op_.axis);
  const auto reach = thread_reach(l, axis);
  for (int r = 0; r < l.registers(); ++r)
    if (static_cast<uint32_t>(l.apply(Dim::Register, r, axis)) & reach) return {};
  // Narrower integers hold an i64 that fits.
  for (const auto* op = c_.definitions[static_cast<size_t>(id)];
       op &&
       (op->kind == tile::OpKind::Broadcast || (op->kind == tile::OpKind::Scalar && op->scalar == ScalarOp::Cast)) &&
       is_integer(kernel_.type(op->operands[0]).dtype) && kernel_.type(op->operands[0]).is_tile();
       op = c_.definitions[static_cast<size_t>(id)])
    id = op->operands[0];
  const auto stride = c_.facts[static_cast<size_t>(id)].stride[static_cast<size_t>(op_.axis)];
  const auto extent = kernel_.type(id).shape[static_cast<size_t>(op_.axis)];
  if (!stride || *stride <= 0 || *stride >= kMaxPosition / extent) return {};
  std::vector<int64_t> positions;
  for (int r : registers_along(along_, 0)) positions.push_back(layout_.apply(Dim::Register, r, axis));
  if (!std::is_sorted(positions.begin(), positions.end())) return {};
  const int64_t first = positions[0];
  for (auto& p : positions) p = *stride * (p - first);
  return positions;
}

// The offset of the first of a thread's values that is wanted, in short groups, because selections depend on each other.
Value* Reduction::first_offset(const Registers& values, const std::vector<int64_t>& offsets,
                               const std::function<Value*(Value*)>& wanted) {
  constexpr size_t kRun = 16;
  Registers runs;
  const size_t n = values.size();
  for (size_t end = n; end > 0; end -= std::min(end, kRun)) {
    Value* found = identity(math_, index_kind_, DType::I32);
    for (size_t i = end; i-- > end - std::min(end, kRun);) {
      const size_t at = op_.select_last ? n - 1 - i : i;
      found = b_.CreateSelect(wanted(values[at]), math_.constant(DType::I32, 0, offsets[at]), found);
    }
    runs.push_back(found);
  }
  return by_halves(runs, [&](Value* a, Value* c) { return math_.combine(index_kind_, DType::I32, a, c); });
}

// The offsets of the extremes of all results. NaNs are searched only if there are any.
Registers Reduction::offsets_of(const std::vector<Folded>& results, const std::vector<ThreadPart>& parts,
                                const std::vector<int64_t>& offsets) {
  Registers found;
  Value* any_nan = nullptr;
  for (size_t s = 0; s < results.size(); ++s) {
    auto* best = results[s].value;
    found.push_back(first_offset(parts[s].values, offsets, [&](Value* v) { return equal(v, best); }));
    if (!is_float(dtype_)) continue;
    auto* nan = b_.CreateFCmpUNO(best, best);
    any_nan = any_nan ? b_.CreateOr(any_nan, nan) : nan;
  }
  if (!any_nan) return found;
  auto* nan = llvm::BasicBlock::Create(b_.getContext(), "nan", c_.function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", c_.function);
  auto* before = b_.GetInsertBlock();
  b_.CreateCondBr(any_nan, nan, after, llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(nan);
  Registers with_nan;
  for (size_t s = 0; s < results.size(); ++s)
    with_nan.push_back(b_.CreateSelect(
        b_.CreateFCmpUNO(results[s].value, results[s].value),
        first_offset(parts[s].values, offsets, [&](Value* v) { return b_.CreateFCmpUNO(v, v); }), found[s]));
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  for (size_t s = 0; s < results.size(); ++s) {
    auto* phi = b_.CreatePHI(found[s]->getType(), 2);
    phi->addIncoming(found[s], before);
    phi->addIncoming(with_nan[s], nan);
    found[s] = phi;
  }
  return found;
}

// Registers are folded pairwise, so the depth is the number of axis bits. Where indices grow evenly along the axis, the
// fold finds the offset of the extreme's register from the thread's first one.
std::vector<Folded> Reduction::fold_registers() {
  std::vector<ThreadPart> parts; // by register of the result
  for (int r = 0; r < layout_.registers(); ++r) {
    if (static_cast<uint32_t>(r) & along_.register_mask) continue;
    ThreadPart part;
    for (int at : registers_along(along_, r)) {
      part.values.push_back(registers(op_.operands[0])[static_cast<size_t>(at)]);
      if (arg_) part.indices.push_back(registers(op_.operands[1])[static_cast<size_t>(at)]);
    }
    parts.push_back(std::move(part));
  }
  std::vector<Folded> out;
  for (const auto& part : parts) out.push_back({fold(part.values), arg_ ? part.indices[0] : nullptr});
  if (!arg_ || along_.registers.empty()) return out;
  const std::vector<int64_t> offsets = even_offsets();
  if (offsets.empty()) {
    for (size_t s = 0; s < out.size(); ++s) out[s].index = index_of(out[s].value, parts[s]);
    return out;
  }
  const Registers found = offsets_of(out, parts, offsets);
  for (size_t s = 0; s < out.size(); ++s)
    out[s].index = b_.CreateAdd(out[s].index, math_.cast(found[s], DType::I32, index_type_));
  return out;
}

Value* Reduction::block_vote(Value* value) {
  const bool all = op_.reduce == ReduceKind::All;
  value = gpu_.barrier_any(all ? b_.CreateNot(value) : value);
  c_.hazards.barrier();
  return all ? b_.CreateNot(value) : value;
}

void Reduction::fold_lanes(std::vector<Folded>& results) {
  if (is_vote() && along_.lane_mask != 0) {
    for (auto& r : results) r.value = op_.reduce == ReduceKind::Any ? gpu_.vote_any(r.value) : gpu_.vote_all(r.value);
    return;
  }
  auto among_lanes = [&](Value* v, auto f) {
    for (auto bit = along_.lanes.rbegin(); bit != along_.lanes.rend(); ++bit) v = f(v, gpu_.shuffle_xor(v, 1 << *bit));
    return v;
  };
  for (auto& r : results) {
    auto* own = r.value;
    r.value = among_lanes(own, [&](Value* a, Value* c) { return combined(a, c); });
    if (arg_ && !along_.lanes.empty())
      r.index = among_lanes(b_.CreateSelect(as_good(own, r.value), r.index, no_index_),
                            [&](Value* a, Value* c) { return nearer(a, c); });
  }
}

// Each warp stores its partial results, all read all. With few registers a slot has one element per warp along the
// axis, contiguous; with several, those of a thread are contiguous, followed by other lanes', to avoid bank conflicts.
Status Reduction::fold_warps(std::vector<Folded>& results) {
  constexpr int kSeveral = 4;
  const int parts = 1 << along_.warps.size(), own_slots = static_cast<int>(results.size());
  const uint32_t free_lanes = layout_.free_mask(Dim::Lane), free_warps = layout_.free_mask(Dim::Warp);
  const bool across = own_slots >= kSeveral && (31 & ~along_.lane_mask & ~free_lanes) != 0;
  const int slot_stride = across ? 1 : parts;
  const Slots slots = slots_of(layout_, along_, layouts_.warps, own_slots, slot_stride);
  const int part_stride = across ? slots.count : 1;
  auto part_bits = slots.bits;
  for (size_t i = 0; i < along_.warps.size(); ++i)
    part_bits.emplace_back(layout::kLaneBits + along_.warps[i], part_stride << i);
  const int64_t elements = int64_t{slots.count} * parts;
  const int64_t value_bytes = (elements * element_bytes(dtype_) + 15) / 16 * 16;
  const int64_t bytes = value_bytes + (arg_ ? elements * element_bytes(index_type_) : 0);
  TESSERA_ASSIGN(int64_t region, shared_.region(bytes));
  auto offset = [&](Value* element, int further, DType type, int64_t start) {
    int64_t fixed = region + start + int64_t{further} * element_bytes(type);
    auto* scaled = b_.CreateMul(element, b_.getInt32(static_cast<uint32_t>(element_bytes(type))));
    return b_.CreateAdd(scaled, b_.getInt32(static_cast<uint32_t>(fixed)));
  };
  auto* own = positions_.xor_of_bits(part_bits);
  auto* mine = positions_.xor_of_bits(slots.bits);
  auto* writes = positions_.acts_for_copies(along_.lane_mask | free_lanes, free_warps);
  auto store = [&](auto member, DType type, int64_t start) {
    const int width = across ? std::min(own_slots, 16 / element_bytes(type)) : 1;
    for (int s = 0; s < own_slots; s += width) {
      Registers some;
      for (int i = s; i < s + width; ++i) some.push_back(results[static_cast<size_t>(i)].*member);
      shared_.store(offset(own, s * slot_stride, type, start), some, type, writes);
    }
  };
  store(&Folded::value, dtype_, 0);
  if (arg_) store(&Folded::index, index_type_, value_bytes);
  shared_.barrier();
  c_.hazards.touch_shared({region, region + bytes});
  std::vector<ThreadPart> read(results.size(),
                               {Registers(static_cast<size_t>(parts)), Registers(static_cast<size_t>(parts))});
  auto load = [&](auto member, DType type, int64_t start) {
    const int near = across ? own_slots : parts, far = across ? parts : own_slots;
    const int width = std::min(near, 16 / element_bytes(type));
    for (int f = 0; f < far; ++f)
      for (int n = 0; n < near; n += width) {
        auto some = shared_.load(offset(mine, f * (across ? part_stride : slot_stride) + n, type, start), type, width);
        for (int i = 0; i < width; ++i)
          (read[static_cast<size_t>(across ? n + i : f)].*member)[static_cast<size_t>(across ? f : n + i)] =
              some[static_cast<size_t>(i)];
      }
  };
  load(&ThreadPart::values, dtype_, 0);
  if (arg_) load(&ThreadPart::indices, index_type_, value_bytes);
  for (size_t s = 0; s < results.size(); ++s) {
    results[s].value = fold(read[s].values);
    if (arg_) results[s].index = index_of(results[s].value, read[s]);
  }
  return {};
}

} // namespace

Status Reductions::reduce(const tile::Op& op) { return Reduction(c_, positions_, shared_, op).emit(); }

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
    Value *total = v[static_cast<size_t>(run.back())], *prefix = identity(math_, op.reduce, dtype);
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
    const Slots slots = slots_of(l, along, layouts_.warps, static_cast<int>(runs.size()), 1);
    std::vector<std::pair<int, int>> part_bits;
    for (size_t i = 0; i < along.warps.size(); ++i) part_bits.emplace_back(layout::kLaneBits + along.warps[i], 1 << i);
    int size = element_bytes(dtype);
    int64_t bytes = int64_t{slots.count} * parts * size;
    TESSERA_ASSIGN(int64_t region, shared_.region(bytes));
    auto *slot = positions_.xor_of_bits(slots.bits), *part = positions_.xor_of_bits(part_bits);
    auto offset = [&](size_t run, Value* which) {
      auto* s = b_.CreateAdd(slot, b_.getInt32(static_cast<uint32_t>(run)));
      auto* element = b_.CreateAdd(b_.CreateMul(s, b_.getInt32(static_cast<uint32_t>(parts))), which);
      return b_.CreateAdd(b_.CreateMul(element, b_.getInt32(static_cast<uint32_t>(size))),
                          b_.getInt32(static_cast<uint32_t>(region)));
    };
    // The last lane along the axis stores: it has all axis bits set and no copy bits.
    auto* writes = b_.CreateICmpEQ(b_.CreateAnd(c_.thread, b_.getInt32(along.lane_mask | l.free_mask(Dim::Lane) |
                                                                       l.free_mask(Dim::Warp) << layout::kLaneBits)),
                                   b_.getInt32(along.lane_mask));
    size_t number = 0;
    for (auto& [beside, total] : totals)
      shared_.store(offset(number++, part), std::span<Value* const>(&total, 1), dtype, writes);
    shared_.barrier();
    c_.hazards.touch_shared({region, region + bytes});
    number = 0;
    for (auto& [beside, prefix] : before) {
      Value* preceding = identity(math_, op.reduce, dtype);
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
