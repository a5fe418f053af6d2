#include "codegen/llvm/emit.h"
#include "graph/support/check.h"
#include <llvm/IR/Intrinsics.h>

namespace tessera::host {

using llvm::ConstantInt;
using llvm::FixedVectorType;
using tile::OpKind;

Emitter::Emitter(llvm::Module& module, const tile::Kernel& kernel, const HostTarget& target)
    : Arithmetic(module, kernel.name), kernel_(kernel), target_(target), width_(target.vector_bytes / 4) {
  values_.resize(static_cast<size_t>(kernel.value_count()));
  for (int v = 0; v < kernel.value_count(); ++v) values_[static_cast<size_t>(v)].type = kernel.type(v);
}

int Emitter::lanes(const tile::Type& type) const { return static_cast<int>(std::min<int64_t>(type.count(), width_)); }
int Emitter::part_count(const tile::Type& type) const { return static_cast<int>((type.count() + width_ - 1) / width_); }

llvm::Type* Emitter::part_type(const tile::Type& type) {
  auto* e = element_type(type.dtype);
  return type.is_tile() ? static_cast<llvm::Type*>(FixedVectorType::get(e, static_cast<unsigned>(lanes(type)))) : e;
}

llvm::Value* Emitter::lane_iota(int lanes, int start) {
  std::vector<llvm::Constant*> c;
  for (int i = 0; i < lanes; ++i) c.push_back(b_.getInt64(static_cast<uint64_t>(start + i)));
  return llvm::ConstantVector::get(c);
}

std::vector<llvm::Value*> Emitter::prefix_parts(Value* count, const tile::Type& type) {
  std::vector<Value*> out;
  int w = lanes(type);
  for (int p = 0; p < part_count(type); ++p) {
    auto* left = b_.CreateSub(count, b_.getInt64(static_cast<uint64_t>(p) * static_cast<uint64_t>(w)));
    left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, b_.getInt64(0));
    left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(static_cast<uint64_t>(w)));
    if (target_.vector_bytes == 64 && w >= 8) { // a mask register is a number: low `left` bits set
      auto* bits = b_.CreateSub(b_.CreateShl(b_.getInt64(1), left), b_.getInt64(1));
      out.push_back(b_.CreateBitCast(b_.CreateTrunc(bits, b_.getIntNTy(static_cast<unsigned>(w))),
                                     FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(w))));
    } else {
      std::vector<llvm::Constant*> c;
      for (int i = 0; i < w; ++i) c.push_back(b_.getInt32(static_cast<uint32_t>(i)));
      out.push_back(
          b_.CreateICmpSLT(llvm::ConstantVector::get(c),
                           b_.CreateVectorSplat(static_cast<unsigned>(w), b_.CreateTrunc(left, b_.getInt32Ty()))));
    }
  }
  return out;
}

