// Elements at positions that are data, and sizes that depend on data.
#include "frontend/fx/aten/index_parts.h"
#include <algorithm>

namespace tessera::fx {

ValueId as_index(ops::B& b, ValueId x) {
  if (!b.ok() || b.dtype(x) == DType::I64 || b.dtype(x) == DType::I32) return x;
  return cast(b, x, DType::I64);
}

ValueId selected(ops::B& b, ValueId x, ValueId index, int64_t axis) {
  return b.op("gather", {x, index}, {{"axis", axis}, {"wrap", int64_t{0}}});
}

Picked picked(Call& c, ValueId x, std::string_view name) {
  Picked p;
  ops::B& b = c.b;
  bool gap = false; // an axis that is not indexed came after one that is
  int64_t axis = 0;
  auto add = [&](ValueId index) {
    if (p.axes.empty()) p.first = axis;
    if (gap) p.adjacent = false;
    p.index.push_back(index);
    p.axes.push_back(axis++);
  };
  for (ValueId i : c.in.tensors(name)) {
    if (!b.ok()) return p;
    if (!i.valid()) {
      gap = gap || !p.axes.empty();
      ++axis;
      continue;
    }
    const bool mask = b.dtype(i) == DType::Bool || b.dtype(i) == DType::U8;
    const int rank = mask ? b.rank(i) : 1;
    if ((mask && rank == 0) || axis + rank > b.rank(x)) {
      c.unsupported("an index of " + b.type(i).str() + " at dimension " + std::to_string(axis) + " of " +
                    b.type(x).str());
      return p;
    }
    if (!mask) {
      add(as_index(b, i));
      continue;
    }
    for (int k = 0; k < rank; ++k)
      b.check(b.env().require_equal(b.dim(i, k), b.dim(x, axis + k), "a mask is as large as what it selects from",
                                    b.node().location));
    ValueId at = b.op("nonzero", {i}); // [rank, n]
    for (int k = 0; k < rank && b.ok(); ++k) add(reshape(b, slice(b, at, 0, k, 1), {b.dim(at, 1)}));
  }
  for (ValueId i : p.index) {
    if (!b.ok()) return p;
    auto both = b.env().broadcast(p.shape, b.shape(i), b.node().location);
    if (!both.ok()) {
      b.fail(both.error());
      return p;
    }
    p.shape = *both;
  }
  for (int64_t k = 0; k < b.rank(x); ++k)
    if (std::find(p.axes.begin(), p.axes.end(), k) == p.axes.end()) p.rest.push_back(k);
  if (!p.adjacent) p.first = 0;
  return p;
}

Ints Picked::front() const {
  Ints perm = axes;
  perm.insert(perm.end(), rest.begin(), rest.end());
  return perm;
}

Ints Picked::from_front() const {
  const auto q = static_cast<int64_t>(shape.size());
  Ints perm;
  for (int64_t k = 0; k < first; ++k) perm.push_back(q + k);
  for (int64_t k = 0; k < q; ++k) perm.push_back(k);
  for (int64_t k = first; k < static_cast<int64_t>(rest.size()); ++k) perm.push_back(q + k);
  return perm;
}

ValueId Picked::tuples(ops::B& b) const {
  std::vector<ValueId> parts;
  const bool same = std::all_of(index.begin(), index.end(), [&](ValueId i) { return b.dtype(i) == b.dtype(index[0]); });
  for (ValueId i : index) {
    if (!same) i = cast(b, i, DType::I64);
    parts.push_back(unsqueeze(b, expand(b, i, shape), {static_cast<int64_t>(shape.size())}));
  }
  return b.ok() ? concat(b, std::move(parts), static_cast<int64_t>(shape.size())) : ValueId();
}

ValueId taken(ops::B& b, ValueId x, const Picked& p) {
  if (!b.ok() || p.index.empty()) return x;
  if (p.index.size() == 1) return gather(b, x, p.index[0], p.axes[0]);
  ValueId out = b.op("gather_nd", {transpose(b, x, p.front()), p.tuples(b)});
  return transpose(b, out, p.from_front());
}

namespace {

void translate_index(Call& c) {
  ValueId x = c.in.tensor("self");
  const Picked p = picked(c, x, "indices");
  c.result(taken(c.b, x, p));
}

// Values where a mask holds, a number elsewhere, where positions may be anything.
void translate_masked_index(Call& c) {
  ValueId x = c.in.tensor("self"), mask = c.in.tensor("mask");
  Picked p = picked(c, x, "indices");
  clamp_positions(c.b, x, p);
  ValueId fill = literal(c.b, c.in.scalar("fill"), c.b.dtype(x));
  c.result(select(c.b, mask, taken(c.b, x, p), fill));
}

void translate_index_select(Call& c) {
  ValueId x = c.in.tensor("self"), index = as_index(c.b, c.in.tensor("index"));
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (!c.b.ok()) return;
  if (c.b.rank(x) == 0) { // a scalar is indexed by zeros
    return c.result(reshape(c.b, selected(c.b, as_vector(c.b, x), reshape(c.b, index, {1}), 0), {}));
  }
  c.result(selected(c.b, x, as_vector(c.b, index), axis));
}

void translate_gather(Call& c) {
  ValueId x = as_vector(c.b, c.in.tensor("self")), index = as_index(c.b, c.in.tensor("index"));
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (!c.b.ok()) return;
  const SymShape shape = c.b.shape(index);
  ValueId at = as_vector(c.b, index);
  if (c.b.ok() && c.b.rank(at) != c.b.rank(x) && c.b.type(at).count().is_const(0)) // an empty index has any rank
    return c.result(zeros(c.b, c.b.dtype(x), shape));
  c.result(reshape(c.b, c.b.op("gather_elements", {x, at}, {{"axis", axis}, {"wrap", int64_t{0}}}), shape));
}

void translate_take(Call& c) {
  ValueId x = c.in.tensor("self"), index = as_index(c.b, c.in.tensor("index"));
  c.result(gather(c.b, reshape(c.b, x, {c.b.type(x).count()}), index, 0));
}

void translate_take_along_dim(Call& c) {
  ValueId x = c.in.tensor("self"), index = as_index(c.b, c.in.tensor("indices"));
  if (!c.b.ok()) return;
  if (!c.in.given("dim")) {
    index = reshape(c.b, index, {c.b.type(index).count()});
    return c.result(c.b.op("gather_elements", {reshape(c.b, x, {c.b.type(x).count()}), index}, {{"axis", int64_t{0}}}));
  }
  const int64_t axis = c.in.axis("dim", c.b.rank(x));
  if (!c.b.ok() || c.b.rank(x) != c.b.rank(index)) return c.unsupported("positions of another rank than the tensor");
  SymShape from = c.b.shape(x), at = c.b.shape(index);
  for (size_t k = 0; k < from.size(); ++k) {
    if (static_cast<int64_t>(k) == axis) continue;
    auto both = c.b.env().broadcast(from[k], at[k], c.b.node().location);
    if (!both.ok()) return c.b.fail(both.error());
    from[k] = at[k] = *both;
  }
  c.result(c.b.op("gather_elements", {expand(c.b, x, from), expand(c.b, index, at)}, {{"axis", axis}}));
}

void translate_embedding(Call& c) {
  ValueId weight = c.in.tensor("weight"), indices = as_index(c.b, c.in.tensor("indices"));
  c.result(selected(c.b, weight, indices, 0));
}

// ---- sizes that depend on data
void translate_nonzero(Call& c) {
  ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return;
  const int rank = c.b.rank(x);
  ValueId at = c.b.op("nonzero", {as_vector(c.b, x)}); // [rank, n]
  if (rank == 0) return c.result(slice(c.b, transpose(c.b, at, {1, 0}), 1, 0, 0));
  c.result(transpose(c.b, at, {1, 0}));
}

// The first `size` positions; rows of `fill_value` after them.
void translate_nonzero_static(Call& c) {
  ValueId x = as_vector(c.b, c.in.tensor("self"));
  const SymExpr size = c.in.size("size");
  ValueId fill = c.b.scalar_i(DType::I64, c.in.integer("fill_value"));
  ValueId at = transpose(c.b, c.b.op("nonzero", {x}), {1, 0});
  if (!c.b.ok()) return;
  c.result(pad(c.b, at, {0, 0}, {size - c.b.dim(at, 0), 0}, fill));
}

void translate_nonzero_numpy(Call& c) {
  ValueId x = as_vector(c.b, c.in.tensor("self"));
  ValueId at = c.b.op("nonzero", {x});
  for (int64_t k = 0; c.b.ok() && k < c.b.rank(x); ++k)
    c.result(reshape(c.b, slice(c.b, at, 0, k, 1), {c.b.dim(at, 1)}));
}

void translate_masked_select(Call& c) {
  ValueId x = c.in.tensor("self"), mask = c.in.tensor("mask");
  if (!c.b.ok()) return;
  auto shape = c.b.env().broadcast(c.b.shape(x), c.b.shape(mask), c.b.node().location);
  if (!shape.ok()) return c.b.fail(shape.error());
  const SymExpr count = product(*shape);
  ValueId flat = reshape(c.b, broadcast_to(c.b, x, *shape), {count});
  ValueId on = reshape(c.b, broadcast_to(c.b, mask, *shape), {count});
  c.result(c.b.op("compress", {flat, on}, {{"axis", int64_t{0}}}));
}

// Distinct elements: values, for each element of self which one it is, how often each is there.
void unique(Call& c, std::optional<int64_t> axis) {
  ValueId x = c.in.tensor("self");
  const bool inverse = c.in.flag("return_inverse"), counts = c.in.flag("return_counts");
  if (!c.b.ok()) return;
  Attributes a;
  if (axis) a.set("axis", *axis);
  auto r = c.b.ops("unique", {as_vector(c.b, x)}, a, 4);
  if (!c.b.ok()) return;
  ValueId none = zeros(c.b, DType::I64, {0});
  c.result(r[0]);
  c.result(!inverse ? none : axis ? r[2] : reshape(c.b, r[2], c.b.shape(x)));
  c.result(counts ? r[3] : none);
}
void translate_unique(Call& c) { unique(c, {}); }
void translate_unique_dim(Call& c) {
  const int64_t axis = c.in.axis("dim", c.b.rank(c.in.tensor("self")));
  unique(c, axis);
}

} // namespace

void clamp_positions(ops::B& b, ValueId x, Picked& p) {
  for (size_t k = 0; b.ok() && k < p.index.size(); ++k) {
    const DType d = b.dtype(p.index[k]);
    const SymExpr size = b.dim(x, p.axes[k]);
    p.index[k] = max(b, min(b, p.index[k], b.size(size - 1, d)), b.size(0 - size, d));
  }
}

void register_indexing(AtenTable& t) {
  t.add({"index.Tensor", "index.Tensor_hacked_twin", "_unsafe_index.Tensor", "_unsafe_index.Tensor_hacked_twin"},
        translate_index);
  t.add({"_unsafe_masked_index.default"}, translate_masked_index);
  t.add({"index_select.default"}, translate_index_select);
  t.add({"gather.default"}, translate_gather);
  t.add({"take.default"}, translate_take);
  t.add({"take_along_dim.default"}, translate_take_along_dim);
  t.add({"embedding.default"}, translate_embedding);
  t.add({"nonzero.default", "argwhere.default"}, translate_nonzero);
  t.add({"nonzero_static.default"}, translate_nonzero_static);
  t.add({"nonzero_numpy.default"}, translate_nonzero_numpy);
  t.add({"masked_select.default"}, translate_masked_select);
  t.add({"_unique2.default"}, translate_unique);
  t.add({"unique_dim.default"}, translate_unique_dim);
}

} // namespace tessera::fx
