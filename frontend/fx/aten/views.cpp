// Views: what moves no element. Copies of views are the same.
#include "frontend/fx/view_parts.h"
#include <algorithm>
#include <numeric>

namespace tessera::fx {
namespace {

// Sizes with one -1 that stands for what the others leave.
SymShape completed(Call& c, SymShape sizes, const SymExpr& count) {
  SymExpr others = 1;
  std::optional<size_t> open;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k].is_const(-1))
      open = k;
    else
      others *= sizes[k];
  }
  if (!open) return sizes;
  if (others.is_const(0)) {
    c.b.fail(ErrorCode::ShapeMismatch, "the size -1 of a tensor without elements is not known");
    return sizes;
  }
  sizes[*open] = c.b.env().simplify(floordiv(count, others));
  return sizes;
}

void translate_view(Call& c) {
  ValueId x = c.in.tensor("self");
  SymShape sizes = c.in.given("size") ? c.in.sizes("size") : c.in.sizes("shape");
  if (!c.b.ok()) return;
  c.result(reshape(c.b, x, completed(c, std::move(sizes), c.b.type(x).count())));
}

void translate_view_as(Call& c) {
  ValueId x = c.in.tensor("self"), other = c.in.tensor("other");
  if (c.b.ok()) c.result(reshape(c.b, x, c.b.shape(other)));
}

// x's bits as elements of another type. Where the widths differ, each element of the last dimension is divided into
// several, or several are joined to one: lowest bits first, as memory has them.
ValueId bits_as(Call& c, ValueId x, DType to) {
  ops::B& b = c.b;
  if (!b.ok() || b.dtype(x) == to) return x;
  auto as = [&](ValueId v, DType d) { return b.dtype(v) == d ? v : b.op("BitCast", {v}, {{"to", d}}); };
  const int from_bits = info(b.dtype(x)).bits, to_bits = info(to).bits;
  if (from_bits == to_bits) return as(x, to);
  auto unsigned_of = [](int bits) -> std::optional<DType> {
    for (DType d : {DType::U8, DType::U16, DType::U32, DType::U64})
      if (info(d).bits == bits) return d;
    return {};
  };
  const auto narrow = unsigned_of(std::min(from_bits, to_bits)), wide = unsigned_of(std::max(from_bits, to_bits));
  SymShape shape = b.shape(x);
  if (!narrow || !wide || shape.empty()) {
    c.unsupported("a view of " + b.type(x).str() + " as elements of " + std::string(tessera::name(to)));
    return {};
  }
  const int64_t parts = info(*wide).bits / info(*narrow).bits, rank = b.rank(x);
  if (from_bits > to_bits) {
    SymShape line(shape.size() + 1, SymExpr(1));
    line.back() = parts;
    ValueId places = mul(b, cast(b, iota(b, line, rank), *wide), b.scalar_i(*wide, info(*narrow).bits));
    ValueId divided = cast(b, b.op2("shr", unsqueeze(b, as(x, *wide), {rank}), places), *narrow);
    shape.back() *= parts;
    return as(reshape(b, divided, shape), to);
  }
  b.check(b.env().require(sym_eq(mod(shape.back(), parts), 0), GuardClass::Required,
                          "elements of a view of another type fill its last dimension", b.node().location));
  shape.back() = b.env().simplify(floordiv(shape.back(), parts));
  shape.emplace_back(parts);
  ValueId each = cast(b, reshape(b, as(x, *narrow), shape), *wide), joined;
  for (int64_t i = 0; b.ok() && i < parts; ++i) {
    ValueId part = squeeze(b, slice(b, each, rank, i, 1), {rank});
    if (i > 0) part = b.op2("shl", part, b.scalar_i(*wide, i * info(*narrow).bits));
    joined = joined.valid() ? logical_or(b, joined, part) : part;
  }
  return b.ok() ? as(joined, to) : ValueId();
}

void translate_view_dtype(Call& c) {
  ValueId x = c.in.tensor("self");
  auto to = c.in.dtype("dtype");
  if (to) c.result(bits_as(c, x, *to));
}

void translate_flatten(Call& c) {
  ValueId x = c.in.tensor("self");
  const int rank = c.b.rank(x);
  const int64_t start = c.in.axis("start_dim", rank), end = c.in.axis("end_dim", rank);
  if (!c.b.ok()) return;
  if (rank == 0) return c.result(reshape(c.b, x, {1}));
  if (start > end) return c.unsupported("flatten from a dimension to an earlier one");
  SymShape in = c.b.shape(x), out(in.begin(), in.begin() + start);
  out.push_back(
      product(std::span<const SymExpr>(in).subspan(static_cast<size_t>(start), static_cast<size_t>(end - start + 1))));
  out.insert(out.end(), in.begin() + end + 1, in.end());
  c.result(reshape(c.b, x, out));
}

