// Scans, sorting and reordering along an axis: CumSum, CumProd, TopK, ReverseSequence.
#include "graph/ops/chosen.h"
#include "graph/ops/sampling.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

Result<int64_t> concrete_axis(const ReferenceContext& c, int64_t axis, size_t rank) {
  auto n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n)
    return c.error(ErrorCode::BadAttribute,
                   "axis " + std::to_string(axis) + " is outside of rank " + std::to_string(rank));
  return axis < 0 ? axis + n : axis;
}

// Calls f(position of the line's first element) for each line along an axis; elements of a line are `stride` apart.
template <class F>
void each_line(const Dims& dims, size_t axis, F f) {
  Dims strides = strides_of(dims), others = dims;
  if (dims[axis] == 0) return;
  others[axis] = 1;
  for (MultiIndex w(others); !w.done(); w.next()) f(offset(w.at(), strides));
}

// ---- scan
constexpr std::array<std::optional<ReduceKind>, 4> kScans = {ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max,
                                                             ReduceKind::Min};

// Integers wrap; NaN is both the greatest and the least number.
template <class V>
V running(ReduceKind kind, V sum, V v) {
  auto wrapped = [](auto x) {
    if constexpr (std::is_integral_v<V>)
      return static_cast<uint64_t>(x);
    else
      return x;
  };
  switch (kind) {
  case ReduceKind::Prod: return static_cast<V>(wrapped(sum) * wrapped(v));
  case ReduceKind::Max: return sum != sum || v <= sum ? sum : v;
  case ReduceKind::Min: return sum != sum || v >= sum ? sum : v;
  default: return static_cast<V>(wrapped(sum) + wrapped(v));
  }
}

Status infer_scan(InferContext& c) {
  const std::string kind = c.node.attributes.s("kind");
  if (std::find(kScans.begin(), kScans.end(), reduce_kind_from_name(kind)) == kScans.end())
    return c.error(ErrorCode::BadAttribute, "unknown kind of scan '" + kind + "'");
  int rank = c.type(0).rank();
  if (!c.has(1)) {
    TESSERA_TRY(c.axis(c.node.attributes.i("axis"), rank));
  } else if (auto axis = c.known_ints(1); axis.ok()) {
    if (axis->size() != 1) return c.error(ErrorCode::BadAttribute, "the axis of a scan must be one number");
    TESSERA_TRY(c.axis((*axis)[0], rank));
  }
  return infer_same(c);
}

Status reference_cumulative(ReferenceContext& c, ReduceKind kind) {
  const Tensor& x = c.operands[0];
  bool dynamic = given(c, 1);
  if (dynamic && c.operands[1].count() != 1)
    return c.error(ErrorCode::BadInput, "the axis of a scan must be one number");
  TESSERA_ASSIGN(int64_t axis,
                 concrete_axis(c, dynamic ? c.operands[1].get_i64(0) : c.node.attributes.i("axis"), x.dims().size()));
  bool exclusive = c.node.attributes.i("exclusive") != 0, reverse = c.node.attributes.i("reverse") != 0;
  TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), x.dims()));
  auto a = static_cast<size_t>(axis);
  int64_t size = x.dims()[a], stride = strides_of(x.dims())[a];
  by_kind(x.dtype(), [&](auto zero) {
    using V = decltype(zero);
    const V identity = is_float(x.dtype()) ? static_cast<V>(reduce_identity_f64(kind, x.dtype()))
                                           : static_cast<V>(reduce_identity_i64(kind, x.dtype()));
    each_line(x.dims(), a, [&](int64_t base) {
      V sum = identity;
      for (int64_t i = 0; i < size; ++i) {
        int64_t at = base + (reverse ? size - 1 - i : i) * stride;
        if (exclusive) set(out, at, sum);
        V v = get<V>(x, at);
        sum = running(kind, sum, v);
        if (!exclusive) set(out, at, sum);
      }
    });
  });
  c.results = {out};
  return {};
}