std::vector<llvm::Value*> Emitter::parts(tile::ValueId id) {
  auto& v = values_[static_cast<size_t>(id)];
  if (!v.parts.empty()) return v.parts;
  int w = lanes(v.type), n = part_count(v.type);
  // A form is turned into vectors at each use and not kept: the builder may stand in a nested block that does not
  // dominate later uses. The optimizer merges equal expressions.
  std::vector<Value*> made;
  if (v.splat) {
    if (!v.type.is_tile())
      made = {v.splat};
    else
      made.assign(static_cast<size_t>(n), b_.CreateVectorSplat(static_cast<unsigned>(w), v.splat));
  } else if (v.base) {
    auto* base = b_.CreateVectorSplat(static_cast<unsigned>(w), v.base);
    auto* stride = b_.CreateVectorSplat(static_cast<unsigned>(w), v.stride);
    for (int p = 0; p < n; ++p) {
      Value* x = b_.CreateAdd(base, b_.CreateMul(stride, lane_iota(w, p * w)));
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

llvm::Value* Emitter::join(const std::vector<Value*>& parts) {
  std::vector<Value*> level = parts;
  while (level.size() > 1) {
    std::vector<Value*> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) {
      unsigned n = llvm::cast<FixedVectorType>(level[i]->getType())->getNumElements();
      unsigned m = llvm::cast<FixedVectorType>(level[i + 1]->getType())->getNumElements();
      Value *x = level[i], *y = level[i + 1];
      if (m < n) { // a shorter tail: widen it first
        std::vector<int> widen;
        for (unsigned k = 0; k < n; ++k) widen.push_back(k < m ? static_cast<int>(k) : -1);
        y = b_.CreateShuffleVector(y, widen);
      }
      std::vector<int> idx;
      for (unsigned k = 0; k < n + m; ++k) idx.push_back(static_cast<int>(k));
      next.push_back(b_.CreateShuffleVector(x, y, idx));
    }
    if (level.size() % 2) next.push_back(level.back());
    level = std::move(next);
  }
  return level[0];
}

std::vector<llvm::Value*> Emitter::split(Value* whole, int lanes) {
  int n = static_cast<int>(llvm::cast<FixedVectorType>(whole->getType())->getNumElements());
  std::vector<Value*> out;
  if (n <= lanes) return {whole};
  for (int s = 0; s < n; s += lanes) {
    std::vector<int> idx;
    for (int k = s; k < std::min(n, s + lanes); ++k) idx.push_back(k);
    out.push_back(b_.CreateShuffleVector(whole, idx));
  }
  return out;
}

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

// ---- structure

void Emitter::target_attributes(llvm::Function& f) const {
  f.addFnAttr("target-cpu", target_.cpu);
  f.addFnAttr("target-features", target_.features);
  f.addFnAttr("prefer-vector-width", std::to_string(target_.vector_bytes * 8));
  f.addFnAttr("min-legal-vector-width", std::to_string(target_.vector_bytes * 8));
  f.addFnAttr(llvm::Attribute::NoUnwind);
}

Status Emitter::emit(const std::string& symbol) {
  auto* ptr = llvm::PointerType::get(ctx_, 0);
  auto* i64 = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, i64, i64, ptr, ptr}, false);
  fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
  target_attributes(*fn_);
  auto* buffers = fn_->getArg(0);
  auto* sizes = fn_->getArg(1);
  auto* begin = fn_->getArg(2);
  auto* end = fn_->getArg(3);
  scratch_base_ = fn_->getArg(4);
  error_ = fn_->getArg(5);
  for (unsigned a : {0u, 1u, 4u, 5u}) fn_->addParamAttr(a, llvm::Attribute::NoAlias);

  auto* entry = llvm::BasicBlock::Create(ctx_, "entry", fn_);
  auto* head = llvm::BasicBlock::Create(ctx_, "program", fn_);
  auto* done = llvm::BasicBlock::Create(ctx_, "done", fn_);
  b_.SetInsertPoint(entry);
  auto* spare = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), 8));
  spare->setAlignment(llvm::Align(64));
  b_.CreateStore(llvm::Constant::getNullValue(spare->getAllocatedType()), spare);
  dummy_ = spare;
  auto* invariant = llvm::MDNode::get(ctx_, {});
  int buffer = 0, size = 0;
  for (const auto& p : kernel_.params) {
    if (p.type.kind == tile::Type::Kind::Pointer) {
      auto* load =
          b_.CreateLoad(ptr, b_.CreateConstInBoundsGEP1_64(ptr, buffers, static_cast<uint64_t>(buffer++)), p.name);
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, invariant);
      define_scalar(p.value, load);
    } else {
      if (p.type.dtype != DType::I64)
        return error("parameter " + p.name + ": only i64 scalars are passed to host kernels");
      auto* load = b_.CreateLoad(i64, b_.CreateConstInBoundsGEP1_64(i64, sizes, static_cast<uint64_t>(size++)), p.name);
      load->setMetadata(llvm::LLVMContext::MD_invariant_load, invariant);
      define_scalar(p.value, load);
    }
  }
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, done);
  b_.SetInsertPoint(head);
  auto* pid = b_.CreatePHI(i64, 2, "pid");
  pid->addIncoming(begin, entry);
  program_ = pid;
  scratch_used_ = b_.getInt64(0);
  TESSERA_TRY(block(kernel_.body));
  auto* next = b_.CreateNSWAdd(pid, b_.getInt64(1));
  pid->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, done);
  b_.SetInsertPoint(done);
  b_.CreateRetVoid();
  return {};
}

