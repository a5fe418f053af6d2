#include "codegen/device/integer_products.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <optional>
#include <utility>

namespace tessera {
namespace {

constexpr int64_t kExact = int64_t{1} << 24; // integers up to here are f32
constexpr int64_t kExactHalf = 1 << 11;      // and f16
constexpr int64_t kMaxPieces = 32;           // of one product, so that a graph stays as large as its model

struct Range {
  int64_t low = 0, high = 0;
  [[nodiscard]] int64_t magnitude() const { return std::max(-low, high); }
};

// Between which numbers an integer lies; nothing where it is not known to be small.
std::optional<Range> range_of(const Graph& graph, ValueId v, int depth = 0) {
  constexpr int kMaxDepth = 8;
  constexpr int64_t kMaxElements = 1 << 20; // of a constant that are looked at
  const Node* node = graph.producer(v);
  if (!node || depth > kMaxDepth) return std::nullopt;
  if (const Tensor* constant = graph.constant(v)) {
    if (constant->count() > kMaxElements || !is_integer(constant->dtype())) return std::nullopt;
    Range out;
    for (int64_t i = 0; i < constant->count(); ++i) {
      out.low = std::min(out.low, std::max(constant->get_i64(i), -kExact));
      out.high = std::max(out.high, std::min(constant->get_i64(i), kExact));
    }
    return out;
  }
  const auto of = [&](size_t operand) { return range_of(graph, node->operands[operand], depth + 1); };
  if (ops::is(*node, ScalarOp::Cast)) {
    const DType from = graph.type(node->operands[0]).dtype;
    if (from == DType::Bool) return Range{0, 1};
    if (!is_integer(from)) return std::nullopt;
    const int64_t values = int64_t{1} << std::min(info(from).bits, 30);
    if (info(from).bits <= 8)
      return info(from).kind == DTypeKind::Signed ? Range{-values / 2, values / 2 - 1} : Range{0, values - 1};
    return of(0);
  }
  if (ops::is(*node, ScalarOp::Sub) || ops::is(*node, ScalarOp::Add)) {
    const auto a = of(0), b = of(1);
    if (!a || !b) return std::nullopt;
    return ops::is(*node, ScalarOp::Add) ? Range{a->low + b->low, a->high + b->high}
                                         : Range{a->low - b->high, a->high - b->low};
  }
  const auto* indexing = node->op->indexing();
  return indexing && indexing->view ? of(0) : std::nullopt;
}

// True if a value is a widened tensor of 8-bit integers, whose last two dimensions are exchanged if `transposed`.
bool is_dense_of_bytes(const Graph& graph, ValueId v, bool transposed) {
  bool exchanged = false, widened = false;
  for (const Node* node = graph.producer(v); node != nullptr; node = graph.producer(v)) {
    if (ops::is(*node, ScalarOp::Cast) && is_integer(graph.type(v).dtype) &&
        is_integer(graph.type(node->operands[0]).dtype)) {
      widened = true;
    } else if (Ints swapped = ops::permutation_of(*node); swapped.size() >= 2) {
      std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
      if (!std::is_sorted(swapped.begin(), swapped.end())) return false;
      exchanged = !exchanged;
    } else {
      break;
    }
    v = node->operands[0];
  }
  const DType dtype = graph.type(v).dtype;
  return widened && exchanged == transposed && is_integer(dtype) && info(dtype).bits == 8;
}

class Rewriting {
public:
  Rewriting(Graph& graph, NodeId id) : graph_(graph), node_(graph.node(id)) {}

