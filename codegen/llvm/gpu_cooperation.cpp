#include "codegen/llvm/gpu_cooperation.h"
#include "codegen/tile/cooperation.h"

namespace tessera::gpu {

using tile::OpKind;

// i1, in all threads that execute the kernel: the predicate of the one that `acts`, false in others. A barrier for them.
// Where the block has more threads, the predicate passes through shared memory, since all threads of a block must vote.
Result<Value*> Cooperation::known_by_all(Value* acts, Value* predicate) {
  if (!c_.divided) {
    auto* any = gpu_.barrier_any(predicate);
    c_.hazards.barrier();
    return any;
  }
  constexpr int64_t kBytes = 16;
  TESSERA_ASSIGN(const int64_t region, shared_.region(kBytes));
  auto* offset = b_.getInt32(static_cast<uint32_t>(region));
  Value* word = b_.CreateZExt(predicate, b_.getInt32Ty());
  shared_.store(offset, std::span<Value* const>(&word, 1), DType::I32, acts);
  shared_.barrier();
  c_.hazards.touch_shared({region, region + kBytes});
  return b_.CreateICmpNE(shared_.load(offset, DType::I32, 1)[0], b_.getInt32(0));
}

// Thread 0 arrives after all threads of the block have written; no thread reads before thread 0 returns.
Status Cooperation::arrive(const tile::Op& op) {
  if (accesses_.is_scratch(op.operands[0]))
    return error("counters and mailboxes of cooperative programs cannot be scratch");
  auto *rank = scalar(op.operands[2]), *count = scalar(op.operands[3]);
  auto* others = b_.CreateTrunc(b_.CreateSub(count, b_.getInt64(1)), b_.getInt32Ty());
  auto* amount = b_.CreateSelect(b_.CreateICmpEQ(rank, b_.getInt64(0)),
                                 b_.CreateSub(b_.getInt32(tile::kArrivalPhase), others), b_.getInt32(1));
  auto* counter = accesses_.address(op.operands[0], scalar(op.operands[1]));
  auto* acts = positions_.acts_for_copies(~0u, ~0u);
  shared_.barrier();
  if (op.kind == OpKind::GridBarrier) {
    gpu_.grid_barrier(counter, amount, acts);
    shared_.barrier();
    return {};
  }
  auto* low = b_.CreateAnd(gpu_.arrive(counter, amount, acts), b_.getInt32(tile::kArrivalPhase - 1));
  auto* last = both(b_, acts, b_.CreateICmpEQ(low, b_.getInt32(0)));
  TESSERA_ASSIGN(auto* known, known_by_all(acts, last));
  define(op.results[0], {known});
  return {};
}

// Thread i serves program i: it writes this program's slot of that program's mailbox, waits for that program's slot of
// this one's, and stores the partial results to shared memory, which all threads read behind one barrier.
Status Cooperation::exchange(const tile::Op& op) {
  if (accesses_.is_scratch(op.operands[0]))
    return error("counters and mailboxes of cooperative programs cannot be scratch");
  auto* i32 = b_.getInt32Ty();
  const int size = kernel_.type(op.results[0]).shape[0], block = c_.threads();
  auto *rank = scalar(op.operands[2]), *count = scalar(op.operands[3]);
  std::vector<DType> dtypes;
  std::vector<Value*> words; // of this program's partial results
  for (size_t i = 0; i < op.results.size(); ++i) {
    dtypes.push_back(kernel_.type(op.results[i]).dtype);
    auto* v = scalar(op.operands[i + 4]);
    auto* bits = b_.CreateBitCast(v, b_.getIntNTy(static_cast<unsigned>(v->getType()->getPrimitiveSizeInBits())));
    if (tile::words_of(dtypes.back()) == 1) {
      words.push_back(b_.CreateZExt(bits, i32));
    } else {
      words.push_back(b_.CreateTrunc(bits, i32));
      words.push_back(b_.CreateTrunc(b_.CreateLShr(bits, 32), i32));
    }
  }
  words.resize((words.size() + tile::kPayloadWords - 1) / tile::kPayloadWords * tile::kPayloadWords, b_.getInt32(0));
  const auto slot_words = static_cast<uint64_t>(tile::packet_words(dtypes));
  auto* mailboxes = accesses_.address(op.operands[0], scalar(op.operands[1]));
  // Address of packet `packet` of slot `from` in the mailbox of program `to` (i64).
  auto address = [&](Value* to, Value* from, uint64_t packet) {
    auto* at = b_.CreateNSWMul(b_.CreateNSWAdd(b_.CreateNSWMul(to, count), from), b_.getInt64(slot_words));
    at = b_.CreateNSWAdd(at, b_.getInt64(packet * tile::kPacketWords));
    return b_.CreateGEP(i32, mailboxes, at);
  };
  const size_t packets = slot_words / tile::kPacketWords;
  const int rounds = (size + block - 1) / block;
  std::vector<Value*> others, exists; // by round: the program that this thread serves, and i1: it exists
  for (int r = 0; r < rounds; ++r) {
    auto* other = b_.CreateAdd(c_.thread, b_.getInt32(static_cast<uint32_t>(r * block)));
    others.push_back(b_.CreateZExt(other, b_.getInt64Ty()));
    exists.push_back(b_.CreateICmpSLT(others.back(), count));
    for (size_t p = 0; p < packets; ++p)
      gpu_.send(address(others.back(), rank, p), std::span(words).subspan(p * tile::kPayloadWords), exists.back());
  }
  std::vector<int64_t> at; // byte offset of each partial result's tile
  int64_t bytes = 0;
  for (DType d : dtypes) {
    at.push_back(bytes);
    bytes += (int64_t{size} * element_bytes(d) + 15) / 16 * 16;
  }
  TESSERA_ASSIGN(const int64_t region, shared_.region(bytes));
  auto offset = [&](Value* index, size_t number) {
    auto* scaled = b_.CreateMul(index, b_.getInt32(static_cast<uint32_t>(element_bytes(dtypes[number]))));
    return b_.CreateAdd(scaled, b_.getInt32(static_cast<uint32_t>(region + at[number])));
  };
  // The last one of the programs that a warp serves started last. The warp first polls that program's slot alone,
  // because polling all slots slows the writers. It may not poll a slot that another warp clears.
  auto* first = b_.CreateAnd(others[0], b_.getInt64(~uint64_t{layout::kLanes - 1}));
  auto* end = b_.CreateNSWAdd(first, b_.getInt64(layout::kLanes));
  end = b_.CreateSelect(b_.CreateICmpSLT(end, count), end, count);
  auto* latest = b_.CreateNSWSub(end, b_.getInt64(1));
  auto* another =
      b_.CreateAnd(b_.CreateICmpEQ(latest, rank), b_.CreateICmpNE(latest, first)); // not this program itself
  latest = b_.CreateSelect(another, b_.CreateNSWSub(latest, b_.getInt64(1)), latest);
  gpu_.await_packet(address(rank, latest, 0), both(b_, positions_.acts_for_copies(layout::kLanes - 1, 0), exists[0]));
  for (size_t r = 0; r < others.size(); ++r) {
    std::vector<Value*> received;
    for (size_t p = 0; p < packets; ++p)
      for (auto* w : gpu_.receive(address(rank, others[r], p), exists[r])) received.push_back(w);
    auto* index = b_.CreateTrunc(others[r], i32);
    auto* in_tile = size % block ? b_.CreateICmpULT(index, b_.getInt32(static_cast<uint32_t>(size))) : nullptr;
    for (size_t i = 0, w = 0; i < op.results.size(); ++i) {
      auto* type = scalar(op.operands[i + 4])->getType();
      const auto bits = static_cast<unsigned>(type->getPrimitiveSizeInBits());
      Value* v = received[w++];
      if (bits > 32)
        v = b_.CreateOr(b_.CreateZExt(v, b_.getInt64Ty()),
                        b_.CreateShl(b_.CreateZExt(received[w++], b_.getInt64Ty()), 32));
      v = b_.CreateBitCast(b_.CreateZExtOrTrunc(v, b_.getIntNTy(bits)), type);
      shared_.store(offset(index, i), std::span<Value* const>(&v, 1), dtypes[i], in_tile);
    }
  }
  shared_.barrier();
  c_.hazards.touch_shared({region, region + bytes});
  for (size_t i = 0; i < op.results.size(); ++i) {
    const auto& l = layouts_[op.results[i]];
    auto* part = positions_.thread_part(l, layout::axis(0));
    Registers out;
    for (int r = 0; r < l.registers(); ++r)
      out.push_back(shared_.load(offset(positions_.position(l, layout::axis(0), r, part), i), dtypes[i], 1)[0]);
    define(op.results[i], std::move(out));
  }
  return {};
}

} // namespace tessera::gpu
