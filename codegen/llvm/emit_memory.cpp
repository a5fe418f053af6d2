// Loads and stores: scalar, contiguous, masked, gather and scatter, by the form of the offset.
#include "base/check.h"
#include "codegen/llvm/emit.h"
#include "codegen/tile/cooperation.h"
#include <algorithm>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>
#include <numeric>

namespace tessera::host {

using llvm::FixedVectorType;

llvm::Value* Emitter::address(tile::ValueId pointer, Value* offset) {
  return b_.CreateGEP(memory_type(kernel_.type(pointer).dtype), scalar(pointer), offset);
}

// Address of part p of a contiguous access; `start`: address of part 0.
llvm::Value* Emitter::part_address(tile::ValueId pointer, Value* start, const Val& offset, int p) {
  if (p == 0) return start;
  auto* memory = memory_type(kernel_.type(pointer).dtype);
  const auto steps = static_cast<uint64_t>(p);
  if (!offset.rows) return b_.CreateConstGEP1_64(memory, start, steps * static_cast<uint64_t>(lanes(offset.type)));
  return b_.CreateGEP(memory, start, b_.CreateMul(steps_of(offset).part, b_.getInt64(steps)));
}

llvm::Value* Emitter::guarded_address(Value* address, Value* condition) {
  return b_.CreateSelect(condition, address, dummy_);
}

// Masked accesses of vectors shorter than a register of 16 bytes are made with vectors of that length. LLVM 19 widens them
// itself, but may compute the mask by a comparison of more lanes and leaves what is behind the vector's lanes as it falls.
// The lanes of the longer vector are null, those of its mask false: by integers, which that comparison is not seen through.
namespace {
constexpr unsigned kRegisterBits = 128;

unsigned register_lanes(const llvm::Type* vector) {
  const auto* type = llvm::cast<FixedVectorType>(vector);
  const unsigned bits = type->getScalarSizeInBits(), lanes = type->getNumElements();
  return bits > 0 && bits < kRegisterBits ? std::max(lanes, kRegisterBits / bits) : lanes;
}
llvm::Value* lengthened(llvm::IRBuilder<>& b, llvm::Value* vector, unsigned lanes) {
  const unsigned own = llvm::cast<FixedVectorType>(vector->getType())->getNumElements();
  std::vector<int> from(lanes);
  for (unsigned l = 0; l < lanes; ++l) from[l] = static_cast<int>(std::min(l, own)); // the first of the null vector
  return b.CreateShuffleVector(vector, llvm::Constant::getNullValue(vector->getType()), from);
}
llvm::Value* lengthened_mask(llvm::IRBuilder<>& b, llvm::Value* mask, unsigned lanes) {
  const unsigned own = llvm::cast<FixedVectorType>(mask->getType())->getNumElements();
  llvm::Value* bits = b.CreateZExt(b.CreateBitCast(mask, b.getIntNTy(own)), b.getIntNTy(lanes));
  return b.CreateBitCast(bits, FixedVectorType::get(b.getInt1Ty(), lanes));
}
} // namespace

llvm::Value* Emitter::masked_load(llvm::Type* part, Value* at, llvm::Align align, Value* mask, Value* other) {
  const unsigned own = llvm::cast<FixedVectorType>(part)->getNumElements(), lanes = register_lanes(part);
  if (lanes == own) return b_.CreateMaskedLoad(part, at, align, mask, other);
  auto* longer = FixedVectorType::get(part->getScalarType(), lanes);
  Value* all = b_.CreateMaskedLoad(longer, at, align, lengthened_mask(b_, mask, lanes), lengthened(b_, other, lanes));
  std::vector<int> first(own);
  std::iota(first.begin(), first.end(), 0);
  return b_.CreateShuffleVector(all, first);
}

void Emitter::masked_store(Value* value, Value* at, llvm::Align align, Value* mask) {
  const unsigned lanes = register_lanes(value->getType());
  if (lanes == llvm::cast<FixedVectorType>(value->getType())->getNumElements())
    b_.CreateMaskedStore(value, at, align, mask);
  else
    b_.CreateMaskedStore(lengthened(b_, value, lanes), at, align, lengthened_mask(b_, mask, lanes));
}

static bool is_constant(llvm::Value* v, int64_t value) {
  auto* c = llvm::dyn_cast_or_null<llvm::ConstantInt>(v);
  return c && c->getSExtValue() == value;
}

Status Emitter::load(const tile::Op& op) {
  auto pointer = op.operands[0], offset = op.operands[1];
  tile::ValueId mask = op.operands.size() > 2 ? op.operands[2] : -1;
  tile::ValueId other = op.operands.size() > 3 ? op.operands[3] : -1;
  const auto& rt = kernel_.type(op.results[0]);
  auto* memory = memory_type(rt.dtype);
  if (!memory) return error("load of " + std::string(name(rt.dtype)));
  auto align = llvm::Align(static_cast<uint64_t>(std::max(1, info(rt.dtype).bits / 8)));
  bool boolean = rt.dtype == DType::Bool;
  auto to_register = [&](Value* v) { return boolean ? b_.CreateICmpNE(v, integer_like(v, 0)) : v; };
  auto& off = values_[static_cast<size_t>(offset)];
  bool masked = mask >= 0;

  // One address for all lanes: a scalar load.
  const Steps steps = steps_of(off);
  const bool still = is_constant(off.stride, 0) && (!off.rows || is_constant(off.rows, 0));
  Value* uniform = off.splat ? off.splat : still ? off.base : nullptr;
  if (uniform && (!masked || splat_of(mask) || rt.is_tile())) {
    auto* at = address(pointer, uniform);
    Value* v = nullptr;
    if (!masked) {
      define_scalar(op.results[0], to_register(b_.CreateAlignedLoad(memory, at, align)));
      return {};
    }
    auto* some = any_of(mask);
    v = to_register(b_.CreateAlignedLoad(memory, guarded_address(at, some), align));
    if (auto* m = splat_of(mask)) {
      Value* fallback = other >= 0 ? splat_of(other) : llvm::Constant::getNullValue(v->getType());
      if (fallback) {
        define_scalar(op.results[0], b_.CreateSelect(m, v, fallback));
        return {};
      }
    }
    std::vector<Value*> out, masks = tile_parts(mask, part_count(rt), lanes(rt)), others;
    if (other >= 0) others = tile_parts(other, part_count(rt), lanes(rt));
    for (size_t p = 0; p < masks.size(); ++p) {
      auto* wide = b_.CreateVectorSplat(static_cast<unsigned>(lanes(rt)), v);
      Value* o = other >= 0 ? others[p] : llvm::Constant::getNullValue(wide->getType());
      out.push_back(b_.CreateSelect(masks[p], wide, o));
    }
    define(op.results[0], std::move(out));
    return {};
  }
  TESSERA_CHECK(rt.is_tile(), "scalar load at a tile of offsets in kernel " + kernel_.name);

  int w = lanes(rt), n = part_count(rt);
  auto* part = FixedVectorType::get(memory, static_cast<unsigned>(w));
  std::vector<Value*> masks, others, out;
  if (masked) masks = tile_parts(mask, n, w);
  if (other >= 0) others = tile_parts(other, n, w);
  auto fallback = [&](int p) -> Value* {
    if (other < 0) return llvm::Constant::getNullValue(part);
    Value* o = others[static_cast<size_t>(p)];
    return boolean ? b_.CreateZExt(o, part) : o;
  };
  if (is_constant(steps.lane, 1)) {
    // Where a condition leaves out all of the tile, its address may be anything: the processor would go through the
    // fault that the masked lanes suppress, which takes a microsecond.
    auto* start = address(pointer, off.base);
    if (auto* all = masked ? splat_of(mask) : nullptr) start = guarded_address(start, all);
    for (int p = 0; p < n; ++p) {
      auto* at = part_address(pointer, start, off, p);
      Value* v = masked ? masked_load(part, at, align, masks[static_cast<size_t>(p)], fallback(p))
                        : b_.CreateAlignedLoad(part, at, align);
      out.push_back(to_register(v));
    }
  } else if (!masked && n == w && n > 1 && is_constant(steps.part, 1)) {
    // A square tile with contiguous columns: load columns, then transpose.
    std::vector<Value*> columns;
    for (int l = 0; l < w; ++l) {
      auto* step = b_.CreateMul(steps.lane, b_.getInt64(static_cast<uint64_t>(l)));
      columns.push_back(b_.CreateAlignedLoad(part, address(pointer, b_.CreateAdd(off.base, step)), align));
    }
    for (auto* v : transposed(std::move(columns))) out.push_back(to_register(v));
  } else if (steps.lane && !masked) {
    // One scalar load per lane: a gather needs a vector of addresses and is not faster.
    for (int p = 0; p < n; ++p) {
      Value* v = llvm::PoisonValue::get(part);
      for (int l = 0; l < w; ++l) {
        auto* step = b_.CreateAdd(b_.CreateMul(steps.part, b_.getInt64(static_cast<uint64_t>(p))),
                                  b_.CreateMul(steps.lane, b_.getInt64(static_cast<uint64_t>(l))));
        auto* at = address(pointer, b_.CreateAdd(off.base, step));
        v = b_.CreateInsertElement(v, b_.CreateAlignedLoad(memory, at, align), static_cast<uint64_t>(l));
      }
      out.push_back(to_register(v));
    }
  } else {
    auto offsets = parts(offset);
    for (int p = 0; p < n; ++p) {
      auto* at = address(pointer, offsets[static_cast<size_t>(p)]);
      auto* all = llvm::Constant::getAllOnesValue(FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(w)));
      out.push_back(to_register(
          b_.CreateMaskedGather(part, at, align, masked ? masks[static_cast<size_t>(p)] : all, fallback(p))));
    }
  }
  define(op.results[0], std::move(out));
  return {};
}

