// Results whose size is data: NonZero, Unique, Compress.
#include "graph/ops/chosen.h"
#include "graph/ops/parts.h"
#include "graph/ops/repeat.h"
#include <cmath>
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

// ---- NonZero
Result<std::vector<ValueId>> decompose_nonzero(Graph& g, const Node& n, int) {
  B b(g, n);
  const ValueId x = b.in(0);
  const SymShape shape = b.shape(x);
  const SymExpr count = product(shape);
  const ValueId flat = reshape(b, x, {count});
  const ValueId flags = b.dtype(x) == DType::Bool ? flat : ne(b, flat, 0.0);
  const SymExpr found = read_count(b, flags, size_of_result(b, {0}, 1));
  if (!b.ok()) return b.failed();
  const ValueId at = positions(b, flags, found);
  if (shape.empty()) return b.done(expand(b, b.scalar_i(DType::I64, 0), {0, found}));
  std::vector<ValueId> rows;
  SymExpr inner = count;
  for (size_t d = 0; d < shape.size(); ++d) {
    SymExpr next = 1;
    for (size_t e = d + 1; e < shape.size(); ++e) next *= shape[e];
    ValueId i = at;
    if (d > 0) i = b.op2("mod", i, b.size(inner, DType::I64));
    if (d + 1 < shape.size()) i = div(b, i, b.size(next, DType::I64));
    rows.push_back(unsqueeze(b, i, {0}));
    inner = next;
  }
  return b.done(rows.size() == 1 ? rows[0] : concat(b, rows, 0));
}

OpDef nonzero_record() {
  OpDef def;
  def.name = "nonzero";
  def.summary = "indices of elements that are not zero, one column each";
  def.onnx = {{"NonZero", "", 9}};
  def.aten = {"nonzero"};
  def.operands = {{"X", TypeSet::NumericOrBool}};
  def.infer = [](InferContext& c) -> Status {
    SymExpr most = c.type(0).count();
    return set_result(c, DType::I64, {c.type(0).rank(), fresh(c, "nonzero", most)});
  };
  def.meaning = Decomposition{decompose_nonzero};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    auto found = [&](int64_t i) { return is_float(x.dtype()) ? x.get_f64(i) != 0 : x.get_i64(i) != 0; };
    int64_t n = 0;
    for (int64_t i = 0; i < x.count(); ++i) n += found(i);
    Dims strides = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor out, Tensor::create(DType::I64, {static_cast<int64_t>(strides.size()), n}));
    for (int64_t i = 0, column = 0; column < n; ++i) {
      if (!found(i)) continue;
      int64_t rest = i;
      for (size_t k = 0; k < strides.size(); ++k) {
        out.set_i64(static_cast<int64_t>(k) * n + column, rest / strides[k]);
        rest %= strides[k];
      }
      ++column;
    }
    c.results = {out};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::I32, {3, 4}, 1, -1, 1)}), sample({random(DType::Bool, {5}, 2)}),
                               sample({floats({2, 2}, {0, 1, -0.0, NAN})}), sample({random(DType::F32, {0, 2}, 1)})};
  };
  def.error_samples = [] { return std::vector<ErrorSample>{wrong({}, {}, ErrorCode::MalformedModel, "operand")}; };
  return def;
}

// ---- Compress
Result<std::vector<ValueId>> decompose_compress(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  int64_t axis = 0;
  if (b.attr().has("axis"))
    axis = b.axis(b.attr().i("axis"), b.rank(x));
  else
    x = reshape(b, x, {b.type(x).count()});
  const SymExpr found = read_count(b, b.in(1), size_of_result(b, {0}, static_cast<size_t>(axis)));
  if (!b.ok()) return b.failed();
  return b.done(gather(b, x, positions(b, b.in(1), found), axis));
}

// How many elements a condition selects: known where it is constant.
SymExpr selected(InferContext& c, int condition) {
  const Tensor* known = c.graph.constant(c.node.operands[static_cast<size_t>(condition)]);
  if (known == nullptr) return fresh(c, "compress", c.shape(condition)[0]);
  int64_t n = 0;
  for (int64_t i = 0; i < known->count(); ++i) n += known->get_i64(i) != 0;
  return n;
}

