// Writes at positions that are data: ScatterElements, ScatterND, TensorScatter.
#include "graph/ops/parts.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

Status check_reduction(const InferContext& c) {
  std::string r = c.node.attributes.s("reduction", "none");
  if (r != "none" && r != "add" && r != "mul" && r != "max" && r != "min")
    return c.error(ErrorCode::BadAttribute, "attribute 'reduction' has the unknown value '" + r + "'");
  if (r != "none" && c.type(0).dtype == DType::Bool)
    return c.error(ErrorCode::UnsupportedType, "a reduction of bool in a scatter");
  return {};
}

Result<Tensor> copy_of(const Tensor& t) {
  return take(t, t.dims(), [](int64_t i) { return i; });
}

// `scatter` to data as [b, t, s], of targets that are unique if they are at most one.
ValueId scatter(B& b, ValueId data, SymShape view, ValueId targets, ValueId updates, const std::string& reduction,
                bool unique) {
  unique = unique || b.dim(targets, 1).is_const(1);
  return b.op("scatter", {data, targets, updates},
              {{"reduction", reduction}, {"unique", int64_t{unique ? 1 : 0}}, {"view", std::move(view)}});
}
// `component`: of tuples, which of their numbers `indices` are; -1: they are no tuples.
ValueId checked(B& b, ValueId indices, const SymExpr& extent, bool wrap = true, int64_t component = -1) {
  return b.op("checked_index", {indices},
              {{"extent", SymShape{extent}}, {"wrap", int64_t{wrap ? 1 : 0}}, {"component", component}});
}
SymExpr product(const SymShape& shape, size_t from, size_t to) {
  SymExpr n = 1;
  for (size_t d = from; d < to; ++d) n *= shape[d];
  return n;
}

// Whether negative positions count from the end: those of ONNX's operators do, and few of PyTorch's.
bool wraps(const Node& n) { return n.attributes.i("wrap", 1) != 0; }

Result<int64_t> position(const ReferenceContext& c, int64_t index, int64_t size) {
  if (index < (wraps(c.node) ? -size : 0) || index >= size)
    return c.error(ErrorCode::BadInput,
                   "index " + std::to_string(index) + " is outside of a dimension of " + std::to_string(size));
  return index < 0 ? index + size : index;
}

// Whether all elements are one number: a scalar that views repeat.
bool is_fill(const Graph& graph, ValueId v) {
  while (!product(graph.type(v).shape, 0, graph.type(v).shape.size()).is_const(1)) {
    const Node* n = graph.producer(v);
    const std::string_view op = n ? std::string_view(n->op->name) : std::string_view();
    if (op != "expand" && op != "reshape" && op != "transpose" && op != "cast") return false;
    v = n->operands[0];
  }
  return true;
}

ValueId combined(B& b, const std::string& reduction, ValueId data, ValueId update) {
  return reduction == "none" ? update : b.op2(reduction, data, update);
}

