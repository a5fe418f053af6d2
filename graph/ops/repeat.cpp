#include "graph/ops/repeat.h"
#include "graph/ops/formulas.h"
#include <algorithm>

namespace tessera::ops {

bool can_inline(const Graph& body) {
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    if (n.op->data_dependent_shape || n.op->side_effect) return false;
    for (const auto& [name, attribute] : n.attributes.items())
      if (std::holds_alternative<std::shared_ptr<Graph>>(attribute)) return false;
  }
  return true;
}

Result<std::vector<ValueId>> inline_graph(const Graph& body, std::span<const ValueId> arguments, Graph& into) {
  TESSERA_CHECK(arguments.size() == body.inputs().size(), "a body is given as many values as it takes");
  std::vector<ValueId> value(static_cast<size_t>(body.value_count()));
  auto at = [&](ValueId v) -> ValueId& { return value[static_cast<size_t>(v.index)]; };
  for (size_t i = 0; i < arguments.size(); ++i) at(body.inputs()[i]) = arguments[i];
  for (NodeId id : body.order()) {
    const Node& n = body.node(id);
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(v.valid() ? at(v) : ValueId{});
    TESSERA_ASSIGN(NodeId made, into.add_node(*n.op, std::move(operands), n.attributes, n.location,
                                              std::vector<std::string>(n.results.size()), n.opset));
    for (size_t r = 0; r < n.results.size(); ++r)
      if (n.results[r].valid()) at(n.results[r]) = into.node(made).results[r];
  }
  std::vector<ValueId> outputs;
  for (const auto& o : body.outputs()) outputs.push_back(at(o.value));
  return outputs;
}

std::vector<ValueId> unrolled(B& b, const Scan& scan, int64_t iterations) {
  const size_t count = scan.body->outputs().size(), carried = scan.carried.size();
  std::vector<ValueId> state = scan.carried;
  std::vector<std::vector<ValueId>> slices(count - carried);
  for (int64_t i = 0; i < iterations && b.ok(); ++i) {
    std::vector<ValueId> arguments = state;
    for (size_t k = 0; k < scan.scanned.size(); ++k)
      arguments.push_back(
          squeeze(b, slice(b, scan.scanned[k], 0, scan.reverse_in[k] ? iterations - 1 - i : i, 1), {0}));
    arguments.insert(arguments.end(), scan.captured.begin(), scan.captured.end());
    if (!b.ok()) break;
    auto outputs = inline_graph(*scan.body, arguments, b.graph());
    if (!outputs.ok()) {
      b.fail(std::move(outputs).take_error());
      break;
    }
    state.assign(outputs->begin(), outputs->begin() + static_cast<std::ptrdiff_t>(carried));
    for (size_t k = 0; k < slices.size(); ++k) slices[k].push_back(unsqueeze(b, (*outputs)[carried + k], {0}));
  }
  if (!b.ok()) return std::vector<ValueId>(count);
  for (size_t k = 0; k < slices.size(); ++k) {
    if (scan.reverse_out[k]) std::reverse(slices[k].begin(), slices[k].end());
    state.push_back(concat(b, std::move(slices[k]), 0));
  }
  return state;
}

std::vector<ValueId> scan_slices(B& b, const Scan& scan) {
  if (!b.ok()) return std::vector<ValueId>(scan.body->outputs().size());
  const auto trips = b.env().simplify(b.dim(scan.scanned[0], 0)).as_const();
  if (trips && *trips >= 1 && *trips * scan.body->node_count() <= kUnrolledNodes && can_inline(*scan.body))
    return unrolled(b, scan, *trips);
  std::vector<ValueId> operands = scan.carried;
  operands.insert(operands.end(), scan.scanned.begin(), scan.scanned.end());
  operands.insert(operands.end(), scan.captured.begin(), scan.captured.end());
  auto flags = [](const std::vector<bool>& of) { return Ints(of.begin(), of.end()); };
  return b.ops("scan_graph", std::move(operands),
               {{"body", scan.body},
                {"captures", Ints{static_cast<int64_t>(scan.captured.size())}},
                {"num_scan_inputs", static_cast<int64_t>(scan.scanned.size())},
                {"reverse_inputs", flags(scan.reverse_in)},
                {"reverse_outputs", flags(scan.reverse_out)}},
               static_cast<int>(scan.body->outputs().size()));
}

} // namespace tessera::ops
