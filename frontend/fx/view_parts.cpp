#include "frontend/fx/view_parts.h"
#include <algorithm>
#include <numeric>

namespace tessera::fx {

SymExpr wrapped(const ShapeEnv& env, const SymExpr& index, const SymExpr& n) {
  if (env.prove(sym_lt(index, 0)).value_or(false)) return env.simplify(index + n);
  if (env.prove(sym_le(0, index)).value_or(false)) return index;
  return env.simplify(sym_select(sym_lt(index, 0), index + n, index));
}

Range slice_range(const ShapeEnv& env, const SymExpr& n, const std::optional<SymExpr>& start,
                  const std::optional<SymExpr>& end, int64_t step) {
  auto bound = [&](const std::optional<SymExpr>& e, const SymExpr& fallback) {
    if (!e) return fallback;
    if (auto v = e->as_const()) {
      if (*v >= kSymMax) return n;
      if (*v <= -kSymMax) return SymExpr(0);
    }
    return env.simplify(sym_max(sym_min(wrapped(env, *e, n), n), 0));
  };
  Range r{bound(start, 0), 0, std::max<int64_t>(step, 1)};
  r.size = env.simplify(sym_max(ceildiv(bound(end, n) - r.start, r.step), 0));
  if (r.size.is_const(0)) r.start = 0;
  if (r.size.is_const(1) || r.step > kSymMax) r.step = 1; // at most one element
  return r;
}

ValueId take_range(ops::B& b, ValueId x, int64_t axis, const Range& r) {
  if (!b.ok()) return {};
  if (axis >= b.rank(x)) {
    b.fail(ErrorCode::ShapeMismatch, "a scalar has no dimension to take a range of");
    return {};
  }
  return slice(b, x, axis, r.start, r.size, r.step);
}

ValueId put_range(ops::B& b, ValueId x, ValueId source, int64_t axis, const Range& r) {
  if (!b.ok()) return {};
  const SymExpr n = b.dim(x, axis);
  if (axis >= b.rank(x) || b.rank(source) != b.rank(x)) {
    b.fail(ErrorCode::ShapeMismatch,
           "a range of " + b.type(x).str() + " cannot be written from " + b.type(source).str());
    return {};
  }
  SymShape expected = b.shape(x);
  expected[static_cast<size_t>(axis)] = r.size;
  source = broadcast_to(b, source, expected);
  if (r.size.is_const(0)) return x;
  if (r.start.is_const(0) && r.step == 1 && b.env().known_equal(r.size, n)) return source;
  if (r.step == 1) {
    const SymExpr end = b.env().simplify(r.start + r.size), rest = b.env().simplify(n - end);
    std::vector<ValueId> parts;
    if (!r.start.is_const(0)) parts.push_back(slice(b, x, axis, 0, r.start));
    parts.push_back(source);
    if (!rest.is_const(0)) parts.push_back(slice(b, x, axis, end, rest));
    return reshape(b, concat(b, std::move(parts), axis), b.shape(x));
  }
  // Every step-th element: the source spread out with step - 1 elements after each, then chosen by position.
  const auto a = static_cast<size_t>(axis);
  SymShape spread = b.shape(source), begin(spread.size() + 1, SymExpr(0)), end = begin;
  end[a + 1] = r.step - 1;
  ValueId wide = pad(b, unsqueeze(b, source, {axis + 1}), begin, end);
  spread[a] = r.size * r.step;
  wide = reshape(b, wide, spread);
  begin.pop_back();
  end.assign(begin.size(), SymExpr(0));
  begin[a] = r.start;
  end[a] = n - r.start - r.size * r.step;
  wide = reshape(b, pad(b, wide, begin, end), b.shape(x));
  SymShape line(begin.size(), SymExpr(1));
  line[a] = n;
  ValueId i = sub(b, iota(b, line, axis), b.size(r.start, DType::I64));
  ValueId on = eq(b, b.op2("mod", i, static_cast<double>(r.step)), 0.0);
  ValueId in = logical_and(b, ge(b, i, 0.0), lt(b, i, b.size(r.size * r.step, DType::I64)));
  return select(b, logical_and(b, on, in), wide, x);
}

namespace {
// dim1 and dim2 brought to the end, in this order.
Ints diagonal_order(int rank, int64_t dim1, int64_t dim2) {
  Ints perm;
  for (int64_t k = 0; k < rank; ++k)
    if (k != dim1 && k != dim2) perm.push_back(k);
  perm.push_back(dim1);
  perm.push_back(dim2);
  return perm;
}
bool two_dimensions(ops::B& b, ValueId x, int64_t dim1, int64_t dim2) {
  if (!b.ok()) return false;
  if (dim1 != dim2 && b.rank(x) >= 2) return true;
  b.fail(ErrorCode::BadAttribute, "a diagonal needs two different dimensions");
  return false;
}
// Number of elements of a diagonal of a matrix n x m.
SymExpr diagonal_size(const ShapeEnv& env, const SymExpr& n, const SymExpr& m, int64_t offset) {
  SymExpr rows = offset < 0 ? n + offset : n, columns = offset > 0 ? m - offset : m;
  return env.simplify(sym_max(sym_min(rows, columns), 0));
}
} // namespace

ValueId take_diagonal(ops::B& b, ValueId x, int64_t offset, int64_t dim1, int64_t dim2) {
  if (!two_dimensions(b, x, dim1, dim2)) return {};
  x = transpose(b, x, diagonal_order(b.rank(x), dim1, dim2));
  SymShape shape = b.shape(x);
  const auto rank = static_cast<int64_t>(shape.size());
  const SymExpr m = shape.back(), n = shape[shape.size() - 2];
  const SymExpr size = diagonal_size(b.env(), n, m, offset);
  shape.pop_back();
  shape.back() = n * m;
  ValueId flat = reshape(b, x, shape);
  const SymExpr first = offset < 0 ? m * -offset : SymExpr(offset);
  if (size.is_const(0)) return slice(b, flat, rank - 2, 0, 0);
  if (auto width = m.as_const()) return slice(b, flat, rank - 2, first, size, *width + 1);
  ValueId at = add(b, mul(b, iota(b, {size}, 0), b.size(m + 1, DType::I64)), b.size(first, DType::I64));
  return gather(b, flat, at, rank - 2);
}

ValueId put_diagonal(ops::B& b, ValueId x, ValueId source, int64_t offset, int64_t dim1, int64_t dim2) {
  if (!two_dimensions(b, x, dim1, dim2)) return {};
  const Ints perm = diagonal_order(b.rank(x), dim1, dim2);
  x = transpose(b, x, perm);
  SymShape shape = b.shape(x);
  const auto rank = static_cast<int64_t>(shape.size());
  const SymExpr m = shape.back(), n = shape[shape.size() - 2];
  const SymExpr size = diagonal_size(b.env(), n, m, offset);
  SymShape line(shape.begin(), shape.end() - 1);
  line.back() = size;
  source = broadcast_to(b, source, line);
  if (!b.ok()) return {};
  // The source's element of row i is i + min(offset, 0).
  SymShape begin(line.size(), SymExpr(0)), end = begin;
  begin.back() = offset < 0 ? -offset : 0;
  end.back() = b.env().simplify(n - size - begin.back());
  SymShape column = shape;
  column.back() = 1;
  ValueId rows = reshape(b, pad(b, source, begin, end), column);
  SymShape si(shape.size(), SymExpr(1)), sj = si;
  si[si.size() - 2] = n;
  sj.back() = m;
  ValueId i = iota(b, si, rank - 2), j = iota(b, sj, rank - 1);
  ValueId on = eq(b, add(b, i, static_cast<double>(offset)), j);
  return transpose(b, select(b, on, rows, x), inverse(perm));
}

ValueId memory_index(ops::B& b, const SymShape& sizes, const SymShape& strides, const SymExpr& offset) {
  if (!b.ok()) return {};
  if (sizes.size() != strides.size()) {
    b.fail(ErrorCode::BadAttribute, "sizes and strides differ in number");
    return {};
  }
  ValueId at = b.size(offset, DType::I64);
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k].is_const(1) || strides[k].is_const(0)) continue;
    SymShape line(sizes.size(), SymExpr(1));
    line[k] = sizes[k];
    at = add(b, at, mul(b, iota(b, line, static_cast<int64_t>(k)), b.size(strides[k], DType::I64)));
  }
  return broadcast_to(b, at, sizes);
}

