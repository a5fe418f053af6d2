#include "runtime/cuda/library_gemm.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

// One matrix of a product: rows x cols at element strides.
struct Matrix {
  int64_t rows, cols, rs, cs;
  [[nodiscard]] Matrix transposed() const { return {cols, rows, cs, rs}; }
  // Columns dense, and each beyond the one before.
  [[nodiscard]] bool column_major() const {
    return (rows <= 1 || rs == 1) && (cols <= 1 || cs >= std::max<int64_t>(1, rows));
  }
  [[nodiscard]] bool addressable() const { return column_major() || transposed().column_major(); }
};

std::optional<GemmMatrix> stored(const Matrix& x, bool may_transpose) {
  auto make = [](const Matrix& y, bool transposed) {
    int64_t ld = y.cols <= 1 ? std::max<int64_t>(1, y.rows) : y.cs;
    return GemmMatrix{transposed, y.rows, y.cols, ld, 0};
  };
  if (x.column_major()) return make(x, false);
  if (may_transpose && x.transposed().column_major()) return make(x.transposed(), true);
  return std::nullopt;
}

struct Batch {
  int64_t size, a, b, c;
};

} // namespace

std::vector<GemmOffsets> GemmProblem::all() const {
  std::vector<GemmOffsets> out;
  for (const auto& r : repeats)
    for (int64_t i = 0; i < batch; ++i)
      out.push_back(
          {base.a + r.a + i * a.batch_stride, base.b + r.b + i * b.batch_stride, base.c + r.c + i * c.batch_stride});
  return out;
}

Result<GemmProblem> describe_gemm(const Operand& a, const Operand& b, const Operand& c, int bias_dim,
                                  const std::string& name) {
  TESSERA_ASSIGN(const auto sizes, product_sizes(a, b, c, name));
  const auto [m, n, k] = sizes;
  const size_t rank = c.shape.size();
  auto matrix = [](const Operand& o) {
    size_t r = o.shape.size();
    return Matrix{o.shape[r - 2], o.shape[r - 1], o.strides[r - 2], o.strides[r - 1]};
  };
  Matrix ma = matrix(a), mb = matrix(b), mc = matrix(c);

  std::vector<Batch> batches;
  bool empty = m == 0 || n == 0;
  for (size_t d = 0; d + 2 < rank; ++d) {
    auto stride = [&](const Operand& o) {
      size_t missing = rank - o.shape.size();
      if (d < missing || o.shape[d - missing] == 1) return int64_t{0};
      return o.strides[d - missing];
    };
    empty = empty || c.shape[d] == 0;
    if (c.shape[d] != 1) batches.push_back({c.shape[d], stride(a), stride(b), c.strides[d]});
  }
  GemmProblem out;
  out.k = k;
  if (empty) return out;

  // Rows that go on over the innermost batch dimensions.
  bool rows_biased = bias_dim >= 0 && bias_dim == static_cast<int>(rank) - 2;
  while (!batches.empty() && !rows_biased) {
    const Batch& last = batches.back();
    if (last.b != 0) break;
    if (ma.rows == 1) {
      ma.rs = last.a;
      mc.rs = last.c;
    } else if (last.a != ma.rows * ma.rs || last.c != mc.rows * mc.rs) {
      break;
    }
    Matrix longer_a = ma, longer_c = mc;
    longer_a.rows *= last.size;
    longer_c.rows *= last.size;
    if ((ma.addressable() && !longer_a.addressable()) || (mc.addressable() && !longer_c.addressable())) break;
    ma = longer_a;
    mc = longer_c;
    batches.pop_back();
  }

  // Matrices that no leading dimension describes, row by row or column by column.
  auto peel_rows = [&] {
    batches.push_back({mc.rows, ma.rs, 0, mc.rs});
    ma.rows = mc.rows = 1;
  };
  auto peel_columns = [&] {
    batches.push_back({mc.cols, 0, mb.cs, mc.cs});
    mb.cols = mc.cols = 1;
  };
  if (!ma.addressable() && ma.rows > 1) peel_rows();
  if (!mb.addressable() && mb.cols > 1) peel_columns();
  if (!mc.addressable() && mc.rows <= mc.cols) peel_rows();
  if (!mc.addressable()) peel_columns();

  // c as it is, or transposed: c' = b' a'.
  bool as_is = mc.column_major(), turned = mc.transposed().column_major();
  bool columns_biased = bias_dim >= 0 && !rows_biased && mc.cols == n;
  out.swapped = turned && !(as_is && rows_biased);
  out.bias_along_rows = bias_dim >= 0 && (out.swapped ? columns_biased : rows_biased && mc.rows == m);
  auto left = stored(out.swapped ? mb.transposed() : ma, true),
       right = stored(out.swapped ? ma.transposed() : mb, true),
       result = stored(out.swapped ? mc.transposed() : mc, false);
  if (!left || !right || !result)
    return Diagnostic(ErrorCode::UnsupportedFeature,
                      "product '" + name +
                          "': cuBLAS cannot address an operand whose elements repeat along the summed "
                          "dimension or whose result's elements overlap");
  out.a = *left;
  out.b = *right;
  out.c = *result;
  out.m = out.swapped ? mc.cols : mc.rows;
  out.n = out.swapped ? mc.rows : mc.cols;

  // Merge batch dimensions, then the largest is the batch of a call.
  for (size_t d = batches.size(); d-- > 1;) {
    const Batch inner = batches[d];
    Batch& outer = batches[d - 1];
    if (outer.a != inner.size * inner.a || outer.b != inner.size * inner.b || outer.c != inner.size * inner.c) continue;
    outer = {outer.size * inner.size, inner.a, inner.b, inner.c};
    batches.erase(batches.begin() + static_cast<std::ptrdiff_t>(d));
  }
  auto largest =
      std::max_element(batches.begin(), batches.end(), [](const Batch& x, const Batch& y) { return x.size < y.size; });
  if (largest != batches.end()) {
    out.batch = largest->size;
    out.a.batch_stride = out.swapped ? largest->b : largest->a;
    out.b.batch_stride = out.swapped ? largest->a : largest->b;
    out.c.batch_stride = largest->c;
    batches.erase(largest);
  }
  out.base = {out.swapped ? b.offset : a.offset, out.swapped ? a.offset : b.offset, c.offset};
  out.repeats = {{}};
  for (const auto& d : batches) {
    std::vector<GemmOffsets> more;
    for (const auto& r : out.repeats)
      for (int64_t i = 0; i < d.size; ++i)
        more.push_back({r.a + i * (out.swapped ? d.b : d.a), r.b + i * (out.swapped ? d.a : d.b), r.c + i * d.c});
    out.repeats = std::move(more);
  }
  return out;
}

} // namespace tessera::cuda
