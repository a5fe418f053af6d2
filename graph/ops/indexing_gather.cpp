// Gathers: elements at positions that are data. Negative positions count from the end; one outside of the tensor is an
// error of the input that the launch reports.
#include "graph/ops/build.h"
#include <algorithm>

namespace tessera {

namespace {
using namespace ops;

// Whether negative positions count from the end: those of ONNX's operators do, and few of PyTorch's.
bool wraps(const Node& n) { return n.attributes.i("wrap", 1) != 0; }

// A position from data brought into [0, n). Error BadInput.
Result<int64_t> position(const ReferenceContext& c, int64_t i, int64_t n) {
  if (i < (wraps(c.node) ? -n : 0) || i >= n)
    return c.error(ErrorCode::BadInput,
                   "index " + std::to_string(i) + " is outside of a dimension of size " + std::to_string(n));
  return i < 0 ? i + n : i;
}

OpDef primitive(std::string_view name, std::string_view summary, std::vector<std::string_view> aten) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.aten = std::move(aten);
  def.operands = {{"data", TypeSet::Any}, {"indices", TypeSet::Index}};
  return def;
}

size_t axis_of(const Node& n, size_t rank) {
  int64_t a = n.attributes.i("axis");
  return static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(rank) : a);
}

// ---- gather: data[.., indices[j..], ..]
Status infer_gather(InferContext& c) {
  TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
  const SymShape &data = c.shape(0), &indices = c.shape(1);
  SymShape shape(data.begin(), data.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + axis + 1, data.end());
  return set_result(c, c.type(0).dtype, std::move(shape));
}

Result<ScalarId> gather_body(ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
  const SymShape& data = operand_type(g, n, 0).shape;
  size_t axis = axis_of(n, data.size()), q = operand_type(g, n, 1).shape.size();
  std::vector<ScalarId> where(at.begin() + static_cast<std::ptrdiff_t>(axis),
                              at.begin() + static_cast<std::ptrdiff_t>(axis + q));
  std::vector<ScalarId> from(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(axis));
  from.push_back(load_index(d, g, n, 1, std::move(where), data[axis], wraps(n)));
  from.insert(from.end(), at.begin() + static_cast<std::ptrdiff_t>(axis + q), at.end());
  return load(d, g, n, 0, std::move(from));
}

Status gather_reference(ReferenceContext& c) {
  const Tensor &x = c.operands[0], &indices = c.operands[1];
  size_t axis = axis_of(c.node, x.dims().size());
  int64_t outer = 1, inner = 1, n = x.dims()[axis];
  Dims dims;
  for (size_t k = 0; k < axis; ++k) outer *= x.dims()[k], dims.push_back(x.dims()[k]);
  dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
  for (size_t k = axis + 1; k < x.dims().size(); ++k) inner *= x.dims()[k], dims.push_back(x.dims()[k]);
  std::vector<int64_t> picked;
  for (int64_t i : to_i64(indices)) {
    TESSERA_ASSIGN(int64_t p, position(c, i, n));
    picked.push_back(p);
  }
  auto q = static_cast<int64_t>(picked.size());
  TESSERA_ASSIGN(Tensor y, take(x, dims, [&](int64_t i) {
                   int64_t in = i % inner, j = i / inner % q, out = i / inner / q;
                   return (out * n + picked[static_cast<size_t>(j)]) * inner + in;
                 }));
  c.results = {y};
  return {};
}