Status Emitter::store(const tile::Op& op) {
  auto pointer = op.operands[0], offset = op.operands[1], value = op.operands[2];
  tile::ValueId mask = op.operands.size() > 3 ? op.operands[3] : -1;
  DType dtype = kernel_.type(pointer).dtype;
  auto* memory = memory_type(dtype);
  if (!memory) return error("store of " + std::string(name(dtype)));
  auto align = llvm::Align(static_cast<uint64_t>(std::max(1, info(dtype).bits / 8)));
  bool boolean = dtype == DType::Bool;
  auto& off = values_[static_cast<size_t>(offset)];
  const auto& ot = kernel_.type(offset);
  const auto& vt = kernel_.type(value);
  if (!ot.is_tile() && !vt.is_tile()) {
    Value* v = scalar(value);
    if (boolean) v = b_.CreateZExt(v, memory);
    Value* at = address(pointer, scalar(offset));
    if (mask >= 0) at = guarded_address(at, scalar(mask));
    b_.CreateAlignedStore(v, at, align);
    return {};
  }
  tile::Type shape = ot.is_tile() ? ot : vt;
  shape.dtype = dtype;
  int w = lanes(shape), n = part_count(shape);
  std::vector<Value*> values, masks;
  values = tile_parts(value, n, w);
  if (mask >= 0) masks = tile_parts(mask, n, w);
  if (boolean)
    for (auto*& v : values) v = b_.CreateZExt(v, FixedVectorType::get(memory, static_cast<unsigned>(w)));
  const Steps steps = steps_of(off);
  if (n == w && n > 1 && mask < 0 && is_constant(steps.part, 1) &&
      !is_constant(steps.lane, 1)) { // a square tile with contiguous columns
    auto columns = transposed(std::move(values));
    for (int l = 0; l < w; ++l) {
      auto* step = b_.CreateMul(steps.lane, b_.getInt64(static_cast<uint64_t>(l)));
      b_.CreateAlignedStore(columns[static_cast<size_t>(l)], address(pointer, b_.CreateAdd(off.base, step)), align);
    }
    return {};
  }
  if (is_constant(steps.lane, 1)) {
    auto* start = address(pointer, off.base);
    if (auto* all = mask >= 0 ? splat_of(mask) : nullptr) start = guarded_address(start, all);
    for (int p = 0; p < n; ++p) {
      auto* at = part_address(pointer, start, off, p);
      if (mask >= 0)
        masked_store(values[static_cast<size_t>(p)], at, align, masks[static_cast<size_t>(p)]);
      else
        b_.CreateAlignedStore(values[static_cast<size_t>(p)], at, align);
    }
    return {};
  }
  auto offsets = tile_parts(offset, n, w);
  for (int p = 0; p < n; ++p) {
    auto* at = address(pointer, offsets[static_cast<size_t>(p)]);
    b_.CreateMaskedScatter(values[static_cast<size_t>(p)], at, align,
                           mask >= 0 ? masks[static_cast<size_t>(p)] : nullptr);
  }
  return {};
}

