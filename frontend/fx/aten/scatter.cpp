// Writes at positions that are data.
#include "frontend/fx/aten/index_parts.h"
#include "frontend/fx/aten/parts.h"
#include "frontend/fx/aten/pointwise.h"
#include <algorithm>
#include <limits>

namespace tessera::fx {
namespace {

// Reductions of the records: "none", "add", "mul", "max", "min". Of booleans a sum is the largest one, a product the
// smallest.
struct Combine {
  std::string reduction;
  DType dtype; // to compute in
};
Combine combine(const std::string& reduction, DType stored) {
  if (stored != DType::Bool || reduction == "none") return {reduction, stored};
  return {reduction == "add" ? "max" : reduction == "mul" ? "min" : reduction, DType::I32};
}

// `wrap`: negative positions count from the end; else they are an error.
ValueId scatter_nd(ops::B& b, ValueId x, ValueId tuples, ValueId updates, const std::string& reduction,
                   bool wrap = false) {
  if (!b.ok()) return {};
  const DType stored = b.dtype(x);
  const Combine how = combine(reduction, stored);
  ValueId out = b.op("scatter_nd", {cast(b, x, how.dtype), tuples, cast(b, updates, how.dtype)},
                     {{"reduction", how.reduction}, {"wrap", int64_t{wrap ? 1 : 0}}});
  return cast(b, out, stored);
}

ValueId scatter_elements(ops::B& b, ValueId x, ValueId index, ValueId updates, int64_t axis,
                         const std::string& reduction, bool wrap = false) {
  if (!b.ok()) return {};
  const DType stored = b.dtype(x);
  const Combine how = combine(reduction, stored);
  ValueId out = b.op("scatter_elements", {cast(b, x, how.dtype), index, cast(b, updates, how.dtype)},
                     {{"axis", axis}, {"reduction", how.reduction}, {"wrap", int64_t{wrap ? 1 : 0}}});
  return cast(b, out, stored);
}

// PyTorch's names of reductions.
struct Reduction {
  std::string kind; // "add", "mul", "max", "min"
  bool mean = false;
};
std::optional<Reduction> reduction_of(const std::string& name) {
  if (name == "sum" || name == "add" || name == "mean") return Reduction{"add", name == "mean"};
  if (name == "prod" || name == "multiply") return Reduction{"mul"};
  if (name == "amax") return Reduction{"max"};
  if (name == "amin") return Reduction{"min"};
  return {};
}

// The number that changes nothing.
ValueId identity(ops::B& b, DType d, const std::string& kind) {
  if (kind == "add") return b.scalar_i(d, 0);
  if (kind == "mul") return b.scalar_i(d, 1);
  const bool low = kind == "max";
  if (d == DType::Bool) return b.scalar_i(d, low ? 0 : 1);
  if (is_float(d)) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return b.scalar(d, low ? -infinity : infinity);
  }
  const int bits = static_cast<int>(info(d).bits);
  if (info(d).kind == DTypeKind::Unsigned)
    return b.scalar_i(d, low ? 0 : bits >= 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1);
  const int64_t least = bits >= 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (bits - 1));
  return b.scalar_i(d, low ? least : -(least + 1));
}

// Combines updates into x with `write(x, updates, reduction)`; without x's own elements where something is written.
// Means divide by the number of elements that were added.
template <class Write>
ValueId reduced(ops::B& b, ValueId x, ValueId updates, const Reduction& r, bool include_self, const Write& write) {
  if (!b.ok()) return {};
  const DType stored = b.dtype(x), d = r.mean ? compute_dtype(stored) : stored;
  const SymShape shape = b.shape(x), written = b.shape(updates);
  x = cast(b, x, d);
  updates = cast(b, updates, d);
  ValueId base = x;
  if (!include_self) base = write(x, filled(b, identity(b, d, r.kind), written), "none");
  ValueId out = write(base, updates, r.kind);
  if (r.mean) {
    ValueId none = filled(b, b.scalar_i(DType::I64, include_self ? 1 : 0), shape);
    ValueId count = write(none, filled(b, b.scalar_i(DType::I64, 1), written), "add");
    count = cast(b, max(b, count, b.scalar_i(DType::I64, 1)), d);
    out = is_float(d) ? div(b, out, count) : floor_quotient(b, out, count);
  }
  return cast(b, out, stored);
}

ValueId part_of(ops::B& b, ValueId x, const SymShape& shape) {
  for (size_t k = 0; b.ok() && k < shape.size(); ++k)
    if (!(b.dim(x, static_cast<int64_t>(k)) == shape[k])) x = slice(b, x, static_cast<int64_t>(k), 0, shape[k]);
  return x;
}

