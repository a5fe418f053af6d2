#include "base/check.h"
#include "codegen/llvm/emit.h"
#include <llvm/IR/Intrinsics.h>

namespace tessera::host {

using llvm::FixedVectorType;

int Emitter::lanes(const tile::Type& type) const { return static_cast<int>(std::min<int64_t>(type.count(), width_)); }
int Emitter::part_count(const tile::Type& type) const { return static_cast<int>((type.count() + width_ - 1) / width_); }

llvm::Type* Emitter::part_type(const tile::Type& type) {
  auto* e = element_type(type.dtype);
  return type.is_tile() ? static_cast<llvm::Type*>(FixedVectorType::get(e, static_cast<unsigned>(lanes(type)))) : e;
}

std::vector<llvm::Value*> Emitter::prefix_parts(Value* count, const tile::Type& type) {
  std::vector<Value*> out;
  int w = lanes(type);
  for (int p = 0; p < part_count(type); ++p) {
    auto* left = b_.CreateSub(count, b_.getInt64(static_cast<uint64_t>(p) * static_cast<uint64_t>(w)));
    left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, b_.getInt64(0));
    left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(static_cast<uint64_t>(w)));
    // Compared as bytes if one instruction makes a mask register of it. The integer with the low `left` bits set is not
    // used: LLVM 19's DAG combiner does not terminate on some logic of masks that are bitcasts.
    auto* number = target_.vector_bytes == 64 ? b_.getInt8Ty() : b_.getInt32Ty();
    std::vector<llvm::Constant*> c;
    for (int i = 0; i < w; ++i) c.push_back(llvm::ConstantInt::get(number, static_cast<uint64_t>(i)));
    out.push_back(b_.CreateICmpSLT(llvm::ConstantVector::get(c),
                                   b_.CreateVectorSplat(static_cast<unsigned>(w), b_.CreateTrunc(left, number))));
  }
  return out;
}

Emitter::Steps Emitter::steps_of(const Val& v) {
  if (!v.base) return {};
  const int w = lanes(v.type);
  if (!v.rows) return {v.stride, b_.CreateMul(v.stride, b_.getInt64(static_cast<uint64_t>(w)))};
  if (v.type.shape.back() == w) return {v.stride, v.rows};
  if (v.type.shape.back() == 1) return {v.rows, b_.CreateMul(v.rows, b_.getInt64(static_cast<uint64_t>(w)))};
  return {};
}

// Recursive transpose: exchanges off-diagonal halves of squares, of half the size each time.
std::vector<llvm::Value*> Emitter::transposed(std::vector<Value*> parts) {
  const int w = static_cast<int>(parts.size());
  for (int d = 1; d < w; d *= 2) {
    std::vector<int> low, high;
    for (int k = 0; k < w; ++k) {
      low.push_back((k & d) != 0 ? w + k - d : k);
      high.push_back((k & d) != 0 ? w + k : k + d);
    }
    for (int i = 0; i < w; ++i) {
      if ((i & d) != 0) continue;
      auto *a = parts[static_cast<size_t>(i)], *b = parts[static_cast<size_t>(i + d)];
      parts[static_cast<size_t>(i)] = b_.CreateShuffleVector(a, b, low);
      parts[static_cast<size_t>(i + d)] = b_.CreateShuffleVector(a, b, high);
    }
  }
  return parts;
}

std::vector<llvm::Value*> Emitter::parts(tile::ValueId id) {
  auto& v = values_[static_cast<size_t>(id)];
  if (!v.parts.empty()) return v.parts;
  int w = lanes(v.type), n = part_count(v.type);
  // Vectors of a form are made at each use and not cached: the builder may be in a nested block that does not dominate
  // later uses. LLVM merges equal expressions.
  std::vector<Value*> made;
  if (v.splat) {
    if (!v.type.is_tile())
      made = {v.splat};
    else
      made.assign(static_cast<size_t>(n), b_.CreateVectorSplat(static_cast<unsigned>(w), v.splat));
  } else if (v.base) {
    auto splat = [&](Value* x) { return b_.CreateVectorSplat(static_cast<unsigned>(w), x); };
    const int columns = v.rows ? v.type.shape.back() : 0; // 0: all elements are one row
    for (int p = 0; p < n; ++p) {
      std::vector<llvm::Constant*> row, column;
      for (int l = p * w; l < (p + 1) * w; ++l) {
        row.push_back(b_.getInt64(columns ? static_cast<uint64_t>(l / columns) : 0));
        column.push_back(b_.getInt64(static_cast<uint64_t>(columns ? l % columns : l)));
      }
      Value* x = b_.CreateAdd(splat(v.base), b_.CreateMul(splat(v.stride), llvm::ConstantVector::get(column)));
      if (v.rows) x = b_.CreateAdd(x, b_.CreateMul(splat(v.rows), llvm::ConstantVector::get(row)));
      made.push_back(x);
    }
  } else if (v.prefix) {
    made = prefix_parts(v.prefix, v.type);
  } else {
    TESSERA_UNREACHABLE("tile value read before it is defined in kernel " + kernel_.name);
  }
  return made;
}

std::vector<llvm::Value*> Emitter::tile_parts(tile::ValueId id, int count, int lanes) {
  if (auto* s = splat_of(id))
    return std::vector<Value*>(static_cast<size_t>(count), b_.CreateVectorSplat(static_cast<unsigned>(lanes), s));
  return parts(id);
}

llvm::Value* Emitter::scalar(tile::ValueId id) {
  auto& v = values_[static_cast<size_t>(id)];
  TESSERA_CHECK(v.splat != nullptr, "scalar expected in kernel " + kernel_.name);
  return v.splat;
}
llvm::Value* Emitter::splat_of(tile::ValueId id) { return values_[static_cast<size_t>(id)].splat; }

void Emitter::define(tile::ValueId id, std::vector<Value*> parts) {
  auto& v = values_[static_cast<size_t>(id)];
  if (!v.type.is_tile())
    v.splat = parts[0];
  else
    v.parts = std::move(parts);
}
void Emitter::define_scalar(tile::ValueId id, Value* value) { values_[static_cast<size_t>(id)].splat = value; }

llvm::Value* Emitter::any(const std::vector<Value*>& mask) {
  Value* all = nullptr;
  for (auto* m : mask) {
    if (!m->getType()->isVectorTy()) return m;
    all = all ? b_.CreateOr(all, m) : m;
  }
  return b_.CreateOrReduce(all);
}
llvm::Value* Emitter::any_of(tile::ValueId mask) {
  auto& v = values_[static_cast<size_t>(mask)];
  if (v.splat) return v.splat;
  if (v.prefix) return b_.CreateICmpSGT(v.prefix, b_.getInt64(0));
  return any(parts(mask));
}

} // namespace tessera::host
