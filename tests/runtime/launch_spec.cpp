#include "runtime/launch_spec.h"
#include "symbols/env.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

LaunchSpec launch(const SymExpr& n) {
  LaunchSpec k;
  k.sizes = {n, 4};
  k.grid = ceildiv(n, 64);
  k.work_per_program = 64;
  k.workspaces = {{DType::F16, n * 2}};
  k.access = {{DType::F32, n + 1, {0}}};
  k.conditions = {{n + 2, 8, 16, 1024}};
  k.facts = {{n + 3, 1, 0, 7}};
  return k;
}

TEST(LaunchSpec, PrintsItsNumbers) {
  ShapeEnv env;
  const SymExpr n = env.named_symbol("n");
  EXPECT_EQ(print(LaunchSpec()), "");
  EXPECT_EQ(print(launch(n)), "sizes = [n, 4]; grid = " + ceildiv(n, 64).str() + "; work = 64; workspaces = [f16 * (" +
                                  (n * 2).str() + ")]");
}

TEST(LaunchSpec, ConvertsEachSizeAndKeepsTheRest) {
  ShapeEnv env;
  const SymExpr n = env.named_symbol("n");
  std::vector<std::string> bounded;
  const auto values = convert_sizes<int64_t>(launch(n), [&](const LaunchField& field, const SymExpr& size) {
    if (!field.memory.empty()) bounded.emplace_back(field.key);
    return size.eval({{n.symbol_id(), 100}}).value();
  });
  EXPECT_EQ(bounded, (std::vector<std::string>{"scratch", "counters", "boxes", "workspaces"}));
  EXPECT_EQ(values.sizes, (std::vector<int64_t>{100, 4}));
  EXPECT_EQ(values.grid, 2);
  EXPECT_EQ(values.workspaces.at(0).bytes(), 400);
  EXPECT_EQ(values.access.at(0).elements, 101);
  EXPECT_EQ(values.access.at(0).may_overwrite, std::vector<int>{0});
  EXPECT_EQ(values.conditions.at(0).value, 102);
  EXPECT_TRUE(values.conditions.at(0).allows(104));
  EXPECT_FALSE(values.conditions.at(0).allows(102));
  EXPECT_FALSE(values.conditions.at(0).allows(8));
  EXPECT_EQ(values.facts.at(0).max, 7);
  int sizes = 0;
  each_size(launch(n), [&](const SymExpr&) { ++sizes; });
  EXPECT_EQ(sizes, 2 + 6 + 1 + 1 + 1 + 1);
}

TEST(LaunchSpec, SaysWhatItIsFor) {
  LaunchSpec k;
  EXPECT_TRUE(has(launch(1), LaunchUse::Shared)); // its workspace
  EXPECT_FALSE(has(launch(1), LaunchUse::Waits));
  EXPECT_FALSE(has(k, LaunchUse::Shared));
  k.cooperative_blocks = 8;
  EXPECT_TRUE(has(k, LaunchUse::Shared));
  EXPECT_TRUE(has(k, LaunchUse::Waits));
}

} // namespace
} // namespace tessera