OpDef scan_record() {
  OpDef def;
  def.name = "scan";
  def.summary = "running sum, product, maximum or minimum along an axis, which is an attribute or, when only known at "
                "run time, an "
                "operand";
  def.operands = {{"x", TypeSet::Numeric}, {"axis", TypeSet::Index, true}};
  def.attributes = {{"kind", AttrKind::String, true},
                    {"axis", AttrKind::Int, false, int64_t{0}},
                    {"exclusive", AttrKind::Int, false, int64_t{0}},
                    {"reverse", AttrKind::Int, false, int64_t{0}}};
  def.infer = infer_scan;
  def.meaning = StructuredOp{Structured::Scan};
  def.reference = [](ReferenceContext& c) {
    return reference_cumulative(c, *reduce_kind_from_name(c.node.attributes.s("kind")));
  };
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    for (const char* kind : {"sum", "prod", "max", "min"})
      for (DType d : {DType::F32, DType::F64, DType::I32, DType::I64}) {
        Attributes a = {{"kind", std::string(kind)}, {"axis", int64_t{1}}};
        out.push_back(sample({random(d, {2, 5, 3}, seed++)}, a));
        a.set("exclusive", int64_t{1});
        a.set("reverse", int64_t{1});
        out.push_back(sample({random(d, {2, 5, 3}, seed++), scalar(DType::I64, -1)}, a));
      }
    out.push_back(sample({random(DType::F32, {3, 0}, 5)}, {{"kind", std::string("sum")}, {"axis", int64_t{1}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3})}, {{"kind", std::string("sum")}, {"axis", int64_t{1}}}, ErrorCode::BadAttribute,
              "axis"),
        wrong({random(DType::F32, {3})}, {{"kind", std::string("mean")}}, ErrorCode::BadAttribute, "kind")};
  };
  return def;
}

// A running value as a fold: element i folds the elements j that stand before it. The work is quadratic in the size of
// the axis, but it is a loop nest that fuses with its neighbours, where a scan is a step of its own.
ValueId as_fold(B& b, ValueId x, int64_t axis, std::string_view kind, bool exclusive, bool reverse) {
  if (!b.ok()) return {};
  SymExpr n = b.dim(x, axis);
  SymShape di(static_cast<size_t>(b.rank(x)) + 1, SymExpr(1)), dj = di;
  di[static_cast<size_t>(axis)] = n;
  dj[static_cast<size_t>(axis) + 1] = n;
  ValueId i = iota(b, di, axis), j = iota(b, dj, axis + 1);
  ValueId before = exclusive ? (reverse ? gt(b, j, i) : lt(b, j, i)) : (reverse ? ge(b, j, i) : le(b, j, i));
  bool product = kind == "prod";
  ValueId terms = select(b, before, unsqueeze(b, widen(b, x), {axis}), product ? 1.0 : 0.0);
  return cast(b, reduce(b, product ? "reduce_prod" : "reduce_sum", terms, {axis + 1}, false), b.dtype(x));
}

// A fold is quadratic in the axis but fuses with its neighbours: of short axes, as long as its terms take no longer
// than the step that they save (on a host 20 to 80 ps each). Of sizes that are not known only where it costs no more
// than a scan. Everything else is one.
bool fold_pays(B& b, ValueId x, int64_t axis) {
  constexpr int64_t kLongest = 64, kUnknown = 4; // elements of an axis; of tensors of any size
  constexpr int64_t kTerms = 64 << 10;
  const auto n = b.dim(x, axis).as_const();
  if (!n || *n > kLongest) return false;
  SymExpr terms = *n;
  for (const SymExpr& d : b.shape(x)) terms *= d;
  const auto known = b.env().simplify(terms).as_const();
  return known ? *known <= kTerms : *n <= kUnknown;
}

