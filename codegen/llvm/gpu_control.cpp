// Loops and branches: carried and yielded registers as phi nodes, and the barriers that they need.
//
// Elements of 8 and 16 bits cross basic blocks packed into 32-bit words: a phi node of each element would take a
// register of its own, and would unpack the word in which the element was loaded.
#include "codegen/llvm/gpu_control.h"
#include <functional>
#include <tuple>
#include <utility>

namespace tessera::gpu {

static bool is_packed(DType dtype, size_t count) {
  const int bits = info(dtype).bits;
  return dtype != DType::Bool && (bits == 16 || bits == 8) && count % static_cast<size_t>(32 / bits) == 0;
}
std::vector<Registers> Control::packed(std::span<const tile::ValueId> values, std::span<const tile::ValueId> targets) {
  std::vector<Registers> out;
  for (size_t v = 0; v < targets.size(); ++v) {
    Registers list = registers(values[v], register_count(targets[v]));
    const DType dtype = dtype_of(targets[v]);
    out.push_back(is_packed(dtype, list.size()) ? words_.pack(list, dtype) : std::move(list));
  }
  return out;
}
void Control::define_packed(std::span<const tile::ValueId> targets, const std::vector<Registers>& lists) {
  for (size_t v = 0; v < targets.size(); ++v) {
    const DType dtype = dtype_of(targets[v]);
    const size_t count = register_count(targets[v]);
    define(targets[v], is_packed(dtype, count) ? words_.unpack(lists[v], dtype, static_cast<int>(count)) : lists[v]);
  }
}
std::vector<Registers> Control::phis(const std::vector<Registers>& lists, llvm::BasicBlock* from) {
  std::vector<Registers> out(lists.size());
  for (size_t n = 0; n < lists.size(); ++n)
    for (auto* v : lists[n]) {
      auto* phi = b_.CreatePHI(v->getType(), 2);
      phi->addIncoming(v, from);
      out[n].push_back(phi);
    }
  return out;
}
static void add_incoming(const std::vector<Registers>& phis, const std::vector<Registers>& lists,
                         llvm::BasicBlock* from) {
  for (size_t n = 0; n < phis.size(); ++n)
    for (size_t r = 0; r < phis[n].size(); ++r) llvm::cast<llvm::PHINode>(phis[n][r])->addIncoming(lists[n][r], from);
}

// The offsets of the stages before and after one of a ring.
static std::pair<Value*, Value*> around(llvm::IRBuilder<>& b, Value* stage, int stages, uint32_t bytes) {
  auto *first = b.getInt32(0), *end = b.getInt32(static_cast<uint32_t>(stages) * bytes), *step = b.getInt32(bytes);
  auto* after = b.CreateAdd(stage, step);
  after = b.CreateSelect(b.CreateICmpEQ(after, end), first, after);
  return {b.CreateSub(b.CreateSelect(b.CreateICmpEQ(stage, first), end, stage), step), after};
}

Control::Counter Control::counter_of(const tile::Op& op) {
  Counter c{scalar(op.operands[0]), scalar(op.operands[1]), scalar(op.operands[2])};
  auto bounds = [&](tile::ValueId id) { return c_.bounds[static_cast<size_t>(id)]; };
  const auto induction = bounds(op.region_args[0][0]);
  // The induction values of prefetched iterations beyond the last one must fit, too.
  const int64_t room = std::numeric_limits<int32_t>::max() - induction.most;
  c.fits_32 = induction.fits_32() && bounds(op.operands[1]).fits_32() &&
              bounds(op.operands[2]).most <= room / std::max(1, op.num_stages);
  if (c.fits_32)
    for (auto** v : {&c.from, &c.to, &c.step}) *v = b_.CreateTrunc(*v, b_.getInt32Ty());
  return c;
}

Status Control::loop(tile::OpId id) {
  const auto& op = kernel_.op(id);
  const auto& args = op.region_args[0];
  const auto initial = std::span(op.operands).subspan(3), carried = std::span(args).subspan(1);
  const Counter counter = counter_of(op);
  auto *from = counter.from, *to = counter.to, *step = counter.step;
  auto index = [&](Value* v) { return this->index(counter, v); };
  auto* any = b_.CreateICmpSLT(from, to);
  const auto loads = pipelining_.plan(op);
  const bool copies = !loads.copies.empty() && !loads.per_thread,
             per_thread = !loads.copies.empty() && loads.per_thread;
  const auto stage_bytes = static_cast<uint32_t>(loads.stage_bytes);
  std::vector<std::function<void()>> deferred;
  auto finish_copies = [&] {
    for (const auto& emit : std::exchange(deferred, {})) emit();
  };
  // The induction value `count` iterations later.
  auto advanced = [&](Value* v, int count) {
    for (int n = 0; n < count; ++n) v = b_.CreateNSWAdd(v, step);
    return v;
  };
  const int ahead = copies ? loads.stages - 1 : per_thread ? loads.stages : 0; // iterations whose loads are in flight
  for (int s = 0; s < ahead; ++s) {
    auto* iteration = advanced(from, s);
    TESSERA_TRY(pipelining_.copy(op, loads, index(iteration), s == 0 ? any : b_.CreateICmpSLT(iteration, to),
                                 b_.getInt32(static_cast<uint32_t>(s) * stage_bytes), deferred));
  }
  finish_copies();
  std::vector<Registers> first = packed(initial, carried);
  const bool passes_ring = ring_.passes(id);
  if (passes_ring) first.push_back(ring_.state());
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
  const std::vector<Registers> current = phis(first, before);
  define_packed(carried, current);
  if (passes_ring) ring_.set_state(current.back());
  auto pending = c_.hazards.pending();
  c_.hazards.enter_loop();
  auto* next = b_.CreateNSWAdd(i, step);
  Value* other = nullptr; // the stage of the next iteration
  if (per_thread) gpu_.wait_for_copies(loads.stages - 1);
  if (copies) {
    gpu_.wait_for_copies(ahead - 1);
    shared_.barrier();
    auto* later = advanced(i, ahead);
    Value* previous = other = b_.CreateSub(b_.getInt32(stage_bytes), stage); // of two
    if (loads.stages > 2) std::tie(previous, other) = around(b_, stage, loads.stages, stage_bytes);
    TESSERA_TRY(pipelining_.copy(op, loads, index(later), b_.CreateICmpSLT(later, to), previous, deferred));
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
    other = around(b_, stage, loads.stages, stage_bytes).second;
  }
  if (c_.hazards.next_round_conflicts()) shared_.barrier();
  c_.hazards.leave_loop();
  c_.hazards.merge(pending); // of a loop without iterations

  std::vector<Registers> last = packed(yielded_, carried);
  if (passes_ring) last.push_back(ring_.state());
  auto* latch = b_.GetInsertBlock();
  i->addIncoming(next, latch);
  if (stage) stage->addIncoming(other, latch);
  add_incoming(current, last, latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, to), body, after);
  b_.SetInsertPoint(after);
  const std::vector<Registers> out = phis(first, before);
  add_incoming(out, last, latch);
  define_packed(op.results, out);
  if (passes_ring) ring_.set_state(out.back());
  return {};
}

