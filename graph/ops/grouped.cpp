// grouped_matmul: products of groups of consecutive rows, or of consecutive parts of the depth, by one matrix each. The
// layers of a mixture of experts are products of groups of rows; gradients of their weights are the other form.
//
//   rows    a [T, K], b [G, K, N], y [T, N]    y[t] = a[t] b[g] for the rows t of group g, 0 for rows of none
//   depth   a [M, T], b [T, N], y [G, M, N]    y[g] = the sum of a[:, t] b[t] over the t of group g
//
// Group g has the indices from ends[g - 1], the first one from 0, to ends[g]. Ends do not decrease, and none is read
// beyond: what is outside of 0 to T belongs to no group.
#include "graph/ops/grouped.h"

namespace tessera {

namespace {
using namespace ops;

Status infer_grouped(InferContext& c) {
  const SymShape &a = c.shape(0), &b = c.shape(1), &ends = c.shape(2);
  const bool rows = b.size() == 3;
  if (a.size() != 2 || (!rows && b.size() != 2) || ends.size() != 1)
    return c.error(ErrorCode::ShapeMismatch,
                   "a grouped product takes a matrix, a matrix or one for each group, and the ends of groups, not " +
                       str(a) + ", " + str(b) + " and " + str(ends));
  TESSERA_TRY(c.env().require_equal(a.back(), b[b.size() - 2], "columns of the first matrix and rows of the second",
                                    c.node.location));
  if (rows) TESSERA_TRY(c.env().require_equal(ends[0], b[0], "ends of groups and matrices", c.node.location));
  return set_result(c, product_dtype(c.type(0).dtype, c.node),
                    rows ? SymShape{a[0], b.back()} : SymShape{ends[0], a[0], b.back()});
}

Status reference_grouped(ReferenceContext& c) {
  const Tensor &a = c.operands[0], &b = c.operands[1], &ends = c.operands[2];
  const bool rows = b.dims().size() == 3;
  const int64_t m = a.dims()[0], k = a.dims()[1], n = b.dims().back(), groups = ends.count(), all = rows ? m : k;
  TESSERA_ASSIGN(Tensor y, Tensor::create(product_dtype(a.dtype(), c.node), rows ? Dims{m, n} : Dims{groups, m, n}));
  for (int64_t i = 0; i < y.count(); ++i) y.set_f64(i, 0);
  auto product = [&](int64_t row, int64_t column, int64_t first_of_b, int64_t from, int64_t to) {
    double sum = 0;
    for (int64_t p = from; p < to; ++p) sum += a.get_f64(row * k + p) * b.get_f64((first_of_b + p) * n + column);
    return sum;
  };
  for (int64_t g = 0, begin = 0, end = 0; g < groups; ++g, begin = end) {
    end = std::clamp(ends.get_i64(g), begin, all);
    for (int64_t i = rows ? begin : 0; i < (rows ? end : m); ++i)
      for (int64_t j = 0; j < n; ++j)
        y.set_f64(((rows ? 0 : g * m) + i) * n + j, rows ? product(i, j, g * k, 0, k) : product(i, j, 0, begin, end));
  }
  c.results = {y};
  return {};
}

std::vector<Sample> grouped_samples() {
  std::vector<Sample> out;
  uint64_t seed = 1;
  auto add = [&](DType d, Dims a, Dims b, std::initializer_list<int64_t> ends, DType index = DType::I32,
                 Attributes at = {}) {
    const auto groups = static_cast<int64_t>(ends.size());
    Tensor x = random(d, std::move(a), seed++), y = random(d, std::move(b), seed++);
    out.push_back(sample({x, y, integers(index, {groups}, ends)}, std::move(at)));
  };
  for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
    add(d, {7, 4}, {3, 4, 5}, {2, 2, 7});        // a group without rows
    add(d, {5, 8}, {1, 8, 3}, {5}, DType::I64);  // one group
    add(d, {6, 3}, {4, 3, 2}, {1, 2, 3, 4});     // rows of no group
    add(d, {0, 4}, {2, 4, 5}, {0, 0});           // no rows
    add(d, {3, 0}, {2, 0, 5}, {1, 3});           // no depth
    add(d, {70, 17}, {3, 17, 33}, {65, 66, 70}); // more than a tile
    add(d, {3, 7}, {7, 5}, {2, 2, 7});           // of the depth
    add(d, {4, 6}, {6, 3}, {1, 4}, DType::I64);  // some of it in no group
    add(d, {3, 0}, {0, 2}, {0, 0});              // none
    add(d, {33, 70}, {70, 17}, {65, 65, 66, 70});
  }
  for (DType d : {DType::F16, DType::BF16}) add(d, {7, 4}, {3, 4, 5}, {2, 2, 7}, DType::I32, {{"wide", int64_t{1}}});
  return out;
}

OpDef grouped_matmul_record() {
  OpDef def;
  def.name = "grouped_matmul";
  def.summary = "products of groups of rows by a matrix each, or a product for each group of the depth";
  def.operands = {{"a", TypeSet::Float}, {"b", TypeSet::SameAsFirst}, {"ends", TypeSet::Index}};
  def.attributes = {{"tf32", AttrKind::Int, false}, {"wide", AttrKind::Int, false}}; // as of matmul
  def.infer = infer_grouped;
  def.meaning = StructuredOp{Structured::GroupedMatmul};
  def.reference = reference_grouped;
  def.samples = grouped_samples;
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    const Tensor ends = integers(DType::I32, {2}, {1, 3});
    return std::vector<ErrorSample>{
        wrong({r({3, 4}), r({2, 5, 2}), ends}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({3, 4}), r({3, 4, 2}), ends}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({2, 3, 4}), r({2, 4, 2}), ends}, {}, ErrorCode::ShapeMismatch, "grouped"),
        wrong({r({3, 4}), random(DType::F64, {2, 4, 2}), ends}, {}, ErrorCode::TypeMismatch, "first operand"),
        wrong({r({3, 4}), r({2, 4, 2}), r({2})}, {}, ErrorCode::TypeMismatch, ""),
    };
  };
  return def;
}

} // namespace

void register_grouped_ops(OpTable& table) { table.add(grouped_matmul_record()); }

} // namespace tessera