// ---- ScatterElements
Result<std::vector<ValueId>> decompose_scatter_elements(Graph& g, const Node& n, int) {
  B b(g, n);
  const std::string reduction = b.attr().s("reduction", "none");
  const ValueId data = b.in(0);
  ValueId indices = b.in(1), updates = b.in(2);
  const auto axis = static_cast<size_t>(b.axis(b.attr().i("axis"), b.rank(data)));
  if (!b.ok()) return b.failed();
  const SymShape shape = b.shape(data), size = b.shape(indices);
  const size_t rank = shape.size();
  bool covers = true; // the updates cover every other dimension
  for (size_t d = 0; d < rank; ++d) covers = covers && (d == axis || b.env().known_equal(shape[d], size[d]));
  ValueId targets = checked(b, indices, shape[axis], wraps(n));
  ValueId out;
  if (covers && b.env().simplify(size[axis]).is_const(1) && is_fill(g, data)) {
    // One update along the axis, into one number everywhere, as of one-hot rows and of a loss's gradient: a comparison,
    // which is fused with what reads it, so that neither the number nor the result need memory.
    const ValueId hit = eq(b, iota(b, shape, static_cast<int64_t>(axis)), expand(b, targets, shape));
    out = select(b, hit, combined(b, reduction, data, expand(b, updates, shape)), data);
  } else if (covers) {
    auto three = [&](const SymShape& dims) {
      return SymShape{product(dims, 0, axis), dims[axis], product(dims, axis + 1, rank)};
    };
    out = scatter(b, data, three(shape), reshape(b, targets, three(size)), updates, reduction, false);
  } else { // targets among all elements
    const SymExpr count = product(size, 0, rank);
    ValueId flat;
    for (size_t d = 0; d < rank; ++d) {
      ValueId at = d == axis ? targets : checked(b, iota(b, size, static_cast<int64_t>(d)), shape[d], false);
      at = mul(b, at, b.size(product(shape, d + 1, rank), DType::I64));
      flat = flat.valid() ? add(b, flat, at) : at;
    }
    out = scatter(b, data, {1, product(shape, 0, rank), 1}, reshape(b, flat, {1, count}), updates, reduction, false);
  }
  return b.done(out);
}

Status infer_scatter_elements(InferContext& c) {
  TESSERA_TRY(check_reduction(c));
  int rank = c.type(0).rank();
  TESSERA_ASSIGN([[maybe_unused]] int64_t axis, c.axis(c.node.attributes.i("axis"), rank));
  const SymShape indices = c.shape(1), updates = c.shape(2);
  if (static_cast<int>(indices.size()) != rank || indices.size() != updates.size())
    return c.error(ErrorCode::ShapeMismatch, "data, indices and updates of a scatter must be of one rank, not " +
                                                 str(c.shape(0)) + ", " + str(indices) + " and " + str(updates));
  for (size_t i = 0; i < indices.size(); ++i)
    TESSERA_TRY(c.env().require_equal(indices[i], updates[i], "indices and updates of a scatter", c.node.location));
  return infer_same(c);
}

Status reference_scatter_elements(ReferenceContext& c) {
  const Tensor &data = c.operands[0], &indices = c.operands[1], &updates = c.operands[2];
  int64_t axis = c.node.attributes.i("axis");
  if (axis < 0) axis += static_cast<int64_t>(data.dims().size());
  auto a = static_cast<size_t>(axis);
  std::string reduction = c.node.attributes.s("reduction", "none");
  TESSERA_ASSIGN(Tensor out, copy_of(data));
  Dims strides = strides_of(data.dims());
  for (MultiIndex w(indices.dims()); !w.done(); w.next()) {
    Dims at = w.at();
    TESSERA_ASSIGN(at[a], position(c, indices.get_i64(w.i()), data.dims()[a]));
    for (size_t i = 0; i < at.size(); ++i)
      if (at[i] >= data.dims()[i]) return c.error(ErrorCode::BadInput, "indices of a scatter reach beyond the data");
    fold_update(out, offset(at, strides), updates, w.i(), reduction);
  }
  c.results = {out};
  return {};
}