Status Control::ring_loop(tile::OpId id) {
  const auto& op = kernel_.op(id);
  const auto& ring = *ring_.loop(id);
  const auto& args = op.region_args[0];
  const auto carried = std::span(args).subspan(1);
  const Counter n = counter_of(op);
  std::vector<Registers> first = packed(std::span(op.operands).subspan(3), carried);
  first.push_back(ring_.state());
  auto* before = b_.GetInsertBlock();
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, c_.function); };
  auto *body = block("products"), *drained = block("drained"), *after = block("after");
  b_.CreateCondBr(b_.CreateICmpSLT(n.from, n.to), body, after);
  b_.SetInsertPoint(body);
  auto* i = b_.CreatePHI(n.from->getType(), 2, "i");
  i->addIncoming(n.from, before);
  const std::vector<Registers> current = phis(first, before);
  define_packed(carried, current);
  ring_.set_state(current.back());
  define(args[0], {index(n, i)});
  auto pending = c_.hazards.pending();
  c_.hazards.enter_loop();
  ring_.start_iteration(ring, i, n.from);
  TESSERA_TRY(operations_.block(op.regions[0]));
  ring_.finish_iteration();
  if (c_.hazards.next_round_conflicts()) shared_.barrier();
  c_.hazards.leave_loop();
  c_.hazards.merge(pending); // of a loop without iterations
  std::vector<Registers> last = packed(yielded_, carried);
  last.push_back(ring_.state());
  auto* next = b_.CreateNSWAdd(i, n.step);
  auto* latch = b_.GetInsertBlock();
  i->addIncoming(next, latch);
  add_incoming(current, last, latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, n.to), body, drained);

  b_.SetInsertPoint(drained);
  std::vector<Registers*> sums; // of asynchronous products
  Registers all;
  for (size_t v = 0; v < yielded_.size(); ++v)
    for (const auto dot : ring.products)
      if (kernel_.op(dot).results[0] == yielded_[v]) {
        sums.push_back(&last[v]);
        all.insert(all.end(), last[v].begin(), last[v].end());
      }
  all = ring_.drain(all);
  size_t at = 0;
  for (auto* list : sums)
    for (auto*& v : *list) v = all[at++];
  auto* end = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  const std::vector<Registers> out = phis(first, before);
  add_incoming(out, last, end);
  define_packed(op.results, out);
  ring_.set_state(out.back());
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
    yields[r] = packed(yielded_, op.results);
    ends[r] = b_.GetInsertBlock();
    b_.CreateBr(merge);
    if (r == 0) ended = c_.hazards.pending();
  }
  c_.hazards.merge(ended);
  c_.hazards.leave_branch();
  merge->insertInto(c_.function);
  b_.SetInsertPoint(merge);
  const std::vector<Registers> out = phis(yields[0], ends[0]);
  add_incoming(out, yields[1], ends[1]);
  define_packed(op.results, out);
  return {};
}

} // namespace tessera::gpu