Status Emitter::block(const std::vector<tile::OpId>& ops) {
  for (auto id : ops) TESSERA_TRY(operation(kernel_.op(id)));
  return {};
}

Status Emitter::operation(const tile::Op& op) {
  for (auto r : op.results) {
    const auto& t = kernel_.type(r);
    if (t.kind == tile::Type::Kind::Data && !element_type(t.dtype))
      return error("element type " + std::string(name(t.dtype)) + " has no host code");
    if (t.is_tile() && t.count() > width_ && t.count() % width_ != 0)
      return error("tile " + t.str() + " is not a multiple of " + std::to_string(width_) + " elements");
  }
  switch (op.kind) {
  case OpKind::Const: {
    const auto& t = kernel_.type(op.results[0]);
    Value* c = constant(t.dtype, op.f, op.i);
    auto& v = values_[static_cast<size_t>(op.results[0])];
    v.splat = c;
    if (t.is_tile() && t.dtype == DType::I64) {
      v.base = c;
      v.stride = b_.getInt64(0);
    }
    return {};
  }
  case OpKind::ProgramId:
    define_scalar(op.results[0], op.axis == 0 ? program_ : static_cast<Value*>(b_.getInt64(0)));
    return {};
  case OpKind::Range: {
    auto& v = values_[static_cast<size_t>(op.results[0])];
    v.base = b_.getInt64(0);
    v.stride = b_.getInt64(1);
    return {};
  }
  case OpKind::ExpandDims: expand_dims(op); return {};
  case OpKind::Broadcast: broadcast(op); return {};
  case OpKind::Scalar: return scalar_op(op);
  case OpKind::Load: return load(op);
  case OpKind::Store: return store(op);
  case OpKind::Reduce: return reduce(op);
  case OpKind::Scan: return scan(op);
  case OpKind::Dot: dot(op); return {};
  case OpKind::For: return loop(op);
  case OpKind::If: return branch(op);
  case OpKind::Scratch: {
    // Blocks of one program follow each other, each rounded up to 64 bytes, in the order of the operations.
    const auto& t = kernel_.type(op.results[0]);
    auto* bytes = b_.CreateMul(scalar(op.operands[0]), b_.getInt64(static_cast<uint64_t>(byte_size(t.dtype, 1))));
    auto* rounded = b_.CreateAnd(b_.CreateAdd(bytes, b_.getInt64(63)), b_.getInt64(~uint64_t{63}));
    define_scalar(op.results[0], b_.CreateInBoundsGEP(b_.getInt8Ty(), scratch_base_, scratch_used_));
    scratch_used_ = b_.CreateAdd(scratch_used_, rounded);
    return {};
  }
  case OpKind::AtomicAdd: return atomic_add(op);
  case OpKind::ReportIndex: report_index(op); return {};
  case OpKind::Prefetch: prefetch(op); return {};
  case OpKind::Yield: yielded_.assign(op.operands.begin(), op.operands.end()); return {};
  case OpKind::Arrive:
  case OpKind::Meet: return error("programs that meet have no host code");
  case OpKind::Count_: break;
  }
  return error("operation without host code");
}

