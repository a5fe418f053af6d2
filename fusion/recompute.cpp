// A kernel that would read a value from memory computes it itself where that moves less.
//
//   m = cast(c) : f32     kernel 1 writes m, which a product reads
//   q = mul(y, m')        kernel 2 has another iteration space: it reads c, of a byte an element, instead of m, of four
//
// decide.cpp has given m memory because a reader needs it there, or because writing it out everywhere is more
// expensive. For one kernel that could not be merged with m's own the question is another one: m is there, and costs
// its bytes to read; to compute it costs those of what it is made from that the kernel does not read anyway, and the
// arithmetic.
#include "fusion/planner.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

constexpr double kMargin = 1.1; // what costs about the same stays as it is
constexpr int kMaxNodes = 400;  // of a nest that something is written out into

} // namespace

Status Planner::recompute_reads(int made) {
  const std::vector<ValueId> reads = units_[made].reads; // as it was made
  for (ValueId v : reads) {
    const int unit = units_.find(made), from = units_.home(v);
    Unit& u = units_[unit];
    auto recipe = d_.recipes.find(v.index);
    if (from < 0 || from == unit || u.kind != Group::Kind::Kernel || recipe == d_.recipes.end()) continue;
    if (u.nest.dag.size() > kMaxNodes) continue;
    const NodeId computing = graph_.value(v).producer;
    if (steering_.broken(v) || steering_.conflict(u.marks, steering_.marks(computing))) continue;
    const bool pinned = u.pin >= 0;
    if (pinned && !steering_.contains(u.pin, computing)) continue;
    // Bytes of v that the nest reads now, and how often it reads an element.
    const auto& loads = u.nest.loads;
    const auto bytes = bytes_read(graph_, u.nest, estimate_);
    double read = 0;
    SizeSum read_sum, computed_sum;
    for (size_t k = 0; k < loads.size(); ++k)
      if (loads[k] == v) {
        read = estimate_(bytes[k]);
        read_sum = bytes[k];
      }
    const double all = estimate_(byte_count(graph_, v));
    if (read <= 0 || all <= 0) continue;
    const SymExpr points = points_read(u.nest, v);
    const double per_point = recipe->second.instructions * options_.bytes_per_instruction;
    double computed = estimate_(points) * per_point;
    computed_sum.add(points, per_point);
    for (ValueId leaf : recipe->second.leaves)
      if (std::find(loads.begin(), loads.end(), leaf) == loads.end()) {
        computed += estimate_(byte_count(graph_, leaf)) * read / all;
        computed_sum.add(byte_count(graph_, leaf), read / all);
      }
    if (!pinned && computed * kMargin >= read) continue;

    Expander expander(
        graph_, pool_, bodies_,
        [&](ValueId w) { return static_cast<bool>(d_.is_virtual[static_cast<size_t>(w.index)]); },
        options_.strict_rounding, options_.keep_values);
    TESSERA_ASSIGN(LoopNest nest, expander.written_out(u.nest, v));
    split_axes(nest, pool_);
    normalize(nest, graph_.env());
    if (static_cast<int>(nest.loads.size() + nest.stores.size()) > options_.max_buffers) continue;
    const Marks marks = steering_.marks(nest.sources);
    if (steering_.conflict(marks, marks)) continue;
    u.marks = Steering::united(u.marks, marks);
    for (NodeId n : nest.sources)
      if (std::find(u.nest.sources.begin(), u.nest.sources.end(), n) == u.nest.sources.end())
        units_.homes(n).push_back(made);
    std::erase_if(units_.readers(v), [&](int r) {
      if (units_.find(r) != unit) return false;
      tried_.refused.erase({v.index, r});
      tried_.recomputed[{v.index, r}] = {computed_sum, read_sum};
      return true;
    });
    for (ValueId w : nest.loads) {
      auto& readers = units_.readers(w);
      if (std::none_of(readers.begin(), readers.end(), [&](int r) { return units_.find(r) == unit; }))
        readers.push_back(made);
    }
    auto& own = units_[made].reads;
    std::erase(own, v);
    for (ValueId leaf : recipe->second.leaves)
      if (std::find(own.begin(), own.end(), leaf) == own.end()) own.push_back(leaf);
    u.nest = std::move(nest);
  }
  return {};
}

// Indices at which the nest reads v; once per run of the innermost axis where the index ignores that.
SymExpr Planner::points_read(const LoopNest& nest, ValueId v) {
  if (nest.axes.empty()) return 1;
  const Axis& innermost = nest.axes.back();
  bool varies = false;
  std::vector<bool> of_index(static_cast<size_t>(nest.dag.size()), false); // nodes that an index of v is made of
  for (ScalarId id = nest.dag.size(); id-- > 0;) {
    const ScalarNode& node = nest.dag[id];
    const bool loads = node.op == ScalarOp::Load && nest.loads[static_cast<size_t>(node.operand)] == v;
    // A value read from memory may vary along with its own index.
    if (of_index[static_cast<size_t>(id)])
      varies = varies || (node.op == ScalarOp::Index && node.sym.contains(innermost.var));
    if (of_index[static_cast<size_t>(id)] || loads)
      for (ScalarId a : node.args) of_index[static_cast<size_t>(a)] = true;
  }
  return varies || innermost.extent.is_const(0) ? nest.points() : floordiv(nest.points(), innermost.extent);
}

} // namespace tessera::fusion