std::optional<Ints> dense_order(const ShapeEnv& env, const SymShape& shape, const SymShape& strides) {
  if (shape.size() != strides.size()) return {};
  // From the innermost dimension outwards: the one whose stride is the product of those found.
  const size_t rank = shape.size();
  std::vector<bool> taken(rank);
  Ints order;
  SymExpr stride = 1;
  while (order.size() < rank) {
    std::optional<size_t> found;
    for (size_t k = rank; k-- > 0 && !found;)
      if (!taken[k] && (shape[k].is_const(1) || env.known_equal(strides[k], stride))) found = k;
    if (!found) return {};
    taken[*found] = true;
    order.insert(order.begin(), static_cast<int64_t>(*found));
    stride *= shape[*found];
  }
  return order;
}

Ints inverse(const Ints& perm) {
  Ints back(perm.size());
  for (size_t k = 0; k < perm.size(); ++k) back[static_cast<size_t>(perm[k])] = static_cast<int64_t>(k);
  return back;
}

Ints moved(int rank, int64_t from, int64_t to) {
  Ints perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  return perm;
}

ValueId as_vector(ops::B& b, ValueId x) { return b.ok() && b.rank(x) == 0 ? reshape(b, x, {1}) : x; }

ValueId broadcast_to(ops::B& b, ValueId x, const SymShape& shape) { return expand(b, x, shape); }

ValueId filled(ops::B& b, ValueId scalar, const SymShape& shape) { return expand(b, scalar, shape); }

ValueId zeros(ops::B& b, DType dtype, const SymShape& shape) { return filled(b, b.scalar_i(dtype, 0), shape); }

} // namespace tessera::fx
