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

using Batch = ProductSizes::Batch;

// A product of matrices for each index of the batch.
struct Product {
  Matrix a, b, c;
  std::vector<Batch> batches;
};

Product product_of(const ProductSizes& sizes, const Operand& a, const Operand& b, const Operand& c) {
  auto matrix = [](const Operand& o) {
    const size_t r = o.shape.size();
    return Matrix{o.shape[r - 2], o.shape[r - 1], o.strides[r - 2], o.strides[r - 1]};
  };
  Product out{matrix(a), matrix(b), matrix(c), sizes.batch};
  std::erase_if(out.batches, [](const Batch& d) { return d.size == 1; });
  return out;
}

// Rows that go on over the innermost batch dimensions.
void fold_rows(Product& p) {
  while (!p.batches.empty()) {
    const Batch& last = p.batches.back();
    if (last.b != 0) return;
    if (p.a.rows == 1) {
      p.a.rs = last.a;
      p.c.rs = last.c;
    } else if (last.a != p.a.rows * p.a.rs || last.c != p.c.rows * p.c.rs) {
      return;
    }
    Matrix a = p.a, c = p.c;
    a.rows *= last.size;
    c.rows *= last.size;
    if ((p.a.addressable() && !a.addressable()) || (p.c.addressable() && !c.addressable())) return;
    p.a = a;
    p.c = c;
    p.batches.pop_back();
  }
}

// Matrices that no leading dimension describes, row by row or column by column.
void peel(Product& p) {
  auto peel_rows = [&] {
    p.batches.push_back({p.c.rows, p.a.rs, 0, p.c.rs});
    p.a.rows = p.c.rows = 1;
  };
  auto peel_columns = [&] {
    p.batches.push_back({p.c.cols, 0, p.b.cs, p.c.cs});
    p.b.cols = p.c.cols = 1;
  };
  if (!p.a.addressable() && p.a.rows > 1) peel_rows();
  if (!p.b.addressable() && p.b.cols > 1) peel_columns();
  if (!p.c.addressable() && p.c.rows <= p.c.cols) peel_rows();
  if (!p.c.addressable()) peel_columns();
}

// The matrices of a call, whose `swapped` is set: c as it is, or transposed (c' = b' a'). False: there is none that
// cuBLAS can address.
bool store_matrices(const Product& p, GemmProblem& out) {
  const auto left = stored(out.swapped ? p.b.transposed() : p.a, true),
             right = stored(out.swapped ? p.a.transposed() : p.b, true),
             result = stored(out.swapped ? p.c.transposed() : p.c, false);
  if (!left || !right || !result) return false;
  out.a = *left;
  out.b = *right;
  out.c = *result;
  out.m = out.swapped ? p.c.cols : p.c.rows;
  out.n = out.swapped ? p.c.rows : p.c.cols;
  return true;
}

// Dimensions along which all three go on at one distance.
void merge(std::vector<Batch>& batches) {
  for (size_t d = batches.size(); d-- > 1;) {
    const Batch inner = batches[d];
    Batch& outer = batches[d - 1];
    if (outer.a != inner.size * inner.a || outer.b != inner.size * inner.b || outer.c != inner.size * inner.c) continue;
    outer = {outer.size * inner.size, inner.a, inner.b, inner.c};
    batches.erase(batches.begin() + static_cast<std::ptrdiff_t>(d));
  }
}

// The largest dimension is the batch of a call, the others repeat it.
void store_batches(std::vector<Batch> batches, GemmProblem& out) {
  if (out.swapped)
    for (Batch& d : batches) std::swap(d.a, d.b);
  const auto largest =
      std::max_element(batches.begin(), batches.end(), [](const Batch& x, const Batch& y) { return x.size < y.size; });
  if (largest != batches.end()) {
    out.batch = largest->size;
    out.a.batch_stride = largest->a;
    out.b.batch_stride = largest->b;
    out.c.batch_stride = largest->c;
    batches.erase(largest);
  }
  out.repeats = {{}};
  for (const Batch& d : batches) {
    std::vector<GemmOffsets> more;
    for (const GemmOffsets& r : out.repeats)
      for (int64_t i = 0; i < d.size; ++i) more.push_back({r.a + i * d.a, r.b + i * d.b, r.c + i * d.c});
    out.repeats = std::move(more);
  }
}

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
  TESSERA_ASSIGN(const ProductSizes sizes, product_sizes(a, b, c, name));
  GemmProblem out;
  out.k = sizes.k;
  if (sizes.empty()) return out;
  Product p = product_of(sizes, a, b, c);
  const bool biased = bias_dim >= 0, rows_biased = biased && bias_dim == static_cast<int>(c.shape.size()) - 2;
  if (!rows_biased) fold_rows(p);
  peel(p);
  out.swapped = p.c.transposed().column_major() && !(p.c.column_major() && rows_biased);
  out.bias_along_rows =
      biased && (out.swapped ? !rows_biased && p.c.cols == sizes.n : rows_biased && p.c.rows == sizes.m);
  if (!store_matrices(p, out))
    return Diagnostic(ErrorCode::UnsupportedFeature,
                      "product '" + name +
                          "': cuBLAS cannot address an operand whose elements repeat along the summed "
                          "dimension or whose result's elements overlap");
  merge(p.batches);
  store_batches(std::move(p.batches), out);
  out.base = {out.swapped ? b.offset : a.offset, out.swapped ? a.offset : b.offset, c.offset};
  return out;
}

} // namespace tessera::cuda