std::vector<Sample> gather_samples(int opset) {
  std::vector<Sample> out;
  for (DType d : {DType::F32, DType::F16, DType::I64, DType::Bool}) {
    out.push_back(sample({random(d, {5, 4}, 1), integers(DType::I64, {2, 3}, {0, 4, -1, 2, -5, 1})},
                         {{"axis", int64_t{0}}}, opset));
    out.push_back(sample({random(d, {2, 3, 4}, 1), integers(DType::I32, {2}, {2, 0})}, {{"axis", int64_t{1}}}, opset));
    out.push_back(sample({random(d, {3, 4}, 1), scalar(DType::I64, 3)}, {{"axis", int64_t{1}}}, opset));
    out.push_back(sample({random(d, {3}, 1), random(DType::I64, {0, 2}, 1)}, {{"axis", int64_t{0}}}, opset));
  }
  return out;
}
std::vector<ErrorSample> gather_errors(int opset) {
  Tensor x = random(DType::F32, {3, 4});
  return {wrong({x, vec({3})}, {{"axis", int64_t{0}}}, ErrorCode::BadInput, "index 3 is outside", opset),
          wrong({x, vec({0})}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis", opset),
          wrong({x, floats({1}, {0})}, {{"axis", int64_t{0}}}, ErrorCode::TypeMismatch, "f32", opset)};
}

OpDef gather() {
  OpDef def = primitive("gather", "slices of data along `axis` at the given positions", {"index_select", "embedding"});
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{0}}, {"wrap", AttrKind::Int}};
  def.infer = infer_gather;
  def.meaning = Indexing{gather_body, false};
  def.reference = gather_reference;
  def.samples = [] {
    auto out = gather_samples(0);
    out.push_back(sample({random(DType::F32, {5, 4}, 1), integers(DType::I64, {2, 3}, {0, 4, 1, 2, 3, 1})},
                         {{"axis", int64_t{0}}, {"wrap", int64_t{0}}}));
    return out;
  };
  def.error_samples = [] {
    auto out = gather_errors(0);
    out.push_back(wrong({random(DType::F32, {3, 4}), vec({-1})}, {{"axis", int64_t{0}}, {"wrap", int64_t{0}}},
                        ErrorCode::BadInput, "index -1 is outside"));
    return out;
  };
  return def;
}

// ---- gather_elements: result[at] = data[at with indices[at] at axis]
OpDef gather_elements() {
  OpDef def = primitive("gather_elements",
                        "elements of data whose position along `axis` the operand of the same rank gives", {"gather"});
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{0}}, {"wrap", AttrKind::Int}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).rank() != c.type(1).rank())
      return c.error(ErrorCode::ShapeMismatch,
                     "data " + c.type(0).str() + " and indices " + c.type(1).str() + " differ in rank");
    TESSERA_TRY(c.axis(c.node.attributes.i("axis"), c.type(0).rank()));
    return set_result(c, c.type(0).dtype, c.shape(1));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           std::vector<ScalarId> from(at.begin(), at.end());
                           size_t axis = axis_of(n, at.size());
                           from[axis] = load_index(d, g, n, 1, from, operand_type(g, n, 0).shape[axis], wraps(n));
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         false};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &indices = c.operands[1];
    size_t axis = axis_of(c.node, x.dims().size());
    for (size_t k = 0; k < x.dims().size(); ++k)
      if (k != axis && indices.dims()[k] > x.dims()[k] && indices.count() != 0)
        return c.error(ErrorCode::BadInput, "indices reach outside of data in dimension " + std::to_string(k));
    Dims stride = strides_of(x.dims());
    std::vector<int64_t> from;
    for (MultiIndex w(indices.dims()); !w.done(); w.next()) {
      Dims at = w.at();
      TESSERA_ASSIGN(at[axis], position(c, indices.get_i64(w.i()), x.dims()[axis]));
      from.push_back(offset(at, stride));
    }
    TESSERA_ASSIGN(Tensor y, take(x, indices.dims(), [&](int64_t i) { return from[static_cast<size_t>(i)]; }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {3, 4}, 1), integers(DType::I64, {2, 4}, {0, 1, 2, -1, 2, 2, 0, -3})},
               {{"axis", int64_t{0}}}),
        sample({random(DType::I32, {2, 3}, 1), integers(DType::I32, {2, 2}, {0, -1, 2, 1})}, {{"axis", int64_t{1}}}),
        sample({random(DType::F16, {3}, 1), integers(DType::I64, {5}, {0, 2, 1, 1, -2})}, {{"axis", int64_t{0}}}),
        sample({random(DType::F32, {3, 2}, 1), random(DType::I64, {0, 2}, 1)}, {{"axis", int64_t{0}}})};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{wrong({x, vec({0})}, {}, ErrorCode::ShapeMismatch, "differ in rank"),
                                    wrong({x, integers(DType::I64, {1, 1}, {2})}, {{"axis", int64_t{0}}},
                                          ErrorCode::BadInput, "index 2 is outside"),
                                    wrong({x, integers(DType::I64, {1, 1}, {-1})},
                                          {{"axis", int64_t{0}}, {"wrap", int64_t{0}}}, ErrorCode::BadInput,
                                          "index -1 is outside")};
  };
  return def;
}

