#include "codegen/llvm/gpu_team.h"
#include "codegen/tile/team.h"

namespace tessera::gpu {

using tile::OpKind;

// All threads have written before one of them tells so, and none reads before that one knows.
Status Team::meet(const tile::Op& op) {
  if (accesses_.is_scratch(op.operands[0])) return error("programs cannot meet in scratch");
  auto *member = scalar(op.operands[2]), *count = scalar(op.operands[3]);
  auto* others = b_.CreateTrunc(b_.CreateSub(count, b_.getInt64(1)), b_.getInt32Ty());
  auto* amount = b_.CreateSelect(b_.CreateICmpEQ(member, b_.getInt64(0)),
                                 b_.CreateSub(b_.getInt32(tile::kTeamRound), others), b_.getInt32(1));
  auto* counter = accesses_.address(op.operands[0], scalar(op.operands[1]));
  auto* acts = positions_.acts_for_copies(~0u, ~0u);
  shared_.barrier();
  if (op.kind == OpKind::Meet) {
    gpu_.meet(counter, amount, acts);
    shared_.barrier();
    return {};
  }
  auto* low = b_.CreateAnd(gpu_.arrive(counter, amount, acts), b_.getInt32(tile::kTeamRound - 1));
  auto* last = both(b_, acts, b_.CreateICmpEQ(low, b_.getInt32(0)));
  define(op.results[0], {gpu_.barrier_any(last)});
  c_.hazards.barrier();
  return {};
}

// Thread i speaks for this program with member i: it leaves the message in that one's box, waits for the one from
// there, and puts what it says into shared memory, where all find it behind one barrier.
Status Team::exchange(const tile::Op& op) {
  if (accesses_.is_scratch(op.operands[0])) return error("programs cannot meet in scratch");
  auto* i32 = b_.getInt32Ty();
  const int places = kernel_.type(op.results[0]).shape[0], block = c_.threads();
  auto *member = scalar(op.operands[2]), *count = scalar(op.operands[3]);
  std::vector<DType> dtypes;
  std::vector<Value*> words; // of this program's numbers
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
  words.resize((words.size() + tile::kMessageNumbers - 1) / tile::kMessageNumbers * tile::kMessageNumbers,
               b_.getInt32(0));
  const auto message = static_cast<uint64_t>(tile::message_words(dtypes));
  auto* box = accesses_.address(op.operands[0], scalar(op.operands[1]));
  // Of the boxes of member `to` the place for what `from` tells, i64 both.
  auto place = [&](Value* to, Value* from, uint64_t part) {
    auto* at = b_.CreateNSWMul(b_.CreateNSWAdd(b_.CreateNSWMul(to, count), from), b_.getInt64(message));
    at = b_.CreateNSWAdd(at, b_.getInt64(part * tile::kMessageWords));
    return b_.CreateGEP(i32, box, at);
  };
  const size_t parts = message / tile::kMessageWords;
  const int rounds = (places + block - 1) / block;
  std::vector<Value*> others, there; // by round: whom this thread speaks with, and whether there is one
  for (int r = 0; r < rounds; ++r) {
    auto* other = b_.CreateAdd(c_.thread, b_.getInt32(static_cast<uint32_t>(r * block)));
    others.push_back(b_.CreateZExt(other, b_.getInt64Ty()));
    there.push_back(b_.CreateICmpSLT(others.back(), count));
    for (size_t p = 0; p < parts; ++p)
      gpu_.send(place(others.back(), member, p), std::span(words).subspan(p * tile::kMessageNumbers), there.back());
  }
  std::vector<int64_t> at; // byte offset of each number's region
  int64_t bytes = 0;
  for (DType d : dtypes) {
    at.push_back(bytes);
    bytes += (int64_t{places} * element_bytes(d) + 15) / 16 * 16;
  }
  TESSERA_ASSIGN(const int64_t region, shared_.region(bytes));
  auto offset = [&](Value* index, size_t number) {
    auto* scaled = b_.CreateMul(index, b_.getInt32(static_cast<uint32_t>(element_bytes(dtypes[number]))));
    return b_.CreateAdd(scaled, b_.getInt32(static_cast<uint32_t>(region + at[number])));
  };
  // Of the members that a warp speaks with the last one began last: until its message is there no other one is worth
  // asking for, which keeps others waiting. Messages of other warps' members may be gone when this one looks.
  auto* first = b_.CreateAnd(others[0], b_.getInt64(~uint64_t{layout::kLanes - 1}));
  auto* end = b_.CreateNSWAdd(first, b_.getInt64(layout::kLanes));
  end = b_.CreateSelect(b_.CreateICmpSLT(end, count), end, count);
  auto* latest = b_.CreateNSWSub(end, b_.getInt64(1));
  auto* another = b_.CreateAnd(b_.CreateICmpEQ(latest, member), b_.CreateICmpNE(latest, first)); // not one's own
  latest = b_.CreateSelect(another, b_.CreateNSWSub(latest, b_.getInt64(1)), latest);
  gpu_.before_receiving(place(member, latest, 0),
                        both(b_, positions_.acts_for_copies(layout::kLanes - 1, 0), there[0]));
  for (size_t r = 0; r < others.size(); ++r) {
    std::vector<Value*> heard;
    for (size_t p = 0; p < parts; ++p)
      for (auto* w : gpu_.receive(place(member, others[r], p), there[r])) heard.push_back(w);
    auto* index = b_.CreateTrunc(others[r], i32);
    auto* has_place = places % block ? b_.CreateICmpULT(index, b_.getInt32(static_cast<uint32_t>(places))) : nullptr;
    for (size_t i = 0, w = 0; i < op.results.size(); ++i) {
      auto* type = scalar(op.operands[i + 4])->getType();
      const auto bits = static_cast<unsigned>(type->getPrimitiveSizeInBits());
      Value* v = heard[w++];
      if (bits > 32)
        v = b_.CreateOr(b_.CreateZExt(v, b_.getInt64Ty()),
                        b_.CreateShl(b_.CreateZExt(heard[w++], b_.getInt64Ty()), 32));
      v = b_.CreateBitCast(b_.CreateZExtOrTrunc(v, b_.getIntNTy(bits)), type);
      shared_.store(offset(index, i), std::span<Value* const>(&v, 1), dtypes[i], has_place);
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
