// Index arithmetic. Integers that fit 32 bits (layout/bounds.h) are divided and compared in 32 bits, because 64-bit
// operations take several times the instructions. Other indices are, where possible, a 64-bit base per thread plus a
// 32-bit position per register; they are divided in 32 bits if a test at run time finds that they fit.
#include "codegen/llvm/gpu_pointwise.h"

namespace tessera::gpu {

using layout::Dim;
using tile::OpKind;

void Indices::range(const tile::Op& op) {
  const auto& l = layouts_[op.results[0]];
  auto* part = positions_.thread_part(l, Dim::Axis0);
  Registers positions, out;
  for (int r = 0; r < l.registers(); ++r) {
    positions.push_back(positions_.position(l, Dim::Axis0, r, part));
    out.push_back(b_.CreateZExt(positions.back(), b_.getInt64Ty()));
  }
  define(op.results[0], std::move(out));
  indices_[op.results[0]] = {b_.getInt64(0), std::move(positions), kernel_.type(op.results[0]).shape[0] - 1};
}

int Indices::constant_bits(tile::ValueId id) const {
  const auto& type = kernel_.type(id);
  if (!type.is_tile() || is_float(type.dtype)) return 0;
  const auto& l = layouts_[id];
  const auto& constancy = c_.facts[static_cast<size_t>(id)].constancy;
  int bits = 0;
  for (int i = 0; i < l.in_bits(Dim::Register); ++i) {
    bool same = true;
    for (size_t a = 0; a < type.shape.size(); ++a)
      same = same && l.basis(Dim::Register, i, layout::axis(static_cast<int>(a))) < constancy[a];
    if (same) bits |= 1 << i;
  }
  return bits;
}

// Registers of a range are a constant part plus the thread's part, and so are sums with it. Masks of the last tile of a
// row derive from it which accesses are always or never made.
std::vector<layout::Bounds> Indices::register_bounds(tile::ValueId id) const {
  const auto* op = c_.definitions[static_cast<size_t>(id)];
  std::vector<layout::Bounds> of(register_count(id), c_.bounds[static_cast<size_t>(id)]);
  if (!op || !kernel_.type(id).is_tile()) return of;
  if (op->kind == OpKind::Range) {
    const auto& l = layouts_[id];
    const int64_t reach = thread_reach(l, layout::Dim::Axis0);
    for (size_t r = 0; r < of.size(); ++r) {
      const int64_t own = l.apply(layout::Dim::Register, static_cast<int>(r), layout::Dim::Axis0) & ~reach;
      of[r] = {own, own + reach};
    }
  } else if (op->kind == OpKind::ExpandDims) {
    return register_bounds(op->operands[0]);
  } else if (op->kind == OpKind::Broadcast && kernel_.type(op->operands[0]).is_tile()) {
    const auto from = register_bounds(op->operands[0]);
    const auto map = layout::register_map(layouts_[op->operands[0]], layouts_[id]);
    for (size_t r = 0; map && r < of.size(); ++r) of[r] = from[static_cast<size_t>((*map)[r])];
  } else if (op->kind == OpKind::Scalar && op->scalar == ScalarOp::Add && of[0].fits_32()) {
    auto x = register_bounds(op->operands[0]), y = register_bounds(op->operands[1]);
    for (auto* list : {&x, &y})
      if (list->size() == 1) list->resize(of.size(), list->front());
    for (size_t r = 0; r < of.size(); ++r)
      if (x[r].fits_32() && y[r].fits_32())
        of[r] = {std::max(of[r].least, x[r].least + y[r].least), std::min(of[r].most, x[r].most + y[r].most)};
  }
  return of;
}

// Results are extended to i64, which the next narrow operation truncates again. Sums and products stay in 64 bits,
// where constants of adjacent accesses separate from addresses; in 32 bits rotary embeddings take 4 % longer on an
// H200.
std::optional<Registers> Indices::narrow(const tile::Op& op) {
  auto bounds = [&](tile::ValueId id) { return c_.bounds[static_cast<size_t>(id)]; };
  auto fits = [&](tile::ValueId id) { return kernel_.type(id).dtype == DType::I64 && bounds(id).fits_32(); };
  const bool compares = op.scalar >= ScalarOp::Eq && op.scalar <= ScalarOp::Ge;
  const auto result = op.results[0];
  if (op.operands.size() != 2 || !fits(op.operands[0]) || !fits(op.operands[1])) return std::nullopt;
  if (!compares && !fits(result)) return std::nullopt;
  // Unsigned if no operand is negative: divisions and extensions are shorter.
  const bool non_negative = bounds(op.operands[0]).non_negative() && bounds(op.operands[1]).non_negative() &&
                            (compares || bounds(result).non_negative());
  auto compute = [&](Value* x, Value* y) -> Value* {
    switch (op.scalar) {
    case ScalarOp::Eq: return b_.CreateICmpEQ(x, y);
    case ScalarOp::Ne: return b_.CreateICmpNE(x, y);
    case ScalarOp::Lt: return b_.CreateICmpSLT(x, y);
    case ScalarOp::Le: return b_.CreateICmpSLE(x, y);
    case ScalarOp::Gt: return b_.CreateICmpSGT(x, y);
    case ScalarOp::Ge: return b_.CreateICmpSGE(x, y);
    case ScalarOp::Div:
    case ScalarOp::Mod: {
      if (!non_negative) return nullptr;
      auto* zero = b_.getInt32(0);
      auto* none = b_.CreateICmpEQ(y, zero);
      auto* by = b_.CreateSelect(none, b_.getInt32(1), y);
      auto* v = op.scalar == ScalarOp::Div ? b_.CreateUDiv(x, by) : b_.CreateURem(x, by);
      return b_.CreateSelect(none, zero, v);
    }
    default: return nullptr;
    }
  };
  const size_t n = register_count(result);
  const Registers x = registers(op.operands[0], n), y = registers(op.operands[1], n);
  const auto same = static_cast<size_t>(constant_bits(result));
  std::vector<layout::Bounds> x_bounds, y_bounds;
  if (compares) {
    x_bounds = register_bounds(op.operands[0]), y_bounds = register_bounds(op.operands[1]);
    for (auto* list : {&x_bounds, &y_bounds})
      if (list->size() == 1) list->resize(n, list->front());
  }
  // Result of the comparison if it is the same for all values of the operands.
  auto decided = [&](const layout::Bounds& a, const layout::Bounds& c) -> Value* {
    const bool below = a.most<c.least, above = a.least> c.most;
    const bool at_most = a.most <= c.least, at_least = a.least >= c.most;
    switch (op.scalar) {
    case ScalarOp::Lt: return below || at_least ? b_.getInt1(below) : nullptr;
    case ScalarOp::Le: return at_most || above ? b_.getInt1(at_most) : nullptr;
    case ScalarOp::Gt: return above || at_most ? b_.getInt1(above) : nullptr;
    case ScalarOp::Ge: return at_least || below ? b_.getInt1(at_least) : nullptr;
    default: return nullptr;
    }
  };
  Registers out;
  for (size_t r = 0; r < n; ++r) {
    if (r & same) {
      out.push_back(out[r & ~same]);
      continue;
    }
    auto* v = compares ? decided(x_bounds[r], y_bounds[r]) : nullptr;
    if (!v) v = compute(b_.CreateTrunc(x[r], b_.getInt32Ty()), b_.CreateTrunc(y[r], b_.getInt32Ty()));
    if (!v) return std::nullopt;
    out.push_back(compares ? v : b_.CreateZExt(v, b_.getInt64Ty(), "", true));
  }
  return out;
}

void Indices::index_form(const tile::Op& op) {
  if (kernel_.type(op.results[0]).dtype != DType::I64) return;
  auto of = [&](tile::ValueId id) { return indices_.find(id); };
  if (op.kind == OpKind::ExpandDims) {
    if (auto i = of(op.operands[0]); i != indices_.end()) indices_[op.results[0]] = i->second;
  } else if (op.kind == OpKind::Broadcast) {
    auto i = of(op.operands[0]);
    if (i == indices_.end()) return;
    Registers positions;
    auto map = layout::register_map(layouts_[op.operands[0]], layouts_[op.results[0]]);
    for (int r : *map) positions.push_back(i->second.positions[static_cast<size_t>(r)]);
    indices_[op.results[0]] = {i->second.base, std::move(positions), i->second.most};
  } else if (op.kind == OpKind::Scalar && (op.scalar == ScalarOp::Add || op.scalar == ScalarOp::Mul)) {
    auto x = of(op.operands[0]), y = of(op.operands[1]);
    if (x == indices_.end() && y == indices_.end()) return;
    if (x != indices_.end() && y != indices_.end()) { // for example [R, 1] * s + [1, C]
      if (op.scalar == ScalarOp::Mul || x->second.most + y->second.most >= kMaxPosition) return;
      Registers positions;
      for (size_t r = 0; r < x->second.positions.size(); ++r)
        positions.push_back(b_.CreateAdd(x->second.positions[r], y->second.positions[r], "", true, true));
      indices_[op.results[0]] = {b_.CreateAdd(x->second.base, y->second.base), std::move(positions),
                                 x->second.most + y->second.most};
      return;
    }
    const Index& i = x != indices_.end() ? x->second : y->second;
    auto other = op.operands[x != indices_.end() ? 1 : 0];
    if (kernel_.type(other).is_tile()) return;
    if (op.scalar == ScalarOp::Add) {
      indices_[op.results[0]] = {b_.CreateAdd(i.base, scalar(other)), i.positions, i.most};
    } else if (auto* by = llvm::dyn_cast<llvm::ConstantInt>(scalar(other));
               by && by->getSExtValue() > 0 && by->getSExtValue() < kMaxPosition / std::max<int64_t>(1, i.most)) {
      Registers positions;
      for (auto* p : i.positions)
        positions.push_back(b_.CreateMul(p, b_.getInt32(static_cast<uint32_t>(by->getSExtValue())), "", true, true));
      int64_t most = i.most * by->getSExtValue();
      indices_[op.results[0]] = {b_.CreateMul(i.base, by), std::move(positions), most};
    }
  }
}

// base + position < n becomes position < n - base; n - base is clamped to the range of positions. Indices are assumed
// not to overflow.
std::optional<Registers> Indices::compare(const tile::Op& op) {
  if (op.scalar < ScalarOp::Lt || op.scalar > ScalarOp::Ge) return std::nullopt;
  bool swapped = !kernel_.type(op.operands[0]).is_tile();
  auto i = indices_.find(op.operands[swapped ? 1 : 0]);
  auto other = op.operands[swapped ? 0 : 1];
  if (i == indices_.end() || kernel_.type(other).is_tile()) return std::nullopt;
  auto* i32 = b_.getInt32Ty();
  Value* n = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ssub_sat, scalar(other), i->second.base);
  n = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, n, b_.getInt64(static_cast<uint64_t>(-1)));
  n = b_.CreateTrunc(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, n, b_.getInt64(kMaxPosition)), i32);
  using P = llvm::CmpInst::Predicate;
  P predicate = op.scalar == ScalarOp::Lt   ? P::ICMP_SLT
                : op.scalar == ScalarOp::Le ? P::ICMP_SLE
                : op.scalar == ScalarOp::Gt ? P::ICMP_SGT
                                            : P::ICMP_SGE;
  Registers out;
  int same = constant_bits(op.results[0]);
  for (size_t r = 0; r < i->second.positions.size(); ++r) {
    auto* p = i->second.positions[r];
    if (static_cast<int>(r) & same)
      out.push_back(out[r & ~static_cast<size_t>(same)]);
    else
      out.push_back(swapped ? b_.CreateICmp(predicate, n, p) : b_.CreateICmp(predicate, p, n));
  }
  return out;
}

