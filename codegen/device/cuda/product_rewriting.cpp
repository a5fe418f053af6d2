#include "codegen/device/cuda/product_rewriting.h"
#include "graph/ops/questions.h"
#include "graph/passes/pass.h"
#include <algorithm>

namespace tessera {
namespace {

// Bytes of a model's weights that a pass stores twice at most: the originals may be mapped from a file, copies are in
// the host's memory.
constexpr int64_t kMaxCopiedBytes = int64_t{1} << 30;

} // namespace

ProductRewriting::ProductRewriting(Graph& graph, const CudaLibraries& libraries)
    : graph_(graph), libraries_(libraries), names_(graph), users_(graph.users()), outputs_(users_.size(), false),
      by_value_(users_.size()) {
  for (const auto& output : graph.outputs()) outputs_[at(output.value)] = true;
}

bool ProductRewriting::is_product(NodeId id) const { return ops::is(graph_.node(id), Structured::Matmul); }

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
