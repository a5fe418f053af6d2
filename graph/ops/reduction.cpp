// Reductions: the folds themselves, and ONNX's Reduce* family, which is a fold between pointwise functions.
#include "graph/ops/build.h"
#include <cmath>
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

// ---- plain loops: element sets of each result element, in row-major order of the reduced axes
template <class Visit>
void for_groups(const Dims& dims, const Ints& axes, Visit visit) {
  Dims outer, inner, stride = strides_of(dims), outer_stride, inner_stride;
  for (size_t k = 0; k < dims.size(); ++k) {
    bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(k));
    (reduced ? inner : outer).push_back(dims[k]);
    (reduced ? inner_stride : outer_stride).push_back(stride[k]);
  }
  std::vector<int64_t> members;
  for (MultiIndex o(outer); !o.done(); o.next()) {
    members.clear();
    int64_t base = offset(o.at(), outer_stride);
    for (MultiIndex i(inner); !i.done(); i.next()) members.push_back(base + offset(i.at(), inner_stride));
    visit(o.i(), members);
  }
}

Dims reduced_dims(const Dims& dims, const Ints& axes, bool keepdims) {
  Dims out;
  for (size_t k = 0; k < dims.size(); ++k) {
    bool reduced = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(k));
    if (!reduced)
      out.push_back(dims[k]);
    else if (keepdims)
      out.push_back(1);
  }
  return out;
}

template <class V>
V fold(ReduceKind kind, DType d, const Tensor& x, const std::vector<int64_t>& members) {
  bool is_f = std::is_same_v<V, double>;
  V y = is_f ? static_cast<V>(reduce_identity_f64(kind, d)) : static_cast<V>(reduce_identity_i64(kind, d));
  for (int64_t i : members) {
    V v = get<V>(x, i);
    switch (kind) {
    case ReduceKind::Sum: y = static_cast<V>(y + v); break;
    case ReduceKind::Prod: y = static_cast<V>(y * v); break;
    case ReduceKind::Max: y = y != y || v < y || v == y ? y : v; break;
    case ReduceKind::Min: y = y != y || v > y || v == y ? y : v; break;
    case ReduceKind::Any: y = static_cast<V>(y || v); break;
    case ReduceKind::All: y = static_cast<V>(y && v); break;
    default: TESSERA_UNREACHABLE("an arg reduction");
    }
  }
  return y;
}

// Position of the extreme; a NaN is the extreme.
template <class V>
int64_t extreme(ReduceKind kind, bool last, const Tensor& x, const std::vector<int64_t>& members) {
  size_t best = 0;
  for (size_t k = 1; k < members.size(); ++k) {
    V v = get<V>(x, members[k]), b = get<V>(x, members[best]);
    bool v_nan = v != v, b_nan = b != b;
    bool better = v_nan ? !b_nan || last : !b_nan && (kind == ReduceKind::ArgMax ? v > b : v < b);
    bool tie = !v_nan && !b_nan && v == b && last;
    if (better || tie) best = k;
  }
  return static_cast<int64_t>(best);
}

Status reduce_reference(ReferenceContext& c, ReduceKind kind) {
  const Tensor& x = c.operands[0];
  Ints axes = c.node.attributes.ints("axes");
  bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
  bool last = c.node.attributes.i("select_last", 0) != 0;
  TESSERA_ASSIGN(Tensor y, Tensor::create(arg ? DType::I64 : x.dtype(),
                                          reduced_dims(x.dims(), axes, c.node.attributes.i("keepdims", 1) != 0)));
  by_kind(x.dtype(), [&](auto v) {
    using V = decltype(v);
    for_groups(x.dims(), axes, [&](int64_t i, const std::vector<int64_t>& members) {
      if (arg)
        y.set_i64(i, extreme<V>(kind, last, x, members));
      else
        set<V>(y, i, fold<V>(kind, x.dtype(), x, members));
    });
  });
  c.results = {y};
  return {};
}