// A separate function, because it is rarely executed.
Result<llvm::Function*> Indices::division(ScalarOp op) {
  std::string symbol = "i64_" + std::string(info(op).name);
  if (auto* f = math_.module().getFunction(symbol)) return f;
  auto* i64 = b_.getInt64Ty();
  auto* f = llvm::Function::Create(llvm::FunctionType::get(i64, {i64, i64}, false), llvm::Function::InternalLinkage,
                                   symbol, math_.module());
  math_.target_attributes(*f);
  // Kernels that would save registers around calls request inline division by their config.
  f->addFnAttr(kernel_.config.contains("inline_division") ? llvm::Attribute::AlwaysInline : llvm::Attribute::NoInline);
  llvm::IRBuilderBase::InsertPointGuard keep(b_);
  b_.SetInsertPoint(llvm::BasicBlock::Create(b_.getContext(), "entry", f));
  std::array<Value*, 2> args = {f->getArg(0), f->getArg(1)};
  TESSERA_ASSIGN(auto* v, math_.arith(op, DType::I64, DType::I64, args));
  b_.CreateRet(v);
  return f;
}

// 64-bit division is a long subroutine, 32-bit division about twenty instructions, and indices nearly always fit: one
// test for all registers of a thread selects 32-bit or 64-bit divisions for all.
Result<std::optional<Registers>> Indices::divide(const tile::Op& op) {
  auto result = op.results[0];
  size_t n = register_count(result);
  bool remainder = op.scalar == ScalarOp::Mod || op.scalar == ScalarOp::Fmod;
  if ((op.scalar != ScalarOp::Div && !remainder) || kernel_.type(result).dtype != DType::I64) return {std::nullopt};
  if (kernel_.type(op.operands[1]).is_tile() || !kernel_.type(op.operands[0]).is_tile()) return {std::nullopt};
  auto* divisor = scalar(op.operands[1]);
  auto same = static_cast<size_t>(constant_bits(result));
  const Registers dividends = registers(op.operands[0], n);
  std::vector<size_t> wanted; // registers that are divided
  for (size_t r = 0; r < n; ++r)
    if (!(r & same)) wanted.push_back(r);
  if (llvm::isa<llvm::Constant>(divisor) || wanted.size() < 2) return {std::nullopt};

  Value* bits = divisor;
  for (size_t r : wanted) bits = b_.CreateOr(bits, dividends[r]);
  auto* fits = b_.CreateICmpULT(bits, b_.getInt64(uint64_t{1} << 31)); // implies that none is negative
  auto* narrow = llvm::BasicBlock::Create(b_.getContext(), "divide32", c_.function);
  auto* wide = llvm::BasicBlock::Create(b_.getContext(), "divide64", c_.function);
  auto* end = llvm::BasicBlock::Create(b_.getContext(), "divided", c_.function);
  b_.CreateCondBr(fits, narrow, wide);
  b_.SetInsertPoint(narrow);
  auto* d = b_.CreateTrunc(divisor, b_.getInt32Ty());
  auto* by_zero = b_.CreateICmpEQ(d, b_.getInt32(0));
  auto* safe = b_.CreateSelect(by_zero, b_.getInt32(1), d);
  Registers in_32, in_64;
  for (size_t r : wanted) {
    auto* x = b_.CreateTrunc(dividends[r], b_.getInt32Ty());
    auto* v = remainder ? b_.CreateURem(x, safe) : b_.CreateUDiv(x, safe);
    in_32.push_back(b_.CreateZExt(b_.CreateSelect(by_zero, b_.getInt32(0), v), b_.getInt64Ty()));
  }
  b_.CreateBr(end);
  b_.SetInsertPoint(wide);
  TESSERA_ASSIGN(auto* function, division(op.scalar));
  for (size_t r : wanted) in_64.push_back(b_.CreateCall(function, {dividends[r], divisor}));
  auto* wide_end = b_.GetInsertBlock();
  b_.CreateBr(end);
  b_.SetInsertPoint(end);
  Registers out(n);
  for (size_t i = 0; i < wanted.size(); ++i) {
    auto* phi = b_.CreatePHI(b_.getInt64Ty(), 2);
    phi->addIncoming(in_32[i], narrow);
    phi->addIncoming(in_64[i], wide_end);
    out[wanted[i]] = phi;
  }
  for (size_t r = 0; r < n; ++r) out[r] = out[r & ~same];
  return {std::move(out)};
}

} // namespace tessera::gpu
