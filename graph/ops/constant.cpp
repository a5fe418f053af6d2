// Values that come from no operand: literals and weights, index ramps, tensors of sizes; and ONNX's operators about
// shapes.
#include "graph/ops/parts.h"
#include <algorithm>
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// The most elements a tensor of sizes may have: it is a chain of selections.
constexpr int64_t kMaxDims = 1024;

Result<Dims> concrete(const ReferenceContext& c, std::string_view attribute) { return c.dims(attribute); }

OpDef constant_record() {
  OpDef def;
  def.name = "constant";
  def.summary = "a literal or a weight of the model";
  def.attributes = {{"value", AttrKind::Tensor, true}, {"hash", AttrKind::String}};
  def.meaning = StructuredOp{Structured::Constant};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& t = *c.node.attributes.get<Tensor>("value");
    if (t.data() == nullptr && t.count() != 0 && t.dtype() != DType::String)
      return c.error(ErrorCode::BadWeights, "the weight's data is not there");
    c.results = {t};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::Bool, DType::BF16})
      for (const Dims& dims : {Dims{}, Dims{3}, Dims{0, 2}, Dims{2, 3, 4}})
        out.push_back(sample({}, {{"value", random(d, dims, 3)}}));
    return out;
  };
  def.error_samples = [] { return std::vector<ErrorSample>{wrong({}, {}, ErrorCode::BadAttribute, "value")}; };
  return def;
}

OpDef iota_record() {
  OpDef def;
  def.name = "iota";
  def.summary = "i64 tensor of `shape` whose element is its index along `axis`";
  def.aten = {"arange"};
  def.attributes = {{"shape", AttrKind::Dims, true}, {"axis", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    SymShape shape = c.node.attributes.dims("shape");
    TESSERA_TRY(c.axis(c.node.attributes.i("axis"), static_cast<int>(shape.size())));
    return set_result(c, DType::I64, std::move(shape));
  };
  def.meaning = Indexing{[](ScalarDag&, int, std::span<const ScalarId> at, const Node& n, const Graph&) {
                           int64_t axis = n.attributes.i("axis");
                           if (axis < 0) axis += static_cast<int64_t>(at.size());
                           return Result<ScalarId>(at[static_cast<size_t>(axis)]);
                         },
                         true};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims dims, concrete(c, "shape"));
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::I64, dims));
    int64_t axis = c.node.attributes.i("axis");
    if (axis < 0) axis += static_cast<int64_t>(dims.size());
    for (MultiIndex w(dims); !w.done(); w.next()) y.set_i64(w.i(), w[static_cast<size_t>(axis)]);
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({}, {{"shape", SymShape{5}}}), sample({}, {{"shape", SymShape{0}}}),
                               sample({}, {{"shape", SymShape{3, 4}}, {"axis", int64_t{1}}}),
                               sample({}, {{"shape", SymShape{2, 3, 1}}, {"axis", int64_t{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({}, {{"shape", SymShape{3}}, {"axis", int64_t{1}}}, ErrorCode::BadAttribute, "axis")};
  };
  return def;
}

OpDef dims_constant_record() {
  OpDef def;
  def.name = "dims_constant";
  def.summary = "i64 tensor of sizes: `values` are expressions over symbols, row-major in `shape`";
  def.attributes = {{"values", AttrKind::Dims, true}, {"shape", AttrKind::Ints, true}};
  def.infer = [](InferContext& c) -> Status {
    SymShape values = c.node.attributes.dims("values");
    Ints shape = c.node.attributes.ints("shape");
    TESSERA_ASSIGN(int64_t n, element_count(shape));
    if (n != static_cast<int64_t>(values.size()) || n > kMaxDims)
      return c.error(ErrorCode::BadAttribute, std::to_string(values.size()) + " values do not fill a shape of " +
                                                  std::to_string(n) + " elements (at most " + std::to_string(kMaxDims) +
                                                  ")");
    c.contents = {values};
    return set_result(c, DType::I64, SymShape(shape.begin(), shape.end()));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
                           IndexMath m{d};
                           SymShape values = n.attributes.dims("values");
                           ScalarId i = m.linear(at, result_type(g, n).shape);
                           if (values.empty()) return Result<ScalarId>(m.sym(0)); // never read: no elements
                           ScalarId y = m.sym(values.back());
                           for (size_t k = values.size() - 1; k-- > 0;)
                             y = m.select(m.eq(i, m.sym(static_cast<int64_t>(k))), m.sym(values[k]), y);
                           return Result<ScalarId>(y);
                         },
                         false};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims values, concrete(c, "values"));
    TESSERA_ASSIGN(Tensor y, from_i64(DType::I64, c.node.attributes.ints("shape"), values));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({}, {{"values", SymShape{7}}, {"shape", Ints{}}}),
                               sample({}, {{"values", SymShape{7, -1, 3}}, {"shape", Ints{3}}}),
                               sample({}, {{"values", SymShape{1, 2, 3, 4}}, {"shape", Ints{2, 2}}}),
                               sample({}, {{"values", SymShape{}}, {"shape", Ints{0}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({}, {{"values", SymShape{7}}, {"shape", Ints{2}}}, ErrorCode::BadAttribute, "do not fill")};
  };
  return def;
}