OpDef cumulative_record(std::string_view name, std::string_view kind, int since, std::string_view aten) {
  OpDef def;
  def.name = name;
  def.summary = "running value along an axis";
  def.onnx = {{name, "", since}};
  def.aten = {aten};
  def.operands = {{"x", TypeSet::Numeric}, {"axis", TypeSet::Index}};
  def.attributes = {{"exclusive", AttrKind::Int, false, int64_t{0}}, {"reverse", AttrKind::Int, false, int64_t{0}}};
  def.meaning = Decomposition{[kind](Graph& g, const Node& n, int) -> Result<std::vector<ValueId>> {
    B b(g, n);
    Attributes a = {
        {"kind", std::string(kind)}, {"exclusive", b.attr().i("exclusive")}, {"reverse", b.attr().i("reverse")}};
    const Ints axis = b.known_ints(1);
    if (b.ok() && axis.size() != 1) b.fail(ErrorCode::BadAttribute, "the axis of a running sum must be one number");
    if (!b.ok()) return b.done(ValueId{});
    int64_t at = b.axis(axis[0], b.rank(b.in(0)));
    if (b.ok() && fold_pays(b, b.in(0), at))
      return b.done(as_fold(b, b.in(0), at, kind, a.i("exclusive") != 0, a.i("reverse") != 0));
    a.set("axis", at);
    return b.done(b.op("scan", {b.in(0)}, a));
  }};
  def.reference = [kind](ReferenceContext& c) { return reference_cumulative(c, *reduce_kind_from_name(kind)); };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 5}, 1), scalar(DType::I32, 1)}),
        sample({random(DType::F64, {2, 5}, 2), vec({-2})}, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}),
        sample({random(DType::I64, {3, 2, 7}, 3), vec({2})}, {{"exclusive", int64_t{1}}}),
        sample({random(DType::I32, {3, 4}, 4), vec({0})}, {{"reverse", int64_t{1}}}),
        sample({random(DType::F16, {9}, 5), vec({0})})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 5}), scalar(DType::I64, 2)}, {}, ErrorCode::BadAttribute, "axis"),
        wrong({random(DType::F32, {2, 5}), vec({0, 1})}, {}, ErrorCode::BadAttribute, "one number")};
  };
  return def;
}

// ---- topk
Result<std::vector<ValueId>> decompose_topk(Graph& g, const Node& n, int count) {
  B b(g, n);
  const ValueId x = b.in(0);
  const int rank = b.rank(x);
  const int64_t axis = b.axis(b.attr().i("axis", -1), rank);
  SymExpr k;
  if (b.has(1)) {
    const auto sizes = b.sizes(1);
    if (b.ok() && sizes.size() != 1) b.fail(ErrorCode::BadAttribute, "K of TopK must be one number");
    if (b.ok()) k = sizes[0];
  } else if (const int64_t* given = b.attr().get<int64_t>("k")) {
    k = *given;
    if (*given < 0) b.fail(ErrorCode::BadAttribute, "TopK of " + std::to_string(*given) + " elements");
  } else {
    b.fail(ErrorCode::BadAttribute, "the number of elements of TopK is missing");
  }
  if (!b.ok()) return b.failed();
  if (const SymExpr size = b.dim(x, axis); b.env().prove(sym_le(k, size)) == false)
    b.fail(ErrorCode::ShapeMismatch, "TopK of " + k.str() + " elements of a dimension of " + size.str());
  Ints perm;
  for (int64_t d = 0; d < rank; ++d) perm.push_back(d == axis ? rank - 1 : d == rank - 1 ? axis : d);
  const ValueId last = transpose(b, x, perm);
  const ValueId at =
      b.op("sort_indices", {sortable(b, last)}, {{"k", SymShape{k}}, {"descending", b.attr().i("largest", 1)}});
  const ValueId values = b.op("gather_elements", {last, at}, {{"axis", int64_t{rank - 1}}});
  std::vector<ValueId> out = {transpose(b, values, perm)};
  if (count > 1) out.push_back(transpose(b, at, perm));
  return b.done(out);
}