void translate_ravel(Call& c) {
  ValueId x = c.in.tensor("self");
  c.result(reshape(c.b, x, {c.b.type(x).count()}));
}

void translate_unflatten(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  SymShape sizes = c.in.sizes("sizes");
  if (!c.b.ok()) return;
  SymShape in = c.b.shape(x), out(in.begin(), in.begin() + axis);
  sizes = completed(c, sizes, c.b.dim(x, axis));
  out.insert(out.end(), sizes.begin(), sizes.end());
  if (axis + 1 <= static_cast<int64_t>(in.size())) out.insert(out.end(), in.begin() + axis + 1, in.end());
  c.result(reshape(c.b, x, out));
}

void translate_expand(Call& c) {
  ValueId x = c.in.tensor("self");
  SymShape sizes = c.in.sizes("size");
  if (!c.b.ok()) return;
  const SymShape in = c.b.shape(x);
  for (size_t k = 0; k < in.size() && k < sizes.size(); ++k) {
    SymExpr& size = sizes[sizes.size() - 1 - k];
    if (size.is_const(-1)) size = in[in.size() - 1 - k];
  }
  c.result(broadcast_to(c.b, x, sizes));
}

void translate_expand_as(Call& c) {
  ValueId x = c.in.tensor("self"), other = c.in.tensor("other");
  c.result(broadcast_to(c.b, x, c.b.shape(other)));
}

void translate_broadcast_tensors(Call& c) {
  std::vector<ValueId> xs = c.in.tensors("tensors");
  SymShape shape;
  for (ValueId x : xs) {
    if (!c.b.ok()) return;
    auto both = c.b.env().broadcast(shape, c.b.shape(x), c.b.node().location);
    if (!both.ok()) return c.b.fail(both.error());
    shape = *both;
  }
  for (ValueId x : xs) c.result(broadcast_to(c.b, x, shape));
}

void translate_permute(Call& c) {
  ValueId x = c.in.tensor("self");
  Ints perm = c.in.ints("dims");
  for (int64_t& p : perm) p = c.b.axis(p, c.b.rank(x));
  c.result(c.b.op("transpose", {x}, {{"perm", perm}}));
}

void exchange(Call& c, int64_t from, int64_t to, ValueId x) {
  if (!c.b.ok()) return;
  Ints perm(static_cast<size_t>(c.b.rank(x)));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  if (!perm.empty()) std::swap(perm[static_cast<size_t>(from)], perm[static_cast<size_t>(to)]);
  c.result(transpose(c.b, x, perm));
}

template <const char* const* kNames>
void translate_exchange(Call& c) {
  ValueId x = c.in.tensor("self");
  const int rank = c.b.rank(x);
  const int64_t from = c.in.axis(kNames[0], rank), to = c.in.axis(kNames[1], rank);
  exchange(c, from, to, x);
}
constexpr const char* kDims[] = {"dim0", "dim1"};
constexpr const char* kAxes[] = {"axis0", "axis1"};

// The last two dimensions.
void translate_matrix_transpose(Call& c) {
  ValueId x = c.in.tensor(c.schema().argument("self") ? "self" : "a");
  const int rank = c.b.rank(x);
  if (c.b.ok() && rank < 2) return c.result(x);
  exchange(c, rank - 2, rank - 1, x);
}

void translate_numpy_t(Call& c) {
  ValueId x = c.in.tensor(c.schema().argument("self") ? "self" : "a");
  Ints perm;
  for (int64_t k = c.b.rank(x); k-- > 0;) perm.push_back(k);
  c.result(transpose(c.b, x, perm));
}

void translate_movedim(Call& c) {
  ValueId x = c.in.tensor("self");
  const int rank = c.b.rank(x);
  Ints from = c.in.ints("source"), to = c.in.ints("destination");
  if (c.b.ok() && rank == 0) return c.result(x);
  if (from.size() != to.size()) return c.unsupported("movedim of lists that differ in length");
  Ints perm(static_cast<size_t>(rank), -1), rest;
  for (size_t k = 0; k < from.size(); ++k) {
    from[k] = c.b.axis(from[k], rank);
    to[k] = c.b.axis(to[k], rank);
    if (!c.b.ok()) return;
    perm[static_cast<size_t>(to[k])] = from[k];
  }
  for (int64_t k = 0; k < rank; ++k)
    if (std::find(from.begin(), from.end(), k) == from.end()) rest.push_back(k);
  size_t next = 0;
  for (int64_t& p : perm)
    if (p < 0 && next < rest.size()) p = rest[next++];
  c.result(c.b.op("transpose", {x}, {{"perm", perm}}));
}

