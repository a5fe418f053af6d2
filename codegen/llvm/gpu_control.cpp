// Loops and branches: what is carried and yielded, register by register, and which barriers they need.
//
// Elements of fewer than 32 bits travel from block to block in words. Each alone would have a register there, and be
// taken out of the word that it was loaded in: half of a tile of f16 that is loaded a round ahead.
#include "codegen/llvm/gpu_emit.h"
#include <functional>
#include <utility>

namespace tessera::gpu {

bool Emitter::travels_in_words(DType dtype, size_t count) {
  const int bits = info(dtype).bits;
  return dtype != DType::Bool && (bits == 16 || bits == 8) && count % static_cast<size_t>(32 / bits) == 0;
}
Emitter::Registers Emitter::to_travel(const Registers& list, DType dtype) {
  return travels_in_words(dtype, list.size()) ? to_words(list, dtype) : list;
}
Emitter::Registers Emitter::travelled(const Registers& list, DType dtype, size_t count) {
  return travels_in_words(dtype, count) ? from_words(list, dtype, static_cast<int>(count)) : list;
}

Status Emitter::loop(const tile::Op& op) {
  auto *from = scalar(op.operands[0]), *to = scalar(op.operands[1]), *step = scalar(op.operands[2]);
  const auto& args = op.region_args[0];
  size_t carried = op.operands.size() - 3;
  auto bounds = [&](tile::ValueId id) { return bounds_[static_cast<size_t>(id)]; };
  // A step further than the last round fits, too, and as many as loads are ahead.
  const int64_t room = std::numeric_limits<int32_t>::max() - bounds(args[0]).most;
  const bool narrow = bounds(args[0]).fits_32() && bounds(op.operands[1]).fits_32() &&
                      bounds(op.operands[2]).most <= room / std::max(1, op.ahead);
  if (narrow) from = narrowed(from), to = narrowed(to), step = narrowed(step);
  auto index = [&](Value* v) { return narrow ? b_.CreateSExt(v, b_.getInt64Ty()) : v; };
  auto* any = b_.CreateICmpSLT(from, to);
  auto ahead = op.ahead > 0 ? own_loads_ahead(op) : loads_ahead(op);
  const bool copies = !ahead.copies.empty() && !ahead.own, own = !ahead.copies.empty() && ahead.own;
  const auto stage_bytes = static_cast<uint32_t>(ahead.stage_bytes);
  std::vector<std::function<void()>> afterwards;
  auto finish_copies = [&] {
    for (const auto& emit : std::exchange(afterwards, {})) emit();
  };
  if (copies) TESSERA_TRY(copy_ahead(op, ahead, index(from), any, b_.getInt32(0), afterwards));
  // The induction value so many rounds later.
  auto rounds_later = [&](Value* v, int rounds) {
    for (int r = 0; r < rounds; ++r) v = b_.CreateNSWAdd(v, step);
    return v;
  };
  for (int s = 0; own && s < ahead.stages; ++s) {
    auto* round = rounds_later(from, s);
    TESSERA_TRY(copy_ahead(op, ahead, index(round), b_.CreateICmpSLT(round, to),
                           b_.getInt32(static_cast<uint32_t>(s) * stage_bytes), afterwards));
  }
  finish_copies();
  std::vector<Registers> first;
  for (size_t c = 0; c < carried; ++c)
    first.push_back(to_travel(registers(op.operands[3 + c], register_count(args[1 + c])), dtype(args[1 + c])));
  auto* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(ctx_, "loop", fn_);
  auto* after = llvm::BasicBlock::Create(ctx_, "after", fn_);
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
    define(args[1 + c], travelled(phis[c], dtype(args[1 + c]), register_count(args[1 + c])));
  auto pending = hazards_.pending();
  hazards_.enter_loop();
  auto* next = b_.CreateNSWAdd(i, step);
  Value* other = nullptr; // the stage that this round does not read
  if (own) {
    gpu_->wait_for_copies(ahead.stages - 1);
    for (const auto& c : ahead.copies) {
      if (c.into < 0)
        own_ahead_[kernel_.op(c.load).results[0]] = {ahead, c, stage};
      else
        copied_.insert({c.load, c.into});
    }
  }
  if (copies) {
    gpu_->wait_for_copies(0);
    barrier();
    other = b_.CreateSub(b_.getInt32(stage_bytes), stage);
    ++ahead_depth_;
    TESSERA_TRY(copy_ahead(op, ahead, index(next), b_.CreateICmpSLT(next, to), other, afterwards));
    for (const auto& c : ahead.copies) {
      auto v = kernel_.op(c.load).results[0];
      ahead_[v] = {c.plan, kernel_.type(v).dtype, ahead.region + c.at, stage, nullptr};
    }
  }
  define(args[0], {index(i)});
  ++loops_;
  TESSERA_TRY(block(op.regions[0]));
  --loops_;
  if (own) {
    for (const auto& c : ahead.copies) own_ahead_.erase(kernel_.op(c.load).results[0]);
    auto yields = yielded_;
    if (ahead.refills) {
      auto* later = rounds_later(i, ahead.stages);
      TESSERA_TRY(copy_ahead(op, ahead, index(later), b_.CreateICmpSLT(later, to), stage, afterwards));
      finish_copies();
    } else {
      gpu_->commit_copies();
    }
    yielded_ = std::move(yields);
    auto* end = b_.getInt32(static_cast<uint32_t>(ahead.stages) * stage_bytes);
    other = b_.CreateAdd(stage, b_.getInt32(stage_bytes));
    other = b_.CreateSelect(b_.CreateICmpEQ(other, end), b_.getInt32(0), other);
  }
  if (hazards_.next_round_conflicts()) barrier();
  hazards_.leave_loop();
  hazards_.merge(pending); // of no rounds at all
  if (copies) --ahead_depth_;

  std::vector<Registers> last;
  for (size_t c = 0; c < carried; ++c)
    last.push_back(to_travel(registers(yielded_[c], register_count(args[1 + c])), dtype(args[1 + c])));
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
    define(op.results[c], travelled(out[c], dtype(op.results[c]), register_count(op.results[c])));
  return {};
}

Status Emitter::branch(const tile::Op& op) {
  auto* condition = scalar(op.operands[0]);
  auto* merge = llvm::BasicBlock::Create(ctx_, "endif");
  llvm::BasicBlock* blocks[2] = {llvm::BasicBlock::Create(ctx_, "then", fn_),
                                 llvm::BasicBlock::Create(ctx_, "else", fn_)};
  llvm::BasicBlock* ends[2];
  b_.CreateCondBr(condition, blocks[0], blocks[1]);
  std::vector<Registers> yields[2];
  auto before = hazards_.pending();
  Hazards::Pending ended;
  hazards_.enter_branch();
  for (size_t r = 0; r < 2; ++r) {
    b_.SetInsertPoint(blocks[r]);
    hazards_.set(before);
    yielded_.clear();
    TESSERA_TRY(block(op.regions[r]));
    for (size_t v = 0; v < op.results.size(); ++v)
      yields[r].push_back(to_travel(registers(yielded_[v], register_count(op.results[v])), dtype(op.results[v])));
    ends[r] = b_.GetInsertBlock();
    b_.CreateBr(merge);
    if (r == 0) ended = hazards_.pending();
  }
  hazards_.merge(ended);
  hazards_.leave_branch();
  merge->insertInto(fn_);
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
    define(op.results[v], travelled(out[v], dtype(op.results[v]), register_count(op.results[v])));
  return {};
}

} // namespace tessera::gpu
