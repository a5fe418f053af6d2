// Indexing primitives that move elements by position alone: views, slices, concatenation, padding. Gathers, whose
// positions are data, are in indexing_gather.cpp; what ONNX builds of them in indexing_shape.cpp, indexing_slice.cpp
// and indexing_onnx.cpp.
#include "graph/ops/build.h"

namespace tessera {

namespace {
using namespace ops;

OpDef primitive(std::string_view name, std::string_view summary, std::vector<std::string_view> aten) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.aten = std::move(aten);
  def.operands = {{"x", TypeSet::Any}};
  return def;
}

// ---- reshape
// Cuts both shapes where their leading products agree, so that a dimension that stays keeps its index: [b, s, 768] to
// [b, s, 12, 64] divides only within the last one. Yields pairs of ends (in, out) of the pieces.
std::vector<std::pair<size_t, size_t>> common_pieces(const SymShape& in, const SymShape& out) {
  std::vector<std::pair<size_t, size_t>> ends;
  auto zero = [](const SymExpr& e) { return e.is_const(0); };
  bool empty = std::any_of(in.begin(), in.end(), zero) || std::any_of(out.begin(), out.end(), zero);
  SymExpr p = 1;
  size_t from = 0;  // dimensions of `out` used up
  SymExpr used = 1; // their product
  for (size_t i = 0; i < in.size() && !empty; ++i) {
    p *= in[i];
    SymExpr q = used;
    for (size_t j = from; j < out.size(); ++j) {
      q *= out[j];
      if (!(q == p)) continue;
      ends.emplace_back(i + 1, j + 1);
      from = j + 1;
      used = q;
      break;
    }
  }
  // Trailing dimensions of size 1 belong to the last piece.
  if (!ends.empty())
    ends.back() = {in.size(), out.size()};
  else
    ends.emplace_back(in.size(), out.size());
  return ends;
}

OpDef reshape() {
  OpDef def = primitive("reshape", "the same elements in row-major order under another shape", {"view", "reshape"});
  def.attributes = {{"shape", AttrKind::Dims, true}};
  def.infer = [](InferContext& c) -> Status {
    SymShape shape = c.node.attributes.dims("shape");
    SymExpr in = c.type(0).count(), out = product(shape);
    if (!c.env().known_equal(in, out)) {
      auto a = in.as_const(), b = out.as_const();
      if (a && b)
        return c.error(ErrorCode::ShapeMismatch,
                       c.type(0).str() + " has " + std::to_string(*a) + " elements and cannot become " + str(shape));
      TESSERA_TRY(c.env().require_equal(in, out, "reshape keeps the number of elements", c.node.location));
    }
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           IndexMath m{d};
                           const SymShape &in = operand_type(g, n, 0).shape, &out = result_type(g, n).shape;
                           std::vector<ScalarId> from;
                           size_t i = 0, j = 0;
                           for (auto [i_end, j_end] : common_pieces(in, out)) {
                             std::span<const SymExpr> piece(in.begin() + static_cast<std::ptrdiff_t>(i), i_end - i);
                             std::span<const SymExpr> view(out.begin() + static_cast<std::ptrdiff_t>(j), j_end - j);
                             auto index = m.delinear(m.linear(at.subspan(j, j_end - j), view), piece);
                             from.insert(from.end(), index.begin(), index.end());
                             i = i_end;
                             j = j_end;
                           }
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         true};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims dims, c.dims("shape"));
    TESSERA_ASSIGN(int64_t n, element_count(dims));
    if (n != c.operands[0].count()) return c.error(ErrorCode::ShapeMismatch, "reshape changes the number of elements");
    c.results = {c.operands[0].reshaped(dims)};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::F16, DType::Bool})
      for (auto [from, to] : {std::pair<Dims, SymShape>{{2, 3, 8}, {2, 3, 4, 2}},
                              {{2, 3, 4, 2}, {2, 3, 8}},
                              {{6, 4}, {3, 8}},
                              {{1}, {}},
                              {{}, {1, 1}},
                              {{0, 3}, {3, 0, 2}},
                              {{2, 1, 3}, {2, 3}},
                              {{5, 1, 7}, {7, 5, 1}},
                              {{12}, {3, 1, 4}},
                              {{3, 2, 1}, {1, 3, 2}}})
        out.push_back(sample({random(d, from, 3)}, {{"shape", to}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"shape", SymShape{4}}}, ErrorCode::ShapeMismatch, "6 elements")};
  };
  return def;
}