void translate_squeeze(Call& c) {
  ValueId x = c.in.tensor("self");
  const int rank = c.b.rank(x);
  Ints axes = c.in.axes("dim", rank, false), ones;
  for (int64_t a : axes) {
    const SymExpr n = c.b.env().simplify(c.b.dim(x, a));
    if (n.is_const(1))
      ones.push_back(a);
    else // another size would have another rank
      c.b.check(c.b.env().require(sym_ne(n, 1), GuardClass::Required, "squeeze keeps a dimension that is not 1",
                                  c.b.node().location));
  }
  c.result(squeeze(c.b, x, ones));
}

void translate_unsqueeze(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.b.axis(c.in.integer("dim"), c.b.rank(x) + 1);
  c.result(unsqueeze(c.b, x, {axis}));
}

void translate_same(Call& c) { c.result(c.in.tensor(c.schema().argument("self") ? "self" : "a")); }

// ---- ranges
Range range_of(Call& c, const SymExpr& n) {
  std::optional<SymExpr> start, end;
  if (c.in.given("start")) start = c.in.size("start");
  if (c.in.given("end")) end = c.in.size("end");
  const int64_t step = c.in.integer("step");
  if (c.b.ok() && step < 1) c.unsupported("a slice whose step is " + std::to_string(step));
  return slice_range(c.b.env(), n, start, end, step);
}

void translate_slice(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const Range r = range_of(c, c.b.dim(x, axis));
  c.result(take_range(c.b, x, axis, r));
}

void translate_slice_scatter(Call& c) {
  ValueId x = c.in.tensor("self"), source = c.in.tensor("src");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const Range r = range_of(c, c.b.dim(x, axis));
  source = cast(c.b, source, c.b.dtype(x));
  c.result(put_range(c.b, x, source, axis, r));
}

void translate_slice_backward(Call& c) {
  ValueId g = c.in.tensor("grad_output");
  const SymShape shape = c.in.sizes("input_sizes");
  const int64_t axis = c.in.axis("dim", static_cast<int>(shape.size()));
  if (!c.b.ok()) return;
  const Range r = range_of(c, shape[static_cast<size_t>(axis)]);
  c.result(put_range(c.b, zeros(c.b, c.b.dtype(g), shape), g, axis, r));
}

Range one_at(Call& c, const SymExpr& n) { return {wrapped(c.b.env(), c.in.size("index"), n), 1, 1}; }

void translate_select(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const Range r = one_at(c, c.b.dim(x, axis));
  c.result(squeeze(c.b, take_range(c.b, x, axis, r), {axis}));
}

void translate_select_scatter(Call& c) {
  ValueId x = c.in.tensor("self"), source = c.in.tensor("src");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const Range r = one_at(c, c.b.dim(x, axis));
  source = unsqueeze(c.b, cast(c.b, source, c.b.dtype(x)), {axis});
  c.result(put_range(c.b, x, source, axis, r));
}

void translate_select_backward(Call& c) {
  ValueId g = c.in.tensor("grad_output");
  const SymShape shape = c.in.sizes("input_sizes");
  const int64_t axis = c.in.axis("dim", static_cast<int>(shape.size()));
  if (!c.b.ok()) return;
  const Range r = one_at(c, shape[static_cast<size_t>(axis)]);
  c.result(put_range(c.b, zeros(c.b, c.b.dtype(g), shape), unsqueeze(c.b, g, {axis}), axis, r));
}

void translate_narrow(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const SymExpr start = wrapped(c.b.env(), c.in.size("start"), c.b.dim(x, axis)), size = c.in.size("length");
  c.result(take_range(c.b, x, axis, {start, size, 1}));
}

// ---- parts
void cut(Call& c, ValueId x, int64_t axis, const SymShape& sizes) {
  SymExpr start = 0;
  for (const SymExpr& size : sizes) {
    c.result(take_range(c.b, x, axis, {start, size, 1}));
    start = c.b.env().simplify(start + size);
  }
}

