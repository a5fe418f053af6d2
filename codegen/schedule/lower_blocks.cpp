#include "codegen/schedule/choose_blocks.h"
#include <algorithm>

namespace tessera {

namespace {

// The rest of a nest whose row is known to have no element: stores once per outer point, of reductions' identities.
LoopNest without_row(const LoopNest& nest) {
  LoopNest out;
  out.name = nest.name;
  out.loads = nest.loads;
  out.sources = nest.sources;
  for (const Axis& a : nest.axes)
    if (a.role == AxisRole::Outer) out.axes.push_back(a);
  std::unordered_map<ScalarId, ScalarId> done;
  auto leaf = [](ScalarDag& into, const ScalarNode& n, std::span<const ScalarId>) -> ScalarId {
    if (n.op != ScalarOp::Reduce) return -1;
    if (n.reduce == ReduceKind::ArgMax || n.reduce == ReduceKind::ArgMin) return into.constant_i(n.dtype, 0);
    return is_float(n.dtype) ? into.constant_f(n.dtype, reduce_identity_f64(n.reduce, n.dtype))
                             : into.constant_i(n.dtype, reduce_identity_i64(n.reduce, n.dtype));
  };
  for (Store s : nest.stores) {
    if (!s.per_row) continue;
    for (auto& i : s.index) i = out.dag.import(nest.dag, i, leaf, done);
    s.scalar = out.dag.import(nest.dag, s.scalar, leaf, done);
    s.per_row = false;
    out.stores.push_back(std::move(s));
  }
  return out;
}

} // namespace

Result<std::vector<ScheduledKernel>> lower_for_gpu(const Graph& graph, const LoopNest& given, const Target& device,
                                                   const std::string& name, const LoweringOptions& options,
                                                   const TunedSchedules* tuned) {
  CheckContext context("schedule of " + name);
  SymExpr length = 1;
  for (const Axis& a : given.axes)
    if (a.role == AxisRole::Row) length *= a.extent;
  const bool empty_row = graph.env().simplify(length).is_const(0);
  LoopNest bare;
  if (empty_row) bare = without_row(given);
  const bool nothing = empty_row && bare.stores.empty();
  const LoopNest& nest = empty_row && !nothing ? bare : given;
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  std::vector<ScheduledKernel> kernels;
  const BlockFacts facts(graph, nest, domain, device);
  for (BlockChoice& choice : choose_blocks(facts, options, tuned)) {
    if (options.lowering) *options.lowering = choice.legal.schedule;
    auto k = lower_block(graph, nest, domain, choice.legal, name, options);
    if (!k.ok() && !choice.measured.empty()) continue; // a record of something else
    if (!k.ok()) return k.error();
    k->why = std::move(choice.why);
    k->predicted = std::move(choice.predicted);
    k->measured = std::move(choice.measured);
    k->extents = std::move(choice.extents);
    if (nothing) k->grid = 0;
    kernels.push_back(std::move(*k));
    if (choice.legal.conditions.empty() && !choice.legal.grid_barrier) break;
  }
  // One plan of memory holds for all of them: what one kernel may not take over, none does.
  for (ScheduledKernel& k : kernels)
    for (size_t b = 0; b < k.may_overwrite.size(); ++b)
      std::erase_if(k.may_overwrite[b], [&](int from) {
        return std::any_of(kernels.begin(), kernels.end(), [&](const ScheduledKernel& other) {
          const std::vector<int>& v = other.may_overwrite[b];
          return std::find(v.begin(), v.end(), from) == v.end();
        });
      });
  for (ScheduledKernel& k : kernels) {
    for (size_t b = 0; b < k.buffers.size(); ++b) k.kernel.params[b].invariant = !k.written[b];
    for (const auto& taken : k.may_overwrite)
      for (int b : taken) k.kernel.params[static_cast<size_t>(b)].invariant = false;
  }
  return kernels;
}

} // namespace tessera