// ---- transpose
OpDef transpose() {
  OpDef def = primitive("transpose", "dimension k of the result is dimension perm[k] of x", {"permute"});
  def.attributes = {{"perm", AttrKind::Ints, true}};
  def.infer = [](InferContext& c) -> Status {
    Ints perm = c.node.attributes.ints("perm"), sorted = perm;
    std::sort(sorted.begin(), sorted.end());
    bool good = static_cast<int>(perm.size()) == c.type(0).rank();
    for (size_t k = 0; good && k < sorted.size(); ++k) good = sorted[k] == static_cast<int64_t>(k);
    if (!good)
      return c.error(ErrorCode::BadAttribute,
                     "perm " + str(Attribute(perm)) + " is no permutation of the dimensions of " + c.type(0).str());
    SymShape shape;
    for (int64_t p : perm) shape.push_back(c.shape(0)[static_cast<size_t>(p)]);
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           Ints perm = n.attributes.ints("perm");
                           std::vector<ScalarId> from(at.size());
                           for (size_t k = 0; k < at.size(); ++k) from[static_cast<size_t>(perm[k])] = at[k];
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         true};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Ints perm = c.node.attributes.ints("perm");
    Dims dims, own = strides_of(x.dims()), stride;
    for (int64_t p : perm) {
      dims.push_back(x.dims()[static_cast<size_t>(p)]);
      stride.push_back(own[static_cast<size_t>(p)]);
    }
    TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) { return offset(at, stride); }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::F16, DType::Bool, DType::F64})
      for (auto [dims, perm] : {std::pair<Dims, Ints>{{2, 3, 4}, {2, 0, 1}},
                                {{5, 7}, {1, 0}},
                                {{}, {}},
                                {{3}, {0}},
                                {{0, 4}, {1, 0}},
                                {{2, 3, 1, 5}, {0, 2, 1, 3}}})
        out.push_back(sample({random(d, dims, 3)}, {{"perm", perm}}));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{wrong({x}, {{"perm", Ints{0, 0}}}, ErrorCode::BadAttribute, "no permutation"),
                                    wrong({x}, {{"perm", Ints{0}}}, ErrorCode::BadAttribute, "no permutation")};
  };
  return def;
}

// ---- copy
// No view: whoever reads it finds its elements in the order of its own dimensions.
OpDef copy() {
  OpDef def = primitive("copy", "x in memory of its own, contiguous", {});
  def.infer = infer_same;
  def.meaning = Indexing{.body =
                             [](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                               return Result<ScalarId>(load(d, g, n, 0, {at.begin(), at.end()}));
                             },
                         .stored = true};
  def.reference = [](ReferenceContext& c) -> Status {
    c.results = {c.operands[0]};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::F16, DType::Bool})
      for (const Dims& dims : {Dims{2, 3, 4}, Dims{}, Dims{0, 3}}) out.push_back(sample({random(d, dims, 3)}));
    return out;
  };
  return def;
}

// ---- expand
OpDef expand() {
  OpDef def = primitive("expand", "x repeated along dimensions of size 1 to `shape`", {"expand"});
  def.attributes = {{"shape", AttrKind::Dims, true}};
  def.infer = [](InferContext& c) -> Status {
    SymShape shape = c.node.attributes.dims("shape");
    const SymShape& in = c.shape(0);
    if (in.size() > shape.size())
      return c.error(ErrorCode::ShapeMismatch, c.type(0).str() + " cannot be expanded to " + str(shape));
    for (size_t k = 0; k < in.size(); ++k) {
      const SymExpr &from = in[k], &to = shape[shape.size() - in.size() + k];
      if (from.is_const(1) || c.env().known_equal(from, to)) continue;
      if (from.is_const() && to.is_const())
        return c.error(ErrorCode::ShapeMismatch, c.type(0).str() + " cannot be expanded to " + str(shape));
      TESSERA_ASSIGN(SymExpr both, c.env().broadcast(from, to, c.node.location));
      TESSERA_TRY(c.env().require_equal(both, to, "expand keeps or repeats a dimension", c.node.location));
    }
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           IndexMath m{d};
                           const SymShape &in = operand_type(g, n, 0).shape, &out = result_type(g, n).shape;
                           size_t lead = out.size() - in.size();
                           std::vector<ScalarId> from;
                           for (size_t k = 0; k < in.size(); ++k) {
                             ScalarId i = at[lead + k];
                             if (in[k] == out[lead + k])
                               from.push_back(i);
                             else if (in[k].is_const(1))
                               from.push_back(m.sym(0));
                             else if (g.env().known_equal(in[k], out[lead + k]))
                               from.push_back(i);
                             else
                               from.push_back(m.select(d.condition(sym_eq(in[k], 1)), m.sym(0), i));
                           }
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         true};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Dims dims, c.dims("shape"));
    for (size_t k = 0; k < x.dims().size(); ++k) {
      int64_t from = x.dims()[k], to = dims[dims.size() - x.dims().size() + k];
      if (from != 1 && from != to) return c.error(ErrorCode::ShapeMismatch, "a size other than 1 cannot be expanded");
    }
    Dims stride = broadcast_strides(x.dims(), dims);
    TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) { return offset(at, stride); }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::Bool})
      for (auto [dims, to] : {std::pair<Dims, SymShape>{{3, 1}, {3, 4}},
                              {{}, {2, 3}},
                              {{1}, {5}},
                              {{4}, {2, 3, 4}},
                              {{1, 3}, {0, 3}},
                              {{2, 3}, {2, 3}}})
        out.push_back(sample({random(d, dims, 3)}, {{"shape", to}}));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x}, {{"shape", SymShape{4, 3}}}, ErrorCode::ShapeMismatch, "cannot be expanded"),
        wrong({x}, {{"shape", SymShape{3}}}, ErrorCode::ShapeMismatch, "cannot be expanded")};
  };
  return def;
}

