#include "codegen/llvm/gpu_dot.h"
#include "base/check.h"
#include "codegen/layout/dot.h"

namespace tessera::gpu {

using layout::Conversion;
using layout::Dim;
using layout::LinearLayout;

// An operand of a dot: in registers, or in shared memory, from which it is read as needed.
struct Dots::Factor {
  DType dtype;
  Registers words; // 32 bits of elements each; null until they are read
  std::optional<Staged> staged;
};

Status Dots::dot(const tile::Op& op) { return layout::on_tensor_cores(kernel_, op) ? on_tensor_cores(op) : by_fma(op); }

Status Dots::prepare(const tile::Op& op, std::span<const LinearLayout> layouts, std::vector<Factor>& out) {
  std::array<Conversion, 2> plans;
  int64_t bytes = 0;
  for (size_t i = 0; i < 2; ++i) {
    if (pipelining_.staged(op.operands[i])) continue;
    plans[i] = layout::plan_conversion(layouts_[op.operands[i]], layouts[i],
                                       element_bytes(kernel_.type(op.operands[i]).dtype));
    if (plans[i].kind == Conversion::Kind::Shared) bytes += plans[i].shared_bytes;
  }
  int64_t region = 0;
  if (bytes > 0) {
    TESSERA_ASSIGN(region, shared_.region(bytes));
  }
  int64_t at = region;
  for (size_t i = 0; i < 2; ++i) {
    const DType dtype = kernel_.type(op.operands[i]).dtype;
    const auto count = static_cast<size_t>(layouts[i].registers()),
               each = static_cast<size_t>(layout::mma_word_elements(dtype));
    out.push_back({dtype, Registers(count / each), std::nullopt});
    if (const auto* staged = pipelining_.staged(op.operands[i])) {
      out[i].staged = *staged;
      continue;
    }
    const auto& source = registers(op.operands[i]);
    if (plans[i].kind == Conversion::Kind::Shared) {
      int64_t size = plans[i].shared_bytes;
      out[i].staged = conversions_.stage(source, std::move(plans[i]), dtype, at);
      at += size;
      continue;
    }
    auto here = conversions_.exchanged(source, plans[i], count);
    for (size_t r = 0; r < count; r += each)
      out[i].words[r / each] = words_.pack(std::span<Value* const>(&here[r], each), dtype)[0];
  }
  if (bytes > 0) {
    shared_.barrier();
    c_.hazards.touch_shared({region, region + bytes});
  }
  return {};
}

llvm::Value* Dots::word(Factor& f, size_t reg) {
  const auto each = static_cast<size_t>(layout::mma_word_elements(f.dtype));
  const size_t index = reg / each;
  if (f.words[index]) return f.words[index];
  auto step = std::max(each, static_cast<size_t>(f.staged->plan.load_step()));
  size_t first = reg / step * step;
  Registers loaded;
  while (loaded.size() < step)
    for (auto* e : conversions_.staged_registers(*f.staged, first + loaded.size())) loaded.push_back(e);
  for (size_t r = 0; r < step; r += each)
    f.words[(first + r) / each] = words_.pack(std::span<Value* const>(&loaded[r], each), f.dtype)[0];
  return f.words[index];
}

namespace {

// Registers of a layout by the element that they hold: the first registers of fragments.
std::map<std::pair<int, int>, size_t> by_position(const LinearLayout& l) {
  std::map<std::pair<int, int>, size_t> found;
  for (int r = 0; r < l.registers(); ++r)
    found[{l.apply(Dim::Register, r, Dim::Axis0), l.apply(Dim::Register, r, Dim::Axis1)}] = static_cast<size_t>(r);
  return found;
}

} // namespace

Status Dots::on_tensor_cores(const tile::Op& op) {
  auto layouts = layout::dot_layouts(kernel_, op, layouts_.warps);
  std::vector<Factor> factors;
  std::array<LinearLayout, 2> wanted = {layouts.a, layouts.b};
  TESSERA_TRY(prepare(op, wanted, factors));
  Registers sums = registers(op.operands[2], register_count(op.results[0]));
  auto a_at = by_position(layouts.a), b_at = by_position(layouts.b), c_at = by_position(layouts.c);
  const int depth = kernel_.type(op.operands[0]).shape[1], step = layout::mma_depth(factors[0].dtype), half = step / 2;
  // The depth loop is outermost: consecutive products are independent, and few operand registers are live at a time.
  for (int k = 0; k < depth; k += step)
    for (auto [position, c] : c_at) {
      auto [row, column] = position;
      if (row % layout::kMmaRows != 0 || column % layout::kMmaColumns != 0) continue;
      std::array<Value*, 4> a{}, sum{};
      std::array<Value*, 2> b{};
      for (size_t i = 0; i < 4; ++i) a[i] = word(factors[0], a_at.at({row + (i % 2 ? 8 : 0), k + (i / 2 ? half : 0)}));
      for (size_t i = 0; i < 2; ++i) b[i] = word(factors[1], b_at.at({k + (i ? half : 0), column}));
      for (size_t i = 0; i < 4; ++i) sum[i] = sums[c + i];
      sum = gpu_.multiply(factors[0].dtype, factors[1].dtype, a, b, sum);
      for (size_t i = 0; i < 4; ++i) sums[c + i] = sum[i];
    }
  define(op.results[0], std::move(sums));
  return {};
}

// Both operands are in shared memory, row by row; in a loop along the depth each thread reads what its sums need.
Status Dots::by_fma(const tile::Op& op) {
  auto result = op.results[0];
  const auto &at = kernel_.type(op.operands[0]), &bt = kernel_.type(op.operands[1]);
  DType sum_type = kernel_.type(result).dtype;
  auto element = int64_t{element_bytes(at.dtype)}; // and of the other operand, as tile::verify requires
  int64_t a_bytes = (at.count() * element + 15) / 16 * 16, bytes = a_bytes + bt.count() * element;
  TESSERA_ASSIGN(int64_t region, shared_.region(bytes));
  auto scaled = [&](Value* row, Value* column, int columns, int64_t start) { // byte offset
    auto* index = b_.CreateAdd(b_.CreateMul(row, b_.getInt32(static_cast<uint32_t>(columns))), column);
    return b_.CreateAdd(b_.CreateMul(index, b_.getInt32(static_cast<uint32_t>(element))),
                        b_.getInt32(static_cast<uint32_t>(start)));
  };
  for (size_t i = 0; i < 2; ++i) {
    const auto& l = layouts_[op.operands[i]];
    auto *row = positions_.thread_part(l, Dim::Axis0), *column = positions_.thread_part(l, Dim::Axis1);
    auto* acts = positions_.acts_for_copies(l.free_mask(Dim::Lane), l.free_mask(Dim::Warp));
    const auto& source = registers(op.operands[i]);
    for (int r = 0; r < l.registers(); ++r) {
      auto* offset = scaled(positions_.position(l, Dim::Axis0, r, row), positions_.position(l, Dim::Axis1, r, column),
                            i == 0 ? at.shape[1] : bt.shape[1], region + (i == 0 ? 0 : a_bytes));
      shared_.store(offset, std::span<Value* const>(&source[static_cast<size_t>(r)], 1),
                    kernel_.type(op.operands[i]).dtype, acts);
    }
  }
  shared_.barrier();
  c_.hazards.touch_shared({region, region + bytes});

  const auto& l = layouts_[result];
  Registers first = registers(op.operands[2], register_count(result)), sums;
  auto *before = b_.GetInsertBlock(), *body = llvm::BasicBlock::Create(b_.getContext(), "product", c_.function),
       *after = llvm::BasicBlock::Create(b_.getContext(), "multiplied", c_.function);
  auto *row = positions_.thread_part(l, Dim::Axis0), *column = positions_.thread_part(l, Dim::Axis1);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  auto* k = b_.CreatePHI(b_.getInt32Ty(), 2);
  k->addIncoming(b_.getInt32(0), before);
  for (auto* v : first) {
    auto* phi = b_.CreatePHI(v->getType(), 2);
    phi->addIncoming(v, before);
    sums.push_back(phi);
  }
  std::map<int, Value*> a, b; // by the register's part of row and column
  Registers next;
  for (int r = 0; r < l.registers(); ++r) {
    auto read = [&](std::map<int, Value*>& known, Dim dim, DType dtype, auto offset) -> Value* {
      auto& v = known[l.apply(Dim::Register, r, dim)];
      if (!v) v = math_.cast(shared_.load(offset(), dtype, 1)[0], dtype, sum_type);
      return v;
    };
    auto* x = read(a, Dim::Axis0, at.dtype,
                   [&] { return scaled(positions_.position(l, Dim::Axis0, r, row), k, at.shape[1], region); });
    auto* y = read(b, Dim::Axis1, bt.dtype, [&] {
      return scaled(k, positions_.position(l, Dim::Axis1, r, column), bt.shape[1], region + a_bytes);
    });
    auto* sum = sums[static_cast<size_t>(r)];
    next.push_back(is_float(sum_type) ? math_.fma(x, y, sum) : b_.CreateAdd(b_.CreateMul(x, y), sum));
  }
  auto* k_next = b_.CreateAdd(k, b_.getInt32(1));
  auto* end = b_.GetInsertBlock();
  k->addIncoming(k_next, end);
  for (size_t r = 0; r < next.size(); ++r) llvm::cast<llvm::PHINode>(sums[r])->addIncoming(next[r], end);
  b_.CreateCondBr(b_.CreateICmpULT(k_next, b_.getInt32(static_cast<uint32_t>(at.shape[1]))), body, after);
  b_.SetInsertPoint(after);
  define(result, std::move(next));
  return {};
}

} // namespace tessera::gpu