Status Emitter::loop(const tile::Op& op) {
  auto* from = scalar(op.operands[0]);
  auto* to = scalar(op.operands[1]);
  auto* step = scalar(op.operands[2]);
  size_t carried = op.operands.size() - 3;
  std::vector<std::vector<Value*>> initial;
  for (size_t c = 0; c < carried; ++c) initial.push_back(parts(op.operands[3 + c]));

  auto* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(ctx_, "loop", fn_);
  auto* after = llvm::BasicBlock::Create(ctx_, "after", fn_);
  b_.CreateCondBr(b_.CreateICmpSLT(from, to), body, after);
  b_.SetInsertPoint(body);
  auto* iv = b_.CreatePHI(b_.getInt64Ty(), 2, "i");
  iv->addIncoming(from, before);
  const auto& args = op.region_args[0];
  define_scalar(args[0], iv);
  std::vector<std::vector<llvm::PHINode*>> phis(carried);
  for (size_t c = 0; c < carried; ++c) {
    std::vector<Value*> ps;
    for (auto* v : initial[c]) {
      auto* phi = b_.CreatePHI(v->getType(), 2);
      phi->addIncoming(v, before);
      phis[c].push_back(phi);
      ps.push_back(phi);
    }
    auto& slot = values_[static_cast<size_t>(args[1 + c])];
    auto type = slot.type;
    slot = Val{type, {}, nullptr, nullptr, nullptr, nullptr};
    define(args[1 + c], ps);
  }
  auto* outer_scratch = scratch_used_;
  TESSERA_TRY(block(op.regions[0]));
  TESSERA_CHECK(scratch_used_ == outer_scratch, "scratch inside a loop in kernel " + kernel_.name);
  auto yields = yielded_;
  std::vector<std::vector<Value*>> next;
  for (size_t c = 0; c < carried; ++c) next.push_back(parts(yields[c]));
  auto* inext = b_.CreateNSWAdd(iv, step);
  auto* latch = b_.GetInsertBlock();
  iv->addIncoming(inext, latch);
  for (size_t c = 0; c < carried; ++c)
    for (size_t p = 0; p < phis[c].size(); ++p) phis[c][p]->addIncoming(next[c][p], latch);
  b_.CreateCondBr(b_.CreateICmpSLT(inext, to), body, after);
  b_.SetInsertPoint(after);
  for (size_t c = 0; c < carried; ++c) {
    std::vector<Value*> ps;
    for (size_t p = 0; p < phis[c].size(); ++p) {
      auto* phi = b_.CreatePHI(initial[c][p]->getType(), 2);
      phi->addIncoming(initial[c][p], before);
      phi->addIncoming(next[c][p], latch);
      ps.push_back(phi);
    }
    define(op.results[c], ps);
  }
  return {};
}

Status Emitter::branch(const tile::Op& op) {
  auto* condition = scalar(op.operands[0]);
  auto* then_block = llvm::BasicBlock::Create(ctx_, "then", fn_);
  auto* else_block = llvm::BasicBlock::Create(ctx_, "else", fn_);
  auto* merge = llvm::BasicBlock::Create(ctx_, "endif", fn_);
  b_.CreateCondBr(condition, then_block, else_block);
  std::vector<std::vector<std::vector<Value*>>> out(2);
  llvm::BasicBlock* ends[2];
  for (int r = 0; r < 2; ++r) {
    b_.SetInsertPoint(r == 0 ? then_block : else_block);
    yielded_.clear();
    if (static_cast<size_t>(r) < op.regions.size()) TESSERA_TRY(block(op.regions[static_cast<size_t>(r)]));
    auto yields = yielded_;
    for (size_t i = 0; i < op.results.size(); ++i) out[static_cast<size_t>(r)].push_back(parts(yields[i]));
    ends[r] = b_.GetInsertBlock();
    b_.CreateBr(merge);
  }
  b_.SetInsertPoint(merge);
  for (size_t i = 0; i < op.results.size(); ++i) {
    std::vector<Value*> ps;
    for (size_t p = 0; p < out[0][i].size(); ++p) {
      auto* phi = b_.CreatePHI(out[0][i][p]->getType(), 2);
      phi->addIncoming(out[0][i][p], ends[0]);
      phi->addIncoming(out[1][i][p], ends[1]);
      ps.push_back(phi);
    }
    define(op.results[i], ps);
  }
  return {};
}

