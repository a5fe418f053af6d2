#include "codegen/llvm/gpu_accesses.h"
#include <llvm/IR/MDBuilder.h>

namespace tessera::gpu {

using tile::OpKind;

// Scratch is shared memory, so its size must be constant and small.
Status Accesses::reserve_scratch() {
  std::map<tile::ValueId, int64_t> constants;
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id)
    if (const auto& op = kernel_.op(id); op.kind == OpKind::Const && !op.results.empty())
      constants[op.results[0]] = op.i;
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id) {
    const auto& op = kernel_.op(id);
    if (op.kind != OpKind::Scratch || op.results.empty()) continue;
    auto count = constants.find(op.operands[0]);
    if (count == constants.end()) return error("scratch of a size that only the run knows");
    auto at = c_.hazards.reserve_scratch(count->second * element_bytes(kernel_.type(op.results[0]).dtype));
    if (!at) return error("scratch beyond the shared memory of a block");
    scratch_[op.results[0]] = *at;
  }
  return {};
}

// A tile of integers as a sum of ranges times constants, one per dimension, and a scalar: the constants, and a divisor
// of the scalar. Nothing if no such sum is found.
std::optional<Accesses::Affine> Accesses::affine(tile::ValueId id) const {
  const auto& type = kernel_.type(id);
  if (!type.is_tile()) return Affine{{}, c_.facts[static_cast<size_t>(id)].divisor()};
  const auto* op = c_.definitions[static_cast<size_t>(id)];
  if (!op) return std::nullopt;
  auto of = [&](size_t operand) -> std::optional<Affine> {
    auto a = affine(op->operands[operand]);
    if (a && a->strides.empty()) a->strides.assign(type.shape.size(), 0);
    return a;
  };
  switch (op->kind) {
  case OpKind::Range: return Affine{{1}, layout::kMaxDivisor};
  case OpKind::Const: return Affine{std::vector<int64_t>(type.shape.size(), 0), layout::power_of_two_in(op->i)};
  case OpKind::ExpandDims: {
    auto a = affine(op->operands[0]);
    if (a) a->strides.insert(a->strides.begin() + op->axis, 0);
    return a;
  }
  case OpKind::Broadcast: return of(0);
  case OpKind::Scalar: break;
  default: return std::nullopt;
  }
  if (op->scalar == ScalarOp::Add) {
    auto a = of(0), b = of(1);
    if (!a || !b) return std::nullopt;
    for (size_t i = 0; i < a->strides.size(); ++i) a->strides[i] += b->strides[i];
    a->divisor = std::min(a->divisor, b->divisor);
    return a;
  }
  if (op->scalar != ScalarOp::Mul) return std::nullopt;
  for (size_t tile : {size_t{0}, size_t{1}}) {
    auto by = c_.facts[static_cast<size_t>(op->operands[1 - tile])].constant;
    auto a = of(tile);
    if (!by || !a) continue;
    for (int64_t& s : a->strides) s *= *by;
    const int64_t power = layout::power_of_two_in(*by);
    a->divisor = power > layout::kMaxDivisor / a->divisor ? layout::kMaxDivisor : a->divisor * power;
    return a;
  }
  return std::nullopt;
}

bool Accesses::covers_whole_tiles(tile::ValueId offset) const {
  auto a = affine(offset);
  const auto& shape = kernel_.type(offset).shape;
  int64_t stride = 1;
  for (size_t i = shape.size(); a && i-- > 0; stride *= shape[i])
    if (shape[i] > 1 && a->strides[i] != stride) return false;
  return a && a->divisor % stride == 0;
}

void Accesses::order(GlobalAccess::Kind kind, const tile::Op& op) {
  if (scratch_.contains(op.operands[0])) touched_scratch_.insert(op.operands[0]);
  GlobalAccess access{kind, op.operands[0], op.operands[1], false, {}};
  if (kernel_.type(op.operands[1]).is_tile()) {
    access.tile = true;
    access.layout = layouts_[op.operands[1]];
    access.whole = scratch_.count(op.operands[0]) > 0 && covers_whole_tiles(op.operands[1]);
  }
  if (c_.hazards.conflicts(access)) shared_.barrier();
  c_.hazards.touch(std::move(access));
}

