// Sorting, searching in what is sorted, and running values along a dimension.
#include "frontend/fx/aten/view_parts.h"

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
  if (stored == DType::Bool) x = b.cast(x, DType::U8);
  Attributes a = {{"axis", axis}, {"largest", int64_t{largest}}};
  std::vector<ValueId> operands = {x};
  if (auto n = k.as_const())
    a.set("k", *n);
  else
    operands.push_back(b.dims({k}));
  auto r = b.ops("topk", std::move(operands), a, 2);
  return {b.cast(r[0], stored), r[1]};
}

struct Line {
  ValueId x; // at least a vector
  SymShape shape;
  int64_t axis = 0;
  SymExpr n;
};
Line line_of(Call& c) {
  Line l;
  l.x = c.tensor("self");
  l.shape = c.b.shape(l.x);
  l.axis = c.axis("dim", c.b.rank(l.x));
  l.x = as_vector(c.b, l.x);
  l.n = c.b.dim(l.x, l.axis);
  return l;
}

void translate_sort(Call& c) {
  const Line l = line_of(c);
  const Sorted s = sorted(c.b, l.x, l.axis, l.n, c.flag("descending"));
  c.result(c.b.reshape(s.values, l.shape));
  c.result(c.b.reshape(s.indices, l.shape));
}

void translate_argsort(Call& c) {
  const Line l = line_of(c);
  c.result(c.b.reshape(sorted(c.b, l.x, l.axis, l.n, c.flag("descending")).indices, l.shape));
}

void translate_msort(Call& c) {
  ValueId x = c.tensor("self");
  const SymShape shape = c.b.shape(x);
  x = as_vector(c.b, x);
  c.result(c.b.reshape(sorted(c.b, x, 0, c.b.dim(x, 0), false).values, shape));
}

void translate_topk(Call& c) {
  const Line l = line_of(c);
  const SymExpr k = c.size("k");
  const Sorted s = sorted(c.b, l.x, l.axis, k, c.flag("largest"));
  const bool scalar = l.shape.empty() && k.is_const(1);
  for (ValueId v : {s.values, s.indices}) c.result(scalar ? c.b.reshape(v, {}) : v);
}

void translate_kthvalue(Call& c) {
  const Line l = line_of(c);
  const SymExpr k = c.size("k");
  const bool keep = c.flag("keepdim");
  const Sorted s = sorted(c.b, l.x, l.axis, k, false);
  for (ValueId v : {s.values, s.indices}) {
    v = take_range(c.b, v, l.axis, {c.b.env().simplify(k - 1), 1, 1});
    c.result(keep && !l.shape.empty() ? v : c.b.squeeze(v, {l.axis}));
  }
}

// ---- searching: the number of elements that stand before the value
void translate_search(Call& c) {
  ops::B& b = c.b;
  const bool buckets = c.schema().argument("boundaries") != nullptr;
  ValueId sequence = c.tensor(buckets ? "boundaries" : "sorted_sequence");
  bool right = c.flag("right");
  if (c.given("side")) right = c.text("side") == "right";
  DType d = c.promoted({buckets ? "boundaries" : "sorted_sequence", "self"});
  if (!b.ok()) return;
  ValueId value = c.operand("self", d);
  if (c.given("sorter")) {
    ValueId order = c.tensor("sorter");
    sequence = b.op("gather_elements", {sequence, order}, {{"axis", int64_t{b.rank(sequence) - 1}}});
  }
  sequence = b.cast(sequence, d);
  if (d == DType::Bool) {
    sequence = b.cast(sequence, DType::I32);
    value = b.cast(value, DType::I32);
  }
  if (!b.ok()) return;
  // [.., values, sequence]; a vector is searched by values of any shape.
  const SymShape shape = b.shape(value);
  value = b.unsqueeze(value, {static_cast<int64_t>(shape.size())});
  const int rank = b.rank(sequence);
  if (rank > 1) sequence = b.unsqueeze(sequence, {rank - 1});
  // NaN stands after every number.
  ValueId before = b.logical_not(right ? b.gt(sequence, value) : b.ge(sequence, value));
  const int64_t last = b.rank(before) - 1;
  const DType out = c.flag("out_int32") ? DType::I32 : DType::I64;
  c.result(b.reshape(b.sum(b.cast(before, out), {last}, false), shape));
}

// ---- running values
ValueId running(ops::B& b, ValueId x, int64_t axis, std::string_view op) {
  return b.op(op, {x, b.scalar_i(DType::I64, axis)});
}

template <const char* const* kOp>
void translate_running(Call& c) {
  const Line l = line_of(c);
  const DType d = c.result_dtype();
  if (!c.b.ok()) return;
  ValueId x = c.b.cast(l.x, compute_dtype(d));
  c.result(c.b.reshape(c.b.cast(running(c.b, x, l.axis, *kOp), d), l.shape));
}
constexpr const char* kSum = "CumSum";
constexpr const char* kProduct = "CumProd";

