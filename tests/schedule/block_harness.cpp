#include "block_harness.h"
#include "codegen/schedule/block_config.h"
#include "codegen/schedule/space.h"
#include "codegen/target/select.h"

namespace tessera::test {
namespace {

void check(const ScheduledKernel& k) {
  std::string text = tile::print(k.kernel);
  auto ok = tile::verify(k.kernel);
  ASSERT_TRUE(ok.ok()) << ok.error().str() << text;
  auto again = tile::parse(text);
  ASSERT_TRUE(again.ok()) << again.error().str() << text;
  ASSERT_EQ(tile::print(*again), text);
  for (int v = 0; v < k.kernel.value_count(); ++v)
    for (int d : k.kernel.type(v).shape) ASSERT_EQ(d & (d - 1), 0) << text;
}

// The same plan with a tile of a few elements. What the tile promises to hold (a whole row) stays.
BlockPlan small(BlockPlan p, const Domain& domain) {
  p.steps = std::min(p.steps, 2);
  p.run = std::min(p.run, 2);
  bool rows = p.rows > 1 || (p.schedule.kind == ScheduleKind::BlockLoop && !p.groups.rows.empty());
  switch (p.schedule.kind) {
  case ScheduleKind::BlockTeam: { // any number of rows that are not empty, however many share them
    SymExpr row = domain.row_count();
    std::erase_if(p.conditions, [](const SizeCondition& c) { return c.multiple_of == 1; });
    if (!row.is_const()) p.conditions.push_back({row, 1, 1});
    SymExpr points = 1; // few of them: all blocks of a grid may have to run at once
    for (const Axis& a : domain.axes)
      if (a.role == AxisRole::Outer) points *= a.extent;
    if (!points.is_const()) p.conditions.push_back({points, 1, 0, 20});
    p.columns = std::max(8, 2 * p.shift);
    while (p.columns < row.as_const().value_or(0) / 32) p.columns *= 2;
    if (p.rows > 1) p.rows = 4;
    p.warps = 2;
    p.most_members = 64;
    p.team = !p.loop ? ceildiv(row + SymExpr(p.shift - 1), p.columns) : p.waits ? SymExpr(3) : sym_min(row, 4) + 1;
    p.waits = true; // as it may without online sums
    p.keep = p.loop ? 2 : 0;
    p.messages = p.loop; // so that both ways to meet are taken
    break;
  }
  case ScheduleKind::BlockFlat:
    if (p.rows > 1) p.rows = 4;
    if (p.columns > 1 && p.split < 0) p.columns = 8;
    break;
  case ScheduleKind::BlockRows: p.rows = p.groups.rows.empty() || p.shift > 1 ? 1 : p.rows == 2 ? 1 : 2; break;
  case ScheduleKind::BlockLoop:
    p.rows = rows && p.shift == 1 ? 2 : 1;
    p.columns = p.shift > 1 ? std::max(8, 2 * p.shift) : p.run > 1 ? 8 : 4;
    break;
  case ScheduleKind::BlockWindow: p.rows = 4; break;
  default:
    if (p.loop) p.rows = 4;
    p.columns = 8;
  }
  return p;
}

} // namespace

Target gpu_with(int multiprocessors) {
  Target device = shipped_target("h200");
  device.multiprocessors = multiprocessors;
  return device;
}

std::vector<ScheduledKernel> lower_blocks(const Problem& p, const Schedule& wanted, const Target& device) {
  auto kernels = lower_for_gpu(p.graph, p.nest, device, p.nest.name, wanted);
  EXPECT_TRUE(kernels.ok()) << kernels.error().str();
  if (!kernels.ok()) return {};
  EXPECT_FALSE(kernels->empty());
  EXPECT_TRUE(kernels->back().conditions.empty());
  EXPECT_FALSE(tile::needs_cooperative_launch(kernels->back().kernel));
  for (const ScheduledKernel& k : *kernels) {
    check(k);
    EXPECT_EQ(k.buffers, kernels->back().buffers);
    EXPECT_EQ(k.may_overwrite, kernels->back().may_overwrite);
  }
  return std::move(*kernels);
}

std::vector<ScheduledKernel> block_kernels(const Problem& p, const Target& device) {
  std::vector<ScheduledKernel> kernels = lower_blocks(p, {}, device);
  auto domain = make_domain(p.graph, p.nest);
  EXPECT_TRUE(domain.ok());
  Schedule exact;
  exact.config["exact_division"] = 1;
  for (const BlockPlan& plan : plan_blocks(p.graph, p.nest, *domain, device, exact)) {
    // A config says all of a plan.
    auto again = plan_of(BlockFacts(p.graph, p.nest, *domain, device), plan.schedule);
    EXPECT_TRUE(again.has_value()) << plan.schedule.why;
    if (again) {
      EXPECT_EQ(again->groups.points, plan.groups.points);
      EXPECT_EQ(again->groups.rows, plan.groups.rows);
      EXPECT_EQ(again->groups.columns, plan.groups.columns);
      EXPECT_EQ(again->team, plan.team);
      EXPECT_EQ(again->waits, plan.waits);
      write_config(*again);
      EXPECT_EQ(again->schedule.config, plan.schedule.config);
    }
    for (bool online : {false, true}) {
      BlockPlan tiny = small(plan, *domain);
      if (online && !tiny.loop && !tiny.team) continue;
      if (tiny.loop || tiny.team) tiny.schedule.config["online"] = online;
      auto k = lower_block(p.graph, p.nest, *domain, tiny, "small");
      EXPECT_TRUE(k.ok()) << k.error().str();
      if (!k.ok()) continue;
      check(*k);
      if (tiny.team) k->conditions.push_back({*tiny.team, 1, 1, tiny.most_members});
      k->schedule.why += online ? " (small tile, online)" : " (small tile)";
      kernels.push_back(std::move(*k));
    }
  }
  return kernels;
}

bool conditions_hold(const Graph& graph, const ScheduledKernel& kernel, const Sizes& sizes) {
  std::unordered_map<uint64_t, int64_t> by;
  for (const auto& [name, value] : sizes)
    if (auto s = graph.env().find(name)) by[s->symbol_id()] = value;
  for (const SizeCondition& c : kernel.conditions) {
    int64_t v = c.value.eval(by).value();
    if (v < c.min || v > c.max || v % c.multiple_of != 0) return false;
  }
  return true;
}

CallSizes by_id(const Problem& p, const Sizes& sizes) {
  CallSizes out;
  for (const auto& [name, size] : sizes)
    if (auto s = p.graph.env().find(name)) out[s->symbol_id()] = size;
  return out;
}
Meant meant(const Case& c) {
  Meant m;
  std::vector<Tensor> loads;
  std::unordered_map<uint64_t, int64_t> symbols = by_id(c.problem, c.sizes);
  for (ValueId v : c.problem.nest.loads) {
    Dims dims;
    for (const SymExpr& d : c.problem.graph.type(v).shape) dims.push_back(d.eval(symbols).value());
    Tensor t = Tensor::create(c.problem.graph.type(v).dtype, dims).value();
    for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, static_cast<double>((i * 7 + 3) % 11) / 8 - 0.6);
    m.inputs[c.problem.graph.value(v).name] = t;
    loads.push_back(t);
  }
  auto expected = interpret(c.problem.graph, c.problem.nest, loads, symbols);
  EXPECT_TRUE(expected.ok()) << expected.error().str();
  if (expected.ok()) m.expected = std::move(*expected);
  return m;
}
void expect_meant(const Case& c, const Meant& m, const ScheduledKernel& k, double tolerance) {
  auto actual = run_kernel(c.problem, k, m.inputs, c.sizes);
  for (size_t i = 0; i < m.expected.size(); ++i) {
    const auto& name = c.problem.graph.value(c.problem.nest.stores[i].value).name;
    Comparison same = compare(actual.at(name), m.expected[i], tolerance, tolerance);
    EXPECT_TRUE(same.same) << same.message << k.schedule.why << "\n" << tile::print(k.kernel);
  }
}

