#include "codegen/llvm/emit.h"
#include "base/check.h"

namespace tessera::host {

using tile::OpKind;

Emitter::Emitter(llvm::Module& module, const tile::Kernel& kernel, const HostTarget& target)
    : VectorMath(module, kernel.name, target), kernel_(kernel), width_(target.vector_bytes / 4) {
  values_.resize(static_cast<size_t>(kernel.value_count()));
  for (int v = 0; v < kernel.value_count(); ++v) values_[static_cast<size_t>(v)].type = kernel.type(v);
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
  uint64_t buffer = 0, size = 0;
  for (const auto& p : kernel_.params) {
    if (p.type.kind == tile::Type::Kind::Pointer) {
      define_scalar(p.value, argument(ptr, b_.CreateConstInBoundsGEP1_64(ptr, buffers, buffer++), p.name));
      continue;
    }
    auto* memory = memory_type(p.type.dtype);
    if (!memory) return error("parameter " + p.name + " of type " + p.type.str() + " has no host code");
    auto* value = argument(memory, b_.CreateConstInBoundsGEP1_64(i64, sizes, size++), p.name);
    define_scalar(p.value, p.type.dtype == DType::Bool ? b_.CreateICmpNE(value, b_.getInt8(0)) : value);
  }
  if (tile::uses_grid(kernel_))
    for (auto& extent : extents_) extent = argument(i64, b_.CreateConstInBoundsGEP1_64(i64, sizes, size++), "extent");
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

// A value that stays as it is while the kernel runs.
llvm::Value* Emitter::argument(llvm::Type* type, Value* at, const std::string& name) {
  auto* load = b_.CreateLoad(type, at, name);
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(ctx_, {}));
  return load;
}

// Grid::index() of the program's number.
llvm::Value* Emitter::program_index(int axis) {
  if (!extents_[0]) return program_;
  auto* number = program_;
  for (int a = 0; a < axis; ++a) number = b_.CreateUDiv(number, extents_[static_cast<size_t>(a)]);
  return axis + 1 < kGridAxes ? b_.CreateURem(number, extents_[static_cast<size_t>(axis)]) : number;
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
  case OpKind::ProgramId: define_scalar(op.results[0], program_index(op.axis)); return {};
  case OpKind::NumPrograms: define_scalar(op.results[0], extents_[static_cast<size_t>(op.axis)]); return {};
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
    // Scratch of one program is allocated in the order of the operations, each rounded up to 64 bytes.
    const auto& t = kernel_.type(op.results[0]);
    auto* bytes = b_.CreateMul(scalar(op.operands[0]), b_.getInt64(static_cast<uint64_t>(byte_size(t.dtype, 1))));
    auto* rounded = b_.CreateAnd(b_.CreateAdd(bytes, b_.getInt64(63)), b_.getInt64(~uint64_t{63}));
    define_scalar(op.results[0], b_.CreateInBoundsGEP(b_.getInt8Ty(), scratch_base_, scratch_used_));
    scratch_used_ = b_.CreateAdd(scratch_used_, rounded);
    return {};
  }
  case OpKind::Atomic: return atomic(op);
  case OpKind::ReportIndex: report_index(op); return {};
  case OpKind::Prefetch: prefetch(op); return {};
  case OpKind::Yield: yielded_.assign(op.operands.begin(), op.operands.end()); return {};
  case OpKind::Arrive: return arrive(op);
  case OpKind::GridBarrier:
  case OpKind::Exchange: return error("cooperative programs that wait for each other have no host code");
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
    slot = Val{type, {}, nullptr, nullptr, nullptr, nullptr, nullptr};
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

} // namespace tessera::host