OpDef scatter_elements_record() {
  OpDef def;
  def.name = "scatter_elements";
  def.summary = "data with updates written, or combined, at positions along an axis";
  def.onnx = {{"ScatterElements", "", 11}, {"Scatter", "", 9}};
  def.operands = {{"data", TypeSet::NumericOrBool}, {"indices", TypeSet::Index}, {"updates", TypeSet::SameAsFirst}};
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{0}},
                    {"reduction", AttrKind::String, false, std::string("none")},
                    {"wrap", AttrKind::Int}};
  def.infer = infer_scatter_elements;
  def.meaning = Decomposition{decompose_scatter_elements};
  def.reference = reference_scatter_elements;
  def.samples = [] {
    std::vector<Sample> out;
    Tensor indices = integers(DType::I64, {2, 3}, {1, 0, 2, -1, 2, 1});
    for (const char* r : {"none", "add", "mul", "max", "min"})
      for (DType d : {DType::F32, DType::I32})
        out.push_back(sample({random(d, {3, 4}, 1), indices, random(d, {2, 3}, 2)}, {{"reduction", std::string(r)}}));
    out.push_back(
        sample({random(DType::F16, {1, 5}, 1), integers(DType::I32, {1, 2}, {1, 3}), random(DType::F16, {1, 2}, 2)},
               {{"axis", int64_t{-1}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 4}), vec({1}), random(DType::F32, {1})}, {}, ErrorCode::ShapeMismatch, "rank"),
        wrong({random(DType::F32, {3}), vec({1}), random(DType::F32, {2})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F32, {3}), vec({1}), random(DType::F32, {1})}, {{"reduction", std::string("mean")}},
              ErrorCode::BadAttribute, "reduction"),
        wrong({random(DType::F32, {3}), vec({1}), random(DType::F32, {1})}, {{"axis", int64_t{1}}},
              ErrorCode::BadAttribute, "axis"),
    };
  };
  return def;
}

// ---- ScatterND
Result<std::vector<ValueId>> decompose_scatter_nd(Graph& g, const Node& n, int) {
  B b(g, n);
  const ValueId data = b.in(0), indices = b.in(1), updates = b.in(2);
  const SymShape shape = b.shape(data), size = b.shape(indices);
  const auto known = b.env().simplify(size.back()).as_const();
  TESSERA_CHECK(known.has_value(), "inference requires the number of dimensions");
  const auto depth = static_cast<size_t>(*known);
  const SymExpr rows = product(size, 0, size.size() - 1), slice_size = product(shape, depth, shape.size());
  const ValueId tuples = reshape(b, indices, {rows, size.back()});
  ValueId targets;
  for (size_t d = 0; d < depth; ++d) {
    const auto component = static_cast<int64_t>(d);
    ValueId at = checked(b, squeeze(b, slice(b, tuples, 1, SymExpr(component), 1), {1}), shape[d], wraps(n), component);
    at = mul(b, at, b.size(product(shape, d + 1, depth), DType::I64));
    targets = targets.valid() ? add(b, targets, at) : at;
  }
  if (!targets.valid()) targets = expand(b, b.scalar_i(DType::I64, 0), {rows});
  return b.done(scatter(b, data, {1, product(shape, 0, depth), slice_size}, reshape(b, targets, {1, rows}), updates,
                        b.attr().s("reduction", "none"), false));
}

Status infer_scatter_nd(InferContext& c) {
  TESSERA_TRY(check_reduction(c));
  const SymShape data = c.shape(0), indices = c.shape(1), updates = c.shape(2);
  if (indices.empty()) return c.error(ErrorCode::ShapeMismatch, "indices of ScatterND must not be a scalar");
  auto depth = c.env().simplify(indices.back()).as_const();
  if (!depth) return c.error(ErrorCode::UnsupportedFeature, "the last dimension of ScatterND's indices must be known");
  if (*depth < 0 || *depth > static_cast<int64_t>(data.size()))
    return c.error(ErrorCode::ShapeMismatch, "indices of " + std::to_string(*depth) + " dimensions into " + str(data));
  SymShape want(indices.begin(), indices.end() - 1);
  want.insert(want.end(), data.begin() + *depth, data.end());
  if (want.size() != updates.size())
    return c.error(ErrorCode::ShapeMismatch, "updates of ScatterND must be " + str(want) + ", not " + str(updates));
  for (size_t i = 0; i < want.size(); ++i)
    TESSERA_TRY(c.env().require_equal(updates[i], want[i], "updates of ScatterND", c.node.location));
  return infer_same(c);
}

