// Barriers that are emitted are needed: without one of them the emulator finds a race.
#include "../schedule/block_harness.h"
#include "../schedule/nests.h"
#include "codegen/emulate/emulator.h"
#include <cstring>

namespace tessera::test {
namespace {

// Runs a kernel on zeros for those sizes: barriers do not depend on data.
void expect_needed(const Problem& p, const ScheduledKernel& k, const Sizes& sizes, size_t* barriers) {
  std::unordered_map<uint64_t, int64_t> by;
  for (const auto& [name, value] : sizes)
    if (auto s = p.graph.env().find(name)) by[s->symbol_id()] = value;
  std::vector<Tensor> memory;
  std::vector<tile::Argument> args;
  for (ValueId v : k.buffers) {
    Dims dims;
    for (const SymExpr& e : p.graph.type(v).shape) dims.push_back(e.eval(by).value());
    memory.push_back(Tensor::create(p.graph.type(v).dtype, dims, true).value());
    args.push_back({{memory.back().mutable_data(), memory.back().bytes()}, {}});
  }
  for (const SymExpr& s : k.sizes) args.push_back({{}, {0, s.eval(by).value()}});
  int64_t grid = k.grid.eval(by).value();
  auto program = EmulatedProgram::compile(k.kernel, {});
  ASSERT_TRUE(program.ok()) << program.error().str();
  auto plain = program->run(args, grid);
  ASSERT_TRUE(plain.ok()) << plain.error().str();
  *barriers += plain->barrier_sites.size();
  for (int site : plain->barrier_sites) {
    auto without = program->run(args, grid, {.ignored_barrier = site});
    EXPECT_FALSE(without.ok()) << "barrier " << site << " of " << plain->barrier_sites.size() << " is not needed in\n"
                               << tile::print(k.kernel);
  }
}

TEST(Barriers, AreNeeded) {
  std::vector<Case> cases;
  cases.push_back({softmax("f16"), {{"b", 3}, {"s", 256}}});
  cases.push_back({softmax(), {{"b", 2}, {"s", 1000}}});
  cases.push_back({softmax(), {{"b", 1}, {"s", 20000}}});
  cases.push_back({layer_norm("768", "f16"), {{"b", 1}, {"s", 2}}});
  cases.push_back({layer_norm("8192", "f16"), {{"b", 1}, {"s", 2}}});
  cases.push_back({layer_norm("5000"), {{"b", 1}, {"s", 2}}});
  cases.push_back({layer_norm("w"), {{"b", 1}, {"s", 2}, {"w", 20000}}});
  cases.push_back({column_sum(), {{"n", 300}, {"c", 70}}});
  cases.push_back({problem("x: f32[n, m]\ny: f32[m, n]",
                           "nest transpose outer(i0: m, i1: n) { %0 = load x[i1, i0] : f32\n store y[i0, i1] = %0 }"),
                   {{"n", 130}, {"m", 140}}}); // whole tiles and others
  size_t barriers = 0;
  for (const auto& c : cases)
    for (const auto& k : lower_blocks(c.problem)) {
      if (!conditions_hold(c.problem.graph, k, c.sizes)) continue;
      // A barrier stands between a loop that reads rows and one that writes them in place, although each thread has the
      // same elements in both: Hazards compares offsets as values, and these are two. Cooperative blocks have memory of
      // their own.
      if (k.schedule.kind == ScheduleKind::BlockLoop || k.schedule.kind == ScheduleKind::BlockCooperative) continue;
      SCOPED_TRACE(c.problem.nest.name + " " + k.why);
      expect_needed(c.problem, k, c.sizes, &barriers);
    }
  EXPECT_GT(barriers, 2u);
}

} // namespace
} // namespace tessera::test
