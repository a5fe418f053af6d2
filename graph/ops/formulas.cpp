#include "graph/ops/formulas.h"
#include <algorithm>

namespace tessera::ops {

ValueId select(B& b, ValueId condition, const B::Arg& x, const B::Arg& y) {
  TESSERA_CHECK(!x.is_literal || !y.is_literal, "two literals");
  if (!b.ok()) return {};
  const ValueId u = x.is_literal ? b.like(y.value, x.literal) : x.value;
  const ValueId v = y.is_literal ? b.like(x.value, y.literal) : y.value;
  return b.op("select", {condition, u, v});
}

ValueId cast(B& b, ValueId x, DType to) {
  if (!b.ok() || b.dtype(x) == to) return x;
  return b.op("cast", {x}, {{"to", to}});
}

ValueId model_cast(B& b, ValueId x, DType to) {
  if (!b.ok() || b.dtype(x) == to) return x;
  const bool rounds = computes_wider(b.dtype(x)) || computes_wider(to);
  return rounds ? b.op("cast", {x}, {{"to", to}, {"rounds", int64_t{1}}}) : cast(b, x, to);
}

ValueId reduce(B& b, std::string_view name, ValueId x, Ints axes, bool keepdims) {
  std::sort(axes.begin(), axes.end());
  return b.op(name, {x}, {{"axes", std::move(axes)}, {"keepdims", int64_t{keepdims}}});
}

ValueId mean(B& b, ValueId x, Ints axes, bool keepdims) {
  if (!b.ok()) return {};
  SymExpr count = 1;
  for (int64_t a : axes) count *= b.dim(x, a);
  DType d = b.dtype(x);
  return div(b, sum(b, x, std::move(axes), keepdims), b.size(count, d));
}

ValueId reshape(B& b, ValueId x, SymShape dims) {
  if (!b.ok() || b.shape(x) == dims) return x;
  return b.op("reshape", {x}, {{"shape", std::move(dims)}});
}

ValueId transpose(B& b, ValueId x, Ints perm) {
  if (!b.ok() || std::is_sorted(perm.begin(), perm.end())) return x;
  return b.op("transpose", {x}, {{"perm", std::move(perm)}});
}

ValueId expand(B& b, ValueId x, SymShape dims) {
  if (!b.ok() || b.shape(x) == dims) return x;
  return b.op("expand", {x}, {{"shape", std::move(dims)}});
}

ValueId unsqueeze(B& b, ValueId x, Ints axes) {
  if (!b.ok() || axes.empty()) return x;
  std::sort(axes.begin(), axes.end());
  SymShape dims = b.shape(x);
  for (int64_t a : axes) dims.insert(dims.begin() + std::clamp<int64_t>(a, 0, static_cast<int64_t>(dims.size())), 1);
  return reshape(b, x, std::move(dims));
}

ValueId squeeze(B& b, ValueId x, const Ints& axes) {
  if (!b.ok()) return x;
  SymShape dims, old = b.shape(x);
  for (size_t i = 0; i < old.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) dims.push_back(old[i]);
  return reshape(b, x, std::move(dims));
}

ValueId slice(B& b, ValueId x, int64_t axis, const SymExpr& start, const SymExpr& size, int64_t step) {
  if (!b.ok()) return {};
  SymShape sizes = b.shape(x);
  if (axis < 0 || axis >= static_cast<int64_t>(sizes.size()))
    return b.fail(ErrorCode::ShapeMismatch, "a tensor of " + std::to_string(sizes.size()) +
                                                " dimensions has no dimension " + std::to_string(axis)),
           ValueId();
  auto a = static_cast<size_t>(axis);
  if (start.is_const(0) && step == 1 && sizes[a] == size) return x;
  SymShape starts(sizes.size(), SymExpr(0));
  Ints steps(sizes.size(), 1);
  starts[a] = start;
  steps[a] = step;
  sizes[a] = size;
  return b.op("slice", {x}, {{"starts", std::move(starts)}, {"steps", std::move(steps)}, {"sizes", std::move(sizes)}});
}

// A concatenation is one pass over memory with a comparison per operand for each element: a + b*k for k operands, b
// about a twentieth of a. More operands than that are concatenated in groups first, and levels of k operands cost (a +
// b*k) / log k for the whole, which is least, and flat, around k = 16. Only as many operands are grouped as it takes to
// leave 16.
ValueId concat(B& b, std::vector<ValueId> xs, int64_t axis) {
  constexpr size_t kOperands = 16;
  while (b.ok() && xs.size() > kOperands) {
    std::vector<ValueId> groups;
    size_t next = 0;
    while (groups.size() + (xs.size() - next) > kOperands && next < xs.size()) {
      const size_t excess = groups.size() + (xs.size() - next) - kOperands;
      const size_t end = std::min(xs.size(), next + std::min(kOperands, excess + 1));
      groups.push_back(end - next == 1 ? xs[next]
                                       : b.op("concat",
                                              {xs.begin() + static_cast<std::ptrdiff_t>(next),
                                               xs.begin() + static_cast<std::ptrdiff_t>(end)},
                                              {{"axis", axis}}));
      next = end;
    }
    groups.insert(groups.end(), xs.begin() + static_cast<std::ptrdiff_t>(next), xs.end());
    xs = std::move(groups);
  }
  if (!b.ok()) return {};
  if (xs.size() == 1) return xs[0];
  return b.op("concat", std::move(xs), {{"axis", axis}});
}

ValueId wide_matmul(B& b, ValueId x, ValueId y) {
  if (!b.ok() || !computes_wider(b.dtype(x))) return matmul(b, x, y);
  return b.op("matmul", {x, y}, {{"wide", int64_t{1}}});
}

ValueId pad(B& b, ValueId x, SymShape begin, SymShape end, ValueId value) {
  auto zero = [](const SymExpr& e) { return e.is_const(0); };
  if (!b.ok() || (std::all_of(begin.begin(), begin.end(), zero) && std::all_of(end.begin(), end.end(), zero))) return x;
  std::vector<ValueId> operands = {x};
  if (value.valid()) operands.push_back(value);
  return b.op("pad", std::move(operands),
              {{"pads_begin", std::move(begin)}, {"pads_end", std::move(end)}, {"mode", std::string("constant")}});
}

ValueId iota(B& b, SymShape shape, int64_t axis) {
  return b.op("iota", {}, {{"shape", std::move(shape)}, {"axis", axis}});
}

} // namespace tessera::ops