Status reference_topk(ReferenceContext& c) {
  const Tensor& x = c.operands[0];
  TESSERA_ASSIGN(int64_t axis, concrete_axis(c, c.node.attributes.i("axis", -1), x.dims().size()));
  auto a = static_cast<size_t>(axis);
  bool by_operand = given(c, 1);
  if (by_operand && c.operands[1].count() != 1) return c.error(ErrorCode::BadInput, "K of TopK must be one number");
  int64_t k = by_operand ? c.operands[1].get_i64(0) : c.node.attributes.i("k"), size = x.dims()[a];
  if (k < 0 || k > size)
    return c.error(ErrorCode::BadInput,
                   "TopK of " + std::to_string(k) + " elements of a dimension of " + std::to_string(size));
  Dims dims = x.dims();
  dims[a] = k;
  TESSERA_ASSIGN(Tensor indices, Tensor::create(DType::I64, dims));
  bool largest = c.node.attributes.i("largest", 1) != 0;
  int64_t stride = strides_of(x.dims())[a];
  std::vector<int64_t> order(static_cast<size_t>(size));
  Dims lines = dims;
  lines[a] = k == 0 ? 0 : 1;
  Dims from = strides_of(x.dims()), to = strides_of(dims);
  by_kind(x.dtype(), [&](auto zero) {
    using V = decltype(zero);
    // NaN counts as larger than any number, as in a sort; equal elements keep their order.
    auto less = [](V p, V q) { return p != p ? false : q != q ? true : p < q; };
    for (MultiIndex w(lines); !w.done(); w.next()) {
      int64_t base = offset(w.at(), from), target = offset(w.at(), to);
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
        V vp = get<V>(x, base + p * stride), vq = get<V>(x, base + q * stride);
        return largest ? less(vq, vp) : less(vp, vq);
      });
      for (int64_t i = 0; i < k; ++i) indices.set_i64(target + i * to[a], order[static_cast<size_t>(i)]);
    }
  });
  TESSERA_ASSIGN(Tensor values, take_at(x, dims, [&](const Dims& at) {
                   Dims source = at;
                   source[a] = indices.get_i64(offset(at, to));
                   return offset(source, from);
                 }));
  c.results = {values, indices};
  return {};
}

OpDef topk_record() {
  OpDef def;
  def.name = "topk";
  def.summary = "the K largest or smallest elements along an axis, in order, and where they were";
  def.onnx = {{"TopK"}};
  def.aten = {"topk"};
  def.operands = {{"X", TypeSet::Numeric}, {"K", TypeSet::Index, true}};
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{-1}},
                    {"k", AttrKind::Int},
                    {"largest", AttrKind::Int, false, int64_t{1}},
                    {"sorted", AttrKind::Int, false, int64_t{1}}};
  def.max_results = 2;
  def.meaning = Decomposition{decompose_topk};
  def.reference = reference_topk;
  def.samples = [] {
    std::vector<Sample> out = {
        sample({random(DType::F32, {3, 7}, 1), vec({3})}),
        sample({random(DType::I32, {3, 7}, 2, -3, 3), vec({4})}, {{"largest", int64_t{0}}}),
        sample({random(DType::F16, {4, 2, 3}, 3), vec({2})}, {{"axis", int64_t{0}}}),
        sample({random(DType::F32, {3, 7}, 1)}, {{"k", int64_t{2}}}, 7),
        sample({random(DType::U8, {3, 4}, 1, 0, 9), vec({0})}),
        sample({random(DType::F8E4M3FN, {3, 9}, 1), vec({3})}),
        sample({random(DType::I4, {3, 8}, 1, -8, 7), vec({5})}, {{"largest", int64_t{0}}}),
    };
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 7}), vec({8})}, {}, ErrorCode::ShapeMismatch, "TopK of 8"),
        wrong({random(DType::F32, {3, 7}), vec({2})}, {{"axis", int64_t{2}}}, ErrorCode::BadAttribute, "axis"),
        wrong({random(DType::F32, {3, 7})}, {}, ErrorCode::BadAttribute, "missing"),
    };
  };
  return def;
}