// scatter.*: one position along `dim` for each element of `index`.
void translate_scatter(Call& c) {
  ops::B& b = c.b;
  ValueId x = c.in.tensor("self"), index = as_index(b, c.in.tensor("index"));
  if (!b.ok()) return;
  const SymShape shape = b.shape(x);
  const DType d = b.dtype(x);
  if (b.type(index).count().is_const(0)) return c.result(x);
  x = as_vector(b, x);
  index = as_vector(b, index);
  const int64_t axis = c.in.axis("dim", b.rank(x));
  ValueId updates;
  if (c.schema().argument("src"))
    updates = part_of(b, cast(b, as_vector(b, c.in.tensor("src")), d), b.shape(index));
  else
    updates = filled(b, exact_literal(c.b, c.in.scalar("value"), d), b.shape(index));
  std::optional<Reduction> r;
  if (c.schema().argument("reduce")) {
    const std::string name = c.in.text("reduce");
    r = reduction_of(name);
    if (!r) return c.unsupported("the reduction '" + name + "'");
  } else if (c.schema().name == "aten.scatter_add.default") {
    r = Reduction{"add"};
  }
  const bool include_self = !c.schema().argument("include_self") || c.in.flag("include_self");
  auto write = [&](ValueId to, ValueId from, const std::string& how) {
    return scatter_elements(b, to, index, from, axis, how);
  };
  ValueId out = r ? reduced(b, x, updates, *r, include_self, write) : write(x, updates, "none");
  c.result(reshape(b, out, shape));
}

// index_add, index_copy, index_fill, index_reduce: slices at positions along `dim`.
struct Slices {
  ValueId x;      // the dimension first
  ValueId tuples; // [n, 1]
  SymShape shape; // of updates: [n, rest]
  int64_t axis = 0;
  SymShape original;
};
Slices slices_of(Call& c) {
  ops::B& b = c.b;
  Slices s;
  ValueId x = c.in.tensor("self"), index = as_vector(b, as_index(b, c.in.tensor("index")));
  s.original = b.shape(x);
  s.axis = c.in.axis("dim", b.rank(x));
  x = as_vector(b, x);
  if (!b.ok()) return s;
  s.x = transpose(b, x, moved(b.rank(x), s.axis, 0));
  s.tuples = unsqueeze(b, index, {1});
  s.shape = b.shape(s.x);
  s.shape[0] = b.dim(index, 0);
  return s;
}
ValueId source_of(Call& c, const Slices& s, std::string_view name) {
  ops::B& b = c.b;
  ValueId source = as_vector(b, c.in.tensor(name));
  if (!b.ok()) return {};
  if (b.rank(source) == b.rank(s.x)) source = transpose(b, source, moved(b.rank(source), s.axis, 0));
  return expand(b, cast(b, source, b.dtype(s.x)), s.shape);
}
ValueId back(Call& c, const Slices& s, ValueId out) {
  if (!c.b.ok()) return {};
  return reshape(c.b, transpose(c.b, out, moved(c.b.rank(out), 0, s.axis)), s.original);
}

void translate_index_add(Call& c) {
  const Slices s = slices_of(c);
  ValueId source = source_of(c, s, "source");
  if (c.b.ok())
    source = c.b.dtype(source) == DType::Bool
                 ? logical_and(c.b, source, literal(c.b, c.in.scalar("alpha"), DType::Bool))
                 : scaled(c.b, c.in, source, "alpha");
  c.result(back(c, s, scatter_nd(c.b, s.x, s.tuples, source, "add")));
}

void translate_index_copy(Call& c) {
  const Slices s = slices_of(c);
  c.result(back(c, s, scatter_nd(c.b, s.x, s.tuples, source_of(c, s, "source"), "none")));
}

void translate_index_fill(Call& c) {
  const Slices s = slices_of(c);
  ValueId value = exact_operand(c.b, c.in, "value", c.b.dtype(s.x));
  if (c.b.ok() && c.b.rank(value) > 0) value = reshape(c.b, value, {});
  c.result(back(c, s, scatter_nd(c.b, s.x, s.tuples, filled(c.b, value, s.shape), "none", true)));
}

void translate_index_reduce(Call& c) {
  const Slices s = slices_of(c);
  const std::string name = c.in.text("reduce");
  auto r = reduction_of(name);
  if (!r) return c.unsupported("the reduction '" + name + "'");
  auto write = [&](ValueId to, ValueId from, const std::string& how) {
    return scatter_nd(c.b, to, s.tuples, from, how);
  };
  c.result(back(c, s, reduced(c.b, s.x, source_of(c, s, "source"), *r, c.in.flag("include_self"), write)));
}

