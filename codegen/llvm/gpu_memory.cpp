// Loads, stores, atomics and scratch. Neighbours that layouts allow to move at once travel as words of up to 16 bytes.
#include "codegen/llvm/gpu_emit.h"
#include "graph/support/check.h"
#include <llvm/IR/MDBuilder.h>

namespace tessera::gpu {

using tile::OpKind;

llvm::Type* Emitter::word_type(DType dtype, int elements, int* count) {
  int bytes = element_bytes(dtype) * elements;
  int word = element_bytes(dtype) == 8 ? 8 : std::min(bytes, 4);
  *count = bytes / word;
  return b_.getIntNTy(static_cast<unsigned>(word) * 8);
}

std::vector<llvm::Value*> Emitter::to_words(std::span<Value* const> elements, DType dtype) {
  int count = 0;
  auto* word = word_type(dtype, static_cast<int>(elements.size()), &count);
  auto bits = static_cast<unsigned>(element_bytes(dtype)) * 8;
  auto* element = b_.getIntNTy(bits);
  size_t each = elements.size() / static_cast<size_t>(count);
  std::vector<Value*> words;
  for (size_t w = 0; w < static_cast<size_t>(count); ++w) {
    Value* sum = nullptr;
    for (size_t e = 0; e < each; ++e) {
      Value* v = elements[w * each + e];
      v = dtype == DType::Bool ? b_.CreateZExt(v, element) : b_.CreateBitCast(v, element);
      v = b_.CreateZExt(v, word);
      if (e > 0) v = b_.CreateShl(v, static_cast<uint64_t>(e) * bits);
      sum = sum ? disjoint_or(sum, v) : v;
    }
    words.push_back(sum);
  }
  return words;
}

Emitter::Registers Emitter::from_words(std::span<Value* const> words, DType dtype, int elements) {
  auto bits = static_cast<unsigned>(element_bytes(dtype)) * 8;
  auto* whole = b_.getIntNTy(bits);
  size_t each = static_cast<size_t>(elements) / words.size();
  Registers out;
  for (auto* w : words)
    for (size_t e = 0; e < each; ++e) {
      Value* v = b_.CreateTrunc(e > 0 ? b_.CreateLShr(w, static_cast<uint64_t>(e) * bits) : w, whole);
      out.push_back(dtype == DType::Bool ? b_.CreateICmpNE(v, integer_like(v, 0))
                                         : b_.CreateBitCast(v, element_type(dtype)));
    }
  return out;
}

void Emitter::store_shared_elements(Value* offset, std::span<Value* const> elements, DType dtype, Value* predicate) {
  gpu_->store_shared(offset, to_words(elements, dtype), predicate);
}
Emitter::Registers Emitter::load_shared_elements(Value* offset, DType dtype, int elements) {
  int count = 0;
  auto* word = word_type(dtype, elements, &count);
  return from_words(gpu_->load_shared(offset, word, count), dtype, elements);
}

// A tile of numbers as a sum of ranges times constants, one along each dimension, and a scalar: the constants, and what
// divides the scalar. Nothing where it is no such sum, as far as can be seen.
std::optional<Emitter::Affine> Emitter::affine(tile::ValueId id) const {
  const auto& type = kernel_.type(id);
  if (!type.is_tile()) return Affine{{}, facts_[static_cast<size_t>(id)].divisor()};
  const auto* op = definitions_[static_cast<size_t>(id)];
  if (!op) return std::nullopt;
  auto of = [&](size_t operand) -> std::optional<Affine> {
    auto a = affine(op->operands[operand]);
    if (a && a->strides.empty()) a->strides.assign(type.shape.size(), 0);
    return a;
  };
  switch (op->kind) {
  case OpKind::Range: return Affine{{1}, layout::kMaxDivisor};
  case OpKind::Const:
    return Affine{std::vector<int64_t>(type.shape.size(), 0), op->i == 0 ? layout::kMaxDivisor : op->i & -op->i};
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
    auto by = facts_[static_cast<size_t>(op->operands[1 - tile])].constant;
    auto a = of(tile);
    if (!by || !a) continue;
    for (int64_t& s : a->strides) s *= *by;
    if (*by == 0) return Affine{a->strides, layout::kMaxDivisor};
    a->divisor = std::min(layout::kMaxDivisor, a->divisor * (*by & -*by));
    return a;
  }
  return std::nullopt;
}

bool Emitter::covers_whole_tiles(tile::ValueId offset) const {
  auto a = affine(offset);
  const auto& shape = kernel_.type(offset).shape;
  int64_t stride = 1;
  for (size_t i = shape.size(); a && i-- > 0; stride *= shape[i])
    if (shape[i] > 1 && a->strides[i] != stride) return false;
  return a && a->divisor % stride == 0;
}

void Emitter::order(GlobalAccess::Kind kind, const tile::Op& op) {
  if (scratch_.contains(op.operands[0])) touched_scratch_.insert(op.operands[0]);
  GlobalAccess access{kind, op.operands[0], op.operands[1], false, {}};
  if (kernel_.type(op.operands[1]).is_tile()) {
    access.tile = true;
    access.layout = layouts_[op.operands[1]];
    access.whole = scratch_.count(op.operands[0]) > 0 && covers_whole_tiles(op.operands[1]);
  }
  if (hazards_.conflicts(access)) barrier();
  hazards_.touch(std::move(access));
}

llvm::Value* Emitter::address(tile::ValueId pointer, Value* offset) {
  DType dtype = kernel_.type(pointer).dtype;
  if (auto it = scratch_.find(pointer); it != scratch_.end()) {
    auto* bytes = b_.CreateMul(b_.CreateSExtOrTrunc(offset, b_.getInt32Ty()),
                               b_.getInt32(static_cast<uint32_t>(element_bytes(dtype))));
    return b_.CreateAdd(bytes, b_.getInt32(static_cast<uint32_t>(it->second)));
  }
  return b_.CreateGEP(memory_type(dtype), scalar(pointer), b_.CreateSExt(offset, b_.getInt64Ty()));
}

Emitter::Parts Emitter::parts(const Registers& masks, int width) {
  Parts p;
  for (size_t r = 0; r < masks.size(); r += static_cast<size_t>(width)) {
    size_t last = r + static_cast<size_t>(width) - 1;
    auto *all = b_.CreateAnd(masks[r], masks[last]), *any = masks[r]; // it holds for an interval
    for (size_t i = r + 1; i <= last; ++i) any = b_.CreateOr(any, masks[i]);
    auto* rest = b_.CreateAnd(any, b_.CreateNot(all));
    p.rest = p.rest ? b_.CreateOr(p.rest, rest) : rest;
    p.whole.push_back(all);
    p.cut.push_back(rest);
  }
  return p;
}
llvm::BasicBlock* Emitter::rest_of(const Parts& parts, const std::function<void()>& body) {
  auto* rest = llvm::BasicBlock::Create(ctx_, "rest", fn_);
  auto* after = llvm::BasicBlock::Create(ctx_, "after", fn_);
  b_.CreateCondBr(parts.rest, rest, after, llvm::MDBuilder(ctx_).createUnlikelyBranchWeights());
  b_.SetInsertPoint(rest);
  body();
  auto* end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  return end;
}

// Into registers of their own, chosen from afterwards: nothing waits for the whole accesses, so that the row's ends are
// under way with all the rest.
void Emitter::load_rest(const tile::Op& op, const Parts& parts, int width, Groups& groups) {
  const auto pointer = op.operands[0];
  const DType dtype = kernel_.type(pointer).dtype;
  const auto n = groups.size() * static_cast<size_t>(width);
  const auto offsets = registers(op.operands[1], n);
  Registers masks, others;
  if (op.operands.size() > 2) masks = registers(op.operands[2], n);
  if (op.operands.size() > 3) others = registers(op.operands[3], n);
  int one = 0;
  auto* single = word_type(dtype, 1, &one);
  auto* before = b_.GetInsertBlock();
  auto rest = groups;
  auto* from = rest_of(parts, [&] {
    std::vector<Registers> found(rest.size()); // elements, where there are some to load
    for (size_t g = 0, r = 0; g < rest.size(); ++g)
      for (int i = 0; i < width; ++i, ++r) {
        auto* predicate = both(masks.empty() ? nullptr : masks[r], b_.CreateNot(parts.whole[g]));
        if (is_never(predicate)) continue;
        if (found[g].empty()) {
          const auto begin = static_cast<std::ptrdiff_t>(r) - i;
          found[g].assign(static_cast<size_t>(width), llvm::Constant::getNullValue(element_type(dtype)));
          if (!others.empty()) std::copy_n(others.begin() + begin, width, found[g].begin());
        }
        auto*& e = found[g][static_cast<size_t>(i)];
        const auto loaded =
            gpu_->load_global(address(pointer, offsets[r]), single, 1, predicate,
                              to_words(std::span<Value* const>(&e, 1), dtype), stability_of(pointer), op.caching);
        e = from_words(loaded, dtype, 1)[0];
      }
    for (size_t g = 0; g < rest.size(); ++g) {
      if (found[g].empty()) continue;
      const auto words = to_words(found[g], dtype);
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

Stability Emitter::stability_of(tile::ValueId pointer) const {
  for (const auto& p : kernel_.params)
    if (p.value == pointer && p.invariant) return Stability::Invariant;
  return Stability::Varying;
}

Status Emitter::load(tile::OpId id) {
  if (layouts_.windows[static_cast<size_t>(id)].width > 0) return load_windows(id);
  const auto& op = kernel_.op(id);
  auto pointer = op.operands[0], result = op.results[0];
  DType dtype = kernel_.type(result).dtype;
  size_t n = register_count(result);
  int width = layouts_.access_width[static_cast<size_t>(id)], count = 0;
  auto* word = word_type(dtype, width, &count);
  auto offsets = registers(op.operands[1], n);
  Registers masks, others, out;
  if (op.operands.size() > 2) masks = registers(op.operands[2], n);
  if (op.operands.size() > 3) others = registers(op.operands[3], n);
  bool shared = scratch_.count(pointer) > 0;
  auto stability = stability_of(pointer);
  order(GlobalAccess::Kind::Read, op);
  const bool splits = layouts_.splits[static_cast<size_t>(id)];
  Parts part;
  if (splits) part = parts(masks, width);
  Groups groups; // words, by access
  for (size_t r = 0; r < n; r += static_cast<size_t>(width)) {
    Value* predicate = masks.empty() ? nullptr : splits ? part.whole[groups.size()] : masks[r];
    std::vector<Value*> other;
    if (!others.empty()) other = to_words(std::span<Value* const>(&others[r], static_cast<size_t>(width)), dtype);
    std::vector<Value*> words;
    if (is_never(predicate)) {
      words =
          other.empty() ? std::vector<Value*>(static_cast<size_t>(count), llvm::Constant::getNullValue(word)) : other;
    } else if (shared) {
      Value* offset = offsets[r];
      if (predicate) offset = b_.CreateSelect(predicate, offset, integer_like(offset, 0));
      words = gpu_->load_shared(address(pointer, offset), word, count);
      for (size_t w = 0; predicate && w < words.size(); ++w)
        words[w] = b_.CreateSelect(predicate, words[w], other.empty() ? integer_like(words[w], 0) : other[w]);
    } else {
      words = gpu_->load_global(address(pointer, offsets[r]), word, count, predicate, other, stability, op.caching);
    }
    groups.push_back(std::move(words));
  }
  if (splits) load_rest(op, part, width, groups);
  for (const auto& words : groups)
    for (auto* v : from_words(words, dtype, width)) out.push_back(v);
  for (size_t r = 0; others.empty() && r < masks.size(); ++r) // what is never read is a constant to what is made of it
    if (is_never(masks[r])) out[r] = llvm::Constant::getNullValue(out[r]->getType());
  define(result, std::move(out));
  return {};
}

llvm::Value* Emitter::acts_for(tile::ValueId offset) {
  if (!kernel_.type(offset).is_tile()) return acts_for_copies(~0u, ~0u);
  const auto& l = layouts_[offset];
  return acts_for_copies(l.free_mask(layout::Dim::Lane), l.free_mask(layout::Dim::Warp));
}

Status Emitter::store(tile::OpId id) {
  const auto& op = kernel_.op(id);
  auto pointer = op.operands[0], offset = op.operands[1];
  DType dtype = kernel_.type(pointer).dtype;
  size_t n = register_count(offset);
  int width = layouts_.access_width[static_cast<size_t>(id)];
  auto offsets = registers(offset, n), values = registers(op.operands[2], n);
  Registers masks;
  if (op.operands.size() > 3) masks = registers(op.operands[3], n);
  auto streaming = kernel_.config.find("streaming");
  const bool streams = streaming != kernel_.config.end() && streaming->second != 0;
  order(GlobalAccess::Kind::Write, op);
  auto* acts = acts_for(offset);
  const bool splits = layouts_.splits[static_cast<size_t>(id)];
  Parts part;
  if (splits) part = parts(masks, width);
  for (size_t r = 0; r < n; r += static_cast<size_t>(width)) {
    Value* mask = masks.empty() ? nullptr : splits ? part.whole[r / static_cast<size_t>(width)] : masks[r];
    Value* predicate = both(mask, acts);
    if (predicate && is_never(predicate)) continue;
    auto words = to_words(std::span<Value* const>(&values[r], static_cast<size_t>(width)), dtype);
    auto* at = address(pointer, offsets[r]);
    if (scratch_.count(pointer))
      gpu_->store_shared(at, words, predicate);
    else
      gpu_->store_global(at, words, predicate, streams);
  }
  if (splits)
    rest_of(part, [&] {
      for (size_t r = 0; r < n; ++r) {
        auto* mask = b_.CreateAnd(masks[r], b_.CreateNot(part.whole[r / static_cast<size_t>(width)]));
        if (is_never(mask)) continue;
        gpu_->store_global(address(pointer, offsets[r]), to_words(std::span<Value* const>(&values[r], 1), dtype),
                           both(mask, acts), streams);
      }
    });
  return {};
}

Status Emitter::atomic_add(const tile::Op& op) {
  auto pointer = op.operands[0], offset = op.operands[1];
  DType dtype = kernel_.type(pointer).dtype;
  if (info(dtype).bits < 32) return error("atomic add on " + std::string(name(dtype)));
  if (scratch_.count(pointer)) return error("atomic add to scratch");
  size_t n = register_count(offset);
  auto offsets = registers(offset, n), values = registers(op.operands[2], n);
  Registers masks;
  if (op.operands.size() > 3) masks = registers(op.operands[3], n);
  order(GlobalAccess::Kind::Atomic, op);
  auto* acts = acts_for(offset);
  for (size_t r = 0; r < n; ++r)
    gpu_->atomic_add(address(pointer, offsets[r]), values[r], both(masks.empty() ? nullptr : masks[r], acts));
  return {};
}

void Emitter::report_index(const tile::Op& op) {
  Value* bad = nullptr;
  for (auto* v : registers(op.operands[0])) bad = bad ? b_.CreateOr(bad, v) : v;
  gpu_->report(error_, op.site, bad);
}

void Emitter::prefetch(const tile::Op& op) {
  if (scratch_.count(op.operands[0])) return;
  auto* acts = acts_for(op.operands[1]);
  for (auto* offset : registers(op.operands[1])) gpu_->prefetch(address(op.operands[0], offset), acts);
}

// Memory of a program that several of its threads share: shared memory, so only little of it and of a known size.
Status Emitter::reserve_scratch() {
  std::map<tile::ValueId, int64_t> constants;
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id)
    if (const auto& op = kernel_.op(id); op.kind == OpKind::Const && !op.results.empty())
      constants[op.results[0]] = op.i;
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id) {
    const auto& op = kernel_.op(id);
    if (op.kind != OpKind::Scratch || op.results.empty()) continue;
    auto count = constants.find(op.operands[0]);
    if (count == constants.end()) return error("scratch of a size that only the run knows");
    auto at = hazards_.reserve_scratch(count->second * element_bytes(kernel_.type(op.results[0]).dtype));
    if (!at)
      return error("scratch beyond the " + std::to_string(Hazards::kMostShared) + " bytes of a block's shared memory");
    scratch_[op.results[0]] = *at;
  }
  return {};
}

} // namespace tessera::gpu