// `count` parts of `size`, but for the last one.
void cut_evenly(Call& c, ValueId x, int64_t axis, const SymExpr& size, int64_t count) {
  SymShape sizes(static_cast<size_t>(std::max<int64_t>(count, 1)), size);
  sizes.back() = c.b.env().simplify(c.b.dim(x, axis) - size * (static_cast<int64_t>(sizes.size()) - 1));
  cut(c, x, axis, sizes);
}

void translate_split(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const SymExpr size = c.in.size("split_size");
  if (c.b.ok()) cut_evenly(c, x, axis, size, c.result_count());
}

void translate_split_sizes(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const SymShape sizes = c.in.sizes(c.schema().argument("split_sizes") ? "split_sizes" : "split_size");
  if (c.b.ok()) cut(c, x, axis, sizes);
}

void translate_chunk(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x)), chunks = std::max<int64_t>(c.in.integer("chunks"), 1);
  if (c.b.ok()) cut_evenly(c, x, axis, c.b.env().simplify(ceildiv(c.b.dim(x, axis), chunks)), c.result_count());
}

void cut_at(Call& c, ValueId x, int64_t axis, const SymShape& ends) {
  const SymExpr n = c.b.dim(x, axis);
  std::optional<SymExpr> start = SymExpr(0);
  for (const SymExpr& end : ends) {
    c.result(take_range(c.b, x, axis, slice_range(c.b.env(), n, start, end, 1)));
    start = end;
  }
  c.result(take_range(c.b, x, axis, slice_range(c.b.env(), n, start, {}, 1)));
}

// `sections` parts, of which the first n mod sections have one element more.
void cut_into(Call& c, ValueId x, int64_t axis, int64_t sections) {
  const SymExpr n = c.b.dim(x, axis), least = floordiv(n, sections), more = mod(n, sections);
  SymShape sizes;
  // A program that was damaged may say more than it has results.
  const int64_t wanted = std::min<int64_t>(sections, c.result_count());
  for (int64_t i = 0; i < wanted; ++i) sizes.push_back(c.b.env().simplify(least + sym_lt(i, more)));
  cut(c, x, axis, sizes);
}

void translate_tensor_split(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (c.schema().argument("sections")) {
    const int64_t sections = c.in.integer("sections");
    if (c.b.ok()) cut_into(c, x, axis, std::max<int64_t>(sections, 1));
  } else {
    const SymShape ends = c.in.sizes("indices");
    if (c.b.ok()) cut_at(c, x, axis, ends);
  }
}

// hsplit, vsplit, dsplit: along dimension kAxis, of a vector along its only one.
template <int64_t kAxis>
void translate_split_axis(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  const int64_t axis = std::min<int64_t>(kAxis, c.b.rank(x) - 1);
  if (axis < 0) return c.unsupported("a scalar cannot be split");
  if (c.schema().argument("sections")) {
    const int64_t sections = c.in.integer("sections");
    if (c.b.ok()) cut_into(c, x, axis, std::max<int64_t>(sections, 1));
  } else {
    const SymShape ends = c.in.sizes("indices");
    if (c.b.ok()) cut_at(c, x, axis, ends);
  }
}

void translate_unbind(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  for (int64_t i = 0; c.b.ok() && i < c.result_count(); ++i)
    c.result(squeeze(c.b, take_range(c.b, x, axis, {i, 1, 1}), {axis}));
}

// ---- diagonals
struct Diagonal {
  int64_t offset, dim1, dim2;
};
Diagonal diagonal_of(Call& c, int rank) {
  return {c.in.integer("offset"), c.in.axis("dim1", rank), c.in.axis("dim2", rank)};
}

void translate_diagonal(Call& c) {
  ValueId x = c.in.tensor("self");
  const Diagonal d = diagonal_of(c, c.b.rank(x));
  c.result(take_diagonal(c.b, x, d.offset, d.dim1, d.dim2));
}

void translate_diagonal_scatter(Call& c) {
  ValueId x = c.in.tensor("self"), source = c.in.tensor("src");
  const Diagonal d = diagonal_of(c, c.b.rank(x));
  c.result(put_diagonal(c.b, x, cast(c.b, source, c.b.dtype(x)), d.offset, d.dim1, d.dim2));
}

void translate_diagonal_backward(Call& c) {
  ValueId g = c.in.tensor("grad_output");
  const SymShape shape = c.in.sizes("input_sizes");
  const Diagonal d = diagonal_of(c, static_cast<int>(shape.size()));
  if (c.b.ok()) c.result(put_diagonal(c.b, zeros(c.b, c.b.dtype(g), shape), g, d.offset, d.dim1, d.dim2));
}

