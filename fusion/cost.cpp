#include "fusion/cost.h"
#include "fusion/rewrite.h"
#include <algorithm>
#include <cmath>
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
  if (auto it = done_.find(e); it != done_.end()) return it->second;
  std::unordered_map<uint64_t, int64_t> sizes;
  for (const auto& s : e.symbols()) {
    auto hint = env_.hint(s);
    auto range = env_.range(s);
    auto size = hint ? *hint : static_cast<int64_t>(kRepresentativeSize);
    sizes.emplace(s.symbol_id(), std::clamp(size, range.lo, std::max(range.lo, range.hi)));
  }
  auto value = e.eval(sizes);
  double result = value ? static_cast<double>(*value) : 1e18; // beyond 64 bits: expensive
  done_.emplace(e, result);
  return result;
}

std::string detail_text(const Graph& graph, const Detail& detail) {
  Estimator estimate(graph.env());
  return tessera::detail_text(detail, [&](const SymExpr& e) { return std::optional(estimate(e)); });
}

namespace {

// The parts of one operand that a nest's loads read: boxes that do not overlap.
class Parts {
public:
  Parts(const LoopNest& nest, Estimator& estimate) : nest_(nest), estimate_(estimate) {}

  // `axes`: those that the load's index depends on.
  void add(const ScalarNode& load, const std::vector<bool>& axes) {
    auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return !apart(*p.load, load); });
    if (found == parts_.end()) {
      parts_.push_back({&load, axes});
      return;
    }
    for (size_t i = 0; i < axes.size(); ++i) found->axes[i] = found->axes[i] || axes[i];
  }
  [[nodiscard]] SymExpr points() const {
    SymExpr all = 0;
    for (const Part& p : parts_) {
      SymExpr points = 1;
      for (size_t i = 0; i < p.axes.size(); ++i)
        if (p.axes[i]) points *= nest_.axes[i].extent;
      all += points;
    }
    return all;
  }

private:
  struct Part {
    const ScalarNode* load; // the first
    std::vector<bool> axes;
  };
  // Two slices: along some dimension they differ by as much as the index runs over, or one is looked up elsewhere than
  // the other. A load under a condition has its bounds from there: it counts to the part that is there.
  [[nodiscard]] bool apart(const ScalarNode& a, const ScalarNode& b) const {
    if (a.masked || b.masked) return false;
    for (size_t d = 0; d < std::min(a.args.size(), b.args.size()); ++d) {
      if (a.args[d] == b.args[d]) continue;
      const ScalarNode &x = nest_.dag[a.args[d]], &y = nest_.dag[b.args[d]];
      if (x.op != ScalarOp::Index || y.op != ScalarOp::Index) return true;
      const SymExpr between = x.sym - y.sym;
      double extent = 1;
      bool runs = false;
      for (const auto& axis : nest_.axes) {
        runs = runs || between.contains(axis.var);
        if (x.sym.contains(axis.var)) extent *= estimate_(axis.extent);
      }
      if (!runs && std::abs(estimate_(between)) >= extent) return true;
    }
    return false;
  }

  const LoopNest& nest_;
  Estimator& estimate_;
  std::vector<Part> parts_;
};

} // namespace

std::vector<SymExpr> bytes_read(const Graph& graph, const LoopNest& nest, Estimator& estimate) {
  // Axes that each node depends on, as a set of indices.
  std::vector<std::vector<bool>> depends(static_cast<size_t>(nest.dag.size()));
  std::vector<Parts> parts(nest.loads.size(), Parts(nest, estimate));
  std::vector<ScalarId> conditional;
  auto need = reachable(nest.dag, store_roots(nest));
  auto merge = [&](std::vector<bool>& into, const std::vector<bool>& from) {
    for (size_t i = 0; i < from.size(); ++i) into[i] = into[i] || from[i];
  };
  auto add = [&](ScalarId load) {
    const ScalarNode& node = nest.dag[load];
    parts[static_cast<size_t>(node.operand)].add(node, depends[static_cast<size_t>(load)]);
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
      if (node.masked)
        conditional.push_back(id);
      else
        add(id);
    } else if (node.op == ScalarOp::Reduce) {
      for (size_t i = 0; i < nest.axes.size(); ++i)
        if (nest.axes[i].role == AxisRole::Row) set[i] = false;
    }
  }
  for (ScalarId id : conditional) add(id);
  std::vector<SymExpr> bytes;
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    const SymExpr all = byte_count(graph, nest.loads[k]);
    const SymExpr touched = byte_count(graph.type(nest.loads[k]).dtype, parts[k].points());
    bytes.push_back(estimate(touched) < estimate(all) ? touched : all);
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

double instructions(const LoopNest& nest) {
  const auto need = reachable(nest.dag, store_roots(nest));
  double sum = 0;
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (need[static_cast<size_t>(id)] && nest.dag[id].op > ScalarOp::Load) sum += info(nest.dag[id].op).cost;
  return sum;
}

bool moves_nothing(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto* indexing = node.op->indexing();
  if (!indexing || !indexing->view || node.operands.empty()) return false;
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
  return in_order;
}

SymExpr bytes_alone(const Graph& graph, NodeId id) {
  if (moves_nothing(graph, id)) return 0;
  const Node& node = graph.node(id);
  SymExpr written, read, points;
  for (ValueId v : node.results)
    if (v.valid()) written += byte_count(graph, v), points += graph.type(v).count();
  const auto* indexing = node.op->indexing();
  if (indexing && indexing->view && !node.operands.empty()) return written + written; // it copies what it yields
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const ValueId v = node.operands[i];
    if (!v.valid()) continue;
    const SymExpr all = byte_count(graph, v);
    // An operator that selects elements of its first operand reads one for each result, or all where these are fewer.
    const SymExpr selected = byte_count(graph.type(v).dtype, points);
    read += indexing && !indexing->view && i == 0 ? sym_min(all, selected) : all;
  }
  return read + written;
}

} // namespace tessera::fusion
