// Integers that follow from constants by way of other dtypes: a size times a scale, rounded down and cast back; and sizes
// that only running a node defines, where what it runs on is constant.
#include "graph/infer/infer.h"
#include "graph/ir/sizes.h"
#include "graph/reference/evaluator.h"
#include <unordered_map>

namespace tessera {
namespace {

constexpr size_t kMaxNodes = 256; // of one computation: beyond, it is left to run time

// Elements of a value of few, known sizes; nullopt of any other.
std::optional<int64_t> few(const TensorType& type) {
  if (!has_bytes(type.dtype)) return std::nullopt;
  int64_t count = 1;
  for (const SymExpr& d : type.shape) {
    auto n = d.as_const();
    if (!n || *n < 0 || *n > kContentsLimit || (count *= *n) > kContentsLimit) return std::nullopt;
  }
  return count;
}

class Computation {
public:
  explicit Computation(const Graph& graph) : graph_(graph) {}

  std::optional<Tensor> value(ValueId id, int depth = 0) {
    if (auto it = known_.find(id.index); it != known_.end()) return it->second;
    std::optional<Tensor> t = computed(id, depth);
    known_.emplace(id.index, t);
    return t;
  }

  // The results of a node whose operands follow from constants; nothing for any other node.
  std::optional<std::vector<Tensor>> results(const Node& node, int depth = 0) {
    if (node.operands.empty() || node.op->side_effect) return std::nullopt;
    if (node.op->structured() && node.op->structured()->kind == Structured::Read) return std::nullopt;
    for (const auto& [name, attribute] : node.attributes.items()) {
      if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return std::nullopt;
      if (const auto* dims = std::get_if<SymShape>(&attribute))
        for (const SymExpr& d : *dims)
          if (!d.is_const()) return std::nullopt;
    }
    std::vector<Tensor> operands;
    for (ValueId o : node.operands) {
      operands.emplace_back();
      if (!o.valid()) continue;
      auto t = value(o, depth + 1);
      if (!t) return std::nullopt;
      operands.back() = std::move(*t);
    }
    auto results = evaluate_node(graph_, node, std::move(operands), {});
    return results.ok() ? std::optional<std::vector<Tensor>>(std::move(*results)) : std::nullopt;
  }

private:
  std::optional<Tensor> computed(ValueId id, int depth) {
    const Value& v = graph_.value(id);
    const auto count = few(v.type);
    if (!count) return std::nullopt;
    if (const Tensor* t = graph_.constant(id)) return has_data(*t) ? std::optional<Tensor>(*t) : std::nullopt;
    if (v.contents) return of_contents(v);
    if (!v.producer.valid() || depth > static_cast<int>(kMaxNodes) || ++nodes_ > kMaxNodes) return std::nullopt;
    const Node& node = graph_.node(v.producer);
    if (node.op->data_dependent_shape) return std::nullopt;
    auto results = this->results(node, depth);
    if (!results || static_cast<size_t>(v.result) >= results->size()) return std::nullopt;
    Tensor t = (*results)[static_cast<size_t>(v.result)];
    return t.dtype() == v.type.dtype && t.count() == *count ? std::optional<Tensor>(std::move(t)) : std::nullopt;
  }

  static std::optional<Tensor> of_contents(const Value& v) {
    Dims dims;
    for (const SymExpr& d : v.type.shape) dims.push_back(d.const_value());
    Tensor t = Tensor::create(v.type.dtype, dims).value(); // few elements: only memory can be missing
    if (t.count() != static_cast<int64_t>(v.contents->size())) return std::nullopt;
    for (size_t i = 0; i < v.contents->size(); ++i) {
      auto n = (*v.contents)[i].as_const();
      if (!n) return std::nullopt;
      t.set_i64(static_cast<int64_t>(i), *n);
    }
    return t;
  }

  const Graph& graph_;
  std::unordered_map<int32_t, std::optional<Tensor>> known_;
  size_t nodes_ = 0;
};

std::vector<SymExpr> contents_of(const Tensor& t) {
  std::vector<SymExpr> out;
  out.reserve(static_cast<size_t>(t.count()));
  for (int64_t i = 0; i < t.count(); ++i) out.emplace_back(t.get_i64(i));
  return out;
}
} // namespace

std::optional<std::vector<SymExpr>> constant_contents(const Graph& graph, ValueId id) {
  const DType dtype = graph.type(id).dtype;
  if (!is_integer(dtype) && dtype != DType::Bool) return std::nullopt;
  auto t = Computation(graph).value(id);
  if (!t) return std::nullopt;
  return contents_of(*t);
}

bool bind_read_sizes(Graph& graph, const Node& node, const std::vector<Tensor>& results) {
  std::vector<std::pair<SymExpr, int64_t>> known;
  for (const DefinedSize& d : defined_sizes(graph, node)) {
    const Tensor& t = results[static_cast<size_t>(d.result)];
    const int64_t n = d.dim >= 0 ? t.dims()[static_cast<size_t>(d.dim)] : t.get_i64(d.element);
    const SymRange range = graph.env().range(d.symbol);
    if (n < range.lo || n > range.hi) return false;
    known.emplace_back(d.symbol, n);
  }
  for (const auto& [symbol, n] : known) graph.env().define(symbol, n);
  return true;
}

void bind_constant_node(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (!node.op->data_dependent_shape) return;
  const auto results = Computation(graph).results(node);
  if (!results || results->size() < node.results.size() || !bind_read_sizes(graph, node, *results)) return;
  for (size_t r = 0; r < node.results.size(); ++r) {
    if (!node.results[r].valid()) continue;
    Value& v = graph.value(node.results[r]);
    const Tensor& t = (*results)[r];
    v.type.shape = graph.env().simplify(v.type.shape);
    if (is_integer(t.dtype()) && t.count() <= kContentsLimit && !v.contents) v.contents = contents_of(t);
  }
}

} // namespace tessera