// ---- index_put
// One mask and values that are the same for every element that it selects: a choice by the mask.
bool put_by_mask(Call& c, ValueId x, ValueId values, bool accumulate) {
  ops::B& b = c.b;
  std::vector<ValueId> indices = c.in.tensors("indices");
  int64_t axis = 0, at = -1;
  ValueId mask;
  for (ValueId i : indices) {
    if (i.valid()) {
      if (mask.valid() || b.dtype(i) != DType::Bool || b.rank(i) == 0) return false;
      mask = i;
      at = axis;
    }
    ++axis;
  }
  if (!b.ok() || !mask.valid() || at + b.rank(mask) > b.rank(x)) return false;
  // Values are [.., n, rest]: n must be 1 or left out.
  const int rest = b.rank(x) - static_cast<int>(at) - b.rank(mask);
  SymShape shape = b.shape(values);
  if (static_cast<int>(shape.size()) > rest) {
    const size_t n = shape.size() - 1 - static_cast<size_t>(rest);
    if (!shape[n].is_const(1)) return false;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(n), static_cast<size_t>(b.rank(mask)) - 1, SymExpr(1));
  }
  values = reshape(b, values, shape);
  SymShape wide = b.shape(mask);
  for (int k = 0; k < rest; ++k) wide.emplace_back(1);
  mask = reshape(b, mask, wide);
  if (accumulate) values = b.dtype(x) == DType::Bool ? logical_or(b, x, values) : add(b, x, values);
  c.result(select(b, mask, values, x));
  return true;
}

void put(Call& c, ValueId x, const Picked& p, ValueId values, bool accumulate) {
  ops::B& b = c.b;
  if (!b.ok()) return;
  if (p.index.empty()) {
    values = broadcast_to(b, values, b.shape(x));
    return c.result(!accumulate ? values : b.dtype(x) == DType::Bool ? logical_or(b, x, values) : add(b, x, values));
  }
  // Values in the order of the result, then as [shape, rest].
  SymShape front = p.shape, shape;
  for (int64_t k : p.rest) front.push_back(b.dim(x, k));
  const Ints order = p.from_front();
  for (int64_t k : order) shape.push_back(front[static_cast<size_t>(k)]);
  // Leading dimensions of size 1 beyond the result's are dropped.
  SymShape own = b.shape(values);
  while (own.size() > shape.size() && own.front().is_const(1)) own.erase(own.begin());
  values = transpose(b, broadcast_to(b, reshape(b, values, own), shape), inverse(order));
  const Ints perm = p.front();
  ValueId out = scatter_nd(b, transpose(b, x, perm), p.tuples(b), values, accumulate ? "add" : "none", true);
  c.result(transpose(b, out, inverse(perm)));
}

void translate_index_put(Call& c) {
  ValueId x = c.in.tensor("self"), values = c.in.tensor("values");
  const bool accumulate = c.in.flag("accumulate");
  values = cast(c.b, values, c.b.dtype(x));
  if (!c.b.ok() || put_by_mask(c, x, values, accumulate)) return;
  const Picked p = picked(c, x, "indices");
  put(c, x, p, values, accumulate);
}

void translate_masked_index_put(Call& c) {
  ValueId x = c.in.tensor("self"), mask = c.in.tensor("mask"), values = c.in.tensor("values");
  Picked p = picked(c, x, "indices");
  clamp_positions(c.b, x, p);
  put(c, x, p, select(c.b, mask, values, 0.0), true);
}

// Elements of `source` one after the other where the mask holds.
void translate_masked_scatter(Call& c) {
  ops::B& b = c.b;
  ValueId x = c.in.tensor("self"), mask = c.in.tensor("mask"), source = c.in.tensor("source");
  if (!b.ok()) return;
  auto shape = b.env().broadcast(b.shape(x), b.shape(mask), b.node().location);
  if (!shape.ok()) return b.fail(shape.error());
  const SymExpr count = product(*shape);
  if (b.type(source).count().is_const(0)) return c.result(broadcast_to(b, x, *shape));
  ValueId on = broadcast_to(b, mask, *shape);
  ValueId seen = b.op("CumSum", {cast(b, reshape(b, on, {count}), DType::I64), b.scalar_i(DType::I64, 0)});
  ValueId at = max(b, sub(b, seen, 1.0), 0.0);
  ValueId from = gather(b, reshape(b, source, {b.type(source).count()}), at, 0);
  c.result(select(b, on, reshape(b, from, *shape), broadcast_to(b, x, *shape)));
}

void translate_put(Call& c) {
  ops::B& b = c.b;
  ValueId x = c.in.tensor("self"), index = as_index(b, c.in.tensor("index")), source = c.in.tensor("source");
  const bool accumulate = c.in.flag("accumulate");
  if (!b.ok()) return;
  const SymExpr n = b.type(index).count();
  ValueId out = scatter_elements(b, reshape(b, x, {b.type(x).count()}), reshape(b, index, {n}),
                                 reshape(b, cast(b, source, b.dtype(x)), {n}), 0, accumulate ? "add" : "none", true);
  c.result(reshape(b, out, b.shape(x)));
}