llvm::Value* Accesses::address(tile::ValueId pointer, Value* offset) {
  DType dtype = kernel_.type(pointer).dtype;
  if (auto it = scratch_.find(pointer); it != scratch_.end()) {
    auto* bytes = b_.CreateMul(b_.CreateSExtOrTrunc(offset, b_.getInt32Ty()),
                               b_.getInt32(static_cast<uint32_t>(element_bytes(dtype))));
    return b_.CreateAdd(bytes, b_.getInt32(static_cast<uint32_t>(it->second)));
  }
  return b_.CreateGEP(math_.memory_type(dtype), scalar(pointer), b_.CreateSExt(offset, b_.getInt64Ty()));
}

Parts Accesses::parts(const Registers& masks, int width) {
  Parts p;
  for (size_t r = 0; r < masks.size(); r += static_cast<size_t>(width)) {
    size_t last = r + static_cast<size_t>(width) - 1;
    auto *all = b_.CreateAnd(masks[r], masks[last]), *any = masks[r]; // a mask is true for an interval of elements
    for (size_t i = r + 1; i <= last; ++i) any = b_.CreateOr(any, masks[i]);
    auto* rest = b_.CreateAnd(any, b_.CreateNot(all));
    p.rest = p.rest ? b_.CreateOr(p.rest, rest) : rest;
    p.whole.push_back(all);
    p.cut.push_back(rest);
  }
  return p;
}
llvm::BasicBlock* Accesses::rest_of(const Parts& parts, const std::function<void()>& body) {
  auto* rest = llvm::BasicBlock::Create(b_.getContext(), "rest", c_.function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", c_.function);
  b_.CreateCondBr(parts.rest, rest, after, llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(rest);
  body();
  auto* end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  return end;
}

// Partial accesses load to separate registers, selected afterwards, so that full accesses do not wait for them and all
// loads are in flight together.
void Accesses::load_rest(const tile::Op& op, const Parts& parts, int width, Groups& groups) {
  const auto pointer = op.operands[0];
  const DType dtype = kernel_.type(pointer).dtype;
  const auto n = groups.size() * static_cast<size_t>(width);
  const auto offsets = registers(op.operands[1], n);
  Registers masks, others;
  if (op.operands.size() > 2) masks = registers(op.operands[2], n);
  if (op.operands.size() > 3) others = registers(op.operands[3], n);
  int one = 0;
  auto* single = words_.type(dtype, 1, &one);
  auto* before = b_.GetInsertBlock();
  auto rest = groups;
  auto* from = rest_of(parts, [&] {
    std::vector<Registers> found(rest.size()); // loaded elements; empty for full accesses
    for (size_t g = 0, r = 0; g < rest.size(); ++g)
      for (int i = 0; i < width; ++i, ++r) {
        auto* predicate = both(b_, masks.empty() ? nullptr : masks[r], b_.CreateNot(parts.whole[g]));
        if (is_never(predicate)) continue;
        if (found[g].empty()) {
          const auto begin = static_cast<std::ptrdiff_t>(r) - i;
          found[g].assign(static_cast<size_t>(width), llvm::Constant::getNullValue(math_.element_type(dtype)));
          if (!others.empty()) std::copy_n(others.begin() + begin, width, found[g].begin());
        }
        auto*& e = found[g][static_cast<size_t>(i)];
        const auto loaded =
            gpu_.load_global(address(pointer, offsets[r]), single, 1, predicate,
                             words_.pack(std::span<Value* const>(&e, 1), dtype), stability_of(pointer), op.caching);
        e = words_.unpack(loaded, dtype, 1)[0];
      }
    for (size_t g = 0; g < rest.size(); ++g) {
      if (found[g].empty()) continue;
      const auto words = words_.pack(found[g], dtype);
      for (size_t w = 0; w < words.size(); ++w) rest[g][w] = b_.CreateSelect(parts.whole[g], groups[g][w], words[w]);
    }
  });
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t w = 0; w < groups[g].size(); ++w) {
      if (rest[g][w] == groups[g][w]) continue;
      auto* phi = b_.CreatePHI(groups[g][w]->getType(), 2);
      phi->addIncoming(groups[g][w], before);
      phi->addIncoming(rest[g][w], from);
      groups[g][w] = phi;
    }
}

Stability Accesses::stability_of(tile::ValueId pointer) const {
  for (const auto& p : kernel_.params)
    if (p.value == pointer && p.invariant) return Stability::Invariant;
  return Stability::Varying;
}

llvm::Value* Accesses::acts_for(tile::ValueId offset) {
  if (!kernel_.type(offset).is_tile()) return positions_.acts_for_copies(~0u, ~0u);
  const auto& l = layouts_[offset];
  return positions_.acts_for_copies(l.free_mask(layout::Dim::Lane), l.free_mask(layout::Dim::Warp));
}

} // namespace tessera::gpu