// ---- composites

// ONNX Constant: exactly one of its attributes is given.
Result<Tensor> literal(const Node& n) {
  const Attributes& a = n.attributes;
  if (auto* t = a.get<Tensor>("value")) return *t;
  if (auto* i = a.get<int64_t>("value_int")) return integers(DType::I64, {}, {*i});
  if (auto* v = a.get<Ints>("value_ints"))
    return Tensor::of<int64_t>(DType::I64, {static_cast<int64_t>(v->size())}, *v);
  if (auto* f = a.get<double>("value_float")) return scalar(DType::F32, *f);
  if (auto* v = a.get<std::vector<double>>("value_floats"))
    return Tensor::of<double>(DType::F32, {static_cast<int64_t>(v->size())}, *v);
  if (auto* s = a.get<std::string>("value_string")) return Tensor::strings({}, {*s});
  if (auto* v = a.get<std::vector<std::string>>("value_strings"))
    return Tensor::strings({static_cast<int64_t>(v->size())}, *v);
  return Diagnostic(ErrorCode::BadAttribute, n.location,
                    "none of the attributes that give a constant its value is set");
}

OpDef onnx_constant() {
  OpDef def =
      composite("Constant", "a literal given by one of several attributes", {}, [](Graph& g, const Node& n, int) {
        B b(g, n);
        auto t = literal(n);
        if (!t.ok()) b.fail(t.error());
        return b.done(b.ok() ? b.constant(*t) : ValueId{});
      });
  def.attributes = {{"value", AttrKind::Tensor},         {"value_int", AttrKind::Int},
                    {"value_ints", AttrKind::Ints},      {"value_float", AttrKind::Float},
                    {"value_floats", AttrKind::Floats},  {"value_string", AttrKind::String},
                    {"value_strings", AttrKind::Strings}};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Tensor t, literal(c.node));
    c.results = {t};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({}, {{"value", random(DType::F32, {2, 3})}}, 13),
                               sample({}, {{"value_int", int64_t{7}}}, 13),
                               sample({}, {{"value_ints", Ints{1, 2, 3}}}, 13), sample({}, {{"value_float", 0.5}}, 13),
                               sample({}, {{"value_floats", std::vector<double>{0.5, 2}}}, 13)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({}, {}, ErrorCode::BadAttribute, "none of the attributes", 13)};
  };
  return def;
}