// ---- ReverseSequence
Result<std::vector<ValueId>> decompose_reverse_sequence(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  const SymShape shape = b.shape(x);
  const size_t rank = shape.size();
  const auto batch = static_cast<size_t>(b.axis(b.attr().i("batch_axis", 1), b.rank(x))),
             time = static_cast<size_t>(b.axis(b.attr().i("time_axis"), b.rank(x)));
  if (!b.ok()) return b.failed();
  ValueId length = reshape(b, index(b, b.in(1)), along(shape[batch], rank, batch));
  ValueId t = ramp(b, shape[time], rank, time), one = b.scalar_i(DType::I64, 1);
  ValueId mirrored = sub(b, sub(b, length, one), t); // too long a sequence reaches outside of x
  std::vector<ValueId> at;
  for (size_t k = 0; k < rank; ++k)
    at.push_back(k == time ? select(b, ge(b, mirrored, b.scalar_i(DType::I64, 0)), mirrored, t)
                           : ramp(b, shape[k], rank, k));
  return b.done(gather_at(b, x, std::move(at)));
}

OpDef reverse_sequence_record() {
  OpDef def;
  def.name = "ReverseSequence";
  def.summary = "the first sequence_lens[b] steps of each batch element in reverse order";
  def.onnx = {{"ReverseSequence", "", 10}};
  def.operands = {{"input", TypeSet::NumericOrBool}, {"sequence_lens", TypeSet::Index}};
  def.attributes = {{"batch_axis", AttrKind::Int, false, int64_t{1}}, {"time_axis", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    int rank = c.type(0).rank();
    if (rank < 2)
      return c.error(ErrorCode::ShapeMismatch, "ReverseSequence takes at least two dimensions, not " + str(c.shape(0)));
    TESSERA_ASSIGN(int64_t batch, c.axis(c.node.attributes.i("batch_axis", 1), rank));
    TESSERA_ASSIGN(int64_t time, c.axis(c.node.attributes.i("time_axis"), rank));
    if (batch == time) return c.error(ErrorCode::BadAttribute, "batch_axis and time_axis are the same");
    if (c.type(1).rank() != 1) return c.error(ErrorCode::ShapeMismatch, "sequence_lens must be a vector");
    TESSERA_TRY(c.env().require_equal(c.shape(1)[0], c.shape(0)[static_cast<size_t>(batch)], "sequence_lens and batch",
                                      c.node.location));
    return infer_same(c);
  };
  def.meaning = Decomposition{decompose_reverse_sequence};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(int64_t batch, concrete_axis(c, c.node.attributes.i("batch_axis", 1), x.dims().size()));
    TESSERA_ASSIGN(int64_t time, concrete_axis(c, c.node.attributes.i("time_axis"), x.dims().size()));
    auto tb = static_cast<size_t>(batch), tt = static_cast<size_t>(time);
    Dims lens = to_i64(c.operands[1]), strides = strides_of(x.dims());
    for (int64_t n : lens)
      if (n < 0 || n > x.dims()[tt])
        return c.error(ErrorCode::BadInput,
                       "a sequence of length " + std::to_string(n) + " in " + std::to_string(x.dims()[tt]) + " steps");
    TESSERA_ASSIGN(Tensor out, take_at(x, x.dims(), [&](const Dims& at) {
                     Dims source = at;
                     int64_t n = lens[static_cast<size_t>(at[tb])];
                     if (source[tt] < n) source[tt] = n - 1 - source[tt];
                     return offset(source, strides);
                   }));
    c.results = {out};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {4, 3, 2}, 1), vec({4, 1, 2})}),
        sample({random(DType::I32, {3, 5}, 1), vec({0, 3, 5})},
               {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}}),
    };
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {4, 3}), vec({4, 1})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F32, {4, 3}), vec({1, 1, 1})}, {{"time_axis", int64_t{1}}}, ErrorCode::BadAttribute,
              "same"),
    };
  };
  return def;
}

} // namespace

void register_sort_primitives(OpTable& table);
void register_nms_ops(OpTable& table);
void register_sort_scan_ops(OpTable& table) {
  table.add(scan_record());
  table.add(cumulative_record("CumSum", "sum", 11, "cumsum"));
  table.add(cumulative_record("CumProd", "prod", 26, "cumprod"));
  register_sort_primitives(table);
  table.add(topk_record());
  table.add(reverse_sequence_record());
  register_scatter_ops(table);
  register_select_ops(table);
  register_nms_ops(table);
}

} // namespace tessera
