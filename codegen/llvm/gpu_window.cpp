// Loads of neighbours that begin at any alignment: elements 10 to 17 of two bytes each, where 8 make a whole access.
// They are taken out of two accesses, by how far behind the start of the first one they begin:
//
//   words of two elements    8 9 | 10 11 | 12 13 | 14 15 || 16 17 | 18 19 | 20 21 | 22 23     begin at 10: shift 2
//   the window                     ^^^^^   ^^^^^   ^^^^^    ^^^^^
//
// Windows of a run follow each other, so that w of them take w + 1 accesses. The shift is a number of the run time: by
// whole words it chooses among registers, a bit of it at a time, by less than a word it shifts pairs of them.
//
// What is read is what is asked for and its neighbours within whole accesses, nothing beyond the memory's end: the
// second access is not made where nothing of it is wanted, and where it would reach beyond the end, or the mask holds
// for a part of the window, the elements are loaded one by one, behind a branch that few threads take.
#include "codegen/llvm/gpu_emit.h"
#include "graph/support/check.h"

namespace tessera::gpu {

// Elements [shift, shift + width) of two accesses, as words.
std::vector<llvm::Value*> Emitter::window(std::span<Value* const> words, Value* shift, DType dtype, int width) {
  const auto count = words.size() / 2;
  const auto per_word = static_cast<uint32_t>(static_cast<size_t>(width) / count);
  std::vector<Value*> left(words.begin(), words.end());
  // What is behind the window is needed while there are smaller steps to come, and one word to shift from.
  size_t needed = count + (per_word > 1 ? 1 : 0);
  for (size_t step = count / 2; step > 0; step /= 2) {
    auto* moves =
        b_.CreateICmpNE(b_.CreateAnd(shift, b_.getInt32(static_cast<uint32_t>(step) * per_word)), b_.getInt32(0));
    std::vector<Value*> next;
    for (size_t i = 0; i < needed + step - 1; ++i) next.push_back(b_.CreateSelect(moves, left[i + step], left[i]));
    left = std::move(next);
  }
  if (per_word > 1) {
    auto* bits = b_.CreateMul(b_.CreateAnd(shift, b_.getInt32(per_word - 1)),
                              b_.getInt32(static_cast<uint32_t>(info(dtype).bits)), "", true, true);
    for (size_t i = 0; i < count; ++i) left[i] = gpu_->funnel_shift(left[i], left[i + 1], bits);
  }
  left.resize(count);
  return left;
}

// Whether all windows of a thread begin equally far behind a whole access.
bool Emitter::windows_start_alike(tile::ValueId offset, int width) const {
  auto a = affine(offset);
  if (!a) return false;
  const auto& l = layouts_[offset];
  for (int bit = 0; bit < l.in_bits(layout::Dim::Register); ++bit) {
    if (1 << bit < width) continue;
    int64_t apart = 0;
    for (size_t i = 0; i < a->strides.size(); ++i)
      apart += a->strides[i] * l.basis(layout::Dim::Register, bit, layout::axis(static_cast<int>(i)));
    if (apart % width != 0) return false;
  }
  return true;
}

Status Emitter::load_windows(tile::OpId id) {
  const auto& op = kernel_.op(id);
  const auto pointer = op.operands[0], result = op.results[0];
  const auto [width, run] = layouts_.windows[static_cast<size_t>(id)];
  const DType dtype = kernel_.type(result).dtype;
  const auto n = register_count(result), each = static_cast<size_t>(width);
  int count = 0;
  auto* word = word_type(dtype, width, &count);
  const auto offsets = registers(op.operands[1], n);
  Registers masks, others;
  if (op.operands.size() > 2) masks = registers(op.operands[2], n);
  if (op.operands.size() > 3) others = registers(op.operands[3], n);
  const auto stability = stability_of(pointer);
  order(GlobalAccess::Kind::Read, op);

  Value* elements = nullptr; // of the memory
  for (const auto& p : kernel_.params)
    if (p.value == pointer)
      elements = p.elements > 0 ? b_.getInt64(static_cast<uint64_t>(p.elements)) : scalar(p.elements_value);
  auto number = [&](int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); };
  Value *shift = nullptr, *begin = nullptr, *last = nullptr, *shifts = nullptr;
  auto starts_at = [&](Value* offset) {
    offset = b_.CreateSExt(offset, b_.getInt64Ty());
    auto* behind = b_.CreateAnd(offset, number(width - 1));
    shift = b_.CreateTrunc(behind, b_.getInt32Ty());
    shifts = b_.CreateICmpNE(shift, b_.getInt32(0));
    begin = address(pointer, b_.CreateNeg(behind));
    last =
        b_.CreateAdd(b_.CreateSub(elements, number(width)), behind); // offset whose whole access ends with the memory
  };
  const bool alike = windows_start_alike(op.operands[1], width);
  if (alike) starts_at(offsets[0]);