OpDef compress_record() {
  OpDef def;
  def.name = "compress";
  def.summary = "slices along an axis (elements without one) where a condition holds";
  def.onnx = {{"Compress", "", 9}};
  def.operands = {{"input", TypeSet::Any}, {"condition", TypeSet::Bool}};
  def.attributes = {{"axis", AttrKind::Int}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(1).rank() != 1)
      return c.error(ErrorCode::ShapeMismatch, "the condition of Compress must be a vector, not " + str(c.shape(1)));
    if (!c.node.attributes.has("axis")) return set_result(c, c.type(0).dtype, {selected(c, 1)});
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
    SymShape shape = c.shape(0);
    shape[static_cast<size_t>(axis)] = selected(c, 1);
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Decomposition{decompose_compress};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims dims = x.dims();
    size_t axis = 0;
    if (c.node.attributes.has("axis")) {
      int64_t a = c.node.attributes.i("axis");
      axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(dims.size()) : a);
    } else {
      dims = {x.count()};
    }
    std::vector<int64_t> keep;
    for (int64_t i = 0; i < c.operands[1].count(); ++i) {
      if (c.operands[1].get_i64(i) == 0) continue;
      if (i >= dims[axis])
        return c.error(ErrorCode::BadInput, "the condition of Compress selects element " + std::to_string(i) + " of " +
                                                std::to_string(dims[axis]));
      keep.push_back(i);
    }
    Dims strides = strides_of(dims);
    dims[axis] = static_cast<int64_t>(keep.size());
    TESSERA_ASSIGN(Tensor out, take_at(x, dims, [&](const Dims& at) {
                     Dims from = at;
                     from[axis] = keep[static_cast<size_t>(at[axis])];
                     return offset(from, strides);
                   }));
    c.results = {out};
    return {};
  };
  def.data_dependent_shape = true;
  def.samples = [] {
    Tensor x = random(DType::F32, {3, 4}, 1);
    return std::vector<Sample>{sample({x, integers(DType::Bool, {3}, {0, 1, 1})}, {{"axis", int64_t{0}}}),
                               sample({x, integers(DType::Bool, {3}, {0, 1, 1})}, {{"axis", int64_t{-1}}}),
                               sample({x, integers(DType::Bool, {5}, {0, 1, 0, 0, 1})})};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {3, 4}, 1);
    return std::vector<ErrorSample>{
        wrong({x, integers(DType::Bool, {1, 2}, {0, 1})}, {}, ErrorCode::ShapeMismatch, "vector"),
        wrong({x, integers(DType::Bool, {2}, {0, 1})}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

// ---- Unique
// Whether elements differ; NaN is one value.
ValueId differ(B& b, ValueId x, ValueId y) {
  const ValueId differs = ne(b, x, y);
  if (!b.ok() || !is_float(b.dtype(x))) return differs;
  return logical_and(b, differs, logical_not(b, logical_and(b, b.op1("isnan", x), b.op1("isnan", y))));
}

// The order of rows [n, ...], compared element by element: sorts by each column, the last one first, since a sort keeps
// the order of equal elements.
ValueId order_of_rows(B& b, ValueId x) {
  const SymExpr n = b.dim(x, 0);
  if (b.rank(x) == 1) return b.op("sort_indices", {x}, {{"k", SymShape{n}}});
  const ValueId columns = transpose(b, x, {1, 0});
  Scan scan;
  scan.body = std::make_shared<Graph>("column", std::make_shared<ShapeEnv>(b.env().inner()));
  Node place;
  place.location = b.node().location;
  B s(*scan.body, place);
  const ValueId order = scan.body->add_input("order", {DType::I64, {n}}),
                column = scan.body->add_input("column", {b.dtype(x), {n}});
  const ValueId by_column = s.op("sort_indices", {gather(s, column, order, 0)}, {{"k", SymShape{n}}});
  const ValueId next = gather(s, order, by_column, 0);
  if (!s.ok()) b.fail(s.failed().error());
  if (!b.ok()) return {};
  scan.body->add_output("order", next);
  scan.carried = {iota(b, {n}, 0)};
  scan.scanned = {columns};
  scan.reverse_in = {true};
  return scan_slices(b, scan)[0];
}

// Elements, or slices along an axis, in order; the first of each group of equal ones is a head.
Result<std::vector<ValueId>> decompose_unique(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), rows; // rows: [elements or slices, the elements of one]
  const bool slices = b.attr().has("axis") && b.rank(x) > 1;
  const int64_t axis = slices ? b.axis(b.attr().i("axis"), b.rank(x)) : 0;
  if (!b.ok()) return b.failed();
  SymExpr all = b.type(x).count();
  if (slices) {
    all = b.dim(x, axis);
    Ints perm = {axis};
    SymExpr width = 1;
    for (int64_t d = 0; d < b.rank(x); ++d)
      if (d != axis) {
        perm.push_back(d);
        width *= b.dim(x, d);
      }
    rows = reshape(b, transpose(b, x, perm), {all, width});
  } else {
    rows = x = reshape(b, x, {all});
  }
  rows = sortable(b, rows);
  const ValueId order = order_of_rows(b, rows), i = iota(b, {all}, 0);
  const ValueId sorted = gather(b, rows, order, 0);
  const ValueId before = gather(b, sorted, max(b, sub(b, i, 1.0), 0.0), 0);
  ValueId differs = differ(b, sorted, before);
  if (slices) differs = gt(b, reduce(b, "reduce_max", cast(b, differs, DType::I32), {1}, false), 0.0);
  const ValueId heads = logical_or(b, differs, eq(b, i, 0.0));
  std::optional<SymExpr> size = size_of_result(b, {0}, static_cast<size_t>(axis));
  if (!size) size = size_of_result(b, {1, 3}, 0);
  const SymExpr found = read_count(b, heads, size);
  if (!b.ok()) return b.failed();
  const ValueId group = sub(b, places(b, heads), 1.0), head = select(b, heads, group, -1.0);
  ValueId first = placed(b, head, order, found), inverse = placed(b, order, group, all);
  const ValueId start = placed(b, head, i, found), g_i = iota(b, {found}, 0);
  const ValueId last = b.size(found - 1, DType::I64);
  const ValueId next = gather(b, start, min(b, add(b, g_i, 1.0), last), 0);
  ValueId counts = sub(b, select(b, lt(b, g_i, last), next, b.size(all, DType::I64)), start);
  if (b.attr().i("sorted", 1) == 0) { // in order of first appearance
    const ValueId by_first = b.op("sort_indices", {cast(b, first, DType::I32)}, {{"k", SymShape{found}}});
    const ValueId rank = placed(b, by_first, g_i, found);
    first = gather(b, first, by_first, 0);
    counts = gather(b, counts, by_first, 0);
    inverse = gather(b, rank, inverse, 0);
  }
  return b.done({gather(b, x, first, axis), first, inverse, counts});
}

Status infer_unique(InferContext& c) {
  SymShape shape;
  SymExpr n;
  SymExpr all = c.type(0).count();
  if (c.node.attributes.has("axis")) {
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
    shape = c.shape(0);
    all = shape[static_cast<size_t>(axis)];
    n = shape[static_cast<size_t>(axis)] = fresh(c, "unique", all);
  } else {
    n = fresh(c, "unique", all);
    shape = {n};
  }
  TESSERA_TRY(set_result(c, c.type(0).dtype, shape));
  for (int i = 1; i < c.result_count; ++i) TESSERA_TRY(set_result(c, DType::I64, {i == 2 ? all : n}, i));
  return {};
}

Status reference_unique(ReferenceContext& c) {
  Tensor x = c.operands[0];
  size_t axis = 0;
  if (c.node.attributes.has("axis")) {
    int64_t a = c.node.attributes.i("axis");
    axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(x.dims().size()) : a);
  } else {
    x = x.reshaped({x.count()});
  }
  // Slices along the axis are compared element by element, in row-major order of the rest.
  Dims dims = x.dims(), strides = strides_of(dims), rest = dims;
  int64_t size = dims[axis], stride = strides[axis];
  rest[axis] = 1;
  std::vector<int64_t> base;
  for (MultiIndex w(rest); !w.done(); w.next()) base.push_back(offset(w.at(), strides));
  auto compare = [&](int64_t p, int64_t q) {
    int r = 0;
    by_kind(x.dtype(), [&](auto zero) {
      using V = decltype(zero);
      for (size_t k = 0; k < base.size() && r == 0; ++k) {
        V a = get<V>(x, base[k] + p * stride), b = get<V>(x, base[k] + q * stride);
        r = a < b ? -1 : b < a ? 1 : 0;
      }
    });
    return r;
  };
  std::vector<int64_t> order(static_cast<size_t>(size)), first, inverse(order.size()), counts;
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) { return compare(p, q) < 0; });
  std::vector<int64_t> group(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      first.push_back(order[i]);
      counts.push_back(0);
    }
    ++counts.back();
    group[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
  }
  if (c.node.attributes.i("sorted", 1) == 0) { // in order of first appearance
    std::vector<size_t> by_first(first.size()), position(first.size());
    std::iota(by_first.begin(), by_first.end(), size_t{0});
    std::sort(by_first.begin(), by_first.end(), [&](size_t p, size_t q) { return first[p] < first[q]; });
    std::vector<int64_t> f, n;
    for (size_t i = 0; i < by_first.size(); ++i) {
      position[by_first[i]] = i;
      f.push_back(first[by_first[i]]);
      n.push_back(counts[by_first[i]]);
    }
    first = f;
    counts = n;
    for (int64_t& g : group) g = static_cast<int64_t>(position[static_cast<size_t>(g)]);
  }
  Dims out_dims = dims;
  out_dims[axis] = static_cast<int64_t>(first.size());
  TESSERA_ASSIGN(Tensor values, take_at(x, out_dims, [&](const Dims& at) {
                   Dims from = at;
                   from[axis] = first[static_cast<size_t>(at[axis])];
                   return offset(from, strides);
                 }));
  Dims n = {static_cast<int64_t>(first.size())};
  TESSERA_ASSIGN(Tensor indices, from_i64(DType::I64, n, first));
  TESSERA_ASSIGN(Tensor inverse_indices, from_i64(DType::I64, {size}, group));
  TESSERA_ASSIGN(Tensor count_tensor, from_i64(DType::I64, n, counts));
  c.results = {values, indices, inverse_indices, count_tensor};
  return {};
}