void translate_embedding_backward(Call& c) {
  ops::B& b = c.b;
  ValueId g = c.in.tensor("grad_output"), indices = as_index(b, c.in.tensor("indices"));
  const SymExpr rows = c.in.size("num_weights"), padding = c.in.size("padding_idx");
  const bool by_frequency = c.in.flag("scale_grad_by_freq");
  if (!b.ok()) return;
  const SymExpr n = b.type(indices).count(), width = b.dim(g, b.rank(g) - 1);
  const DType stored = b.dtype(g);
  g = widen(b, reshape(b, g, {n, width}));
  ValueId at = reshape(b, indices, {n, 1});
  if (by_frequency) {
    ValueId ones = filled(b, b.scalar(b.dtype(g), 1), {n});
    ValueId count = scatter_nd(b, zeros(b, b.dtype(g), {rows}), at, ones, "add");
    g = div(b, g, unsqueeze(b, selected(b, count, reshape(b, at, {n}), 0), {1}));
  }
  ValueId keep = ne(b, at, b.size(padding, b.dtype(at)));
  if (!padding.is_const() || padding.const_value() >= 0) g = select(b, keep, g, 0.0);
  c.result(cast(b, scatter_nd(b, zeros(b, b.dtype(g), {rows, width}), at, g, "add"), stored));
}

// Rows that `indices` name and whose norm is above the limit are scaled down to it.
void translate_embedding_renorm(Call& c) {
  ops::B& b = c.b;
  ValueId x = c.in.tensor("self"), indices = as_index(b, c.in.tensor("indices"));
  const double limit = c.in.number("max_norm"), order = c.in.number("norm_type");
  if (!b.ok()) return;
  const SymExpr n = b.type(indices).count();
  ValueId at = reshape(b, indices, {n}), rows = selected(b, x, at, 0), wide = widen(b, rows);
  constexpr double kTiny = 1e-7; // PyTorch's: a row of zeros divides by it
  ValueId length = norm_along(c, wide, 1, order), scale = div(b, b.like(length, limit), add(b, length, kTiny));
  rows = cast(b, select(b, gt(b, length, limit), mul(b, wide, scale), wide), b.dtype(x));
  // A row that is named several times is written the same each time.
  c.result(scatter_nd(b, x, reshape(b, at, {n, 1}), rows, "none"));
}

void translate_unfold_backward(Call& c) {
  ops::B& b = c.b;
  ValueId g = c.in.tensor("grad_in");
  const SymShape shape = c.in.sizes("input_sizes");
  const int64_t axis = c.in.axis("dim", static_cast<int>(shape.size())), size = c.in.integer("size"),
                step = c.in.integer("step");
  if (!b.ok()) return;
  // [.., count, .., size] as [count, size, ..]
  const int rank = b.rank(g);
  if (static_cast<size_t>(rank) != shape.size() + 1)
    return b.fail(ErrorCode::ShapeMismatch, "the gradient " + str(b.shape(g)) + " is of no windows of " + str(shape));
  const SymExpr count = b.dim(g, axis);
  Ints perm = {axis, rank - 1};
  SymShape front = {shape[static_cast<size_t>(axis)]};
  for (int64_t k = 0; k < rank - 1; ++k) {
    if (k == axis) continue;
    perm.push_back(k);
    front.push_back(shape[static_cast<size_t>(k)]);
  }
  ValueId at = unsqueeze(b, memory_index(b, {count, size}, {step, 1}, 0), {2});
  ValueId out = scatter_nd(b, zeros(b, b.dtype(g), front), at, transpose(b, g, perm), "add");
  c.result(transpose(b, out, moved(rank - 1, 0, axis)));
}

} // namespace

void register_scatter(AtenTable& t) {
  t.add({"scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add.default",
         "scatter_reduce.two"},
        translate_scatter);
  t.add({"index_add.default"}, translate_index_add);
  t.add({"index_copy.default"}, translate_index_copy);
  t.add({"index_fill.int_Scalar", "index_fill.int_Tensor"}, translate_index_fill);
  t.add({"index_reduce.default"}, translate_index_reduce);
  t.add({"index_put.default", "index_put.hacked_twin", "_unsafe_index_put.default", "_unsafe_index_put.hacked_twin",
         "_index_put_impl.default"},
        translate_index_put);
  t.add({"_unsafe_masked_index_put_accumulate.default"}, translate_masked_index_put);
  t.add({"masked_scatter.default"}, translate_masked_scatter);
  t.add({"put.default"}, translate_put);
  t.add({"embedding_dense_backward.default"}, translate_embedding_backward);
  t.add({"embedding_renorm.default"}, translate_embedding_renorm);
  t.add({"unfold_backward.default"}, translate_unfold_backward);
}

} // namespace tessera::fx