// codegen/tile/cooperation.h: writes before the arrival are visible to the last program to arrive.
Status Emitter::arrive(const tile::Op& op) {
  auto *counter = address(op.operands[0], scalar(op.operands[1])), *member = scalar(op.operands[2]);
  auto* others = b_.CreateTrunc(b_.CreateSub(scalar(op.operands[3]), b_.getInt64(1)), b_.getInt32Ty());
  auto* amount = b_.CreateSelect(b_.CreateICmpEQ(member, b_.getInt64(0)),
                                 b_.CreateSub(b_.getInt32(tile::kArrivalPhase), others), b_.getInt32(1));
  auto* before = b_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, counter, amount, llvm::Align(4),
                                    llvm::AtomicOrdering::AcquireRelease);
  auto* low = b_.CreateAnd(b_.CreateAdd(before, amount), b_.getInt32(tile::kArrivalPhase - 1));
  define_scalar(op.results[0], b_.CreateICmpEQ(low, b_.getInt32(0)));
  return {};
}

Status Emitter::atomic(const tile::Op& op) {
  auto pointer = op.operands[0], offset = op.operands[1], value = op.operands[2];
  tile::ValueId mask = op.operands.size() > 3 ? op.operands[3] : -1;
  DType dtype = kernel_.type(pointer).dtype;
  if (dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::Bool)
    return error("atomic update of " + std::string(name(dtype)));
  const auto kind = irgen::atomic_kind(op.reduce, dtype);
  const auto& ot = kernel_.type(offset);
  auto align = llvm::Align(static_cast<uint64_t>(info(dtype).bits / 8));
  auto one = [&](Value* at, Value* v, Value* m) {
    if (m) at = guarded_address(at, m);
    b_.CreateAtomicRMW(kind, at, v, align, llvm::AtomicOrdering::Monotonic);
  };
  if (!ot.is_tile()) {
    one(address(pointer, scalar(offset)), scalar(value), mask >= 0 ? scalar(mask) : nullptr);
    return {};
  }
  int w = lanes(ot), n = part_count(ot);
  auto offsets = parts(offset);
  std::vector<Value*> values = tile_parts(value, n, w), masks;
  if (mask >= 0) masks = tile_parts(mask, n, w);
  for (int p = 0; p < n; ++p)
    for (int l = 0; l < w; ++l) {
      auto lane = static_cast<uint64_t>(l);
      auto q = static_cast<size_t>(p);
      one(address(pointer, b_.CreateExtractElement(offsets[q], lane)), b_.CreateExtractElement(values[q], lane),
          mask >= 0 ? b_.CreateExtractElement(masks[q], lane) : nullptr);
    }
  return {};
}