// ---- gather_nd: the last dimension of indices is a position in data's dimensions after the batch ones
OpDef gather_nd() {
  OpDef def = primitive("gather_nd", "slices of data at positions of several dimensions", {});
  def.onnx = {{"GatherND"}};
  def.attributes = {{"batch_dims", AttrKind::Int, false, int64_t{0}}, {"wrap", AttrKind::Int}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape &data = c.shape(0), &indices = c.shape(1);
    int64_t batch = c.node.attributes.i("batch_dims");
    auto rank = static_cast<int64_t>(data.size()), q = static_cast<int64_t>(indices.size());
    if (q == 0 || rank == 0) return c.error(ErrorCode::ShapeMismatch, "data and indices need at least one dimension");
    if (batch < 0 || batch >= std::min(rank, q))
      return c.error(ErrorCode::BadAttribute, "batch_dims " + std::to_string(batch) + " is not in [0, " +
                                                  std::to_string(std::min(rank, q)) + ")");
    auto m = indices.back().as_const();
    if (!m) return c.error(ErrorCode::UnsupportedFeature, "the number of indexed dimensions depends on run-time data");
    if (*m < 1 || *m > rank - batch)
      return c.error(ErrorCode::ShapeMismatch,
                     "indices of " + std::to_string(*m) + " components for data " + c.type(0).str());
    for (int64_t k = 0; k < batch; ++k)
      TESSERA_TRY(c.env().require_equal(data[static_cast<size_t>(k)], indices[static_cast<size_t>(k)],
                                        "batch dimensions of data and indices", c.node.location));
    SymShape shape(indices.begin(), indices.end() - 1);
    shape.insert(shape.end(), data.begin() + batch + *m, data.end());
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           const SymShape &data = operand_type(g, n, 0).shape, &indices = operand_type(g, n, 1).shape;
                           auto batch = static_cast<size_t>(n.attributes.i("batch_dims"));
                           auto m = static_cast<size_t>(indices.back().const_value());
                           auto lead = static_cast<std::ptrdiff_t>(indices.size() - 1);
                           std::vector<ScalarId> from(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(batch));
                           for (size_t k = 0; k < m; ++k) {
                             std::vector<ScalarId> where(at.begin(), at.begin() + lead);
                             where.push_back(d.index(static_cast<int64_t>(k)));
                             from.push_back(load_index(d, g, n, 1, std::move(where), data[batch + k], wraps(n)));
                           }
                           from.insert(from.end(), at.begin() + lead, at.end());
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         false};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &x = c.operands[0], &indices = c.operands[1];
    auto batch = static_cast<size_t>(c.node.attributes.i("batch_dims"));
    auto m = static_cast<size_t>(indices.dims().back());
    Dims lead(indices.dims().begin(), indices.dims().end() - 1), stride = strides_of(x.dims()), dims = lead;
    Dims tail(x.dims().begin() + static_cast<std::ptrdiff_t>(batch + m), x.dims().end());
    dims.insert(dims.end(), tail.begin(), tail.end());
    int64_t inner = 1;
    for (int64_t t : tail) inner *= t;
    std::vector<int64_t> base;
    for (MultiIndex w(lead); !w.done(); w.next()) {
      int64_t o = 0;
      for (size_t k = 0; k < batch; ++k) o += w[k] * stride[k];
      for (size_t k = 0; k < m; ++k) {
        int64_t raw = indices.get_i64(w.i() * static_cast<int64_t>(m) + static_cast<int64_t>(k));
        TESSERA_ASSIGN(int64_t p, position(c, raw, x.dims()[batch + k]));
        o += p * stride[batch + k];
      }
      base.push_back(o);
    }
    TESSERA_ASSIGN(Tensor y,
                   take(x, dims, [&](int64_t i) { return base[static_cast<size_t>(i / inner)] + i % inner; }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 2}, 1), integers(DType::I64, {2, 2}, {0, 0, 1, -1})}),
        sample({random(DType::F16, {2, 3, 4}, 1), integers(DType::I64, {3, 1}, {1, 0, -1})}),
        sample({random(DType::I32, {2, 3, 4}, 1), integers(DType::I64, {2, 1}, {2, 0})}, {{"batch_dims", int64_t{1}}},
               12),
        sample({random(DType::F32, {2, 3, 4}, 1), integers(DType::I64, {2, 2, 2}, {2, 0, 1, 3, 0, -1, -2, 2})},
               {{"batch_dims", int64_t{1}}}, 12)};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x, integers(DType::I64, {1, 3}, {0, 0, 0})}, {}, ErrorCode::ShapeMismatch, "3 components"),
        wrong({x, integers(DType::I64, {1, 2}, {0, 3})}, {}, ErrorCode::BadInput, "index 3 is outside"),
        wrong({x, integers(DType::I64, {1, 2}, {0, -1})}, {{"wrap", int64_t{0}}}, ErrorCode::BadInput,
              "index -1 is outside"),
        wrong({x, integers(DType::I64, {1, 1}, {0})}, {{"batch_dims", int64_t{2}}}, ErrorCode::BadAttribute,
              "batch_dims 2")};
  };
  return def;
}