Status infer_reduction(InferContext& c, bool arg) {
  Ints axes = c.node.attributes.ints("axes");
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] < 0 || axes[i] >= c.type(0).rank() || (i > 0 && axes[i] <= axes[i - 1]))
      return c.error(ErrorCode::BadAttribute,
                     "attribute 'axes' is not an increasing list of dimensions of " + c.type(0).str());
  if (arg) {
    SymExpr n = 1;
    for (int64_t a : axes) n *= c.shape(0)[static_cast<size_t>(a)];
    if (n.is_const(0)) return c.error(ErrorCode::ShapeMismatch, "no element to choose from in " + c.type(0).str());
    TESSERA_TRY(c.env().require(sym_lt(0, n), GuardClass::Required,
                                "argmax and argmin choose from at least one element", c.node.location));
  }
  return set_result(c, arg ? DType::I64 : c.type(0).dtype,
                    reduced_shape(c.shape(0), axes, c.node.attributes.i("keepdims", 1) != 0));
}

std::vector<Sample> reduction_samples(const std::vector<DType>& types, double lo, double hi) {
  std::vector<Sample> out;
  uint64_t seed = 7;
  for (DType d : types)
    for (auto [dims, axes] : {std::pair<Dims, Ints>{{3, 5}, {1}},
                              {{3, 5}, {0}},
                              {{2, 3, 4}, {0, 2}},
                              {{7}, {0}},
                              {{1, 9}, {0, 1}},
                              {{33, 2}, {0}},
                              {{2, 1, 3}, {1}}})
      for (int64_t keep : {0, 1})
        out.push_back(sample({random(d, dims, seed++, lo, hi)}, {{"axes", axes}, {"keepdims", keep}}));
  return out;
}

OpDef fold_record(std::string_view name, std::string_view summary, std::string_view aten, ReduceKind kind,
                  TypeSet types, std::vector<DType> sample_types) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.aten = {aten};
  bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin;
  def.operands = {{"x", types}};
  def.attributes = {{"axes", AttrKind::Ints, true}, {"keepdims", AttrKind::Int, false, int64_t{1}}};
  if (arg) def.attributes.push_back({"select_last", AttrKind::Int, false, int64_t{0}});
  def.infer = [arg](InferContext& c) { return infer_reduction(c, arg); };
  def.meaning = Reduction{kind};
  def.reference = [kind](ReferenceContext& c) { return reduce_reference(c, kind); };
  bool product = kind == ReduceKind::Prod;
  def.samples = [=] {
    std::vector<Sample> out = reduction_samples(sample_types, product ? 0.5 : -3, product ? 2 : 3);
    if (arg) {
      Tensor ties = floats({2, 4}, {1, 3, 3, 0, 5, 5, 2, 5}), nans = floats({1, 4}, {1, NAN, 3, NAN});
      for (const Tensor& t : {ties, nans})
        for (int64_t last : {0, 1}) out.push_back(sample({t}, {{"axes", Ints{1}}, {"select_last", last}}));
    } else {
      out.push_back(sample({random(sample_types[0], {0, 3})}, {{"axes", Ints{0}}}));
      out.push_back(sample({random(sample_types[0], {2, 3})}, {{"axes", Ints{}}}));
      out.push_back(sample({random(sample_types[0], {})}, {{"axes", Ints{}}}));
    }
    if (kind == ReduceKind::Max || kind == ReduceKind::Min)
      out.push_back(sample({floats({2, 3}, {1, NAN, 3, -INFINITY, INFINITY, 0})}, {{"axes", Ints{1}}}));
    return out;
  };
  def.error_samples = [=] {
    Tensor x = random(sample_types[0], {2, 3});
    std::vector<ErrorSample> out = {wrong({x}, {{"axes", Ints{2}}}, ErrorCode::BadAttribute, "increasing list"),
                                    wrong({x}, {{"axes", Ints{1, 0}}}, ErrorCode::BadAttribute, "increasing list")};
    if (arg)
      out.push_back(wrong({random(DType::F32, {2, 0})}, {{"axes", Ints{1}}}, ErrorCode::ShapeMismatch, "no element"));
    return out;
  };
  return def;
}