  // By window: its words; whether the mask holds for all of it; whether that, and there are both accesses.
  Groups windows;
  Registers wanted;
  Parts part;
  auto* memory = memory_type(dtype);
  for (size_t first = 0; first < n; first += static_cast<size_t>(run)) {
    if (!alike) starts_at(offsets[first]);
    const auto here = windows.size(), several = static_cast<size_t>(run) / each;
    auto* offset = b_.CreateSExt(offsets[first], b_.getInt64Ty());
    for (size_t w = 0; w < several; ++w) {
      const size_t r = first + w * each;
      Value *all = nullptr, *any = nullptr;
      if (!masks.empty()) {
        all = b_.CreateAnd(masks[r], masks[r + each - 1]); // it holds for an interval
        for (size_t i = r; i < r + each; ++i) any = any ? b_.CreateOr(any, masks[i]) : masks[i];
      }
      auto* next = b_.CreateAdd(offset, number(static_cast<int64_t>((w + 1) * each)));
      auto* there = b_.CreateOr(b_.CreateICmpSLE(next, last), b_.CreateNot(shifts));
      wanted.push_back(all);
      part.whole.push_back(both(all, there));
      auto* rest = both(any, b_.CreateNot(part.whole.back()));
      part.rest = part.rest ? b_.CreateOr(part.rest, rest) : rest;
    }
    std::vector<Value*> words; // of all accesses of the run
    for (size_t a = 0; a <= several; ++a) {
      Value* predicate = a > 0 ? b_.CreateAnd(part.whole[here + a - 1], shifts) : nullptr;
      if (a < several) // the window that begins in it
        predicate = a == 0 || !wanted[here + a] ? wanted[here + a] : b_.CreateOr(predicate, wanted[here + a]);
      auto* at = b_.CreateGEP(memory, begin, b_.CreateAdd(offset, number(static_cast<int64_t>(a * each))));
      for (auto* v : gpu_->load_global(at, word, count, predicate, {}, stability, op.caching)) words.push_back(v);
    }
    for (size_t w = 0; w < several; ++w) {
      const std::span<Value* const> two(&words[w * static_cast<size_t>(count)], 2 * static_cast<size_t>(count));
      auto found = window(two, shift, dtype, width);
      if (wanted[here + w] && (several > 1 || !others.empty())) {
        std::vector<Value*> other;
        if (!others.empty()) other = to_words(std::span<Value* const>(&others[first + w * each], each), dtype);
        for (size_t i = 0; i < found.size(); ++i)
          found[i] = b_.CreateSelect(wanted[here + w], found[i], other.empty() ? integer_like(found[i], 0) : other[i]);
      }
      windows.push_back(std::move(found));
    }
  }

  load_rest(op, part, width, windows);
  Registers out;
  for (const auto& words : windows)
    for (auto* v : from_words(words, dtype, width)) out.push_back(v);
  define(result, std::move(out));
  return {};
}

} // namespace tessera::gpu
