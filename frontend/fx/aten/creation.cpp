// Tensors that come from numbers, and copies: constants, ramps, masks of triangles, conversions of type.
#include "frontend/fx/aten/pointwise.h"
#include <algorithm>
#include <cstdlib>

namespace tessera::fx {
namespace {

// ---- one value at every element of the result, whose sizes and dtype the exporter states
void fill(Call& c, ValueId value) {
  SymShape shape = c.result_shape();
  if (c.b.ok()) c.result(expand(c.b, value, std::move(shape)));
}
Translate filled_with(int64_t value) {
  return [value](Call& c) {
    const DType d = c.result_dtype();
    if (!admits(TypeSet::NumericOrBool, d))
      return c.unsupported("a tensor of " + std::string(name(d)) + " cannot be filled");
    fill(c, is_float(d) ? c.b.scalar(d, static_cast<double>(value)) : c.b.scalar_i(d, value));
  };
}
Translate filled_with(std::string_view argument) {
  return [argument](Call& c) {
    ValueId value = exact_operand(c.b, c.in, argument, c.result_dtype());
    if (c.b.ok() && c.b.rank(value) > 0) value = reshape(c.b, value, {}); // one element
    fill(c, value);
  };
}

// ---- ramps
bool is_whole(const Scalar& s) { return s.kind != Scalar::Kind::Float && s.kind != Scalar::Kind::Number; }

// start + i * step. Integers are exact, and take start and step as integers; floats are computed in f64 and rounded
// once.
void translate_arange(Call& c) {
  SymShape shape = c.result_shape();
  const bool has_start = c.in.given("start"), has_step = c.in.given("step");
  Scalar one, zero;
  one.integer = 1;
  one.number = 1;
  const Scalar start = has_start ? c.in.scalar("start") : zero, step = has_step ? c.in.scalar("step") : one;
  if (!c.b.ok()) return;
  const DType d = (is_whole(start) && is_whole(step)) || !is_float(c.result_dtype()) ? DType::I64 : DType::F64;
  auto number = [&](const Scalar& s) { // rounded towards 0 where it becomes an integer
    return d == DType::I64 && !is_whole(s) ? cast(c.b, literal(c.b, s, DType::F64), d) : literal(c.b, s, d);
  };
  ValueId i = cast(c.b, iota(c.b, shape, 0), d);
  if (!step.is_constant() || step.number != 1) i = mul(c.b, i, number(step));
  if (!start.is_constant() || start.number != 0) i = add(c.b, i, number(start));
  give(c, i);
}

// `steps` numbers from start to end, counted from the end that is nearer, so that both ends are exact.
ValueId linspace(Call& c, const SymShape& shape) {
  ops::B& b = c.b;
  ValueId start = operand(c.b, c.in, "start", DType::F64), end = operand(c.b, c.in, "end", DType::F64);
  if (!b.ok()) return {};
  for (ValueId* v : {&start, &end})
    if (b.rank(*v) > 0) *v = reshape(b, *v, {});
  const SymExpr steps = shape[0];
  if (steps.is_const(1) || steps.is_const(0)) return expand(b, start, shape);
  ValueId i = iota(b, shape, 0), last = b.size(steps - 1, DType::I64);
  // A symbolic number of steps may be 1: then nothing is divided by.
  ValueId step = div(b, sub(b, end, start), cast(b, max(b, last, b.scalar_i(DType::I64, 1)), DType::F64));
  ValueId rising = add(b, start, mul(b, step, cast(b, i, DType::F64)));
  ValueId falling = sub(b, end, mul(b, step, cast(b, sub(b, last, i), DType::F64)));
  return select(b, le(b, i, div(b, last, 2.0)), rising, falling);
}
void translate_linspace(Call& c) {
  SymShape shape = c.result_shape();
  if (c.b.ok()) give(c, linspace(c, shape));
}
void translate_logspace(Call& c) {
  SymShape shape = c.result_shape();
  const double base = c.in.number("base");
  if (!c.b.ok()) return;
  ValueId exponent = linspace(c, shape);
  if (c.b.ok()) give(c, pow(c.b, c.b.scalar(DType::F64, base), exponent));
}

// ---- matrices
ValueId row_index(ops::B& b, const SymExpr& rows) { return iota(b, {rows, 1}, 0); }
ValueId column_index(ops::B& b, const SymExpr& columns) { return iota(b, {1, columns}, 1); }

void translate_eye(Call& c) {
  SymShape shape = c.result_shape();
  if (c.b.ok()) give(c, eq(c.b, row_index(c.b, shape[0]), column_index(c.b, shape[1])));
}
// Zeros on the other side of a diagonal.
Translate triangle(bool lower) {
  return [lower](Call& c) {
    ValueId x = c.in.tensor("self");
    SymExpr diagonal = c.in.size("diagonal");
    if (!c.b.ok()) return;
    ops::B& b = c.b;
    // No diagonal lies beyond the sizes, and sums with sizes do not overflow.
    if (const auto k = diagonal.as_const()) diagonal = std::clamp(*k, -kSymMax, kSymMax);
    const int rank = b.rank(x);
    if (rank < 2) return b.fail(ErrorCode::ShapeMismatch, "a triangle of " + b.type(x).str() + ": it is no matrix");
    ValueId limit = add(b, row_index(b, b.dim(x, rank - 2)), b.size(diagonal, DType::I64));
    ValueId column = column_index(b, b.dim(x, rank - 1));
    ValueId kept = lower ? le(b, column, limit) : ge(b, column, limit);
    c.result(b.dtype(x) == DType::Bool ? logical_and(b, x, kept) : select(b, kept, x, 0.0));
  };
}
// Rows and columns of the elements on one side of a diagonal, in row-major order: [2, count].
Translate triangle_indices(bool lower) {
  return [lower](Call& c) {
    const int64_t rows = c.in.integer("row"), columns = c.in.integer("col"), offset = c.in.integer("offset");
    const DType d = c.result_dtype();
    if (!c.b.ok()) return;
    constexpr int64_t kMax = int64_t{1} << 26; // elements of the whole matrix
    if (rows < 0 || columns < 0 || rows > kMax || columns > kMax || (columns > 0 && rows > kMax / columns) ||
        std::abs(offset / 2) > kMax)
      return c.unsupported("indices of a triangle of " + std::to_string(rows) + " rows and " + std::to_string(columns) +
                           " columns");
    std::vector<int64_t> row, column;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t from = lower ? 0 : std::clamp<int64_t>(i + offset, 0, columns);
      const int64_t to = lower ? std::clamp<int64_t>(i + offset + 1, 0, columns) : columns;
      for (int64_t j = from; j < to; ++j) {
        row.push_back(i);
        column.push_back(j);
      }
    }
    const auto count = static_cast<int64_t>(row.size());
    row.insert(row.end(), column.begin(), column.end());
    auto table = Tensor::of<int64_t>(DType::I64, {2, count}, row);
    c.result(cast(c.b, c.b.constant(std::move(table)), d));
  };
}

// ---- copies
void translate_copy_of_self(Call& c) { c.result(c.in.tensor("self")); }
void translate_conversion(Call& c) {
  const DType to = c.result_dtype();
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  const DType from = c.b.dtype(x);
  if (from != to && (!admits(TypeSet::NumericOrBool, from) || !admits(TypeSet::NumericOrBool, to)))
    return c.unsupported("conversion from " + std::string(name(from)) + " to " + std::string(name(to)));
  c.result(convert(c.b, x, to));
}
// The one element of a tensor as a number. An integer would be a size that depends on data.
void translate_item(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  if (!is_float(c.b.dtype(x))) return c.unsupported("an integer that is read from a tensor when the graph runs");
  c.result(cast(c.b, reshape(c.b, x, {}), DType::F64));
}
void translate_element_type(Call& c) { c.result(convert(c.b, c.in.tensor("a"), c.result_dtype())); }
void translate_copy(Call& c) { // src in the dtype and sizes of self
  ValueId self = c.in.tensor("self"), source = c.in.tensor("src");
  if (!c.b.ok()) return;
  c.result(expand(c.b, convert(c.b, source, c.b.dtype(self)), c.b.shape(self)));
}

} // namespace

