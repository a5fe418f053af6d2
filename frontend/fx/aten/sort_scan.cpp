// Sorting, searching in what is sorted, and running values along a dimension.
#include "frontend/fx/view_parts.h"

namespace tessera::fx {
namespace {

// The k first elements along an axis in order, and where they were. NaN counts as the largest, equal elements keep
// their order. x is at least a vector.
struct Sorted {
  ValueId values, indices;
};
Sorted sorted(ops::B& b, ValueId x, int64_t axis, const SymExpr& k, bool largest) {
  if (!b.ok()) return {};
  const DType stored = b.dtype(x);
  if (stored == DType::Bool) x = cast(b, x, DType::U8);
  Attributes a = {{"axis", axis}, {"largest", int64_t{largest}}};
  std::vector<ValueId> operands = {x};
  if (auto n = k.as_const())
    a.set("k", *n);
  else
    operands.push_back(b.dims({k}));
  auto r = b.ops("topk", std::move(operands), a, 2);
  return {cast(b, r[0], stored), r[1]};
}

struct Line {
  ValueId x; // at least a vector
  SymShape shape;
  int64_t axis = 0;
  SymExpr n;
};
Line line_of(Call& c) {
  Line l;
  l.x = c.in.tensor("self");
  l.shape = c.b.shape(l.x);
  l.axis = c.in.axis("dim", c.b.rank(l.x));
  l.x = as_vector(c.b, l.x);
  l.n = c.b.dim(l.x, l.axis);
  return l;
}

void translate_sort(Call& c) {
  const Line l = line_of(c);
  const Sorted s = sorted(c.b, l.x, l.axis, l.n, c.in.flag("descending"));
  c.result(reshape(c.b, s.values, l.shape));
  c.result(reshape(c.b, s.indices, l.shape));
}

void translate_argsort(Call& c) {
  const Line l = line_of(c);
  c.result(reshape(c.b, sorted(c.b, l.x, l.axis, l.n, c.in.flag("descending")).indices, l.shape));
}

void translate_msort(Call& c) {
  ValueId x = c.in.tensor("self");
  const SymShape shape = c.b.shape(x);
  x = as_vector(c.b, x);
  c.result(reshape(c.b, sorted(c.b, x, 0, c.b.dim(x, 0), false).values, shape));
}

void translate_topk(Call& c) {
  const Line l = line_of(c);
  const SymExpr k = c.in.size("k");
  const Sorted s = sorted(c.b, l.x, l.axis, k, c.in.flag("largest"));
  const bool scalar = l.shape.empty() && k.is_const(1);
  for (ValueId v : {s.values, s.indices}) c.result(scalar ? reshape(c.b, v, {}) : v);
}

void translate_kthvalue(Call& c) {
  const Line l = line_of(c);
  const SymExpr k = c.in.size("k");
  const bool keep = c.in.flag("keepdim");
  const Sorted s = sorted(c.b, l.x, l.axis, k, false);
  for (ValueId v : {s.values, s.indices}) {
    v = take_range(c.b, v, l.axis, {c.b.env().simplify(k - 1), 1, 1});
    c.result(keep && !l.shape.empty() ? v : squeeze(c.b, v, {l.axis}));
  }
}

// A running value by doubling: after step k an element has combined the 2^k elements that end with it. `combine` gets
// earlier and later partial results; log2(n) steps for n elements.
template <class Combine>
ValueId doubled(Call& c, ValueId x, int64_t axis, const Combine& combine) {
  ops::B& b = c.b;
  if (!b.ok()) return {};
  constexpr int64_t kLongest = int64_t{1} << 31;
  const SymExpr n = b.dim(x, axis);
  b.check(b.env().require(sym_le(n, kLongest), GuardClass::Required, "a running value of at most 2^31 elements",
                          b.node().location));
  const int64_t most = b.env().range(n).hi;
  const int rank = b.rank(x);
  SymShape line(static_cast<size_t>(rank), SymExpr(1));
  line[static_cast<size_t>(axis)] = n;
  for (int64_t step = 1; step < most && b.ok(); step *= 2) {
    SymShape begin(static_cast<size_t>(rank), SymExpr(0)), end = begin;
    begin[static_cast<size_t>(axis)] = step;
    end[static_cast<size_t>(axis)] = -step;
    ValueId both = combine(reshape(b, pad(b, x, begin, end), b.shape(x)), x);
    x = select(b, ge(b, iota(b, line, axis), static_cast<double>(step)), both, x);
  }
  return x;
}

// The running value along an axis; kind: that of "scan".
ValueId running(ops::B& b, ValueId x, int64_t axis, std::string_view kind) {
  return b.op("scan", {x}, {{"kind", std::string(kind)}, {"axis", axis}});
}

// ---- the element in the middle, and the most frequent one
struct Choice {
  Line line;
  bool keep = false;
};
// Along `dim`, or over all elements where the operator has none.
Choice choice_of(Call& c) {
  if (c.schema().argument("dim") != nullptr) {
    Choice out{line_of(c), c.in.flag("keepdim")};
    out.keep = out.keep && !out.line.shape.empty();
    return out;
  }
  Choice out;
  const ValueId x = c.in.tensor("self");
  if (!c.b.ok()) return out;
  out.line.x = reshape(c.b, x, {c.b.type(x).count()});
  if (!c.b.ok()) return out;
  out.line.shape = c.b.shape(out.line.x);
  out.line.n = out.line.shape.at(0);
  return out;
}

// The elements of `s` at `at`, which has size 1 along the axis: its value, and its position where there is a `dim`.
void choose(Call& c, const Choice& choice, const Sorted& s, ValueId at) {
  const int64_t axis = choice.line.axis;
  for (ValueId v : {s.values, s.indices}) {
    v = c.b.op("gather_elements", {v, at}, {{"axis", axis}});
    c.result(choice.keep ? v : squeeze(c.b, v, {axis}));
    if (c.schema().argument("dim") == nullptr) return;
  }
}

// The lower one of two in the middle. NaN comes last in order: the first one is the median, or none counts.
template <bool kSkipNan>
void translate_median(Call& c) {
  ops::B& b = c.b;
  const Choice choice = choice_of(c);
  const Line& l = choice.line;
  if (!b.ok()) return;
  if (l.n.is_const(0)) return c.unsupported("the median of no elements");
  const Sorted s = sorted(b, l.x, l.axis, l.n, false);
  if (!b.ok()) return;
  SymShape one = b.shape(s.values);
  one[static_cast<size_t>(l.axis)] = 1;
  ValueId at = expand(b, b.size(floordiv(l.n - 1, 2), DType::I64), one);
  if (is_float(b.dtype(l.x))) {
    ValueId numbers = sum(b, cast(b, logical_not(b, b.op1("isnan", s.values)), DType::I64), {l.axis}, true);
    ValueId size = b.size(l.n, DType::I64);
    if (kSkipNan) { // trunc((numbers - 1) / 2), which is 0 where there is none
      ValueId middle =
          cast(b, floor(b, div(b, cast(b, sub(b, numbers, b.scalar_i(DType::I64, 1)), DType::F64), 2.0)), DType::I64);
      at = max(b, middle, b.scalar_i(DType::I64, 0));
    } else {
      at = select(b, lt(b, numbers, size), numbers, at);
    }
  }
  choose(c, choice, s, at);
}

// The least of the most frequent elements, and its last position. Equal elements stand side by side in order: a run of
// them is as long as the distance to its first one. No two NaN are equal.
void translate_mode(Call& c) {
  ops::B& b = c.b;
  const Choice choice = choice_of(c);
  const Line& l = choice.line;
  if (!b.ok()) return;
  if (l.n.is_const(0)) return c.unsupported("the most frequent of no elements");
  const Sorted s = sorted(b, l.x, l.axis, l.n, false);
  if (!b.ok()) return;
  const SymShape shape = b.shape(s.values);
  SymShape line(shape.size(), SymExpr(1)), begin(shape.size(), SymExpr(0)), end = begin;
  line[static_cast<size_t>(l.axis)] = l.n;
  begin[static_cast<size_t>(l.axis)] = 1;
  end[static_cast<size_t>(l.axis)] = -1;
  ValueId place = expand(b, iota(b, line, l.axis), shape);
  ValueId x = b.dtype(s.values) == DType::Bool ? cast(b, s.values, DType::U8) : s.values;
  ValueId same = eq(b, reshape(b, pad(b, x, begin, end), shape), x);
  ValueId first = select(b, logical_and(b, same, gt(b, place, 0.0)), b.scalar_i(DType::I64, 0), place);
  ValueId start = running(b, first, l.axis, "max");
  ValueId length = sub(b, place, start);
  choose(c, choice, s, b.op("argmax", {length}, {{"axes", Ints{l.axis}}, {"keepdims", int64_t{1}}}));
}

// ---- searching: the number of elements that stand before the value
void translate_search(Call& c) {
  ops::B& b = c.b;
  const bool buckets = c.schema().argument("boundaries") != nullptr;
  ValueId sequence = c.in.tensor(buckets ? "boundaries" : "sorted_sequence");
  bool right = c.in.flag("right");
  if (c.in.given("side")) right = c.in.text("side") == "right";
  DType d = promoted(c.b, c.in, {buckets ? "boundaries" : "sorted_sequence", "self"});
  if (!b.ok()) return;
  ValueId value = operand(c.b, c.in, "self", d);
  if (c.in.given("sorter")) {
    ValueId order = c.in.tensor("sorter");
    sequence =
        b.op("gather_elements", {sequence, order}, {{"axis", int64_t{b.rank(sequence) - 1}}, {"wrap", int64_t{0}}});
  }
  sequence = cast(b, sequence, d);
  if (d == DType::Bool) {
    sequence = cast(b, sequence, DType::I32);
    value = cast(b, value, DType::I32);
  }
  if (!b.ok()) return;
  // [.., values, sequence]; a vector is searched by values of any shape.
  const SymShape shape = b.shape(value);
  value = unsqueeze(b, value, {static_cast<int64_t>(shape.size())});
  const int rank = b.rank(sequence);
  if (rank > 1) sequence = unsqueeze(b, sequence, {rank - 1});
  // NaN stands after every number.
  ValueId before = logical_not(b, right ? gt(b, sequence, value) : ge(b, sequence, value));
  const int64_t last = b.rank(before) - 1;
  const DType out = c.in.flag("out_int32") ? DType::I32 : DType::I64;
  c.result(reshape(b, sum(b, cast(b, before, out), {last}, false), shape));
}

// ---- running values
template <const char* const* kOp>
void translate_running(Call& c) {
  const Line l = line_of(c);
  const DType d = c.result_dtype();
  if (!c.b.ok()) return;
  ValueId x = cast(c.b, l.x, compute_dtype(d));
  ValueId y = c.b.op(*kOp, {x, c.b.scalar_i(DType::I64, l.axis)});
  c.result(reshape(c.b, cast(c.b, y, d), l.shape));
}
constexpr const char* kSum = "CumSum";
constexpr const char* kProduct = "CumProd";

template <bool kMax>
void translate_running_extreme(Call& c) {
  ops::B& b = c.b;
  const Line l = line_of(c);
  if (!b.ok()) return;
  const DType stored = b.dtype(l.x);
  ValueId x = stored == DType::Bool ? cast(b, l.x, DType::I32) : l.x;
  SymShape line(b.shape(x).size(), SymExpr(1));
  line[static_cast<size_t>(l.axis)] = l.n;
  ValueId y = running(b, x, l.axis, kMax ? "max" : "min");
  c.result(reshape(b, cast(b, y, stored), l.shape));
  if (!c.is_used(1)) return c.unused_result();
  // True where an element is the extreme so far: the later one of equal elements, the last NaN.
  ValueId is_extreme = eq(b, x, y);
  if (is_float(stored)) is_extreme = logical_or(b, is_extreme, b.op1("isnan", x));
  ValueId index = select(b, is_extreme, iota(b, line, l.axis), b.scalar_i(DType::I64, 0));
  c.result(reshape(b, running(b, index, l.axis, "max"), l.shape));
}

void translate_logcumsumexp(Call& c) {
  ops::B& b = c.b;
  const Line l = line_of(c);
  if (!b.ok()) return;
  const DType stored = b.dtype(l.x);
  ValueId y = doubled(c, widen(b, l.x), l.axis, [&](ValueId earlier, ValueId later) {
    ValueId high = max(b, earlier, later), low = min(b, earlier, later);
    // Infinities that are equal have no difference.
    ValueId difference = select(b, eq(b, high, low), 0.0, sub(b, low, high));
    return add(b, high, b.op1("log1p", exp(b, difference)));
  });
  c.result(reshape(b, cast(b, y, stored), l.shape));
}

} // namespace

void register_sort_scan(AtenTable& t) {
  t.add({"sort.default", "sort.stable"}, translate_sort);
  t.add({"argsort.default", "argsort.stable"}, translate_argsort);
  t.add({"msort.default"}, translate_msort);
  t.add({"topk.default"}, translate_topk);
  t.add({"kthvalue.default"}, translate_kthvalue);
  t.add({"median.default", "median.dim"}, translate_median<false>);
  t.add({"nanmedian.default", "nanmedian.dim"}, translate_median<true>);
  t.add({"mode.default"}, translate_mode);
  t.add({"searchsorted.Tensor", "searchsorted.Scalar", "bucketize.Tensor", "bucketize.Scalar"}, translate_search);
  t.add({"cumsum.default"}, translate_running<&kSum>);
  t.add({"cumprod.default"}, translate_running<&kProduct>);
  t.add({"cummax.default"}, translate_running_extreme<true>);
  t.add({"cummin.default"}, translate_running_extreme<false>);
  t.add({"logcumsumexp.default"}, translate_logcumsumexp);
}

} // namespace tessera::fx