// ---- slice, flip
OpDef slice() {
  OpDef def =
      primitive("slice", "per dimension k: sizes[k] elements from starts[k], every steps[k]-th", {"slice.Tensor"});
  def.attributes = {{"starts", AttrKind::Dims, true}, {"steps", AttrKind::Ints, true}, {"sizes", AttrKind::Dims, true}};
  def.infer = [](InferContext& c) -> Status {
    SymShape starts = c.node.attributes.dims("starts"), sizes = c.node.attributes.dims("sizes");
    Ints steps = c.node.attributes.ints("steps");
    size_t rank = c.shape(0).size();
    if (starts.size() != rank || sizes.size() != rank || steps.size() != rank)
      return c.error(ErrorCode::BadAttribute,
                     "slice needs a start, a step and a size for every dimension of " + c.type(0).str());
    for (size_t k = 0; k < rank; ++k) {
      auto first = starts[k].as_const(), size = sizes[k].as_const(), n = c.shape(0)[k].as_const();
      if (size && *size < 0) return c.error(ErrorCode::ShapeMismatch, "a slice of negative size");
      if (!first || !size || !n || *size == 0) continue;
      int64_t span = 0, last = 0;
      bool over = __builtin_mul_overflow(*size - 1, steps[k], &span) || __builtin_add_overflow(*first, span, &last);
      if (over || *first < 0 || *first >= *n || last < 0 || last >= *n)
        return c.error(ErrorCode::ShapeMismatch, "slice from " + std::to_string(*first) + " of " +
                                                     std::to_string(*size) + " elements by " +
                                                     std::to_string(steps[k]) + " leaves dimension " +
                                                     std::to_string(k) + " of " + c.type(0).str());
    }
    return set_result(c, c.type(0).dtype, std::move(sizes));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           IndexMath m{d};
                           SymShape starts = n.attributes.dims("starts");
                           Ints steps = n.attributes.ints("steps");
                           std::vector<ScalarId> from;
                           for (size_t k = 0; k < at.size(); ++k)
                             from.push_back(m.add(m.mul(at[k], m.sym(steps[k])), m.sym(starts[k])));
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         true};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Dims starts, c.dims("starts"));
    TESSERA_ASSIGN(Dims sizes, c.dims("sizes"));
    Ints steps = c.node.attributes.ints("steps");
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (sizes[k] == 0) continue;
      int64_t first = starts[k], last = first + (sizes[k] - 1) * steps[k];
      if (std::min(first, last) < 0 || std::max(first, last) >= x.dims()[k])
        return c.error(ErrorCode::BadInput, "a slice leaves its tensor");
    }
    Dims stride = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor y, take_at(x, sizes, [&](const Dims& at) {
                     int64_t i = 0;
                     for (size_t k = 0; k < at.size(); ++k) i += (starts[k] + at[k] * steps[k]) * stride[k];
                     return i;
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    struct Case {
      Dims dims;
      SymShape starts;
      Ints steps;
      SymShape sizes;
    };
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::F16})
      for (const Case& k : {Case{{5, 7}, {1, 0}, {1, 2}, {3, 4}},
                            {{6}, {5}, {-2}, {3}},
                            {{4, 3}, {0, 0}, {1, 1}, {0, 3}},
                            {{}, {}, {}, {}},
                            {{2, 3, 4}, {1, 2, 3}, {1, -1, -1}, {1, 3, 4}}})
        out.push_back(sample({random(d, k.dims, 3)}, {{"starts", k.starts}, {"steps", k.steps}, {"sizes", k.sizes}}));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {4});
    return std::vector<ErrorSample>{wrong({x}, {{"starts", SymShape{2}}, {"steps", Ints{1}}, {"sizes", SymShape{3}}},
                                          ErrorCode::ShapeMismatch, "leaves dimension 0"),
                                    wrong({x}, {{"starts", SymShape{}}, {"steps", Ints{}}, {"sizes", SymShape{}}},
                                          ErrorCode::BadAttribute, "for every dimension")};
  };
  return def;
}