void Emitter::report_index(const tile::Op& op) {
  auto* bad = any_of(op.operands[0]);
  auto* report = llvm::BasicBlock::Create(ctx_, "bad_index", fn_);
  auto* go_on = llvm::BasicBlock::Create(ctx_, "index_checked", fn_);
  b_.CreateCondBr(bad, report, go_on, llvm::MDBuilder(ctx_).createUnlikelyBranchWeights());
  b_.SetInsertPoint(report);
  const auto& type = kernel_.type(op.operands[0]);
  const int w = type.is_tile() ? lanes(type) : 1, n = type.is_tile() ? part_count(type) : 1;
  std::array<Value*, IndexReport::kWords> found{};
  auto one = [&](Value* is_bad, Value* index, Value* position) {
    const auto words = irgen::report_words(b_, op.site, position, index);
    for (size_t i = 0; i < words.size(); ++i) {
      auto* word = b_.CreateSelect(is_bad, words[i], llvm::Constant::getNullValue(words[i]->getType()));
      found[i] = found[i] ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, found[i], word) : word;
    }
  };
  if (type.is_tile()) {
    const auto is_bad = tile_parts(op.operands[0], n, w), index = tile_parts(op.operands[1], n, w),
               position = tile_parts(op.operands[2], n, w);
    for (size_t p = 0; p < static_cast<size_t>(n); ++p) one(is_bad[p], index[p], position[p]);
  } else {
    one(bad, scalar(op.operands[1]), scalar(op.operands[2]));
  }
  for (size_t i = 0; i < found.size(); ++i)
    b_.CreateAtomicRMW(llvm::AtomicRMWInst::UMax, b_.CreateConstGEP1_64(b_.getInt64Ty(), error_, i),
                       type.is_tile() ? b_.CreateIntMaxReduce(found[i], false) : found[i], llvm::Align(8),
                       llvm::AtomicOrdering::Monotonic);
  b_.CreateBr(go_on);
  b_.SetInsertPoint(go_on);
}

// One prefetch instruction per cache line. Elements that are not contiguous are not prefetched: a line for each would
// cost as much as the loads.
void Emitter::prefetch(const tile::Op& op) {
  constexpr int64_t kLine = 64;
  auto& off = values_[static_cast<size_t>(op.operands[1])];
  const auto& ot = kernel_.type(op.operands[1]);
  Value* base = is_constant(off.stride, 1) && !off.rows ? off.base : !ot.is_tile() ? scalar(op.operands[1]) : nullptr;
  auto* memory = memory_type(kernel_.type(op.operands[0]).dtype);
  if (!base || !memory) return;
  // Not inbounds: an address past the end of the memory is allowed.
  auto* start = b_.CreateGEP(memory, scalar(op.operands[0]), base);
  int64_t bytes = ot.count() * static_cast<int64_t>(module_.getDataLayout().getTypeStoreSize(memory));
  for (int64_t at = 0; at < bytes; at += kLine) {
    auto* line = at == 0 ? start : b_.CreateConstGEP1_64(b_.getInt8Ty(), start, static_cast<uint64_t>(at));
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {line->getType()},
                       {line, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)}); // to read, to the nearest cache, data
  }
}

} // namespace tessera::host