OpDef constant_of_shape() {
  OpDef def = composite("ConstantOfShape", "one value at every element of a given shape", {{"shape", TypeSet::Index}},
                        [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          std::vector<SymExpr> dims = b.sizes(0);
                          Tensor value = scalar(DType::F32, 0);
                          if (auto* t = b.attr().get<Tensor>("value")) {
                            if (t->count() != 1)
                              b.fail(ErrorCode::BadAttribute, "attribute 'value' has not exactly one element");
                            else
                              value = t->reshaped({});
                          }
                          return b.done(expand(b, b.constant(value), dims));
                        });
  def.attributes = {{"value", AttrKind::Tensor}};
  def.reference = [](ReferenceContext& c) -> Status {
    auto* t = c.node.attributes.get<Tensor>("value");
    Tensor value = t ? *t : scalar(DType::F32, 0);
    TESSERA_ASSIGN(Tensor y, take(value, to_i64(c.operands[0]), [](int64_t) { return 0; }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({vec({2, 3})}, {{"value", filled(DType::I64, {1}, 7)}}, 9),
                               sample({vec({})}, {{"value", filled(DType::Bool, {1}, 1)}}, 9),
                               sample({vec({4, 0})}, {}, 9),
                               sample({vec({5})}, {{"value", filled(DType::F16, {1}, 1.5)}}, 20)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({vec({-2})}, {}, ErrorCode::ShapeMismatch, "negative size", 9),
        wrong({vec({2})}, {{"value", vec({1, 2})}}, ErrorCode::BadAttribute, "exactly one element", 9)};
  };
  return def;
}

OpDef identity() {
  OpDef def = composite("Identity", "the operand itself", {{"x"}}, [](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(b.in(0));
  });
  def.aten = {"clone", "alias", "detach"};
  def.reference = [](ReferenceContext& c) -> Status {
    c.results = {c.operands[0]};
    return {};
  };
  def.samples = [] { return unary_samples({DType::F32, DType::I64, DType::Bool}, {}, {}, 13); };
  return def;
}

// [start, end) of Shape's attributes, clamped to the rank.
std::pair<int64_t, int64_t> shape_range(const Attributes& a, int64_t rank) {
  auto bring = [rank](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  return {bring(a.i("start", 0)), bring(a.i("end", rank))};
}

OpDef shape_record() {
  OpDef def =
      composite("Shape", "sizes of the dimensions from start to end", {{"x"}}, [](Graph& g, const Node& n, int) {
        B b(g, n);
        SymShape shape = b.shape(b.in(0)), part;
        auto [start, end] = shape_range(b.attr(), static_cast<int64_t>(shape.size()));
        for (int64_t i = start; i < end; ++i) part.push_back(shape[static_cast<size_t>(i)]);
        return b.done(b.dims(part));
      });
  def.attributes = {{"start", AttrKind::Int, false, int64_t{0}}, {"end", AttrKind::Int}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Dims& dims = c.operands[0].dims();
    auto [start, end] = shape_range(c.node.attributes, static_cast<int64_t>(dims.size()));
    Dims part;
    for (int64_t i = start; i < end; ++i) part.push_back(dims[static_cast<size_t>(i)]);
    TESSERA_ASSIGN(Tensor y, from_i64(DType::I64, {static_cast<int64_t>(part.size())}, part));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out = unary_samples({DType::F32, DType::Bool}, {}, {}, 13);
    Tensor x = random(DType::F32, {3, 4, 5});
    for (auto [s, e] : {std::pair<int64_t, int64_t>{1, 3}, {-1, 9}, {-9, -1}, {2, 1}, {0, -2}})
      out.push_back(sample({x}, {{"start", s}, {"end", e}}, 15));
    return out;
  };
  return def;
}

OpDef size_record() {
  OpDef def = composite("Size", "number of elements", {{"x"}}, [](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(b.size(b.type(b.in(0)).count(), DType::I64));
  });
  def.reference = [](ReferenceContext& c) -> Status {
    c.results = {integers(DType::I64, {}, {c.operands[0].count()})};
    return {};
  };
  def.samples = [] { return unary_samples({DType::F32, DType::I64}, {}, {}, 13); };
  return def;
}

// ---- Range
// A scalar operand's value where it is a constant.
std::optional<double> constant_scalar(const Graph& g, ValueId v) {
  const Tensor* t = v.valid() ? g.constant(v) : nullptr;
  if (!t || t->count() != 1 || t->data() == nullptr) return std::nullopt;
  return t->get_f64(0);
}

Result<std::vector<ValueId>> decompose_range(Graph& g, const Node& n, int) {
  B b(g, n);
  for (int i = 0; i < 3; ++i)
    if (b.type(b.in(i)).count() != SymExpr(1))
      b.fail(ErrorCode::ShapeMismatch, "an operand of Range is a scalar, not " + b.type(b.in(i)).str());
  if (!b.ok()) return b.failed();
  DType d = b.dtype(b.in(0));
  SymExpr count;
  auto start = constant_scalar(g, b.in(0)), limit = constant_scalar(g, b.in(1)), delta = constant_scalar(g, b.in(2));
  if (is_float(d) && start && limit && delta) {
    double steps = std::ceil((*limit - *start) / *delta);
    if (*delta == 0 || std::isnan(steps) || steps > static_cast<double>(kSymMax))
      b.fail(ErrorCode::BadInput, "Range has no finite number of elements");
    else
      count = static_cast<int64_t>(std::max(steps, 0.0));
  } else if (is_float(d)) {
    auto number = [&](int i) { return cast(b, reshape(b, b.in(i), {}), DType::F64); };
    ValueId steps = b.op1("ceil", div(b, sub(b, number(1), number(0)), number(2)));
    // Neither infinity nor NaN is a count: they become one that no memory holds.
    ValueId finite = lt(b, steps, static_cast<double>(kSymMax));
    auto counted =
        b.read(cast(b, select(b, finite, b.op2("max", steps, 0.0), static_cast<double>(kSymMax)), DType::I64));
    if (!b.ok()) return b.failed();
    count = counted[0];
    b.check_size(count, "Range");
    if (b.ok() && b.env().prove(sym_lt(count, kSymMax)) != true)
      b.check(b.env().require(sym_lt(count, kSymMax), GuardClass::Required, "Range has a finite number of elements",
                              n.location));
  } else {
    std::vector<SymExpr> first = b.known(0), last = b.known(1), step = b.known(2);
    if (!b.ok()) return b.failed();
    if (step[0].is_const(0)) b.fail(ErrorCode::BadInput, "Range has no finite number of elements: delta is 0");
    if (!b.ok()) return b.failed();
    for (const auto* bound : {&first, &last, &step}) check_exact(b, (*bound)[0], "an operand of Range");
    bool up = b.decide(sym_lt(0, step[0]), true, "Range counts up");
    if (!up && b.ok())
      b.check(b.env().require(sym_lt(step[0], 0), GuardClass::Required, "delta of Range is not 0", n.location));
    SymExpr steps = up ? ceildiv(last[0] - first[0], step[0]) : ceildiv(first[0] - last[0], -step[0]);
    count = b.env().simplify(sym_max(steps, 0));
  }
  auto flat = [&](ValueId v) { return b.rank(v) > 0 ? reshape(b, v, {}) : v; };
  // Counted in a type that holds every step exactly, as far as the result's own does.
  DType wide = compute_dtype(d);
  ValueId i = cast(b, iota(b, {count}, 0), wide);
  ValueId y = add(b, mul(b, i, cast(b, flat(b.in(2)), wide)), cast(b, flat(b.in(0)), wide));
  return b.done(cast(b, y, d));
}

OpDef range_record() {
  OpDef def = composite("Range", "start, start + delta, ... below limit",
                        {{"start", TypeSet::Numeric}, {"limit", TypeSet::SameAsFirst}, {"delta", TypeSet::SameAsFirst}},
                        decompose_range);
  def.attributes = {{"stash_type", AttrKind::Int, false, int64_t{1}}};
  def.reference = [](ReferenceContext& c) -> Status {
    DType d = c.operands[0].dtype();
    if (!is_float(d)) {
      const int64_t start = c.operands[0].get_i64(0), limit = c.operands[1].get_i64(0),
                    delta = c.operands[2].get_i64(0);
      Dims values;
      for (__int128 i = start; delta > 0 ? i < limit : i > limit; i += delta) values.push_back(static_cast<int64_t>(i));
      TESSERA_ASSIGN(Tensor y, from_i64(d, {static_cast<int64_t>(values.size())}, values));
      c.results = {y};
      return {};
    }
    std::vector<double> values;
    double start = c.operands[0].get_f64(0), limit = c.operands[1].get_f64(0), delta = c.operands[2].get_f64(0);
    auto n = static_cast<int64_t>(std::max(std::ceil((limit - start) / delta), 0.0));
    for (int64_t i = 0; i < n; ++i) values.push_back(start + static_cast<double>(i) * delta);
    TESSERA_ASSIGN(Tensor y, from_f64(d, {n}, values));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::I64, DType::I32, DType::F32, DType::F64}) {
      for (auto [start, limit, delta] :
           {std::array{0.0, 10.0, 3.0}, {5.0, -4.0, -2.0}, {3.0, 3.0, 1.0}, {1.0, 0.0, 1.0}})
        out.push_back(sample({scalar(d, start), scalar(d, limit), scalar(d, delta)}, {}, 11));
    }
    out.push_back(sample({scalar(DType::F32, 0.5), scalar(DType::F32, 2), scalar(DType::F32, 0.25)}, {}, 11));
    return out;
  };
  def.error_samples = [] {
    Tensor one = scalar(DType::I64, 1);
    return std::vector<ErrorSample>{
        wrong({one, one, scalar(DType::I64, 0)}, {}, ErrorCode::BadInput, "no finite number", 11),
        wrong({vec({1, 2}), one, one}, {}, ErrorCode::ShapeMismatch, "scalar", 11)};
  };
  return def;
}