// ---- ONNX: axes are an attribute, or (ReduceSum since 13, the others since 18) an operand
struct OnnxReduction {
  std::string_view name, summary;
  int axes_operand_since = 18;
  // On the widened operand and normalized axes.
  std::function<ValueId(B&, ValueId x, const Ints& axes, bool keepdims)> build;
  double (*f)(const std::vector<double>&); // the same in plain numbers
  bool exact = false;                      // on integers, too: not widened to floats
  double lo = -3, hi = 3;
};

// The requested axes, normalized. None given: all of them, or with noop_with_empty_axes none.
Result<Ints> reduction_axes(const Attributes& a, int rank, std::optional<Ints> given) {
  Ints axes = given ? *given : a.ints("axes");
  if (axes.empty() && a.i("noop_with_empty_axes", 0) == 0) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

double logsumexp(const std::vector<double>& v) {
  double top = -INFINITY, sum = 0;
  for (double x : v) top = std::max(top, x);
  if (std::isinf(top)) return top;
  for (double x : v) sum += std::exp(x - top);
  return top + std::log(sum);
}

template <class F>
double accumulate(const std::vector<double>& v, F f) {
  double y = 0;
  for (double x : v) y += f(x);
  return y;
}

std::vector<OnnxReduction> onnx_reductions() {
  auto plain = [](std::string_view op) {
    return [op](B& b, ValueId x, const Ints& axes, bool keep) { return reduce(b, op, x, axes, keep); };
  };
  auto extreme = [](std::string_view op, std::string_view on_bool) {
    return [op, on_bool](B& b, ValueId x, const Ints& axes, bool keep) {
      return reduce(b, b.dtype(x) == DType::Bool ? on_bool : op, x, axes, keep);
    };
  };
  return {
      {"ReduceSum", "sum over axes", 13, plain("reduce_sum"),
       [](const std::vector<double>& v) { return accumulate(v, [](double x) { return x; }); }, true},
      {"ReduceProd", "product over axes", 18, plain("reduce_prod"),
       [](const std::vector<double>& v) {
         double y = 1;
         for (double x : v) y *= x;
         return y;
       },
       true, 0.5, 2},
      {"ReduceMax", "greatest element over axes", 18, extreme("reduce_max", "reduce_any"),
       [](const std::vector<double>& v) { return v.empty() ? -INFINITY : *std::max_element(v.begin(), v.end()); },
       true},
      {"ReduceMin", "least element over axes", 18, extreme("reduce_min", "reduce_all"),
       [](const std::vector<double>& v) { return v.empty() ? INFINITY : *std::min_element(v.begin(), v.end()); }, true},
      {"ReduceMean", "mean over axes", 18,
       [](B& b, ValueId x, const Ints& axes, bool keep) { return mean(b, x, axes, keep); },
       [](const std::vector<double>& v) {
         return accumulate(v, [](double x) { return x; }) / static_cast<double>(v.size());
       },
       true},
      {"ReduceL1", "sum of absolute values over axes", 18,
       [](B& b, ValueId x, const Ints& axes, bool keep) { return sum(b, abs(b, x), axes, keep); },
       [](const std::vector<double>& v) { return accumulate(v, [](double x) { return std::fabs(x); }); }, true},
      {"ReduceL2", "square root of the sum of squares over axes", 18,
       [](B& b, ValueId x, const Ints& axes, bool keep) { return sqrt(b, sum(b, mul(b, x, x), axes, keep)); },
       [](const std::vector<double>& v) { return std::sqrt(accumulate(v, [](double x) { return x * x; })); }},
      {"ReduceSumSquare", "sum of squares over axes", 18,
       [](B& b, ValueId x, const Ints& axes, bool keep) { return sum(b, mul(b, x, x), axes, keep); },
       [](const std::vector<double>& v) { return accumulate(v, [](double x) { return x * x; }); }, true},
      {"ReduceLogSum", "logarithm of the sum over axes", 18,
       [](B& b, ValueId x, const Ints& axes, bool keep) { return log(b, sum(b, x, axes, keep)); },
       [](const std::vector<double>& v) { return std::log(accumulate(v, [](double x) { return x; })); }, false, 0.5, 3},
      {"ReduceLogSumExp", "logarithm of the sum of exponentials over axes", 18,
       [](B& b, ValueId x, const Ints& axes, bool keep) {
         // The maximum is taken out; an infinite one is not, as infinity - infinity is no number.
         ValueId top = reduce(b, "reduce_max", x, axes, true);
         top = select(b, b.op1("isinf", top), 0.0, top);
         ValueId y = add(b, log(b, sum(b, exp(b, sub(b, x, top)), axes, true)), top);
         return keep ? y : squeeze(b, y, axes);
       },
       logsumexp},
  };
}

OpDef onnx_reduction(const OnnxReduction& row) {
  OpDef def;
  def.name = row.name;
  def.summary = row.summary;
  def.onnx = {{row.name}};
  def.operands = {{"data", TypeSet::NumericOrBool}, {"axes", TypeSet::Index, true}};
  def.attributes = {{"axes", AttrKind::Ints},
                    {"keepdims", AttrKind::Int, false, int64_t{1}},
                    {"noop_with_empty_axes", AttrKind::Int, false, int64_t{0}}};
  def.meaning = Decomposition{[row](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = b.in(0);
    std::optional<Ints> given;
    if (b.has(1)) given = b.known_ints(1);
    if (!b.ok()) return b.failed();
    auto axes = reduction_axes(b.attr(), b.rank(x), given);
    Ints over = b.axes(*axes, b.rank(x));
    if (!b.ok()) return b.failed();
    DType d = b.dtype(x);
    // Roots and logarithms of integers are taken in f64; small floats are summed in f32.
    ValueId wide = row.exact || is_float(d) ? widen(b, x) : cast(b, x, DType::F64);
    return b.done(cast(b, row.build(b, wide, over, b.attr().i("keepdims", 1) != 0), d));
  }};
  def.reference = [f = row.f](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    std::optional<Ints> given;
    if (c.operands.size() > 1 && c.operands[1].defined()) given = to_i64(c.operands[1]);
    TESSERA_ASSIGN(Ints axes, reduction_axes(c.node.attributes, static_cast<int>(x.dims().size()), given));
    for (int64_t& a : axes) a += a < 0 ? static_cast<int64_t>(x.dims().size()) : 0;
    std::sort(axes.begin(), axes.end());
    TESSERA_ASSIGN(Tensor y,
                   Tensor::create(x.dtype(), reduced_dims(x.dims(), axes, c.node.attributes.i("keepdims", 1) != 0)));
    for_groups(x.dims(), axes, [&](int64_t i, const std::vector<int64_t>& members) {
      std::vector<double> v;
      for (int64_t m : members) v.push_back(x.get_f64(m));
      double r = f(v);
      if (is_float(y.dtype()))
        y.set_f64(i, r);
      else if (y.dtype() == DType::Bool)
        y.set_i64(i, r > 0);
      else
        y.set_i64(i, static_cast<int64_t>(std::isnan(r) ? 0 : std::clamp(r, -0x1p63, 0x1.fffffffffffffp62)));
    });
    c.results = {y};
    return {};
  };
  def.samples = [row] {
    std::vector<Sample> out;
    int last_attr = row.axes_operand_since - 1, operand = row.axes_operand_since;
    for (DType d : {DType::F32, DType::F16, DType::F64}) {
      Tensor x = random(d, {2, 3, 4}, 5, row.lo, row.hi);
      out.push_back(sample({x}, {{"axes", Ints{1}}}, 11));
      out.push_back(sample({x}, {{"axes", Ints{-1, 0}}, {"keepdims", int64_t{0}}}, last_attr));
      out.push_back(sample({x}, {{"keepdims", int64_t{0}}}, last_attr));
      out.push_back(sample({x, vec({-2})}, {}, operand));
      out.push_back(sample({x, vec({})}, {{"noop_with_empty_axes", int64_t{1}}}, operand));
      out.push_back(sample({x}, {{"keepdims", int64_t{0}}}, operand));
      out.push_back(sample({random(d, {3, 17}, 6, row.lo, row.hi), vec({0, 1})}, {{"keepdims", int64_t{0}}}, operand));
    }
    for (DType d : {DType::I32, DType::I64}) out.push_back(sample({random(d, {3, 4}, 5, 1, 4), vec({1})}, {}, operand));
    return out;
  };
  def.error_samples = [row] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{wrong({x}, {{"axes", Ints{2}}}, ErrorCode::BadAttribute, "axis", 11),
                                    wrong({x}, {{"axes", Ints{1, -1}}}, ErrorCode::BadAttribute, "twice", 11)};
  };
  return def;
}