// Zeros but for a diagonal, which is x's last dimension.
ValueId embedded(Call& c, ValueId x, int64_t offset, int64_t dim1, int64_t dim2) {
  if (!c.b.ok() || c.b.rank(x) == 0) return {};
  SymShape line = c.b.shape(x);
  const SymExpr n = line.back() + std::abs(offset);
  line.pop_back();
  SymShape shape(line.size() + 2);
  size_t next = 0;
  for (int64_t k = 0; k < static_cast<int64_t>(shape.size()); ++k)
    shape[static_cast<size_t>(k)] = k == dim1 || k == dim2 ? n : line[next++];
  return put_diagonal(c.b, zeros(c.b, c.b.dtype(x), shape), x, offset, dim1, dim2);
}

void translate_diag_embed(Call& c) {
  ValueId x = as_vector(c.b, c.in.tensor("self"));
  const Diagonal d = diagonal_of(c, c.b.rank(x) + 1);
  if (c.b.ok() && d.dim1 == d.dim2) return c.unsupported("a diagonal of one dimension");
  c.result(embedded(c, x, d.offset, d.dim1, d.dim2));
}

void translate_diag(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t offset = c.in.integer("diagonal");
  if (c.b.ok() && c.b.rank(x) < 2) return c.result(embedded(c, as_vector(c.b, x), offset, 0, 1));
  c.result(take_diagonal(c.b, x, offset, 0, 1));
}

void translate_diagflat(Call& c) {
  ValueId x = c.in.tensor("self");
  x = reshape(c.b, x, {c.b.type(x).count()});
  c.result(embedded(c, x, c.in.integer("offset"), 0, 1));
}

// ---- views by strides
// x's elements in the order of its memory, as a vector; fails where memory has more or fewer than the elements.
ValueId in_memory_order(Call& c, ValueId x, const Arguments::Memory& memory) {
  if (!c.b.ok()) return {};
  auto order = dense_order(c.b.env(), c.b.shape(x), memory.strides);
  if (!order) {
    c.unsupported("a view by strides of a tensor that is not dense in memory (" + c.b.type(x).str() + " with strides " +
                  str(memory.strides) + ")");
    return {};
  }
  return reshape(c.b, transpose(c.b, x, *order), {c.b.type(x).count()});
}

// Arguments of as_strided: sizes, strides, where the first element lies relative to x's first one.
struct Strided {
  SymShape sizes, strides;
  SymExpr offset;
  Arguments::Memory memory; // of x
};
Strided strided_of(Call& c) {
  ValueId x = c.in.tensor("self");
  Strided s;
  s.sizes = c.in.sizes("size");
  s.strides = c.in.sizes("stride");
  s.memory = c.in.memory("self").value_or(Arguments::Memory{contiguous_strides(c.b.shape(x)), 0});
  if (c.in.given("storage_offset")) s.offset = c.b.env().simplify(c.in.size("storage_offset") - s.memory.offset);
  if (!c.b.ok()) return s;
  if (s.sizes.size() != s.strides.size()) {
    c.unsupported("sizes and strides that differ in number");
    return s;
  }
  // x is its own elements: the rest of a view's storage is not available.
  SymExpr last = s.offset;
  for (size_t k = 0; k < s.sizes.size(); ++k) {
    if (s.sizes[k].is_const(0)) return s;
    last += (s.sizes[k] - 1) * s.strides[k];
  }
  for (const SymExpr& inside : {sym_le(0, s.offset), sym_lt(last, c.b.type(x).count())}) {
    if (c.b.env().prove(inside) == false) {
      c.unsupported("elements from " + s.offset.str() + " to " + last.str() + " of the memory of a tensor of " +
                    c.b.type(x).count().str() + " elements");
      return s;
    }
    c.b.check(c.b.env().require(inside, GuardClass::Required, "a view by strides lies within its tensor",
                                c.b.node().location));
  }
  return s;
}

void translate_as_strided(Call& c) {
  ValueId x = c.in.tensor("self");
  const Strided s = strided_of(c);
  if (!c.b.ok()) return;
  if (s.offset.is_const(0) && s.sizes == c.b.shape(x) && s.strides == s.memory.strides) return c.result(x);
  ValueId flat = in_memory_order(c, x, s.memory);
  if (!c.b.ok()) return;
  auto order = dense_order(c.b.env(), s.sizes, s.strides);
  if (s.offset.is_const(0) && order && c.b.env().known_equal(product(s.sizes), c.b.type(x).count())) {
    SymShape stored;
    for (int64_t k : *order) stored.push_back(s.sizes[static_cast<size_t>(k)]);
    return c.result(transpose(c.b, reshape(c.b, flat, stored), inverse(*order)));
  }
  c.result(gather(c.b, flat, memory_index(c.b, s.sizes, s.strides, s.offset), 0));
}