Status reference_scatter_nd(ReferenceContext& c) {
  const Tensor &data = c.operands[0], &indices = c.operands[1], &updates = c.operands[2];
  int64_t depth = indices.dims().back(), block = 1,
          rows = depth == 0 ? updates.count() / std::max<int64_t>(data.count(), 1) : indices.count() / depth;
  for (size_t i = static_cast<size_t>(depth); i < data.dims().size(); ++i) block *= data.dims()[i];
  std::string reduction = c.node.attributes.s("reduction", "none");
  TESSERA_ASSIGN(Tensor out, copy_of(data));
  Dims strides = strides_of(data.dims());
  for (int64_t row = 0; row < rows; ++row) {
    int64_t base = 0;
    for (int64_t k = 0; k < depth; ++k) {
      auto d = static_cast<size_t>(k);
      TESSERA_ASSIGN(int64_t i, position(c, indices.get_i64(row * depth + k), data.dims()[d]));
      base += i * strides[d];
    }
    for (int64_t j = 0; j < block; ++j) fold_update(out, base + j, updates, row * block + j, reduction);
  }
  c.results = {out};
  return {};
}

OpDef scatter_nd_record() {
  OpDef def;
  def.name = "scatter_nd";
  def.summary = "data with slices written, or combined, at positions given by index tuples";
  def.onnx = {{"ScatterND", "", 11}};
  def.operands = {{"data", TypeSet::NumericOrBool}, {"indices", TypeSet::Index}, {"updates", TypeSet::SameAsFirst}};
  def.attributes = {{"reduction", AttrKind::String, false, std::string("none")}, {"wrap", AttrKind::Int}};
  def.infer = infer_scatter_nd;
  def.meaning = Decomposition{decompose_scatter_nd};
  def.reference = reference_scatter_nd;
  def.samples = [] {
    std::vector<Sample> out;
    for (const char* r : {"none", "add", "mul", "max", "min"})
      out.push_back(sample(
          {random(DType::F32, {4, 3, 2}, 1), integers(DType::I64, {2, 1}, {0, -2}), random(DType::F32, {2, 3, 2}, 2)},
          {{"reduction", std::string(r)}}));
    out.push_back(
        sample({random(DType::I64, {8}, 1), integers(DType::I64, {4, 1}, {4, 3, 1, 7}), random(DType::I64, {4}, 2)}));
    out.push_back(sample(
        {random(DType::F32, {2, 3}, 1), integers(DType::I64, {2, 2}, {0, 1, 1, 2}), random(DType::F32, {2}, 2)}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {4}), integers(DType::I64, {2, 2}, {0, 1, 1, 0}), random(DType::F32, {2})}, {},
              ErrorCode::ShapeMismatch, "dimensions"),
        wrong({random(DType::F32, {4}), integers(DType::I64, {2, 1}, {0, 1}), random(DType::F32, {3})}, {},
              ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

// ---- TensorScatter: the update of a key-value cache
Result<std::vector<ValueId>> decompose_tensor_scatter(Graph& g, const Node& n, int) {
  B b(g, n);
  const ValueId cache = b.in(0), step = b.in(1);
  const SymShape shape = b.shape(cache), size = b.shape(step);
  const size_t rank = shape.size();
  const auto axis = static_cast<size_t>(b.axis(b.attr().i("axis", -2), static_cast<int>(rank)));
  if (!b.ok()) return b.failed();
  const bool circular = b.attr().s("mode", "linear") == "circular";
  const SymExpr batch = product(shape, 0, axis), slice_size = product(shape, axis + 1, rank);
  ValueId targets = iota(b, {1, 1, size[axis]}, 2);
  if (b.has(2)) targets = add(b, targets, unsqueeze(b, cast(b, b.in(2), DType::I64), {1, 2}));
  targets = expand(b, targets, {shape[0], product(shape, 1, axis), size[axis]});
  if (circular) targets = b.op2("mod", targets, b.size(shape[axis], DType::I64));
  targets = checked(b, targets, shape[axis], false);
  const auto fits = b.env().prove(sym_le(size[axis], shape[axis]));
  return b.done(scatter(b, cache, {batch, shape[axis], slice_size}, reshape(b, targets, {batch, size[axis]}), step,
                        "none", !circular || (fits && *fits)));
}

Status infer_tensor_scatter(InferContext& c) {
  const SymShape cache = c.shape(0), step = c.shape(1);
  TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis", -2), static_cast<int>(cache.size())));
  std::string mode = c.node.attributes.s("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return c.error(ErrorCode::BadAttribute, "attribute 'mode' has the unknown value '" + mode + "'");
  if (axis == 0) return c.error(ErrorCode::BadAttribute, "axis 0 of TensorScatter is the batch");
  if (cache.size() != step.size())
    return c.error(ErrorCode::ShapeMismatch, "cache and update of TensorScatter differ in rank");
  for (size_t i = 0; i < cache.size(); ++i)
    if (static_cast<int64_t>(i) != axis)
      TESSERA_TRY(c.env().require_equal(step[i], cache[i], "update and cache of TensorScatter", c.node.location));
  if (c.has(2)) {
    if (c.type(2).rank() != 1)
      return c.error(ErrorCode::ShapeMismatch, "write_indices of TensorScatter must be a vector");
    TESSERA_TRY(c.env().require_equal(c.shape(2)[0], cache[0], "write_indices and batch", c.node.location));
  }
  return infer_same(c);
}

Status reference_tensor_scatter(ReferenceContext& c) {
  const Tensor &cache = c.operands[0], &step = c.operands[1];
  int64_t axis = c.node.attributes.i("axis", -2);
  if (axis < 0) axis += static_cast<int64_t>(cache.dims().size());
  auto a = static_cast<size_t>(axis);
  bool circular = c.node.attributes.s("mode", "linear") == "circular", placed = given(c, 2);
  TESSERA_ASSIGN(Tensor out, copy_of(cache));
  Dims strides = strides_of(cache.dims());
  for (MultiIndex w(step.dims()); !w.done(); w.next()) {
    Dims at = w.at();
    at[a] += placed ? c.operands[2].get_i64(at[0]) : 0;
    if (circular && cache.dims()[a] > 0) at[a] = ((at[a] % cache.dims()[a]) + cache.dims()[a]) % cache.dims()[a];
    if (at[a] < 0 || at[a] >= cache.dims()[a])
      return c.error(ErrorCode::BadInput,
                     "TensorScatter writes at " + std::to_string(at[a]) + ", outside of its cache");
    fold_update(out, offset(at, strides), step, w.i(), "none");
  }
  c.results = {out};
  return {};
}

OpDef tensor_scatter_record() {
  OpDef def;
  def.name = "tensor_scatter";
  def.summary = "a cache with an update written at each batch element's position";
  def.onnx = {{"TensorScatter", "", 24}};
  def.operands = {{"past_cache", TypeSet::NumericOrBool},
                  {"update", TypeSet::SameAsFirst},
                  {"write_indices", TypeSet::Index, true}};
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{-2}},
                    {"mode", AttrKind::String, false, std::string("linear")}};
  def.infer = infer_tensor_scatter;
  def.meaning = Decomposition{decompose_tensor_scatter};
  def.reference = reference_tensor_scatter;
  def.samples = [] {
    Tensor cache = random(DType::F32, {2, 4, 3}, 1), step = random(DType::F32, {2, 2, 3}, 2);
    return std::vector<Sample>{sample({cache, step}), sample({cache, step, vec({1, 2})}),
                               sample({cache, step, vec({3, 2})}, {{"mode", std::string("circular")}})};
  };
  def.error_samples = [] {
    Tensor cache = random(DType::F32, {2, 4, 3}, 1);
    return std::vector<ErrorSample>{
        wrong({cache, random(DType::F32, {2, 2, 2})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({cache, random(DType::F32, {2, 2, 3})}, {{"mode", std::string("ring")}}, ErrorCode::BadAttribute, "mode"),
    };
  };
  return def;
}

} // namespace

void register_scatter_primitives(OpTable& table);
void register_scatter_ops(OpTable& table) {
  register_scatter_primitives(table);
  table.add(scatter_elements_record());
  table.add(scatter_nd_record());
  table.add(tensor_scatter_record());
}

} // namespace tessera