OpDef eye_like() {
  OpDef def = composite("EyeLike", "ones on a diagonal of a matrix of the operand's shape",
                        {{"x", TypeSet::NumericOrBool}}, [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          SymShape shape = b.shape(b.in(0));
                          if (shape.size() != 2)
                            b.fail(ErrorCode::ShapeMismatch, "a matrix is needed, not " + b.type(b.in(0)).str());
                          if (!b.ok()) return b.failed();
                          auto* to = b.attr().get<DType>("dtype");
                          SymShape column = {shape[0], 1}, row = {1, shape[1]};
                          // No diagonal lies beyond the sizes.
                          ValueId k = b.scalar_i(DType::I64, std::clamp(b.attr().i("k", 0), -kSymMax, kSymMax));
                          ValueId on = eq(b, add(b, iota(b, column, 0), k), iota(b, row, 1));
                          return b.done(cast(b, on, to ? *to : b.dtype(b.in(0))));
                        });
  def.attributes = {{"dtype", AttrKind::Type}, {"k", AttrKind::Int, false, int64_t{0}}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Dims& dims = c.operands[0].dims();
    auto* to = c.node.attributes.get<DType>("dtype");
    TESSERA_ASSIGN(Tensor y, Tensor::create(to ? *to : c.operands[0].dtype(), dims, true));
    for (MultiIndex w(dims); !w.done(); w.next())
      if (w[1] - w[0] == c.node.attributes.i("k", 0)) y.set_f64(w.i(), 1);
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 4})}, {}, 9),
                               sample({random(DType::I32, {4, 3})}, {{"k", int64_t{1}}, {"dtype", DType::F64}}, 9),
                               sample({random(DType::F32, {4, 4})}, {{"k", int64_t{-2}}, {"dtype", DType::Bool}}, 9),
                               sample({random(DType::F32, {0, 4})}, {}, 9)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "matrix", 9)};
  };
  return def;
}

} // namespace

void register_constant_ops(OpTable& table) {
  register_read_ops(table);
  register_list_ops(table);
  register_string_ops(table);
  for (OpDef (*make)() : {constant_record, iota_record, dims_constant_record, onnx_constant, constant_of_shape,
                          identity, shape_record, size_record, range_record, eye_like})
    table.add(make());
}

} // namespace tessera