// Running values by doubling: after step k an element has combined the 2^k elements that end with it. `combine` gets
// earlier and later partial results; log2(n) steps for n elements.
template <class Combine>
std::vector<ValueId> doubled(Call& c, std::vector<ValueId> parts, int64_t axis, const Combine& combine) {
  ops::B& b = c.b;
  if (!b.ok()) return parts;
  const SymExpr n = b.dim(parts[0], axis);
  const int64_t most = b.env().range(n).hi;
  constexpr int64_t kLongest = int64_t{1} << 24;
  if (most > kLongest) {
    c.unsupported("a running value along a dimension whose size (" + n.str() + ") has no bound below " +
                  std::to_string(kLongest));
    return parts;
  }
  const int rank = b.rank(parts[0]);
  SymShape line(static_cast<size_t>(rank), SymExpr(1));
  line[static_cast<size_t>(axis)] = n;
  for (int64_t step = 1; step < most && b.ok(); step *= 2) {
    SymShape begin(static_cast<size_t>(rank), SymExpr(0)), end = begin;
    begin[static_cast<size_t>(axis)] = step;
    end[static_cast<size_t>(axis)] = -step;
    std::vector<ValueId> earlier;
    earlier.reserve(parts.size());
    for (ValueId p : parts) earlier.push_back(b.reshape(b.pad(p, begin, end), b.shape(p)));
    std::vector<ValueId> both = combine(earlier, parts);
    ValueId reaches = b.ge(b.iota(line, axis), static_cast<double>(step));
    for (size_t k = 0; k < parts.size(); ++k) parts[k] = b.select(reaches, both[k], parts[k]);
  }
  return parts;
}

template <bool kMax>
void translate_running_extreme(Call& c) {
  ops::B& b = c.b;
  const Line l = line_of(c);
  if (!b.ok()) return;
  const DType stored = b.dtype(l.x);
  ValueId x = stored == DType::Bool ? b.cast(l.x, DType::I32) : l.x;
  SymShape line(b.shape(x).size(), SymExpr(1));
  line[static_cast<size_t>(l.axis)] = l.n;
  ValueId index = b.expand(b.iota(line, l.axis), b.shape(x));
  auto r = doubled(c, {x, index}, l.axis, [&](const std::vector<ValueId>& earlier, const std::vector<ValueId>& later) {
    // The later one of equal elements; the last NaN.
    ValueId wins = kMax ? b.ge(later[0], earlier[0]) : b.le(later[0], earlier[0]);
    if (is_float(stored)) wins = b.logical_or(wins, b.ne(later[0], later[0]));
    return std::vector<ValueId>{b.select(wins, later[0], earlier[0]), b.select(wins, later[1], earlier[1])};
  });
  c.result(b.reshape(b.cast(r[0], stored), l.shape));
  c.result(b.reshape(r[1], l.shape));
}

void translate_logcumsumexp(Call& c) {
  ops::B& b = c.b;
  const Line l = line_of(c);
  if (!b.ok()) return;
  const DType stored = b.dtype(l.x);
  auto r =
      doubled(c, {b.widen(l.x)}, l.axis, [&](const std::vector<ValueId>& earlier, const std::vector<ValueId>& later) {
        ValueId high = b.max(earlier[0], later[0]), low = b.min(earlier[0], later[0]);
        // Infinities that are equal have no difference.
        ValueId difference = b.select(b.eq(high, low), 0.0, b.sub(low, high));
        return std::vector<ValueId>{b.add(high, b.op1("log1p", b.exp(difference)))};
      });
  c.result(b.reshape(b.cast(r[0], stored), l.shape));
}

} // namespace

void register_sort_scan(AtenTable& t) {
  t.add({"sort.default", "sort.stable"}, translate_sort);
  t.add({"argsort.default", "argsort.stable"}, translate_argsort);
  t.add({"msort.default"}, translate_msort);
  t.add({"topk.default"}, translate_topk);
  t.add({"kthvalue.default"}, translate_kthvalue);
  t.add({"searchsorted.Tensor", "searchsorted.Scalar", "bucketize.Tensor", "bucketize.Scalar"}, translate_search);
  t.add({"cumsum.default"}, translate_running<&kSum>);
  t.add({"cumprod.default"}, translate_running<&kProduct>);
  t.add({"cummax.default"}, translate_running_extreme<true>);
  t.add({"cummin.default"}, translate_running_extreme<false>);
  t.add({"logcumsumexp.default"}, translate_logcumsumexp);
}

} // namespace tessera::fx
