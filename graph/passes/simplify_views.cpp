// Views of views, and views that change nothing.
#include "graph/passes/passes.h"

namespace tessera::passes {
namespace {
bool same_shape(const Graph& graph, ValueId a, ValueId b) {
  const SymShape &x = graph.type(a).shape, &y = graph.type(b).shape;
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i)
    if (!graph.env().known_equal(x[i], y[i])) return false;
  return true;
}

Result<ValueId> transpose(Graph& graph, const Node node) {
  Ints perm = node.attributes.ints("perm");
  ValueId x = node.operands[0];
  const Node* inner = graph.producer(x);
  const bool composed = is_op(inner, "transpose");
  if (composed) {
    const Ints first = inner->attributes.ints("perm");
    for (int64_t& p : perm) p = first[static_cast<size_t>(p)];
    x = inner->operands[0];
  }
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) identity &= perm[i] == static_cast<int64_t>(i);
  if (identity) return x;
  return composed ? emit(graph, node.location, "transpose", {x}, {{"perm", std::move(perm)}})
                  : Result<ValueId>(ValueId{});
}

Result<ValueId> reshape(Graph& graph, const Node node) {
  ValueId x = node.operands[0];
  if (same_shape(graph, x, node.results[0])) return x;
  const Node* inner = graph.producer(x);
  if (!is_op(inner, "reshape")) return ValueId{};
  x = inner->operands[0];
  if (same_shape(graph, x, node.results[0])) return x;
  return emit(graph, node.location, "reshape", {x}, node.attributes);
}

Result<ValueId> expand(Graph& graph, const Node node) {
  ValueId x = node.operands[0];
  if (same_shape(graph, x, node.results[0])) return x;
  const Node* inner = graph.producer(x);
  if (!is_op(inner, "expand")) return ValueId{};
  return emit(graph, node.location, "expand", {inner->operands[0]}, node.attributes);
}

Result<ValueId> slice(Graph& graph, const Node node) {
  const ValueId x = node.operands[0];
  const SymShape starts = node.attributes.dims("starts");
  const Ints steps = node.attributes.ints("steps");
  const Node* inner = graph.producer(x);
  if (!is_op(inner, "slice")) {
    for (size_t k = 0; k < starts.size(); ++k)
      if (!starts[k].is_const(0) || steps[k] != 1) return ValueId{};
    return same_shape(graph, x, node.results[0]) ? x : ValueId{};
  }
  // A slice of a slice: both start and step relative to the inner one.
  SymShape first = inner->attributes.dims("starts");
  Ints step = inner->attributes.ints("steps");
  for (size_t k = 0; k < first.size(); ++k) {
    first[k] = graph.env().simplify(first[k] + starts[k] * step[k]);
    if (__builtin_mul_overflow(step[k], steps[k], &step[k])) return ValueId{};
  }
  Attributes attributes = node.attributes;
  attributes.set("starts", std::move(first));
  attributes.set("steps", std::move(step));
  return emit(graph, node.location, "slice", {inner->operands[0]}, std::move(attributes));
}

// gather at known positions that ascend evenly within the dimension: a slice, of one scalar position without the
// dimension. Views fold into what reads them, and positions that are data do not.
Result<ValueId> gather(Graph& graph, const Node node) {
  const ValueId x = node.operands[0], index = node.operands[1];
  const auto& positions = graph.value(index).contents;
  const int rank = graph.type(index).rank();
  if (!positions || positions->empty() || rank > 1) return ValueId{};
  const ShapeEnv& env = graph.env();
  SymShape sizes = graph.type(x).shape;
  const int64_t axis = node.attributes.i("axis");
  const auto along = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(sizes.size()) : axis);
  const SymExpr extent = sizes[along];
  const bool wraps = node.attributes.i("wrap", 1) != 0;
  auto from_start = [&](const SymExpr& i) { return wraps && env.prove(sym_lt(i, 0)) == true ? i + extent : i; };
  const SymExpr first = env.simplify(from_start(positions->front())), last = from_start(positions->back());
  if (env.prove(sym_le(0, first)) != true || env.prove(sym_lt(last, extent)) != true) return ValueId{};
  int64_t step = 1;
  for (size_t i = 1; i < positions->size(); ++i) {
    const auto apart = env.simplify(from_start((*positions)[i]) - from_start((*positions)[i - 1])).as_const();
    if (!apart || *apart < 1 || (i > 1 && *apart != step)) return ValueId{};
    step = *apart;
  }
  SymShape starts(sizes.size(), 0);
  Ints steps(sizes.size(), 1);
  starts[along] = first;
  steps[along] = step;
  sizes[along] = static_cast<int64_t>(positions->size());
  TESSERA_ASSIGN(ValueId piece, emit(graph, node.location, "slice", {x},
                                     {{"starts", std::move(starts)}, {"steps", std::move(steps)}, {"sizes", sizes}}));
  if (rank == 1) return piece;
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(along));
  return emit(graph, node.location, "reshape", {piece}, {{"shape", std::move(sizes)}});
}

// concat of one, and of consecutive pieces of one tensor: a larger piece of it, or all of it.
Result<ValueId> concat(Graph& graph, const Node node) {
  if (node.operands.size() == 1) return node.operands[0];
  const int64_t axis = node.attributes.i("axis");
  ValueId whole;
  SymShape first, sizes;
  size_t along = 0;
  SymExpr at;
  for (ValueId v : node.operands) {
    const Node* piece = graph.producer(v);
    if (!is_op(piece, "slice") || (whole.valid() && piece->operands[0] != whole)) return ValueId{};
    const SymShape starts = piece->attributes.dims("starts"), &shape = graph.type(v).shape;
    if (!whole.valid()) {
      whole = piece->operands[0];
      along = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(starts.size()) : axis);
      first = starts;
      sizes = shape;
      at = starts[along];
    }
    const Ints steps = piece->attributes.ints("steps");
    for (size_t d = 0; d < starts.size(); ++d)
      if (steps[d] != 1 || !graph.env().known_equal(starts[d], d == along ? at : first[d]) ||
          (d != along && !graph.env().known_equal(shape[d], sizes[d])))
        return ValueId{};
    at += shape[along];
  }
  sizes[along] = at - first[along];
  if (same_shape(graph, whole, node.results[0])) return whole; // which leaves nothing but starts of 0
  Ints steps(sizes.size(), 1);
  return emit(graph, node.location, "slice", {whole},
              {{"starts", std::move(first)}, {"steps", std::move(steps)}, {"sizes", std::move(sizes)}});
}
} // namespace

Result<ValueId> simplify_view(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (!node.op->indexing()) return ValueId{};
  const std::string_view op = node.op->name;
  if (op == "transpose") return transpose(graph, node);
  if (op == "reshape") return reshape(graph, node);
  if (op == "expand") return expand(graph, node);
  if (op == "slice") return slice(graph, node);
  if (op == "gather") return gather(graph, node);
  if (op == "concat") return concat(graph, node);
  return ValueId{};
}

} // namespace tessera::passes
