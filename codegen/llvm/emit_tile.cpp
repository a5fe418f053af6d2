#include "codegen/llvm/emit.h"
#include <array>
#include <llvm/IR/Intrinsics.h>

namespace tessera::host {

using llvm::ConstantInt;
using llvm::FixedVectorType;

// Sums, differences and multiples of affine integer tiles stay symbolic. False: the operation is none of these.
bool Emitter::affine_op(const tile::Op& op) {
  const auto& type = kernel_.type(op.results[0]);
  const size_t rank = type.shape.size();
  if (type.dtype != DType::I64 || (rank != 1 && rank != 2) || op.operands.size() != 2 ||
      kernel_.type(op.operands[0]).dtype != DType::I64)
    return false;
  using Form = std::array<Value*, 3>; // base, and what it grows by along a row and from row to row
  auto form = [&](tile::ValueId id) -> Form {
    auto& v = values_[static_cast<size_t>(id)];
    if (v.splat && kernel_.type(id).dtype == DType::I64) return {v.splat, b_.getInt64(0), b_.getInt64(0)};
    return {v.base, v.stride, v.rows ? v.rows : b_.getInt64(0)};
  };
  auto zero = [](Value* s) {
    auto* n = llvm::dyn_cast<ConstantInt>(s);
    return n && n->isZero();
  };
  auto uniform = [&](const Form& f) { return zero(f[1]) && zero(f[2]); };
  const Form a = form(op.operands[0]), c = form(op.operands[1]);
  if (!a[0] || !c[0]) return false;
  auto& out = values_[static_cast<size_t>(op.results[0])];
  auto each = [&](auto part) {
    out.base = part(0);
    out.stride = part(1);
    if (rank == 2) out.rows = part(2);
    return true;
  };
  if (op.scalar == ScalarOp::Add) return each([&](size_t i) { return b_.CreateAdd(a[i], c[i]); });
  if (op.scalar == ScalarOp::Sub) return each([&](size_t i) { return b_.CreateSub(a[i], c[i]); });
  if (op.scalar == ScalarOp::Mul && uniform(c)) return each([&](size_t i) { return b_.CreateMul(a[i], c[0]); });
  if (op.scalar == ScalarOp::Mul && uniform(a)) return each([&](size_t i) { return b_.CreateMul(c[i], a[0]); });
  return false;
}

// Comparisons of consecutive integers with one number, and conjunctions of such masks, stay the length of a prefix.
// False: the operation is none of these.
bool Emitter::prefix_op(const tile::Op& op) {
  const auto& type = kernel_.type(op.results[0]);
  if (type.dtype != DType::Bool || type.shape.size() != 1 || op.operands.size() != 2) return false;
  const DType dtype = kernel_.type(op.operands[0]).dtype;
  const auto *a = &values_[static_cast<size_t>(op.operands[0])], *c = &values_[static_cast<size_t>(op.operands[1])];
  auto& prefix = values_[static_cast<size_t>(op.results[0])].prefix;
  if (op.scalar == ScalarOp::And && dtype == DType::Bool) {
    if (a->prefix && c->prefix) {
      prefix = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a->prefix, c->prefix);
      return true;
    }
    if (!a->prefix) std::swap(a, c);
    if (!a->prefix || !c->splat) return false;
    prefix = b_.CreateSelect(c->splat, a->prefix, b_.getInt64(0));
    return true;
  }
  const bool or_equal = op.scalar == ScalarOp::Le || op.scalar == ScalarOp::Ge;
  if (op.scalar == ScalarOp::Gt || op.scalar == ScalarOp::Ge)
    std::swap(a, c);
  else if (op.scalar != ScalarOp::Lt && op.scalar != ScalarOp::Le)
    return false;
  auto* step = llvm::dyn_cast_or_null<ConstantInt>(a->stride);
  if (dtype != DType::I64 || !a->base || !step || !step->isOne() || !c->splat) return false;
  prefix = b_.CreateSub(c->splat, a->base);
  if (or_equal) prefix = b_.CreateAdd(prefix, b_.getInt64(1));
  return true;
}

