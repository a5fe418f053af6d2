#include "codegen/layout/dot.h"
#include <algorithm>
#include <bit>

namespace tessera::layout {

using tile::Op;
using tile::OpId;
using tile::OpKind;

namespace {

int log2_of(int n) { return std::countr_zero(static_cast<unsigned>(n)); }

// Bases of a layout over two axes, as bit indices of one axis.
struct Bases {
  int row_bits = 0, column_bits = 0;
  std::vector<Bits> registers, lanes, warps;
  void row(std::vector<Bits>& to, int bit) const { to.push_back(Bits{1} << bit); }
  void column(std::vector<Bits>& to, int bit) const { to.push_back(Bits{1} << (row_bits + bit)); }
  void rows(std::vector<Bits>& to, int from, int end) const {
    for (int i = from; i < end; ++i) row(to, i);
  }
  void columns(std::vector<Bits>& to, int from, int end) const {
    for (int i = from; i < end; ++i) column(to, i);
  }
  [[nodiscard]] LinearLayout layout() const {
    std::vector<Bits> all = registers;
    all.insert(all.end(), lanes.begin(), lanes.end());
    all.insert(all.end(), warps.begin(), warps.end());
    return {{{Dim::Register, static_cast<int>(registers.size())},
             {Dim::Lane, kLaneBits},
             {Dim::Warp, static_cast<int>(warps.size())}},
            {{Dim::Axis0, row_bits}, {Dim::Axis1, column_bits}},
            std::move(all)};
  }
};

// True if a row of a product should stay in one warp: it is reduced, or the next product reads it.
bool rows_matter(const tile::Kernel& k) {
  int products = 0;
  bool folds = false;
  for (OpId id = 0; id < k.op_count(); ++id) {
    const Op& op = k.op(id);
    products += op.kind == OpKind::Dot;
    folds = folds || (op.kind == OpKind::Reduce && op.axis == 1 && k.type(op.operands[0]).shape.size() == 2);
  }
  return folds || products > 1;
}

} // namespace

int mma_word_elements(DType dtype) { return 32 / info(dtype).bits; }
int mma_depth(DType dtype) { return 8 * kMmaDepthBytes / info(dtype).bits; }

bool on_tensor_cores(const tile::Kernel& k, const Op& dot) {
  const tile::Type &a = k.type(dot.operands[0]), &b = k.type(dot.operands[1]);
  const bool small_float = a.dtype == DType::F8E4M3FN || a.dtype == DType::F8E5M2;
  const bool multiplies = a.dtype == DType::F16 || a.dtype == DType::BF16 || a.dtype == DType::I8 ||
                          a.dtype == DType::U8 || (small_float && k.config.contains(kSmallFloatProducts));
  return multiplies && a.shape[0] >= kMmaRows && a.shape[1] >= mma_depth(a.dtype) && b.shape[1] >= kMmaColumns;
}

DotLayouts dot_layouts(const tile::Kernel& k, const Op& dot, int warps) {
  const tile::Type &at = k.type(dot.operands[0]), &ct = k.type(dot.results[0]);
  int m = log2_of(ct.shape[0]), n = log2_of(ct.shape[1]), depth = log2_of(at.shape[1]), w = log2_of(warps);
  int most_rows = std::min(w, m - log2_of(kMmaRows)), most_columns = n - log2_of(kMmaColumns);
  int by_rows = most_rows;
  if (!rows_matter(k)) {
    // Elements of both operands that all warps read.
    auto read = [&](int rows) {
      return (int64_t{1} << (std::min(w - rows, most_columns) + m)) + (int64_t{1} << (rows + n));
    };
    for (int rows = most_rows; rows >= std::max(0, w - most_columns); --rows)
      if (read(rows) < read(by_rows)) by_rows = rows;
  }
  int by_columns = std::min(w - by_rows, most_columns), idle = w - by_rows - by_columns;

  Bases a{m, depth, {}, {}, {}}, b{depth, n, {}, {}, {}}, c{m, n, {}, {}, {}};
  const int word = log2_of(mma_word_elements(at.dtype)); // bits of the depth within a register of an operand
  for (Bases* x : {&a, &c}) {
    const int within = x == &a ? word : 1;
    x->columns(x->registers, 0, within);
    x->row(x->registers, 3);
    x->columns(x->registers, within + 2, x == &a ? depth : n - by_columns);
    x->rows(x->registers, 4 + by_rows, m);
    x->columns(x->lanes, within, within + 2);
    x->rows(x->lanes, 0, 3);
    x->rows(x->warps, 4, 4 + by_rows);
  }
  // The two halves of a fragment and the fragment to the right: one ldmatrix loads 16 by 16 of 16 bits.
  b.rows(b.registers, 0, word);
  b.row(b.registers, word + 2);
  b.columns(b.registers, 3, std::min(4, n - by_columns));
  b.rows(b.registers, word + 3, depth);
  b.columns(b.registers, 4, n - by_columns);
  b.rows(b.lanes, word, word + 2);
  b.columns(b.lanes, 0, 3);
  b.warps.resize(static_cast<size_t>(by_rows), 0);
  for (Bases* x : {&b, &c}) x->columns(x->warps, n - by_columns, n);
  a.warps.resize(a.warps.size() + static_cast<size_t>(by_columns), 0);
  for (Bases* x : {&a, &b, &c}) x->warps.resize(x->warps.size() + static_cast<size_t>(idle), 0);
  return {a.layout(), b.layout(), c.layout()};
}

std::optional<LinearLayout> accumulator_layout(const tile::Kernel& k, OpId id, int warps, const WarpgroupPlan* plan) {
  const Op& dot = k.op(id);
  if (plan && plan->has_product(id)) return warpgroup_accumulators(k.type(dot.results[0]).shape, warps);
  if (on_tensor_cores(k, dot)) return dot_layouts(k, dot, warps).c;
  return std::nullopt;
}

std::optional<LinearLayout> left_layout(const tile::Kernel& k, OpId id, int warps, const WarpgroupPlan* plan) {
  if (!plan || !plan->is_computed(id)) return std::nullopt;
  const tile::Type& a = k.type(k.op(id).operands[0]);
  return warpgroup_left_registers(k.type(k.op(id).results[0]).shape, a.shape[1], info(a.dtype).bits, warps);
}

} // namespace tessera::layout