// x with `source` written to the elements that the call's sizes and strides name.
ValueId strided_put(Call& c, ValueId x, ValueId source) {
  const Strided s = strided_of(c);
  ValueId flat = in_memory_order(c, x, s.memory);
  if (!c.b.ok()) return {};
  const SymExpr count = product(s.sizes);
  ValueId at = reshape(c.b, memory_index(c.b, s.sizes, s.strides, s.offset), {count});
  source = reshape(c.b, broadcast_to(c.b, cast(c.b, source, c.b.dtype(x)), s.sizes), {count});
  ValueId out = c.b.op("scatter_elements", {flat, at, source});
  const Ints order = *dense_order(c.b.env(), c.b.shape(x), s.memory.strides);
  SymShape stored;
  for (int64_t k : order) stored.push_back(c.b.dim(x, k));
  return transpose(c.b, reshape(c.b, out, stored), inverse(order));
}

void translate_as_strided_scatter(Call& c) {
  ValueId x = c.in.tensor("self"), source = c.in.tensor("src");
  c.result(strided_put(c, x, source));
}

// Windows of `size` elements, every `step`-th, as a last dimension.
void translate_unfold(Call& c) {
  const bool scalar = c.b.rank(c.in.tensor("self")) == 0;
  ValueId x = as_vector(c.b, c.in.tensor("self"));
  const int64_t axis = c.in.axis("dimension", c.b.rank(x)), size = c.in.integer("size"), step = c.in.integer("step");
  if (!c.b.ok()) return;
  if (scalar) return c.result(slice(c.b, x, 0, 0, size)); // its one window
  if (step < 1) return c.unsupported("windows whose step is " + std::to_string(step));
  const int64_t rank = c.b.rank(x);
  const SymExpr count = c.b.env().simplify(floordiv(c.b.dim(x, axis) - size, step) + 1);
  ValueId windows =
      c.b.op("windows", {x},
             {{"axis", axis}, {"sizes", SymShape{count, size}}, {"strides", Ints{step, 1}}}); // [.., count, size, ..]
  ValueId out = transpose(c.b, windows, moved(static_cast<int>(rank) + 1, axis + 1, rank));
  c.result(out);
}

void translate_atleast(Call& c, int64_t least) {
  const bool many = c.schema().argument("tensors") != nullptr;
  std::vector<ValueId> xs = many ? c.in.tensors("tensors") : std::vector<ValueId>{c.in.tensor("self")};
  for (ValueId x : xs) {
    const int rank = c.b.rank(x);
    Ints axes;
    if (least >= 1 && rank == 0) axes = least == 1 ? Ints{0} : least == 2 ? Ints{0, 1} : Ints{0, 1, 2};
    if (least >= 2 && rank == 1) axes = least == 2 ? Ints{0} : Ints{0, 2};
    if (least == 3 && rank == 2) axes = {2};
    c.result(unsqueeze(c.b, x, axes));
  }
}

// ---- writes through views
ValueId put_reshaped(Call& c, ValueId written, int) {
  ValueId x = c.in.tensor("self");
  return reshape(c.b, written, c.b.shape(x));
}

ValueId put_expanded(Call& c, ValueId written, int) {
  ValueId x = c.in.tensor("self");
  if (c.b.ok() && c.b.shape(x) != c.b.shape(written)) {
    c.unsupported("a write through an expanded view, whose elements share memory");
    return {};
  }
  return written;
}

// Exchanged dimensions are exchanged back by the same call.
ValueId put_exchanged(Call& c, ValueId written, int) {
  const bool axes = c.schema().argument("axis0") != nullptr, dims = c.schema().argument("dim0") != nullptr;
  const int rank = c.b.rank(written);
  if (!c.b.ok() || rank < 2) return written;
  int64_t from = rank - 2, to = rank - 1;
  if (axes || dims) {
    from = c.in.axis(axes ? "axis0" : "dim0", rank);
    to = c.in.axis(axes ? "axis1" : "dim1", rank);
  }
  Ints perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[static_cast<size_t>(from)], perm[static_cast<size_t>(to)]);
  return transpose(c.b, written, perm);
}

ValueId put_reversed(Call& c, ValueId written, int) {
  Ints perm;
  for (int64_t k = c.b.rank(written); k-- > 0;) perm.push_back(k);
  return transpose(c.b, written, perm);
}