  // The product in floating point, in i32 again.
  Result<std::optional<ValueId>> run(bool convolution) {
    const auto a = range_of(graph_, node_.operands[0]), b = range_of(graph_, node_.operands[1]);
    if (!a || !b || a->magnitude() > kExactHalf || b->magnitude() > kExactHalf) return std::optional<ValueId>();
    const SymShape &left = graph_.type(node_.operands[0]).shape, &right = graph_.type(node_.operands[1]).shape;
    SymExpr each = 1; // products per element of the summed dimension
    const size_t along_a = convolution ? 1 : left.size() - 1, along_b = convolution ? 1 : right.size() - 2;
    if (!convolution && (left.size() < 2 || right.size() < 2)) return std::optional<ValueId>();
    for (size_t d = 2; convolution && d < right.size(); ++d) each *= right[d];
    const auto length = graph_.env().simplify(right[along_b]).as_const(),
               factor = graph_.env().simplify(each).as_const();
    if (!length || !factor || *length == 0 || *factor == 0) return std::optional<ValueId>();
    const int64_t one =
        std::max<int64_t>(1, a->magnitude() * b->magnitude() * *factor); // of an element of the dimension
    if (one > kExact) return std::optional<ValueId>();
    const int64_t most = (kExact - 1) / one, pieces = (*length + most - 1) / most;
    if (pieces > kMaxPieces || (convolution && pieces > 1 && node_.attributes.i("groups", 1) != 1))
      return std::optional<ValueId>();
    ValueId sum{};
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t begin = *length * p / pieces, end = *length * (p + 1) / pieces;
      TESSERA_ASSIGN(const ValueId x, part(node_.operands[0], along_a, begin, end, *length));
      TESSERA_ASSIGN(const ValueId y, part(node_.operands[1], along_b, begin, end, *length));
      std::vector<ValueId> operands = node_.operands;
      operands[0] = x, operands[1] = y;
      TESSERA_ASSIGN(const NodeId made, graph_.add_node(*node_.op, operands, node_.attributes, node_.location));
      TESSERA_ASSIGN(const ValueId whole,
                     graph_.apply("cast", {graph_.node(made).results[0]}, {{"to", DType::I32}}, node_.location));
      if (!sum.valid()) {
        sum = whole;
        continue;
      }
      TESSERA_ASSIGN(sum, graph_.apply("add", {sum, whole}, {}, node_.location));
    }
    return std::optional(sum);
  }

private:
  // [begin, end) of a dimension, as f32.
  Result<ValueId> part(ValueId v, size_t along, int64_t begin, int64_t end, int64_t length) {
    TESSERA_ASSIGN(v, graph_.apply("cast", {v}, {{"to", DType::F16}}, node_.location));
    if (end - begin < length) {
      SymShape sizes = graph_.type(v).shape, starts(sizes.size(), 0);
      starts[along] = begin;
      sizes[along] = end - begin;
      TESSERA_ASSIGN(v, graph_.apply("slice", {v},
                                     {{"starts", starts}, {"steps", Ints(sizes.size(), 1)}, {"sizes", sizes}},
                                     node_.location));
    }
    return graph_.apply("cast", {v}, {{"to", DType::F32}}, node_.location);
  }

  Graph& graph_;
  const Node node_; // adding nodes moves those of the graph
};

} // namespace

Result<bool> small_integer_products(Graph& graph, bool convolutions, bool tensor_cores) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const auto* structured = graph.node(id).op->structured();
    if (!structured) continue;
    const bool convolution = structured->kind == Structured::Conv;
    if (structured->kind != Structured::Matmul && !(convolution && convolutions)) continue;
    if (graph.type(graph.node(id).results[0]).dtype != DType::I32) continue;
    const std::vector<ValueId>& factors = graph.node(id).operands;
    if (tensor_cores && !convolution && is_dense_of_bytes(graph, factors[0], false) &&
        is_dense_of_bytes(graph, factors[1], true))
      continue;
    TESSERA_ASSIGN(const std::optional<ValueId> made, Rewriting(graph, id).run(convolution));
    if (!made) continue;
    const ValueId old = graph.node(id).results[0];
    graph.value(*made).name = std::exchange(graph.value(old).name, "");
    graph.replace_all_uses(old, *made);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

} // namespace tessera