OpDef onnx_arg(std::string_view name, std::string_view summary, std::string_view primitive, ReduceKind kind) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.onnx = {{name}};
  def.operands = {{"data", TypeSet::Numeric}};
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{0}},
                    {"keepdims", AttrKind::Int, false, int64_t{1}},
                    {"select_last_index", AttrKind::Int, false, int64_t{0}}};
  def.meaning = Decomposition{[primitive](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = b.in(0);
    int64_t axis = b.axis(b.attr().i("axis"), b.rank(x));
    return b.done(b.op(primitive, {x},
                       {{"axes", Ints{axis}},
                        {"keepdims", b.attr().i("keepdims", 1)},
                        {"select_last", b.attr().i("select_last_index", 0)}}));
  }};
  def.reference = [kind](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t axis = c.node.attributes.i("axis");
    if (axis < 0) axis += static_cast<int64_t>(x.dims().size());
    TESSERA_ASSIGN(Tensor y,
                   Tensor::create(DType::I64, reduced_dims(x.dims(), {axis}, c.node.attributes.i("keepdims", 1) != 0)));
    bool last = c.node.attributes.i("select_last_index", 0) != 0;
    for_groups(x.dims(), {axis}, [&](int64_t i, const std::vector<int64_t>& members) {
      y.set_i64(i, extreme<double>(kind, last, x, members));
    });
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F16, DType::I32, DType::U8})
      for (int64_t axis : {0, 1, -1})
        for (int64_t last : {0, 1})
          out.push_back(sample({random(d, {3, 4, 5}, 5, -3, 3)},
                               {{"axis", axis}, {"keepdims", last}, {"select_last_index", last}}, 13));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis", 13),
        wrong({random(DType::F32, {0, 3})}, {}, ErrorCode::ShapeMismatch, "no element", 13)};
  };
  return def;
}

} // namespace