ValueId put_permuted(Call& c, ValueId written, int) {
  Ints perm = c.in.ints("dims");
  for (int64_t& p : perm) p = c.b.axis(p, c.b.rank(written));
  return transpose(c.b, written, inverse(perm));
}

ValueId put_moved(Call& c, ValueId written, int) {
  // The view of a tensor that numbers its dimensions says where each went.
  const int rank = c.b.rank(written);
  Ints from = c.in.ints("source"), to = c.in.ints("destination"), perm(static_cast<size_t>(rank), -1), rest;
  for (size_t k = 0; k < from.size() && k < to.size() && c.b.ok(); ++k) {
    from[k] = c.b.axis(from[k], rank);
    perm[static_cast<size_t>(c.b.axis(to[k], rank))] = from[k];
  }
  for (int64_t k = 0; k < rank; ++k)
    if (std::find(from.begin(), from.end(), k) == from.end()) rest.push_back(k);
  size_t next = 0;
  for (int64_t& p : perm)
    if (p < 0 && next < rest.size()) p = rest[next++];
  return c.b.ok() ? transpose(c.b, written, inverse(perm)) : ValueId();
}

ValueId put_sliced(Call& c, ValueId written, int) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  const SymExpr n = c.b.dim(x, axis);
  const Range r = c.schema().argument("length")
                      ? Range{wrapped(c.b.env(), c.in.size("start"), n), c.in.size("length"), 1}
                      : range_of(c, n);
  return put_range(c.b, x, written, axis, r);
}

ValueId put_selected(Call& c, ValueId written, int) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  return put_range(c.b, x, unsqueeze(c.b, written, {axis}), axis, one_at(c, c.b.dim(x, axis)));
}

ValueId put_unbound(Call& c, ValueId written, int result) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  return put_range(c.b, x, unsqueeze(c.b, written, {axis}), axis, {result, 1, 1});
}

// A part begins where those before it end.
ValueId put_part(Call& c, ValueId written, int result) {
  ValueId x = c.in.tensor("self");
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  SymExpr start = 0;
  for (int i = 0; i < result; ++i) {
    const SymShape shape = c.result_shape(i);
    if (!c.b.ok() || shape.size() <= static_cast<size_t>(axis)) return {};
    start += shape[static_cast<size_t>(axis)];
  }
  return put_range(c.b, x, written, axis, {c.b.env().simplify(start), c.b.dim(written, axis), 1});
}

ValueId put_on_diagonal(Call& c, ValueId written, int) {
  ValueId x = c.in.tensor("self");
  const Diagonal d = diagonal_of(c, c.b.rank(x));
  return put_diagonal(c.b, x, written, d.offset, d.dim1, d.dim2);
}

ValueId put_strided(Call& c, ValueId written, int) { return strided_put(c, c.in.tensor("self"), written); }

ValueId put_bits(Call& c, ValueId written, int) {
  ValueId x = c.in.tensor("self");
  return c.b.ok() ? bits_as(c, written, c.b.dtype(x)) : written;
}

ValueId put_nowhere(Call& c, ValueId, int) {
  c.unsupported("a write through a view whose elements share memory");
  return {};
}

void register_writes(AtenTable& t) {
  t.add_views({"view.default",       "reshape.default",    "_unsafe_view.default", "_reshape_alias.default",
               "view_as.default",    "reshape_as.default", "flatten.using_ints",   "ravel.default",
               "unflatten.int",      "squeeze.default",    "squeeze.dim",          "squeeze.dims",
               "unsqueeze.default",  "alias.default",      "detach.default",       "lift.default",
               "lift_fresh.default", "contiguous.default", "atleast_1d.default",   "atleast_2d.default",
               "atleast_3d.default"},
              put_reshaped);
  t.add_views({"expand.default", "expand_as.default", "broadcast_to.default"}, put_expanded);
  t.add_views({"transpose.int", "swapdims.default", "swapaxes.default", "t.default", "mT.default", "mT.a",
               "adjoint.default", "mH.default", "mH.a"},
              put_exchanged);
  t.add_views({"numpy_T.default", "numpy_T.a", "matrix_H.default", "matrix_H.a"}, put_reversed);
  t.add_views({"permute.default"}, put_permuted);
  t.add_views({"movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist"}, put_moved);
  t.add_views({"slice.Tensor", "narrow.default"}, put_sliced);
  t.add_views({"select.int"}, put_selected);
  t.add_views({"unbind.int"}, put_unbound);
  t.add_views({"split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default", "tensor_split.sections",
               "tensor_split.indices"},
              put_part);
  t.add_views({"diagonal.default"}, put_on_diagonal);
  t.add_views({"as_strided.default"}, put_strided);
  t.add_views({"view.dtype"}, put_bits);
  t.add_views({"unfold.default"}, put_nowhere);
}

} // namespace