// ---- gather_at: one operand of positions for each dimension of data
size_t position_offset(const ReferenceContext& c, size_t operand, const Dims& at) {
  const Dims& dims = c.operands[operand].dims();
  Dims from(at.end() - static_cast<std::ptrdiff_t>(dims.size()), at.end());
  for (size_t k = 0; k < dims.size(); ++k)
    if (dims[k] == 1) from[k] = 0;
  return static_cast<size_t>(offset(from, strides_of(dims)));
}

OpDef gather_at() {
  OpDef def = primitive("gather_at",
                        "elements of data at positions given by one operand for each dimension, broadcast against each "
                        "other; along the dimensions `zero` those outside of data are 0",
                        {});
  def.operands[1].variadic = true;
  def.attributes = {{"zero", AttrKind::Ints, false, Ints{}}};
  def.infer = [](InferContext& c) -> Status {
    const auto rank = static_cast<size_t>(c.type(0).rank());
    if (rank == 0 || c.node.operands.size() != rank + 1)
      return c.error(ErrorCode::ShapeMismatch,
                     std::to_string(c.node.operands.size() - 1) + " operands of positions for data " + c.type(0).str());
    TESSERA_TRY(normal_axes(c, c.node.attributes.ints("zero"), static_cast<int>(rank)));
    SymShape shape = c.shape(1);
    for (size_t k = 1; k < rank; ++k) {
      TESSERA_ASSIGN(shape, c.env().broadcast(shape, c.shape(static_cast<int>(k) + 1), c.node.location));
    }
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
    const SymShape& data = operand_type(g, n, 0).shape;
    const Ints zero = n.attributes.ints("zero");
    IndexMath m{d};
    ScalarId inside = -1;
    std::vector<ScalarId> from;
    for (size_t k = 0; k < data.size(); ++k) {
      const SymShape& shape = operand_type(g, n, static_cast<int>(k) + 1).shape;
      std::vector<ScalarId> where(at.end() - static_cast<std::ptrdiff_t>(shape.size()), at.end());
      for (size_t i = 0; i < shape.size(); ++i)
        if (shape[i].is_const(1)) where[i] = m.sym(0);
      const int operand = static_cast<int>(k) + 1;
      if (std::find(zero.begin(), zero.end(), static_cast<int64_t>(k)) == zero.end()) {
        from.push_back(load_index(d, g, n, operand, std::move(where), data[k], false));
        continue;
      }
      ScalarId p = d.cast(load(d, g, n, operand, std::move(where)), DType::I64), size = m.sym(data[k]);
      ScalarId in = m.both(m.le(m.sym(0), p), m.lt(p, size));
      inside = inside < 0 ? in : m.both(inside, in);
      from.push_back(p);
    }
    return Result<ScalarId>(load(d, g, n, 0, std::move(from), inside));
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const Ints zero = c.node.attributes.ints("zero");
    const Dims strides = strides_of(x.dims());
    std::vector<const Tensor*> positions;
    for (size_t k = 1; k < c.operands.size(); ++k) positions.push_back(&c.operands[k]);
    TESSERA_ASSIGN(Dims dims, broadcast_dims(positions));
    std::vector<int64_t> from;
    for (MultiIndex w(dims); !w.done(); w.next()) {
      int64_t o = 0;
      bool inside = true;
      for (size_t k = 0; k < strides.size(); ++k) {
        int64_t p = positions[k]->get_i64(static_cast<int64_t>(position_offset(c, k + 1, w.at()))), size = x.dims()[k];
        o += p * strides[k];
        if (p >= 0 && p < size) continue;
        if (std::find(zero.begin(), zero.end(), static_cast<int64_t>(k)) == zero.end())
          return c.error(ErrorCode::BadInput,
                         "index " + std::to_string(p) + " is outside of a dimension of size " + std::to_string(size));
        inside = false;
      }
      from.push_back(inside ? o : -1);
    }
    TESSERA_ASSIGN(Tensor y, take(x, dims, [&](int64_t i) { return from[static_cast<size_t>(i)]; }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    Tensor rows = integers(DType::I64, {2, 1, 2}, {0, 2, 1, 1}), columns = integers(DType::I64, {3, 1}, {-1, 3, 4});
    for (DType d : {DType::F32, DType::F16, DType::I64, DType::Bool})
      out.push_back(sample({random(d, {3, 4}, 1), rows, columns}, {{"zero", Ints{1}}}));
    out.push_back(sample({random(DType::F32, {3, 4}, 1), rows, integers(DType::I32, {1, 2}, {3, 0})}));
    out.push_back(sample({random(DType::F32, {3}, 1), random(DType::I64, {0, 2}, 1)}));
    out.push_back(sample({random(DType::F32, {0, 2}, 1), vec({0, 1}), vec({1, 1})}, {{"zero", Ints{0}}}));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {3, 4});
    return std::vector<ErrorSample>{
        wrong({x, vec({0})}, {}, ErrorCode::ShapeMismatch, "1 operands"),
        wrong({x, vec({0}), vec({4})}, {{"zero", Ints{0}}}, ErrorCode::BadInput, "index 4 is outside"),
        wrong({x, vec({0}), vec({1})}, {{"zero", Ints{2}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

// ---- ONNX Gather, GatherElements: the axis may be negative
OpDef onnx_gather(std::string_view name, std::string_view summary, std::string_view primitive_name) {
  OpDef def = primitive(name, summary, {});
  def.onnx = {{name}};
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{0}}};
  def.meaning = Decomposition{[primitive_name](Graph& g, const Node& n, int) {
    B b(g, n);
    int64_t axis = b.axis(b.attr().i("axis"), b.rank(b.in(0)));
    return b.done(b.op(primitive_name, {b.in(0), b.in(1)}, {{"axis", axis}}));
  }};
  if (primitive_name == "gather") {
    def.reference = gather_reference;
    def.samples = [] {
      auto out = gather_samples(13);
      out.push_back(sample({random(DType::F32, {2, 3, 4}, 1), vec({1, 1, 0})}, {{"axis", int64_t{-1}}}, 11));
      return out;
    };
    def.error_samples = [] { return gather_errors(13); };
  } else {
    def.samples = [] {
      return std::vector<Sample>{
          sample({random(DType::F32, {3, 4}, 1), integers(DType::I64, {3, 2}, {0, 1, 2, -1, 3, 3})},
                 {{"axis", int64_t{-1}}}, 13)};
    };
    def.error_samples = [] {
      return std::vector<ErrorSample>{
          wrong({random(DType::F32, {2, 3}), vec({0})}, {}, ErrorCode::ShapeMismatch, "differ in rank", 13)};
    };
  }
  return def;
}

} // namespace

void register_gathers(OpTable& table);
void register_gathers(OpTable& table) {
  table.add(gather());
  table.add(gather_elements());
  table.add(gather_nd());
  table.add(gather_at());
  table.add(onnx_gather("Gather", "slices of data along an axis at the given positions", "gather"));
  table.add(onnx_gather("GatherElements", "elements of data at positions given along an axis", "gather_elements"));
}

} // namespace tessera
