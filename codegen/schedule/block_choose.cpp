#include "codegen/schedule/block_choose.h"
#include "codegen/schedule/block_config.h"
#include <algorithm>

namespace tessera {

std::vector<BlockPlan> plan_blocks(const Graph& graph, const LoopNest& nest, const Domain& domain, const Target& device,
                                   const Schedule& wanted, const TunedSchedules* tuned) {
  BlockFacts facts(graph, nest, domain, device);
  auto exact = wanted.config.find("exact_division");
  const bool online = exact == wanted.config.end() || exact->second == 0;
  std::vector<BlockPlan> plans;
  if (domain.axes.empty()) {
    plans.push_back(BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1));
    plans.back().schedule.why = "a single point: scalars";
  } else if (!domain.reduces) {
    plans = flat_plans(facts);
  } else {
    plans = window_plans(facts);
    if (plans.empty()) plans = team_plans(facts, online);
    if (plans.empty() || plans.back().waits || !plans.back().conditions.empty()) {
      bool rows = facts.is_row(static_cast<size_t>(facts.contiguous_axis));
      for (BlockPlan& p : rows ? row_plans(facts, online) : column_plans(facts, online)) plans.push_back(std::move(p));
    }
  }
  if (tuned) {
    std::vector<BlockPlan> ahead;
    for (const TunedSchedule& t : tuned->find(nest_key(graph, nest, domain)))
      if (auto p = tuned_plan(facts, t)) ahead.push_back(std::move(*p));
    plans.insert(plans.begin(), std::make_move_iterator(ahead.begin()), std::make_move_iterator(ahead.end()));
  }
  for (BlockPlan& p : plans) {
    write_config(p);
    p.schedule.config["exact_division"] = exact == wanted.config.end() ? 0 : exact->second;
    if ((p.loop || p.team) && !online) p.schedule.config["online"] = 0;
    if (p.loop || p.team) p.schedule.config.try_emplace("online", 1);
  }
  return plans;
}

void assume(ShapeEnv& env, const SizeCondition& c) {
  if (c.value.is_symbol()) {
    env.set_divisor(c.value, c.multiple_of);
    SymRange r = env.range(c.value);
    env.set_range(c.value, {std::max(r.lo, c.min), std::min(r.hi, c.max)});
  }
}

namespace {

// What remains of a nest whose row is known to have no element: stores once per outer point, of reductions' identities.
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
                                                   const std::string& name, const Schedule& wanted,
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
  for (const BlockPlan& plan : plan_blocks(graph, nest, domain, device, wanted, tuned)) {
    auto k = lower_block(graph, nest, domain, plan, name);
    if (!k.ok() && !plan.schedule.measured.empty()) continue; // a record of something else
    if (!k.ok()) return k.error();
    if (nothing) k->grid = 0;
    kernels.push_back(std::move(*k));
    if (plan.conditions.empty() && !plan.waits) break;
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
    for (size_t b = 0; b < k.buffers.size(); ++b) k.kernel.params[b].invariant = !k.buffer_written[b];
    for (const auto& taken : k.may_overwrite)
      for (int b : taken) k.kernel.params[static_cast<size_t>(b)].invariant = false;
  }
  return kernels;
}

} // namespace tessera
