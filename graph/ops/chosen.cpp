#include "graph/ops/chosen.h"

namespace tessera::ops {

SymExpr fresh(InferContext& c, std::string_view name, const SymExpr& most) {
  int64_t high = c.env().range(most).hi;
  return c.env().create_symbol(name, {0, std::clamp<int64_t>(high, 0, kSymMax)});
}

ValueId sortable(B& b, ValueId x) {
  const DType dtype = b.dtype(x);
  if (is_float(dtype)) return info(dtype).bits < 16 ? widen(b, x) : x;
  return info(dtype).bits < 8 ? cast(b, x, info(dtype).kind == DTypeKind::Signed ? DType::I8 : DType::U8) : x;
}

SymExpr read_count(B& b, ValueId flags, const std::optional<SymExpr>& symbol) {
  const ValueId count = sum(b, cast(b, flags, DType::I64), {0}, false);
  if (!b.ok()) return 0;
  if (!symbol) return b.read(count).front();
  if (symbol->is_symbol())
    if (auto read = b.graph().read(count, {&*symbol, 1}, b.node().location); !read.ok())
      b.fail(std::move(read).take_error());
  return b.env().simplify(*symbol);
}
std::optional<SymExpr> size_of_result(B& b, std::initializer_list<size_t> results, size_t d) {
  for (size_t r : results)
    if (r < b.node().results.size() && b.node().results[r].valid())
      return b.graph().declared_shape(b.node().results[r])[d]; // the name that guards have of it
  return std::nullopt;
}

ValueId places(B& b, ValueId flags) {
  return b.op("scan", {cast(b, flags, DType::I64)}, {{"kind", std::string("sum")}, {"axis", int64_t{0}}});
}
ValueId placed(B& b, ValueId targets, ValueId values, const SymExpr& size) {
  const SymExpr n = b.dim(targets, 0);
  const ValueId none = expand(b, b.scalar_i(b.dtype(values), 0), {size});
  return b.op("scatter", {none, reshape(b, targets, {1, n}), values},
              {{"reduction", std::string("none")}, {"unique", int64_t{1}}, {"view", SymShape{1, size, 1}}});
}
ValueId positions(B& b, ValueId flags, const SymExpr& count) {
  const ValueId targets = select(b, flags, sub(b, places(b, flags), 1.0), -1.0);
  return placed(b, targets, iota(b, {b.dim(flags, 0)}, 0), count);
}

} // namespace tessera::ops