Status Emitter::scalar_op(const tile::Op& op) {
  auto result = op.results[0];
  const auto& rt = kernel_.type(result);
  DType at = kernel_.type(op.operands[op.scalar == ScalarOp::Select ? 1 : 0]).dtype;
  auto& out = values_[static_cast<size_t>(result)];
  // All operands are splats: compute once.
  bool uniform = true;
  for (auto o : op.operands) uniform = uniform && splat_of(o);
  if (uniform) {
    std::vector<Value*> args;
    for (auto o : op.operands) args.push_back(splat_of(o));
    TESSERA_ASSIGN(auto* v, arith(op.scalar, rt.dtype, at, args));
    out.splat = v;
    return {};
  }
  if (affine_op(op) || prefix_op(op)) return {};
  int n = part_count(rt), w = lanes(rt);
  std::vector<std::vector<Value*>> args;
  for (auto o : op.operands) args.push_back(tile_parts(o, n, w));
  std::vector<Value*> result_parts;
  for (int p = 0; p < n; ++p) {
    std::vector<Value*> a;
    for (auto& x : args) a.push_back(x[static_cast<size_t>(p)]);
    TESSERA_ASSIGN(auto* v, arith(op.scalar, rt.dtype, at, a));
    result_parts.push_back(v);
  }
  define(result, std::move(result_parts));
  return {};
}

void Emitter::expand_dims(const tile::Op& op) {
  // Row-major order does not change.
  auto& from = values_[static_cast<size_t>(op.operands[0])];
  auto& to = values_[static_cast<size_t>(op.results[0])];
  if (from.splat) {
    to.splat = from.splat;
  } else if (from.base && from.type.shape.size() == 1) {
    const bool column = op.axis == 1; // [n, 1]
    to.base = from.base;
    to.stride = column ? b_.getInt64(0) : from.stride;
    to.rows = column ? from.stride : b_.getInt64(0);
  } else {
    to.parts = parts(op.operands[0]);
  }
}

void Emitter::broadcast(const tile::Op& op) {
  const auto& ft = kernel_.type(op.operands[0]);
  const auto& rt = kernel_.type(op.results[0]);
  auto& to = values_[static_cast<size_t>(op.results[0])];
  if (auto* s = splat_of(op.operands[0])) {
    to.splat = s;
    if (rt.dtype == DType::I64) {
      to.base = s;
      to.stride = b_.getInt64(0);
      if (rt.shape.size() == 2) to.rows = b_.getInt64(0);
    }
    return;
  }
  if (auto& from = values_[static_cast<size_t>(op.operands[0])]; from.base && rt.shape.size() == 2) {
    // A dimension of 1 has no step.
    to.base = from.base;
    to.stride = from.stride;
    to.rows = from.rows ? from.rows : b_.getInt64(0);
    return;
  }
  // Element (i, j, ...) of the result reads the source at 0 in dimensions of size 1.
  std::vector<int> idx(static_cast<size_t>(rt.count()));
  size_t rank = rt.shape.size(), lead = rank - ft.shape.size();
  for (int64_t e = 0; e < rt.count(); ++e) {
    int64_t rest = e, source = 0, scale = 1;
    for (size_t d = rank; d-- > 0;) {
      int64_t at = rest % rt.shape[d];
      rest /= rt.shape[d];
      if (d < lead) continue;
      int extent = ft.shape[d - lead];
      source += (extent == 1 ? 0 : at) * scale;
      scale *= extent;
    }
    idx[static_cast<size_t>(e)] = static_cast<int>(source);
  }
  define(op.results[0], split(b_.CreateShuffleVector(join(parts(op.operands[0])), idx), lanes(rt)));
}

