#include "block_harness.h"
#include "codegen/schedule/space.h"
#include "codegen/target/select.h"
#include <bit>

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

// The same schedule with a tile of a few elements. What the tile promises to hold (a whole row) stays.
Legal small(Legal p, const Domain& domain) {
  Schedule& s = p.schedule;
  s.traversal.fold_steps = std::min(s.traversal.fold_steps, 2);
  s.tile.contiguous = std::min(s.tile.contiguous, 2);
  bool rows = s.tile.rows > 1 || (s.kind == ScheduleKind::BlockLoop && !p.groups.rows.empty());
  switch (s.kind) {
  case ScheduleKind::BlockCooperative: { // any number of rows that are not empty, however many share them
    SymExpr row = domain.row_count();
    std::erase_if(p.conditions, [](const SizeCondition& c) { return c.multiple_of == 1; });
    if (!row.is_const()) p.conditions.push_back({row, 1, 1});
    SymExpr points = 1; // few of them: all blocks of a grid may have to run at once
    for (const Axis& a : domain.axes)
      if (a.role == AxisRole::Outer) points *= a.extent;
    if (!points.is_const()) p.conditions.push_back({points, 1, 0, 20});
    s.tile.columns = std::max(8, 2 * s.access.alignment_peel);
    while (s.tile.columns < row.as_const().value_or(0) / 32) s.tile.columns *= 2;
    if (s.tile.rows > 1) s.tile.rows = 4;
    s.tile.warps = 2;
    p.max_blocks_per_row = 64;
    p.blocks_per_row = !s.traversal.loop ? ceildiv(row + SymExpr(s.access.alignment_peel - 1), s.tile.columns)
                       : p.grid_barrier  ? SymExpr(3)
                                         : sym_min(row, 4) + 1;
    p.grid_barrier = true; // as it may without online sums
    s.residency.cached_tiles = s.traversal.loop ? 2 : 0;
    p.mailboxes = s.traversal.loop; // so that both ways to meet are taken
    break;
  }
  case ScheduleKind::BlockFlat:
    if (s.tile.rows > 1) s.tile.rows = 4;
    if (s.tile.columns > 1 && s.placement.split_axis < 0) s.tile.columns = 8;
    break;
  case ScheduleKind::BlockRows:
    s.tile.rows = p.groups.rows.empty() || s.access.alignment_peel > 1 ? 1 : s.tile.rows == 2 ? 1 : 2;
    break;
  case ScheduleKind::BlockLoop:
    s.tile.rows = rows && s.access.alignment_peel == 1 ? 2 : 1;
    s.tile.columns = s.access.alignment_peel > 1 ? std::max(8, 2 * s.access.alignment_peel)
                     : s.tile.contiguous > 1     ? 8
                                                 : 4;
    break;
  case ScheduleKind::BlockWindow: s.tile.rows = 4; break;
  default:
    if (s.traversal.loop) s.tile.rows = 4;
    s.tile.columns = 8;
  }
  return p;
}

} // namespace

Target gpu_with(int multiprocessors) {
  Target device = shipped_target("h200");
  device.multiprocessors = multiprocessors;
  return device;
}

