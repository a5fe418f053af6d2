// simplify-shapes: every size says what is known by now. fold-shapes: values that are known when compiling stop being
// computed.
#include "graph/ir/sizes.h"
#include "graph/passes/passes.h"
#include <unordered_set>

namespace tessera::passes {
namespace {
// A number that changes when any size in the graph does.
uint64_t sizes_hash(const Graph& graph) {
  uint64_t h = 1;
  auto add = [&](const std::vector<SymExpr>& exprs) {
    for (const SymExpr& e : exprs) h = h * 0x9e3779b97f4a7c15ull + e.hash();
  };
  for (int i = 0; i < graph.value_count(); ++i) {
    const Value& v = graph.value(ValueId{i});
    add(v.type.shape);
    if (v.contents) add(*v.contents);
  }
  for (int i = 0; i < graph.node_count(); ++i) {
    const Node& n = graph.node(NodeId{i});
    if (n.removed) continue;
    for (const auto& [name, attribute] : n.attributes.items()) {
      if (auto* dims = std::get_if<SymShape>(&attribute))
        add(*dims);
      else if (auto* sub = std::get_if<std::shared_ptr<Graph>>(&attribute))
        h = h * 31 + sizes_hash(**sub);
    }
  }
  return h;
}

std::optional<Dims> constant_dims(const SymShape& shape) {
  Dims dims;
  for (const SymExpr& e : shape) {
    if (!e.is_const()) return std::nullopt;
    dims.push_back(e.const_value());
  }
  return dims;
}

// Values that a size is read from, by the symbol of the size: what computes them cannot be replaced by that size.
std::unordered_map<uint64_t, std::unordered_set<int32_t>> sources_of_sizes(const Graph& graph) {
  std::unordered_map<uint64_t, std::unordered_set<int32_t>> out;
  for (NodeId id : graph.order()) {
    const Node& read = graph.node(id);
    if (!read.op->structured() || read.op->structured()->kind != Structured::Read) continue;
    std::unordered_set<int32_t> sources;
    std::vector<ValueId> pending = read.operands;
    while (!pending.empty()) {
      const ValueId v = pending.back();
      pending.pop_back();
      if (!v.valid() || !sources.insert(v.index).second) continue;
      if (const Node* producer = graph.producer(v))
        pending.insert(pending.end(), producer->operands.begin(), producer->operands.end());
    }
    for (const DefinedSize& d : defined_sizes(graph, read)) out[d.symbol.symbol_id()] = sources;
  }
  return out;
}

// The value as a node without operands; an invalid one when that cannot be said.
Result<ValueId> known_value(Graph& graph, const Value& v, const Location& where) {
  std::optional<Dims> dims = constant_dims(v.type.shape);
  if (!dims) return ValueId{};
  const std::vector<SymExpr> contents = *v.contents;
  const DType dtype = v.type.dtype;
  std::optional<Dims> numbers = constant_dims(contents);
  if (numbers) {
    TESSERA_ASSIGN(Tensor t, Tensor::create(dtype, *dims));
    if (t.count() != static_cast<int64_t>(numbers->size())) return ValueId{};
    for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, (*numbers)[static_cast<size_t>(i)]);
    return graph.add_constant(std::move(t));
  }
  if (!is_integer(dtype)) return ValueId{};
  TESSERA_ASSIGN(ValueId sizes,
                 emit(graph, where, "dims_constant", {}, {{"values", SymShape(contents)}, {"shape", Ints(*dims)}}));
  if (dtype == DType::I64) return sizes;
  return emit(graph, where, "cast", {sizes}, {{"to", dtype}});
}
} // namespace

Result<bool> simplify_shapes(Graph& graph, const PassOptions&) {
  const uint64_t before = sizes_hash(graph);
  graph.simplify_shapes();
  return sizes_hash(graph) != before;
}

Result<bool> fold_shapes(Graph& graph, const PassOptions&) {
  // Only values that something reads: the others fall to dce.
  std::vector<bool> read(static_cast<size_t>(graph.value_count()), false);
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).operands)
      if (v.valid()) read[static_cast<size_t>(v.index)] = true;
  for (const Graph::Output& o : graph.outputs()) read[static_cast<size_t>(o.value.index)] = true;
  const OpDef* dims_constant = OpTable::get().find("dims_constant");
  const auto sources = sources_of_sizes(graph);
  auto is_source = [&](ValueId value, const std::vector<SymExpr>& contents) {
    for (const SymExpr& e : contents)
      for (const SymExpr& symbol : e.symbols())
        if (auto it = sources.find(symbol.symbol_id()); it != sources.end() && it->second.contains(value.index))
          return true;
    return false;
  };
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node& node = graph.node(id);
    if (node.op == dims_constant || node.op->side_effect || node.op->data_dependent_shape || node.operands.empty())
      return std::vector<ValueId>{};
    if (node.op->name == "cast" && is_op(graph.producer(node.operands[0]), "dims_constant"))
      return std::vector<ValueId>{};
    std::vector<ValueId> out;
    const Location where = node.location;
    const std::vector<ValueId> results = node.results;
    bool any = false;
    for (ValueId r : results) {
      out.emplace_back();
      if (!r.valid() || static_cast<size_t>(r.index) >= read.size() || !read[static_cast<size_t>(r.index)]) continue;
      const Value v = graph.value(r);
      if (!v.contents || is_source(r, *v.contents)) continue;
      TESSERA_ASSIGN(out.back(), known_value(graph, v, where));
      any |= out.back().valid();
    }
    if (!any) out.clear();
    return out;
  });
}

} // namespace tessera::passes
