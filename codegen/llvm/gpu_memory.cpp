// Vector accesses of up to 16 bytes, as words, where the layout allows.
#include "codegen/llvm/gpu_memory.h"
#include "base/check.h"

namespace tessera::gpu {

Status Memory::load(tile::OpId id) {
  if (layouts_.windows[static_cast<size_t>(id)].width > 0) return windows_.load(id);
  const auto& op = kernel_.op(id);
  auto pointer = op.operands[0], result = op.results[0];
  DType dtype = kernel_.type(result).dtype;
  size_t n = register_count(result);
  int width = layouts_.access_width[static_cast<size_t>(id)], count = 0;
  auto* word = words_.type(dtype, width, &count);
  auto offsets = registers(op.operands[1], n);
  Registers masks, others, out;
  if (op.operands.size() > 2) masks = registers(op.operands[2], n);
  if (op.operands.size() > 3) others = registers(op.operands[3], n);
  bool shared = accesses_.is_scratch(pointer);
  auto stability = accesses_.stability_of(pointer);
  accesses_.order(GlobalAccess::Kind::Read, op);
  const bool splits = layouts_.splits[static_cast<size_t>(id)];
  Parts part;
  if (splits) part = accesses_.parts(masks, width);
  Accesses::Groups groups; // words, by access
  for (size_t r = 0; r < n; r += static_cast<size_t>(width)) {
    Value* predicate = masks.empty() ? nullptr : splits ? part.whole[groups.size()] : masks[r];
    std::vector<Value*> other;
    if (!others.empty()) other = words_.pack(std::span<Value* const>(&others[r], static_cast<size_t>(width)), dtype);
    std::vector<Value*> words;
    if (is_never(predicate)) {
      words =
          other.empty() ? std::vector<Value*>(static_cast<size_t>(count), llvm::Constant::getNullValue(word)) : other;
    } else if (shared) {
      Value* offset = offsets[r];
      if (predicate) offset = b_.CreateSelect(predicate, offset, math_.integer_like(offset, 0));
      words = gpu_.load_shared(accesses_.address(pointer, offset), word, count);
      for (size_t w = 0; predicate && w < words.size(); ++w)
        words[w] = b_.CreateSelect(predicate, words[w], other.empty() ? math_.integer_like(words[w], 0) : other[w]);
    } else {
      words = gpu_.load_global(accesses_.address(pointer, offsets[r]), word, count, predicate, other, stability,
                               op.caching);
    }
    groups.push_back(std::move(words));
  }
  if (splits) accesses_.load_rest(op, part, width, groups);
  for (const auto& words : groups)
    for (auto* v : words_.unpack(words, dtype, width)) out.push_back(v);
  for (size_t r = 0; others.empty() && r < masks.size();
       ++r) // elements that are never read are constants, which later operations fold
    if (is_never(masks[r])) out[r] = llvm::Constant::getNullValue(out[r]->getType());
  define(result, std::move(out));
  return {};
}

Status Memory::store(tile::OpId id) {
  const auto& op = kernel_.op(id);
  auto pointer = op.operands[0], offset = op.operands[1];
  DType dtype = kernel_.type(pointer).dtype;
  size_t n = register_count(offset);
  int width = layouts_.access_width[static_cast<size_t>(id)];
  auto offsets = registers(offset, n), values = registers(op.operands[2], n);
  Registers masks;
  if (op.operands.size() > 3) masks = registers(op.operands[3], n);
  auto streaming = kernel_.config.find("streaming");
  const bool streams = streaming != kernel_.config.end() && streaming->second != 0;
  accesses_.order(GlobalAccess::Kind::Write, op);
  auto* acts = accesses_.acts_for(offset);
  const bool splits = layouts_.splits[static_cast<size_t>(id)];
  Parts part;
  if (splits) part = accesses_.parts(masks, width);
  for (size_t r = 0; r < n; r += static_cast<size_t>(width)) {
    Value* mask = masks.empty() ? nullptr : splits ? part.whole[r / static_cast<size_t>(width)] : masks[r];
    Value* predicate = both(b_, mask, acts);
    if (predicate && is_never(predicate)) continue;
    auto words = words_.pack(std::span<Value* const>(&values[r], static_cast<size_t>(width)), dtype);
    auto* at = accesses_.address(pointer, offsets[r]);
    if (accesses_.is_scratch(pointer))
      gpu_.store_shared(at, words, predicate);
    else
      gpu_.store_global(at, words, predicate, streams);
  }
  if (splits)
    accesses_.rest_of(part, [&] {
      for (size_t r = 0; r < n; ++r) {
        auto* mask = b_.CreateAnd(masks[r], b_.CreateNot(part.whole[r / static_cast<size_t>(width)]));
        if (is_never(mask)) continue;
        gpu_.store_global(accesses_.address(pointer, offsets[r]),
                          words_.pack(std::span<Value* const>(&values[r], 1), dtype), both(b_, mask, acts), streams);
      }
    });
  return {};
}

Status Memory::atomic(tile::OpId id) {
  const auto& op = kernel_.op(id);
  auto pointer = op.operands[0], offset = op.operands[1];
  DType dtype = kernel_.type(pointer).dtype;
  if (info(dtype).bits < 32) return error("atomic update of " + std::string(name(dtype)));
  if (accesses_.is_scratch(pointer)) return error("atomic update of scratch");
  size_t n = register_count(offset);
  auto offsets = registers(offset, n), values = registers(op.operands[2], n);
  Registers masks;
  if (op.operands.size() > 3) masks = registers(op.operands[3], n);
  accesses_.order(GlobalAccess::Kind::Atomic, op);
  auto* acts = accesses_.acts_for(offset);
  // A vector whose elements have masks of their own is updated element by element.
  const auto width = layouts_.splits[static_cast<size_t>(id)]
                         ? 1
                         : static_cast<size_t>(layouts_.access_width[static_cast<size_t>(id)]);
  for (size_t r = 0; r < n; r += width)
    gpu_.atomic(irgen::atomic_kind(op.reduce, dtype), accesses_.address(pointer, offsets[r]),
                std::span<Value* const>(&values[r], width), both(b_, masks.empty() ? nullptr : masks[r], acts));
  return {};
}

void Memory::prefetch(const tile::Op& op) {
  if (accesses_.is_scratch(op.operands[0])) return;
  auto* acts = accesses_.acts_for(op.operands[1]);
  for (auto* offset : registers(op.operands[1])) gpu_.prefetch(accesses_.address(op.operands[0], offset), acts);
}

} // namespace tessera::gpu