std::vector<ScheduledKernel> lower_blocks(const Problem& p, const LoweringOptions& options, const Target& device) {
  auto kernels = lower_for_gpu(p.graph, p.nest, device, p.nest.name, options);
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
  const LoweringOptions exact{.exact_division = true};
  const BlockFacts facts(p.graph, p.nest, *domain, device);
  for (const BlockChoice& choice : choose_blocks(facts, exact)) {
    auto again = parse_schedule(print(choice.legal.schedule));
    EXPECT_TRUE(again.ok() && *again == choice.legal.schedule) << print(choice.legal.schedule);
    for (bool online : {false, true}) {
      Legal tiny = small(choice.legal, *domain);
      const bool walks = tiny.schedule.traversal.loop || tiny.blocks_per_row;
      if (online && !walks) continue;
      tiny.schedule.traversal.online = online && walks;
      auto k = lower_block(p.graph, p.nest, *domain, tiny, "small", exact);
      EXPECT_TRUE(k.ok()) << k.error().str();
      if (!k.ok()) continue;
      check(*k);
      if (tiny.blocks_per_row) k->conditions.push_back({*tiny.blocks_per_row, 1, 1, tiny.max_blocks_per_row});
      k->why = choice.why + (online ? " (small tile, online)" : " (small tile)");
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

Problem of_graph(const std::string& text) {
  Problem out;
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().str());
  if (!graph.ok()) return out;
  out.graph = std::move(*graph);
  const ValueId y = out.graph.outputs()[0].value;
  auto nest = make_nest(out.graph, out.graph.value(y).producer, false);
  EXPECT_TRUE(nest.ok()) << (nest.ok() ? "" : nest.error().str());
  if (nest.ok()) out.nest = std::move(*nest);
  return out;
}

CallSizes by_id(const Problem& p, const Sizes& sizes) {
  CallSizes out;
  for (const auto& [name, size] : sizes)
    if (auto s = p.graph.env().find(name)) out[s->symbol_id()] = size;
  return out;
}
Meant meant(const Case& c, const InputScale& scale) {
  Meant m;
  std::vector<Tensor> loads;
  std::unordered_map<uint64_t, int64_t> symbols = by_id(c.problem, c.sizes);
  for (ValueId v : c.problem.nest.loads) {
    Dims dims;
    for (const SymExpr& d : c.problem.graph.type(v).shape) dims.push_back(d.eval(symbols).value());
    Tensor t = Tensor::create(c.problem.graph.type(v).dtype, dims).value();
    const std::string& name = c.problem.graph.value(v).name;
    const double by = scale ? scale(name) : 1;
    for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, by * (static_cast<double>((i * 7 + 3) % 11) / 8 - 0.6));
    m.inputs[name] = t;
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
    EXPECT_TRUE(same.same) << same.message << k.why << "\n" << tile::print(k.kernel);
  }
}

void each_kernel(const Case& c, const Target& device, const std::function<bool(const Schedule&)>& take,
                 const std::function<void(const Legal&, ScheduledKernel)>& visit) {
  const Problem& p = c.problem;
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  BlockFacts facts(p.graph, p.nest, *domain, device);
  const CallSizes sizes = by_id(p, c.sizes);
  auto sized = sized_facts(facts, sizes);
  ASSERT_TRUE(sized.ok()) << sized.error().str();
  const std::vector<ExtentRange> ranges = ranges_of(facts, sized->extents, sizes);
  for_each_schedule(facts, *sized, sizes, true, [&](const Schedule& schedule, int64_t) {
    if (!take(schedule)) return;
    const Legal l = legal(facts, schedule, ranges);
    if (!l) return;
    auto k = device.is_gpu() ? lower_block(p.graph, p.nest, *domain, l, "kernel")
                             : lower_to_tiles(p.graph, p.nest, schedule, "kernel");
    ASSERT_TRUE(k.ok()) << k.error().str();
    if (conditions_hold(p.graph, *k, c.sizes)) visit(l, std::move(*k));
  });
}

std::string form(const Schedule& s) {
  std::string text(name(s.kind));
  for (auto [what, on] :
       std::initializer_list<std::pair<const char*, bool>>{{"rows", s.tile.rows > 1},
                                                           {"loop", s.traversal.loop},
                                                           {"rows in flight", s.traversal.rows_in_flight > 1},
                                                           {"pipelined", s.traversal.num_stages > 1},
                                                           {"peel", s.access.alignment_peel > 1},
                                                           {"contiguous", s.tile.contiguous > 1},
                                                           {"steps", s.traversal.fold_steps > 1},
                                                           {"cached", s.residency.cached_tiles > 0},
                                                           {"copied", s.residency.async_copy},
                                                           {"staged", s.access.staged},
                                                           {"rows fastest", s.placement.rows_fastest},
                                                           {"split", s.placement.split_axis >= 0},
                                                           {"unmasked", s.traversal.unmasked_branch},
                                                           {"max blocks", s.cooperation.max_blocks > 0},
                                                           {"cluster", s.cooperation.cluster > 1},
                                                           {"column axes", std::popcount(s.placement.column_axes) > 1},
                                                           {"row axes", s.placement.row_axes != 0},
                                                           {"box", s.placement.row_box != 0},
                                                           {"online", s.traversal.online},
                                                           {"forward", !s.traversal.serpentine},
                                                           {"unroll", s.tile.unroll > 1},
                                                           {"square", s.tile.square > 1},
                                                           {"distant", s.traversal.prefetch_points > 0},
                                                           {"in output", s.residency.cache_in_output},
                                                           {"shared", s.cooperation.programs_per_row > 1}})
    if (on) text += std::string(" ") + what;
  return text;
}

} // namespace tessera::test