void register_reduction_ops(OpTable& table) {
  using K = ReduceKind;
  const std::vector<DType> numbers(kNumbers);
  table.add(
      fold_record("reduce_sum", "sum over axes; 0 of nothing", "sum.dim_IntList", K::Sum, TypeSet::Numeric, numbers));
  table.add(fold_record("reduce_prod", "product over axes; 1 of nothing", "prod.dim_int", K::Prod, TypeSet::Numeric,
                        numbers));
  table.add(fold_record("reduce_max", "greatest element over axes, NaN if one is; the lowest value of nothing", "amax",
                        K::Max, TypeSet::Numeric, numbers));
  table.add(fold_record("reduce_min", "least element over axes, NaN if one is; the highest value of nothing", "amin",
                        K::Min, TypeSet::Numeric, numbers));
  table.add(fold_record("reduce_any", "whether one element holds", "any.dim", K::Any, TypeSet::Bool, {DType::Bool}));
  table.add(fold_record("reduce_all", "whether every element holds", "all.dim", K::All, TypeSet::Bool, {DType::Bool}));
  table.add(fold_record("argmax", "position of the greatest element over axes", "argmax", K::ArgMax, TypeSet::Numeric,
                        numbers));
  table.add(
      fold_record("argmin", "position of the least element over axes", "argmin", K::ArgMin, TypeSet::Numeric, numbers));
  for (const OnnxReduction& row : onnx_reductions()) table.add(onnx_reduction(row));
  table.add(onnx_arg("ArgMax", "position of the greatest element along an axis", "argmax", K::ArgMax));
  table.add(onnx_arg("ArgMin", "position of the least element along an axis", "argmin", K::ArgMin));
}

} // namespace tessera