void each_kernel(const Case& c, const Target& device, const std::function<bool(const BlockPlan&)>& take,
                 const std::function<void(const BlockPlan&, ScheduledKernel)>& visit) {
  const Problem& p = c.problem;
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  BlockFacts facts(p.graph, p.nest, *domain, device);
  const CallSizes sizes = by_id(p, c.sizes);
  auto sized = sized_facts(facts, sizes);
  ASSERT_TRUE(sized.ok()) << sized.error().str();
  for_each_schedule(facts, *sized, sizes, true, [&](const BlockPlan& plan, int64_t) {
    if (!take(plan)) return;
    BlockPlan q = plan;
    write_config(q);
    TunedSchedule t{q.schedule, {}};
    for (size_t i = 0; i < sized->extents.size(); ++i) {
      const int64_t n = sized->extents[i];
      t.extents.push_back(facts.constant(facts.extent(i)) ? ExtentRange{n, n, 1} : bucket_of(n));
      if (static_cast<int>(i) != facts.contiguous_axis) t.extents.back().multiple_of = 1;
    }
    auto legal = tuned_plan(facts, t);
    if (!legal) return;
    auto k = lower_block(p.graph, p.nest, *domain, *legal, "kernel");
    ASSERT_TRUE(k.ok()) << k.error().str();
    if (conditions_hold(p.graph, *k, c.sizes)) visit(*legal, std::move(*k));
  });
}

} // namespace tessera::test