OpDef unique_record() {
  OpDef def;
  def.name = "unique";
  def.summary = "distinct elements or slices, where they first stand, which each is, and how often";
  def.onnx = {{"Unique", "", 11}};
  def.operands = {{"X", TypeSet::NumericOrBool}};
  def.attributes = {{"axis", AttrKind::Int}, {"sorted", AttrKind::Int, false, int64_t{1}}};
  def.max_results = 4;
  def.infer = infer_unique;
  def.meaning = Decomposition{decompose_unique};
  def.reference = reference_unique;
  def.data_dependent_shape = true;
  def.samples = [] {
    std::vector<Sample> out = {
        sample({random(DType::I32, {3, 4}, 1, 0, 3)}),
        sample({random(DType::F32, {7}, 1)}),
        sample({random(DType::I64, {4, 2}, 1, 0, 1)}, {{"axis", int64_t{0}}}),
        sample({random(DType::U8, {9}, 1, 0, 4)}, {{"sorted", int64_t{0}}}),
        sample({random(DType::F32, {3, 20, 2}, 1, 0, 1)}, {{"axis", int64_t{1}}}),
        sample({random(DType::I32, {2, 9, 3}, 2, 0, 1)}, {{"axis", int64_t{-2}}, {"sorted", int64_t{0}}}),
        sample({random(DType::Bool, {300, 5}, 3)}, {{"axis", int64_t{0}}}),
        sample({random(DType::F64, {6}, 3, 0, 2)}, {{"axis", int64_t{0}}}),
        sample({random(DType::I32, {5, 0}, 3)}, {{"axis", int64_t{0}}}),
        sample({random(DType::U4, {20}, 3, 0, 9)}),
        sample({random(DType::F8E5M2, {7, 2}, 3, 0, 1)}, {{"axis", int64_t{0}}})};
    for (Sample& s : out) s.result_count = 4;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3})}, {{"axis", int64_t{1}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

} // namespace

void register_select_ops(OpTable& table) {
  table.add(nonzero_record());
  table.add(compress_record());
  table.add(unique_record());
}

} // namespace tessera