Status Emitter::reduce(const tile::Op& op) {
  bool arg = op.reduce == ReduceKind::ArgMax || op.reduce == ReduceKind::ArgMin;
  const auto& t = kernel_.type(op.operands[0]);
  if (!t.is_tile()) {
    for (size_t r = 0; r < op.results.size(); ++r) define_scalar(op.results[r], scalar(op.operands[r]));
    return {};
  }
  // View the tile as [outer, extent, inner] and fold the middle by halving; whole parts are folded first while they
  // align.
  int64_t extent = t.shape[static_cast<size_t>(op.axis)], inner = 1, outer = 1;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (static_cast<int>(d) < op.axis) outer *= t.shape[d];
    if (static_cast<int>(d) > op.axis) inner *= t.shape[d];
  }
  std::vector<Value*> v = parts(op.operands[0]);
  std::vector<Value*> ix;
  if (arg) ix = parts(op.operands[1]);
  auto fold = [&](Value* a, Value* ai, Value* c, Value* ci) -> std::pair<Value*, Value*> {
    if (!arg) return {combine(op.reduce, t.dtype, a, c), nullptr};
    auto* better = arg_better(op.reduce, op.select_last, t.dtype, c, ci, a, ai);
    return {b_.CreateSelect(better, c, a), b_.CreateSelect(better, ci, ai)};
  };
  if (outer == 1 && inner == 1) {
    while (v.size() > 1 && v.size() % 2 == 0) {
      size_t h = v.size() / 2;
      for (size_t i = 0; i < h; ++i) {
        auto [a, ai] = fold(v[i], arg ? ix[i] : nullptr, v[i + h], arg ? ix[i + h] : nullptr);
        v[i] = a;
        if (arg) ix[i] = ai;
      }
      v.resize(h);
      if (arg) ix.resize(h);
    }
    for (size_t i = 1; i < v.size(); ++i) {
      auto [a, ai] = fold(v[0], arg ? ix[0] : nullptr, v[i], arg ? ix[i] : nullptr);
      v[0] = a;
      if (arg) ix[0] = ai;
    }
    v.resize(1);
    if (arg) ix.resize(1);
    extent = static_cast<int64_t>(llvm::cast<FixedVectorType>(v[0]->getType())->getNumElements());
  }
  Value* whole = join(v);
  Value* windex = arg ? join(ix) : nullptr;
  while (extent > 1) { // halve; the middle element of an odd extent is kept
    int64_t half = (extent + 1) / 2, pairs = extent - half;
    std::vector<int> lo, hi;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t e = 0; e < half; ++e)
        for (int64_t i = 0; i < inner; ++i) {
          lo.push_back(static_cast<int>((o * extent + e) * inner + i));
          hi.push_back(static_cast<int>((o * extent + (e < pairs ? e + half : e)) * inner + i));
        }
    Value* a = b_.CreateShuffleVector(whole, lo);
    Value* c = b_.CreateShuffleVector(whole, hi);
    Value* ai = arg ? b_.CreateShuffleVector(windex, lo) : nullptr;
    Value* ci = arg ? b_.CreateShuffleVector(windex, hi) : nullptr;
    auto [f, fi] = fold(c, ci, a, ai); // the lower half needs no shuffle; min_max checks its NaN
    if (pairs < half) {                // elements without a partner are unchanged
      std::vector<llvm::Constant*> paired;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t e = 0; e < half; ++e)
          for (int64_t i = 0; i < inner; ++i) paired.push_back(b_.getInt1(e < pairs));
      auto* mask = llvm::ConstantVector::get(paired);
      f = b_.CreateSelect(mask, f, a);
      if (arg) fi = b_.CreateSelect(mask, fi, ai);
    }
    whole = f;
    windex = fi;
    extent = half;
  }
  auto finish = [&](tile::ValueId id, Value* x) {
    const auto& rt = kernel_.type(id);
    if (!rt.is_tile())
      define_scalar(id, b_.CreateExtractElement(x, uint64_t{0}));
    else
      define(id, split(x, lanes(rt)));
  };
  finish(op.results[0], whole);
  if (arg) finish(op.results[1], windex);
  return {};
}

Status Emitter::scan(const tile::Op& op) {
  const auto& t = kernel_.type(op.operands[0]);
  int64_t extent = t.shape[static_cast<size_t>(op.axis)], inner = 1;
  for (size_t d = static_cast<size_t>(op.axis) + 1; d < t.shape.size(); ++d) inner *= t.shape[d];
  Value* x = join(parts(op.operands[0]));
  for (int64_t shift = 1; shift < extent; shift *= 2) {
    std::vector<int> idx;
    std::vector<llvm::Constant*> takes;
    for (int64_t e = 0; e < t.count(); ++e) {
      bool has = (e / inner) % extent >= shift;
      idx.push_back(static_cast<int>(has ? e - shift * inner : e));
      takes.push_back(b_.getInt1(has));
    }
    auto* sum = combine(op.reduce, t.dtype, b_.CreateShuffleVector(x, idx), x);
    x = b_.CreateSelect(llvm::ConstantVector::get(takes), sum, x);
  }
  define(op.results[0], split(x, lanes(t)));
  return {};
}

void Emitter::dot(const tile::Op& op) {
  const auto &at = kernel_.type(op.operands[0]), &bt = kernel_.type(op.operands[1]);
  const auto& ct = kernel_.type(op.results[0]);
  int m = at.shape[0], k = at.shape[1], n = ct.shape[1];
  Value* a = join(parts(op.operands[0]));
  Value* bm = join(parts(op.operands[1]));
  Value* c = join(parts(op.operands[2]));
  for (int kk = 0; kk < k; ++kk) {
    std::vector<int> ai, bi;
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        ai.push_back(i * k + kk);
        bi.push_back(kk * n + j);
      }
    Value* x = cast(b_.CreateShuffleVector(a, ai), at.dtype, ct.dtype);
    Value* y = cast(b_.CreateShuffleVector(bm, bi), bt.dtype, ct.dtype);
    c = is_float(ct.dtype) ? multiply_add(x, y, c) : b_.CreateAdd(b_.CreateMul(x, y), c);
  }
  define(op.results[0], split(c, lanes(ct)));
}

} // namespace tessera::host
