// fold: nodes whose results have no elements are constants. Nodes whose operands are constants are computed now, by the
// reference evaluator. It is slow and weights are mapped, not read, so only small ones are: operands and results of at
// most `fold.limit` bytes together (default 65536). Nor may a result be larger than its operands, beyond a kilobyte: an
// expanded scalar is better expanded when it is read.
#include "base/log.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluator.h"
#include <algorithm>

namespace tessera::passes {
namespace {
bool concrete(const SymShape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](const SymExpr& e) { return e.is_const(); });
}

// Attributes that speak of no symbol and hold no graph.
bool self_contained(const Attributes& attributes) {
  for (const auto& [name, attribute] : attributes.items()) {
    if (auto* dims = std::get_if<SymShape>(&attribute); dims && !concrete(*dims)) return false;
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  }
  return true;
}

// Bytes of a value of known size; nullopt otherwise.
std::optional<int64_t> bytes_of(const TensorType& type) {
  Dims dims;
  if (!concrete(type.shape)) return std::nullopt;
  for (const SymExpr& e : type.shape) dims.push_back(e.const_value());
  auto n = element_count(dims);
  return n.ok() ? std::optional<int64_t>(byte_size(type.dtype, *n)) : std::nullopt;
}
// Whether nothing is computed: each result is known to have no elements.
bool is_empty(const Graph& graph, const Node& node) {
  return std::all_of(node.results.begin(), node.results.end(), [&](ValueId r) {
    return !r.valid() || (has_bytes(graph.type(r).dtype) && bytes_of(graph.type(r)) == 0);
  });
}
} // namespace

Result<bool> fold(Graph& graph, const PassOptions& options) {
  TESSERA_ASSIGN(const int64_t limit, option(options, "fold.limit", 65536));
  constexpr int64_t kGrowth = 1024;
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    const Node node = graph.node(id);
    if (node.operands.empty() || node.op->side_effect || !self_contained(node.attributes))
      return std::vector<ValueId>{};
    if (is_empty(graph, node)) {
      std::vector<ValueId> values;
      for (ValueId r : node.results) {
        values.emplace_back();
        if (!r.valid()) continue;
        const TensorType& type = graph.type(r);
        Dims dims;
        for (const SymExpr& e : type.shape) dims.push_back(e.const_value());
        TESSERA_ASSIGN(Tensor none, Tensor::create(type.dtype, dims));
        values.back() = graph.add_constant(std::move(none));
      }
      return values;
    }
    std::vector<Tensor> operands;
    int64_t in = 0, out = 0;
    for (ValueId v : node.operands) {
      const Tensor* t = v.valid() ? graph.constant(v) : nullptr;
      if (v.valid() && (!t || !has_bytes(t->dtype()))) return std::vector<ValueId>{};
      operands.push_back(t ? *t : Tensor());
      if (t) in += static_cast<int64_t>(t->bytes());
      if (in > limit) return std::vector<ValueId>{};
    }
    const bool sizes_from_data = node.op->data_dependent_shape;
    for (ValueId r : node.results) {
      if (r.valid() && !has_bytes(graph.type(r).dtype)) return std::vector<ValueId>{};
      if (!r.valid() || sizes_from_data) continue;
      std::optional<int64_t> bytes = bytes_of(graph.type(r));
      if (!bytes || *bytes > limit || (out += *bytes) > limit - in) return std::vector<ValueId>{};
    }
    if (out > in && out > kGrowth) return std::vector<ValueId>{};
    auto evaluated = evaluate_node(graph, node, std::move(operands), {});
    if (!evaluated.ok()) { // an index out of range, say: it is the run's to report, if it ever comes there
      TESSERA_LOGF(LogChannel::Passes, "fold leaves " + node.location.str() + ": " + evaluated.error().message);
      return std::vector<ValueId>{};
    }
    std::vector<Tensor>& results = *evaluated;
    if (!bind_read_sizes(graph, node, results)) return std::vector<ValueId>{};
    std::vector<ValueId> values;
    for (size_t r = 0; r < node.results.size(); ++r) {
      values.emplace_back();
      if (!node.results[r].valid()) continue;
      values.back() = graph.add_constant(std::move(results[r]));
    }
    return values;
  });
}

} // namespace tessera::passes