Status Emitter::scalar_op(const tile::Op& op) {
  auto result = op.results[0];
  const auto& rt = kernel_.type(result);
  DType at = kernel_.type(op.operands[op.scalar == ScalarOp::Select ? 1 : 0]).dtype;
  auto& out = values_[static_cast<size_t>(result)];
  // Everything uniform: compute once.
  bool uniform = true;
  for (auto o : op.operands) uniform = uniform && splat_of(o);
  if (uniform) {
    std::vector<Value*> args;
    for (auto o : op.operands) args.push_back(splat_of(o));
    TESSERA_ASSIGN(auto* v, arith(op.scalar, rt.dtype, at, args));
    out.splat = v;
    return {};
  }
  // Affine integer tiles and prefix masks stay symbolic.
  auto form = [&](tile::ValueId id) -> std::pair<Value*, Value*> {
    auto& v = values_[static_cast<size_t>(id)];
    if (v.splat && kernel_.type(id).dtype == DType::I64) return {v.splat, b_.getInt64(0)};
    return {v.base, v.stride};
  };
  if (rt.dtype == DType::I64 && rt.shape.size() == 1 && op.operands.size() == 2 && at == DType::I64) {
    auto [ab, as] = form(op.operands[0]);
    auto [bb, bs] = form(op.operands[1]);
    if (ab && bb) {
      if (op.scalar == ScalarOp::Add) {
        out.base = b_.CreateAdd(ab, bb);
        out.stride = b_.CreateAdd(as, bs);
        return {};
      }
      if (op.scalar == ScalarOp::Sub) {
        out.base = b_.CreateSub(ab, bb);
        out.stride = b_.CreateSub(as, bs);
        return {};
      }
      auto zero = [](Value* s) {
        auto* c = llvm::dyn_cast<ConstantInt>(s);
        return c && c->isZero();
      };
      if (op.scalar == ScalarOp::Mul && zero(bs)) {
        out.base = b_.CreateMul(ab, bb);
        out.stride = b_.CreateMul(as, bb);
        return {};
      }
      if (op.scalar == ScalarOp::Mul && zero(as)) {
        out.base = b_.CreateMul(ab, bb);
        out.stride = b_.CreateMul(bs, ab);
        return {};
      }
    }
  }
  if (rt.dtype == DType::Bool && rt.shape.size() == 1 && op.operands.size() == 2) {
    auto unit = [](Value* s) {
      auto* c = llvm::dyn_cast_or_null<ConstantInt>(s);
      return c && c->isOne();
    };
    auto& a = values_[static_cast<size_t>(op.operands[0])];
    auto& c = values_[static_cast<size_t>(op.operands[1])];
    if (at == DType::I64 && a.base && unit(a.stride) && c.splat) {
      if (op.scalar == ScalarOp::Lt) {
        out.prefix = b_.CreateSub(c.splat, a.base);
        return {};
      }
      if (op.scalar == ScalarOp::Le) {
        out.prefix = b_.CreateAdd(b_.CreateSub(c.splat, a.base), b_.getInt64(1));
        return {};
      }
    }
    if (at == DType::I64 && c.base && unit(c.stride) && a.splat) {
      if (op.scalar == ScalarOp::Gt) {
        out.prefix = b_.CreateSub(a.splat, c.base);
        return {};
      }
      if (op.scalar == ScalarOp::Ge) {
        out.prefix = b_.CreateAdd(b_.CreateSub(a.splat, c.base), b_.getInt64(1));
        return {};
      }
    }
    if (op.scalar == ScalarOp::And && at == DType::Bool) {
      if (a.prefix && c.prefix) {
        out.prefix = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a.prefix, c.prefix);
        return {};
      }
      if (a.prefix && c.splat) {
        out.prefix = b_.CreateSelect(c.splat, a.prefix, b_.getInt64(0));
        return {};
      }
      if (c.prefix && a.splat) {
        out.prefix = b_.CreateSelect(a.splat, c.prefix, b_.getInt64(0));
        return {};
      }
    }
  }
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
  if (from.splat)
    to.splat = from.splat;
  else
    to.parts = parts(op.operands[0]);
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
    }
    return;
  }
  // Element (i, j, ...) of the result reads the source with 0 where its dimension is 1.
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
  // As [outer, extent, inner]: fold along the middle by halving. Parts are folded first while they line up.
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
  while (extent > 1) { // halve (odd extents: the middle one is carried along)
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
    auto [f, fi] = fold(a, ai, c, ci);
    if (pairs < half) { // elements without a partner keep their value
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
  const auto& at = kernel_.type(op.operands[0]);
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
    Value* y = cast(b_.CreateShuffleVector(bm, bi), at.dtype, ct.dtype);
    c = is_float(ct.dtype) ? fma(x, y, c) : b_.CreateAdd(b_.CreateMul(x, y), c);
  }
  define(op.results[0], split(c, lanes(ct)));
}

} // namespace tessera::host