void register_creation(AtenTable& t) {
  t.add({"zeros.default", "zeros_like.default", "new_zeros.default", "zero.default", "_efficientzerotensor.default"},
        filled_with(0));
  t.add({"ones.default", "ones_like.default", "new_ones.default"}, filled_with(1));
  // Any contents are right.
  t.add({"empty.memory_format", "empty_like.default", "empty_strided.default", "empty_permuted.default",
         "new_empty.default", "new_empty_strided.default"},
        filled_with(0));
  t.add({"full.default", "full_like.default", "new_full.default"}, filled_with("fill_value"));
  t.add({"fill.Scalar", "fill.Tensor"}, filled_with("value"));
  t.add({"scalar_tensor.default"}, filled_with("s"));

  t.add({"arange.default", "arange.start", "arange.start_step"}, translate_arange);
  t.add({"linspace.default", "linspace.Scalar_Tensor", "linspace.Tensor_Scalar", "linspace.Tensor_Tensor"},
        translate_linspace);
  t.add({"logspace.default", "logspace.Scalar_Tensor", "logspace.Tensor_Scalar", "logspace.Tensor_Tensor"},
        translate_logspace);
  t.add({"eye.default", "eye.m"}, translate_eye);
  t.add({"tril.default"}, triangle(true));
  t.add({"triu.default"}, triangle(false));
  t.add({"tril_indices.default"}, triangle_indices(true));
  t.add({"triu_indices.default"}, triangle_indices(false));

  t.add({"clone.default", "detach.default", "detach_.default", "detach_copy.default", "contiguous.default",
         "positive.default", "resolve_conj.default", "resolve_neg.default"},
        translate_copy_of_self);
  // These operators return real numbers as they are.
  t.add({"real.default", "conj.default", "_conj.default", "conj_physical.default", "_conj_physical.default"},
        [](Call& c) {
          ValueId x = c.in.tensor("self");
          if (info(c.b.dtype(x)).kind == DTypeKind::Complex) c.unsupported("complex numbers");
          c.result(x);
        });
  t.add({"_to_copy.default", "to.device", "to.dtype", "to.dtype_layout", "to.other", "to.prim_Device", "to.prim_dtype",
         "to.prim_other", "type_as.default"},
        translate_conversion);
  t.add({"_local_scalar_dense.default", "item.default"}, translate_item);
  t.add({"prims.convert_element_type.default"}, translate_element_type);
  t.add({"copy.default"}, translate_copy);
}

} // namespace tessera::fx