void register_views(AtenTable& t) {
  register_writes(t);
  t.add({"view.default", "reshape.default", "_unsafe_view.default", "view_copy.default", "_reshape_copy.default",
         "_reshape_alias.default", "_reshape_alias_copy.default"},
        translate_view);
  t.add({"view_as.default", "reshape_as.default"}, translate_view_as);
  t.add({"view.dtype", "view_copy.dtype"}, translate_view_dtype);
  t.add({"flatten.using_ints"}, translate_flatten);
  t.add({"ravel.default"}, translate_ravel);
  t.add({"unflatten.int"}, translate_unflatten);
  t.add({"expand.default", "expand_copy.default", "broadcast_to.default"}, translate_expand);
  t.add({"expand_as.default"}, translate_expand_as);
  t.add({"broadcast_tensors.default"}, translate_broadcast_tensors);
  t.add({"permute.default", "permute_copy.default"}, translate_permute);
  t.add({"transpose.int", "transpose_copy.int", "swapdims.default"}, translate_exchange<kDims>);
  t.add({"swapaxes.default"}, translate_exchange<kAxes>);
  t.add({"t.default", "t_copy.default", "mT.default", "mT.a", "adjoint.default", "mH.default", "mH.a"},
        translate_matrix_transpose);
  t.add({"numpy_T.default", "numpy_T.a", "matrix_H.default", "matrix_H.a"}, translate_numpy_t);
  t.add({"movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist"}, translate_movedim);
  t.add({"squeeze.default", "squeeze.dim", "squeeze.dims", "squeeze_copy.default", "squeeze_copy.dim",
         "squeeze_copy.dims"},
        translate_squeeze);
  t.add({"unsqueeze.default", "unsqueeze_copy.default"}, translate_unsqueeze);
  t.add({"alias.default", "alias_copy.default", "lift.default", "lift_fresh.default", "lift_fresh_copy.default"},
        translate_same);
  t.add({"slice.Tensor", "slice_copy.Tensor"}, translate_slice);
  t.add({"slice_scatter.default"}, translate_slice_scatter);
  t.add({"slice_backward.default"}, translate_slice_backward);
  t.add({"select.int", "select_copy.int"}, translate_select);
  t.add({"select_scatter.default"}, translate_select_scatter);
  t.add({"select_backward.default"}, translate_select_backward);
  t.add({"narrow.default", "narrow_copy.default"}, translate_narrow);
  t.add({"split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor"}, translate_split);
  t.add({"split.sizes", "split_with_sizes.default", "split_with_sizes_copy.default", "unsafe_split_with_sizes.default"},
        translate_split_sizes);
  t.add({"chunk.default", "unsafe_chunk.default"}, translate_chunk);
  t.add({"tensor_split.sections", "tensor_split.indices"}, translate_tensor_split);
  t.add({"hsplit.int", "hsplit.array"}, translate_split_axis<1>);
  t.add({"vsplit.int", "vsplit.array"}, translate_split_axis<0>);
  t.add({"dsplit.int", "dsplit.array"}, translate_split_axis<2>);
  t.add({"unbind.int", "unbind_copy.int"}, translate_unbind);
  t.add({"diagonal.default", "diagonal_copy.default"}, translate_diagonal);
  t.add({"diagonal_scatter.default"}, translate_diagonal_scatter);
  t.add({"diagonal_backward.default"}, translate_diagonal_backward);
  t.add({"diag_embed.default"}, translate_diag_embed);
  t.add({"diag.default"}, translate_diag);
  t.add({"diagflat.default"}, translate_diagflat);
  t.add({"as_strided.default", "as_strided_copy.default"}, translate_as_strided);
  t.add({"as_strided_scatter.default"}, translate_as_strided_scatter);
  t.add({"unfold.default", "unfold_copy.default"}, translate_unfold);
  t.add({"atleast_1d.default", "atleast_1d.Sequence"}, [](Call& c) { translate_atleast(c, 1); });
  t.add({"atleast_2d.default", "atleast_2d.Sequence"}, [](Call& c) { translate_atleast(c, 2); });
  t.add({"atleast_3d.default", "atleast_3d.Sequence"}, [](Call& c) { translate_atleast(c, 3); });
}

} // namespace tessera::fx
