#include "fusion/cost.h"
#include "fusion/rewrite.h"
#include <algorithm>
#include <cstdio>

namespace tessera::fusion {

std::string bytes_text(double bytes) {
  char buffer[32];
  const bool mega = bytes >= 1e6;
  std::snprintf(buffer, sizeof buffer, "%.1f %s", bytes / (mega ? 1e6 : 1e3), mega ? "MB" : "kB");
  return buffer;
}

SymExpr byte_count(DType dtype, const SymExpr& elements) {
  int bits = info(dtype).bits;
  return bits % 8 == 0 ? elements * SymExpr(bits / 8) : ceildiv(elements * SymExpr(bits), SymExpr(8));
}

SymExpr byte_count(const Graph& graph, ValueId value) {
  const TensorType& type = graph.type(value);
  return byte_count(type.dtype, type.count());
}

double Estimator::operator()(const SymExpr& e) {
  if (e.is_const()) return static_cast<double>(e.const_value());
  if (auto it = done_.find(e.node()); it != done_.end()) return it->second;
  std::unordered_map<uint64_t, int64_t> sizes;
  for (const auto& s : e.symbols()) {
    auto hint = env_.hint(s);
    auto range = env_.range(s);
    auto size = hint ? *hint : static_cast<int64_t>(kRepresentativeSize);
    sizes.emplace(s.symbol_id(), std::clamp(size, range.lo, std::max(range.lo, range.hi)));
  }
  auto value = e.eval(sizes);
  double result = value ? static_cast<double>(*value) : 1e18; // beyond 64 bits: expensive
  done_.emplace(e.node(), result);
  return result;
}

std::string detail_text(const Graph& graph, const Detail& detail) {
  Estimator estimate(graph.env());
  return tessera::detail_text(detail, [&](const SymExpr& e) { return std::optional(estimate(e)); });
}

std::vector<SymExpr> bytes_read(const Graph& graph, const LoopNest& nest, Estimator& estimate) {
  // Axes that each node depends on, as a set of indices.
  std::vector<std::vector<bool>> depends(static_cast<size_t>(nest.dag.size()));
  std::vector<std::vector<bool>> used(nest.loads.size());
  auto need = reachable(nest.dag, store_roots(nest));
  auto merge = [&](std::vector<bool>& into, const std::vector<bool>& from) {
    for (size_t i = 0; i < from.size(); ++i) into[i] = into[i] || from[i];
  };
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    if (!need[static_cast<size_t>(id)]) continue;
    const ScalarNode& node = nest.dag[id];
    auto& set = depends[static_cast<size_t>(id)];
    set.assign(nest.axes.size(), false);
    if (node.op == ScalarOp::Index)
      for (size_t i = 0; i < nest.axes.size(); ++i) set[i] = node.sym.contains(nest.axes[i].var);
    for (ScalarId a : node.args) merge(set, depends[static_cast<size_t>(a)]);
    if (node.op == ScalarOp::Load) {
      auto& u = used[static_cast<size_t>(node.operand)];
      if (u.empty()) u.assign(nest.axes.size(), false);
      merge(u, set);
    } else if (node.op == ScalarOp::Reduce) {
      for (size_t i = 0; i < nest.axes.size(); ++i)
        if (nest.axes[i].role == AxisRole::Row) set[i] = false;
    }
  }
  std::vector<SymExpr> bytes;
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    SymExpr all = byte_count(graph, nest.loads[k]), points = 1;
    for (size_t i = 0; i < used[k].size(); ++i)
      if (used[k][i]) points = points * nest.axes[i].extent;
    SymExpr touched = byte_count(graph.type(nest.loads[k]).dtype, points);
    bytes.push_back(used[k].empty() ? SymExpr(0) : estimate(touched) < estimate(all) ? touched : all);
  }
  return bytes;
}

SymExpr operations(const LoopNest& nest) {
  const auto need = reachable(nest.dag, store_roots(nest));
  const auto varies = row_varying(nest);
  SymExpr outer = 1, points = nest.points();
  for (const auto& axis : nest.axes)
    if (axis.role == AxisRole::Outer) outer *= axis.extent;
  int64_t per_point = 0, per_row = 0;
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    const ScalarNode& node = nest.dag[id];
    if (!need[static_cast<size_t>(id)] || node.op <= ScalarOp::CheckBounds || node.op == ScalarOp::Cast ||
        node.op == ScalarOp::Bitcast)
      continue;
    const bool folds = node.op == ScalarOp::Reduce; // one operation for each element that it folds
    (folds || varies[static_cast<size_t>(id)] ? per_point : per_row) += 1;
  }
  return points * per_point + outer * per_row;
}

SymExpr bytes_alone(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  SymExpr written, read, points;
  for (ValueId v : node.results)
    if (v.valid()) written += byte_count(graph, v), points += graph.type(v).count();
  const auto* indexing = node.op->indexing();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const ValueId v = node.operands[i];
    if (!v.valid()) continue;
    const SymExpr all = byte_count(graph, v);
    // What selects elements of its first operand reads one for each result, or all where these are fewer.
    const SymExpr selected = byte_count(graph.type(v).dtype, points);
    read += indexing && !indexing->view && i == 0 ? sym_min(all, selected) : all;
  }
  if (!indexing || !indexing->view || node.operands.empty()) return read + written;
  // A view that keeps the number of elements and moves none is free also by itself; others copy what they yield.
  const SymShape &from = graph.type(node.operands[0]).shape, &to = graph.type(node.results[0]).shape;
  bool in_order = product(from) == product(to);
  if (auto perm = node.attributes.ints("perm"); in_order && !perm.empty()) {
    int64_t last = -1;
    for (int64_t p : perm) {
      bool one = p >= 0 && p < static_cast<int64_t>(from.size()) && from[static_cast<size_t>(p)].is_const(1);
      in_order = in_order && (one || p > last);
      if (!one) last = p;
    }
  }
  return in_order ? SymExpr(0) : written + written;
}

} // namespace tessera::fusion
