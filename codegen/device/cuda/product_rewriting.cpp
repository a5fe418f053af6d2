#include "codegen/device/cuda/product_rewriting.h"
#include "graph/ops/questions.h"
#include "graph/passes/pass.h"
#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

// Bytes of a model's weights that a pass stores twice at most: the originals may be mapped from a file, copies are in
// the host's memory.
constexpr int64_t kMaxCopiedBytes = int64_t{1} << 30;

// True for a permutation that exchanges the last two dimensions and no others.
bool is_turn(const Ints& permutation) {
  const size_t rank = permutation.size();
  if (rank < 2) return false;
  Ints turn(rank);
  std::iota(turn.begin(), turn.end(), 0);
  std::swap(turn[rank - 2], turn[rank - 1]);
  return permutation == turn;
}

} // namespace

ProductRewriting::ProductRewriting(Graph& graph, const CudaLibraries& libraries)
    : graph_(graph), libraries_(libraries), names_(graph), estimate_(graph.env()), users_(graph.users()),
      outputs_(users_.size(), false), by_value_(users_.size()) {
  for (const auto& output : graph.outputs()) outputs_[at(output.value)] = true;
}

bool ProductRewriting::is_product(NodeId id) const { return ops::is(graph_.node(id), Structured::Matmul); }

StoredOperand ProductRewriting::stored(ValueId operand) const {
  const Node* node = graph_.producer(operand);
  if (node != nullptr && is_turn(ops::permutation_of(*node))) return {node->operands[0], true};
  return {operand, false};
}

std::set<NodeId> ProductRewriting::attentions() const {
  std::set<NodeId> out;
  for (NodeId first : graph_.order()) {
    if (!is_product(first)) continue;
    std::set<NodeId> reached;
    std::vector<NodeId> pending = {first}, others;
    bool maximum = false;
    while (!pending.empty()) {
      const Node& node = graph_.node(pending.back());
      pending.pop_back();
      for (ValueId v : node.results) {
        if (!v.valid()) continue;
        for (NodeId user : users(v)) {
          if (!reached.insert(user).second) continue;
          const OpDef& op = *graph_.node(user).op;
          maximum = maximum || (op.reduction() && op.reduction()->kind == ReduceKind::Max);
          if (is_product(user))
            others.push_back(user);
          else if (op.pointwise() || op.reduction() || op.indexing())
            pending.push_back(user);
        }
      }
    }
    if (!maximum || others.empty()) continue;
    out.insert(first);
    out.insert(others.begin(), others.end());
  }
  return out;
}

ProductShape ProductRewriting::shape_of(const Node& product) {
  const TensorType &a = graph_.type(product.operands[0]), &b = graph_.type(product.operands[1]);
  ProductShape out;
  out.dtype = a.dtype;
  out.tf32 = product.attributes.i("tf32", 0) != 0;
  const double all = estimate_(graph_.type(product.results[0]).count());
  out.n = std::max(1.0, estimate_(b.shape.back()));
  out.k = estimate_(a.shape.back());
  out.m = b.rank() == 2 ? all / out.n : std::max(1.0, estimate_(a.shape[a.shape.size() - 2]));
  out.batch = all / out.n / std::max(1.0, out.m);
  return out;
}

bool ProductRewriting::is_made_for_one(ValueId v) const {
  const Node* from = graph_.producer(v);
  return from != nullptr && from->op->pointwise() && users(v).size() == 1 && !is_output(v);
}

bool ProductRewriting::is_view(const Node& node) {
  return node.op->indexing() && node.op->indexing()->view && !node.operands.empty() && node.results.size() == 1;
}

bool ProductRewriting::is_kept_apart(const Node& node) const {
  const auto& names = libraries_.kept_apart;
  return !names.empty() && (names.contains(node.location.node) || names.contains(node.location.output));
}

bool ProductRewriting::read_by_strides(ValueId v) const {
  return !is_output(v) && std::all_of(users(v).begin(), users(v).end(), [&](NodeId user) {
    const Node& node = graph_.node(user);
    if (is_view(node)) return read_by_strides(node.results[0]);
    return !node.op->structured() || is_product(user);
  });
}

bool ProductRewriting::may_copy(int64_t bytes) {
  if (copied_ + bytes > kMaxCopiedBytes) return false;
  copied_ += bytes;
  return true;
}

Result<ValueId> ProductRewriting::slice(ValueId from, SymShape starts, SymShape sizes, const Location& location) {
  Ints steps(sizes.size(), 1);
  return graph_.apply("slice", {from}, {{"starts", std::move(starts)}, {"steps", steps}, {"sizes", std::move(sizes)}},
                      location);
}

void ProductRewriting::replace(ValueId before, ValueId after) {
  graph_.value(after).name = std::exchange(graph_.value(before).name, "");
  by_value_[at(before)] = after;
}

Status ProductRewriting::end() {
  if (std::none_of(by_value_.begin(), by_value_.end(), [](ValueId v) { return v.valid(); })) return {};
  graph_.replace_uses(by_value_);
  TESSERA_TRY(find_graph_pass("dce")->run(graph_, {}));
  return {};
}

} // namespace tessera
