// Loops and branches: what is carried and yielded, register by register, and which barriers they need.
//
// Elements of fewer than 32 bits travel from block to block in words. Each alone would have a register there, and be
// taken out of the word that it was loaded in: half of a tile of f16 that is loaded a round ahead.
#include "codegen/llvm/gpu_control.h"
#include <functional>
#include <utility>

namespace tessera::gpu {

static bool travels_in_words(DType dtype, size_t count) {
  const int bits = info(dtype).bits;
  return dtype != DType::Bool && (bits == 16 || bits == 8) && count % static_cast<size_t>(32 / bits) == 0;
}
Registers Control::to_travel(const Registers& list, DType dtype) {
  return travels_in_words(dtype, list.size()) ? words_.pack(list, dtype) : list;
}
Registers Control::travelled(const Registers& list, DType dtype, size_t count) {
  return travels_in_words(dtype, count) ? words_.unpack(list, dtype, static_cast<int>(count)) : list;
}

Status Control::loop(const tile::Op& op) {
  auto *from = scalar(op.operands[0]), *to = scalar(op.operands[1]), *step = scalar(op.operands[2]);
  const auto& args = op.region_args[0];
  size_t carried = op.operands.size() - 3;
  auto bounds = [&](tile::ValueId id) { return c_.bounds[static_cast<size_t>(id)]; };
  // A step further than the last round fits, too, and as many as loads are ahead.
  const int64_t room = std::numeric_limits<int32_t>::max() - bounds(args[0]).most;
  const bool narrow = bounds(args[0]).fits_32() && bounds(op.operands[1]).fits_32() &&
                      bounds(op.operands[2]).most <= room / std::max(1, op.ahead);
  if (narrow)
    for (auto** v : {&from, &to, &step}) *v = b_.CreateTrunc(*v, b_.getInt32Ty());
  auto index = [&](Value* v) { return narrow ? b_.CreateSExt(v, b_.getInt64Ty()) : v; };
  auto* any = b_.CreateICmpSLT(from, to);
  const auto ahead = ahead_.plan(op);
  const bool copies = !ahead.copies.empty() && !ahead.own, own = !ahead.copies.empty() && ahead.own;
  const auto stage_bytes = static_cast<uint32_t>(ahead.stage_bytes);
  std::vector<std::function<void()>> afterwards;
  auto finish_copies = [&] {
    for (const auto& emit : std::exchange(afterwards, {})) emit();
  };
  if (copies) TESSERA_TRY(ahead_.copy(op, ahead, index(from), any, b_.getInt32(0), afterwards));
  // The induction value so many rounds later.
  auto rounds_later = [&](Value* v, int rounds) {
    for (int r = 0; r < rounds; ++r) v = b_.CreateNSWAdd(v, step);
    return v;
  };
  for (int s = 0; own && s < ahead.stages; ++s) {
    auto* round = rounds_later(from, s);
    TESSERA_TRY(ahead_.copy(op, ahead, index(round), b_.CreateICmpSLT(round, to),
                            b_.getInt32(static_cast<uint32_t>(s) * stage_bytes), afterwards));
  }
  finish_copies();
  std::vector<Registers> first;
  for (size_t c = 0; c < carried; ++c)
    first.push_back(to_travel(registers(op.operands[3 + c], register_count(args[1 + c])), dtype_of(args[1 + c])));
  auto* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(b_.getContext(), "loop", c_.function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "after", c_.function);
  b_.CreateCondBr(any, body, after);
  b_.SetInsertPoint(body);
  auto* i = b_.CreatePHI(from->getType(), 2, "i");
  i->addIncoming(from, before);
  llvm::PHINode* stage = nullptr;
  if (copies || own) {
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
    define(args[1 + c], travelled(phis[c], dtype_of(args[1 + c]), register_count(args[1 + c])));
  auto pending = c_.hazards.pending();
  c_.hazards.enter_loop();
  auto* next = b_.CreateNSWAdd(i, step);
  Value* other = nullptr; // the stage that this round does not read
  if (own) gpu_.wait_for_copies(ahead.stages - 1);
  if (copies) {
    gpu_.wait_for_copies(0);
    shared_.barrier();
    other = b_.CreateSub(b_.getInt32(stage_bytes), stage);
    TESSERA_TRY(ahead_.copy(op, ahead, index(next), b_.CreateICmpSLT(next, to), other, afterwards));
  }
  define(args[0], {index(i)});
  ahead_.enter(ahead, stage);
  TESSERA_TRY(operations_.block(op.regions[0]));
  ahead_.leave(ahead);
  if (own) {
    auto yields = yielded_;
    if (ahead.refills) {
      auto* later = rounds_later(i, ahead.stages);
      TESSERA_TRY(ahead_.copy(op, ahead, index(later), b_.CreateICmpSLT(later, to), stage, afterwards));
      finish_copies();
    } else {
      gpu_.commit_copies();
    }
    yielded_ = std::move(yields);
    auto* end = b_.getInt32(static_cast<uint32_t>(ahead.stages) * stage_bytes);
    other = b_.CreateAdd(stage, b_.getInt32(stage_bytes));
    other = b_.CreateSelect(b_.CreateICmpEQ(other, end), b_.getInt32(0), other);
  }
  if (c_.hazards.next_round_conflicts()) shared_.barrier();
  c_.hazards.leave_loop();
  c_.hazards.merge(pending); // of no rounds at all

  std::vector<Registers> last;
  for (size_t c = 0; c < carried; ++c)
    last.push_back(to_travel(registers(yielded_[c], register_count(args[1 + c])), dtype_of(args[1 + c])));
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
    define(op.results[c], travelled(out[c], dtype_of(op.results[c]), register_count(op.results[c])));
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
      yields[r].push_back(to_travel(registers(yielded_[v], register_count(op.results[v])), dtype_of(op.results[v])));
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
    define(op.results[v], travelled(out[v], dtype_of(op.results[v]), register_count(op.results[v])));
  return {};
}

} // namespace tessera::gpu
