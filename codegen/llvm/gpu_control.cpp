// Loops and branches: carried and yielded registers as phi nodes, and the barriers that they need.
//
// Elements of 8 and 16 bits cross basic blocks packed into 32-bit words: a phi node of each element would take a
// register of its own, and would unpack the word in which the element was loaded.
#include "codegen/llvm/gpu_control.h"
#include <functional>
#include <utility>

namespace tessera::gpu {

static bool is_packed(DType dtype, size_t count) {
  const int bits = info(dtype).bits;
  return dtype != DType::Bool && (bits == 16 || bits == 8) && count % static_cast<size_t>(32 / bits) == 0;
}
Registers Control::packed(const Registers& list, DType dtype) {
  return is_packed(dtype, list.size()) ? words_.pack(list, dtype) : list;
}
Registers Control::unpacked(const Registers& list, DType dtype, size_t count) {
  return is_packed(dtype, count) ? words_.unpack(list, dtype, static_cast<int>(count)) : list;
}

Status Control::loop(const tile::Op& op) {
  auto *from = scalar(op.operands[0]), *to = scalar(op.operands[1]), *step = scalar(op.operands[2]);
  const auto& args = op.region_args[0];
  size_t carried = op.operands.size() - 3;
  auto bounds = [&](tile::ValueId id) { return c_.bounds[static_cast<size_t>(id)]; };
  // The induction values of prefetched iterations beyond the last one must fit, too.
  const int64_t room = std::numeric_limits<int32_t>::max() - bounds(args[0]).most;
  const bool fits_32 = bounds(args[0]).fits_32() && bounds(op.operands[1]).fits_32() &&
                       bounds(op.operands[2]).most <= room / std::max(1, op.num_stages);
  if (fits_32)
    for (auto** v : {&from, &to, &step}) *v = b_.CreateTrunc(*v, b_.getInt32Ty());
  auto index = [&](Value* v) { return fits_32 ? b_.CreateSExt(v, b_.getInt64Ty()) : v; };
  auto* any = b_.CreateICmpSLT(from, to);
  const auto loads = pipelining_.plan(op);
  const bool copies = !loads.copies.empty() && !loads.per_thread,
             per_thread = !loads.copies.empty() && loads.per_thread;
  const auto stage_bytes = static_cast<uint32_t>(loads.stage_bytes);
  std::vector<std::function<void()>> deferred;
  auto finish_copies = [&] {
    for (const auto& emit : std::exchange(deferred, {})) emit();
  };
  if (copies) TESSERA_TRY(pipelining_.copy(op, loads, index(from), any, b_.getInt32(0), deferred));
  // The induction value `count` iterations later.
  auto advanced = [&](Value* v, int count) {
    for (int n = 0; n < count; ++n) v = b_.CreateNSWAdd(v, step);
    return v;
  };
  for (int s = 0; per_thread && s < loads.stages; ++s) {
    auto* iteration = advanced(from, s);
    TESSERA_TRY(pipelining_.copy(op, loads, index(iteration), b_.CreateICmpSLT(iteration, to),
                                 b_.getInt32(static_cast<uint32_t>(s) * stage_bytes), deferred));
  }
  finish_copies();
  std::vector<Registers> first;
  for (size_t c = 0; c < carried; ++c)
    first.push_back(packed(registers(op.operands[3 + c], register_count(args[1 + c])), dtype_of(args[1 + c])));
  auto* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(b_.getContext(), "loop", c_.function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", c_.function);
  b_.CreateCondBr(any, body, after);
  b_.SetInsertPoint(body);
  auto* i = b_.CreatePHI(from->getType(), 2, "i");
  i->addIncoming(from, before);
  llvm::PHINode* stage = nullptr;
  if (copies || per_thread) {
    stage = b_.CreatePHI(b_.getInt32Ty(), 2, "stage");
    stage->addIncoming(b_.getInt32(0), before);
  }
  std::vector<Registers> phis(carried);
  for (size_t c = 0; c < carried; ++c)
    for (auto* v : first[c]) {
      auto* phi = b_.CreatePHI(v->getType(), 2);
      phi->addIncoming(v, before);
      phis[c].push_back(phi);
    }
  for (size_t c = 0; c < carried; ++c)
    define(args[1 + c], unpacked(phis[c], dtype_of(args[1 + c]), register_count(args[1 + c])));
  auto pending = c_.hazards.pending();
  c_.hazards.enter_loop();
  auto* next = b_.CreateNSWAdd(i, step);
  Value* other = nullptr; // the stage of the next iteration
  if (per_thread) gpu_.wait_for_copies(loads.stages - 1);
  if (copies) {
    gpu_.wait_for_copies(0);
    shared_.barrier();
    other = b_.CreateSub(b_.getInt32(stage_bytes), stage);
    TESSERA_TRY(pipelining_.copy(op, loads, index(next), b_.CreateICmpSLT(next, to), other, deferred));
  }
  define(args[0], {index(i)});
  pipelining_.enter(loads, stage);
  TESSERA_TRY(operations_.block(op.regions[0]));
  pipelining_.leave(loads);
  if (per_thread) {
    auto yields = yielded_;
    if (loads.refills) {
      auto* later = advanced(i, loads.stages);
      TESSERA_TRY(pipelining_.copy(op, loads, index(later), b_.CreateICmpSLT(later, to), stage, deferred));
      finish_copies();
    } else {
      gpu_.commit_copies();
    }
    yielded_ = std::move(yields);
    auto* end = b_.getInt32(static_cast<uint32_t>(loads.stages) * stage_bytes);
    other = b_.CreateAdd(stage, b_.getInt32(stage_bytes));
    other = b_.CreateSelect(b_.CreateICmpEQ(other, end), b_.getInt32(0), other);
  }
  if (c_.hazards.next_round_conflicts()) shared_.barrier();
  c_.hazards.leave_loop();
  c_.hazards.merge(pending); // of a loop without iterations

  std::vector<Registers> last;
  for (size_t c = 0; c < carried; ++c)
    last.push_back(packed(registers(yielded_[c], register_count(args[1 + c])), dtype_of(args[1 + c])));
  auto* latch = b_.GetInsertBlock();
  i->addIncoming(next, latch);
  if (stage) stage->addIncoming(other, latch);
  for (size_t c = 0; c < carried; ++c)
    for (size_t r = 0; r < last[c].size(); ++r) llvm::cast<llvm::PHINode>(phis[c][r])->addIncoming(last[c][r], latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
  b_.SetInsertPoint(after);
  std::vector<Registers> out(carried);
  for (size_t c = 0; c < carried; ++c)
    for (size_t r = 0; r < first[c].size(); ++r) {
      auto* phi = b_.CreatePHI(first[c][r]->getType(), 2);
      phi->addIncoming(first[c][r], before);
      phi->addIncoming(last[c][r], latch);
      out[c].push_back(phi);
    }
  for (size_t c = 0; c < carried; ++c)
    define(op.results[c], unpacked(out[c], dtype_of(op.results[c]), register_count(op.results[c])));
  return {};
}

Status Control::branch(const tile::Op& op) {
  auto* condition = scalar(op.operands[0]);
  auto* merge = llvm::BasicBlock::Create(b_.getContext(), "endif");
  llvm::BasicBlock* blocks[2] = {llvm::BasicBlock::Create(b_.getContext(), "then", c_.function),
                                 llvm::BasicBlock::Create(b_.getContext(), "else", c_.function)};
  llvm::BasicBlock* ends[2];
  b_.CreateCondBr(condition, blocks[0], blocks[1]);
  std::vector<Registers> yields[2];
  auto before = c_.hazards.pending();
  Hazards::Pending ended;
  c_.hazards.enter_branch();
  for (size_t r = 0; r < 2; ++r) {
    b_.SetInsertPoint(blocks[r]);
    c_.hazards.set(before);
    yielded_.clear();
    TESSERA_TRY(operations_.block(op.regions[r]));
    for (size_t v = 0; v < op.results.size(); ++v)
      yields[r].push_back(packed(registers(yielded_[v], register_count(op.results[v])), dtype_of(op.results[v])));
    ends[r] = b_.GetInsertBlock();
    b_.CreateBr(merge);
    if (r == 0) ended = c_.hazards.pending();
  }
  c_.hazards.merge(ended);
  c_.hazards.leave_branch();
  merge->insertInto(c_.function);
  b_.SetInsertPoint(merge);
  std::vector<Registers> out(op.results.size());
  for (size_t v = 0; v < op.results.size(); ++v)
    for (size_t r = 0; r < yields[0][v].size(); ++r) {
      auto* phi = b_.CreatePHI(yields[0][v][r]->getType(), 2);
      phi->addIncoming(yields[0][v][r], ends[0]);
      phi->addIncoming(yields[1][v][r], ends[1]);
      out[v].push_back(phi);
    }
  for (size_t v = 0; v < op.results.size(); ++v)
    define(op.results[v], unpacked(out[v], dtype_of(op.results[v]), register_count(op.results[v])));
  return {};
}

} // namespace tessera::gpu
