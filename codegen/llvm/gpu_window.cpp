// Unaligned vector loads. For example elements 10 to 17 of two bytes each, where 8 elements are one aligned access of
// 16 bytes: they are extracted from two aligned accesses, by their offset (shift) in the first one.
//
//   words of two elements    8 9 | 10 11 | 12 13 | 14 15 || 16 17 | 18 19 | 20 21 | 22 23     start at 10: shift 2
//   the window                     ^^^^^   ^^^^^   ^^^^^    ^^^^^
//
// w consecutive windows take w + 1 aligned accesses. The shift is a run-time value: whole words are selected among
// registers, one bit of the shift at a time; the part below a word is a funnel shift of register pairs.
//
// Only aligned accesses that contain requested elements are read, and nothing beyond the end of the memory. The
// elements behind the last full aligned access are loaded singly at the start of the kernel, once; an access that would
// reach beyond the end uses them instead. So there is no branch, and operands do not wait for each other. Windows whose
// mask is true for a part are loaded element by element, behind a branch (Parts).
#include "base/check.h"
#include "codegen/llvm/gpu_memory.h"

namespace tessera::gpu {

// Elements [shift, shift + width) of two aligned accesses, as words.
std::vector<llvm::Value*> Windows::window(std::span<Value* const> words, Value* shift, DType dtype, int width) {
  const auto count = words.size() / 2;
  const auto per_word = static_cast<uint32_t>(static_cast<size_t>(width) / count);
  std::vector<Value*> left(words.begin(), words.end());
  // Words behind the window are needed for the remaining smaller steps, and one word for the final shift.
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
    for (size_t i = 0; i < count; ++i) left[i] = math_.numbers().funnel_shift(left[i], left[i + 1], bits);
  }
  left.resize(count);
  return left;
}

// True if all windows of a thread have the same offset from an aligned access.
bool Windows::start_alike(tile::ValueId offset, int width) const {
  auto a = accesses_.affine(offset);
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

llvm::Value* Windows::elements_of(tile::ValueId pointer) const {
  for (const auto& p : kernel_.params)
    if (p.value == pointer && p.elements_value >= 0) return scalar(p.elements_value);
  for (const auto& p : kernel_.params)
    if (p.value == pointer)
      return llvm::ConstantInt::get(llvm::Type::getInt64Ty(b_.getContext()), static_cast<uint64_t>(p.elements));
  return nullptr;
}

// The elements behind the last full aligned access of each pointer with windows, followed by zeros.
void Windows::load_tails() {
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id) {
    const int width = layouts_.windows[static_cast<size_t>(id)].width;
    if (width == 0) continue;
    const auto pointer = kernel_.op(id).operands[0];
    const DType dtype = kernel_.type(pointer).dtype;
    auto& tail = tails_[{pointer, width}];
    auto* elements = elements_of(pointer);
    const auto* known = llvm::dyn_cast<llvm::ConstantInt>(elements);
    if (!tail.empty() || (known && known->getSExtValue() % width == 0)) continue;
    int one = 0;
    auto* single = words_.type(dtype, 1, &one);
    auto* begin = b_.CreateAnd(elements, b_.getInt64(-static_cast<uint64_t>(width)));
    Registers found;
    for (int i = 0; i < width; ++i) {
      auto* at = b_.CreateAdd(begin, b_.getInt64(static_cast<uint64_t>(i)));
      auto* there = b_.CreateICmpSLT(at, elements);
      if (i + 1 == width || there == b_.getFalse()) {
        found.push_back(math_.constant(dtype, 0, 0));
        continue;
      }
      auto words = gpu_.load_global(accesses_.address(pointer, at), single, 1, there, {}, Stability::Invariant,
                                    tile::Caching::Normal);
      found.push_back(words_.unpack(words, dtype, 1)[0]);
    }
    tail = words_.pack(found, dtype);
  }
}

Status Windows::load(tile::OpId id) {
  const auto& op = kernel_.op(id);
  const auto pointer = op.operands[0], result = op.results[0];
  const auto [width, run] = layouts_.windows[static_cast<size_t>(id)];
  const DType dtype = kernel_.type(result).dtype;
  const auto n = register_count(result), each = static_cast<size_t>(width);
  int count = 0;
  auto* word = words_.type(dtype, width, &count);
  const auto words_each = static_cast<size_t>(count);
  const auto offsets = registers(op.operands[1], n);
  Parts part;
  if (op.operands.size() > 2) part = accesses_.parts(registers(op.operands[2], n), width);
  const bool masked = !part.whole.empty();
  accesses_.order(GlobalAccess::Kind::Read, op);
  const std::vector<Value*>& tail = tails_.at({pointer, width});

  auto number = [&](size_t v) { return b_.getInt64(v); };
  Value *shift = nullptr, *begin = nullptr, *last = nullptr; // `last`: offset of the last full aligned access
  auto starts_at = [&](Value* offset) {
    auto* behind = b_.CreateAnd(b_.CreateSExt(offset, b_.getInt64Ty()), number(each - 1));
    shift = b_.CreateTrunc(behind, b_.getInt32Ty());
    begin = accesses_.address(pointer, b_.CreateNeg(behind));
    last = b_.CreateAdd(b_.CreateSub(elements_of(pointer), number(each)), behind);
  };
  const bool alike = start_alike(op.operands[1], width);
  if (alike) starts_at(offsets[0]);
  Accesses::Groups windows;
  for (size_t first = 0; first < n; first += static_cast<size_t>(run)) {
    if (!alike) starts_at(offsets[first]);
    const auto here = windows.size(), several = static_cast<size_t>(run) / each;
    auto* offset = b_.CreateSExt(offsets[first], b_.getInt64Ty());
    std::vector<Value*> words; // of all aligned accesses of the thread's windows
    for (size_t a = 0; a <= several; ++a) {
      auto* at = b_.CreateAdd(offset, number(a * each));
      // A window that starts in this access is within the memory. A window that only ends in it may start at an aligned
      // access and not need it.
      Value* predicate = nullptr;
      if (a == several || (masked && a > 0)) {
        predicate = tail.empty() ? b_.CreateICmpNE(shift, b_.getInt32(0)) : b_.CreateICmpSLE(at, last);
        if (masked) predicate = b_.CreateAnd(predicate, part.whole[here + a - 1]);
      }
      if (masked && a < several)
        predicate = predicate ? b_.CreateOr(predicate, part.whole[here + a]) : part.whole[here];
      for (auto* v :
           gpu_.load_global(b_.CreateGEP(math_.memory_type(dtype), begin, at), word, count, predicate,
                            predicate ? tail : std::vector<Value*>(), accesses_.stability_of(pointer), op.caching))
        words.push_back(v);
    }
    for (size_t w = 0; w < several; ++w)
      windows.push_back(window(std::span<Value* const>(&words[w * words_each], 2 * words_each), shift, dtype, width));
  }
  if (masked) {
    Registers others(n, math_.constant(dtype, 0, 0));
    if (op.operands.size() > 3) others = registers(op.operands[3], n);
    for (size_t w = 0; w < windows.size(); ++w) {
      auto other = words_.pack(std::span<Value* const>(&others[w * each], each), dtype);
      for (size_t i = 0; i < words_each; ++i) windows[w][i] = b_.CreateSelect(part.whole[w], windows[w][i], other[i]);
    }
    accesses_.load_rest(op, part, width, windows);
  }
  Registers out;
  for (const auto& words : windows)
    for (auto* v : words_.unpack(words, dtype, width)) out.push_back(v);
  define(result, std::move(out));
  return {};
}

} // namespace tessera::gpu
