// Determinants; and the files of losses, signals, random numbers, training and images.
#include "graph/ops/parts.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// Elimination with the largest pivot, written out: each step searches it, takes its row out, and leaves a matrix with a
// row and a column less. Larger matrices than this are left to `det`.
constexpr int64_t kWrittenOut = 24;

Result<std::vector<ValueId>> decompose_det(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId m = b.in(0);
  if (b.rank(m) < 2) b.fail(ErrorCode::ShapeMismatch, "Det takes matrices, not " + str(b.shape(m)));
  if (!b.ok()) return b.failed();
  const int64_t rows = b.rank(m) - 2, columns = rows + 1;
  b.check(b.env().require_equal(b.dim(m, rows), b.dim(m, columns), "rows and columns of a determinant", n.location));
  const auto size = b.env().simplify(b.dim(m, rows)).as_const();
  if (!size || *size > kWrittenOut) return b.done(b.op("det", {m}));
  m = widen(b, m);
  const SymShape shape = b.shape(m);
  ValueId det = expand(b, b.like(m, 1), SymShape(shape.begin(), shape.end() - 2));
  for (int64_t left = *size; left > 0 && b.ok(); --left) {
    ValueId first = slice(b, m, columns, 0, 1);
    ValueId pivot = b.op("argmax", {abs(b, first)}, {{"axes", Ints{rows}}, {"keepdims", int64_t{1}}});
    SymShape along(shape.size(), SymExpr(1));
    along[static_cast<size_t>(rows)] = left;
    ValueId here = eq(b, iota(b, along, rows), pivot);
    ValueId row = sum(b, select(b, here, m, 0.0), {rows}, true), value = slice(b, row, columns, 0, 1);
    ValueId swapped = ne(b, pivot, b.scalar_i(DType::I64, 0));
    ValueId factor = select(b, swapped, neg(b, value), value);
    det = mul(b, det, squeeze(b, factor, {rows, columns}));
    if (left == 1) break;
    ValueId rest = slice(b, select(b, here, slice(b, m, rows, 0, 1), m), rows, 1, left - 1);
    ValueId nothing = eq(b, value, 0.0);
    ValueId share = div(b, slice(b, rest, columns, 0, 1), select(b, nothing, 1.0, value));
    m = sub(b, slice(b, rest, columns, 1, left - 1), mul(b, share, slice(b, row, columns, 1, left - 1)));
  }
  return b.done(cast(b, det, b.dtype(b.in(0))));
}

Status reference_det(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  int64_t n = x.dims().back();
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), Dims(x.dims().begin(), x.dims().end() - 2)));
  for (int64_t m = 0; m < out.count(); ++m) { // elimination with the largest pivot
    std::vector<double> a(static_cast<size_t>(n * n));
    auto at = [&](int64_t i, int64_t j) -> double& { return a[static_cast<size_t>(i * n + j)]; };
    for (int64_t i = 0; i < n * n; ++i) a[static_cast<size_t>(i)] = x.get_f64(m * n * n + i);
    double det = 1;
    for (int64_t k = 0; k < n && det != 0; ++k) {
      int64_t pivot = k;
      for (int64_t i = k + 1; i < n; ++i)
        if (std::fabs(at(i, k)) > std::fabs(at(pivot, k))) pivot = i;
      if (pivot != k) {
        for (int64_t j = 0; j < n; ++j) std::swap(at(k, j), at(pivot, j));
        det = -det;
      }
      det *= at(k, k);
      if (det == 0) break;
      for (int64_t i = k + 1; i < n; ++i) {
        double factor = at(i, k) / at(k, k);
        for (int64_t j = k; j < n; ++j) at(i, j) -= factor * at(k, j);
      }
    }
    out.set_f64(m, det);
  }
  c.results = {out};
  return {};
}

std::vector<Sample> det_samples() {
  std::vector<Sample> out = {sample({random(DType::F32, {3, 3}, 1)}),       sample({random(DType::F64, {2, 4, 4}, 2)}),
                             sample({random(DType::F32, {0, 0}, 2)}),       sample({floats({2, 2}, {1, 2, 2, 4})}),
                             sample({random(DType::F64, {3, 1, 7, 7}, 4)}), sample({random(DType::F16, {2, 2}, 5)}),
                             sample({random(DType::F64, {2, 0, 3, 3}, 6)})};
  for (Sample& s : out) s.tolerance = tolerance(s.operands[0].dtype());
  return out;
}

OpDef det_onnx_record() {
  OpDef def;
  def.name = "Det";
  def.summary = "determinant of each matrix in the last two dimensions";
  def.onnx = {{"Det", "", 11}};
  def.operands = {{"X", TypeSet::Float}};
  def.meaning = Decomposition{decompose_det};
  def.reference = reference_det;
  def.samples = det_samples;
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3, 4})}, {}, ErrorCode::ShapeMismatch, ""),
                                    wrong({random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "matrices")};
  };
  return def;
}

OpDef det_record() {
  OpDef def;
  def.name = "det";
  def.summary = "determinant of each matrix in the last two dimensions, of any size";
  def.operands = {{"X", TypeSet::Float}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape x = c.shape(0);
    if (x.size() < 2) return c.error(ErrorCode::ShapeMismatch, "Det takes matrices, not " + str(x));
    TESSERA_TRY(c.env().require_equal(x.back(), x[x.size() - 2], "rows and columns of a determinant", c.node.location));
    return set_result(c, c.type(0).dtype, SymShape(x.begin(), x.end() - 2));
  };
  def.meaning = StructuredOp{};
  def.reference = reference_det;
  def.samples = det_samples;
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3, 4})}, {}, ErrorCode::ShapeMismatch, ""),
                                    wrong({random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "matrices")};
  };
  return def;
}

} // namespace

void register_misc_ops(OpTable& table) {
  table.add(det_record());
  table.add(det_onnx_record());
  register_loss_ops(table);
  register_signal_ops(table);
  register_random_ops(table);
  register_training_ops(table);
  register_image_ops(table);
}

} // namespace tessera