OpDef flip() {
  OpDef def = primitive("flip", "the order of elements reversed along `axes`", {"flip"});
  def.attributes = {{"axes", AttrKind::Ints, true}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_TRY(normal_axes(c, c.node.attributes.ints("axes"), c.type(0).rank()));
    return infer_same(c);
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           IndexMath m{d};
                           const SymShape& in = operand_type(g, n, 0).shape;
                           std::vector<ScalarId> from(at.begin(), at.end());
                           for (int64_t a : n.attributes.ints("axes")) {
                             size_t k = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(at.size()) : a);
                             from[k] = m.sub(m.sym(in[k] - 1), at[k]);
                           }
                           return Result<ScalarId>(load(d, g, n, 0, std::move(from)));
                         },
                         true};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims stride = strides_of(x.dims());
    Ints axes = c.node.attributes.ints("axes");
    TESSERA_ASSIGN(Tensor y, take_at(x, x.dims(), [&](const Dims& at) {
                     Dims from = at;
                     for (int64_t a : axes) {
                       size_t k = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(at.size()) : a);
                       from[k] = x.dims()[k] - 1 - at[k];
                     }
                     return offset(from, stride);
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 5}, 1)}, {{"axes", Ints{1}}}),
                               sample({random(DType::I32, {3, 5}, 1)}, {{"axes", Ints{0, 1}}}),
                               sample({random(DType::F16, {7}, 1)}, {{"axes", Ints{-1}}}),
                               sample({random(DType::F32, {0}, 1)}, {{"axes", Ints{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"axes", Ints{1}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

// ---- concat
Status concat_strings(ReferenceContext& c, const Dims& dims, size_t axis) {
  TESSERA_ASSIGN(int64_t n, element_count(dims));
  std::vector<std::string> out(static_cast<size_t>(n));
  const Dims stride = strides_of(dims);
  int64_t begin = 0;
  for (const Tensor& t : c.operands) {
    for (MultiIndex w(t.dims()); !w.done(); w.next())
      out[static_cast<size_t>(offset(w.at(), stride) + begin * stride[axis])] =
          t.string_values()[static_cast<size_t>(w.i())];
    begin += t.dims()[axis];
  }
  c.results = {Tensor::strings(dims, std::move(out))};
  return {};
}

OpDef concat() {
  OpDef def = primitive("concat", "the operands one after another along `axis`", {"cat"});
  def.operands = {{"first", TypeSet::Any}, {"rest", TypeSet::SameAsFirst, false, true}};
  def.attributes = {{"axis", AttrKind::Int, true}};
  def.infer = [](InferContext& c) -> Status {
    int rank = c.type(0).rank();
    if (rank == 0) return c.error(ErrorCode::ShapeMismatch, "scalars cannot be concatenated");
    TESSERA_ASSIGN(int64_t axis, c.axis(c.node.attributes.i("axis"), rank));
    SymShape shape = c.shape(0);
    for (int i = 1; i < static_cast<int>(c.node.operands.size()); ++i) {
      if (c.type(i).rank() != rank)
        return c.error(ErrorCode::ShapeMismatch,
                       "operands " + c.type(0).str() + " and " + c.type(i).str() + " of concat differ in rank");
      for (size_t k = 0; k < shape.size(); ++k) {
        if (static_cast<int64_t>(k) == axis)
          shape[k] += c.shape(i)[k];
        else if (c.shape(i)[k].is_const() && shape[k].is_const() && !(c.shape(i)[k] == shape[k]))
          return c.error(ErrorCode::ShapeMismatch, "operands " + c.type(0).str() + " and " + c.type(i).str() +
                                                       " of concat differ in dimension " + std::to_string(k));
        else
          TESSERA_TRY(
              c.env().require_equal(shape[k], c.shape(i)[k], "concatenated along another dimension", c.node.location));
      }
    }
    return set_result(c, c.type(0).dtype, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           IndexMath m{d};
                           int64_t a = n.attributes.i("axis");
                           size_t axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(at.size()) : a);
                           ScalarId i = at[axis];
                           // Operand k covers [begin, end) of the axis; each is loaded only there.
                           std::vector<ScalarId> parts, ends;
                           SymExpr begin = 0;
                           for (int k = 0; k < static_cast<int>(n.operands.size()); ++k) {
                             SymExpr end = begin + operand_type(g, n, k).shape[axis];
                             std::vector<ScalarId> from(at.begin(), at.end());
                             from[axis] = m.sub(i, m.sym(begin));
                             ScalarId inside = m.both(m.le(m.sym(begin), i), m.lt(i, m.sym(end)));
                             parts.push_back(load(d, g, n, k, std::move(from), n.operands.size() > 1 ? inside : -1));
                             ends.push_back(m.sym(end));
                             begin = end;
                           }
                           ScalarId y = parts.back();
                           for (size_t k = parts.size() - 1; k-- > 0;)
                             y = d.op(ScalarOp::Select, m.lt(i, ends[k]), parts[k], y);
                           return Result<ScalarId>(y);
                         },
                         false};
  def.reference = [](ReferenceContext& c) -> Status {
    Dims dims = c.operands[0].dims();
    int64_t a = c.node.attributes.i("axis");
    size_t axis = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(dims.size()) : a);
    dims[axis] = 0;
    for (const Tensor& t : c.operands) dims[axis] += t.dims()[axis];
    if (c.operands[0].dtype() == DType::String) return concat_strings(c, dims, axis);
    TESSERA_ASSIGN(Tensor y, Tensor::create(c.operands[0].dtype(), dims, true));
    Dims stride = strides_of(dims);
    int64_t begin = 0;
    for (const Tensor& t : c.operands) {
      for (MultiIndex w(t.dims()); !w.done(); w.next()) {
        int64_t to = offset(w.at(), stride) + begin * stride[axis];
        if (is_float(t.dtype()))
          y.set_f64(to, t.get_f64(w.i()));
        else
          y.set_i64(to, t.get_i64(w.i()));
      }
      begin += t.dims()[axis];
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::F16, DType::Bool}) {
      out.push_back(sample({random(d, {2, 3}, 1), random(d, {2, 5}, 2), random(d, {2, 1}, 3)}, {{"axis", int64_t{1}}}));
      out.push_back(sample({random(d, {2, 3}, 1), random(d, {0, 3}, 2), random(d, {4, 3}, 3)}, {{"axis", int64_t{0}}}));
      out.push_back(sample({random(d, {3}, 1)}, {{"axis", int64_t{0}}}));
    }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {3, 3})}, {{"axis", int64_t{1}}}, ErrorCode::ShapeMismatch, "dimension 0"),
        wrong({x, random(DType::F32, {3})}, {{"axis", int64_t{0}}}, ErrorCode::ShapeMismatch, "differ in rank"),
        wrong({x, x}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis"),
        wrong({x, random(DType::I32, {2, 3})}, {{"axis", int64_t{0}}}, ErrorCode::TypeMismatch, "i32")};
  };
  return def;
}

} // namespace

void register_pad(OpTable& table);              // indexing_pad.cpp
void register_gathers(OpTable& table);          // indexing_gather.cpp
void register_windows(OpTable& table);          // indexing_windows.cpp
void register_requirements(OpTable& table);     // require.cpp
void register_shape_composites(OpTable& table); // indexing_shape.cpp
void register_slice_composites(OpTable& table); // indexing_slice.cpp
void register_move_composites(OpTable& table);  // indexing_onnx.cpp

void register_indexing_ops(OpTable& table) {
  for (OpDef (*make)() : {reshape, transpose, copy, expand, slice, flip, concat}) table.add(make());
  register_pad(table);
  register_gathers(table);
  register_windows(table);
  register_requirements(table);
  register_shape_composites(table);
  register_slice_composites(table);
  register_move_composites(table);
}

} // namespace tessera
